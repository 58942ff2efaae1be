// Shows the outcome, its headers and the first bytes of the body. Everything from an origin
// is inserted as text, never as markup.

import { el, foreign, short, seconds, size, time, visible, visibleLines } from './text.js';
import { meaning } from './rules.js';

const kinds = {
  OUTCOME_KIND_SUCCESS: ['good', 'Success'], OUTCOME_KIND_NOT_MODIFIED: ['good', 'Not modified'],
  OUTCOME_KIND_REDIRECT: ['warn', 'Redirect, not followed'], OUTCOME_KIND_FAILED: ['bad', 'Failed'],
};

const shownText = 16 << 10;
const shownDump = 1 << 10;

// headline returns the outcome in one sentence, and its colour.
export function headline(fetch) {
  if (fetch.cancelled) return { state: 'warn', text: `Cancelled after ${time(fetch.end)}` };
  if (fetch.refused) return { state: 'bad', text: 'Not fetched' };
  const o = fetch.outcome;
  const [state, word] = kinds[o.kind] || ['warn', short(o.kind)];
  const what = o.error ? short(o.error.error_class) : `${o.response?.status_code ?? ''}`;
  const attempts = `${o.attempts || 0} ${o.attempts === 1 ? 'attempt' : 'attempts'}`;
  return { state, text: `${word}: ${what} after ${attempts}, ${time(seconds(o.total_duration))}` };
}

// draw fills the outcome section.
export function draw(fetch, into) {
  const head = headline(fetch);
  const parts = [el('p', { class: `headline ${head.state}` }, head.text)];
  if (fetch.refused) parts.push(...refusal(fetch.refused));
  if (fetch.cancelled) parts.push(el('p', {}, 'You cancelled the call. The service cancels the fetch and closes its connection, so there is no outcome.'));
  if (fetch.outcome) parts.push(facts(fetch), ...response(fetch), ...body(fetch));
  into.replaceChildren(...parts);
}

function refusal(refused) {
  const parts = [el('p', {}, foreign(refused.message, 'span'))];
  if (refused.violations?.length) {
    parts.push(el('ul', { class: 'violations' }, ...refused.violations.map((v) =>
      el('li', {}, el('code', {}, visible(v.field)), ' ', foreign(v.description, 'span')))));
  }
  return parts;
}

function withMeaning(rule) {
  const words = meaning(rule);
  return words ? `${visible(rule)}: ${words}` : visible(rule || '');
}

function facts(fetch) {
  const o = fetch.outcome;
  const e = o.error;
  const rows = [];
  const add = (name, value) => {
    if (value) rows.push(el('div', {}, el('dt', {}, name), el('dd', {}, value)));
  };
  add('Status', o.response?.status_code ? `${o.response.status_code}, of attempt ${o.response_attempt}` : 'no response');
  add('Rule', withMeaning(o.rule));
  if (e) {
    add('Class', short(e.error_class));
    if (e.rule && e.rule !== o.rule) add('Rule of the class', withMeaning(e.rule));
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
  add('Attempts', `${o.attempts || 0}, ${o.exchanges || 0} ${o.exchanges === 1 ? 'exchange' : 'exchanges'}`);
  add('Time', time(seconds(o.total_duration)));
  add('Body', e ? '' : bodyFact(o.body_summary));
  add('SHA-256', o.body_summary?.sha256 && el('code', { class: 'foreign' }, visible(o.body_summary.sha256)));
  add('Connection', connection(o.hops?.at(-1)?.exchange));
  add('Changed by the service', fetch.clamped.length ? fetch.clamped.map(visible).join(', ') : '');
  add('Fetch', o.fetch_id && el('code', {}, visible(o.fetch_id)));
  return el('dl', { class: 'facts' }, ...rows);
}

function bodyFact(summary) {
  if (!summary) return '';
  const parts = [size(Number(summary.size_bytes || 0))];
  if (Number(summary.encoded_size_bytes) > 0 && summary.encoded_size_bytes !== summary.size_bytes) parts.push(`${size(Number(summary.encoded_size_bytes))} as sent`);
  if (summary.truncated) parts.push('truncated at the limit');
  return parts.join(', ');
}

function connection(x) {
  if (!x) return '';
  return [x.remote_address, x.protocol, x.tls_version, x.connection_reused ? 'reused' : ''].filter(Boolean).map(visible).join(', ');
}

function response(fetch) {
  const headers = fetch.outcome.response?.headers || [];
  if (headers.length === 0) return [];
  const rows = headers.map((h) => el('tr', {}, el('th', { scope: 'row' }, foreign(h.name)), el('td', {}, foreign(h.value || ''))));
  return [el('h3', {}, 'Response headers'), el('div', { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Response headers' },
    el('table', { class: 'headers' }, el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Name'), el('th', { scope: 'col' }, 'Value'))),
      el('tbody', {}, ...rows)))];
}

function body(fetch) {
  const shown = fetch.shown();
  if (!shown) return [];
  const { text, count } = readable(shown.bytes, charset(fetch));
  const title = shown.of === 'body' ? 'Body' : 'Body of the failed response';
  const all = count >= shown.size ? `all ${size(shown.size)}` : `the first ${size(count)} of ${shown.whole || shown.of === 'body' ? size(shown.size) : 'it'}`;
  return [el('h3', {}, title, ' ', el('span', { class: 'muted' }, `${all}, as text`)),
    el('pre', { class: 'body foreign', tabIndex: 0, dir: 'ltr', role: 'region', 'aria-label': title }, text)];
}

function charset(fetch) {
  const type = (fetch.outcome.response?.headers || []).find((h) => h.name.toLowerCase() === 'content-type');
  return /charset="?([\w.:-]+)/i.exec(type?.value || '')?.[1] || 'utf-8';
}

// readable returns the start of a body as text, or as a hex dump if it is binary.
function readable(bytes, label) {
  const head = bytes.subarray(0, 512);
  const odd = head.reduce((n, b) => n + (b < 9 || (b > 13 && b < 32) || b === 127 ? 1 : 0), 0);
  if (odd > head.length / 10) return { text: dump(bytes.subarray(0, shownDump)), count: Math.min(bytes.length, shownDump) };
  let decoder;
  try {
    decoder = new TextDecoder(label);
  } catch {
    decoder = new TextDecoder();
  }
  const part = bytes.subarray(0, shownText);
  return { text: visibleLines(decoder.decode(part)), count: part.length };
}

function dump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((b) => b.toString(16).padStart(2, '0')).join(' ');
    const chars = part.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : '.')).join('');
    lines.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(47)}  ${chars}`);
  }
  return lines.join('\n');
}
