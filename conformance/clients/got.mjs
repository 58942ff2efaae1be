#!/usr/bin/env node
// got with its defaults, of which two retries and ten redirects are some, and a limit of time.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const require = createRequire(`${process.env.CLIENTS_NODE ?? process.cwd()}/`);
const path = require.resolve("got");

if (process.argv[2] === "--version") {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", pathToFileURL(path))));
  console.log(`got ${version} on node ${process.version}, defaults`);
  process.exit();
}
const { got } = await import(pathToFileURL(path));
const body = await got(process.argv[2], {
  https: { certificateAuthority: readFileSync(process.env.ORIGIN_CA) }, timeout: { socket: 10000 },
}).buffer();
process.stdout.write(body);
