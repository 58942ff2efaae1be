// Draws the attempts as bars over time, and as a table.

import { bars, gap, inFlight } from './model.js';
import { el, foreign, short, time, visible } from './text.js';
import { meaning } from './rules.js';

// names has the phases as shown on the page.
export const names = { queue: 'Queue', resolve: 'Resolve', connect: 'Connect', tls: 'TLS', wait: 'Wait', body: 'Body' };

// gapText describes a wait: its length, its source and its rule.
export function gapText(g) {
  return `${time(g.delay)} · ${short(g.source) || 'unknown source'} · rule ${visible(g.rule)}`;
}

// result describes how an attempt ended.
export function result(fetch, attempt) {
  if (attempt.end === undefined) return fetch.running ? 'in flight' : 'cancelled';
  const status = attempt.response?.status_code;
  if (!attempt.error) return status ? `${status}` : 'done';
  return `${status ? `${status} ` : ''}${short(attempt.error.error_class)}`;
}

// Waterfall draws a fetch as a list of rows.
export class Waterfall {
  constructor(list, axis, table) {
    Object.assign(this, { list, axis, table, total: 0, live: null });
  }

  // draw redraws everything. It is called after each event that adds a row.
  draw(fetch) {
    this.live = null;
    const rows = [];
    for (const attempt of fetch.attempts) {
      rows.push(this.attempt(fetch, attempt));
      const g = gap(attempt);
      if (g) rows.push(this.gap(fetch, attempt, g));
    }
    this.list.replaceChildren(...rows);
    this.table.replaceChildren(...tableRows(fetch));
    this.total = 0;
    this.tick(fetch);
  }

  // tick updates the scale and the bar of the hop in flight.
  tick(fetch) {
    if (this.live) this.live.grow();
    const total = scale(Math.max(fetch.now(), this.last(fetch)), fetch.running);
    if (total === this.total) return;
    this.total = total;
    this.list.style.setProperty('--total', total);
    this.ticks(total);
  }

  last(fetch) {
    const a = fetch.attempts.at(-1);
    const g = a && gap(a);
    return g && fetch.running ? g.start + g.delay : 0;
  }

  ticks(total) {
    const marks = [];
    const step = niceStep(total / 6);
    for (let at = 0; at < total * 0.93; at += step) {
      const mark = el('span', {}, time(Number(at.toPrecision(6))));
      mark.style.setProperty('--at', at / total);
      marks.push(mark);
    }
    this.axis.replaceChildren(...marks);
  }

  attempt(fetch, attempt) {
    const bad = attempt.error !== null;
    const open = fetch.running ? 'live' : 'warn';
    const state = attempt.end === undefined ? open : bad ? 'bad' : 'good';
    const head = el('div', { class: 'attempt-head' },
      el('h3', {}, `Attempt ${attempt.number}`),
      el('span', { class: `badge ${state}` }, result(fetch, attempt)),
      el('span', { class: 'muted' }, headNote(attempt)));
    const hops = attempt.hops.map((hop, i) => this.hop(hop, bars(fetch, attempt, i)));
    const rest = inFlight(fetch, attempt);
    if (rest) hops.push(this.inFlight(fetch, attempt, rest));
    return el('li', { class: 'attempt' }, head, el('ol', { class: 'hops' }, ...hops));
  }

  hop(hop, found) {
    const spoken = found.map((p) => `${names[p.name]} ${time(p.end - p.start)}${p.broken ? ', not finished' : ''}`).join(', ');
    const marks = found.map((p) => bar(`phase-${p.name}${p.broken ? ' broken' : ''}`, p.start, p.end, `${names[p.name]} ${time(p.end - p.start)}`));
    const from = hop.start;
    const to = found.at(-1)?.end ?? from;
    return row(el('div', { class: 'row-label' },
      el('span', { class: 'status' }, hop.status ? `${hop.status}` : 'none'), ' ',
      el('span', { class: 'method' }, visible(hop.method)), ' ', address(hop.url),
      el('span', { class: 'visually-hidden' }, `. ${spoken}`)), marks, time(to - from));
  }

