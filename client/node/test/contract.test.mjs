// Compares the codec with protobufjs, which reads the contract by itself.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import protobuf from "protobufjs";

import * as own from "../dist/contract.js";
import { Reader, Writer } from "../dist/wire.js";

const root = new protobuf.Root();
root.resolvePath = (_, path) => (path.startsWith("google/") ? path : new URL(`../../../proto/${path}`, import.meta.url).pathname);
root.loadSync("fetchd/v1/fetch.proto", { keepCase: true });
root.resolveAll();
const contract = root.lookup("fetchd.v1");
const messages = contract.nestedArray.filter((t) => t instanceof protobuf.Type);

const short = (e, number) => e.valuesById[number].slice(e.name.replace(/(?<=[a-z])(?=[A-Z])/g, "_").length + 1).toLowerCase();

/** sample returns a value of a message for protobufjs, and the same as the package has it. Each field is set, and of each oneof one. */
function sample(type, depth, n) {
  const theirs = {};
  const ours = {};
  for (const f of type.fieldsArray) {
    const choices = f.partOf?.fieldsArray ?? [f];
    if (f !== choices[n.oneof % choices.length]) continue;
    const [t, o] = value(f, depth, n);
    const repeat = f.repeated ? (v) => [v, v] : (v) => v;
    if (t === undefined) continue;
    if (f instanceof protobuf.MapField) {
      theirs[f.name] = ours[f.name] = { a: "b", "": "", __proto__x: "c" };
      continue;
    }
    theirs[f.name] = repeat(t);
    ours[f.name] = repeat(o);
  }
  return [theirs, ours];
}

function value(f, depth, n) {
  const t = f.resolvedType;
  if (t instanceof protobuf.Enum) {
    const number = n.enum % 2 ? Math.max(...Object.values(t.values)) : 1;
    return [number, short(t, number)];
  }
  if (t?.name === "Duration") return [{ seconds: n.int, nanos: 250_000_000 }, n.int + 0.25];
  if (t?.name === "Timestamp") return [{ seconds: n.int, nanos: 250_000_000 }, new Date(n.int * 1000 + 250)];
  if (t) return depth > 4 ? [] : sample(t, depth + 1, n);
  switch (f.type) {
    case "string":
      return [n.text, n.text];
    case "bytes":
      return [Buffer.from(n.text), Buffer.from(n.text)];
    case "bool":
      return [true, true];
    case "uint64":
      return [n.int, BigInt(n.int)];
    case "int64":
      return [n.int, n.int];
    case "int32":
      return [n.int % 2 ** 31, n.int % 2 ** 31];
    case "double":
      return [n.int + 0.5, n.int + 0.5];
    default:
      throw new Error(f.type);
  }
}

const samples = [
  { int: 1, text: "a", enum: 0 },
  { int: 127, text: "x".repeat(127), enum: 1 },
  { int: 128, text: "x".repeat(128), enum: 0 },
  { int: 2 ** 31 - 1, text: "grüße 😀".repeat(10), enum: 1 },
  { int: 300, text: "ü".repeat(63), enum: 0 },
  { int: 2 ** 37, text: "y".repeat(20_000), enum: 1 },
];

for (const type of messages) {
  describe(type.name, () => {
    for (const n of samples) {
      for (let oneof = 0; oneof < Math.max(1, ...type.oneofsArray.map((o) => o.fieldsArray.length)); oneof++) {
        const [theirs, ours] = sample(type, 0, { ...n, oneof });
        const decode = own[`decode${type.name}`];
        if (decode) {
          test(`decoded ${n.int} ${oneof}`, () => {
            const bytes = Buffer.from(type.encode(theirs).finish());
            const [, complete] = [0, decode(new Reader(bytes), bytes.length)];
            assert.deepEqual(pick(complete, ours), ours);
            for (const cut of [1, 2, 3, Math.floor(bytes.length / 2)]) {
              const part = Buffer.from(bytes.subarray(0, bytes.length - cut));
              try {
                decode(new Reader(part), part.length);
              } catch (e) {
                assert.equal(e.constructor, Error);
              }
            }
          });
        }
        const encode = own[`encode${type.name}`];
        if (encode) {
          test(`encoded ${n.int} ${oneof}`, () => {
            const w = new Writer();
            encode(w, ours);
            const options = { longs: Number };
            assert.deepEqual(type.toObject(type.decode(w.finish()), options), type.toObject(type.decode(type.encode(theirs).finish()), options));
          });
        }
      }
    }
  });
}

