// Services that break the rules of gRPC or of the contract.

import assert from "node:assert/strict";
import dns from "node:dns/promises";
import { getEventListeners, once } from "node:events";
import { createServer as createHttp2 } from "node:http2";
import { syncBuiltinESMExports } from "node:module";
import { createServer as createTcp } from "node:net";
import { after, describe, test } from "node:test";

import { Client, FetchError, ServiceError } from "fetchd";

import { addressOf } from "../dist/address.js";
import { Framer } from "../dist/call.js";
import { Channel } from "../dist/channel.js";
import { responseOf } from "../dist/response.js";
import { failure } from "./rig.mjs";

const servers = [];
after(() => { for (const s of servers) s.close(); });

/** listen returns the URL of a server. */
async function listen(server) {
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${server.address().port}`;
}

const head = { ":status": 200, "content-type": "application/grpc" };

/** grpc returns the URL of a server that calls answer for each call, with its number. */
function grpc(answer) {
  let calls = 0;
  const server = createHttp2();
  server.on("stream", (stream, headers) => {
    stream.on("error", () => {});
    stream.resume();
    answer(stream, ++calls, headers);
  });
  server.on("session", (session) => after(() => session.destroy()));
  return listen(server);
}

function frame(message, length = message.length) {
  const bytes = Buffer.alloc(5 + message.length);
  bytes.writeUInt32BE(length, 1);
  bytes.set(message, 5);
  return bytes;
}

/** send answers with frames and trailers. */
function send(stream, frames, trailers = { "grpc-status": "0" }) {
  stream.respond(head, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  stream.end(Buffer.concat(frames));
}

/** message returns a FetchResponse with events. */
const message = (...events) => Buffer.concat(events.flatMap((e) => [Buffer.from([0x0a, e.length]), e]));

// Events in protobuf: an outcome (field 10) of kind SUCCESS with a response, a body "x" and its size, and others.
const ok = [3, 0x08, 0xc8, 1];
const success = Buffer.from([0x52, 14, 0x08, 1, 0x1a, ...ok, 0x42, 1, 0x78, 0x4a, 2, 0x08, 1]);
const ended = (size) => Buffer.from([0x52, 11, 0x08, 1, 0x1a, ...ok, 0x4a, 2, 0x08, size]);
const started = Buffer.from([0x32, 5, 0x12, ...ok]);
const chunk = (offset, text) => Buffer.from([0x3a, 4 + text.length, 0x10, offset, 0x1a, text.length, ...Buffer.from(text)]);

const shutdown = (exchanges) => Buffer.from([0x52, 8, 0x08, 4, 0x22, 2, 0x08, 34, 0x30, exchanges]);

// Details of a google.rpc.Status: ErrorInfo with a policy "p", and others.
const field = (n, ...parts) => {
  const bytes = Buffer.concat(parts.map((p) => Buffer.from(p)));
  return Buffer.concat([Buffer.from([(n << 3) | 2, bytes.length]), bytes]);
};
const any = (type, ...parts) => field(3, field(1, "type.googleapis.com/google.rpc." + type), field(2, ...parts));
const info = (reason) => any("ErrorInfo", field(1, reason), field(3, field(1, "policy"), field(2, "p")));
const retry = (seconds, ms = 0) => any("RetryInfo", field(1, seconds ? [8, seconds] : [], ms ? [16, ...nanos(ms)] : []));
const nanos = (ms) => { // a varint
  const bytes = [];
  for (let n = ms * 1e6; n > 0; n = Math.floor(n / 128)) bytes.push((n % 128) | (n >= 128 ? 128 : 0));
  return bytes;
};
const refuse = (stream, status, ...details) => stream.respond({ ...head, "grpc-status": status, "grpc-status-details-bin": Buffer.concat(details).toString("base64") }, { endStream: true });

const rows = [
  { name: "an answer that is right", answer: (s) => send(s, [frame(message(success))]), body: "x" },
  { name: "an answer in pieces of one byte", body: "x", answer: async (s) => {
    s.respond(head, { waitForTrailers: true });
    s.on("wantTrailers", () => s.sendTrailers({ "grpc-status": "0" }));
    for (const byte of frame(message(success))) {
      s.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    s.end();
  } },
  { name: "a chunk and its head", answer: (s) => send(s, [frame(message(started)), frame(message(chunk(0, "ab"))), frame(message(ended(2)))]), body: "ab" },
  { name: "all events in one message", answer: (s) => send(s, [frame(message(started, chunk(0, "ab"), chunk(2, "cd"), ended(4)))]), body: "abcd" },
  { name: "a message without events", answer: (s) => send(s, [frame(message()), frame(message(success))]), body: "x" },
  { name: "an event after the outcome of a fetch that is sent again", answer: (s, n) => send(s, [frame(n < 2 ? message(shutdown(0), success) : message(success))]), body: "x", calls: 2 },
  { name: "a message over the limit", answer: (s) => { s.respond(head); s.write(frame(Buffer.alloc(10), (4 << 20) + 1)); }, code: "RESOURCE_EXHAUSTED", message: /4194305 bytes, the limit is 4194304/ },
  { name: "a compressed message", answer: (s) => { const f = frame(message(success)); f[0] = 1; send(s, [f]); }, code: "INTERNAL", message: /compressed/ },
  { name: "a truncated frame", answer: (s) => send(s, [frame(message(success)).subarray(0, 9)]), code: "INTERNAL", message: /inside a message/ },
  { name: "half a head of a frame", answer: (s) => send(s, [Buffer.from([0, 0])]), code: "INTERNAL", message: /inside a message/ },
  { name: "bytes that are not protobuf", answer: (s) => send(s, [frame(message(Buffer.from([0x52, 0x7f, 1])))]), code: "INTERNAL", message: /not protobuf/ },
  { name: "a field that is longer than its message", answer: (s) => send(s, [frame(message(Buffer.from([0x52, 3, 0x42, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])))]), code: "INTERNAL", message: /not protobuf/ },
  { name: "a varint without an end", answer: (s) => send(s, [frame(Buffer.alloc(20, 0xff))]), code: "INTERNAL", message: /not protobuf/ },
  { name: "no outcome", answer: (s) => send(s, [frame(message(started))]), code: "INTERNAL", message: /without an outcome/ },
  { name: "a body before its head", answer: (s) => send(s, [frame(message(chunk(0, "ab")))]), code: "INTERNAL", message: /before its head/ },
  { name: "a body without its last piece", answer: (s) => send(s, [frame(message(started)), frame(message(chunk(0, "ab"))), frame(message(ended(4)))]), code: "INTERNAL", message: /the body has 4 bytes, but 2 came/ },
  { name: "a body of another size", answer: (s) => send(s, [frame(message(Buffer.from([0x52, 14, 0x08, 1, 0x1a, ...ok, 0x42, 1, 0x78, 0x4a, 2, 0x08, 2])))]), code: "INTERNAL", message: /the body has 2 bytes, but 1 came/ },
  { name: "no body", answer: (s) => send(s, [frame(message(ended(4)))]), code: "INTERNAL", message: /the body has 4 bytes, but 0 came/ },
  { name: "a body before its first byte", answer: (s) => send(s, [frame(message(Buffer.from([0x32, 16, 0x12, ...ok, 0x18, ...Array(9).fill(0xff), 1])))]), code: "INTERNAL", message: /begins at byte -1/ },
  { name: "a body from a byte that was not asked for", answer: (s) => send(s, [frame(message(Buffer.from([0x32, 7, 0x12, ...ok, 0x18, 2]))), frame(message(chunk(2, "ab"))), frame(message(ended(4)))]), code: "INTERNAL", message: /begins at byte 2/ },
  { name: "a response without a status", answer: (s) => send(s, [frame(message(Buffer.from([0x32, 0])))]), code: "INTERNAL", message: /a response has no status/ },
  { name: "an outcome without a kind", answer: (s) => send(s, [frame(message(Buffer.from([0x52, 5, 0x1a, ...ok])))]), code: "INTERNAL", message: /unknown kind/ },
  { name: "an outcome of an unknown kind", answer: (s) => send(s, [frame(message(Buffer.from([0x52, 7, 0x08, 99, 0x1a, ...ok])))]), code: "INTERNAL", message: /unknown kind/ },
  { name: "a success without a response", answer: (s) => send(s, [frame(message(Buffer.from([0x52, 2, 0x08, 1])))]), code: "INTERNAL", message: /no response with a status/ },
  { name: "a failure without an error", answer: (s) => send(s, [frame(message(Buffer.from([0x52, 2, 0x08, 4])))]), code: "INTERNAL", message: /a failure without an error/ },
  { name: "a success with an error", answer: (s) => send(s, [frame(message(Buffer.from([0x52, 9, 0x08, 1, 0x1a, ...ok, 0x22, 0])))]), code: "INTERNAL", message: /has an error/ },
  { name: "a gap in the body", answer: (s) => send(s, [frame(message(started)), frame(message(chunk(0, "ab"))), frame(message(chunk(3, "cd"))), frame(message(success))]), code: "INTERNAL", message: /continues at byte 3, want 2/ },
  { name: "no trailers", answer: (s) => { s.respond(head); s.end(); }, code: "INTERNAL", message: /without a status/ },
  { name: "an answer of HTTP", answer: (s) => { s.respond({ ":status": 200, "content-type": "text/html" }); s.end("<p>"); }, code: "UNKNOWN", message: /does not speak gRPC: HTTP status 200, Content-Type text\/html/ },
  { name: "404 of a proxy", answer: (s) => s.respond({ ":status": 404 }, { endStream: true }), code: "UNIMPLEMENTED", sent: false },
  { name: "502 of a proxy", answer: (s) => s.respond({ ":status": 502 }, { endStream: true }), code: "UNAVAILABLE", message: /a proxy in front of fetchd answered with HTTP status 502/, sent: true, calls: 1 },
  { name: "a status without a message", answer: (s) => s.respond({ ...head, "grpc-status": "13" }, { endStream: true }), code: "INTERNAL" },
  { name: "a message in percent encoding", answer: (s) => s.respond({ ...head, "grpc-status": "3", "grpc-message": "caf%C3%A9 100%25 %zz %" }, { endStream: true }), code: "INVALID_ARGUMENT", message: /: café 100% %zz %$/ },
  { name: "a status that is not a number", answer: (s) => s.respond({ ...head, "grpc-status": "many" }, { endStream: true }), code: "UNKNOWN" },
  { name: "an unknown status", answer: (s) => s.respond({ ...head, "grpc-status": "99" }, { endStream: true }), code: "UNKNOWN" },
  { name: "details that are not protobuf", answer: (s) => s.respond({ ...head, "grpc-status": "3", "grpc-status-details-bin": "////////" }, { endStream: true }), code: "INVALID_ARGUMENT" },
  { name: "a stream that is reset", answer: (s) => s.close(2), code: "UNAVAILABLE", sent: true, calls: 1 },
  { name: "the connection breaks in the answer", answer: (s) => { s.respond(head); s.write(frame(message(started))); setImmediate(() => s.session?.destroy()); }, code: "UNAVAILABLE", sent: true, calls: 1 },
  { name: "a refused stream is sent again", answer: (s, n) => (n < 3 ? s.close(7) : send(s, [frame(message(success))])), body: "x", calls: 3 },
  { name: "refused streams end", answer: (s) => s.close(7), code: "UNAVAILABLE", sent: false, calls: 4 },
  { name: "RESOURCE_EXHAUSTED with a pushback", answer: (s, n) => (n < 3 ? s.respond({ ...head, "grpc-status": "8", "grpc-retry-pushback-ms": "1" }, { endStream: true }) : send(s, [frame(message(success))])), body: "x", calls: 3 },
  { name: "a pushback that forbids retries", answer: (s) => s.respond({ ...head, "grpc-status": "8", "grpc-retry-pushback-ms": "-1" }, { endStream: true }), code: "RESOURCE_EXHAUSTED", sent: false, calls: 1 },
  { name: "a quota, more often than others are tried", answer: (s, n) => (n < 8 ? refuse(s, "8", info("QUOTA"), retry(0, 1)) : send(s, [frame(message(success))])), body: "x", calls: 8 },
  { name: "a quota without a wait", answer: (s) => refuse(s, "8", info("QUOTA")), code: "RESOURCE_EXHAUSTED", sent: false, calls: 4 },
  { name: "another refusal with a wait", answer: (s) => refuse(s, "8", info("MEMORY"), retry(0, 1)), code: "RESOURCE_EXHAUSTED", sent: false, calls: 4 },
  { name: "a denial by a policy", answer: (s) => refuse(s, "7", info("POLICY"), any("BadRequest", field(1, field(1, "method"), field(2, "no")))), code: "PERMISSION_DENIED", sent: false, calls: 1 },
  { name: "RESOURCE_EXHAUSTED after an event", answer: (s) => send(s, [frame(message(started))], { "grpc-status": "8", "grpc-retry-pushback-ms": "1" }), code: "RESOURCE_EXHAUSTED", sent: true, calls: 1 },
  { name: "a fetch that a service returns as it shuts down is sent again", answer: (s, n) => send(s, [frame(message(n < 3 ? shutdown(0) : success))]), body: "x", calls: 3 },
  { name: "a fetch that is returned each time", answer: (s) => send(s, [frame(message(shutdown(0)))]), error: "shutdown", calls: 3 },
  { name: "a fetch that was made and interrupted by a shutdown", answer: (s) => send(s, [frame(message(shutdown(1)))]), error: "shutdown", calls: 1 },
  { name: "UNAVAILABLE is not repeated", answer: (s) => s.respond({ ...head, "grpc-status": "14" }, { endStream: true }), code: "UNAVAILABLE", sent: true, calls: 1 },
  { name: "the connection breaks", answer: (s) => s.session.destroy(), code: "UNAVAILABLE", sent: true, calls: 1 },
];

describe("Fetch", () => {
  for (const row of rows) {
    test(row.name, async () => {
      let calls = 0;
      const client = new Client(await grpc((stream, n, headers) => {
        assert.equal(headers[":path"], "/fetchd.v1.FetchService/Fetch");
        calls = n;
        return row.answer(stream, n);
      }));
      const fetched = client.fetch("http://a.example/").then((r) => r.text());
      if (row.body !== undefined) assert.equal(await fetched, row.body);
      else {
        const error = await failure(fetched);
        assert.ok(error instanceof (row.error ? FetchError : ServiceError), error.stack);
        assert.equal(error.code ?? error.errorClass, row.code ?? row.error);
        if (row.message) assert.match(error.message, row.message);
        if (row.sent !== undefined) assert.equal(error.sent, row.sent);
      }
      if (row.calls) assert.equal(calls, row.calls);
      await client.close();
    });
  }
});

/** clientOf returns a client that is closed at the end of a test, also if the test fails. */
function clientOf(t, url, options) {
  const client = new Client(url, options);
  t.after(() => client.close());
  return client;
}

/** soon fails instead of hanging. */
const soon = { timeout: 20_000 };

test("a call that a proxy answers is closed, also if the proxy leaves the body open", soon, async (t) => {
  for (const status of [404, 502, 503, 504]) {
    let closed;
    const client = clientOf(t, await grpc((s) => {
      closed = once(s, "close");
      s.respond({ ":status": status });
      s.write("<p>");
    }));
    await failure(client.fetch("http://a.example/"));
    await closed;
  }
});

test("Explain is repeated after UNAVAILABLE, because it fetches nothing", async () => {
  const client = new Client(await grpc((s, n) => (n < 3 ? s.respond({ ...head, "grpc-status": "14" }, { endStream: true }) : send(s, [frame(Buffer.from([0x08, 1]))]))));
  assert.equal((await client.explain({ error_classes: ["connect_refused"] })).kind, "success");
  await client.close();
});

test("events of one message come in order and without a wait between them", soon, async (t) => {
  const pieces = (from) => frame(message(...Array.from({ length: 30 }, (_, i) => chunk(from + i, "a"))));
  const client = clientOf(t, await grpc((s) => {
    s.respond(head);
    s.write(Buffer.concat([frame(message(started)), pieces(0), pieces(30)])); // more than the client reads ahead
    setTimeout(() => s.write(pieces(60)), 50);
  }));
  const events = client.events("http://a.example/");
  await events.next();
  let waited = false;
  for (let i = 0; i < 90; i++) {
    if (i === 0) setImmediate(() => (waited = true));
    assert.equal((await events.next()).value.body_chunk.offset_bytes, i);
    if (i === 59) assert.equal(waited, false);
  }
  await events.return();
});

test("deadline and metadata are sent", async () => {
  let seen;
  const client = new Client(await grpc((s, _, headers) => { seen = headers; send(s, [frame(message(success))]); }), { metadata: { "x-team": "a" } });
  await client.fetch("http://a.example/", { deadline: 5 });
  assert.equal(seen["x-team"], "a");
  assert.ok(Number(seen["grpc-timeout"].slice(0, -1)) > 1000 && seen["grpc-timeout"].endsWith("m"));
  await client.close();
});

describe("metadata that is refused", () => {
  for (const [name, message] of [
    ["content-type", /^metadata "content-type": the client sets this header itself$/],
    ["te", /^metadata "te": the client sets this header itself$/],
    ["grpc-timeout", /^metadata "grpc-timeout": the client sets this header itself: use the option deadline of fetch$/],
    ["grpc-encoding", /the client sets this header itself$/],
    ["transfer-encoding", /the client sets this header itself$/],
    ["host", /the client sets this header itself$/],
    [":path", /^metadata ":path": the name is not in lower case, or the value is not ASCII$/],
    ["X-Team", /^metadata "X-Team": the name is not in lower case/],
  ]) {
    test(name, () => assert.throws(() => new Client("127.0.0.1:1", { metadata: { [name]: "1" } }), { name: "TypeError", message }));
  }
});

for (const [name, behave] of [["closes", (s) => s.destroy()], ["speaks another protocol", (s) => s.end("220 mail.example ESMTP\r\n")], ["says HTTP/1.1", (s) => s.end("HTTP/1.1 400 Bad Request\r\n\r\n")]]) {
  test(`a server that ${name}`, async () => {
    const client = new Client(await listen(createTcp((s) => { s.on("error", () => {}); behave(s); })));
    const error = await failure(client.fetch("http://a.example/"));
    assert.equal(error.code, "UNAVAILABLE");
    assert.equal(error.sent, false);
    await client.close();
  });
}

test("FetchMany: answers for tags that were not sent, and an end without outcomes", async () => {
  const unknown = Buffer.from([0x0a, 3, 0x0a, 1, 0x7a]);
  const client = new Client(await grpc((s) => send(s, [frame(unknown)])), { fetchd: { body_policy: { inline: {} } } });
  const error = await failure(client.fetch("http://a.example/"));
  assert.equal(error.code, "INTERNAL");
  assert.equal(error.sent, true);
  await client.close();
});

describe("addresses of services", () => {
  const forms = /give HOST:PORT, such as 127\.0\.0\.1:8080, or http:\/\/HOST:PORT, https:\/\/HOST:PORT or dns:\/\/\/HOST:PORT$/;
  const url = (address, tls = false) => addressOf(address, tls).href;
  for (const [address, plaintext, tls = plaintext] of [
    ["127.0.0.1:8080", "http://127.0.0.1:8080/", "https://127.0.0.1:8080/"],
    ["fetchd.example:8080", "http://fetchd.example:8080/", "https://fetchd.example:8080/"],
    ["[::1]:8080", "http://[::1]:8080/", "https://[::1]:8080/"],
    ["dns:///fetchd.example:8080", "http://fetchd.example:8080/", "https://fetchd.example:8080/"],
    ["DNS:///[::1]:8080", "http://[::1]:8080/", "https://[::1]:8080/"],
    ["http://fetchd.example:8080", "http://fetchd.example:8080/"],
    ["https://fetchd.example:8080/", "https://fetchd.example:8080/"],
    ["HTTP://fetchd.example", "http://fetchd.example/"],
    [new URL("https://[::1]"), "https://[::1]/"],
  ]) {
    test(`${address} is one`, () => assert.deepEqual([url(address), url(address, true)], [plaintext, tls]));
  }
  for (const [address, fault] of [
    ["", "is empty"],
    ["fetchd.example", "has no port"],
    ["fetchd.example:", "has no port"],
    ["dns:///fetchd.example", "has no port"],
    ["[::1]", "has no port"],
    [undefined, "has no port"],
    ["::1", "is an IPv6 address without brackets"],
    ["dns:///::1:8080", "is an IPv6 address without brackets"],
    ["ftp://fetchd.example:8080", "starts with ftp://"],
    ["GRPC://fetchd.example:8080", "starts with grpc://"],
    ["unix:///run/fetchd.sock", "starts with unix:///"],
    ["dns://1.1.1.1/fetchd.example:8080", "starts with dns://"],
    ["http:///fetchd.example:8080", "starts with http:///"],
    ["unix:/run/fetchd.sock", "has a path, a query or a fragment"],
    ["dns:fetchd.example:8080", "is not valid"],
    ["http://fetchd.example:8080/v1/fetch", "has a path, a query or a fragment"],
    ["http://fetchd.example:8080?a", "has a path, a query or a fragment"],
    ["fetchd.example:8080/v1/fetch", "has a path, a query or a fragment"],
    ["dns:///fetchd.example:8080/#a", "has a path, a query or a fragment"],
    ["http://user:secret@fetchd.example:8080", "has a user name or a password"],
    ["user:secret@fetchd.example:8080", "has a user name or a password"],
    ["http://fetchd.example:80800", "is not valid"],
    ["fetchd.example:http", "is not valid"],
    ["fetchd example:8080", "is not valid"],
    ["http://", "is not valid"],
    ["constructor://a:1", "starts with constructor://"],
    ["127.0.0.1:8080, 127.0.0.2:8080", "is not valid"],
  ]) {
    test(`${address} ${fault}`, () => {
      assert.throws(() => new Client(address), (e) => e instanceof TypeError && e.message.startsWith(`the address of the service ${fault}: give `) && !e.message.includes("secret") && (/brackets|password/.test(fault) || forms.test(e.message)));
    });
  }
  test("none", () => assert.throws(() => new Client([]), { name: "TypeError", message: "there is no address of a service" }));
});

test("frames are found whatever the pieces are", () => {
  const messages = [0, 1, 5, 300, 70_000].map((n) => Buffer.alloc(n, n % 251));
  const bytes = Buffer.concat(messages.map((m) => frame(m)));
  for (const size of [1, 2, 3, 4, 5, 6, 7, 1000, 69_999, bytes.length]) {
    const framer = new Framer();
    const found = [];
    for (let at = 0; at < bytes.length; at += size) framer.push(bytes.subarray(at, at + size), (m) => found.push(Buffer.from(m)));
    assert.deepEqual(found, messages, `pieces of ${size}`);
    assert.equal(framer.complete, true);
    framer.push(Buffer.from([0]), () => assert.fail());
    assert.equal(framer.complete, false);
  }
});

const never = () => new Promise(() => {});
const response = (tag, event) => Buffer.from([0x0a, 5 + event.length, 0x0a, 1, tag.charCodeAt(0), 0x12, event.length, ...event]);

test("FetchMany: a task whose events break the contract fails alone", soon, async (t) => {
  let cancel = () => {};
  const cancelled = new Promise((resolve) => (cancel = resolve));
  const client = clientOf(t, await grpc((s) => {
    s.respond(head, { waitForTrailers: true });
    s.once("data", () => s.write(frame(Buffer.concat([response("1", chunk(0, "ab")), response("1", chunk(9, "ab")), response("2", success)]))));
    s.on("data", (bytes) => { if (bytes.includes(Buffer.from([0x12, 1, 0x31]))) cancel(); });
  }));
  const results = [];
  for await (const r of client.fetchMany(["http://a.example/", "http://b.example/"])) results.push(r);
  const [bad, good] = results.sort((a, b) => (a.request < b.request ? -1 : 1));
  assert.match(bad.error.message, /INTERNAL: .*before its head/);
  assert.equal(bad.error.sent, true);
  assert.equal(good.text(), "x");
  await cancelled;
});

test("FetchMany: a body without an end fails alone, and is not kept", soon, async (t) => {
  const client = clientOf(t, await grpc((s) => {
    s.respond(head, { waitForTrailers: true });
    s.once("data", () => s.write(frame(Buffer.concat([response("1", started), response("1", chunk(0, "abc")), response("2", success)]))));
  }));
  const results = [];
  const requests = [{ url: "http://a.example/", body_policy: { max_size_bytes: 2 } }, "http://b.example/"];
  for await (const r of client.fetchMany(requests)) results.push(r);
  const bad = results.find((r) => r.request === requests[0]);
  assert.match(bad.error.message, /INTERNAL: .*more than 2 bytes, the limit of the request/);
  assert.equal(results.find((r) => r !== bad).text(), "x");
});

test("an outcome of a kind that this version does not know is no response", soon, async (t) => {
  const later = Buffer.from([0x52, 2, 0x08, 99]);
  const client = clientOf(t, await grpc((s, n, headers) => {
    if (headers[":path"].endsWith("/Fetch")) return send(s, [frame(message(later))]);
    s.respond(head);
    s.write(frame(response("1", later)));
  }));
  assert.match((await failure(client.fetch("http://a.example/"))).message, /an outcome of an unknown kind/);
  for await (const r of client.fetchMany(["http://a.example/"])) {
    assert.equal(r.ok, false);
    assert.match(r.error?.message, /an outcome of an unknown kind/);
  }
});

describe("a function token", () => {
  const rows = [
    { name: "throws", token: () => { throw new Error("no key"); }, code: "UNAUTHENTICATED" },
    { name: "rejects", token: () => Promise.reject(new Error("no key")), code: "UNAUTHENTICATED" },
    { name: "returns nothing", token: () => undefined, code: "UNAUTHENTICATED" },
    { name: "returns an empty token", token: () => "", code: "UNAUTHENTICATED" },
    { name: "never ends", token: never, code: "CANCELLED", close: true },
  ];
  const uses = {
    fetch: (client) => client.fetch("http://a.example/"),
    "fetch, inline": (client) => client.fetch("http://a.example/", { fetchd: { body_policy: { inline: {} } } }),
    explain: (client) => client.explain({ error_classes: ["connect_refused"] }, { signal: new AbortController().signal }),
    events: (client) => client.events("http://a.example/").next(),
    fetchMany: (client) => client.fetchMany(["http://a.example/"]).next(),
  };
  for (const row of rows) {
    for (const [use, run] of Object.entries(uses)) {
      test(`${row.name}: ${use}`, soon, async (t) => {
        let asked = () => {};
        const called = new Promise((resolve) => (asked = resolve));
        const client = clientOf(t, await grpc((s) => send(s, [frame(message(success))])), { token: () => (asked(), row.token()) });
        // The second call finds a connection that is ready.
        for (let i = 0; i < (row.close ? 1 : 2); i++) {
          const failed = failure(run(client));
          if (row.close) await called.then(() => client.close());
          const error = await failed;
          assert.equal(error.code, row.code, error.stack);
          assert.equal(error.sent, false);
        }
      });
    }
  }
});

describe("a deadline ends a call", () => {
  const rows = [
    { name: "while the token is awaited", token: never, sent: false },
    { name: "while the service is silent", sent: true },
  ];
  for (const { name, token, sent } of rows) {
    test(name, soon, async (t) => {
      const client = clientOf(t, await grpc((s, n) => { if (sent && n === 1) send(s, [frame(message(success))]); }), { token });
      if (sent) await client.fetch("http://a.example/"); // later calls find a connection, whatever time that takes
      for (const run of [() => client.fetch("http://a.example/", { deadline: 0.2 }), () => client.explain({ error_classes: ["connect_refused"] }, { deadline: 0.2 }), () => client.events("http://a.example/", { deadline: 0.2 }).next()]) {
        const error = await failure(run());
        assert.equal(error.message, "DEADLINE_EXCEEDED: the call did not end within its deadline of 0.2 s");
        assert.equal(error.sent, sent);
      }
    });
  }
});

test("a quota is waited for as long as the service asks, but not beyond the deadline", soon, async (t) => {
  const times = [];
  const client = clientOf(t, await grpc((s, n) => {
    times.push(performance.now());
    if (n === 2) send(s, [frame(message(success))]);
    else refuse(s, "8", info("QUOTA"), n === 1 ? retry(1, 200) : retry(30));
  }));
  assert.equal(await (await client.fetch("http://a.example/", { deadline: 20 })).text(), "x");
  assert.ok(times[1] - times[0] >= 1199, `the next call came after ${times[1] - times[0]} ms`);
  const error = await failure(client.fetch("http://a.example/", { deadline: 20 }));
  assert.deepEqual([error.code, error.reason, error.policy, error.retryIn, error.sent, times.length], ["RESOURCE_EXHAUSTED", "QUOTA", "p", 30, false, 3]);
});

test("no task is lost if a service refuses its streams and asks for a wait", soon, async (t) => {
  const times = [];
  const client = clientOf(t, await grpc((s, n) => {
    times.push(performance.now());
    // A task event: tag "0" in field 1, and the event in field 2.
    if (n < 6) return refuse(s, "8", info("TOO_MANY_STREAMS_OF_CALLER"), retry(0, 300));
    s.respond(head, { waitForTrailers: true });
    s.on("wantTrailers", () => s.sendTrailers({ "grpc-status": "0" }));
    s.on("data", (data) => {
      const tag = data.subarray(9, 9 + data[8]); // after the heads of the frame, of the task and of its tag
      s.end(frame(field(1, field(1, tag), field(2, success))));
    });
  }));
  for await (const r of client.fetchMany(["http://a.example/"])) assert.equal(r.text(), "x", String(r.error?.stack));
  assert.equal(times.length, 6);
  assert.ok(times[5] - times[0] >= 5 * 299, `the last stream came after ${times[5] - times[0]} ms`);
});

test("a task that is given up leaves no timer behind", soon, async (t) => {
  let refused = () => {};
  const first = new Promise((resolve) => (refused = resolve));
  const client = clientOf(t, await grpc((s) => { refuse(s, "8", info("TOO_MANY_STREAMS_OF_CALLER"), retry(600)); refused(); }));
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  const given = new AbortController();
  const results = client.fetchMany(["http://a.example/"], { signal: given.signal })[Symbol.asyncIterator]();
  const next = failure(results.next());
  await first;
  while (timers() === before) await new Promise((resolve) => setImmediate(resolve)); // the wait has begun
  given.abort();
  await next;
  assert.equal(timers(), before);
});

test("errors have the policy and its field or entry", soon, async (t) => {
  const denied = any("BadRequest", field(1, field(1, "method"), field(2, "no")));
  const error = field(4, [8, 30, 16, 2], field(12, "p"), field(13, "*.ads.example"));
  const blocked = field(10, [8, 4], error);
  const client = clientOf(t, await grpc((s, n) => (n === 1 ? refuse(s, "7", info("POLICY"), denied) : send(s, [frame(message(blocked))]))));
  const refused = await failure(client.fetch("http://a.example/"));
  assert.deepEqual([refused.code, refused.reason, refused.policy, refused.violations], ["PERMISSION_DENIED", "POLICY", "p", [{ field: "method", description: "no" }]]);
  const failed = await failure(client.fetch("http://a.example/"));
  assert.deepEqual([failed.errorClass, failed.policy, failed.policyRule], ["target_blocked", "p", "*.ads.example"]);
});

test("close ends calls that wait for their next try", soon, async (t) => {
  let refused = () => {};
  const first = new Promise((resolve) => (refused = resolve));
  const client = clientOf(t, await grpc((s) => {
    s.respond({ ...head, "grpc-status": "8", "grpc-retry-pushback-ms": "9999999" }, { endStream: true });
    s.on("close", refused);
  }));
  const failed = failure(client.fetch("http://a.example/"));
  await first;
  await new Promise((resolve) => setTimeout(resolve, 100));
  await client.close();
  assert.equal((await failed).code, "CANCELLED");
});

test("a service that closes each connection is not connected to without a pause", soon, async (t) => {
  const server = createHttp2();
  let sessions = 0;
  server.on("session", (s) => { sessions++; s.on("error", () => {}); s.on("remoteSettings", () => s.close()); });
  const client = clientOf(t, await listen(server));
  await failure(client.fetch("http://a.example/"));
  await new Promise((resolve) => setTimeout(resolve, 1000));
  assert.ok(sessions < 20, `${sessions} connections within a second`);
});

test("an address that is no longer one of the service gets no calls", soon, async (t) => {
  const real = dns.lookup;
  t.after(() => { dns.lookup = real; syncBuiltinESMExports(); });
  let addresses = ["127.0.0.1", "127.0.0.2"];
  dns.lookup = async () => addresses.map((address) => ({ address, family: 4 }));
  syncBuiltinESMExports();
  const sessions = new Map();
  let calls = 0;
  const server = createHttp2();
  server.on("session", (s) => { s.on("error", () => {}); sessions.set(s.socket.localAddress, s); });
  server.on("stream", (s, headers) => {
    calls++;
    if (headers[":path"].endsWith("/Fetch")) send(s, [frame(message(success))]);
  });
  servers.push(server);
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  const channel = new Channel(`http://replicas.example:${server.address().port}`, {});
  t.after(() => channel.close());
  const call = () => new Promise((end) => channel.call({ method: "Fetch", request: frame(Buffer.alloc(0)), receiver: { message() {}, end } }));
  while (channel.replicas < 2) await call();
  addresses = ["127.0.0.1"];
  sessions.get("127.0.0.1").destroy(); // the client looks the addresses up again
  const gone = once(sessions.get("127.0.0.2"), "close");
  await gone;
  await call();
  assert.equal(channel.replicas, 1);
});

