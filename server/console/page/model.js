// The state of one fetch, built from its events. Times are seconds since its start.

import { seconds, bytesOf } from './text.js';

// keptBytes is the number of body bytes kept to save. The default of max_size_bytes is a quarter.
export const keptBytes = 64 << 20;

// shownBytes is the number of body bytes that can be shown, and that a HAR file has.
export const shownBytes = 256 << 10;

// phaseFields maps the phases of a hop, in order, to fields of Exchange.
const phaseFields = [
  ['resolve', 'resolve_duration'], ['connect', 'connect_duration'], ['tls', 'tls_duration'],
  ['wait', 'processing_duration'], ['body', 'transfer_duration'],
];

// phaseOfError maps the phase of an error to the phase that was not finished.
const phaseOfError = {
  PHASE_RESOLVE: 'resolve', PHASE_CONNECT: 'connect', PHASE_TLS: 'tls',
  PHASE_REQUEST: 'wait', PHASE_PROCESSING: 'wait', PHASE_TRANSFER: 'body',
};

// Fetch collects the events of a fetch.
export class Fetch {
  constructor(request) {
    this.request = request;
    this.began = performance.now();
    this.synced = false; // with the service's clock
    this.startTime = Date.now(); // until the service sends it
    this.attempts = [];
    this.body = { attempt: 0, from: 0, chunks: [], kept: 0, size: 0 }; // from: the attempt that started it
    this.outcome = null;
    this.refused = null;
    this.cancelled = false;
    this.effective = null;
    this.clamped = [];
    this.fetchId = '';
    this.end = undefined;
  }

  // now returns the time since the start. While the fetch runs, it uses the clock of the page.
  now() {
    return this.end ?? (performance.now() - this.began) / 1000;
  }

  get running() {
    return this.end === undefined;
  }

  // take processes an event.
  take(event) {
    const at = seconds(event.elapsed_offset) ?? this.now();
    const began = performance.now() - at * 1000;
    this.began = this.synced ? Math.min(this.began, began) : began; // the event with the least delay gives the best estimate
    this.synced = true;
    if (event.admitted) this.admit(event.admitted);
    else if (event.attempt_started) this.start(event.attempt_started, at);
    else if (event.redirect_followed) this.redirect(event.redirect_followed);
    else if (event.response_started) this.response(event.response_started, at);
    else if (event.body_chunk) this.chunk(event.body_chunk);
    else if (event.attempt_finished) this.finish(event.attempt_finished, at);
    else if (event.outcome) this.settle(event.outcome, at);
  }

  admit(admitted) {
    this.fetchId = admitted.fetch_id || '';
    this.effective = admitted.effective_request || null;
    this.clamped = admitted.clamped_fields || [];
    const startTime = Date.parse(admitted.start_time);
    if (Number.isFinite(startTime)) this.startTime = startTime;
  }

  attempt(number) {
    let a = this.attempts.find((x) => x.number === number);
    if (!a) {
      a = { number, url: '', start: 0, end: undefined, hops: [], response: null, responseAt: undefined, error: null, decision: null };
      this.attempts.push(a);
    }
    return a;
  }

  start(event, at) {
    Object.assign(this.attempt(event.attempt), { url: event.url, start: at });
  }

  redirect(event) {
    this.attempt(event.attempt).hops.push(hopOf(event.hop));
  }

  response(event, at) {
    const a = this.attempt(event.attempt);
    a.response = event.response || null;
    a.responseAt = at;
    if (this.body.attempt !== event.attempt) this.truncate(Number(event.body_offset_bytes || 0), event.attempt);
  }

  // truncate drops the bytes from an offset on: a body can restart at a lower offset.
  truncate(offset, attempt) {
    this.body.attempt = attempt;
    if (offset === 0 || this.body.size === 0) this.body.from = attempt;
    if (offset >= this.body.size) return;
    const all = this.bodyBytes(offset);
    Object.assign(this.body, { chunks: [all], kept: all.length, size: offset });
  }

  chunk(event) {
    const length = Math.floor(event.data.replace(/=+$/, '').length * 3 / 4);
    if (this.body.kept < keptBytes) {
      const data = bytesOf(event.data).subarray(0, keptBytes - this.body.kept);
      this.body.chunks.push(data);
      this.body.kept += data.length;
    }
    this.body.attempt = event.attempt;
    this.body.size += length;
  }

