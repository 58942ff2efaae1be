// Makes text from origins safe to display. Nothing here creates markup from text.

// hidden matches characters that are invisible or reorder others: controls, formats (such as
// bidi), fillers, separators, lone surrogates, private use and unassigned ones.
const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;
const hiddenInLines = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;

function name(char) {
  return `[U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}]`;
}

// visible returns text with hidden characters replaced, such as by [U+202E].
export function visible(text) {
  return String(text).replace(hidden, name);
}

// visibleLines is like visible, but keeps line ends and tabs.
export function visibleLines(text) {
  return String(text).replace(/\r\n/g, '\n').replace(hiddenInLines, name);
}

// el creates an element with properties and children, which are elements or text.
export function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === 'class') made.className = value;
    else if (key.includes('-') || key === 'role' || key === 'for' || key === 'scope') made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.filter((c) => c !== null && c !== undefined && c !== ''));
  return made;
}

// foreign returns an element with text from an origin. Its text direction does not affect
// the text around it.
export function foreign(text, tag = 'bdi') {
  return el(tag, { class: 'foreign', dir: 'ltr' }, visible(text));
}

// short returns the name of an enum value without the prefix of its enum, such as http_server_error.
const enums = /^(ERROR_CLASS|FAILURE_TYPE|OUTCOME_KIND|STOP_REASON|DELAY_SOURCE|PHASE|RETRY_START|STATUS|KIND|RETRY_PROFILE|WARC_TYPE)_/;
export function short(value) {
  return visible(value || '').replace(enums, '').toLowerCase();
}

// seconds parses a protobuf duration. It returns undefined if there is none.
export function seconds(duration) {
  if (typeof duration !== 'string') return undefined;
  const value = Number.parseFloat(duration);
  return Number.isFinite(value) ? value : undefined;
}

// time formats a duration in seconds with three digits and a unit.
export function time(s) {
  if (s === undefined) return '';
  if (s === 0) return '0 ms';
  if (s < 0.001) return `${Math.max(1, Math.round(s * 1e6))} µs`;
  if (s < 1) return `${Number((s * 1e3).toPrecision(3))} ms`;
  if (s < 120) return `${Number(s.toPrecision(3))} s`;
  return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

// size formats a number of bytes.
export function size(n) {
  if (n < 1024) return `${n} bytes`;
  let unit = 0;
  for (n /= 1024; n >= 1024 && unit < 3; unit++) n /= 1024;
  return `${n.toFixed(1)} ${['KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

// bytesOf decodes base64 in either alphabet.
export function bytesOf(base64) {
  const raw = atob(String(base64).replace(/-/g, '+').replace(/_/g, '/'));
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i); // several times faster than Uint8Array.from
  return bytes;
}

// base64 encodes bytes.
export function base64(bytes) {
  let raw = '';
  for (let i = 0; i < bytes.length; i += 8192) raw += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(raw);
}
