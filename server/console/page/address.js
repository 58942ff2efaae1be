// Shows URLs of hops. A long URL is shortened where it is equal to the URL before, and the part
// that differs is marked.

import { el, foreign, visible } from './text.js';

const word = /[\p{L}\p{N}%_~-]/u;

function inWord(left, ...right) {
  return word.test(left ?? '') && right.some((c) => word.test(c ?? ''));
}

// difference splits url into the start that it has in common with before, the part that differs,
// and the common end. Names and numbers are not split. Without before, all is common.
export function difference(before, url) {
  if (!before || before === url) return [url, '', ''];
  const most = Math.min(before.length, url.length);
  let start = 0;
  while (start < most && before[start] === url[start]) start++;
  while (start > 0 && inWord(url[start - 1], url[start], before[start])) start--;
  let end = 0;
  while (end < most - start && before.at(-1 - end) === url.at(-1 - end)) end++;
  while (end > 0 && inWord(url.at(-end), url.at(-1 - end), before.at(-1 - end))) end--;
  return [url.slice(0, start), url.slice(start, url.length - end), url.slice(url.length - end)];
}

// cut splits text into a head, a middle to omit and a tail, so that head and tail have most
// characters with the ellipsis between them.
function cut(text, most) {
  if (text.length <= most) return [text, '', ''];
  const kept = Math.max(most - 1, 0);
  const head = Math.ceil(kept * 0.6);
  return [text.slice(0, head), text.slice(head, text.length - (kept - head)), text.slice(text.length - (kept - head))];
}

// shorten returns the parts of difference, each cut so that together they have about most
// characters. The part that differs is cut last.
export function shorten([start, differs, end], most) {
  if (start.length + differs.length + end.length <= most) return [start, differs, end].map((text) => [text, '', '']);
  const forDiffers = Math.min(differs.length, most - Math.min(start.length, 10) - Math.min(end.length, 4));
  const rest = most - forDiffers;
  const forStart = Math.min(start.length, Math.max(rest - end.length, rest - Math.ceil(rest * 0.35)));
  return [cut(start, forStart), cut(differs, forDiffers), cut(end, rest - forStart)];
}

// address returns an element with about most characters of url, and whether it is shortened. The
// omitted parts stay in the text, so that a copy has the whole URL.
export function address(before, url, most) {
  const parts = shorten(difference(visible(before || ''), visible(url)), most);
  const [start, differs, end] = parts.map(([head, omitted, tail]) => [head, omitted ? el('span', { class: 'omitted' }, omitted) : '', tail]);
  const made = foreign('');
  made.append(...[...start, differs[0] ? el('mark', {}, ...differs) : '', ...end].filter((part) => part !== ''));
  made.classList.add('address');
  made.title = visible(url);
  return { made, short: parts.some(([, omitted]) => omitted !== '') };
}
