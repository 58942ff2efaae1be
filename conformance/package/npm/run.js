#!/usr/bin/env node
// Runs the program for this system. The package has one for Linux and macOS, on x64 and arm64.
"use strict";

const { spawn } = require("node:child_process");
const { existsSync } = require("node:fs");
const { constants } = require("node:os");
const { join } = require("node:path");

const platform = `${process.platform}-${process.arch}`;
const program = join(__dirname, "bin", platform, "fetch-conformance");
if (!existsSync(program)) {
  console.error(`fetch-conformance: the package has no program for ${platform}`);
  process.exit(2);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal)); // the program decides how to end
}
child.on("error", (error) => {
  console.error(`fetch-conformance: ${error.message}`);
  process.exit(2);
});
child.on("exit", (code, signal) => process.exit(signal === null ? code : 128 + constants.signals[signal]));
