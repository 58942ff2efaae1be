// Draws tables and lists of facts again and again. Rows stay in the document, so that a redraw loses
// no selection and no focus.

import { el, visible } from './text.js';

// fill shows items in a table body. key returns the identity of an item, and cells its cells: text
// with an optional class. The box around the table is hidden if there are no items, and instead the
// element none is shown.
export function fill(body, items, key, cells, box, none) {
  const before = new Map([...body.children].map((row) => [row.dataset.key, row]));
  items.forEach((item, at) => {
    const id = String(key(item));
    const row = before.get(id) || el('tr', {});
    before.delete(id);
    row.dataset.key = id;
    cells(item).forEach((cell, column) => draw(row, column, cell));
    if (body.children[at] !== row) body.insertBefore(row, body.children[at] || null);
  });
  for (const row of before.values()) row.remove();
  if (box) box.hidden = items.length === 0;
  if (none) none.hidden = items.length > 0;
}

function draw(row, column, { text, kind = '', badge = '', parts }) {
  const cell = row.children[column] || row.appendChild(el('td', {}));
  const state = JSON.stringify([text, kind, badge, parts]);
  if (cell.state === state) return;
  cell.state = state;
  cell.className = kind;
  if (parts) cell.replaceChildren(share(parts));
  else if (kind === 'foreign') cell.replaceChildren(el('bdi', { class: 'foreign', dir: 'ltr' }, visible(text)));
  else if (badge) cell.replaceChildren(el('span', { class: `badge ${badge}` }, visible(text)));
  else cell.textContent = visible(text);
}

// share returns a bar. parts has its length from 0 to 1, and the numbers of its pieces by class.
function share({ length, pieces }) {
  const bar = el('div', {});
  bar.style.setProperty('--n', length);
  bar.append(...pieces.filter(([, n]) => n > 0).map(([name, n]) => {
    const piece = el('div', { class: name });
    piece.style.setProperty('--n', n);
    return piece;
  }));
  return bar;
}

// facts shows names and values in a list of descriptions. Each has a name, a value, and optionally
// the class of a key.
export function facts(list, items) {
  items.forEach(([name, value, key], at) => {
    const item = list.children[at] || list.appendChild(el('div', {}, el('dt', {}), el('dd', {})));
    const [term, text] = item.children;
    if (term.textContent !== name) term.replaceChildren(key ? el('span', { class: `key ${key}` }) : '', name);
    if (text.textContent !== value) text.textContent = value;
  });
  while (list.childElementCount > items.length) list.lastElementChild.remove();
}
