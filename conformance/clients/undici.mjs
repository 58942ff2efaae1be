#!/usr/bin/env node
// undici's request through its RetryAgent and redirect interceptor, with their defaults but three retries.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const require = createRequire(`${process.env.CLIENTS_NODE ?? process.cwd()}/`);
const { Agent, RetryAgent, interceptors, request } = require("undici");

if (process.argv[2] === "--version") {
  console.log(`undici ${require("undici/package.json").version} on node ${process.version}, RetryAgent({maxRetries: 3})`);
  process.exit();
}
const agent = new Agent({ connect: { ca: readFileSync(process.env.ORIGIN_CA) }, headersTimeout: 10000, bodyTimeout: 10000 });
const dispatcher = new RetryAgent(agent, { maxRetries: 3 }).compose(interceptors.redirect({ maxRedirections: 5 }));
const response = await request(process.argv[2], { dispatcher });
const body = Buffer.from(await response.body.arrayBuffer());
if (response.statusCode >= 300) {
  console.error(`status ${response.statusCode}`);
  process.exit(1);
}
process.stdout.write(body);
