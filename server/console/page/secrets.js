// What must not leave the page in a link or a file.

const names = /auth|cookie|token|secret|password|passwd|session|credential|signature|api-?_?key|access-?_?key|private-?_?key|csrf|xsrf|jwt|otp/i;
const parameters = /^(sig|code|x-amz-.*|x-goog-.*|awsaccesskeyid)$|key$|pass|pwd/i;
// plain are the headers that name no one and open nothing (spec D4), and those of the
// body. Any other may be a secret, whatever it is called.
const plain = /^(accept|accept-language|accept-encoding|user-agent|range|if-match|if-none-match|if-modified-since|if-unmodified-since|if-range|cache-control|pragma|content-.*)$/i;
const values = /^(basic|bearer|digest|negotiate|hawk|token|apikey|aws4-hmac-sha256)\s/i;

// credential tells a header that opens something, by its name or its value.
export function credential(name, value) {
  return names.test(String(name)) || values.test(String(value || '').trim());
}

// withoutSecrets is a copy of a request without credentials, and what was left
// out of it, in words.
export function withoutSecrets(request, bodyIsSecret) {
  const copy = structuredClone(request);
  const left = [];
  if (Array.isArray(copy.headers)) {
    copy.headers = copy.headers.filter((h) => {
      const drop = !plain.test(String(h?.name).trim()) || credential(h?.name, h?.value) || (h?.rawValue !== undefined);
      if (drop) left.push(`the header ${h?.name}`);
      return !drop;
    });
    if (copy.headers.length === 0) delete copy.headers;
  }
  if (copy.body && bodyIsSecret) {
    delete copy.body;
    left.push('the body');
  }
  if (copy.retryPolicy && copy.retryPolicy.idempotencyKey) {
    delete copy.retryPolicy.idempotencyKey;
    left.push('the idempotency key');
  }
  if (typeof copy.url === 'string') copy.url = bareURL(copy.url, left);
  return { request: copy, left };
}

// bareURL takes out userinfo and the values of parameters that open something. A
// URL without them stays as it was written.
function bareURL(text, left) {
  let url;
  try {
    url = new URL(text);
  } catch {
    const bare = text.replace(/\/\/[^/?#]*@/, '//').replace(/[?#].*$/s, '');
    if (bare !== text) left.push('parts of a URL that cannot be read');
    return bare;
  }
  let changed = false;
  if (url.username || url.password) {
    url.username = url.password = '';
    left.push('the user and password of the URL');
    changed = true;
  }
  for (const name of new Set(url.searchParams.keys())) {
    if (!names.test(name) && !parameters.test(name)) continue;
    url.searchParams.set(name, '');
    left.push(`the value of ${name} in the URL`);
    changed = true;
  }
  if (names.test(url.hash)) {
    url.hash = '';
    left.push('the fragment of the URL');
    changed = true;
  }
  return changed ? url.href : text;
}
