// Is imported before undici's tests: its fetch goes through fetchd at FETCHD_TARGET. The built package is in FETCHD_PACKAGE.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { Client, createFetch } = await import(pathToFileURL(`${process.env.FETCHD_PACKAGE}/dist/index.js`));
const undici = createRequire(`${process.cwd()}/`)("./index.js");
undici.fetch = createFetch(new Client(process.env.FETCHD_TARGET, { fetchd: { retry_policy: { max_attempts: 1 } } }));
