// Runs each row of the table in the README with the names of fetch and undici.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";

import * as fetchdModule from "fetchd";
import { Client } from "fetchd";

import { elsewhere } from "../dist/options.js";
import { failure, key, Origin, service } from "./rig.mjs";

let origin, fetchd, client;

before(async () => {
  origin = await Origin.start();
  fetchd = await service(origin);
  client = new Client(fetchd.url);
});
after(() => client.close());

const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const [, section] = readme.split("\n## Names of fetch and undici\n");
const rows = [];
for (const [, names, here] of section.split("\n## ")[0].matchAll(/^\| (`.*) \| (.*) \|$/gm)) {
  for (const [, name] of names.matchAll(/`([^`]+)`/g)) rows.push({ name, here: here.replaceAll("`", "") });
}

/** echo fetches a URL whose response describes its request. */
async function echo(init) {
  const response = await client.fetch(origin.url(`/s/${key()}/200:echo`), init);
  const { method, headers, body_bytes } = await response.json();
  return { method, body_bytes, headers: Object.fromEntries(headers.map(({ name, value }) => [name.toLowerCase(), value])) };
}

const sri = (algorithm, body) => `${algorithm}-${createHash(algorithm).update(body).digest("base64")}`;
const page = (steps = "200:body=%7B%22a%22%3A1%7D,type=application%2Fjson", init = {}) => client.fetch(origin.url(`/s/${key()}/${steps}`), init);
const text = '{"a":1}';

// What the rows say that begin with "works".
const works = {
  method: async () => assert.equal((await echo({ method: "put" })).method, "PUT"),
  headers: async () => {
    for (const headers of [{ "x-a": "1" }, { "x-a": 1 }, [["x-a", 1]], new Headers({ "x-a": "1" })]) assert.equal((await echo({ headers })).headers["x-a"], "1");
  },
  signal: async () => assert.equal((await failure(page("silent", { signal: AbortSignal.timeout(50) }))).name, "TimeoutError"),
  redirect: async () => assert.equal((await client.fetch(origin.url(`/r/${key()}/302/1/200`), { redirect: "manual" })).status, 302),
  integrity: async () => {
    for (const body_policy of [{}, { inline: {} }]) {
      const steps = "200:body=abc";
      assert.equal(await (await page(steps, { integrity: sri("sha256", "abc"), fetchd: { body_policy } })).text(), "abc");
      const request = new Request(origin.url(`/s/${key()}/${steps}`), { integrity: sri("sha256", "abd") });
      assert.equal((await failure(client.fetch(request, { fetchd: { body_policy } }).then((r) => r.text()))).errorClass, "integrity");
    }
    for (const integrity of [sri("sha512", "abc"), `${sri("sha256", "abc")} ${sri("sha256", "abd")}`, "abc"]) {
      assert.match((await failure(page("200", { integrity }))).message, /^integrity: give one digest, as "sha256-" and 44 characters of base64$/);
    }
  },
  status: async (r) => assert.equal(r.status, 200),
  statusText: async (r) => assert.equal(r.statusText, "OK"),
  ok: async (r) => assert.equal(r.ok, true),
  url: async (r) => assert.match(r.url, /^http:.*json$/),
  redirected: async (r) => assert.equal(r.redirected, false),
  type: async (r) => assert.equal(r.type, "basic"),
  bodyUsed: async (r) => assert.equal(r.bodyUsed, false),
  text: async (r) => assert.equal(await r.text(), text),
  json: async (r) => assert.deepEqual(await r.json(), { a: 1 }),
  arrayBuffer: async (r) => assert.equal((await r.arrayBuffer()).byteLength, text.length),
  bytes: async (r) => assert.equal((await r.bytes()).length, text.length),
  blob: async (r) => assert.equal((await r.blob()).type, "application/json"),
  formData: async () => assert.equal((await (await page("200:body=a%3D1,type=application%2Fx-www-form-urlencoded")).formData()).get("a"), "1"),
  clone: async (r) => assert.equal(await r.clone().text(), await r.text()),
  getSetCookie: async () => {
    const { headers } = await page("200:set-cookie=a=1,set-cookie2=b=2");
    if (headers.getSetCookie) assert.deepEqual(headers.getSetCookie(), ["a=1", "b=2"]); // not in Node 18.0
  },
};
for (const name of ["get", "has", "forEach", "entries", "keys", "values", "set", "append", "delete"]) {
  works[name] = async ({ headers }) => {
    assert.ok(headers instanceof Headers && name in headers);
    assert.equal(new Map(headers.entries()).get("content-type"), headers.get("content-type"));
  };
}
Object.assign(works, {
  body: async (r) => {
    assert.equal((await echo({ method: "POST", body: new Blob(["abc"]) })).body_bytes, 3);
    let got = "";
    for await (const piece of r.body) got += Buffer.from(piece);
    assert.equal(got, text);
  },
  "client.fetch": async (r) => assert.equal(r.status, 200),
  "client.close": async () => new Client(fetchd.url).close(),
  "import { Client }": async () => assert.equal(fetchdModule.Client, Client),
  "error.name": async () => assert.equal((await refused()).name, "FetchError"),
  "error.message": async () => assert.match((await refused()).message, /connect_refused/),
});

const refused = () => failure(client.fetch(origin.listeners.refused, { fetchd: { retry_policy: { max_attempts: 1 } } }));

/** missing reports whether a name of the table does not exist. A name without an owner is one of a response. */
async function missing(name) {
  const [, imported] = /^import \{ (.*) \}$/.exec(name) ?? [];
  if (imported) return !(imported in fetchdModule);
  const path = name.split(".");
  const member = path.pop();
  const response = await page();
  const owner = { client, error: path[0] === "error" && (await refused()) }[path[0]] ?? path.reduce((value, key) => value[key], response);
  return owner[member] === undefined;
}

// Values of the options that have no effect, as fetch takes them.
const harmless = { cache: "no-store", credentials: "include", duplex: "half", keepalive: true, mode: "cors", priority: "high", referrerPolicy: "no-referrer", window: null };

describe("names of fetch and undici", () => {
  for (const { name, here } of rows) {
    test(`${name}: ${here}`, async () => {
      const [, verdict] = /^(works|no effect|missing)(?:[:,] (.*))?$/.exec(here) ?? [];
      switch (verdict) {
        case "works":
          assert.ok(works[name], "the test does not use it");
          return works[name](await page());
        case "no effect":
          assert.ok(name in harmless, "the test does not use it");
          assert.deepEqual(await echo({ [name]: harmless[name] }), await echo({}));
          return;
        case "missing":
          assert.ok(await missing(name));
          return;
        default:
          assert.fail('the row does not begin with "works", "no effect" or "missing"');
      }
    });
  }

  for (const [name, remedy] of Object.entries(elsewhere)) {
    test(`${name}: TypeError`, async () => {
      const want = { name: "TypeError", message: `${name}: ${remedy}` };
      const k = key();
      await assert.rejects(client.fetch(origin.url(`/s/${k}/200`), { [name]: 1 }), want);
      assert.deepEqual(await origin.seen(k), []);
      assert.throws(() => new Client(fetchd.url, { [name]: 1 }), want);
    });
  }

  test("the table is complete", () => {
    const documented = new Set(rows.map((r) => r.name));
    assert.deepEqual([...Object.keys(harmless), ...Object.keys(works)].filter((name) => !documented.has(name)), []);
    assert.ok(documented.size >= 40 && Object.keys(elsewhere).length >= 40);
  });
});

describe("options that do not exist", () => {
  const rows = [
    { name: "fetch", use: (init) => client.fetch("http://a.example/", init), message: /^max_attempts: there is no such option; the options are method, .*; fields of FetchRequest are in fetchd$/ },
    { name: "a name of every object", option: "constructor", use: (init) => client.fetch("http://a.example/", init), message: /^constructor: there is no such option/ },
    { name: "Client", use: async (init) => new Client(fetchd.url, init), message: /^max_attempts: there is no such option; the options are token, ca, cert, key, metadata, fetchd$/ },
    { name: "events", option: "method", use: (init) => client.events("http://a.example/", init).next(), message: /^method: there is no such option; the options are signal, deadline; other settings are fields of a request/ },
    { name: "fetchMany", option: "fetchd", use: (init) => client.fetchMany([], init).next(), message: /^fetchd: there is no such option; the options are signal, open; other settings are fields of a request/ },
    { name: "explain", use: (init) => client.explain({ error_classes: ["connect_refused"] }, init), message: /^max_attempts: there is no such option; the options are signal, deadline$/ },
  ];
  for (const { name, option = "max_attempts", use, message } of rows) {
    test(name, async () => {
      await assert.rejects(use({ [option]: 1 }), (e) => e instanceof TypeError && message.test(e.message));
      for (const none of [undefined, null]) await use({ [option]: none }).catch((e) => assert.doesNotMatch(e.message, /no such option/));
    });
  }

  test("a Request as options", async () => {
    const response = await client.fetch(origin.url(`/s/${key()}/200:echo`), new Request("http://a.example/", { method: "PUT" }));
    assert.equal((await response.json()).method, "PUT");
  });
});
