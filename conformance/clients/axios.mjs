#!/usr/bin/env node
// axios with axios-retry: three retries and an exponential delay, as its README shows it.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { Agent } from "node:https";
const require = createRequire(`${process.env.CLIENTS_NODE ?? process.cwd()}/`);
const axios = require("axios");
const { default: axiosRetry } = require("axios-retry");

if (process.argv[2] === "--version") {
  const { version } = JSON.parse(readFileSync(require.resolve("axios-retry/package.json")));
  console.log(`axios ${axios.VERSION} with axios-retry ${version} on node ${process.version}, {retries: 3, retryDelay: exponentialDelay}`);
  process.exit();
}
const client = axios.create({ proxy: false, timeout: 10000, responseType: "arraybuffer", httpsAgent: new Agent({ ca: readFileSync(process.env.ORIGIN_CA) }) });
axiosRetry(client, { retries: 3, retryDelay: axiosRetry.exponentialDelay });
const response = await client.get(process.argv[2]);
process.stdout.write(response.data);
