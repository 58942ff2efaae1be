// Stores a request in the fragment of a link: #r= and its JSON in base64url. Browsers do
// not send fragments.

import { base64, bytesOf } from './text.js';

const prefix = '#r=';

// fragment returns the request as a fragment.
export function fragment(request) {
  return prefix + base64(new TextEncoder().encode(JSON.stringify(request))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

// requestIn returns the request in a fragment, or null if there is none. It throws if the
// fragment is malformed.
export function requestIn(hash) {
  if (!hash.startsWith(prefix)) return null;
  const text = new TextDecoder('utf-8', { fatal: true }).decode(bytesOf(decodeURIComponent(hash.slice(prefix.length))));
  const request = JSON.parse(text);
  if (request === null || typeof request !== 'object' || Array.isArray(request)) throw new Error('no object');
  return request;
}
