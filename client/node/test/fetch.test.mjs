import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { gunzipSync } from "node:zlib";

import { Client, createFetch, FetchError, outcomeOf, ServiceError } from "fetchd";

import { failure, key, Origin, service } from "./rig.mjs";

let origin, fetchd, client;

before(async () => {
  origin = await Origin.start();
  fetchd = await service(origin);
  client = new Client(fetchd.url);
});
after(() => client.close());

describe("store", () => {
  test("the body is in the store", async () => {
    const response = await client.fetch(origin.url(`/s/${key()}/503/200:size=20000000`), { fetchd: { store: "local", key: "a/page" } });
    const { store, key: name, size_bytes, sha256 } = response.stored;
    assert.deepEqual([store, name, size_bytes], ["local", "a/page", 20_000_000]);
    assert.equal(createHash("sha256").update(readFileSync(join(fetchd.bodies, "a/page"))).digest("hex"), sha256);
    assert.deepEqual([response.status, response.body, await response.text()], [200, null, ""]);
    assert.equal((await outcomeOf(response)).stored_object.key, "a/page");
    assert.equal(response.clone().stored.key, "a/page");
  });

  test("events", async () => {
    const names = [];
    for await (const event of client.events({ url: origin.url(`/s/${key()}/200:body=hello`), store: "local", key: "event" })) {
      if (event.body_chunk) names.push("body_chunk");
      if (event.outcome) names.push(event.outcome.stored_object.key);
    }
    assert.deepEqual(names, ["event"]);
    assert.equal(readFileSync(join(fetchd.bodies, "event"), "utf8"), "hello");
  });

  test("nothing is stored", async () => {
    const init = { fetchd: { store: "local", key: "none" } };
    assert.equal((await client.fetch(origin.url(`/s/${key()}/404`), init)).stored, undefined);
    assert.equal((await client.fetch(origin.url(`/s/${key()}/204`), init)).stored, undefined);
    assert.equal((await client.fetch(origin.url(`/s/${key()}/200:body=hello`))).stored, undefined);
    assert.equal(existsSync(join(fetchd.bodies, "none")), false);
  });

  test("what is not valid", async () => {
    const k = key();
    for (const [policies, what] of [
      [{ key: "a" }, /key is given without store/],
      [{ store: 5 }, /body_policy.store.store: 5/],
      [{ store: "local", body_policy: { none: {} } }, /with body_policy.none/],
      [{ store: "local", body_policy: 5 }, /body_policy: a number is not an object/],
      [{ store: "other" }, /body_policy.store.store/],
      [{ store: "local", key: "../a" }, /body_policy.store.key/],
    ]) {
      assert.match(String(await failure(client.fetch(origin.url(`/s/${k}/200`), { fetchd: policies }))), what);
    }
    assert.deepEqual(await origin.seen(k), []);
  });
});

// Each row is fetched in both ways: over Fetch, and inline over FetchMany.
const rows = [
  { name: "a body", steps: "200:body=hello", status: 200, body: "hello", requests: 1 },
  { name: "a retry", steps: "503/200:body=hello", status: 200, body: "hello", requests: 2 },
  { name: "an empty body", steps: "200:size=0", status: 200, body: "", requests: 1 },
  { name: "no content", steps: "204", status: 204, body: "", requests: 1 },
  { name: "a missing page", steps: "404:body=gone", status: 404, body: "gone", requests: 1 },
  { name: "a status that stays", steps: "503:body=busy", status: 503, body: "busy", requests: 3 },
  { name: "a rate limit", steps: "429:retry-after=100", status: 429, requests: 1 },
  { name: "a reset, then a body", steps: "reset/200:body=hello", status: 200, body: "hello", requests: 2 },
  { name: "a status that Response cannot have", steps: "999", status: 999, requests: 1, error: "protocol" },
  { name: "resets", steps: "reset", error: "connection_reset", retryable: true, requests: 3 },
  { name: "a status line that is not valid", steps: "bad-status-line", error: "protocol", retryable: false, requests: 1 },
  { name: "a short body", steps: "200:size=1000,cut=10", error: "body_interrupted", retryable: true },
  { name: "a redirect loop", path: (k) => `/loop/${k}/302`, error: "redirect_loop", retryable: false },
  { name: "a coding that is not valid", steps: "200:body=x,coding-lie=gzip", error: "undecodable", retryable: false, requests: 1 },
];

