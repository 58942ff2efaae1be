// Calls the API of this page's origin with JSON.

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

// post sends a message and returns the response. It throws Refused if the service rejects the
// request, and AbortError if signal aborts it.
export function post(path, message, token, signal) {
  return send(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(message), signal }, token);
}

// get is like post, but sends the fields of the message in the query.
export function get(path, message, token, signal) {
  return send(`${path}?${new URLSearchParams(message)}`, { headers: {}, signal }, token);
}

async function send(path, request, token) {
  if (token) request.headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...request, cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer' });
  if (!answer.ok) throw new Refused(await statusOf(answer), answer.status);
  return answer;
}

async function statusOf(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text);
  } catch {
    return { message: `${answer.status} ${answer.statusText}, without a readable reason` };
  }
}

// lines yields the lines of a body. It reads no more once its caller stops.
export async function* lines(body) {
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
    await reader.cancel().catch(() => {}); // this cancels the call
  }
}
