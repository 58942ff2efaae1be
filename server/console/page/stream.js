// Calls POST /v1/fetch, which answers one event per line.

// Refused is thrown if the service rejects the request. It holds a google.rpc.Status.
export class Refused extends Error {
  constructor(status, http) {
    super(String(status.message || 'the service gave no reason'));
    this.http = http;
    this.code = status.code;
    this.violations = [];
    for (const detail of Array.isArray(status.details) ? status.details : []) {
      for (const v of Array.isArray(detail.field_violations) ? detail.field_violations : []) {
        this.violations.push({ field: String(v.field || ''), description: String(v.description || '') });
      }
    }
  }
}

// call sends a request and passes each event to take, until the outcome. It throws Refused
// if the service rejects the request, and AbortError if signal aborts the call.
export async function call(request, token, signal, take) {
  const headers = { 'Content-Type': 'application/json' };
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch('../v1/fetch', {
    method: 'POST', headers, body: JSON.stringify(request), signal,
    cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer',
  });
  if (!answer.ok) throw new Refused(await statusOf(answer), answer.status);
  let ended = false;
  for await (const line of lines(answer.body)) {
    const message = JSON.parse(line);
    if (message.error) throw new Refused(message.error, 0);
    ended ||= message.outcome !== undefined;
    take(message);
  }
  if (!ended) throw new Refused({ message: 'the response ended without an outcome: the connection broke' }, 0);
}

async function statusOf(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text);
  } catch {
    return { message: `${answer.status} ${answer.statusText}, without a readable reason` };
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      let rest = value;
      for (let at = rest.indexOf('\n'); at >= 0; at = rest.indexOf('\n')) {
        parts.push(rest.slice(0, at));
        const line = parts.join('');
        parts = [];
        if (line) yield line;
        rest = rest.slice(at + 1);
      }
      if (rest) parts.push(rest);
    }
  } finally {
    await reader.cancel().catch(() => {}); // stopping to read cancels the fetch
  }
}