test("the text of a page", async () => {
  const response = await client.fetch(origin.url(`/s/${key()}/200:type=text%2Fhtml;charset=iso-8859-1,coding=gzip,body=%3Ctitle%3EA%3C%2Ftitle%3E%3Ch1%3EGr%FC%DFe%3C%2Fh1%3E`), { fetchd: { text_policy: { content: "marked" } } });
  assert.equal(await response.text(), "# Grüße\n");
  assert.deepEqual(["content-type", "content-length", "content-encoding"].map((name) => response.headers.get(name)), ["text/markdown; charset=utf-8", "10", null]);
  assert.equal((await outcomeOf(response)).text_summary.title, "A");
});

test("a long error page", async () => {
  for (const [steps, truncated] of [["404:size=100000", true], ["404:size=100000,chunked", true], ["404:size=100000,coding=gzip", true], ["404:size=1000", false], ["404:size=1000,chunked", false], ["200:size=100000", false]]) {
    const response = await client.fetch(origin.url(`/s/${key()}/${steps}`));
    assert.equal(response.truncated, truncated, steps);
    await response.arrayBuffer();
  }
  assert.equal((await client.fetch(origin.url(`/s/${key()}/404:size=100000`), { method: "HEAD" })).truncated, false);
});

test("a POST that was not sent may be sent again", async () => {
  const error = await failure(client.fetch(origin.url("/", "refused"), { method: "POST" }));
  assert.deepEqual([error.errorClass, error.failureType, error.retryable, error.requestState], ["connect_refused", "transient", true, "not_sent"]);
});

for (const [way, init] of [["Fetch", {}], ["inline", { fetchd: { body_policy: { inline: {} } } }]]) {
  describe(way, () => {
    for (const row of rows) {
      test(row.name, async () => {
        const k = key();
        const url = origin.url(row.path?.(k) ?? `/s/${k}/${row.steps}`);
        const fetched = client.fetch(url, init);
        if (row.error) {
          const error = await failure(fetched.then((r) => r.arrayBuffer()));
          assert.ok(error instanceof FetchError && error instanceof TypeError, String(error));
          assert.equal(error.errorClass, row.error);
          if (row.retryable !== undefined) assert.equal(error.retryable, row.retryable);
          assert.equal(error.requestState, "unknown");
          assert.equal(error.outcome.kind, "failed");
        } else {
          const response = await fetched;
          assert.ok(response instanceof Response);
          assert.equal(response.status, row.status);
          assert.equal(response.ok, row.status < 300);
          assert.equal(response.url, url);
          assert.equal(response.redirected, false);
          if (row.body !== undefined) assert.equal(await response.text(), row.body);
          else await response.arrayBuffer();
          const outcome = await outcomeOf(response);
          assert.equal(outcome.exchange_count, row.requests);
        }
        if (row.requests) assert.equal((await origin.seen(k)).length, row.requests);
      });
    }
  });
}

test("the members of a Response", async () => {
  const url = origin.url(`/s/${key()}/200:body=%7B%22a%22%3A1%7D,type=application%2Fjson,header=X-A=1,header2=X-A=2,set-cookie=a=1,set-cookie2=b=2`);
  const members = {
    text: async (r) => assert.equal(await r.text(), '{"a":1}'),
    json: async (r) => assert.deepEqual(await r.json(), { a: 1 }),
    arrayBuffer: async (r) => assert.equal((await r.arrayBuffer()).byteLength, 7),
    blob: async (r) => assert.equal((await r.blob()).type, "application/json"),
    body: async (r) => {
      assert.ok(r.body instanceof ReadableStream);
      let size = 0;
      for await (const piece of r.body) size += piece.length;
      assert.equal(size, 7);
    },
    clone: async (r) => {
      const copy = r.clone();
      assert.ok(copy instanceof Response);
      assert.equal(await copy.text(), await r.text());
      assert.equal((await outcomeOf(copy)).kind, "success");
    },
  };
  for (const [name, use] of Object.entries(members)) {
    const response = await client.fetch(url);
    assert.equal(response.bodyUsed, false, name);
    assert.equal(response.headers.get("x-a"), "1, 2");
    assert.equal(response.statusText, "OK");
    assert.equal(response.type, "basic");
    if (response.headers.getSetCookie) assert.deepEqual(response.headers.getSetCookie(), ["a=1", "b=2"]);
    await use(response);
    assert.equal(response.bodyUsed, true, name);
    assert.ok((await failure(response.text())) instanceof TypeError, `${name}, then a second read`);
    assert.throws(() => response.clone(), TypeError);
  }
});

