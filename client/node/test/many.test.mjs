import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, FetchError, ServiceError } from "fetchd";

import { failure, key, Origin, service } from "./rig.mjs";

let origin, fetchd, client;

before(async () => {
  origin = await Origin.start();
  fetchd = await service(origin);
  client = new Client(fetchd.url);
});
after(() => client.close());

async function collect(requests, init) {
  const results = [];
  for await (const result of client.fetchMany(requests, init)) results.push(result);
  return results;
}

test("results carry their requests, and the origin sees what they say", async () => {
  const k = key();
  const steps = ["200:body=one", "503/200:body=two", "404", "reset", "200:size=1000000"];
  const urls = Array.from({ length: 1000 }, (_, i) => origin.url(`/s/${k}-${i}/${steps[i % steps.length]}`));
  const results = await collect(urls, { open: 300 });
  assert.deepEqual(results.map((r) => r.request).sort(), [...urls].sort());
  const bodies = { "200:body=one": 3, "503/200:body=two": 3, "200:size=1000000": 1_000_000 };
  for (const r of results) {
    const step = r.request.slice(r.request.indexOf("/", r.request.indexOf(k)) + 1);
    if (step in bodies) {
      assert.equal(r.ok, true);
      assert.equal(r.error, undefined);
      assert.equal(r.body.length, bodies[step]);
      assert.equal(r.headers.get("content-length"), String(bodies[step]));
    } else {
      assert.ok(r.error instanceof FetchError);
      assert.equal(r.ok, false);
      assert.equal(r.status, step === "404" ? 404 : 0);
    }
  }
  const requests = results.reduce((sum, r) => sum + r.outcome.exchange_count, 0);
  const log = await (await fetch(origin.url("/_log"))).json();
  assert.equal(log.filter((r) => r.key.startsWith(`${k}-`)).length, requests);
});

test("a program that puts failed requests back into its queue repeats every GET and no POST", async () => {
  const steps = ["503/200", "429/200", "reset/200", "200:size=9,cut=0/200", "silent/200"];
  const all = ["GET", "POST"].flatMap((method) => steps.map((step) => ({ key: key(), method, step })));
  let queue = all;
  for (let round = 0; round < 2; round++) {
    const results = await collect(queue.map(({ key, method, step }) =>
      ({ url: origin.url(`/s/${key}/${step}`), method, retry_policy: { max_attempts: 1 }, timeout_policy: { header_timeout: 0.3 } })));
    queue = [];
    for (const { request, error } of results) {
      const { key, method, step } = all.find((a) => request.url.includes(`/${a.key}/`));
      if (["transient", "rate_limited"].includes(error?.failureType)) queue.push({ key, method, step });
      else assert.equal(error?.failureType, method === "POST" ? "not_idempotent" : undefined);
    }
  }
  for (const { key, method } of all) assert.equal((await origin.seen(key)).length, method === "GET" ? 2 : 1);
});

test("a request that is not valid is a result, and the others go on", async () => {
  const url = origin.url(`/cycle/${key()}/200:body=x`);
  const bad = [
    { url: "nope" },
    { url, retry_policy: { max_attempts: 0 } },
    { url, method: "get" },
    { url, retry_polcy: {} },
    { url, retry_policy: { max_attempts: "many" } },
    { url, body: "x".repeat(3 << 20), method: "POST" },
    { url, body: 5 },
    { url, headers: { "x-a": {} } },
    { url, labels: { ["n".repeat(300)]: "v" } },
  ];
  const results = await collect([url, ...bad, { url }, new URL(url)]);
  assert.equal(results.length, bad.length + 3);
  for (const r of results) {
    if (bad.includes(r.request)) {
      assert.ok(r.error instanceof TypeError, String(r.error)); // a FetchError is one too
      if (r.error instanceof FetchError) assert.equal(r.error.errorClass, "invalid_request");
    } else assert.equal(r.text(), "x");
  }
});

test("what is not an object is a result too", async () => {
  const url = origin.url(`/cycle/${key()}/200:body=x`);
  const results = await collect([undefined, null, 5, [], url]);
  assert.deepEqual(results.map((r) => r.ok).sort(), [false, false, false, false, true]);
});

test("a body that is not small", async () => {
  const size = 5_000_000;
  const results = await collect([origin.url(`/s/${key()}/503/200:size=${size}`), origin.url(`/s/${key()}/200:body=x`), { url: origin.url(`/s/${key()}/200:size=${size}`), body_policy: { inline: {} } }]);
  assert.deepEqual(results.map((r) => [r.body.length, r.error?.errorClass]).sort((a, b) => a[0] - b[0]), [[0, "body_too_large"], [1, undefined], [size, undefined]]);
  const whole = results.find((r) => r.body.length === size);
  assert.equal(createHash("sha256").update(whole.body).digest("hex"), whole.outcome.body_summary.sha256);
});

