// Services that break the rules of gRPC or of the contract.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttp2 } from "node:http2";
import { createServer as createTcp } from "node:net";
import { after, describe, test } from "node:test";

import { Client, FetchError, ServiceError } from "fetchd";

import { Framer } from "../dist/call.js";
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

// Events in protobuf: an outcome (field 10) of kind SUCCESS with a body "x", and others.
const success = Buffer.from([0x52, 5, 0x08, 1, 0x42, 1, 0x78]);
const started = Buffer.from([0x32, 0]);
const chunk = (offset, text) => Buffer.from([0x3a, 4 + text.length, 0x10, offset, 0x1a, text.length, ...Buffer.from(text)]);

const shutdown = (exchanges) => Buffer.from([0x52, 8, 0x08, 4, 0x22, 2, 0x08, 34, 0x30, exchanges]);

const rows = [
  { name: "an answer that is right", answer: (s) => send(s, [frame(success)]), body: "x" },
  { name: "an answer in pieces of one byte", body: "x", answer: async (s) => {
    s.respond(head, { waitForTrailers: true });
    s.on("wantTrailers", () => s.sendTrailers({ "grpc-status": "0" }));
    for (const byte of frame(success)) {
      s.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    s.end();
  } },
  { name: "a chunk and its head", answer: (s) => send(s, [frame(started), frame(chunk(0, "ab")), frame(success)]), body: "ab" },
  { name: "a message over the limit", answer: (s) => { s.respond(head); s.write(frame(Buffer.alloc(10), (4 << 20) + 1)); }, code: "RESOURCE_EXHAUSTED", message: /4194305 bytes, the limit is 4194304/ },
  { name: "a compressed message", answer: (s) => { const f = frame(success); f[0] = 1; send(s, [f]); }, code: "INTERNAL", message: /compressed/ },
  { name: "a truncated frame", answer: (s) => send(s, [frame(success).subarray(0, 9)]), code: "INTERNAL", message: /inside a message/ },
  { name: "half a head of a frame", answer: (s) => send(s, [Buffer.from([0, 0])]), code: "INTERNAL", message: /inside a message/ },
  { name: "bytes that are not protobuf", answer: (s) => send(s, [frame(Buffer.from([0x52, 0x7f, 1]))]), code: "INTERNAL", message: /not protobuf/ },
  { name: "a field that is longer than its message", answer: (s) => send(s, [frame(Buffer.from([0x52, 3, 0x42, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]))]), code: "INTERNAL", message: /not protobuf/ },
  { name: "a varint without an end", answer: (s) => send(s, [frame(Buffer.alloc(20, 0xff))]), code: "INTERNAL", message: /not protobuf/ },
  { name: "no outcome", answer: (s) => send(s, [frame(started)]), code: "INTERNAL", message: /without an outcome/ },
  { name: "a body before its head", answer: (s) => send(s, [frame(chunk(0, "ab"))]), code: "INTERNAL", message: /before its head/ },
  { name: "a gap in the body", answer: (s) => send(s, [frame(started), frame(chunk(0, "ab")), frame(chunk(3, "cd")), frame(success)]), code: "INTERNAL", message: /continues at byte 3, want 2/ },
  { name: "no trailers", answer: (s) => { s.respond(head); s.end(); }, code: "INTERNAL", message: /without a status/ },
  { name: "an answer of HTTP", answer: (s) => { s.respond({ ":status": 200, "content-type": "text/html" }); s.end("<p>"); }, code: "UNKNOWN", message: /does not speak gRPC: HTTP status 200, Content-Type text\/html/ },
  { name: "404 of a proxy", answer: (s) => s.respond({ ":status": 404 }, { endStream: true }), code: "UNIMPLEMENTED" },
  { name: "502 of a proxy", answer: (s) => s.respond({ ":status": 502 }, { endStream: true }), code: "UNAVAILABLE", calls: 1 },
  { name: "a status without a message", answer: (s) => s.respond({ ...head, "grpc-status": "13" }, { endStream: true }), code: "INTERNAL" },
  { name: "a message in percent encoding", answer: (s) => s.respond({ ...head, "grpc-status": "3", "grpc-message": "caf%C3%A9 100%25 %zz %" }, { endStream: true }), code: "INVALID_ARGUMENT", message: /: café 100% %zz %$/ },
  { name: "a status that is not a number", answer: (s) => s.respond({ ...head, "grpc-status": "many" }, { endStream: true }), code: "UNKNOWN" },
  { name: "an unknown status", answer: (s) => s.respond({ ...head, "grpc-status": "99" }, { endStream: true }), code: "UNKNOWN" },
  { name: "details that are not protobuf", answer: (s) => s.respond({ ...head, "grpc-status": "3", "grpc-status-details-bin": "////////" }, { endStream: true }), code: "INVALID_ARGUMENT" },
  { name: "a stream that is reset", answer: (s) => s.close(2), code: "UNAVAILABLE", sent: true, calls: 1 },
  { name: "the connection breaks in the answer", answer: (s) => { s.respond(head); s.write(frame(started)); setImmediate(() => s.session?.destroy()); }, code: "UNAVAILABLE", sent: true, calls: 1 },
  { name: "a refused stream is sent again", answer: (s, n) => (n < 3 ? s.close(7) : send(s, [frame(success)])), body: "x", calls: 3 },
  { name: "refused streams end", answer: (s) => s.close(7), code: "UNAVAILABLE", sent: false, calls: 4 },
  { name: "RESOURCE_EXHAUSTED with a pushback", answer: (s, n) => (n < 3 ? s.respond({ ...head, "grpc-status": "8", "grpc-retry-pushback-ms": "1" }, { endStream: true }) : send(s, [frame(success)])), body: "x", calls: 3 },
  { name: "a pushback that forbids retries", answer: (s) => s.respond({ ...head, "grpc-status": "8", "grpc-retry-pushback-ms": "-1" }, { endStream: true }), code: "RESOURCE_EXHAUSTED", sent: false, calls: 1 },
  { name: "RESOURCE_EXHAUSTED after an event", answer: (s) => send(s, [frame(started)], { "grpc-status": "8", "grpc-retry-pushback-ms": "1" }), code: "RESOURCE_EXHAUSTED", sent: true, calls: 1 },
  { name: "a fetch that a service returns as it shuts down is sent again", answer: (s, n) => send(s, [frame(n < 3 ? shutdown(0) : success)]), body: "x", calls: 3 },
  { name: "a fetch that is returned each time", answer: (s) => send(s, [frame(shutdown(0))]), error: "shutdown", calls: 3 },
  { name: "a fetch that was made and interrupted by a shutdown", answer: (s) => send(s, [frame(shutdown(1))]), error: "shutdown", calls: 1 },
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

test("Explain is repeated after UNAVAILABLE, because it fetches nothing", async () => {
  const client = new Client(await grpc((s, n) => (n < 3 ? s.respond({ ...head, "grpc-status": "14" }, { endStream: true }) : send(s, [frame(Buffer.from([0x08, 1]))]))));
  assert.equal((await client.explain({ faults: ["connect_refused"] })).kind, "success");
  await client.close();
});

test("deadline and metadata are sent", async () => {
  let seen;
  const client = new Client(await grpc((s, _, headers) => { seen = headers; send(s, [frame(success)]); }), { metadata: { "x-team": "a" } });
  await client.fetch("http://a.example/", { deadline: 5 });
  assert.equal(seen["x-team"], "a");
  assert.ok(Number(seen["grpc-timeout"].slice(0, -1)) > 1000 && seen["grpc-timeout"].endsWith("m"));
  await client.close();
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
  const client = new Client(await grpc((s) => send(s, [frame(unknown)])), { fetchd: { body_policy: { delivery: "inline" } } });
  const error = await failure(client.fetch("http://a.example/"));
  assert.equal(error.code, "INTERNAL");
  assert.equal(error.sent, true);
  await client.close();
});

test("URLs of services", () => {
  for (const [url, message] of [["127.0.0.1:8080", /Invalid URL|scheme/], ["dns:///a", /scheme dns:/], ["http://a:secret@b/", /give a token/], [[], /no URL/]]) {
    assert.throws(() => new Client(url), (e) => e instanceof TypeError && message.test(e.message) && !e.message.includes("secret"));
  }
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
