// The page: reads the state every two seconds while it is visible, and wires the controls.

import { get, post, Refused } from './call.js';
import { span } from './format.js';
import { Outcomes } from './outcomes.js';
import { State } from './state.js';
import { el, visible } from './text.js';
import { answer } from './why.js';

const every = 2000; // milliseconds between two readings
const longest = 30000; // between two readings while they fail
const patience = 90000; // for one answer; the service waits a minute for its database

const $ = (id) => document.getElementById(id);
const state = new State();
const outcomes = new Outcomes($('outcomes'));
let token = '';
let stats = null; // the last response
let skew = Infinity; // the clock of this browser minus that of the service
let own = null; // what this page has paused or resumed, and when; counts may be older
let read = null; // the time of the last response
let failures = 0; // readings that failed since the last response
let timer = 0;
let word = ''; // the state that was announced last
let control = null; // aborts the reading in flight

function announce(text) {
  const log = $('log');
  log.append(el('p', {}, text));
  while (log.childElementCount > 20) log.firstElementChild.remove();
}

function notice(text) {
  if ($('notice').textContent !== text) $('notice').textContent = text;
  $('notice').hidden = text === '';
}

// call sends a message to a method with get or post, and returns its response.
async function call(send, method, message, signal) {
  const limit = AbortSignal.timeout(patience);
  const answered = await send(`../v1/${method}`, message, token, signal ? AbortSignal.any([signal, limit]) : limit);
  return answered.json();
}

// reason returns why a call failed.
function reason(error) {
  if (error instanceof Refused) return visible(error.message);
  return error.name === 'TimeoutError' ? 'the service does not answer' : 'the service cannot be reached';
}

function wantToken(text) {
  stop();
  $('state').hidden = true;
  $('token-form').hidden = false;
  notice(text);
  $('token').focus();
}

// refresh reads the state, draws it, and plans the next reading.
async function refresh() {
  stop();
  const mine = new AbortController();
  control = mine;
  const slow = setTimeout(() => { if (stats === null) notice('The URLs are counted. That takes a while in a large frontier.'); }, every);
  try {
    const next = await call(get, 'stats', { max_hosts: $('more-hosts').getAttribute('aria-pressed') === 'true' ? 100 : 10 }, mine.signal);
    if (control !== mine) return;
    show(next);
    failures = 0;
  } catch (error) {
    if (control !== mine) return;
    if (error instanceof Refused && error.http === 401) {
      wantToken(token ? 'The service does not accept this token.' : '');
      return;
    }
    failures++;
    failed(error);
  } finally {
    clearTimeout(slow);
  }
  control = null;
  if (document.visibilityState === 'visible') timer = setTimeout(refresh, Math.min(every * 2 ** Math.min(failures, 10), longest));
}

// stop cancels the reading in flight and the next one.
function stop() {
  clearTimeout(timer);
  control?.abort();
  control = null;
}

function show(next) {
  stats = next;
  read = new Date();
  skew = Math.min(skew, read.getTime() - Date.parse(stats.count_time)); // the least is that of the newest counts
  draw();
  if (failures > 0) announce('The service answers again.');
  notice('');
  $('state').hidden = false;
  $('state').classList.remove('stale');
  $('token-form').hidden = true;
}

function draw() {
  if (own && Date.parse(stats.count_time) <= own.at) stats.paused = own.paused;
  else own = null;
  const age = (Date.now() - skew - Date.parse(stats.count_time)) / 1000; // counting a large frontier takes long, so the service keeps the counts
  $('age').textContent = age < 10 ? '' : `counted ${span(age)} ago`;
  const now = state.draw(stats);
  if (now !== word) announce(`${now}.`);
  word = now;
}

function failed(error) {
  const since = read ? ` The counts are those of ${read.toLocaleTimeString()}.` : '';
  notice(`The state cannot be read: ${reason(error)}.${since}`);
  $('state').classList.toggle('stale', stats !== null);
}

async function why(event) {
  event.preventDefault();
  const url = $('url').value.trim();
  if (url === '') {
    $('why').textContent = 'Give a URL.';
    $('url').focus();
    return;
  }
  try {
    $('why').replaceChildren(...answer(await call(post, 'why', { url }), Date.now() - skew));
  } catch (error) {
    $('why').textContent = error instanceof Refused && error.http === 404 ? 'The frontier does not have this URL.' : `Not answered: ${reason(error)}.`;
  }
}

// ask asks before it pauses or resumes the crawl for all workers.
function ask() {
  const paused = stats.paused === true;
  $('confirm-title').textContent = paused ? 'Resume the crawl?' : 'Pause the crawl?';
  $('confirm-text').textContent = paused
    ? 'All workers and callers may claim URLs again. Hosts that are paused stay so.'
    : 'No worker and no caller can claim URLs until you resume. Fetches in flight continue.';
  $('confirm-yes').textContent = paused ? 'Resume' : 'Pause';
  $('confirm-yes').dataset.method = paused ? 'resume' : 'pause';
  $('confirm-error').hidden = true;
  $('confirm').showModal();
}

// confirmed does what the open dialog says. The dialog stays open if the service refuses it.
async function confirmed() {
  const { method } = $('confirm-yes').dataset;
  try {
    await call(post, method, {});
  } catch (error) {
    $('confirm-error').textContent = `Not ${method}d: ${reason(error)}.`;
    $('confirm-error').hidden = false;
    return;
  }
  $('confirm').close();
  own = { paused: method === 'pause', at: Date.now() - skew };
  draw();
}

function watching() {
  return $('watch').getAttribute('aria-pressed') === 'true';
}

async function watch() {
  try {
    await outcomes.watch(token);
  } catch (error) {
    if (error.name === 'AbortError') return;
    toggleWatch(false);
    $('watch-hint').textContent = `Watch has ended: ${reason(error)}.`;
  }
}

function toggleWatch(on) {
  $('watch').setAttribute('aria-pressed', String(on));
  $('watch-hint').textContent = 'Watch shows the last 50 outcomes as they are recorded.';
  if (on) {
    $('outcomes-box').hidden = false;
    watch();
  } else outcomes.stop();
}

// visibility stops all calls while the page cannot be seen.
function visibility() {
  if (document.visibilityState !== 'visible') {
    stop();
    outcomes.stop();
    return;
  }
  if ($('token-form').hidden) refresh();
  if (watching()) watch();
}

async function start() {
  let service = { token: false, version: '' };
  try {
    service = await (await fetch('service.json', { cache: 'no-store' })).json();
  } catch {
    notice('The service does not answer. It may be down.');
  }
  $('version').textContent = visible(service.version);
  if (service.token) wantToken('');
  else refresh();
}

$('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  token = $('token').value.trim();
  refresh();
});
$('why-form').addEventListener('submit', why);
$('pause').addEventListener('click', ask);
$('confirm-yes').addEventListener('click', confirmed);
$('confirm-no').addEventListener('click', () => $('confirm').close());
$('watch').addEventListener('click', () => toggleWatch(!watching()));
$('more-hosts').addEventListener('click', () => {
  const more = $('more-hosts').getAttribute('aria-pressed') !== 'true';
  $('more-hosts').setAttribute('aria-pressed', String(more));
  refresh();
});
document.addEventListener('visibilitychange', visibility);
start();
