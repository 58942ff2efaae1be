// The request as fields and as JSON. The JSON is authoritative: each field reads and
// writes one path in it. Paths without a field are kept.

import { base64, bytesOf, el, visible } from './text.js';

// Wrong is thrown for a value that cannot be sent.
export class Wrong extends Error {}

const units = { ms: 0.001, s: 1, m: 60, min: 60, h: 3600 };

// kinds convert the text of a field to JSON and back. Empty text means unset.
const kinds = {
  text: { read: (t) => t, write: (v) => String(v) },
  int: { read: (t) => whole(t, /^-?\d+$/), write: (v) => String(v) },
  int64: { read: (t) => (whole(t, /^-?\d{1,20}$/), t.trim()), write: (v) => String(v) },
  number: { read: (t) => fraction(t), write: (v) => String(v) },
  duration: { read: duration, write: (v) => String(v) },
  choice: { read: (t) => t, write: (v) => String(v) },
  truth: { read: (t) => t === 'true', write: (v) => String(v) },
  list: { read: (t) => items(t), write: (v) => (Array.isArray(v) ? v.join(', ') : '') },
  ints: { read: (t) => items(t).map((x) => whole(x, /^\d+$/)), write: (v) => (Array.isArray(v) ? v.join(', ') : '') },
  labels: { read: labels, write: (v) => Object.entries(v).map(([k, x]) => `${k}=${x}`).join(', ') },
  body: { read: (t) => base64(new TextEncoder().encode(t)), write: bodyText },
  delivery: { read: (t) => t, write: (v) => deliveryIn(v) },
};

// deliveries are the members of the oneof in body_policy.
const deliveries = ['stream', 'auto', 'inline', 'digest', 'none', 'store'];

// ofDelivery matches the paths of the delivery and of its settings.
const ofDelivery = /^body_policy(?:$|\.(stream|auto|store)\.)/;

// deliveryIn returns the delivery that a body_policy sets, or '' for stream, which is the default.
function deliveryIn(policy) {
  return deliveries.slice(1).find((name) => policy?.[name]) || '';
}

// deliver sets the delivery in a request, and removes any other. stream and auto have the same
// settings.
function deliver(request, name) {
  const { stream, auto, ...policy } = request.body_policy || {};
  for (const other of deliveries) delete policy[other];
  const settings = stream ?? auto ?? {};
  if (name === 'auto') policy.auto = settings;
  else if (name !== 'stream') policy[name] = {};
  else if (Object.keys(settings).length) policy.stream = settings;
  set(request, 'body_policy', Object.keys(policy).length ? policy : undefined);
}

function whole(text, pattern) {
  if (!pattern.test(text.trim())) throw new Wrong('Give a whole number.');
  return Number(text);
}

function fraction(text) {
  const n = Number(text);
  if (text.trim() === '' || !Number.isFinite(n)) throw new Wrong('Give a number.');
  return n;
}

function duration(text) {
  const m = /^(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)$/.exec(text.trim());
  if (!m && text.trim() !== '0') throw new Wrong('Give a time with its unit, such as 500ms, 2s or 1m.');
  const s = m ? Number(m[1]) * units[m[2]] : 0;
  return `${Number(s.toFixed(9))}s`;
}

function items(text) {
  return text.split(',').map((x) => x.trim()).filter((x) => x !== '');
}

function labels(text) {
  return Object.fromEntries(items(text).map((pair) => {
    const at = pair.indexOf('=');
    if (at < 1) throw new Wrong('Give labels as name=value, separated by commas.');
    return [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
  }));
}

function bodyText(value) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytesOf(value));
  } catch {
    return '';
  }
}

// snake returns value with the field names of the contract. The service also accepts them in
// camelCase, which older links have.
function snake(value, keep) {
  if (Array.isArray(value)) return value.map((v) => snake(v, false));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => {
    const name = keep ? k : k.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
    return [name, snake(v, !keep && name === 'labels')];
  }));
}

