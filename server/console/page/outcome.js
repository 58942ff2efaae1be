// Shows the outcome, its headers, and where its body and records are. Everything from an origin
// is inserted as text, never as markup.

import { bodyOf } from './body.js';
import { el, foreign, short, seconds, size, time, visible } from './text.js';
import { meaning } from './rules.js';

const kinds = {
  OUTCOME_KIND_SUCCESS: ['good', 'Success'], OUTCOME_KIND_NOT_MODIFIED: ['good', 'Not modified'],
  OUTCOME_KIND_REDIRECT: ['warn', 'Redirect, not followed'], OUTCOME_KIND_FAILED: ['bad', 'Failed'],
};

const openRecords = 12; // a longer table is folded

// headline returns the outcome in one sentence, and its colour.
export function headline(fetch) {
  if (fetch.cancelled) return { state: 'warn', text: `Cancelled after ${time(fetch.end)}` };
  if (fetch.refused) return { state: 'bad', text: 'Not fetched' };
  const o = fetch.outcome;
  const [state, word] = kinds[o.kind] || ['warn', short(o.kind)];
  const status = o.response?.status_code;
  const what = o.error ? `${short(o.error.error_class)}${status ? `, status ${status},` : ''}` : `${status ?? ''}`;
  const attempts = `${o.attempt_count || 0} ${o.attempt_count === 1 ? 'attempt' : 'attempts'}`;
  return { state, text: `${word}: ${what} after ${attempts}, ${time(seconds(o.total_duration))}${advice(o.error)}` };
}

// advice says what a failure means for a later fetch.
function advice(e) {
  if (!e) return '';
  if (notSentAgain(e)) return '; not sent again, because it may have taken effect';
  return e.retryable ? '; a later fetch may succeed' : '; do not fetch it again: that will fail, too';
}

// notSentAgain reports whether a failure may pass, and repeating the request could repeat its effect.
function notSentAgain(e) {
  return e && !e.retryable && !/NOT_SENT|NOT_PROCESSED/.test(e.request_state) && /TRANSIENT|RATE_LIMITED/.test(e.failure_type) && (e.error_class !== 'ERROR_CLASS_INTERNAL' || e.reason === 'too_many_open_files');
}

// draw fills the outcome section. announce receives what its buttons did.
export function draw(fetch, into, announce) {
  const parts = [];
  if (fetch.refused) parts.push(...refusal(fetch.refused));
  if (fetch.cancelled) parts.push(el('p', {}, 'You cancelled the call. The service cancels the fetch and closes its connection, so there is no outcome.'));
  const body = fetch.outcome ? bodyOf(fetch, announce) : [];
  if (fetch.outcome) parts.push(...body, facts(fetch));
  if (fetch.outcome) parts.push(...stored(fetch.outcome.stored_object), ...records(fetch.outcome.records || []), ...response(fetch));
  into.replaceChildren(...parts);
}

// refusal shows the violations of a request, which the message repeats, or the message.
function refusal(refused) {
  if (!refused.violations?.length) return [el('p', {}, foreign(refused.message, 'span'))];
  return [el('p', {}, 'The request is not valid:'), el('ul', { class: 'violations' }, ...refused.violations.map((v) =>
    el('li', {}, el('code', {}, visible(v.field)), ' ', foreign(v.description, 'span'))))];
}

function withMeaning(rule) {
  const words = meaning(rule);
  return words ? `${visible(rule)}: ${words}` : visible(rule || '');
}

