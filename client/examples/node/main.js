// Calls a running fetchd with @grpc/grpc-js, and checks what it answers.
//
// Usage: node main.js HOST:PORT ORIGIN_URL KEY_PREFIX
//
// The origin is cmd/origin: a URL says which faults it commits, so that
// /cycle/KEY/503/200 answers 503, then 200, then 503 again. .ci/examples starts both, and holds what
// is printed here against client/examples/expected.txt and the origin's log.
//
// The one proto file is read at run time; there is nothing to generate.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

// The repository, where this file does not lie in it.
const root = process.env.FETCHD_ROOT ?? fileURLToPath(new URL("../../..", import.meta.url));
const serviceConfig = readFileSync(`${root}/deploy/grpc/service-config.json`, "utf8");
const places = 4; // fetches that the service, as .ci/examples starts it, has under way at once

// Counts and durations of 64 bits become numbers: a body of a fetch is no longer
// than a number counts exactly. longs: String would keep a jitter_seed exact.
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

// A proxy of the environment is not for a service on this machine.
const connect = (target, options = {}) =>
  new fetchd.v1.FetchService(target, grpc.credentials.createInsecure(), { "grpc.enable_http_proxy": 0, ...options });

// within is the deadline of a call, where the time is not the point.
const within = (seconds = 60) => ({ deadline: Date.now() + seconds * 1000 });

// unary makes a promise of a unary call.
const unary = (client, request, options = within()) =>
  new Promise((resolve, reject) => {
    client.FetchUnary({ request }, options, (error, answer) => (error ? reject(error) : resolve(answer)));
  });

// statusOf is the gRPC status with which work that must fail does.
async function statusOf(work) {
  try {
    await work;
  } catch (error) {
    return grpc.status[error.code] ?? Promise.reject(error);
  }
  return assert.fail("what had to fail ended well");
}

// short is the name of a value, without what all names of its enum begin with.
const short = (value, prefix) => value.slice(prefix.length);

// describe is an outcome in one line.
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

// fetchOf is what the origin answers with these steps, tried again at once.
const fetchOf = (key, steps, fields = {}) => ({
  url: `${origin}/cycle/${prefix}${key}/${steps}`,
  retry_policy: { base_delay: { seconds: 0 } },
  ...fields,
});

// Bytes go out as they come: nothing is held back for a retry.
const atOnce = { body_policy: { hold_back_bytes: 0 } };

// One call and one answer, the body inside.
async function unaryFetch(client) {
  const { outcome, attempts } = await unary(client, fetchOf("unary", "503/200:body=hello"));
  const statuses = attempts.map((a) => a.response.status_code).join(" ");
  console.log(`unary: ${describe(outcome)}, statuses ${statuses}, body ${outcome.inline_body}`);

  // What the origin does is an outcome, never a status of gRPC.
  const missing = await unary(client, fetchOf("missing", "404"));
  console.log(`missing: ${describe(missing.outcome)}`);

  // A status speaks of the request or of the service.
  console.log(`refused: ${await statusOf(unary(client, { url: "no URL" }))}`);
}

// Attempts as they happen, and the body in pieces.
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

// A list over one stream; outcomes come as fetches end, by tag.
async function many(client) {
  const steps = { "many-a": "200:body=one", "many-b": "404", "many-c": "503/200:body=three" };
  const call = client.FetchMany(within());
  call.write({ tasks: Object.entries(steps).map(([tag, step]) => ({ tag, request: fetchOf(tag, step) })) });
  call.end(); // half-closes the stream: the call ends with the last outcome
  const outcomes = new Map();
  for await (const answer of call) {
    for (const { tag, response } of answer.responses) {
      assert.ok(!outcomes.has(tag), `a second outcome of ${tag}`);
      outcomes.set(tag, response.outcome);
    }
  }
  assert.deepEqual([...outcomes.keys()].sort(), Object.keys(steps).sort());
  for (const tag of [...outcomes.keys()].sort()) {
    console.log(`${tag}: ${describe(outcomes.get(tag))}, ${outcomes.get(tag).inline_body.length} bytes`);
  }
}

// Cancelling the call ends the request to the origin.
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

// The service keeps a part of the deadline back, to tell the outcome in.
async function deadline(client) {
  const { outcome } = await unary(client, fetchOf("deadline", "silent"), within(6));
  console.log(`deadline: ${describe(outcome)}`);
}

// With the published service config a refused call is made again.
async function configured(client) {
  const held = [];
  for (let i = 0; i < places; i++) {
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
  await sleep(100); // so that it is refused once; without that it would pass all the same
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
