// The page: wires the form, the call and the result together.

import { call } from './stream.js';
import { curl, grpcurl, node, python } from './copyas.js';
import { draw, headline } from './outcome.js';
import { copyText, saveFile } from './files.js';
import { Fetch, gap, waiting } from './model.js';
import { Form } from './form.js';
import { fragment, requestIn } from './link.js';
import { gapText, result, waitText, Waterfall } from './waterfall.js';
import { har } from './har.js';
import { Refused } from './call.js';
import { el, visible } from './text.js';
import { withoutSecrets } from './secrets.js';

const $ = (id) => document.getElementById(id);
const form = new Form($('form'), $('json'), $('json-wrong'), $('headers'));
const waterfall = new Waterfall($('attempts'), $('axis'), $('table-rows'));
const calm = matchMedia('(prefers-reduced-motion: reduce)');
// Heights in pixels: of the headline, an attempt and the start of a body, and of the same with three attempts.
const [firstLines, manyLines] = [400, 700];
let service = { grpc: '', tls: false, token: false, version: '' };
let current = null; // the fetch on display
let control = null; // aborts the fetch in flight; null if there is none

function announce(text) {
  const log = $('log');
  log.append(el('p', {}, text));
  while (log.childElementCount > 50) log.firstElementChild.remove();
}

function notice(...parts) {
  $('notice').replaceChildren(...parts);
  $('notice').hidden = parts.length === 0;
}

// sent returns the request for the service. The waterfall needs every event.
function sent() {
  return { ...form.request, event_level: 'EVENT_LEVEL_ALL' };
}

async function run() {
  if (control) return;
  form.accept();
  const wrong = form.wrong();
  if (wrong) {
    clear();
    for (let at = wrong.closest('details'); at; at = at.parentElement.closest('details')) at.open = true;
    wrong.focus();
    announce('A field of the request is not valid.');
    return;
  }
  notice();
  clear();
  const fetch = new Fetch(structuredClone(form.request));
  current = fetch;
  control = new AbortController();
  running(true);
  if (apart(firstLines)) goTo($('headline'));
  else if (apart(manyLines)) show($('headline'));
  announce('Running.');
  const ticking = setInterval(() => {
    waterfall.tick(fetch);
    showWait(fetch);
  }, calm.matches ? 500 : 60);
  try {
    await call(sent(), $('token').value.trim(), control.signal, (event) => take(fetch, event));
  } catch (e) {
    ended(fetch, e);
  }
  clearInterval(ticking);
  control = null;
  finish(fetch);
}

// apart reports whether that much of the result is out of view below the form. The page then
// goes to the result, and the result has buttons to cancel and to go back.
function apart(height) {
  const { top } = $('headline').getBoundingClientRect();
  const away = top < 0 || top + height > innerHeight;
  $('result').classList.toggle('apart', away);
  return away;
}

// showWait shows what the fetch waits for. Screen readers do not announce a timer; they hear of a
// wait once, when it starts.
function showWait(fetch) {
  const text = waitText(waiting(fetch));
  if ($('waits').textContent !== text) $('waits').textContent = text;
}

// goTo moves the view and the focus to an element.
function goTo(element) {
  element.focus({ preventScroll: true });
  show(element);
}

function show(element) {
  element.scrollIntoView({ behavior: calm.matches ? 'instant' : 'smooth', block: 'start' });
}

// clear removes the result of the previous fetch.
function clear() {
  current = null;
  say('', '');
  $('result').hidden = true;
  $('outcome').hidden = true;
  $('outcome-body').replaceChildren();
}

function take(fetch, event) {
  const body = event.body_chunk && fetch.body.size > 0; // changes no row
  fetch.take(event);
  if (event.heartbeat || body) return;
  waterfall.draw(fetch);
  showWait(fetch);
  const finished = event.attempt_finished && fetch.attempts.find((a) => a.number === event.attempt_finished.attempt);
  if (!finished) return;
  const g = gap(finished);
  announce(`Attempt ${finished.number}: ${result(fetch, finished)}.${g ? ` Waits ${gapText(g)}.` : ''}`);
}

function ended(fetch, error) {
  if (error.name === 'AbortError') fetch.stop(null);
  else if (error instanceof Refused) {
    fetch.stop(error);
    if (error.http === 401) wantToken();
  } else fetch.stop(new Refused({ message: `the service cannot be reached: ${error.message}` }, 0));
}

function wantToken() {
  $('token-field').hidden = false;
  $('token').focus();
}

function finish(fetch) {
  running(false);
  waterfall.draw(fetch);
  $('waterfall').hidden = fetch.attempts.length === 0;
  draw(fetch, $('outcome-body'), announce);
  $('outcome').hidden = false;
  const head = headline(fetch);
  say(head.state, head.text);
  form.refuse(fetch.refused?.violations || []);
  $('save').disabled = !fetch.attempts.some((a) => a.hops.length > 0);
  announce(`${head.text}.${fetch.refused ? ` ${visible(fetch.refused.message)}` : ''}`);
}

