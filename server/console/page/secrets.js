// Finds secrets, which must not leave the page in a link or a file.

const names = /auth|cookie|token|secret|password|passwd|session|credential|signature|api-?_?key|access-?_?key|private-?_?key|csrf|xsrf|jwt|otp/i;
const parameters = /^(sig|code|x-amz-.*|x-goog-.*|awsaccesskeyid)$|key$|pass|pwd/i;
// plain matches the headers that identify no one and grant no access (spec D4), and those
// that describe the body. Any other header may be a secret, whatever its name.
const plain = /^(accept|accept-language|accept-encoding|user-agent|range|if-match|if-none-match|if-modified-since|if-unmodified-since|if-range|cache-control|pragma|content-.*)$/i;
const values = /^(basic|bearer|digest|negotiate|hawk|token|apikey|aws4-hmac-sha256)\s/i;

// credential reports whether a header looks like a credential, by its name or its value.
export function credential(name, value) {
  return names.test(String(name)) || values.test(String(value || '').trim());
}

// withoutSecrets returns a copy of a request without secrets, and a list of what it left
// out, in words.
export function withoutSecrets(request, bodyIsSecret) {
  const copy = structuredClone(request);
  const left = [];
  if (Array.isArray(copy.headers)) {
    copy.headers = copy.headers.filter((h) => {
      const drop = !plain.test(String(h?.name).trim()) || credential(h?.name, h?.value) || (h?.raw_value !== undefined);
      if (drop) left.push(`the header ${h?.name}`);
      return !drop;
    });
    if (copy.headers.length === 0) delete copy.headers;
  }
  if (copy.body && bodyIsSecret) {
    delete copy.body;
    left.push('the body');
  }
  if (copy.retry_policy && copy.retry_policy.idempotency_key) {
    delete copy.retry_policy.idempotency_key;
    left.push('the idempotency key');
  }
  if (typeof copy.url === 'string') copy.url = bareURL(copy.url, left);
  return { request: copy, left };
}

// bareURL removes userinfo and the values of parameters that may be credentials. A URL
// without them is returned unchanged.
function bareURL(text, left) {
  let url;
  try {
    url = new URL(text);
  } catch {
    const bare = text.replace(/\/\/[^/?#]*@/, '//').replace(/[?#].*$/s, '');
    if (bare !== text) left.push('parts of a malformed URL');
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
