#!/usr/bin/env node
// decide reads JSON lines {"name": …, "observation": …} and writes a line {"name": …, "verdict": …} for each.

import { createInterface } from "node:readline";
import process from "node:process";

import { decide } from "./decide.js";
import type { Observation } from "./types.js";

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  if (line.trim() === "") continue;
  const { name, observation } = JSON.parse(line) as { name: string; observation: Observation };
  process.stdout.write(`${JSON.stringify({ name, verdict: decide(observation) })}\n`);
}