  inFlight(fetch, attempt, rest) {
    const reading = rest.responseAt !== undefined && rest.responseAt >= rest.start;
    const from = reading ? rest.responseAt : rest.start;
    const mark = bar(reading ? 'phase-body live' : 'phase-live', from, from, 'In flight');
    const elapsed = el('span', { class: 'row-time' });
    this.live = { grow() {
      mark.style.setProperty('--d', Math.max(fetch.now() - from, 0));
      elapsed.textContent = time(Number(Math.max(fetch.now() - rest.start, 0).toFixed(1)));
    } };
    const before = reading ? [bar('phase-live', rest.start, from, 'Until the headers')] : [];
    return row(el('div', { class: 'row-label' }, el('span', { class: 'status' }, reading ? `${attempt.response?.status_code ?? ''}` : '…'), ' ', address(rest.url)),
      [...before, mark], elapsed);
  }

  gap(fetch, attempt, g) {
    const next = fetch.attempts.find((a) => a.number > attempt.number);
    const end = next ? next.start : fetch.running ? g.start + g.delay : Math.min(fetch.now(), g.start + g.delay);
    const words = meaning(g.rule);
    const item = row(el('div', { class: 'row-label' }, el('span', { class: 'gap-word' }, 'Waits '), gapText(g),
      words ? el('span', { class: 'visually-hidden' }, `: ${words}`) : null), [bar('gap-bar', g.start, end, words)], time(end - g.start));
    item.classList.add('gap');
    return item;
  }
}

function headNote(attempt) {
  const parts = [];
  if (attempt.error) parts.push(`rule ${visible(attempt.error.rule || '')}`);
  if (attempt.decision && attempt.decision.verdict !== 'RETRY_VERDICT_DONE') parts.push(short(attempt.decision.verdict));
  if (attempt.end !== undefined) parts.push(time(attempt.end - attempt.start));
  return parts.join(' · ');
}

// address shows the host and path of a URL, with the whole URL as the tooltip.
function address(url) {
  const shown = foreign(url.replace(/^http:\/\//, ''));
  shown.classList.add('address');
  shown.title = visible(url);
  return shown;
}

function row(label, marks, took) {
  const track = el('div', { class: 'track', 'aria-hidden': 'true' }, ...marks);
  return el('li', { class: 'row' }, label, track, typeof took === 'string' ? el('span', { class: 'row-time' }, took) : took);
}

function bar(kind, start, end, title) {
  const mark = el('span', { class: `bar ${kind}`, title });
  mark.style.setProperty('--s', start);
  mark.style.setProperty('--d', Math.max(end - start, 0));
  return mark;
}

// scale returns the length of the axis. While the fetch runs, it grows in steps, so that the
// bars do not move all the time.
function scale(now, running) {
  if (!running) return Math.max(now, 0.001) * 1.02;
  let total = 0.1;
  while (total < now * 1.05) total *= 1.5;
  return total;
}

function niceStep(raw) {
  const unit = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= raw) ?? raw;
}

function tableRows(fetch) {
  const rows = [];
  for (const attempt of fetch.attempts) {
    attempt.hops.forEach((hop, i) => rows.push(tableRow(fetch, attempt, hop, i)));
    if (attempt.hops.length === 0) {
      rows.push(el('tr', {}, cell('th', attempt.number), el('td', {}, foreign(attempt.url)),
        el('td', { colSpan: 8 }, result(fetch, attempt))));
    }
    const g = gap(attempt);
    if (g) rows.push(el('tr', { class: 'gap' }, el('td', {}), el('td', { colSpan: 9 }, `Waits ${gapText(g)}`)));
  }
  return rows;
}

function tableRow(fetch, attempt, hop, i) {
  const took = Object.fromEntries(bars(fetch, attempt, i).map((p) => [p.name, p]));
  const last = i === attempt.hops.length - 1;
  const spans = ['resolve', 'connect', 'tls', 'wait', 'body'].map((name) => {
    const p = took[name];
    return el('td', { class: 'number' }, p ? time(p.end - p.start) + (p.broken ? ' …' : '') : '–');
  });
  return el('tr', {}, cell('th', `${attempt.number}.${i + 1}`), el('td', {}, foreign(`${hop.method} ${hop.url}`)),
    el('td', { class: 'number' }, hop.status ? `${hop.status}` : '–'), el('td', { class: 'number' }, time(hop.start)), ...spans,
    el('td', {}, last ? `${result(fetch, attempt)}${attempt.error ? `, rule ${visible(attempt.error.rule)}` : ''}` : 'redirect followed'));
}

function cell(tag, text) {
  return el(tag, tag === 'th' ? { scope: 'row' } : {}, `${text}`);
}

