// The client against an origin in this process that answers with raw bytes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import process from "node:process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const EARLY_HINTS = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";

interface Case {
  name: string;
  /** What the origin sends to the requests, in order. The last answer is repeated. */
  answers: string[];
  requests: number;
  body?: string;
  /** What the line on standard error contains. Absent: the fetch succeeds. */
  error?: string;
  /** Least time between the first two requests, in milliseconds. */
  wait?: number;
}

const cases: Case[] = [
  { name: "503 then 200 (H1, W1)", answers: ["HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", OK], requests: 2, body: "ok", wait: 200 },
  { name: "404 (H6)", answers: ["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"], requests: 1, error: "http_client_error (H6)" },
  {
    name: "the first of two Retry-After counts (W2)",
    answers: ["HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", OK],
    requests: 2, body: "ok", wait: 1000,
  },
  {
    name: "a Retry-After of an hour (W3)", answers: ["HTTP/1.1 503 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n"],
    requests: 1, error: "retry_after_too_long",
  },
  { name: "closed before the head (N4)", answers: ["", OK], requests: 2, body: "ok" },
  { name: "closed in the head for ever (N4, I4)", answers: ["HTTP/1.1 200 OK\r\nConte"], requests: 3, error: "connection_reset (N4)" },
  { name: "short body (N8)", answers: ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", OK], requests: 2, body: "ok" },
  {
    name: "chunk size that is no number (N8)", requests: 2, body: "ok",
    answers: ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", OK],
  },
  {
    name: "content coding that is not supported (C3)", requests: 1, error: "undecodable (C3)",
    answers: ["HTTP/1.1 200 OK\r\nContent-Encoding: x\r\nContent-Length: 2\r\n\r\nok"],
  },
  {
    name: "two content codings (C3)", requests: 1, error: "undecodable (C3)",
    answers: ["HTTP/1.1 200 OK\r\nContent-Encoding: identity, gzip\r\nContent-Length: 2\r\n\r\nok"],
  },
  {
    name: "two different Content-Length (N10)", requests: 1, error: "protocol (N10)",
    answers: ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"],
  },
  { name: "redirect without a Location (H9)", answers: ["HTTP/1.1 302 Found\r\nContent-Length: 2\r\n\r\nno"], requests: 1, body: "" },
  { name: "101 (N10)", answers: ["HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"], requests: 1, error: "protocol (N10)" },
  { name: "not HTTP (N10)", answers: ["SSH-2.0-server\r\n"], requests: 1, error: "protocol (N10)" },
  { name: "16 early hints (H0)", answers: [EARLY_HINTS.repeat(16) + OK], requests: 1, body: "ok" },
  { name: "17 early hints (N10)", answers: [EARLY_HINTS.repeat(17) + OK], requests: 1, error: "protocol (N10)" },
  {
    name: "a head of 30 kB (section 12)", requests: 1, body: "ok",
    answers: [`HTTP/1.1 200 OK\r\nX: ${"x".repeat(30_000)}\r\nContent-Length: 2\r\n\r\nok`],
  },
  { name: "more than five redirects (R1)", answers: ["HTTP/1.1 302 Found\r\nLocation: n/\r\nContent-Length: 0\r\n\r\n"], requests: 6, error: "/n/n/n/n/n/: too_many_redirects (R1)" },
  { name: "redirect to itself (R2)", answers: ["HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"], requests: 1, error: "redirect_loop (R2)" },
];

for (const { name, answers, requests, body, error, wait } of cases) {
  test(name, async () => {
    const times: number[] = [];
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => {
        const answer = answers[Math.min(times.length, answers.length - 1)] ?? "";
        times.push(performance.now());
        socket.end(answer);
      });
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    try {
      const { code, stdout, stderr } = await runClient(`http://127.0.0.1:${server.address().port}/`);
      assert.equal(code, error === undefined ? 0 : 1, stderr);
      assert.equal(stdout, body ?? "");
      assert.equal(stderr.split("\n").length - 1, error === undefined ? 0 : 1, stderr);
      assert(stderr.includes(error ?? ""), stderr);
      assert.equal(times.length, requests);
      if (wait !== undefined) assert((times[1] ?? 0) - (times[0] ?? 0) >= wait);
    } finally {
      server.close();
    }
  });
}

test("--version prints a version", async () => {
  const { code, stdout } = await runClient("--version");
  assert.equal(code, 0);
  assert(/^[0-9.]+\n$/.test(stdout));
});

function runClient(argument: string): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const program = fileURLToPath(new URL("../src/client.js", import.meta.url));
  const child = spawn(process.execPath, [program, argument], { stdio: "pipe", env: process.env });
  let stdout = "";
  let stderr = "";
  child.stdout?.on("data", (chunk) => (stdout += String(chunk)));
  child.stderr?.on("data", (chunk) => (stderr += String(chunk)));
  return new Promise((done) => child.on("close", (code) => done({ code, stdout, stderr })));
}