function facts(fetch) {
  const o = fetch.outcome;
  const e = o.error;
  const { list, add } = factList();
  add('Status', o.response?.status_code ? `${o.response.status_code}, of attempt ${o.response_attempt}` : 'no response');
  add('Rule', withMeaning(o.decision_rule));
  if (e) {
    add('Class', short(e.error_class));
    if (e.class_rule && e.class_rule !== o.decision_rule) add('Rule of the class', withMeaning(e.class_rule));
    add('Failure type', short(e.failure_type));
    add('Retryable', e.retryable ? 'yes: a later fetch may succeed' : 'no');
    add('Stopped because', short(e.stop_reason));
    add('Phase', short(e.phase));
    add('Reason', visible(e.reason || ''));
    add('Message', e.message && foreign(e.message, 'span'));
    add('Detail', e.detail && foreign(e.detail, 'span'));
    add('Retry-After', e.retry_after && time(seconds(e.retry_after)));
    add('Failed at', e.url && e.url !== o.final_url && foreign(e.url));
  }
  add('Final URL', o.final_url && foreign(o.final_url));
  add('Attempts', `${o.attempt_count || 0}, ${o.exchange_count || 0} ${o.exchange_count === 1 ? 'exchange' : 'exchanges'}`);
  add('Time', time(seconds(o.total_duration)));
  add('Body', e ? '' : bodyFact(o.body_summary));
  add('SHA-256', code(o.body_summary?.sha256));
  const exchange = o.hops?.at(-1)?.exchange;
  add('Connection', connection(exchange));
  add('Certificate', certificate(exchange?.certificate));
  add('Changed by the service', fetch.clamped.length ? fetch.clamped.map(visible).join(', ') : '');
  add('Fetch', o.fetch_id && el('code', {}, visible(o.fetch_id)));
  return list;
}

// factList returns a list of facts, and a function that adds one. A fact without a value is left
// out.
function factList() {
  const list = el('dl', { class: 'facts' });
  const add = (name, value) => {
    if (value) list.append(el('div', {}, el('dt', {}, name), el('dd', {}, value)));
  };
  return { list, add };
}

function code(text) {
  return text ? el('code', { class: 'foreign' }, visible(text)) : '';
}

function stored(object) {
  if (!object) return [];
  const { list, add } = factList();
  add('Store', visible(object.store || ''));
  add('Key', code(object.key));
  add('Size', size(Number(object.size_bytes || 0)));
  add('SHA-256', code(object.sha256));
  add('ETag', code(object.etag));
  add('Version', code(object.version));
  return [el('h3', {}, 'Stored object'), list];
}

function records(list) {
  if (list.length === 0) return [];
  const rows = list.map((r) => el('tr', {}, el('th', { scope: 'row' }, `${r.attempt || 0}.${r.hop || 0}`), el('td', {}, short(r.type)),
    el('td', {}, code(r.file)), el('td', { class: 'number' }, visible(r.offset_bytes || 0)), el('td', { class: 'number' }, visible(r.length_bytes || 0)), el('td', {}, code(r.record_id))));
  const names = ['Attempt, hop', 'Type', 'File', 'Offset', 'Length', 'Record'];
  const table = el('div', { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'WARC records' }, el('table', { class: 'records' },
    el('thead', {}, el('tr', {}, ...names.map((name) => el('th', { scope: 'col' }, name)))), el('tbody', {}, ...rows)));
  const count = `${list.length} ${list.length === 1 ? 'record' : 'records'}`;
  return [el('h3', {}, 'WARC records'), list.length <= openRecords ? table : el('details', {}, el('summary', {}, count), table)];
}

function bodyFact(summary) {
  if (!summary) return '';
  const parts = [size(Number(summary.size_bytes || 0))];
  if (Number(summary.encoded_size_bytes) > 0 && summary.encoded_size_bytes !== summary.size_bytes) parts.push(`${size(Number(summary.encoded_size_bytes))} as sent`);
  if (summary.truncated) parts.push('truncated at the limit');
  if (summary.partial_content) parts.push('only a part of the body');
  if (summary.unrequested_data) parts.push('may be the body of another response: bytes followed it on a reused connection');
  return parts.join(', ');
}

function connection(x) {
  if (!x) return '';
  return [x.remote_address, x.protocol, x.tls_version, x.tls_cipher_suite, x.connection_reused ? 'reused' : ''].filter(Boolean).map(visible).join(', ');
}

function certificate(c) {
  if (!c) return '';
  return foreign(`${c.subject || 'no name'}, signed by ${c.issuer || 'no name'}, valid until ${c.not_after}, SHA-256 ${c.sha256}`, 'span');
}

function response(fetch) {
  const headers = fetch.outcome.response?.headers || [];
  if (headers.length === 0) return [];
  const rows = headers.map((h) => el('tr', {}, el('th', { scope: 'row' }, foreign(h.name)), el('td', {}, foreign(h.value || ''))));
  return [el('h3', {}, 'Response headers'), el('div', { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Response headers' },
    el('table', { class: 'headers' }, el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Name'), el('th', { scope: 'col' }, 'Value'))),
      el('tbody', {}, ...rows)))];
}