test("a source of fetchMany is ended when the loop is left", soon, async (t) => {
  const client = clientOf(t, await grpc((s) => { s.respond(head); s.write(frame(response("1", success))); }));
  let returned = false;
  const source = { [Symbol.asyncIterator]: () => source, n: 0, next: async () => (source.n++ ? never() : { done: false, value: "http://a.example/" }), return: async () => { returned = true; return { done: true }; } };
  for await (const r of client.fetchMany(source)) { assert.equal(r.text(), "x"); break; }
  assert.equal(returned, true);
});

test("a body that is still read when the signal aborts", soon, async (t) => {
  const client = clientOf(t, "http://127.0.0.1:1");
  let cancelled;
  const body = new ReadableStream({ cancel: (reason) => { cancelled = reason; } });
  const controller = new AbortController();
  const failed = failure(client.fetch("http://a.example/", { method: "POST", body, signal: controller.signal }));
  controller.abort(new Error("enough"));
  assert.equal((await failed).message, "enough");
  assert.equal(cancelled?.message, "enough");
});

test("a body without an end is refused", soon, async (t) => {
  const client = clientOf(t, "http://127.0.0.1:1");
  const body = new ReadableStream({ pull: (c) => c.enqueue(new Uint8Array(65536)) });
  assert.match((await failure(client.fetch("http://a.example/", { method: "POST", body }))).message, /the body has more than 2097152 bytes/);
});

