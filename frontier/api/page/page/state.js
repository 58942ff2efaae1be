// Draws the state of the frontier: StatsResponse of the API.

import { count, int, rate, span, when } from './format.js';
import { facts, fill } from './table.js';
import { el, seconds, size, time } from './text.js';

const statuses = ['fetched', 'fetching', 'pending', 'failed', 'dead'];
const names = { fetched: 'Fetched', fetching: 'Being fetched', pending: 'Waiting', failed: 'To be tried again', dead: 'Failed for good' };
const svgNamespace = 'http://www.w3.org/2000/svg';

const $ = (id) => document.getElementById(id);

// summary returns the state in a word, the class of its badge, and a sentence.
export function summary(stats) {
  const n = Object.fromEntries(statuses.map((s) => [s, int(stats[`${s}_count`])]));
  const all = statuses.reduce((sum, s) => sum + n[s], 0);
  const done = n.fetched + n.dead;
  const left = all - done;
  const percent = all ? Math.floor((done / all) * 1000) / 10 : 0; // 100 % only if nothing is left
  const text = `${count(done)} of ${count(all)} URLs are done (${percent} %)`;
  if (stats.paused) return { word: 'Paused', kind: 'warn', text: `${text}. Workers claim nothing until you resume.` };
  if (all === 0) return { word: 'Empty', kind: 'idle', text: 'The frontier has no URLs. Add some with "frontier add" or Put.' };
  if (left === 0) return { word: 'Done', kind: 'good', text: `${text}. ${count(n.fetched)} were fetched, ${count(n.dead)} failed for good.` };
  const perSecond = int(stats.last_minute_outcome_count) / 60;
  if (perSecond === 0 && n.fetching === 0) return { word: 'Idle', kind: 'warn', text: `${text}. No outcome was recorded in the last minute: is a worker running?` };
  const rest = perSecond > 0 ? ` At this rate the other ${count(left)} take ${span(left / perSecond)}.` : '';
  return { word: 'Running', kind: 'live', text: `${text}.${rest}` };
}

// State draws each response into the page, and keeps the rates of the last minutes.
export class State {
  constructor() {
    this.rates = [];
  }

  draw(stats) {
    const { word, kind, text } = summary(stats);
    $('badge').textContent = word;
    $('badge').className = `badge ${kind}`;
    $('headline').textContent = text;
    $('headline').className = `headline ${kind === 'idle' ? '' : kind}`;
    $('pause').textContent = stats.paused ? 'Resume' : 'Pause';
    meter(stats);
    facts($('counts'), statuses.map((s) => [names[s], count(stats[`${s}_count`]), `s-${s}`]));
    this.drawRates(stats);
    drawClasses(stats.error_classes || []);
    drawHosts(stats);
    drawWorkers(stats);
    return word;
  }

  drawRates(stats) {
    const perSecond = int(stats.last_minute_outcome_count) / 60;
    this.rates.push(perSecond);
    if (this.rates.length > 150) this.rates.shift();
    facts($('rates'), [
      ['Fetches a second', rate(perSecond)],
      ['Bodies a second', size(Math.round(int(stats.last_minute_body_bytes) / 60))],
      ['All bodies', size(int(stats.body_bytes))],
      ['Highest rate', rate(Math.max(...this.rates))],
    ]);
    chart($('chart'), this.rates);
  }
}

function meter(stats) {
  $('meter').replaceChildren(...statuses.filter((s) => int(stats[`${s}_count`]) > 0).map((s) => {
    const piece = el('div', { class: `s-${s}` });
    piece.style.setProperty('--n', int(stats[`${s}_count`]));
    return piece;
  }));
}

// chart draws the rates since the page was opened, at most five minutes.
function chart(box, rates) {
  const most = Math.max(...rates, 1e-9);
  const points = rates.map((r, i) => `${150 - rates.length + i + 1},${(52 - (r / most) * 50).toFixed(2)}`);
  const svg = document.createElementNS(svgNamespace, 'svg');
  svg.setAttribute('viewBox', '0 0 150 54');
  svg.setAttribute('preserveAspectRatio', 'none');
  for (const [tag, list] of [['polygon', [`${151 - rates.length},54`, ...points, '150,54']], ['polyline', points]]) {
    const shape = document.createElementNS(svgNamespace, tag);
    shape.setAttribute('points', list.join(' '));
    svg.append(shape);
  }
  box.replaceChildren(svg);
}

function drawClasses(classes) {
  const sum = (c) => int(c.failed_count) + int(c.dead_count);
  const most = Math.max(...classes.map(sum), 1);
  fill($('classes'), classes, (c) => c.error_class || '', (c) => [
    { text: c.error_class || '(none)', kind: 'foreign' },
    { text: count(c.failed_count), kind: 'number' },
    { text: count(c.dead_count), kind: 'number' },
    { kind: 'share', parts: { length: sum(c) / most, pieces: [['s-failed', int(c.failed_count)], ['s-dead', int(c.dead_count)]] } },
  ], $('classes-box'), $('no-classes'));
}

function drawHosts(stats) {
  const now = Date.parse(stats.count_time);
  facts($('hosts'), [
    ['Hosts', count(stats.host_count)], ['Due now', count(stats.due_host_count)], ['In flight', count(stats.in_flight_host_count)],
    ['Blocked', count(stats.blocked_host_count)], ['Paused', count(stats.paused_host_count)],
  ]);
  fill($('closed'), stats.closed_hosts || [], (h) => h.host, (h) => [
    { text: h.host, kind: 'foreign' },
    { text: closed(h, now) },
    { text: count(h.fetch_count), kind: 'number' },
    { text: count(h.failure_count), kind: 'number' },
  ], $('closed-box'), $('no-closed'));
  fill($('slowest'), stats.slowest_hosts || [], (h) => h.host, (h) => [
    { text: h.host, kind: 'foreign' },
    { text: time(seconds(h.mean_fetch_duration) ?? 0), kind: 'number' },
    { text: count(h.fetch_count), kind: 'number' },
    { text: count(h.failure_count), kind: 'number' },
    { text: size(int(h.body_bytes)), kind: 'number' },
    { text: count(h.in_flight_count), kind: 'number' },
  ], $('slowest-box'), $('no-slowest'));
}

function closed(host, now) {
  const blocked = host.block_end_time ? `blocked, opens ${when(host.block_end_time, now)}` : '';
  return [host.paused ? 'paused' : '', blocked].filter(Boolean).join('; ');
}

function drawWorkers(stats) {
  const now = Date.parse(stats.count_time);
  fill($('workers'), stats.workers || [], (w) => w.worker, (w) => {
    const seen = w.last_seen_time ? when(w.last_seen_time, now) : 'only claims';
    return [
      { text: w.worker, kind: 'foreign' },
      { text: count(w.claimed_count), kind: 'number' },
      w.vanished ? { text: `vanished, ${seen}`, badge: 'bad' } : { text: seen },
    ];
  }, $('workers-box'), $('no-workers'));
}
