// Runs a closed loop of fetches, as a team would write it in Node.
//
//   got               with its default retries, and an agent that reuses connections
//   undici            request() through a RetryAgent over an Agent
//   grpc-unary        fetchd's FetchUnary with @grpc/grpc-js
//   grpc-unary-http2  the same with http2.mjs, without a gRPC library
//   grpc-many         fetchd's FetchMany with @grpc/grpc-js, 16 tasks per message, sent as responses arrive
//   grpc-package      the fetch of the package client/node, which returns a standard Response
//   grpc-package-inline  the same with delivery inline, which the package sends over FetchMany
//   grpc-package-many the fetchMany of the package
//
// test/bench/callers/README.md describes the arguments and the output. The modules must be next to
// this file. The proto file is read from FETCHD_ROOT, by default the repository.

import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const batch = 16; // tasks per message of FetchMany
const mostOnStream = 256; // maximum number of tasks in flight on a stream of FetchMany

const span = {
  going: true,
  measuring: false,
  failed: 0,
  latencies: [], // milliseconds

  begin() {
    console.error("measuring");
    this.cpu = process.cpuUsage();
    this.start = performance.now();
    this.measuring = true;
  },

  finish() {
    this.measuring = false;
    this.wall = performance.now() - this.start;
    this.cpu = process.cpuUsage(this.cpu);
    console.error("measured");
    this.going = false;
  },

  // ended counts a fetch that started at start of performance.now(). A fetch that ends
  // outside the span is not counted.
  ended(start, good) {
    if (!this.measuring) return;
    if (good) this.latencies.push(performance.now() - start);
    else this.failed++;
  },

  // percentile is by nearest rank, in whole microseconds, or null if no fetch succeeded.
  percentile(sorted, p) {
    if (sorted.length === 0) return null;
    return Math.round(sorted[Math.max(0, Math.ceil((sorted.length * p) / 100) - 1)] * 1000);
  },

  report(kind) {
    const sorted = Float64Array.from(this.latencies).sort();
    const result = {
      kind,
      fetches: sorted.length + this.failed,
      failed: this.failed,
      seconds: this.wall / 1000,
      cpu_seconds: (this.cpu.user + this.cpu.system) / 1e6,
      p50_us: this.percentile(sorted, 50),
      p90_us: this.percentile(sorted, 90),
      p99_us: this.percentile(sorted, 99),
      max_rss_kib: process.resourceUsage().maxRSS,
    };
    console.log(JSON.stringify(result));
  },
};

// loops runs `open` loops of fetch, which returns whether the response is as expected.
function loops(open, fetch) {
  const loop = async () => {
    while (span.going) {
      const start = performance.now();
      span.ended(start, await fetch().catch(noted));
    }
  };
  return Promise.all(Array.from({ length: open }, loop));
}

// noted records a failed fetch. It prints only the first one. It yields to the event loop, so that
// timers run even if fetches fail immediately.
async function noted(error) {
  if (!noted.told) console.error(String(error));
  noted.told = true;
  await sleep(1);
  return false;
}

async function viaGot({ target, open, length }) {
  const { default: got } = await import("got");
  const agent = { http: new http.Agent({ keepAlive: true, maxSockets: open, maxFreeSockets: open }) };
  const client = got.extend({ agent, responseType: "buffer", throwHttpErrors: false });
  await loops(open, async () => {
    const { statusCode, body } = await client(target);
    return statusCode === 200 && body.length === length;
  });
  agent.http.destroy();
}

async function viaUndici({ target, open, length }) {
  const { Agent, RetryAgent, request } = await import("undici");
  const dispatcher = new RetryAgent(new Agent({ connections: open }));
  await loops(open, async () => {
    const { statusCode, body } = await request(target, { dispatcher });
    return (await body.arrayBuffer()).byteLength === length && statusCode === 200;
  });
  await dispatcher.close();
}

const repository = () => process.env.FETCHD_ROOT ?? fileURLToPath(new URL("../../../..", import.meta.url));

async function connect(address) {
  const { default: grpc } = await import("@grpc/grpc-js");
  const { default: protoLoader } = await import("@grpc/proto-loader");
  const { fetchd } = grpc.loadPackageDefinition(
    protoLoader.loadSync("fetchd/v1/fetch.proto", {
      includeDirs: [`${repository()}/proto`],
      keepCase: true,
      longs: Number,
      enums: String,
    }),
  );
  return new fetchd.v1.FetchService(address, grpc.credentials.createInsecure(), { "grpc.enable_http_proxy": 0 });
}

// The other callers get only the outcome of a fetch too, not each attempt.
const asked = (url) => ({ url, event_level: "EVENT_LEVEL_OUTCOME" });