test("a deadline holds for a body in one piece", soon, async (t) => {
  const client = clientOf(t, await grpc(() => {}));
  const error = await failure(client.fetch("http://a.example/", { deadline: 0.2, fetchd: { body_policy: { inline: {} } } }));
  assert.equal(error.code, "DEADLINE_EXCEEDED");
});

describe("a response", () => {
  const responseWith = (status, body, requested = "http://a.example/") =>
    responseOf({ response: { status_code: status, headers: [] }, url: "http://a.example/", requested, outcome: never }, body);
  test("without a body can be read again", async () => {
    const r = responseWith(204, Buffer.alloc(0));
    assert.equal(await r.text(), "");
    assert.equal(await r.text(), "");
    assert.equal(r.bodyUsed, false);
    assert.equal(r.body, null);
  });
  for (const [requested, redirected] of [["http://a.example", false], ["HTTP://A.example:80/#b", false], ["http://a.example/b", true], ["http://b.example/", true]]) {
    test(`redirected is ${redirected} for ${requested}`, () => assert.equal(responseWith(200, undefined, requested).redirected, redirected));
  }
  test("can be the init of another one", async () => {
    const r = responseWith(201, Buffer.from("ab"));
    const copy = new Response(r.body, r);
    assert.deepEqual([copy.status, await copy.text(), r.bodyUsed], [201, "ab", true]);
  });
  test("has a body that is the same object each time", async () => {
    const r = responseWith(200, Buffer.from("ab"));
    await r.text();
    assert.equal(r.body, r.body);
  });
});

