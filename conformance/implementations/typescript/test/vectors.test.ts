// Every vector of the directory $VECTORS (default ../../vectors) must lead to its verdict.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";

import { decide } from "../src/decide.js";
import type { Observation, Verdict } from "../src/types.js";

interface Vector {
  name: string;
  observation: Observation;
  verdict: Verdict;
}

const directory = process.env.VECTORS ?? "../../vectors";
const files = readdirSync(directory).filter((name) => name.endsWith(".json"));

test("there are vectors", () => assert(files.length > 0));

for (const file of files) {
  const { vectors } = JSON.parse(readFileSync(`${directory}/${file}`, "utf8")) as { vectors: Vector[] };
  for (const vector of vectors) {
    test(`${file}: ${vector.name}`, () => {
      const got = decide(vector.observation);
      // A reason is compared only if the vector has one.
      if ("failure" in got && got.failure && !("failure" in vector.verdict && vector.verdict.failure?.reason)) {
        delete got.failure.reason;
      }
      assert.deepEqual(got, vector.verdict);
    });
  }
}
