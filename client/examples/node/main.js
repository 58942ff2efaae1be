// Calls a running fetchd with @grpc/grpc-js, and checks its answers.
//
// Usage: node main.js HOST:PORT ORIGIN_URL KEY_PREFIX
//
// The origin is cmd/origin. The URL tells it what to do: /cycle/KEY/503/200 answers 503,
// then 200, then starts again. .ci/examples starts both, and compares the output with
// client/examples/expected.txt and with the origin's log.
//
// The proto file is read at run time; there is no generated code.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

// The repository. FETCHD_ROOT names it if this file is elsewhere.
const root = process.env.FETCHD_ROOT ?? fileURLToPath(new URL("../../..", import.meta.url));
const serviceConfig = readFileSync(`${root}/deploy/grpc/service-config.json`, "utf8");
const maxFetches = 4; // --max-fetches of the service in .ci/examples

// With longs: Number, 64-bit integers become numbers, which are exact up to 2^53. Use String
// for a larger jitter_seed.
const { fetchd } = grpc.loadPackageDefinition(
  protoLoader.loadSync("fetchd/v1/fetch.proto", {
    includeDirs: [`${root}/proto`],
    keepCase: true,
    longs: Number,
    enums: String,
    defaults: true,
    oneofs: true,
  }),
);

// Do not use the proxy of the environment for a service on this machine.
const connect = (target, options = {}) =>
  new fetchd.v1.FetchService(target, grpc.credentials.createInsecure(), { "grpc.enable_http_proxy": 0, ...options });

// within returns call options with a deadline.
const within = (seconds = 60) => ({ deadline: Date.now() + seconds * 1000 });

// unary returns a promise for a unary call.
const unary = (client, request, options = within()) =>
  new Promise((resolve, reject) => {
    client.FetchUnary({ request }, options, (error, answer) => (error ? reject(error) : resolve(answer)));
  });

// statusOf returns the name of the gRPC status that work fails with.
async function statusOf(work) {
  try {
    await work;
  } catch (error) {
    return grpc.status[error.code] ?? Promise.reject(error);
  }
  return assert.fail("the call succeeded, want an error");
}

// short returns the name of a value without the prefix of its enum.
const short = (value, prefix) => value.slice(prefix.length);

// describe formats an outcome in one line.
function describe(outcome) {
  const parts = [short(outcome.kind, "OUTCOME_KIND_")];
  if (outcome.response) parts[0] += ` ${outcome.response.status_code}`;
  if (outcome.error) {
    parts.push(short(outcome.error.error_class, "ERROR_CLASS_"), short(outcome.error.failure_type, "FAILURE_TYPE_"));
    parts.push(outcome.error.retryable ? "retryable" : "final");
  }
  return [...parts, `rule ${outcome.rule}`, `${outcome.exchanges} exchanges`].join(", ");
}

const [target, origin, prefix] = process.argv.slice(2);
if (!prefix) {
  console.error("usage: node main.js HOST:PORT ORIGIN_URL KEY_PREFIX");
  process.exit(2);
}

// fetchOf returns a request that the origin answers with these steps. Retries do not wait.
const fetchOf = (key, steps, fields = {}) => ({
  url: `${origin}/cycle/${prefix}${key}/${steps}`,
  retry_policy: { base_delay: { seconds: 0 } },
  ...fields,
});

// Without a hold-back, bytes are delivered as they arrive.
const atOnce = { body_policy: { hold_back_bytes: 0 } };

// FetchUnary: one answer with the body inside.
async function unaryFetch(client) {
  const { outcome, attempts } = await unary(client, fetchOf("unary", "503/200:body=hello"));
  const statuses = attempts.map((a) => a.response.status_code).join(" ");
  console.log(`unary: ${describe(outcome)}, statuses ${statuses}, body ${outcome.inline_body}`);

  // A failure of the origin is an outcome, never a gRPC status.
  const missing = await unary(client, fetchOf("missing", "404"));
  console.log(`missing: ${describe(missing.outcome)}`);

  // A gRPC status is about the request or the service.
  console.log(`refused: ${await statusOf(unary(client, { url: "no URL" }))}`);
}

