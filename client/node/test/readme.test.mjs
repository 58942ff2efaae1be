import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { Origin, service } from "./rig.mjs";

const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");

test("the retry loop with got and the program without it print the same", { skip: Number(process.versions.node.split(".")[0]) < 20 && "got needs Node 20" }, async () => {
  const origin = await Origin.start();
  const fetchd = await service(origin);
  const printed = {};
  for (const name of ["retry-got.mjs", "retry.mjs"]) {
    const [, program] = readme.split(`<!-- file: ${name} -->\n\`\`\`js\n`);
    const text = program?.split("\n```")[0] ?? readFileSync(new URL(name, import.meta.url), "utf8");
    const file = fileURLToPath(new URL(`.${process.pid}-${name}`, import.meta.url)); // here it finds both packages
    after(() => rmSync(file, { force: true }));
    writeFileSync(file, text.replaceAll("http://127.0.0.1:9080", origin.url("")).replaceAll("http://127.0.0.1:8080", fetchd.url));
    printed[name] = (await promisify(execFile)(process.execPath, [file], { timeout: 30_000 })).stdout;
  }
  assert.equal(printed["retry-got.mjs"], "200 one\n200 two\n200 three\n404 four\n");
  assert.equal(printed["retry.mjs"], printed["retry-got.mjs"]);
  await fetchd.signal("SIGKILL");
});