// parse parses a request in JSON. It throws Wrong.
export function parse(text) {
  let value;
  try {
    value = JSON.parse(text, (key, v) => {
      if (typeof v === 'number' && Number.isInteger(v) && !Number.isSafeInteger(v)) throw new Wrong(`Put the value of ${key} in quotes: the number is too large for this page.`);
      return v;
    });
  } catch (e) {
    throw e instanceof Wrong ? e : new Wrong(`This is not JSON: ${e.message}`);
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new Wrong('Give an object: {"url": …}.');
  return snake(value, false);
}

function get(object, path) {
  return path.split('.').reduce((at, key) => (at && typeof at === 'object' && Object.hasOwn(at, key) ? at[key] : undefined), object);
}

// set sets the value at a path, or deletes it. Objects that become empty are deleted too, except
// those that choose a delivery.
function set(object, path, value) {
  const [key, ...rest] = path.split('.');
  if (rest.length > 0) {
    const inner = object[key] && typeof object[key] === 'object' && !Array.isArray(object[key]) ? object[key] : {};
    set(inner, rest.join('.'), value);
    value = Object.keys(inner).length || key === 'auto' || key === 'store' ? inner : undefined;
  }
  if (value === undefined) delete object[key];
  else object[key] = value;
}

// Form keeps the fields and the JSON text of one request in sync.
export class Form {
  constructor(root, text, note, headers) {
    Object.assign(this, { root, text, note, headers, request: {}, changed: () => {}, refused: [] });
    this.fields = [...root.querySelectorAll('[data-path]')];
    for (const field of this.fields) field.addEventListener('input', () => this.fromField(field));
    text.addEventListener('input', () => this.fromText());
  }

  // load replaces the request.
  load(request) {
    this.request = snake(request, false);
    this.fill();
    this.write();
  }

  // set sets a field as if the user had typed value.
  set(field, value) {
    field.value = value;
    this.fromField(field);
  }

  // refuse marks the fields that the service has refused, until the next run.
  refuse(violations) {
    for (const { field: path, description } of violations) {
      const field = this.fields.find((f) => this.path(f) === path && !f.hasAttribute('aria-invalid'));
      if (!field) continue;
      this.mark(field, visible(description));
      this.refused.push(field);
    }
  }

  // accept removes these marks.
  accept() {
    for (const field of this.refused.splice(0)) this.mark(field, '');
  }

  // wrong returns the first field with an invalid value, or null.
  wrong() {
    return this.root.querySelector('[aria-invalid="true"]');
  }

  fromField(field) {
    const kind = kinds[field.dataset.kind];
    try {
      const value = field.value === '' ? undefined : kind.read(field.value);
      this.mark(field, '');
      const before = deliveryIn(this.request.body_policy);
      this.put(field, value);
      if (deliveryIn(this.request.body_policy) !== before) {
        for (const other of this.fields) if (other !== field && ofDelivery.test(other.dataset.path)) this.show(other);
      }
      this.write();
    } catch (e) {
      if (!(e instanceof Wrong)) throw e;
      this.mark(field, e.message);
    }
  }

  fromText() {
    try {
      this.request = parse(this.text.value);
      this.markText('');
      this.fill();
      this.changed();
    } catch (e) {
      if (!(e instanceof Wrong)) throw e;
      this.markText(e.message);
    }
  }

  markText(message) {
    this.text.setAttribute('aria-invalid', String(message !== ''));
    this.note.textContent = message;
  }

  // mark shows an error message below a field, or removes it if message is empty.
  mark(field, message) {
    const id = `${field.id}-wrong`;
    let note = document.getElementById(id);
    if (!message) {
      field.removeAttribute('aria-invalid');
      field.removeAttribute('aria-describedby');
      note?.remove();
      return;
    }
    if (!note) {
      note = el('p', { class: 'wrong', id });
      field.after(note);
    }
    note.textContent = message;
    field.setAttribute('aria-invalid', 'true');
    field.setAttribute('aria-describedby', id);
  }

  // path returns the path of a field. The settings of a stream are in auto, if that is set.
  path(field) {
    return deliveryIn(this.request.body_policy) === 'auto' ? field.dataset.path.replace('body_policy.stream.', 'body_policy.auto.') : field.dataset.path;
  }

  // put sets the value of a field in the request. A setting of a delivery chooses that delivery.
  put(field, value) {
    if (field.dataset.kind === 'delivery') {
      deliver(this.request, value || 'stream');
      return;
    }
    const path = this.path(field);
    const name = ofDelivery.exec(path)?.[1];
    if (name && value !== undefined && name !== (deliveryIn(this.request.body_policy) || 'stream')) deliver(this.request, name);
    set(this.request, path, value);
  }

  // fill copies the request into the fields.
  fill() {
    for (const field of this.fields) this.show(field);
    this.drawHeaders();
  }

  // show copies the value of a field from the request.
  show(field) {
    const value = get(this.request, this.path(field));
    this.mark(field, '');
    const text = value === undefined || value === null ? '' : kinds[field.dataset.kind].write(value);
    if (field.tagName === 'SELECT' && ![...field.options].some((o) => o.value === text)) field.append(el('option', { value: text }, text));
    field.value = text;
  }

  // write copies the request into the JSON text.
  write() {
    this.markText('');
    this.text.value = JSON.stringify(this.request, null, 2);
    this.changed();
  }

  drawHeaders() {
    const list = Array.isArray(this.request.headers) ? this.request.headers : [];
    this.headers.replaceChildren(...list.map((h) => this.headerRow(h)));
    this.number();
  }

  // addHeader adds an empty row.
  addHeader() {
    const row = this.headerRow({ name: '', value: '' });
    this.headers.append(row);
    row.querySelector('input').focus();
    this.number();
  }

  headerRow(header) {
    const name = el('input', { type: 'text', value: String(header?.name ?? ''), autocomplete: 'off', spellcheck: false, 'aria-label': 'Header name', placeholder: 'Name' });
    const value = el('input', { type: 'text', value: String(header?.value ?? ''), autocomplete: 'off', spellcheck: false, 'aria-label': 'Header value', placeholder: 'Value' });
    const remove = el('button', { type: 'button', class: 'quiet', 'aria-label': 'Remove this header' }, '×');
    const row = el('li', { class: 'header-row' }, name, value, remove);
    row.header = header;
    for (const field of [name, value]) field.addEventListener('input', () => this.fromHeaders());
    remove.addEventListener('click', () => {
      const next = row.nextElementSibling || row.previousElementSibling;
      row.remove();
      this.fromHeaders();
      (next?.querySelector('button') || this.root.querySelector('#add-header')).focus();
    });
    return row;
  }

  fromHeaders() {
    const list = [];
    for (const row of this.headers.children) {
      const [name, value] = row.querySelectorAll('input');
      const header = { ...row.header, name: name.value, value: value.value };
      if (value.value === '') delete header.value;
      if (name.value !== '' || value.value !== '') list.push(header);
    }
    set(this.request, 'headers', list.length ? list : undefined);
    this.write();
    this.number();
  }

  number() {
    [...this.headers.children].forEach((row, i) => {
      const [name, value] = row.querySelectorAll('input');
      name.setAttribute('aria-label', `Header ${i + 1} name`);
      value.setAttribute('aria-label', `Header ${i + 1} value`);
      row.querySelector('button').setAttribute('aria-label', `Remove header ${i + 1}`);
    });
  }
}