test("many fetches with one signal give no warning, and leave no listener", soon, async (t) => {
  const warnings = [];
  const warn = (w) => warnings.push(w.message);
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  const client = clientOf(t, await grpc((s) => send(s, [frame(message(success))])));
  const { signal } = new AbortController();
  await Promise.all(Array.from({ length: 50 }, () => client.fetch("http://a.example/", { signal })));
  await new Promise(setImmediate);
  assert.deepEqual(warnings, []);
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

test("a service that allows one stream at a time gets one after the other", soon, async (t) => {
  const server = createHttp2({ settings: { maxConcurrentStreams: 1 } });
  let open = 0;
  let most = 0;
  server.on("stream", (s) => {
    most = Math.max(most, ++open);
    s.on("close", () => open--);
    s.on("error", () => {});
    setTimeout(() => s.destroyed || send(s, [frame(message(success))]), 5);
  });
  const client = clientOf(t, await listen(server));
  const controllers = Array.from({ length: 20 }, () => new AbortController());
  const fetched = controllers.map(({ signal }) => client.fetch("http://a.example/", { signal }).then((r) => r.text(), (e) => e.name));
  controllers[7].abort();
  await fetched[0];
  for (const i of [8, 19]) controllers[i].abort();
  const got = await Promise.all(fetched);
  assert.deepEqual(got.flatMap((text, i) => (text === "x" ? [] : [i])), [7, 8, 19]);
  assert.equal(most, 1);
});