/** pick returns the fields of a decoded message that the sample has, because the others have their defaults. */
function pick(m, sample) {
  if (Array.isArray(sample)) return m.map((v, i) => pick(v, sample[i]));
  if (typeof sample !== "object" || sample === null || sample instanceof Date || Buffer.isBuffer(sample)) return m;
  return Object.fromEntries(Object.keys(sample).map((k) => [k, pick(m[k], sample[k])]));
}

test("defaults, fields of a later version, and enum values of a later version", () => {
  const outcome = contract.lookupType("FetchOutcome");
  const bytes = Buffer.concat([outcome.encode({ kind: 99, error: { error_class: 999 } }).finish(), Buffer.from([0xfa, 0x3e, 2, 1, 1])]);
  const m = own.decodeFetchOutcome(new Reader(bytes), bytes.length);
  assert.equal(m.kind, "unspecified");
  assert.equal(m.error.error_class, "unspecified");
  assert.equal(m.final_url, "");
  assert.deepEqual(m.hops, []);
  assert.equal(m.response, undefined);
});

test("forms of input", () => {
  const request = contract.lookupType("FetchRequest");
  const encoded = (m) => {
    const w = new Writer();
    own.encodeFetchRequest(w, m);
    return request.toObject(request.decode(w.finish()), { longs: String, enums: String });
  };
  for (const [input, want] of [
    [{ headers: { a: "1" } }, { headers: [{ name: "a", value: "1" }] }],
    [{ headers: [["a", "1"]] }, { headers: [{ name: "a", value: "1" }] }],
    [{ headers: new Headers({ a: "1" }) }, { headers: [{ name: "a", value: "1" }] }],
    [{ headers: [{ name: "a", value: "1" }] }, { headers: [{ name: "a", value: "1" }] }],
    [{ retry_policy: { base_delay: "0.5s", max_delay: 2.000000001, jitter_seed: "18446744073709551615" } }, { retry_policy: { base_delay: { nanos: 5e8 }, max_delay: { seconds: "2", nanos: 1 }, jitter_seed: "18446744073709551615" } }],
    [{ retry_policy: { base_delay: -1.5, max_attempts: -1 } }, { retry_policy: { base_delay: { seconds: "-1", nanos: -5e8 }, max_attempts: -1 } }],
    [{ redirect_policy: { scope: "same_host" } }, { redirect_policy: { scope: "REDIRECT_SCOPE_SAME_HOST" } }],
    [{ redirect_policy: { scope: "REDIRECT_SCOPE_SAME_HOST", follow: undefined } }, { redirect_policy: { scope: "REDIRECT_SCOPE_SAME_HOST" } }],
    [{ precondition: { last_modified_time: "2026-01-31T12:00:00Z" } }, { precondition: { last_modified_time: { seconds: "1769860800" } } }],
    [{ precondition: { last_modified_time: new Date(-1500) } }, { precondition: { last_modified_time: { seconds: "-2", nanos: 5e8 } } }],
    [{ body: "é" }, { body: Buffer.from("é") }],
    [{ body: new Uint16Array([1]) }, { body: Buffer.from([1, 0]) }],
  ]) assert.deepEqual(JSON.parse(JSON.stringify(encoded(input))), JSON.parse(JSON.stringify(want)));
});