test("createFetch returns a function like fetch", async () => {
  const fetched = createFetch(client);
  assert.deepEqual([fetched.name, fetched.length], [fetch.name, 1]);
  const response = await fetched(origin.url(`/s/${key()}/200:body=hello`));
  await response.text();
  await assert.rejects(response.text(), { name: "TypeError", message: "Body is unusable: Body has already been read" });
  assert.throws(() => response.clone(), { name: "TypeError", message: "Response.clone: Body has already been consumed." });
});

test("an idempotency key is of one request", async () => {
  const keyed = new Client(fetchd.url, { fetchd: { retry_policy: { allow_non_idempotent: true, base_delay: 0 } } });
  const rows = [
    { headers: { "Idempotency-Key": "order-17" }, status: 200, sent: ["order-17", "order-17"] },
    { headers: new Headers({ "idempotency-key": "order-18" }), status: 200, sent: ["order-18", "order-18"] },
    { headers: {}, status: 503, sent: [undefined] },
  ];
  for (const { headers, status, sent } of rows) {
    const k = key();
    assert.equal((await keyed.fetch(origin.url(`/s/${k}/503/200`), { method: "POST", body: "x", headers })).status, status);
    assert.deepEqual((await (await fetch(origin.url(`/_log?key=${k}`))).json()).map((r) => r.header["Idempotency-Key"]?.[0]), sent);
  }
  await keyed.close();
  assert.throws(() => new Client(fetchd.url, { fetchd: { retry_policy: { idempotency_key: "order-17" } } }), /header idempotency-key/);
});

test("a header with bytes that are not ASCII", async () => {
  const response = await client.fetch(origin.url(`/s/${key()}/200:header=X-U=%C3%A9`));
  assert.equal(Buffer.from(response.headers.get("x-u"), "latin1").toString(), "é");
});

test("the request arrives as it was given", async () => {
  const rows = [
    { init: { method: "post", body: "text" }, method: "POST", type: "text/plain;charset=UTF-8", bytes: 4 },
    { init: { method: "PUT", body: new Uint8Array([1, 2, 3]) }, method: "PUT", type: null, bytes: 3 },
    { init: { method: "POST", body: new URLSearchParams({ a: "1" }) }, method: "POST", type: "application/x-www-form-urlencoded;charset=UTF-8", bytes: 3 },
    { init: { method: "POST", body: new Blob(["ab"], { type: "text/x" }) }, method: "POST", type: "text/x", bytes: 2 },
    { init: { method: "POST", body: "{}", headers: { "content-type": "application/json" } }, method: "POST", type: "application/json", bytes: 2 },
    { init: { headers: new Headers({ "x-a": "1" }) }, method: "GET", type: null, bytes: 0, a: "1" },
    { init: { method: "POST", body: "abc", headers: { "content-length": "3", connection: "close" } }, method: "POST", type: "text/plain;charset=UTF-8", bytes: 3 },
    { init: { headers: { "x-a": ["1", "2"] } }, method: "GET", type: null, bytes: 0, a: "1,2" },
    { init: { headers: { "x-a": null } }, method: "GET", type: null, bytes: 0, a: "null" },
    { init: { headers: [["x-a", undefined]] }, method: "GET", type: null, bytes: 0, a: "undefined" },
    { init: { headers: [["x-a", "1"]] }, method: "GET", type: null, bytes: 0, a: "1" },
    { init: { headers: { "x-a": "\u00e9" } }, method: "GET", type: null, bytes: 0, a: "\ufffd" }, // one byte, as fetch sends it
    { init: { headers: [["x-a", "\u00c3\u00a9"]] }, method: "GET", type: null, bytes: 0, a: "\u00e9" },
    { request: { method: "POST", body: "text", headers: { "x-a": "1" } }, method: "POST", type: "text/plain;charset=UTF-8", bytes: 4, a: "1" },
    { request: { method: "POST", body: "text" }, init: { method: "PUT", headers: { "x-a": "2" }, body: "other" }, method: "PUT", type: "text/plain;charset=UTF-8", bytes: 5, a: "2" },
  ];
  for (const row of rows) {
    const url = origin.url(`/s/${key()}/200:echo`);
    const response = await client.fetch(row.request ? new Request(url, row.request) : new URL(url), row.init);
    const seen = await response.json();
    const header = (name) => seen.headers.find((h) => h.name.toLowerCase() === name)?.value ?? null;
    assert.equal(seen.method, row.method);
    assert.equal(header("content-type"), row.type);
    assert.equal(header("x-a"), row.a ?? null);
    assert.equal(seen.body_bytes, row.bytes);
  }
});

