// Calls POST /v1/fetch. A line of its response is a message with one or more events.

import { lines, post, Refused } from './call.js';

// call sends a request and passes each event to take, until the outcome. It throws Refused
// if the service rejects the request, and AbortError if signal aborts the call.
export async function call(request, token, signal, take) {
  const answer = await post('../v1/fetch', request, token, signal);
  let ended = false;
  for await (const line of lines(answer.body)) {
    const message = JSON.parse(line);
    if (message.error) throw new Refused(message.error, 0);
    for (const event of message.events ?? []) {
      ended ||= event.outcome !== undefined;
      take(event);
    }
  }
  if (!ended) throw new Refused({ message: 'the response ended without an outcome: the connection broke' }, 0);
}
