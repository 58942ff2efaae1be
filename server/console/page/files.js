// Saves files and copies text. The type of a saved file does not depend on its body.

import { el } from './text.js';

// saveFile saves parts as a file.
export function saveFile(parts, type, name) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const a = el('a', { href: address, download: name });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// copyText puts text on the clipboard. If the browser does not allow that, it selects the text of
// field. It returns a sentence for the user.
export async function copyText(text, field) {
  try {
    await navigator.clipboard.writeText(text);
    return 'Copied.';
  } catch {
    field.focus();
    if (field.select) field.select();
    else getSelection().selectAllChildren(field);
    return 'Selected: the browser does not allow this page to copy, so copy it yourself.';
  }
}

// endings maps media types to the endings of file names.
const endings = {
  'text/html': '.html', 'application/xhtml+xml': '.html', 'text/css': '.css', 'text/csv': '.csv', 'text/javascript': '.js',
  'application/javascript': '.js', 'text/xml': '.xml', 'application/xml': '.xml', 'application/json': '.json', 'text/markdown': '.md',
  'application/pdf': '.pdf', 'application/zip': '.zip', 'application/gzip': '.gz', 'image/png': '.png', 'image/jpeg': '.jpg',
  'image/gif': '.gif', 'image/webp': '.webp', 'image/avif': '.avif', 'image/svg+xml': '.svg', 'image/x-icon': '.ico',
};
const codings = { gzip: '.gz', br: '.br', zstd: '.zst', deflate: '.zlib' };

function endingOf(type) {
  if (endings[type]) return endings[type];
  if (type.endsWith('+json')) return '.json';
  if (type.endsWith('+xml')) return '.xml';
  return type.startsWith('text/') ? '.txt' : '.bin';
}

// fileName returns a name for the body of a URL, from the last segment of its path, its media type
// and the content coding that it still has. It is a name on every system.
export function fileName(url, type, coding) {
  let name = '';
  try {
    name = new URL(url).pathname.replace(/^.*\//s, '');
    name = decodeURIComponent(name);
  } catch {
    // a name that is not UTF-8 stays encoded
  }
  name = name.replace(/[^\p{L}\p{N}._-]+/gu, '_').replace(/^[._]+|[._]+$/g, '').slice(0, 80) || 'index';
  if (/^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(name)) name = `_${name}`;
  if (!/\.\w{1,8}$/.test(name)) name += endingOf(type);
  return name + (codings[coding] || '');
}
