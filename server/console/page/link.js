// A request in the fragment of a link: #r= and its JSON as base64url. A fragment
// is never sent.

import { base64, bytesOf } from './text.js';

const prefix = '#r=';

// fragment is the request as a fragment.
export function fragment(request) {
  return prefix + base64(new TextEncoder().encode(JSON.stringify(request))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

// requestIn reads a fragment: null where there is none. It throws where it cannot
// be read.
export function requestIn(hash) {
  if (!hash.startsWith(prefix)) return null;
  const text = new TextDecoder('utf-8', { fatal: true }).decode(bytesOf(decodeURIComponent(hash.slice(prefix.length))));
  const request = JSON.parse(text);
  if (request === null || typeof request !== 'object' || Array.isArray(request)) throw new Error('no object');
  return request;
}
