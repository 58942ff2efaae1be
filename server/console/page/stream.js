// Calls POST /v1/fetch, which answers one event per line.

import { lines, post, Refused } from './call.js';

// call sends a request and passes each event to take, until the outcome. It throws Refused
// if the service rejects the request, and AbortError if signal aborts the call.
export async function call(request, token, signal, take) {
  const answer = await post('../v1/fetch', request, token, signal);
  let ended = false;
  for await (const line of lines(answer.body)) {
    const message = JSON.parse(line);
    if (message.error) throw new Refused(message.error, 0);
    ended ||= message.outcome !== undefined;
    take(message);
  }
  if (!ended) throw new Refused({ message: 'the response ended without an outcome: the connection broke' }, 0);
}