  // bodyBytes returns the first bytes of the delivered body, at most limit.
  bodyBytes(limit) {
    const all = new Uint8Array(Math.min(this.body.kept, limit));
    let at = 0;
    for (const chunk of this.body.chunks) {
      if (at === all.length) break;
      all.set(chunk.subarray(0, all.length - at), at);
      at = Math.min(at + chunk.length, all.length);
    }
    return all;
  }

  finish(event, at) {
    const a = this.attempt(event.attempt);
    const withHeaders = a.hops;
    a.hops = (event.hops || []).map((hop, i) => Object.assign(hopOf(hop), { headers: withHeaders[i]?.headers || hop.headers || [] }));
    a.response = event.response || null;
    const last = a.hops.at(-1);
    if (last && a.response) Object.assign(last, { headers: a.response.headers || [], response: a.response });
    Object.assign(a, { end: at, error: event.error || null, decision: event.retry_decision || null });
  }

  settle(outcome, at) {
    this.outcome = outcome;
    this.end = at;
  }

  // stop ends a fetch without an outcome: the user cancelled it, or the service rejected it.
  stop(why) {
    if (!this.running) return;
    this.end = this.now();
    if (why) this.refused = why;
    else this.cancelled = true;
  }

  // shown returns a body, or null if there is none: the bytes to show, all parts that are kept and
  // their size, the size of the body and whether it is known, and whose body it is.
  shown() {
    const { size, kept, chunks } = this.body;
    if (size > 0) return { bytes: this.bodyBytes(shownBytes), parts: chunks, kept, size, known: true, of: 'body' };
    if (this.outcome?.inline_body) return inOutcome(this.outcome.inline_body, 'body');
    if (this.outcome?.error_body) return inOutcome(this.outcome.error_body, 'the failed response');
    return null;
  }
}

function inOutcome(text, of) {
  const bytes = bytesOf(text);
  return { bytes: bytes.subarray(0, shownBytes), parts: [bytes], kept: bytes.length, size: bytes.length, known: of === 'body', of };
}

function hopOf(hop) {
  return {
    method: hop.method || '', url: hop.url || '', status: hop.status_code || 0, location: hop.location_url || '',
    start: seconds(hop.start_offset) ?? 0, exchange: hop.exchange || {}, headers: hop.headers || [], response: null,
  };
}

// phases returns the phases of a hop that took time: name, start, end.
export function phases(hop) {
  const found = [];
  let at = hop.start;
  for (const [name, field] of phaseFields) {
    const took = seconds(hop.exchange[field]);
    if (took === undefined) continue;
    found.push({ name, start: at, end: at + took });
    at += took;
  }
  return found;
}

// bars returns the phases of hop i of an attempt. If the attempt failed in a phase, that
// phase is the last and marked broken.
export function bars(fetch, attempt, i) {
  const hop = attempt.hops[i];
  const found = phases(hop);
  const last = i === attempt.hops.length - 1 && attempt.end !== undefined;
  const at = found.at(-1)?.end ?? hop.start;
  const name = phaseOfError[attempt.error?.phase];
  const known = found.some((p) => p.name === name);
  if (last && name && !known && attempt.end > at) found.push({ name, start: at, end: attempt.end, broken: true });
  return found;
}

// inFlight returns the part of an attempt that no hop reports yet, or null.
export function inFlight(fetch, attempt) {
  if (attempt.end !== undefined) return null;
  const hop = attempt.hops.at(-1);
  const start = hop ? phases(hop).at(-1)?.end ?? hop.start : attempt.start;
  return { url: hop?.location || attempt.url, start, responseAt: attempt.responseAt, end: Math.max(fetch.now(), start) };
}

// gap returns the wait after an attempt, or null if no attempt follows.
export function gap(attempt) {
  const retry = attempt.decision?.retry;
  if (!retry || attempt.end === undefined) return null;
  return { start: attempt.end, delay: seconds(retry.delay) ?? 0, source: retry.delay_source, rule: attempt.decision.rule || '' };
}

// shortest is the length in seconds of the waits that are worth a text.
const shortest = 1;

// waiting returns what a fetch waits for: the next attempt, with the seconds left of its gap, or the
// origin, with the seconds so far. It returns null if the wait is short.
export function waiting(fetch) {
  const last = fetch.attempts.at(-1);
  if (!last || !fetch.running) return null;
  const g = gap(last);
  if (g) return g.delay < shortest ? null : { attempt: last.number + 1, gap: g, left: Math.max(g.start + g.delay - fetch.now(), 0) };
  if (last.end !== undefined) return null;
  const from = last.responseAt ?? last.start;
  const since = fetch.now() - from;
  return since < shortest ? null : { attempt: last.number, since, body: last.responseAt !== undefined };
}