test("redirects", async () => {
  const k = key();
  const from = origin.url(`/r/${k}/302/2/200:body=end`);
  const followed = await client.fetch(from);
  assert.equal(followed.url, origin.url(`/s/${k}/200:body=end`));
  assert.equal(followed.redirected, true);
  const manual = await client.fetch(from, { redirect: "manual" });
  assert.equal(manual.status, 302);
  assert.ok(manual.headers.get("location"));
  await assert.rejects(client.fetch(from, { redirect: "error" }), { errorClass: "too_many_redirects", message: /unexpected redirect: redirect is "error"/ });
  assert.equal((await client.fetch(origin.url(`/r/${key()}/302/20/200`))).status, 200); // as many as fetch follows
  await assert.rejects(client.fetch(origin.url(`/r/${key()}/302/21/200`)), { message: /more redirects than max_redirects 20/ });
  await assert.rejects(client.fetch(from, { fetchd: { redirect_policy: { max_redirects: 1 } } }), { message: /more redirects than max_redirects 1,/ });
});

test("a coded body is decoded, also with an Accept-Encoding of the caller", async () => {
  for (const headers of [{ "Accept-Encoding": "gzip" }, [["accept-encoding", "br, gzip"]], new Headers({ "accept-encoding": "gzip" })]) {
    assert.equal(await (await client.fetch(origin.url(`/s/${key()}/200:body=text,coding=gzip`), { headers })).text(), "text");
  }
  const kept = await client.fetch(origin.url(`/s/${key()}/200:body=text,coding=gzip`), { headers: { "accept-encoding": "gzip" }, fetchd: { body_policy: { keep_encoding: true } } });
  assert.equal(gunzipSync(await kept.bytes()).toString(), "text");
});

test("headers that are refused", async () => {
  const k = key();
  for (const [name, reason] of [["host", "computed from the URL"], ["expect", "not supported"]]) {
    await assert.rejects(client.fetch(origin.url(`/s/${k}/200`), { headers: { [name]: "a.example" } }), { code: "INVALID_ARGUMENT", message: new RegExp(`"${name}" is ${reason}: remove it`) });
  }
  await assert.rejects(async () => client.fetch(origin.url(`/s/${k}/200`), { headers: { "x-a": "\u65e5" } }), { name: "TypeError", message: /^headers: the value of x-a has a character above U\+00FF/ });
  assert.deepEqual(await origin.seen(k), []);
});

