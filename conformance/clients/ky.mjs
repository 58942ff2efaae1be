#!/usr/bin/env -S sh -c 'NODE_EXTRA_CA_CERTS=$ORIGIN_CA exec node "$0" "$1"'
// ky with its defaults, of which two retries are one. It is the fetch of Node with retries.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const require = createRequire(`${process.env.CLIENTS_NODE ?? process.cwd()}/`);
const path = require.resolve("ky");

if (process.argv[2] === "--version") {
  const { version } = JSON.parse(readFileSync(new URL("../package.json", pathToFileURL(path))));
  console.log(`ky ${version} on node ${process.version}, defaults`);
  process.exit();
}
const { default: ky } = await import(pathToFileURL(path));
process.stdout.write(Buffer.from(await ky.get(process.argv[2]).arrayBuffer()));