// say sets the headline of the result.
function say(state, text) {
  $('headline').className = `headline ${state}`;
  $('headline-text').textContent = text;
  $('waits').textContent = '';
}

function running(now) {
  $('run').setAttribute('aria-disabled', String(now));
  $('cancel').setAttribute('aria-disabled', String(!now));
  $('result').hidden = false;
  $('result').classList.toggle('running', now);
  if (!now && document.activeElement === $('stop')) $('headline').focus({ preventScroll: true });
  $('stop').hidden = !now;
  $('edit').hidden = now;
  if (!now) return;
  say('live', 'Running');
  $('waterfall').hidden = false;
  $('save').disabled = true;
  waterfall.draw(current);
}

function cancel() {
  control?.abort();
}

// link copies a link to this request, and reports what it leaves out.
async function link() {
  const { request, left } = withoutSecrets(form.request, $('body-secret').checked);
  history.replaceState(null, '', fragment(request));
  $('link-text').value = location.href;
  $('link-box').hidden = false;
  const copied = await copyText(location.href, $('link-text'));
  const text = left.length ? `Left out because links are shared: ${left.map(visible).join(', ')}.` : 'It contains the whole request.';
  $('link-note').textContent = `${copied} ${text}`;
  announce(`${copied} ${text}`);
}

async function copyAs(make, request, name, needs = '') {
  const base = location.href.replace(/[#?].*$/, '').replace(/\/console\/[^/]*$/, '');
  const text = make(request, { ...service, base, grpc: grpcAddress() });
  $('copy-text').value = text;
  $('copy-text').rows = Math.min(text.split('\n').length + 1, 16);
  $('copy-box').hidden = false;
  const copied = await copyText(text, $('copy-text'));
  const secret = withoutSecrets(form.request, true).left.length ? ' It contains the whole request, including credentials.' : '';
  $('copy-note').textContent = `${name}. ${copied}${needs}${secret}`;
  announce($('copy-note').textContent);
}

// grpcAddress returns the address of the gRPC port as the user of this page reaches it.
// If the service listens on all addresses, that is the host of this page.
function grpcAddress() {
  const at = service.grpc.lastIndexOf(':');
  const host = service.grpc.slice(0, at);
  return /^(|0\.0\.0\.0|\[::\])$/.test(host) ? location.hostname + service.grpc.slice(at) : service.grpc;
}

function save() {
  if (!current) return;
  const text = JSON.stringify(har(current, service.version), null, 1);
  saveFile([text], 'application/json', `fetchd-${visible(current.fetchId || 'fetch').replace(/[^\w-]/g, '')}.har`);
  announce('The HAR file is saved, without the values of headers that may be credentials.');
}

// addressOf returns the URL of an example: on the internet, or on the local origin.
function addressOf({ url, local }) {
  return $('examples-from').value && local ? $('local-origin').value.trim().replace(/\/+$/, '') + local : url;
}

// example fills in the URL of an example. It never runs it.
function example(button) {
  form.set($('url'), addressOf(button.dataset));
  announce(`The URL is ${$('url').value}.`);
}

// examplesFrom shows the examples of the internet or of the local origin.
function examplesFrom() {
  for (const id of ['local-origin', 'local-hint']) $(id).hidden = !$('examples-from').value;
  for (const button of $('examples').querySelectorAll('button')) button.hidden = !addressOf(button.dataset);
}

// fromLink loads the request in the address of the page. It never runs it.
function fromLink() {
  let request = null;
  try {
    request = requestIn(location.hash);
  } catch {
    notice('The request in the link cannot be read.');
  }
  if (!request) return;
  form.load(request);
  $('body-secret').checked = !request.body; // the author of the link chose to include it
  notice('This request came from a link. Check it before you run it.');
}

async function greet() {
  const answer = await fetch('service.json', { cache: 'no-store' });
  service = await answer.json();
  $('version').textContent = visible(service.version);
  $('token-field').hidden = !service.token && $('token-field').hidden;
}

form.load({ url: '' });
fromLink();
greet().catch(() => notice('The service does not answer. It may be down.'));

$('form').addEventListener('submit', (e) => {
  e.preventDefault();
  run();
});
$('cancel').addEventListener('click', cancel);
$('stop').addEventListener('click', cancel);
$('edit').addEventListener('click', () => goTo($('url')));
for (const button of $('examples').querySelectorAll('button')) button.addEventListener('click', () => example(button));
$('examples-from').addEventListener('input', examplesFrom);
$('add-header').addEventListener('click', () => form.addHeader());
$('link').addEventListener('click', link);
$('save').addEventListener('click', save);
$('as-curl').addEventListener('click', () => copyAs(curl, sent(), 'curl'));
$('as-grpcurl').addEventListener('click', () => copyAs(grpcurl, sent(), 'grpcurl'));
$('as-python').addEventListener('click', () => copyAs(python, form.request, 'Python', ' It needs the package in client/python.'));
$('as-node').addEventListener('click', () => copyAs(node, form.request, 'Node', ' It needs the package in client/node.'));
addEventListener('hashchange', fromLink);
addEventListener('keydown', (e) => {
  if (e.key === 'Escape') cancel();
});