// Fetch: events as they happen, and the body in chunks.
async function streamedFetch(client) {
  const pieces = [];
  let size = 0;
  let last = null;
  for await (const event of client.Fetch(fetchOf("stream", "503/429:retry-after=0/200:size=100000"), within())) {
    assert.equal(last, null, "an event after the outcome");
    if (event.event === "body_chunk") {
      assert.equal(event.body_chunk.offset_bytes, size);
      pieces.push(event.body_chunk.data);
      size += event.body_chunk.data.length;
    } else if (event.event === "attempt_finished") {
      const { attempt, response, retry_decision: decision } = event.attempt_finished;
      const verdict = short(decision.verdict, "RETRY_VERDICT_");
      const source = short(decision.delay_source, "DELAY_SOURCE_");
      console.log(`stream: attempt ${attempt}, status ${response.status_code}, ${verdict}, wait of ${source}, rule ${decision.rule}`);
    } else if (event.event === "outcome") {
      last = event.outcome;
    }
  }
  const digest = createHash("sha256").update(Buffer.concat(pieces)).digest("hex");
  assert.equal(digest, last.body_summary.sha256);
  console.log(`stream: ${describe(last)}, ${size} bytes`);
}

// FetchMany: a list over one stream. Outcomes arrive as fetches end, with their tags.
async function many(client) {
  const steps = { "many-a": "200:body=one", "many-b": "404", "many-c": "503/200:body=three" };
  const call = client.FetchMany(within());
  call.write({ tasks: Object.entries(steps).map(([tag, step]) => ({ tag, request: fetchOf(tag, step) })) });
  call.end(); // half-closes the stream; the call ends after the last outcome
  const outcomes = new Map();
  for await (const answer of call) {
    for (const { tag, response } of answer.responses) {
      assert.ok(!outcomes.has(tag), `a second outcome for ${tag}`);
      outcomes.set(tag, response.outcome);
    }
  }
  assert.deepEqual([...outcomes.keys()].sort(), Object.keys(steps).sort());
  for (const tag of [...outcomes.keys()].sort()) {
    console.log(`${tag}: ${describe(outcomes.get(tag))}, ${outcomes.get(tag).inline_body.length} bytes`);
  }
}

// Cancelling the call cancels the request to the origin.
async function cancel(client) {
  const call = client.Fetch(fetchOf("cancel", "200:size=1000,stall=100", atOnce), within());
  let received = 0;
  const read = async () => {
    for await (const event of call) {
      received += event.body_chunk?.data.length ?? 0;
      if (received === 100) call.cancel();
    }
  };
  const status = await statusOf(read());
  console.log(`cancel: ${received} bytes, ${status}`);
}

// The service sends the outcome DEADLINE before the deadline of the call.
async function deadline(client) {
  const { outcome } = await unary(client, fetchOf("deadline", "silent"), within(6));
  console.log(`deadline: ${describe(outcome)}`);
}

// With the published service config gRPC retries a rejected call.
async function configured(client) {
  const held = [];
  for (let i = 0; i < maxFetches; i++) {
    const call = client.Fetch(fetchOf(`held${i}`, "200:size=1000,stall=100", atOnce), within());
    call.on("error", () => {}); // it is cancelled below
    for (let event; event?.event !== "body_chunk"; ) [event] = await once(call, "data");
    held.push(call);
  }

  const request = fetchOf("config", "200");
  const plain = connect(target);
  const refusal = await statusOf(unary(plain, request));
  plain.close();

  const pending = unary(client, request);
  await sleep(100); // time for one rejection; the call succeeds without it too
  for (const call of held) call.cancel();
  console.log(`config: without it ${refusal}, with it ${describe((await pending).outcome)}`);
}

const client = connect(target, { "grpc.service_config": serviceConfig });
await unaryFetch(client);
await streamedFetch(client);
await many(client);
await cancel(client);
await deadline(client);
await configured(client);
client.close();
