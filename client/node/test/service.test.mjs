import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";

import { Client, FetchError, ServiceError } from "fetchd";

import { accepts, failure, folder, freeAddress, key, Origin, service } from "./rig.mjs";

let origin;
before(async () => (origin = await Origin.start()));

const ways = { Fetch: {}, inline: { body_policy: { inline: {} } } };

for (const [way, policies] of Object.entries(ways)) {
  describe(way, () => {
    test("a rolling restart of two replicas fails no fetch, and each request is sent once", async () => {
      const replicas = [];
      for (let i = 0; i < 2; i++) replicas.push(await service(origin, "--grpc-addr", await freeAddress()));
      const client = new Client(replicas.map((r) => r.url), { fetchd: policies });
      const k = key();
      let going = true;
      let count = 0;
      const loop = async () => {
        while (going) {
          const response = await client.fetch(origin.url(`/s/${k}-${++count}/200:body=x,delay=5ms`));
          assert.equal(await response.text(), "x");
        }
      };
      const loops = Promise.all(Array.from({ length: 8 }, loop));
      await sleep(300);
      for (let i = 0; i < 2; i++) {
        await replicas[i].signal("SIGTERM");
        replicas[i] = await service(origin, "--grpc-addr", replicas[i].address);
        await sleep(400); // the client connects again
      }
      going = false;
      await loops;
      const log = await (await fetch(origin.url("/_log"))).json();
      assert.equal(log.filter((r) => r.key.startsWith(`${k}-`)).length, count);
      await client.close();
      for (const r of replicas) await r.signal("SIGKILL");
    });

    test("kill -9 fails the fetches in flight with an error that says so, and the next ones use another replica", async () => {
      const replicas = [await service(origin, "--user-agent", "one"), await service(origin, "--user-agent", "two")];
      const client = new Client(replicas.map((r) => r.url), { fetchd: policies });
      for (const both = new Set(); both.size < 2; ) {
        const seen = await Promise.all(Array.from({ length: 8 }, async () => (await client.fetch(origin.url(`/s/${key()}/200:echo`))).json()));
        for (const { headers } of seen) both.add(headers.find((h) => h.name === "User-Agent").value);
      }
      const keys = Array.from({ length: 20 }, key);
      const fetched = keys.map((k) => client.fetch(origin.url(`/s/${k}/200:body=x,delay=500ms`)).then((r) => r.text(), (e) => e));
      for (const k of keys) while ((await origin.seen(k)).length === 0) await sleep(10);
      await replicas[0].signal("SIGKILL");
      const lost = [];
      for (const [i, result] of (await Promise.all(fetched)).entries()) {
        assert.equal((await origin.seen(keys[i])).length, 1, "the fetch was made again");
        if (result === "x") continue;
        assert.ok(result instanceof ServiceError, String(result));
        assert.equal(result.code, "UNAVAILABLE");
        assert.equal(result.sent, true);
        lost.push(result);
      }
      assert.ok(lost.length < keys.length);
      for (let i = 0; i < 10; i++) assert.equal((await client.fetch(origin.url(`/s/${key()}/200`))).status, 200);
      await client.close();
      await replicas[1].signal("SIGKILL");
    });

    test("kill -9 after a POST was sent: it may have taken effect, and the error does not look like one after which to send it again", async () => {
      const fetchd = await service(origin);
      const client = new Client(fetchd.url, { fetchd: policies });
      const rows = [
        { name: "POST", request: { method: "POST" }, effect: true },
        { name: "PATCH", request: { method: "PATCH" }, effect: true },
        { name: "PUT", request: { method: "PUT" }, effect: false },
        { name: "GET", request: {}, effect: false },
        { name: "POST with a key", request: { method: "POST", retry_policy: { idempotency_key: "order-17" } }, effect: true },
        { name: "POST that may be repeated", request: { method: "POST", retry_policy: { idempotency_key: "order-17", allow_non_idempotent: true } }, effect: false },
      ];
      const calls = {
        fetch: (url, { method, ...fetchd }) => client.fetch(url, { method, fetchd }),
        events: async (url, request) => { for await (const _ of client.events({ url, ...request })); },
        fetchMany: async (url, request) => { for await (const { error } of client.fetchMany([{ url, ...request }])) throw error; },
      };
      const fetched = [];
      for (const row of rows) {
        for (const [call, run] of Object.entries(calls)) {
          const k = key();
          if (call === "events" && "inline" in (policies.body_policy ?? {})) continue; // it has no other way
          fetched.push({ name: `${call}, ${row.name}`, k, effect: row.effect, error: failure(run(origin.url(`/s/${k}/silent`), row.request)) });
        }
      }
      for (const { k } of fetched) while ((await origin.seen(k)).length === 0) await sleep(10);
      await fetchd.signal("SIGKILL");
      for (const { name, k, effect, error } of fetched) {
        const e = await error;
        assert.ok(e instanceof ServiceError, `${name}: ${e}`);
        assert.deepEqual([e.code, e.failureType, e.sent, /may have taken effect/.test(e.message)], effect ? ["UNKNOWN", "not_idempotent", true, true] : ["UNAVAILABLE", undefined, true, false], `${name}: ${e}`);
        assert.equal((await origin.seen(k)).length, 1, name);
      }
      const unsent = await failure(client.fetch(origin.url(`/s/${key()}/200`), { method: "POST" }));
      assert.deepEqual([unsent.code, unsent.failureType, unsent.sent], ["UNAVAILABLE", undefined, false]);
      await client.close();
    });

    test("tokens", async () => {
      const token = randomBytes(16).toString("hex");
      const file = join(folder(), "tokens.yaml");
      writeFileSync(file, `- {name: alice, sha256: "${createHash("sha256").update(token).digest("hex")}"}\n`);
      const fetchd = await service(origin, "--token-file", file);
      const url = () => origin.url(`/s/${key()}/200`);
      assert.throws(() => new Client(fetchd.url, { token: `${token}\n` }), (error) => error instanceof TypeError && !error.message.includes(token));
      for (const [name, options, code] of [
        ["the token", { token }],
        ["a function", { token: () => token }],
        ["a function with a promise", { token: async () => token }],
        ["metadata", { metadata: { authorization: `Bearer ${token}` } }],
        ["none", {}, "UNAUTHENTICATED"],
        ["another", { token: "wrong" }, "UNAUTHENTICATED"],
        ["a function that fails", { token: () => { throw new Error("no token today"); } }, "UNAUTHENTICATED"],
        ["a line break", { token: () => `${token}\r\nx-a: 1` }, "UNAUTHENTICATED"],
      ]) {
        const client = new Client(fetchd.url, { ...options, fetchd: policies });
        const fetched = client.fetch(url());
        if (!code) assert.equal((await fetched).status, 200, name);
        else {
          const error = await failure(fetched);
          assert.equal(error.code, code, name);
          assert.ok(!inspect(error, { depth: 9, showHidden: true }).includes(token), name);
        }
        assert.ok(!inspect(client, { depth: 9, showHidden: true }).includes(token));
        await client.close();
      }
      await fetchd.signal("SIGKILL");
    });

    test("TLS with a client certificate", async () => {
      const at = folder();
      const openssl = (...args) => execFileSync("openssl", args, { cwd: at, stdio: "pipe" });
      openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.pem");
      for (const [name, san] of [["server", "DNS:localhost,IP:127.0.0.1"], ["client", "DNS:alice"]]) {
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", `/CN=${name}`, "-addext", `subjectAltName=${san}`, "-keyout", `${name}.key`, "-out", `${name}.csr`);
        openssl("x509", "-req", "-in", `${name}.csr`, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-copy_extensions", "copy", "-out", `${name}.pem`);
      }
      const file = (name) => join(at, name);
      const httpAddress = await freeAddress();
      const fetchd = await service(origin, "--http-addr", httpAddress, "--tls-cert-file", file("server.pem"), "--tls-key-file", file("server.key"), "--tls-client-ca-file", file("ca.pem"));
      const ca = readFileSync(file("ca.pem"));
      const pair = { cert: readFileSync(file("client.pem")), key: readFileSync(file("client.key")) };
      const byName = fetchd.url.replace("127.0.0.1", "localhost");
      for (const [name, url, options, error] of [
        ["by address", fetchd.url, { ca, ...pair }],
        ["without a scheme", fetchd.address, { ca, ...pair }],
        ["by name", byName, { ca, ...pair }],
        ["no client certificate", fetchd.url, { ca }, /^UNAVAILABLE: /],
        ["an authority that is not known", fetchd.url, pair, /^UNAVAILABLE: /],
        ["plaintext", fetchd.url.replace("https", "http"), {}, /^UNAVAILABLE: .*: the connection was closed; if the port uses TLS, give https:\/\/HOST:PORT$/],
        ["the HTTP port", `https://${httpAddress}`, { ca, ...pair }, /^UNIMPLEMENTED: .*; if this is the HTTP port of fetchd \(--http-addr, by default 8081\), give the gRPC port \(--grpc-addr, by default 8080\)$/],
      ]) {
        const client = new Client(url, { ...options, fetchd: policies });
        const fetched = client.fetch(origin.url(`/s/${key()}/200:body=x`));
        if (!error) assert.equal(await (await fetched).text(), "x", name);
        else assert.match((await failure(fetched)).message, error, name);
        await client.close();
      }
      await fetchd.signal("SIGKILL");
    });

    test("a port that is not the one for gRPC", async () => {
      const httpAddress = await freeAddress();
      const fetchd = await service(origin, "--http-addr", httpAddress);
      for (const [address, message] of [
        [httpAddress, /: the server does not speak HTTP\/2; if this is the HTTP port of fetchd \(--http-addr, by default 8081\), give the gRPC port \(--grpc-addr, by default 8080\)$/],
        [`https://${fetchd.address}`, /: the port does not use TLS; give http:\/\/HOST:PORT$/],
      ]) {
        const client = new Client(address, { fetchd: policies });
        const error = await failure(client.fetch(origin.url(`/s/${key()}/200`)));
        assert.match(error.message, message);
        assert.deepEqual([error.code, error.sent], ["UNAVAILABLE", false]);
        await client.close();
      }
      await fetchd.signal("SIGKILL");
    });

    test("a service that starts later is reached", async () => {
      const first = await service(origin, "--grpc-addr", await freeAddress());
      const client = new Client(first.url, { fetchd: policies });
      assert.equal((await client.fetch(origin.url(`/s/${key()}/200`))).status, 200);
      await first.signal("SIGKILL");
      await failure(client.fetch(origin.url(`/s/${key()}/200`))); // the client may not have noticed before
      const error = await failure(client.fetch(origin.url(`/s/${key()}/200`)));
      assert.equal(error.code, "UNAVAILABLE");
      assert.equal(error.sent, false);
      const second = await service(origin, "--grpc-addr", first.address);
      await accepts(first.address);
      assert.equal((await client.fetch(origin.url(`/s/${key()}/200`))).status, 200);
      await client.close();
      await second.signal("SIGKILL");
    });

    test("close fails the fetches in flight", async () => {
      const fetchd = await service(origin);
      const client = new Client(fetchd.url, { fetchd: policies });
      const k = key();
      const fetched = failure(client.fetch(origin.url(`/s/${k}/silent`)));
      while ((await origin.seen(k)).length === 0) await sleep(10);
      await client.close();
      assert.ok((await fetched) instanceof ServiceError);
      assert.equal((await failure(client.fetch(origin.url("/s/x/200")))).code, "CANCELLED");
      await fetchd.signal("SIGKILL");
    });
  });
}

test("a refused fetch is repeated when there is capacity", async () => {
  const fetchd = await service(origin, "--max-fetches", "1");
  const client = new Client(fetchd.url);
  const abort = new AbortController();
  const k = key();
  const hung = failure(client.fetch(origin.url(`/s/${k}/silent`), { signal: abort.signal }));
  while ((await origin.seen(k)).length === 0) await sleep(10);
  const waits = client.fetch(origin.url(`/s/${key()}/200:body=x`));
  setTimeout(() => abort.abort(), 50);
  await hung;
  assert.equal(await (await waits).text(), "x");
  await client.close();
  await fetchd.signal("SIGKILL");
});

test("a refused fetch fails in the end, and nothing was sent", async () => {
  const fetchd = await service(origin, "--max-fetches", "1");
  const client = new Client(fetchd.url);
  const abort = new AbortController();
  const k = key();
  const hung = failure(client.fetch(origin.url(`/s/${k}/silent`), { signal: abort.signal }));
  while ((await origin.seen(k)).length === 0) await sleep(10);
  const k2 = key();
  const error = await failure(client.fetch(origin.url(`/s/${k2}/200`)));
  assert.equal(error.code, "RESOURCE_EXHAUSTED");
  assert.equal(error.sent, false);
  assert.deepEqual(await origin.seen(k2), []);
  abort.abort();
  await hung;
  await client.close();
  await fetchd.signal("SIGKILL");
});

test("a fetch that outlasts the drain is an outcome", async () => {
  const fetchd = await service(origin, "--drain-time", "1s");
  const client = new Client(fetchd.url);
  const k = key();
  const fetched = [{}, ways.inline].map((policies) => failure(client.fetch(origin.url(`/s/${k}/silent`), { fetchd: policies })));
  while ((await origin.seen(k)).length < 2) await sleep(10);
  const ended = fetchd.signal("SIGTERM");
  for (const error of await Promise.all(fetched)) {
    assert.ok(error instanceof FetchError, String(error));
    assert.equal(error.errorClass, "shutdown");
    assert.equal(error.retryable, true);
  }
  await ended;
  await client.close();
});

test("a program that does not close its client ends", () => {
  // The first fetch leaves a connection behind.
  const program = `
    import { Client } from ${JSON.stringify(new URL("../dist/index.js", import.meta.url).href)};
    const error = await new Client("http://127.0.0.1:1").fetch("http://a.example/").catch((e) => e);
    console.log(error.code);`;
  assert.equal(execFileSync(process.execPath, ["--input-type=module", "-e", program], { timeout: 20_000 }).toString().trim(), "UNAVAILABLE");
});

test("a program that leaves an idle connection ends", async () => {
  const fetchd = await service(origin);
  const program = `
    import { Client } from ${JSON.stringify(new URL("../dist/index.js", import.meta.url).href)};
    const client = new Client(process.argv[1]);
    for (const delivery of ["stream", "inline"]) console.log((await client.fetch(process.argv[2], { fetchd: { body_policy: { [delivery]: {} } } })).status);`;
  const out = execFileSync(process.execPath, ["--input-type=module", "-e", program, fetchd.url, origin.url(`/s/${key()}/200`)], { timeout: 20_000 });
  assert.equal(out.toString(), "200\n200\n");
  await fetchd.signal("SIGKILL");
});
