// Renders the request as a command for POSIX shells, or as a program in Python or for Node. They read
// the token from FETCHD_TOKEN; it is never in the text.

import { bytesOf } from './text.js';

// shell quotes a word for a POSIX shell.
export function shell(word) {
  return `'${String(word).replace(/'/g, `'\\''`)}'`;
}

// json returns a request on one line, with invisible characters escaped.
export function json(request) {
  return JSON.stringify(request).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) =>
    c.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''));
}

// curl returns a command that calls the HTTP API.
export function curl(request, service) {
  const parts = ['curl --silent --show-error --no-buffer --globoff', `  --header ${shell('Content-Type: application/json')}`];
  if (service.token) parts.push('  --header "Authorization: Bearer $FETCHD_TOKEN"');
  parts.push(`  --data-binary ${shell(json(request))}`, `  ${shell(`${service.base}/v1/fetch`)}`);
  return parts.join(' \\\n');
}

// grpcurl returns a command that calls the gRPC API.
export function grpcurl(request, service) {
  const parts = [service.tls ? 'grpcurl' : 'grpcurl -plaintext'];
  if (service.token) parts.push('  -H "Authorization: Bearer $FETCHD_TOKEN"');
  parts.push(`  -d ${shell(json(request))}`, `  ${shell(service.grpc)} fetchd.v1.FetchService/Fetch`);
  return parts.join(' \\\n');
}

// literal quotes text for Python. JSON quotes in the same way, except that Python has no
// surrogate pairs: an invisible character beyond U+FFFF needs \U with eight digits.
export function literal(text) {
  return JSON.stringify(String(text)).replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Cf}]/gu, (c) => {
    const code = c.codePointAt(0).toString(16);
    return code.length > 4 ? `\\U${code.padStart(8, '0')}` : `\\u${code.padStart(4, '0')}`;
  });
}

// Fields of FetchRequest whose values in Python are not those in JSON.
const durations = ['base_delay', 'max_delay', 'max_jitter', 'max_retry_after', 'total_timeout', 'attempt_timeout', 'connect_timeout', 'header_timeout', 'idle_timeout'];
const integers = ['jitter_seed', 'max_size_bytes', 'max_hold_back_bytes', 'offset_bytes', 'size_bytes'];
const enums = {
  profile: 'RETRY_PROFILE_', scope: 'REDIRECT_SCOPE_', oversize_action: 'OVERSIZE_ACTION_', recovery: 'BODY_RECOVERY_',
  cookie_mode: 'COOKIE_MODE_', content: 'TEXT_CONTENT_',
};
const timestamps = ['last_modified_time', 'record_time'];

// argument renders the value of a field for Python. name is empty for the values of lists and labels.
function argument(name, value) {
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'number') return String(value);
  if (value === null || value === undefined) return 'None';
  if (Array.isArray(value)) return `[${value.map((v) => argument('', v)).join(', ')}]`;
  if (typeof value === 'object') return `{${Object.entries(value).map(([k, v]) => `${literal(k)}: ${argument(name === 'labels' ? '' : k, v)}`).join(', ')}}`;
  if (durations.includes(name) && /^\d+(\.\d+)?s$/.test(value)) return String(Number(value.slice(0, -1)));
  if (integers.includes(name) && /^-?\d+$/.test(value)) return String(BigInt(value));
  if (Object.hasOwn(enums, name) && value.startsWith(enums[name])) return literal(value.slice(enums[name].length).toLowerCase());
  if (timestamps.includes(name)) return `datetime.datetime.fromisoformat(${literal(value.replace(/Z$/, '+00:00'))})`;
  return literal(value);
}

// blob renders bytes in base64: with text if they are UTF-8, and with other otherwise.
function blob(base64, text, other) {
  try {
    return text(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytesOf(base64)));
  } catch {
    return other(base64);
  }
}

const pythonBlob = (base64) => blob(base64, literal, (b) => `base64.b64decode(${literal(b)})`);
const nodeBlob = (base64) => blob(base64, (t) => `Buffer.from(${json(t)})`, (b) => `Buffer.from(${json(b)}, "base64")`);

// listOf returns the headers of a request.
function listOf(headers) {
  return Array.isArray(headers) ? headers.map((h) => ({ name: h?.name ?? '', value: h?.value ?? '', raw: h?.raw_value })) : [];
}

// headersOf renders headers for Python: as a dict, or as pairs if a name occurs twice.
function headersOf(headers) {
  const pairs = headers.map((h) => [literal(h.name), h.raw ? pythonBlob(h.raw) : literal(h.value)]);
  if (new Set(pairs.map(([name]) => name.toLowerCase())).size < pairs.length) return `[${pairs.map((pair) => `(${pair.join(', ')})`).join(', ')}]`;
  return `{${pairs.map((pair) => pair.join(': ')).join(', ')}}`;
}

const methods = ['get', 'head', 'options', 'post', 'put', 'patch', 'delete'];

// python returns a program that uses the package in client/python.
export function python(request, service) {
  const { url, method, body, headers: given, event_level: _, ...fields } = request;
  const headers = listOf(given);
  const name = String(method || 'get').toLowerCase();
  if (fields.body_policy?.stream) { // the package streams only if the program reads piece by piece
    const { stream, ...policy } = fields.body_policy;
    fields.body_policy = { ...policy, auto: stream };
  }
  const parts = [literal(url ?? '')];
  if (!methods.includes(name)) parts.unshift(literal(method));
  if (headers.length) parts.push(`headers=${headersOf(headers)}`);
  if (body) parts.push(`content=${pythonBlob(body)}`);
  for (const [key, value] of Object.entries(fields)) { // a link may have any name
    parts.push(/^[a-z]+(_[a-z]+)*$/.test(key) ? `${key}=${argument(key, value)}` : `**${argument('', { [key]: value })}`);
  }
  const target = `${literal((service.tls ? 'https://' : '') + service.grpc)}${service.token ? ', token=os.environ["FETCHD_TOKEN"]' : ''}`;
  const line = parts.join(', ');
  const call = `${methods.includes(name) ? name : 'request'}(${line.length < 80 ? line : `\n        ${parts.join(',\n        ')},\n    `})`;
  const modules = [call.includes('base64.b64decode(') && 'base64', call.includes('datetime.datetime.') && 'datetime', service.token && 'os'].filter(Boolean);
  const imports = modules.map((m) => `import ${m}\n`).join('');
  return `${imports}${imports && '\n'}import fetchd

with fetchd.Client(${target}) as client:
    response = client.${call}
    print(response)
    print(response.text)
`;
}

// node returns a program that uses the package in client/node, which accepts the JSON of the policies.
export function node(request, service) {
  const { url, method, body, headers: given, event_level: _, ...fields } = request;
  const headers = listOf(given).map((h) => (h.raw ? `{ name: ${json(h.name)}, raw_value: ${nodeBlob(h.raw)} }` : `[${json(h.name)}, ${json(h.value)}]`));
  const parts = [];
  if (method) parts.push(`method: ${json(method)}`);
  if (headers.length) parts.push(`headers: [${headers.join(', ')}]`);
  if (body) parts.push(`body: ${nodeBlob(body)}`);
  if (Object.keys(fields).length) parts.push(`fetchd: ${json(fields)}`);
  const target = json(`${service.tls ? 'https' : 'http'}://${service.grpc}`);
  return `import { Client } from "fetchd";

const client = new Client(${target}${service.token ? ', { token: process.env.FETCHD_TOKEN }' : ''});
const response = await client.fetch(${json(url ?? '')}${parts.length ? `, {\n  ${parts.join(',\n  ')},\n}` : ''});
console.log(response.status, await response.text());
await client.close();
`;
}
