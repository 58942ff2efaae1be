// A service whose answers lack one field or event. Every call ends, and none takes a part of a body for all of it,
// or a failure for a success.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http2";
import { after, test } from "node:test";

import { Client, ServiceError } from "fetchd";

import { framed } from "../dist/call.js";
import { Channel } from "../dist/channel.js";
import { encode } from "../dist/request.js";
import { key, Origin, service as startService } from "./rig.mjs";

/** fieldsOf returns the fields of a message with where they are, or undefined if the bytes are no message. */
function fieldsOf(bytes) {
  const fields = [];
  let at = 0;
  const varint = () => {
    for (let value = 0, shift = 1; at < bytes.length; shift *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * shift;
      if (byte < 128) return value;
    }
    return NaN;
  };
  while (at < bytes.length) {
    const start = at;
    const tag = varint();
    const value = tag % 8 === 2 ? varint() : 0;
    const inner = at;
    if (tag % 8 === 0) varint();
    else if (tag % 8 === 2) at += value;
    else return undefined;
    if (!(tag >= 8) || !(at <= bytes.length)) return undefined;
    fields.push({ number: Math.floor(tag / 8), start, inner, end: at, nested: tag % 8 === 2 });
  }
  return fields;
}

const varintOf = (n) => (n < 128 ? [n] : [(n % 128) | 128, ...varintOf(Math.floor(n / 128))]);
const fieldOf = (number, bytes) => Buffer.concat([Buffer.from([...varintOf(number * 8 + 2), ...varintOf(bytes.length)]), bytes]);

/** without yields copies of a message that lack one field, also of messages within it. */
function* without(bytes) {
  for (const f of fieldsOf(bytes) ?? []) {
    const [before, after] = [bytes.subarray(0, f.start), bytes.subarray(f.end)];
    yield Buffer.concat([before, after]);
    if (f.nested) for (const inner of without(bytes.subarray(f.inner, f.end))) yield Buffer.concat([before, fieldOf(f.number, inner), after]);
  }
}

/** eventsOf returns the events of messages. */
const eventsOf = (messages) => messages.flatMap((m) => fieldsOf(m).map((f) => m.subarray(f.inner, f.end)));

/** wrong yields sequences of events that lack a field or an event, or have one twice. */
function* wrong(events) {
  for (const [i, event] of events.entries()) {
    const [before, after] = [events.slice(0, i), events.slice(i + 1)];
    yield [...before, ...after];
    yield before;
    yield [...before, event, event, ...after];
    for (const copy of without(event)) yield [...before, copy, ...after];
  }
}

/** record returns the events of a fetch as they came. */
function record(service, url) {
  return new Promise((resolve, reject) => {
    const messages = [];
    const channel = new Channel(service.url, {});
    channel.call({ method: "Fetch", request: framed(encode({ url, event_level: "all", body_policy: { stream: {} } })), receiver: {
      message: (bytes) => messages.push(Buffer.from(bytes)),
      end: (error) => (void channel.close(), error ? reject(error) : resolve(eventsOf(messages))),
    } });
  });
}

const ways = {
  fetch: async (client, url) => { const r = await client.fetch(url); return [await r.text(), r.ok]; },
  fetchMany: async (client, url) => { for await (const r of client.fetchMany([url])) { if (r.error) throw r.error; return [r.text(), r.ok]; } },
  events: async (client, url) => {
    let text = "";
    let last;
    for await (const e of client.events(url)) { last = e; if (e.body_chunk) text = text.slice(0, e.body_chunk.offset_bytes) + Buffer.from(e.body_chunk.data); }
    return [text + Buffer.from(last.outcome.inline_body ?? []), last.outcome.kind === "success"];
  },
};

test("answers that lack a field or an event", async () => {
  const origin = await Origin.start();
  const service = await startService(origin);
  const size = 2000;
  const sequences = [...wrong(await record(service, origin.url(`/s/${key()}/503/200:size=${size}`))), ...wrong(await record(service, origin.url(`/s/${key()}/404:body=gone`)))];
  const server = createServer();
  after(() => server.close());
  server.on("session", (session) => after(() => session.destroy()));
  server.on("stream", (stream, headers) => {
    stream.on("error", () => {});
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    const sent = [];
    stream.on("data", (data) => {
      sent.push(data);
      const url = /http:\/\/script\.test\/(\d+)/.exec(Buffer.concat(sent).toString("latin1"));
      if (!url || stream.writableEnded) return;
      const tag = /\n.([0-9]+)/s.exec(Buffer.concat(sent).subarray(5).toString("latin1"));
      const many = headers[":path"].endsWith("/FetchMany");
      const answers = sequences[url[1]].map((e) => framed(fieldOf(1, many ? Buffer.concat([fieldOf(1, Buffer.from(tag[1])), fieldOf(2, e)]) : e)));
      stream.end(Buffer.concat(answers));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = new Client(`http://127.0.0.1:${server.address().port}`);
  let successes = 0;
  for (const n of sequences.keys()) {
    for (const [name, way] of Object.entries(ways)) {
      try {
        const [text, ok] = await way(client, `http://script.test/${n}`);
        if (!ok) continue;
        successes++;
        assert.equal(text.length, size, `${name}: a success with a part of the body, answer ${n}`);
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
        assert.ok(error instanceof ServiceError || error.constructor.name === "FetchError", `${name}, answer ${n}: ${error.stack}`);
      }
    }
  }
  assert.ok(successes > 100, `${successes} successes of ${sequences.length} answers`);
  await client.close();
});