test("bodies in a store", async () => {
  const url = origin.url(`/s/${key()}/503/200:body=hello`);
  const requests = [
    { url, store: "local", key: "many/a" },
    { url, store: "local" },
    { url: origin.url(`/s/${key()}/404`), store: "local", key: "many/none" },
    { url, key: "many/none" },
    { url, store: "other", key: "many/none" },
  ];
  const results = await collect(requests);
  const of = (request) => results.find((r) => r.request === request);
  assert.equal(of(requests[0]).stored.key, "many/a");
  assert.equal(readFileSync(join(fetchd.bodies, "many/a"), "utf8"), "hello");
  assert.equal(of(requests[0]).body.length, 0);
  assert.equal(of(requests[1]).stored.key, "sha256/2c/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  assert.deepEqual([of(requests[2]).error.errorClass, of(requests[2]).stored], ["http_client_error", undefined]);
  assert.match(String(of(requests[3]).error), /TypeError: key is given without store/);
  assert.match(of(requests[4]).error.outcome.error.message, /body_policy.store.store/);
  assert.equal(existsSync(join(fetchd.bodies, "many/none")), false);
});

test("a body that starts again", async () => {
  const url = origin.url(`/s/${key()}/200:size=3000000,cut=1000000/200:size=2000000`);
  const [result] = await collect([{ url, body_policy: { stream: { recovery: "restart", max_hold_back_bytes: 0 } } }]);
  assert.equal(result.error, undefined);
  assert.equal(createHash("sha256").update(result.body).digest("hex"), result.outcome.body_summary.sha256);
});

test("bodies of requests fit into messages", async () => {
  const url = origin.url(`/cycle/${key()}/200:echo`);
  const results = await collect(Array.from({ length: 12 }, (_, i) => ({ url, method: "POST", body: new Uint8Array(900_000 + i) })));
  assert.deepEqual(results.map((r) => r.json().body_bytes).sort((a, b) => a - b), Array.from({ length: 12 }, (_, i) => 900_000 + i));
});

test("the iterable is read as results are taken", async () => {
  const k = key();
  let read = 0;
  let returned = false;
  async function* urls() {
    try {
      for (;;) {
        read++;
        yield origin.url(`/s/${k}-${read}/200`);
      }
    } finally {
      returned = true;
    }
  }
  let taken = 0;
  for await (const result of client.fetchMany(urls(), { open: 5 })) {
    assert.equal(result.ok, true);
    await sleep(5);
    assert.ok(read <= ++taken + 5, `${read} read, ${taken} taken`);
    if (taken === 20) break;
  }
  assert.equal(returned, true);
});

test("leaving the loop cancels the fetches", async () => {
  const k = key();
  for await (const result of client.fetchMany([origin.url(`/s/${k}/silent`), origin.url(`/s/${key()}/200:delay=300ms`)])) {
    assert.equal(result.ok, true);
    break;
  }
  assert.notDeepEqual(await origin.ends(k), ["answered"]);
});

test("abort", async () => {
  const k = key();
  const abort = new AbortController();
  const reason = new Error("enough");
  const error = await failure((async () => {
    for await (const result of client.fetchMany([origin.url(`/s/${k}/silent`), origin.url(`/s/${key()}/200:delay=300ms`)], { signal: abort.signal })) {
      assert.equal(result.ok, true);
      abort.abort(reason);
    }
  })());
  assert.equal(error, reason);
  assert.notDeepEqual(await origin.ends(k), ["answered"]);
});

test("an iterable that throws", async () => {
  const broken = new Error("broken");
  function* urls() {
    yield origin.url(`/s/${key()}/200`);
    throw broken;
  }
  assert.equal(await failure(collect(urls())), broken);
});

test("the service cannot be reached", async () => {
  const nowhere = new Client("http://127.0.0.1:1");
  const error = await failure((async () => { for await (const _ of nowhere.fetchMany(["http://a.example/"])); })());
  assert.ok(error instanceof ServiceError);
  assert.equal(error.code, "UNAVAILABLE");
  assert.equal(error.sent, false);
  await nowhere.close();
});

test("fetches in the way of fetchMany share a stream, and one can be aborted", async () => {
  const inline = { body_policy: { inline: {} } };
  const abort = new AbortController();
  const k = key();
  const hung = failure(client.fetch(origin.url(`/s/${k}/silent`), { signal: abort.signal, fetchd: inline }));
  const others = await Promise.all(Array.from({ length: 600 }, (_, i) => client.fetch(origin.url(`/s/${k}-${i}/200:body=${i}`), { fetchd: inline })));
  for (const [i, r] of others.entries()) assert.equal(await r.text(), String(i));
  abort.abort();
  assert.equal((await hung).name, "AbortError");
});
