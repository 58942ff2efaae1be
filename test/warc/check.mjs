// Checks WARC files with warcio's parser, and prints a line of JSON for each record.
//
//   node check.mjs FILE...
//
// warcio accepts truncated files, wrong digests, and members of gzip that have several records. So
// each file is also read byte by byte here, and both readings are compared. Each fault is a line on
// standard error, as is each warning of warcio. Run it under a time limit: warcio does not end if a
// file without gzip is truncated.
//
// The files are one archive: a record may refer to a record of any of them.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import pako from 'pako';
import { WARCParser } from 'warcio';

const files = process.argv.slice(2);
const profiles = {
  'http://netpreserve.org/warc/1.1/revisit/identical-payload-digest': 'payload',
  'http://netpreserve.org/warc/1.1/revisit/server-not-modified': 'unmodified',
};
const byID = new Map();
let where = '';

function fault(text) {
  // What a stranger has sent is never printed raw.
  console.error(JSON.stringify(`${where}: ${text}`));
  process.exitCode = 1;
}

function want(ok, text) {
  if (!ok) fault(text);
}

const hash = (algorithm, bytes, encoding) => createHash(algorithm).update(bytes).digest(encoding);

function base32(bytes) {
  let bits = '';
  for (const b of bytes) bits += b.toString(2).padStart(8, '0');
  return bits.match(/.{5}/g).map((five) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'[parseInt(five, 2)]).join('');
}

// hasDigest reports whether bytes have the digest of a field.
function hasDigest(field, bytes) {
  const [algorithm, value] = field.split(':');
  if (algorithm === 'sha1') return value === base32(hash('sha1', bytes)); // 160 bits are 32 characters
  return algorithm === 'sha256' && value === hash('sha256', bytes, 'hex');
}

// members splits a compressed file into its members.
function* members(file) {
  for (let offset = 0; offset < file.length; ) {
    const one = new pako.Inflate();
    one.push(file.subarray(offset), false);
    if (one.err || !one.ended) throw new Error(`no whole member at offset ${offset}: ${one.msg || 'the file ends'}`);
    const length = one.strm.total_in;
    yield { offset, length, bytes: Buffer.from(one.result) };
    offset += length;
  }
}

// plain splits a file without gzip into its records.
function* plain(file) {
  for (let offset = 0; offset < file.length; ) {
    const { end } = parse(file.subarray(offset));
    yield { offset, length: end, bytes: file.subarray(offset, offset + end) };
    offset += end;
  }
}

// parse reads the record at the start of bytes.
function parse(bytes) {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) throw new Error('the head of a record does not end');
  const [version, ...lines] = bytes.toString('utf8', 0, headEnd).split('\r\n');
  const fields = lines.map((line) => {
    const colon = line.indexOf(':');
    want(colon > 0 && !/^[ \t]/.test(line), `the head has the line ${line}`);
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  const all = (name) => fields.filter(([n]) => n.toLowerCase() === name.toLowerCase()).map(([, value]) => value);
  const length = all('Content-Length')[0];
  if (!/^\d+$/.test(length)) throw new Error(`Content-Length is ${length}`);
  const block = bytes.subarray(headEnd + 4, headEnd + 4 + Number(length));
  const end = headEnd + 8 + Number(length);
  if (bytes.toString('latin1', end - 4, end) !== '\r\n\r\n') throw new Error('the record does not end after Content-Length bytes and two empty lines');
  return { version, fields, all, get: (name) => all(name)[0] ?? '', block, end };
}

// http splits the block of an HTTP message.
function http(r) {
  const end = r.block.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [start, ...lines] = r.block.toString('latin1', 0, end).split('\r\n');
  return { start, lines, payload: r.block.subarray(end + 4) };
}

// dechunk undoes the framing of chunks. A truncated payload gives what it has.
function dechunk(payload) {
  const parts = [];
  for (let at = 0; ; ) {
    const line = payload.indexOf('\r\n', at);
    const text = line < 0 ? '' : payload.toString('latin1', at, line);
    const size = /^[0-9a-f]+[ \t]*(;[^\r\n]*)?$/i.test(text) ? parseInt(text, 16) : NaN;
    if (!(size > 0)) return { body: Buffer.concat(parts), whole: size === 0 && /^(?:(?!\r?\n)[^\n]*\n)*\r?\n$/.test(payload.toString('latin1', line + 2)) };
    parts.push(payload.subarray(line + 2, line + 2 + size));
    at = line + 2 + size;
    if (payload.toString('latin1', at, at + 2) !== '\r\n') return { body: Buffer.concat(parts), whole: false };
    at += 2;
  }
}

const isChunked = (message) => message.lines.some((l) => /^transfer-encoding:\s*chunked\s*$/i.test(l));

// content returns what the payload digest is about.
function content(message) {
  const { body, whole } = isChunked(message) ? dechunk(message.payload) : {};
  return whole ? body : message.payload;
}

const isHTTP = (r) => /^application\/http;/.test(r.get('Content-Type'));

// read reads a file in both ways.
async function read(path) {
  const file = readFileSync(path);
  const compressed = path.replace(/\.open$/, '').endsWith('.gz');
  const records = [];
  for (const m of compressed ? members(file) : plain(file)) {
    where = `${basename(path)} at ${m.offset}`;
    const r = { ...parse(m.bytes), file: basename(path).replace(/\.open$/, ''), offset: m.offset, length: m.length };
    want(r.end === m.bytes.length, `the member has ${m.bytes.length} bytes, but the record has ${r.end}`);
    records.push(r);
  }
  where = basename(path);
  let n = 0;
  const parser = new WARCParser([file], { keepHeadersCase: true, parseHttp: false });
  for await (const theirs of parser) {
    const r = records[n++];
    const block = await theirs.readFully(false);
    if (!r) continue;
    where = `${basename(path)} at ${r.offset}`;
    want(parser.offset === r.offset, `warcio finds the record at ${parser.offset}`);
    want(theirs.warcHeader('WARC-Record-ID') === r.get('WARC-Record-ID'), `warcio reads the record ID ${theirs.warcHeader('WARC-Record-ID')}`);
    want(r.block.equals(block), `warcio reads another block, of ${block.length} bytes`);
    if (compressed) {
      await theirs.skipFully();
      want(parser.recordLength === r.length, `warcio says that the record has ${parser.recordLength} bytes, not ${r.length}`);
    }
    if (isHTTP(r)) await alone(r, file.subarray(r.offset, r.offset + r.length));
  }
  where = basename(path);
  want(n === records.length, `warcio reads ${n} records of ${records.length}`);
  return records;
}

// alone reads one record as a replay tool does, which knows its offset and length, and compares the
// HTTP message.
async function alone(r, bytes) {
  const theirs = await new WARCParser([bytes], { keepHeadersCase: true }).parse();
  const ours = http(r);
  if (!ours) return fault('the block has no whole HTTP head');
  if (ours.lines.length === 0) return; // warcio takes the payload after such a head for fields
  want(theirs.httpHeaders?.statusline === Buffer.from(ours.start, 'latin1').toString(), `warcio reads the start line ${theirs.httpHeaders?.statusline}`);
  const payload = await theirs.readFully(false);
  want(ours.payload.equals(payload), `warcio reads another payload, of ${payload.length} bytes`);
}

function check(r) {
  const id = r.get('WARC-Record-ID');
  const type = r.get('WARC-Type');
  want(r.version === 'WARC/1.1', `the version is ${r.version}`);
  want(/^<urn:uuid:[0-9a-fA-F-]{36}>$/.test(id), `WARC-Record-ID is ${id}`);
  want(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$/.test(r.get('WARC-Date')), `WARC-Date is ${r.get('WARC-Date')}`);
  for (const name of new Set(r.fields.map(([n]) => n.toLowerCase()))) {
    want(r.all(name).length === 1 || ['warc-concurrent-to', 'warc-protocol'].includes(name), `${name} is there ${r.all(name).length} times`);
  }
  const block = r.get('WARC-Block-Digest');
  want(hasDigest(block, r.block), `WARC-Block-Digest is ${block}`);
  const info = byID.get(r.get('WARC-Warcinfo-ID'));
  want(!r.get('WARC-Warcinfo-ID') || (info?.get('WARC-Type') === 'warcinfo' && info.file === r.file), 'WARC-Warcinfo-ID is not that of this file');
  if (isHTTP(r)) checkMessage(r, type);
  else want(type !== 'response' || (r.get('Content-Type') === 'application/octet-stream' && r.get('WARC-Payload-Digest') === ''), `a response has the type ${r.get('Content-Type')} and the payload digest ${r.get('WARC-Payload-Digest')}`);
  if (type === 'revisit') checkRevisit(r);
  if (['request', 'response', 'revisit'].includes(type)) checkConcurrent(r, id, type);
}

function checkMessage(r, type) {
  const message = http(r);
  if (!message) return;
  const digest = r.get('WARC-Payload-Digest');
  if (type !== 'revisit' && digest !== '') want(hasDigest(digest, content(message)), `WARC-Payload-Digest is ${digest}`);
  if (type === 'request') {
    want(/^[A-Z]+ \S+ HTTP\/1\.1$/.test(message.start), `the request line is ${message.start}`);
  } else {
    want(type === 'revisit' || digest !== '' || message.payload.length === 0, 'the record has no WARC-Payload-Digest');
    want(!/^HTTP\/1\.\d 1(?!01)\d\d/.test(message.start), `the record has an interim response: ${message.start}`);
  }
  if (type === 'revisit') want(message.payload.length === 0, `a revisit has a payload of ${message.payload.length} bytes`);
}

function checkRevisit(r) {
  const kind = profiles[r.get('WARC-Profile')];
  const earlier = byID.get(r.get('WARC-Refers-To'));
  want(kind, `WARC-Profile is ${r.get('WARC-Profile')}`);
  if (!earlier) return fault(`WARC-Refers-To is ${r.get('WARC-Refers-To')}, which is in none of the files`);
  want(earlier.get('WARC-Type') === 'response', `WARC-Refers-To is a ${earlier.get('WARC-Type')}`);
  want(r.get('WARC-Refers-To-Target-URI') === earlier.get('WARC-Target-URI'), 'WARC-Refers-To-Target-URI is not that of the earlier record');
  want(Date.parse(r.get('WARC-Refers-To-Date')) === Date.parse(earlier.get('WARC-Date')), 'WARC-Refers-To-Date is not that of the earlier record');
  if (kind === 'payload') want(r.get('WARC-Payload-Digest') === earlier.get('WARC-Payload-Digest'), 'WARC-Payload-Digest is not that of the earlier record');
  if (kind === 'unmodified') want(/^HTTP\/1\.\d 304/.test(http(r)?.start ?? ''), 'the response is not a 304');
}

// checkConcurrent checks that a request and its response name each other, and nothing else.
function checkConcurrent(r, id, type) {
  const others = r.all('WARC-Concurrent-To');
  want(others.length === 1 || (type === 'request' && others.length === 0), `there are ${others.length} fields WARC-Concurrent-To`);
  for (const other of others.map((o) => byID.get(o))) {
    if (!other) return fault('WARC-Concurrent-To is in none of the files');
    want(other.get('WARC-Concurrent-To') === id, 'the record in WARC-Concurrent-To does not name this one');
    want((other.get('WARC-Type') === 'request') !== (type === 'request'), `WARC-Concurrent-To is a ${other.get('WARC-Type')}`);
    for (const name of ['WARC-Target-URI', 'WARC-Date', 'WARC-IP-Address']) {
      want(other.get(name) === r.get(name), `the record in WARC-Concurrent-To has another ${name}`);
    }
  }
}

function print(r) {
  const message = isHTTP(r) ? http(r) : undefined;
  const line = { file: r.file, offset: r.offset, length: r.length, type: r.get('WARC-Type'), id: r.get('WARC-Record-ID').slice(1, -1),
    uri: r.get('WARC-Target-URI').replace(/^<(.*)>$/, '$1'), block_size: r.block.length, fields: r.fields };
  if (message) {
    const body = isChunked(message) ? dechunk(message.payload).body : message.payload;
    Object.assign(line, { start: message.start, head: message.lines, payload_size: message.payload.length, body_size: body.length, body_sha256: hash('sha256', body, 'hex') });
  }
  console.log(JSON.stringify(line));
}

const records = [];
for (const path of files) {
  where = basename(path);
  try {
    const found = await read(path);
    where = basename(path);
    want(found[0]?.get('WARC-Type') === 'warcinfo', 'the first record is not a warcinfo record');
    want(found[0]?.get('WARC-Filename') === found[0]?.file, `WARC-Filename is ${found[0]?.get('WARC-Filename')}`);
    records.push(...found);
  } catch (e) {
    fault(e.message);
  }
}
for (const r of records) {
  where = `${r.file} at ${r.offset}`;
  want(!byID.has(r.get('WARC-Record-ID')), `another record has the same WARC-Record-ID`);
  byID.set(r.get('WARC-Record-ID'), r);
}
for (const r of records) {
  where = `${r.file} at ${r.offset}`;
  check(r);
  print(r);
}
