// Shows the body of a response: text, formatted JSON or a hex dump, with buttons to copy and save
// it. A body is only ever a text node or a file.

import { copyText, fileName, saveFile } from './files.js';
import { el, size, visible, visibleLines } from './text.js';

const shownText = 64 << 10;
const shownDump = 256;
const shownJSON = 512 << 10; // characters after formatting

// bodyOf returns the elements for the body of a fetch. announce receives what a button did.
export function bodyOf(fetch, announce) {
  const shown = fetch.shown();
  if (!shown) return [];
  const title = shown.of === 'body' ? 'Body' : 'Body of the failed response';
  const type = header(fetch, 'content-type').split(';')[0].trim().toLowerCase();
  const views = viewsOf(shown, header(fetch, 'content-type'));
  const about = el('span', { class: 'muted' });
  const note = el('span', { class: 'muted', id: 'body-note' });
  const pre = el('pre', { class: 'body foreign', tabIndex: 0, dir: 'ltr', role: 'region', 'aria-label': title });
  let view;
  const show = (next) => {
    view = next;
    const part = view.count >= shown.size ? `all ${size(shown.size)}` : `the first ${size(view.count)} of ${shown.known ? size(shown.size) : 'it'}`;
    about.textContent = [type && visible(type), `${part}, ${view.as}`].filter(Boolean).join(', ');
    pre.textContent = view.text;
  };
  show(views[0]);
  const say = (text) => {
    note.textContent = text;
    announce(text);
  };
  const buttons = [];
  if (views.length > 1) buttons.push(switchView(views, show));
  if (!view.binary) buttons.push(tool('copy-body', 'Copy', async () => say(copied(await copyText(pre.textContent, pre), view, shown))));
  const part = shown.size > shown.kept ? `Save the first ${size(shown.kept)}` : 'Save';
  buttons.push(tool('save-body', part, () => {
    const coding = fetch.request.body_policy?.keep_encoding ? header(fetch, 'content-encoding').toLowerCase() : '';
    const name = fileName(fetch.outcome.final_url || '', type, coding);
    saveFile(shown.parts, 'application/octet-stream', name);
    say(`Saved as ${name}, byte by byte.`);
  }));
  return [el('div', { class: 'body-head' }, el('h3', {}, title, ' ', about), el('div', { class: 'body-tools' }, note, ...buttons)), pre];
}

function copied(text, view, shown) {
  return view.count < shown.size && text === 'Copied.' ? `Copied the first ${size(view.count)}. Save has more.` : text;
}

function tool(id, text, press) {
  const made = el('button', { class: 'quiet', type: 'button', id }, text);
  made.addEventListener('click', press);
  return made;
}

function switchView(views, show) {
  const made = tool('as-received', 'As received', () => {
    const received = made.getAttribute('aria-pressed') !== 'true';
    made.setAttribute('aria-pressed', String(received));
    show(views[received ? 1 : 0]);
  });
  made.setAttribute('aria-pressed', 'false');
  return made;
}

function header(fetch, name) {
  return (fetch.outcome.response?.headers || []).find((h) => h.name.toLowerCase() === name)?.value || '';
}

// viewsOf returns the ways to show a body, the best first. Each has the text, the number of bytes
// that it shows, and a description.
function viewsOf(shown, type) {
  const { bytes } = shown;
  const head = bytes.subarray(0, 512);
  const odd = head.reduce((n, b) => n + (b < 9 || (b > 13 && b < 32) || b === 127 ? 1 : 0), 0);
  if (odd > head.length / 10) return [{ text: dump(bytes.subarray(0, shownDump)), count: Math.min(bytes.length, shownDump), as: 'binary, in hex', binary: true }];
  const decoder = decoderFor(/charset="?([\w.:-]+)/i.exec(type)?.[1]);
  const part = bytes.subarray(0, shownText);
  const received = { text: visibleLines(decoder.decode(part)), count: part.length, as: 'as text' };
  const json = bytes.length === shown.size ? formatted(decoder.decode(bytes)) : null;
  return json === null ? [received] : [{ text: visibleLines(json), count: bytes.length, as: 'as formatted JSON' }, received];
}

function decoderFor(label) {
  try {
    return new TextDecoder(label || 'utf-8');
  } catch {
    return new TextDecoder();
  }
}

const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;

// formatted returns JSON with line breaks and indentation. Numbers, strings and the order of names
// stay as they are. It returns null if text is no object or array, or too large.
export function formatted(text) {
  if (!/^\s*[{[]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let made = '';
  let depth = 0;
  let last = '';
  const line = () => `\n${'  '.repeat(Math.min(depth, 24))}`; // deeper levels would take space without end
  for (const [token] of text.matchAll(tokens)) {
    const opened = last === '{' || last === '[';
    if (token === '}' || token === ']') {
      depth--;
      if (!opened) made += line();
    } else if (opened || last === ',') made += line();
    made += token === ':' ? ': ' : token;
    if (token === '{' || token === '[') depth++;
    if (made.length > shownJSON) return null;
    last = token;
  }
  return made;
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
