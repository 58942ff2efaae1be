// Compares three codecs for Node on the messages of the package: its own (client/node/dist),
// static code of protobufjs, and protobuf-es. Each encodes a FetchManyRequest of 16 tasks, and decodes a
// FetchManyResponse of 16 outcomes with bodies of 1 KiB, and a FetchResponse with one such outcome.
//
// Usage, in an empty folder, with REPOSITORY the folder of this repository and the package built there:
//
//   npm install protobufjs@7.6.6 protobufjs-cli@1.3.3 @bufbuild/protobuf@2.17.0 @bufbuild/protoc-gen-es@2.13.0
//   npx pbjs -t static-module -w commonjs --keep-case -p REPOSITORY/proto -o static.cjs fetchd/v1/fetch.proto
//   protoc -I REPOSITORY/proto --plugin=node_modules/.bin/protoc-gen-es --es_out=. --es_opt=target=js fetchd/v1/fetch.proto
//   cp REPOSITORY/test/bench/callers/node/codecs.mjs . && node codecs.mjs REPOSITORY

import { pathToFileURL } from "node:url";

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";

const own = await import(pathToFileURL(`${process.argv[2]}/client/node/dist/contract.js`));
const { Reader, Writer } = await import(pathToFileURL(`${process.argv[2]}/client/node/dist/wire.js`));
const { default: { fetchd } } = await import(pathToFileURL(`${process.cwd()}/static.cjs`));
const es = await import(pathToFileURL(`${process.cwd()}/fetchd/v1/fetch_pb.js`));
const v1 = fetchd.v1;

const url = "http://127.0.0.1:34567/b/1024";
const exchange = {
  remote_address: "127.0.0.1:34567", protocol: "HTTP/1.1", connection_reused: true,
  processing_duration: { nanos: 412345 }, transfer_duration: { nanos: 23456 },
};
const outcome = {
  kind: 1, final_url: url, attempt_count: 1, exchange_count: 1, response_attempt: 1, decision_rule: "H0", fetch_id: "0123456789abcdef0123456789abcdef",
  response: {
    status_code: 200, content_length: 1024, protocol: "HTTP/1.1",
    headers: [
      { name: "Content-Length", value: "1024" }, { name: "Content-Type", value: "application/octet-stream" }, { name: "Date", value: "Mon, 23 Nov 2026 00:00:00 GMT" },
    ],
  },
  hops: [{ url, status_code: 200, method: "GET", exchange, start_offset: { nanos: 1234 } }],
  inline_body: Buffer.alloc(1024, 97), total_duration: { nanos: 512345 },
  body_summary: { size_bytes: 1024, sha256: "ab".repeat(32), encoded_size_bytes: 1024, length_known: true },
};
const event = { sequence: 1, elapsed_offset: { nanos: 512345 }, outcome };
const one = Buffer.from(v1.FetchResponse.encode({ events: [event] }).finish());
const many = Buffer.from(v1.FetchManyResponse.encode({ events: Array.from({ length: 16 }, (_, i) => ({ tag: String(i), event })) }).finish());

const headers = [{ name: "Accept", value: "text/html" }];
const tasks = () => Array.from({ length: 16 }, (_, i) => ({ tag: String(i), request: { url, headers, event_level: 1, body_policy: { inline: {} } } }));
const named = () => Array.from({ length: 16 }, (_, i) => ({ url, headers, event_level: "outcome", body_policy: { inline: {} } }));
const esTasks = () => Array.from({ length: 16 }, (_, i) => ({ tag: String(i), request: { url, headers, eventLevel: 1, bodyPolicy: { delivery: { case: "inline", value: {} } } } }));
const writer = new Writer();

const work = {
  "encode FetchManyRequest, 16 tasks": {
    own: () => named().map((request) => (own.encodeFetchRequest(writer, request), writer.finish())),
    protobufjs: () => v1.FetchManyRequest.encode({ tasks: tasks() }).finish(),
    "protobuf-es": () => toBinary(es.FetchManyRequestSchema, create(es.FetchManyRequestSchema, { tasks: esTasks() })),
  },
  "decode FetchManyResponse, 16 outcomes": {
    own: () => own.decodeFetchManyResponse(new Reader(many), many.length),
    protobufjs: () => v1.FetchManyResponse.decode(many),
    "protobuf-es": () => fromBinary(es.FetchManyResponseSchema, many),
  },
  "decode FetchResponse with its outcome": {
    own: () => own.decodeFetchResponse(new Reader(one), one.length),
    protobufjs: () => v1.FetchResponse.decode(one),
    "protobuf-es": () => fromBinary(es.FetchResponseSchema, one),
  },
};

for (const [what, codecs] of Object.entries(work)) {
  const best = {};
  for (let round = 0; round < 5; round++) {
    for (const [name, run] of Object.entries(codecs)) {
      let n = 0;
      const cpu = process.cpuUsage();
      for (const end = performance.now() + 400; performance.now() < end; n += 50) for (let i = 0; i < 50; i++) run();
      const { user, system } = process.cpuUsage(cpu);
      best[name] = Math.min(best[name] ?? Infinity, (user + system) / n);
    }
  }
  console.log(`${what}: ${Object.entries(best).map(([name, us]) => `${name} ${us.toFixed(1)}`).join(", ")} µs of CPU`);
}