const whole = (outcome, length) =>
  outcome.kind === "OUTCOME_KIND_SUCCESS" && outcome.response.status_code === 200 && outcome.inline_body.length === length;

async function viaUnary({ target, open, length, address }) {
  const client = await connect(address);
  await loops(
    open,
    () =>
      new Promise((resolve, reject) => {
        client.FetchUnary(asked(target), { deadline: Date.now() + 60_000 }, (error, answer) =>
          error ? reject(error) : resolve(whole(answer.outcome, length)),
        );
      }),
  );
  client.close();
}

async function viaHttp2({ target, open, length, address }) {
  const { fetcher } = await import("./http2.mjs");
  const { call, value, close } = fetcher(address, `${repository()}/proto`);
  const event_level = value("EventLevel", "EVENT_LEVEL_OUTCOME");
  const success = value("OutcomeKind", "OUTCOME_KIND_SUCCESS");
  await loops(open, async () => {
    const { outcome } = await call({ url: target, event_level });
    return outcome.kind === success && outcome.response.status_code === 200 && outcome.inline_body.length === length;
  });
  close();
}

async function viaMany({ target, open, length, address }) {
  const client = await connect(address);
  const streams = [];
  for (let left = open; left > 0; left -= mostOnStream) {
    streams.push(many(client, target, length, Math.min(left, mostOnStream)));
  }
  await Promise.all(streams);
  client.close();
}

// many keeps `open` fetches in flight on one stream. It sends a message when all its tasks fit,
// so fewer than `open` can be in flight for a moment.
function many(client, target, length, open) {
  const call = client.FetchMany();
  const started = new Map(); // by tag
  const size = Math.min(batch, open);
  let last = 0;

  const replenish = () => {
    while (span.going && started.size + size <= open) {
      const tasks = [];
      for (let i = 0; i < size; i++) {
        const tag = String(++last);
        started.set(tag, performance.now());
        tasks.push({ tag, request: asked(target) });
      }
      call.write({ tasks });
    }
    if (!span.going) call.end(); // the call ends with the last outcome
  };

  return new Promise((resolve, reject) => {
    call.on("data", ({ events }) => {
      for (const { tag, event } of events) {
        span.ended(started.get(tag), whole(event.outcome, length));
        started.delete(tag);
      }
      replenish();
    });
    call.on("error", reject);
    call.on("end", resolve);
    replenish();
  });
}

async function viaPackage({ target, open, length, address }, policies) {
  const { Client } = await import("fetchd");
  const client = new Client(`http://${address}`, { fetchd: policies });
  await loops(open, async () => {
    const response = await client.fetch(target);
    return (await response.arrayBuffer()).byteLength === length && response.status === 200;
  });
  await client.close();
}

async function viaPackageMany({ target, open, length, address }) {
  const { Client } = await import("fetchd");
  const client = new Client(`http://${address}`);
  const started = new Map(); // by request
  function* urls() {
    while (span.going) {
      const request = { url: target };
      started.set(request, performance.now());
      yield request;
    }
  }
  for await (const result of client.fetchMany(urls(), { open })) {
    span.ended(started.get(result.request), result.status === 200 && result.body.length === length);
    started.delete(result.request);
  }
  await client.close();
}

const kinds = {
  got: viaGot,
  undici: viaUndici,
  "grpc-unary": viaUnary,
  "grpc-unary-http2": viaHttp2,
  "grpc-many": viaMany,
  "grpc-package": viaPackage,
  "grpc-package-inline": (o) => viaPackage(o, { body_policy: { inline: {} } }),
  "grpc-package-many": viaPackageMany,
};

const { values } = parseArgs({
  options: {
    kind: { type: "string" },
    target: { type: "string" },
    grpc: { type: "string", default: "" },
    open: { type: "string", default: "64" },
    warmup: { type: "string", default: "1" },
    seconds: { type: "string", default: "5" },
  },
});
const open = Number(values.open);
if (!kinds[values.kind] || !values.target || !(open >= 1)) {
  console.error(`--kind is ${values.kind}, one of ${Object.keys(kinds).join(", ")}; --target is ${values.target}; --open is ${values.open}`);
  process.exit(2);
}

// The last path segment is the length of the body in bytes.
const length = Number(new URL(values.target).pathname.split("/").at(-1));
const load = kinds[values.kind]({ target: values.target, open, length, address: values.grpc });
const clock = (async () => {
  await sleep(Number(values.warmup) * 1000);
  span.begin();
  await sleep(Number(values.seconds) * 1000);
  span.finish();
})();
await Promise.all([load, clock]);
span.report(values.kind);
