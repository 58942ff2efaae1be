// Draws the attempts as bars over time, and as a table.

import { address } from './address.js';
import { bars, gap, inFlight, waiting } from './model.js';
import { el, foreign, short, time, visible } from './text.js';
import { meaning } from './rules.js';

// names has the phases as shown on the page.
export const names = { resolve: 'Resolve', connect: 'Connect', tls: 'TLS', wait: 'Wait', body: 'Body' };

// A list with more than longest rows is folded: its first and last rows stay.
const longest = 6;
const stay = 2;
const twoLines = matchMedia('(max-width: 640px)'); // as in console.css

// gapText describes a wait: its length, its source and its rule.
export function gapText(g) {
  return `${time(g.delay)} · ${short(g.source) || 'unknown source'} · rule ${visible(g.rule)}`;
}

// whole formats whole seconds.
function whole(s) {
  return s > 0 ? time(s) : '0 s';
}

// waitText describes what a fetch waits for, or returns ''.
export function waitText(w) {
  if (!w) return '';
  if (!w.gap) return `Attempt ${w.attempt}: ${w.body ? 'reading the body' : 'waiting for the origin'}, ${whole(Math.floor(w.since))}`;
  const why = w.gap.source === 'DELAY_SOURCE_RETRY_AFTER' ? `the origin asked for ${time(w.gap.delay)} (Retry-After)` : `a wait of ${time(w.gap.delay)} (${short(w.gap.source)})`;
  return `Attempt ${w.attempt} in ${whole(Math.ceil(w.left))}: ${why}`;
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
    Object.assign(this, { list, axis, table, total: 0, live: null, fetch: null, open: new Set(), room: 0 });
    new ResizeObserver(() => {
      if (this.fetch && this.measure() !== this.room) this.draw(this.fetch);
    }).observe(list);
  }

  // draw redraws everything. It is called after each event that adds a row.
  draw(fetch) {
    if (fetch !== this.fetch) this.open.clear();
    this.fetch = fetch;
    this.live = null;
    this.room = this.measure();
    const rows = this.folded('attempts', 'attempts', fetch.attempts, (attempt) => {
      const g = gap(attempt);
      return g ? [this.attempt(fetch, attempt), this.gap(fetch, attempt, g)] : [this.attempt(fetch, attempt)];
    });
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    this.list.replaceChildren(...rows);
    if (focused) [...this.list.querySelectorAll('button')].find((b) => b.dataset.key === focused)?.focus({ preventScroll: true });
    this.table.replaceChildren(...tableRows(fetch));
    this.total = 0;
    this.tick(fetch);
  }

  // measure returns the number of characters that a label has space for.
  measure() {
    const digits = el('span', { class: 'address' }, '0'.repeat(20));
    const label = el('div', { class: 'row-label' }, digits);
    const probe = row(label, [], '000.0 ms');
    this.list.append(probe);
    const perLine = Math.floor(label.clientWidth / (digits.getBoundingClientRect().width / 20 || 1));
    probe.remove();
    return perLine * (twoLines.matches ? 2 : 1);
  }

  // folded returns the rows of items. A long list has a button in place of its middle.
  folded(key, words, items, rowsOf) {
    const rows = (from, to) => items.slice(from, to).flatMap((item, i) => rowsOf(item, from + i));
    const end = items.length - stay;
    if (items.length <= longest) return rows(0, items.length);
    const open = this.open.has(key);
    const count = items.length - 2 * stay;
    const button = this.toggle(key, open ? `Hide ${count} ${words}` : `… ${count} more ${words}`, open);
    return [...rows(0, stay), el('li', { class: 'fold' }, button), ...(open ? rows(stay, end) : []), ...rows(end, items.length)];
  }

  // toggle returns a button that opens and closes what key names.
  toggle(key, text, open) {
    const button = el('button', { class: 'quiet', type: 'button', 'aria-expanded': String(open), 'data-key': key }, text);
    button.addEventListener('click', () => {
      if (!this.open.delete(key)) this.open.add(key);
      this.draw(this.fetch);
    });
    return button;
  }

  // label returns the label of a hop. A URL that is too long is shortened, and a button shows all
  // of it.
  label(key, status, method, url, before, spoken) {
    const open = this.open.has(key);
    const head = [el('span', { class: 'status' }, status), ' ', method ? el('span', { class: 'method' }, `${visible(method)} `) : ''];
    const taken = 3 + 1 + (method ? method.length + 1 : 0);
    let { made, short: shortened } = address(before, url, open ? Infinity : this.room - taken);
    if (shortened) ({ made } = address(before, url, Math.max(this.room - taken - 4, 16))); // the button takes 4
    const button = shortened || open ? this.toggle(key, '…', open) : null;
    button?.setAttribute('aria-label', 'Whole URL');
    return el('div', { class: open ? 'row-label whole' : 'row-label' }, ...head, made, button, spoken ? el('span', { class: 'visually-hidden' }, `. ${spoken}`) : null);
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
    const width = this.axis.clientWidth;
    const step = niceStep(total / Math.min(6, Math.max(width / 64, 1)));
    for (let at = 0; at < total; at += step) {
      const text = time(Number(at.toPrecision(6)));
      if (at / total * width + 7 * text.length + 5 > width) break; // a digit is 7 px wide at most
      const mark = el('span', {}, text);
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
    const hops = this.folded(`hops ${attempt.number}`, 'hops', attempt.hops, (_, i) => [this.hop(fetch, attempt, i)]);
    const rest = inFlight(fetch, attempt);
    if (rest) hops.push(this.inFlight(fetch, attempt, rest));
    return el('li', { class: 'attempt' }, head, el('ol', { class: 'hops' }, ...hops));
  }

  hop(fetch, attempt, i) {
    const hop = attempt.hops[i];
    const found = bars(fetch, attempt, i);
    const spoken = found.map((p) => `${names[p.name]} ${time(p.end - p.start)}${p.broken ? ', not finished' : ''}`).join(', ');
    const marks = found.map((p) => bar(`phase-${p.name}${p.broken ? ' broken' : ''}`, p.start, p.end, `${names[p.name]} ${time(p.end - p.start)}`));
    const from = hop.start;
    const to = found.at(-1)?.end ?? from;
    return row(this.label(`url ${attempt.number}.${i}`, hop.status ? `${hop.status}` : 'none', hop.method, hop.url, attempt.hops[i - 1]?.url, spoken), marks, time(to - from));
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
    const status = reading ? `${attempt.response?.status_code ?? ''}` : '…';
    return row(this.label(`url ${attempt.number}.${attempt.hops.length}`, status, '', rest.url, attempt.hops.at(-1)?.url, ''), [...before, mark], elapsed);
  }

  gap(fetch, attempt, g) {
    const next = fetch.attempts.find((a) => a.number > attempt.number);
    const end = next ? next.start : fetch.running ? g.start + g.delay : Math.min(fetch.now(), g.start + g.delay);
    const words = meaning(g.rule);
    const took = el('span', { class: 'row-time' }, time(end - g.start));
    if (!next && fetch.running) {
      this.live = { grow() {
        const w = waiting(fetch);
        if (w?.gap) took.textContent = `${whole(Math.ceil(w.left))} left`;
      } };
    }
    const item = row(el('div', { class: 'row-label' }, el('span', { class: 'gap-word' }, 'Waits '), gapText(g),
      words ? el('span', { class: 'visually-hidden' }, `: ${words}`) : null), [bar('gap-bar', g.start, end, words)], took);
    item.classList.add('gap');
    return item;
  }
}

function headNote(attempt) {
  const parts = [];
  if (attempt.error) parts.push(`rule ${visible(attempt.error.class_rule || '')}`);
  const g = gap(attempt);
  const stop = attempt.decision?.stop_reason;
  if (g) parts.push(`retry in ${time(g.delay)}`);
  else if (stop && stop !== 'STOP_REASON_NO_FAILURE') parts.push(short(stop));
  if (attempt.end !== undefined) parts.push(time(attempt.end - attempt.start));
  return parts.join(' · ');
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
    el('td', {}, last ? `${result(fetch, attempt)}${attempt.error ? `, rule ${visible(attempt.error.class_rule)}` : ''}` : 'redirect followed'));
}

function cell(tag, text) {
  return el(tag, tag === 'th' ? { scope: 'row' } : {}, `${text}`);
}

