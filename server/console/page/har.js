// Converts a fetch to HAR 1.2, with an entry for each hop of each attempt.

import { phases } from './model.js';
import { base64, bytesOf, short } from './text.js';
import { credential } from './secrets.js';

// kept has the headers that are forwarded to another origin (spec D4).
const kept = new Set(['accept', 'accept-language', 'accept-encoding', 'user-agent', 'range', 'if-match', 'if-none-match',
  'if-modified-since', 'if-unmodified-since', 'if-range', 'idempotency-key']);

// har returns the log of a fetch. It leaves out the request body and the values of headers
// that may be credentials.
export function har(fetch, version) {
  const entries = [];
  for (const attempt of fetch.attempts) {
    let away = false;
    attempt.hops.forEach((hop, i) => {
      away ||= i > 0 && origin(hop.url) !== origin(attempt.hops[i - 1].url);
      entries.push(entry(fetch, attempt, hop, i, away));
    });
  }
  return { log: { version: '1.2', creator: { name: 'fetchd console', version: version || 'dev' }, pages: [], entries, comment: `fetch ${fetch.fetchId}` } };
}

function origin(url) {
  try {
    return new URL(url).origin;
  } catch {
    return '';
  }
}

function entry(fetch, attempt, hop, i, away) {
  const last = i === attempt.hops.length - 1;
  const timings = timingsOf(fetch, attempt, hop, last);
  const made = {
    startedDateTime: new Date(fetch.startTime + hop.start * 1000).toISOString(),
    time: ['blocked', 'dns', 'connect', 'send', 'wait', 'receive'].reduce((sum, k) => sum + Math.max(0, timings[k]), 0),
    request: requestOf(fetch, hop, i, away),
    response: responseOf(fetch, attempt, hop, last),
    cache: {},
    timings,
    comment: comment(attempt, i, last),
    _attempt: attempt.number,
    _hop: i + 1,
  };
  const at = hop.exchange.remote_address || '';
  if (at) {
    made.serverIPAddress = at.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
    made.connection = at;
  }
  if (last && attempt.error) made._error = `${short(attempt.error.error_class)} ${attempt.error.message || ''}${attempt.error.detail ? `; ${attempt.error.detail}` : ''}`.trim();
  return made;
}

function comment(attempt, i, last) {
  let text = `attempt ${attempt.number}, hop ${i + 1}`;
  if (!last) return text;
  if (attempt.error) text += `: ${short(attempt.error.error_class)} (rule ${attempt.error.class_rule})`;
  const d = attempt.decision;
  if (d) text += `; ${d.retry ? `retry in ${d.retry.delay}, ${short(d.retry.delay_source)}` : short(d.stop_reason)} (rule ${d.rule})`;
  return text;
}

const milliseconds = (s) => Math.round(s * 1e6) / 1e3;

// timingsOf returns the timings. The format includes TLS in connect.
function timingsOf(fetch, attempt, hop, last) {
  const t = { blocked: -1, dns: -1, connect: -1, send: 0, wait: 0, receive: 0, ssl: -1 };
  const known = phases(hop);
  for (const phase of known) {
    const took = milliseconds(phase.end - phase.start);
    if (phase.name === 'resolve') t.dns = took;
    if (phase.name === 'connect') t.connect = took;
    if (phase.name === 'tls') t.ssl = took;
    if (phase.name === 'wait') t.wait = took;
    if (phase.name === 'body') t.receive = took;
  }
  if (t.ssl >= 0) t.connect = milliseconds(Math.max(0, t.connect) / 1000 + t.ssl / 1000);
  const knownEnd = known.at(-1)?.end ?? hop.start;
  if (last && attempt.error && hop.status === 0 && attempt.end > knownEnd) t.wait = milliseconds(t.wait / 1000 + attempt.end - knownEnd);
  return t;
}

function requestOf(fetch, hop, i, away) {
  const headers = (Array.isArray(fetch.request.headers) ? fetch.request.headers : [])
    .filter((h) => h?.name && (!away || fetch.request.redirect_policy?.forward_credentials || kept.has(h.name.toLowerCase())))
    .map((h) => pair(h));
  const made = {
    method: hop.method || 'GET', url: hop.url.replace(/#.*$/s, ''), httpVersion: hop.exchange.protocol || 'unknown', cookies: [], headers,
    queryString: queryOf(hop.url), headersSize: -1, bodySize: 0,
  };
  if (fetch.request.body && hop.method === (fetch.request.method || 'GET')) {
    made.bodySize = bytesOf(fetch.request.body).length;
    made.comment = 'without the body, and without the headers that the service adds';
  }
  return made;
}

function queryOf(url) {
  try {
    return [...new URL(url).searchParams].map(([name, value]) => ({ name, value }));
  } catch {
    return [];
  }
}

function pair(h) {
  const name = String(h.name);
  if (credential(name, h.value)) return { name, value: '', comment: 'left out: a credential' };
  return { name, value: String(h.value || '') };
}

function find(headers, name) {
  return headers.find((h) => h.name.toLowerCase() === name)?.value || '';
}

function responseOf(fetch, attempt, hop, last) {
  const headers = hop.headers.map(pair);
  return {
    status: hop.status, statusText: '', httpVersion: hop.exchange.protocol || 'unknown', cookies: [], headers,
    content: contentOf(fetch, attempt, hop, last), redirectURL: hop.location, headersSize: -1, bodySize: -1,
  };
}

function contentOf(fetch, attempt, hop, last) {
  const made = { size: 0, mimeType: find(hop.headers, 'content-type') || 'x-unknown' };
  const shown = fetch.shown();
  const of = shown?.of === 'body' ? attempt.number === (fetch.body.from || fetch.attempts.at(-1)?.number) : attempt.number === fetch.outcome?.response_attempt;
  if (!last || !shown || !of) return made;
  made.size = shown.size;
  if (!shown.known || shown.bytes.length < shown.size) made.comment = `the first ${shown.bytes.length} bytes`;
  try {
    made.text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(shown.bytes);
  } catch {
    made.text = base64(shown.bytes);
    made.encoding = 'base64';
  }
  return made;
}