test("the error of a redirect that the egress policy forbids names its target", async () => {
  const url = origin.url(`/s/${key()}/302:to=http%3A%2F%2F127.0.0.1%3A1%2Fsecret`);
  const want = { errorClass: "target_blocked", message: /^fetch .*%2Fsecret: target_blocked, status 302, redirect to http:\/\/127\.0\.0\.1:1\/secret \(rule P1, / };
  for (const body_policy of [{}, { inline: {} }]) await assert.rejects(client.fetch(url, { fetchd: { body_policy } }), want);
  for await (const { error } of client.fetchMany([url])) assert.match(error.message, want.message);
  await assert.rejects(client.fetch("http://127.0.0.1:1/"), { message: /^fetch http:\/\/127\.0\.0\.1:1\/: target_blocked \(rule P1, / });
});

test("a large body is whole, and its URL is known before it", async () => {
  const size = 20_000_000;
  const url = origin.url(`/s/${key()}/503/200:size=${size}`);
  const response = await client.fetch(url, { fetchd: { body_policy: { max_size_bytes: size } } });
  assert.equal(response.url, url);
  const hash = createHash("sha256");
  let read = 0;
  for await (const piece of response.body) {
    hash.update(piece);
    read += piece.length;
  }
  assert.equal(read, size);
  assert.equal((await outcomeOf(response)).body_summary.sha256, hash.digest("hex"));
});

test("a reader with its own buffer", async () => {
  const response = await client.fetch(origin.url(`/s/${key()}/200:size=3000000`));
  const reader = response.body.getReader({ mode: "byob" });
  let read = 0;
  for (let buffer = new ArrayBuffer(100_000); ; ) {
    const { done, value } = await reader.read(new Uint8Array(buffer));
    if (done) break;
    read += value.length;
    buffer = value.buffer;
  }
  assert.equal(read, 3_000_000);
});

test("a body that breaks is an error, never an end", async () => {
  const response = await client.fetch(origin.url(`/s/${key()}/200:size=5000000,cut=2000000`));
  assert.equal(response.status, 200);
  const pieces = [];
  const error = await failure((async () => { for await (const piece of response.body) pieces.push(piece.length); })());
  assert.equal(error.errorClass, "body_interrupted");
  assert.ok(pieces.reduce((a, b) => a + b, 0) <= 2_000_000);
  assert.equal((await outcomeOf(response)).kind, "failed");
});

test("a slow reader does not grow the memory", async () => {
  const size = 64 << 20;
  const policy = { fetchd: { body_policy: { max_size_bytes: size } } };
  const responses = await Promise.all(Array.from({ length: 4 }, () => client.fetch(origin.url(`/s/${key()}/200:size=${size}`), policy)));
  const before = process.memoryUsage();
  await sleep(700);
  const { arrayBuffers, external } = process.memoryUsage();
  assert.ok(arrayBuffers - before.arrayBuffers < 16 << 20, `the buffers grew by ${arrayBuffers - before.arrayBuffers} bytes`);
  assert.ok(external - before.external < 32 << 20);
  // The others still pass.
  assert.equal(await (await client.fetch(origin.url(`/s/${key()}/200:body=quick`))).text(), "quick");
  for (const r of responses) await r.body.cancel();
});

describe("outcomeOf a body of 5 MB", () => {
  const large = () => client.fetch(origin.url(`/s/${key()}/200:size=5000000`));
  const unread = /^outcomeOf waits for the end of the body, which nothing reads: read the body first, or cancel it with response\.body\.cancel\(\)$/;
  const size = (r) => r.arrayBuffer().then((b) => b.byteLength);
  const rows = [
    { name: "that nothing reads", run: async (r) => assert.match((await failure(outcomeOf(r))).message, unread) },
    { name: "that nothing reads, nor its copy", run: async (r) => {
      const copy = r.clone();
      for (const one of [r, copy]) assert.match((await failure(outcomeOf(one))).message, unread);
    } },
    { name: "that is read after the error", run: async (r) => {
      assert.ok((await failure(outcomeOf(r))) instanceof TypeError);
      assert.equal(await size(r), 5_000_000);
      assert.equal((await outcomeOf(r)).kind, "success");
    } },
    { name: "that is read at the same time", run: async (r) => {
      const [outcome, length] = await Promise.all([outcomeOf(r), size(r)]);
      assert.deepEqual([outcome.kind, length], ["success", 5_000_000]);
    } },
    { name: "whose copy is read", run: async (r) => {
      const [outcome, length] = await Promise.all([outcomeOf(r), size(r.clone())]);
      assert.deepEqual([outcome.kind, length], ["success", 5_000_000]);
    } },
    { name: "that is read slowly", run: async (r) => {
      const outcome = outcomeOf(r);
      for await (const piece of r.body) if (piece.length > 0) await new Promise(setImmediate);
      assert.equal((await outcome).kind, "success");
    } },
    { name: "that is cancelled", run: async (r) => {
      const outcome = failure(outcomeOf(r));
      await r.body.cancel();
      assert.equal((await outcome).name, "AbortError");
    } },
  ];
  for (const { name, run } of rows) test(name, { timeout: 20_000 }, async () => run(await large()));
});

describe("abort", () => {
  const reason = new Error("my reason");

  test("before it starts", async () => {
    const k = key();
    const error = await failure(client.fetch(origin.url(`/s/${k}/200`), { signal: AbortSignal.abort(reason) }));
    assert.equal(error, reason);
    assert.deepEqual(await origin.seen(k), []);
  });

  test("with the signal of another implementation, which has no reason", async () => {
    const signal = Object.assign(new EventTarget(), { aborted: false });
    const fetched = failure(client.fetch(origin.url(`/s/${key()}/silent`), { signal }));
    Object.assign(signal, { aborted: true }).dispatchEvent(new Event("abort"));
    assert.equal((await fetched).name, "AbortError");
    assert.equal((await failure(client.fetch(origin.url("/"), { signal }))).name, "AbortError");
    assert.equal(await failure(client.fetch(origin.url("/"), { signal: AbortSignal.abort(null) })), null);
    let cancelled;
    const body = new ReadableStream({ cancel: (why) => void (cancelled = why) });
    await failure(client.fetch(origin.url("/"), { method: "POST", body, duplex: "half", signal: AbortSignal.abort(reason) }));
    assert.equal(cancelled, reason);
    await assert.rejects(client.fetch(origin.url("/"), { signal: {} }), { name: "TypeError", message: "signal: give an AbortSignal" });
  });

  for (const delivery of ["stream", "inline"]) {
    test(`while the origin is silent, ${delivery}`, async () => {
      const k = key();
      const abort = new AbortController();
      const fetched = failure(client.fetch(origin.url(`/s/${k}/silent`), { signal: abort.signal, fetchd: { body_policy: { [delivery]: {} } } }));
      while ((await origin.seen(k)).length === 0) await sleep(10);
      abort.abort(reason);
      assert.equal(await fetched, reason);
      assert.notDeepEqual(await origin.ends(k), ["answered"]);
    });
  }

  const partial = { fetchd: { body_policy: { stream: { max_hold_back_bytes: 0 } } } };

  test("in the body", async () => {
    const k = key();
    const abort = new AbortController();
    const response = await client.fetch(origin.url(`/s/${k}/200:size=1000,stall=100`), { signal: abort.signal, ...partial });
    const text = failure(response.text());
    abort.abort(reason);
    assert.equal(await text, reason);
    assert.equal(await failure(outcomeOf(response)), reason);
    assert.notDeepEqual(await origin.ends(k), ["answered"]);
  });

  for (const [name, init] of [["Fetch", {}], ["inline", { fetchd: { body_policy: { inline: {} } } }]]) {
    test(`after the head of a body that has come, ${name}`, async () => {
      for (const read of [(r) => r.text(), (r) => r.json(), (r) => r.arrayBuffer(), (r) => r.blob(), (r) => r.body.getReader().read(), (r) => r.clone().text()]) {
        const abort = new AbortController();
        const response = await client.fetch(origin.url(`/s/${key()}/200:body=1`), { signal: abort.signal, ...init });
        await outcomeOf(response);
        abort.abort(reason);
        assert.equal(await failure(read(response)), reason);
      }
    });
  }

  for (const [name, steps] of [["a body that is a stream already", "200:body=1"], ["a response without a body", "204"]]) {
    test(`after the head of ${name}`, async () => {
      const abort = new AbortController();
      const response = await client.fetch(origin.url(`/s/${key()}/${steps}`), { signal: abort.signal });
      await outcomeOf(response);
      void response.body;
      abort.abort(reason);
      assert.equal(await failure(response.text()), reason);
    });
  }

  test("by cancelling the body", async () => {
    const k = key();
    const response = await client.fetch(origin.url(`/s/${k}/200:size=1000,stall=100`), partial);
    await response.body.cancel();
    assert.notDeepEqual(await origin.ends(k), ["answered"]);
  });

  test("by leaving the loop of events", async () => {
    const k = key();
    for await (const event of client.events({ url: origin.url(`/s/${k}/silent`) })) if (event.attempt_started) break;
    assert.equal((await origin.seen(k)).length <= 1, true);
    if ((await origin.seen(k)).length > 0) assert.notDeepEqual(await origin.ends(k), ["answered"]);
  });

  test("events", async () => {
    const abort = new AbortController();
    const error = await failure((async () => {
      for await (const event of client.events(origin.url(`/s/${key()}/silent`), { signal: abort.signal })) if (event.attempt_started) abort.abort(reason);
    })());
    assert.equal(error, reason);
  });
});

describe("a limit of time is reported as the caller set it", () => {
  const left = "\\d[\\d.]*m?s were left after the reserve";
  const rows = [
    { name: "deadline", init: { deadline: 0.4 }, message: `the time limit of the fetch passed: deadline 0\\.4 s, of which ${left}; ` },
    { name: "deadline, in the body", steps: "200:size=9000,stall=100", init: { deadline: 0.4, fetchd: { body_policy: { stream: { max_hold_back_bytes: 0 } } } }, message: `: deadline 0\\.4 s, of which ${left}; ` },
    { name: "deadline, inline", init: { deadline: 0.4, fetchd: { body_policy: { inline: {} } } }, message: `: deadline 0\\.4 s, of which ${left}; ` },
    { name: "deadline, before a wait", steps: "reset", init: { deadline: 2, fetchd: { retry_policy: { base_delay: 3, max_delay: 3, max_jitter: 0 } } }, message: `the wait before the next attempt is too long for deadline 2 s, of which ${left}; `, class: "connection_reset" },
    { name: "total_timeout", init: { deadline: 5, fetchd: { timeout_policy: { total_timeout: 0.3 } } }, message: ": total_timeout 300ms, set by the request; " },
  ];
  for (const { name, steps = "silent", init, message, class: errorClass = "deadline" } of rows) {
    test(name, async () => {
      const error = await failure(client.fetch(origin.url(`/s/${key()}/${steps}`), init).then((r) => r.text()));
      assert.equal(error.errorClass, errorClass, error.stack);
      assert.match(error.message, new RegExp(message));
    });
  }
});

test("events", async () => {
  const kinds = [];
  let size = 0;
  for await (const event of client.events({ url: origin.url(`/s/${key()}/503/200:size=3000000`), body_policy: { max_size_bytes: "4000000" } })) {
    const kind = Object.keys(event).find((name) => !["sequence", "elapsed_offset"].includes(name));
    if (event.body_chunk) size += event.body_chunk.data.length;
    else kinds.push(kind);
    if (event.attempt_finished?.attempt === 1) assert.deepEqual(event.attempt_finished.retry_decision, { rule: "W1", retry: { attempt: 2, delay: 0.2, delay_source: "backoff", start: "first_url" } });
  }
  assert.equal(size, 3_000_000);
  assert.deepEqual(kinds, ["admitted", "attempt_started", "response_started", "attempt_finished", "attempt_started", "response_started", "attempt_finished", "outcome"]);
});

test("events of a fetch that fails end with its outcome, which is no error", async () => {
  const events = client.events(origin.url(`/s/${key()}/reset`));
  assert.equal(events[Symbol.asyncIterator](), events);
  const all = [];
  for await (const event of events) all.push(event);
  assert.deepEqual(all.map((e) => e.outcome?.error?.error_class).filter(Boolean), ["connection_reset"]);
  assert.equal(all.at(-1).outcome.kind, "failed");
  assert.equal(all.filter((e) => e.attempt_finished?.retry_decision?.retry?.delay > 0).length, 2, "each wait is in an event");
  assert.deepEqual(await events.next(), { done: true, value: undefined });
});

test("explain", async () => {
  const { retry_decision, error } = await client.explain({ error_classes: ["connect_refused"], retry_policy: { profile: "download" } });
  assert.equal(error.error_class, "connect_refused");
  assert.equal(retry_decision.retry.attempt, 2);
  const stopped = await client.explain({ response: { status_code: 404 } });
  assert.deepEqual(stopped.retry_decision, { rule: "H6", stop_reason: "not_retried" });
  assert.equal((await failure(client.explain({}))).code, "INVALID_ARGUMENT");
});

test("policies of the client and of the fetch", async () => {
  const own = new Client(fetchd.url, { fetchd: { retry_policy: { max_attempts: 1 }, labels: { team: "a" } } });
  const k = key();
  assert.equal((await own.fetch(origin.url(`/s/${k}/503`))).status, 503);
  assert.equal((await origin.seen(k)).length, 1);
  const k2 = key();
  assert.equal((await own.fetch(origin.url(`/s/${k2}/503`), { fetchd: { retry_policy: { max_attempts: 2, base_delay: 0.01, profile: "RETRY_PROFILE_STANDARD" } } })).status, 503);
  assert.equal((await origin.seen(k2)).length, 2);
  await own.close();
});

describe("requests that are not valid", () => {
  const rows = [
    { name: "a misspelt field", init: { fetchd: { retry_polcy: {} } }, message: /^retry_polcy: there is no such field; the fields are url, method/ },
    { name: "a misspelt field of a policy", init: { fetchd: { retry_policy: { attempts: 1 } } }, message: /^retry_policy\.attempts: there is no such field/ },
    { name: "a value of another type", init: { fetchd: { retry_policy: { max_attempts: "many" } } }, message: /^retry_policy\.max_attempts: "many" is not an integer/ },
    { name: "two deliveries", init: { fetchd: { body_policy: { stream: {}, digest: {} } } }, message: /^body_policy\.digest: stream is given too: give one of them$/ },
    { name: "a field of a message that has none", init: { fetchd: { body_policy: { inline: { max: 1 } } } }, message: /^body_policy\.inline\.max: there is no such field; the message has none$/ },
    { name: "a delivery that is no object", init: { fetchd: { body_policy: { inline: true } } }, message: /^body_policy\.inline: true is not an object$/ },
    { name: "an unknown enum value", init: { fetchd: { retry_policy: { profile: "eager" } } }, message: /^retry_policy\.profile: "eager" is not one of standard, download$/ },
    { name: "a duration without a unit", init: { fetchd: { timeout_policy: { total_timeout: "5" } } }, message: /is not a duration: give seconds, such as 1.5 or "1.5s"$/ },
    { name: "an unknown redirect mode", init: { redirect: "never" }, message: /^redirect is never/ },
    { name: "a body of 3 MiB", init: { method: "POST", body: "x".repeat(3 << 20) }, message: /^the request has \d+ bytes: the limit is 2097152/ },
    { name: "recovery by starting again", init: { fetchd: { body_policy: { auto: { recovery: "restart" } } } }, message: /^body_policy.auto.recovery: .*events/ },
  ];
  for (const row of rows) {
    test(row.name, async () => {
      const error = await failure(client.fetch(origin.url("/s/x/200"), row.init));
      assert.equal(error.constructor, TypeError);
      assert.match(error.message, row.message);
    });
  }

  test("what the service rejects", async () => {
    const error = await failure(client.fetch("not a URL", { fetchd: { retry_policy: { max_attempts: 12 } } }));
    assert.ok(error instanceof ServiceError);
    assert.equal(error.code, "INVALID_ARGUMENT");
    assert.equal(error.sent, false);
    assert.deepEqual(error.violations.map((v) => v.field).sort(), ["retry_policy.max_attempts", "url"]);
  });

  test("a secret is not quoted", async () => {
    const secret = "s".repeat(100);
    const error = await failure(client.fetch(origin.url("/s/x/200"), { fetchd: { retry_policy: secret } }));
    assert.ok(!error.message.includes(secret));
  });
});
