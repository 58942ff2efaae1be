#!/usr/bin/env node
// client fetches a URL with GET and follows the rules of profile STANDARD.

import { spawn } from "node:child_process";
import { subscribe } from "node:diagnostics_channel";
import process from "node:process";

import { decide, formatDuration, header, parseDuration } from "./decide.js";
import type { FailureClass, HttpResponse, Observation, Verdict } from "./types.js";
import { parseUrl, resolve, sameRequestUrl, type HttpUrl } from "./url.js";

const VERSION = "0.1.0";

// Limits of sections 2, 9 and 12, in milliseconds and bytes.
const TOTAL_TIMEOUT = 60_000;
const ATTEMPT_TIMEOUT = 30_000;
const CONNECT_TIMEOUT = 10_000;
const HEADER_TIMEOUT = 15_000;
const IDLE_TIMEOUT = 15_000;
const MAX_BODY = 16 << 20;
const MAX_HEAD = 64 << 10;
const MAX_INFORMATIONAL = 16;

/** Ended is the reason of an abort: the client ended the exchange, and the failure says why. */
class Ended extends Error {
  constructor(readonly failure: FailureClass) {
    super("ended by the client");
  }
}

/** A connection passes these phases. If no type identifies an error, the phase decides (section 3). */
type Phase = "connecting" | "sent" | "head" | "body";

/** InFlight is the state of an exchange. */
interface InFlight {
  phase: Phase;
  socket?: { readableEnded: boolean };
  /** Number of 1xx responses. */
  informational: number;
  /** Fields of the final response. The Headers of fetch join fields with the same name, but the first one counts. */
  fields?: [string, string][];
  arm(timeout: number, failure: FailureClass): void;
  fail(failure: FailureClass): void;
}

/** current is the exchange that is in flight. There is at most one. */
let current: InFlight | undefined;

// Node's fetch reports on these channels when it hands a request to a connection, and when it gets a head.
subscribe("undici:client:sendHeaders", (message) => {
  if (current?.phase !== "connecting") return;
  current.socket = (message as { socket: { readableEnded: boolean } }).socket;
  current.phase = "sent";
  current.arm(HEADER_TIMEOUT, "response_timeout"); // N7
});
subscribe("undici:request:headers", (message) => {
  if (!current) return;
  const { response } = message as { response: { statusCode: number; headers: Uint8Array[] } };
  if (response.statusCode < 200) {
    const tooMany = ++current.informational > MAX_INFORMATIONAL; // section 12
    if (tooMany || response.statusCode === 101) current.fail("protocol"); // N10
    return;
  }
  current.phase = "head";
  const latin1 = new TextDecoder("latin1");
  const texts = response.headers.map((bytes) => latin1.decode(bytes));
  current.fields = texts.flatMap((name, i): [string, string][] => (i % 2 ? [] : [[name, texts[i + 1] ?? ""]]));
});

interface Exchange {
  response?: HttpResponse;
  failure?: FailureClass;
  body: Uint8Array[];
  detail: string;
}

/** send sends one request, and reads the body of a 2xx. Each hop is sent once (I6). */
async function send(url: string, attemptEnds: number, fetchEnds: number): Promise<Exchange> {
  const abort = new AbortController();
  const timers = new Map<string, ReturnType<typeof setTimeout>>();
  const arm = (name: string, timeout: number, failure: FailureClass): void => {
    clearTimeout(timers.get(name));
    timers.set(name, setTimeout(() => abort.abort(new Ended(failure)), Math.max(timeout, 0)));
  };
  arm("fetch", fetchEnds - performance.now(), "deadline"); // P3
  arm("attempt", attemptEnds - performance.now(), "attempt_timeout"); // N11
  const exchange: Exchange = { body: [], detail: "" };
  const inFlight: InFlight = {
    phase: "connecting",
    informational: 0,
    arm: (timeout, failure) => arm("phase", timeout, failure),
    fail: (failure) => abort.abort(new Ended(failure)),
  };
  current = inFlight;
  inFlight.arm(CONNECT_TIMEOUT, "connect_timeout"); // N3
  try {
    const response = await fetch(url, {
      redirect: "manual",
      signal: abort.signal,
      headers: { "User-Agent": `fetch-decision/${VERSION}`, Accept: "*/*", "Accept-Encoding": "gzip, br" },
    });
    exchange.response = { status: response.status, headers: inFlight.fields ?? [...response.headers] };
    inFlight.phase = "body";
    if (response.status < 200 || response.status > 299) {
      clearTimeout(timers.get("phase"));
      await response.body?.cancel();
      return exchange;
    }
    if (response.body && !isDecoded(exchange.response)) throw new Ended("undecodable"); // C3
    inFlight.arm(IDLE_TIMEOUT, "body_timeout"); // N9
    let size = 0;
    for await (const chunk of response.body ?? []) {
      inFlight.arm(IDLE_TIMEOUT, "body_timeout");
      size += chunk.length;
      if (size > MAX_BODY) throw new Ended("body_too_large"); // C4
      exchange.body.push(chunk);
    }
  } catch (error) {
    exchange.failure = failureOf(error, inFlight, url.startsWith("https:"));
    exchange.detail = describe(error);
  } finally {
    timers.forEach((timer) => clearTimeout(timer));
    current = undefined;
  }
  return exchange;
}

/** isDecoded reports whether fetch decodes a body. It passes on the bytes of a coding that it does not support. */
function isDecoded(response: HttpResponse): boolean {
  const codings = (header(response, "Content-Encoding") ?? "").toLowerCase();
  return ["", "identity", "gzip", "x-gzip", "br"].includes(codings);
}

/** CERTIFICATE has the codes of a certificate that is not acceptable (N6): those of OpenSSL and Node's own. */
const CERTIFICATE = /^(ERR_TLS_CERT_ALTNAME_INVALID|CERT_.*|CRL_.*|UNABLE_TO_.*|ERROR_IN_C.*|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|INVALID_(CA|PURPOSE)|PATH_LENGTH_EXCEEDED|HOSTNAME_MISMATCH)$/;

/** failureOf returns the class of an error, from its code and the phase (section 3, "Types, not texts"). */
function failureOf(error: unknown, { phase, socket }: InFlight, tls: boolean): FailureClass {
  for (const cause of causes(error)) {
    if (cause instanceof Ended) return cause.failure;
    const code = "code" in cause ? String(cause.code) : "";
    if (code === "ENOTFOUND") return "dns_not_found"; // N1
    if (code.startsWith("EAI_")) return "dns_failure";
    if (code === "ECONNREFUSED") return "connect_refused"; // N2
    if (code === "UND_ERR_CONNECT_TIMEOUT" || (code === "ETIMEDOUT" && phase === "connecting")) return "connect_timeout"; // N3
    if (CERTIFICATE.test(code)) return "tls_certificate"; // N6
    if (code.startsWith("ERR_SSL_") || code === "EPROTO") return "tls_handshake"; // N5
    if (code === "EMFILE" || code === "ENFILE") return "internal"; // P6
    if (code.startsWith("Z_") || code.startsWith("ERR__ERROR_FORMAT_")) return "undecodable"; // C3
    if (phase !== "body" && (code.startsWith("HPE_") || code === "UND_ERR_HEADERS_OVERFLOW")) return "protocol"; // N10
    if (phase === "connecting" && tls && code === "ECONNRESET") return "tls_handshake"; // N5
    // fetch ends a connection with the same error after a 101 (N10). Only then the origin has not ended it.
    if (phase === "sent" && code === "UND_ERR_SOCKET") return socket?.readableEnded ? "connection_reset" : "protocol";
    if (phase === "sent" && "syscall" in cause) return "connection_reset"; // N4: an I/O error
  }
  if (phase === "connecting") return "connect_failure";
  if (phase === "body") return "body_interrupted"; // N8
  return "protocol"; // the head arrived, and cannot be used
}

/** causes returns an error and the errors that it was caused by. */
function* causes(error: unknown): Generator<Error> {
  for (let e = error; e instanceof Error; e = e.cause) yield e;
}

function describe(error: unknown): string {
  return [...causes(error)].map((e) => e.message || e.name).join(": ").replace(/\s+/g, " ");
}

/** fetchUrl runs the attempts of a fetch, and returns its exit code. */
async function fetchUrl(first: string): Promise<number> {
  const fetchEnds = performance.now() + TOTAL_TIMEOUT;
  for (let attempt = 1; ; attempt++) {
    const { verdict, exchange, url } = await runAttempt(first, attempt, fetchEnds);
    if ("retry" in verdict.decision) {
      await sleep(verdict.decision.retry.delay);
      continue;
    }
    if (verdict.outcome !== "failed") {
      for (const chunk of exchange.body) process.stdout.write(chunk);
      return 0;
    }
    const failure = verdict.failure;
    const status = exchange.response ? `status ${exchange.response.status}` : "";
    const about = [status, exchange.detail].filter(Boolean).join(", ");
    const later = failure?.retry_after ? `; retry after ${failure.retry_after}` : "";
    process.stderr.write(
      `client: ${url}: ${failure?.class} (${failure?.rule})${about && `: ${about}`}; ${verdict.decision.stop} after attempt ${attempt}${later}\n`);
    return 1;
  }
}

interface AttemptEnd {
  verdict: Exclude<Verdict, { redirect: unknown }>;
  exchange: Exchange;
  url: string;
}

/** runAttempt sends the hops of one attempt, until decide returns something else than a redirect. */
async function runAttempt(first: string, attempt: number, fetchEnds: number): Promise<AttemptEnd> {
  const attemptEnds = performance.now() + ATTEMPT_TIMEOUT;
  const seen: HttpUrl[] = [];
  for (let url = first; ; ) {
    const hop = parseUrl(url);
    if (hop) seen.push(hop);
    const exchange = await send(url, attemptEnds, fetchEnds);
    const observation: Observation = {
      url: first, hop_url: url, attempt,
      observed_at: new Date().toISOString(),
      time_left: formatDuration(BigInt(Math.max(0, Math.floor(fetchEnds - performance.now()))) * 1_000_000n),
    };
    if (seen.length > 1) observation.redirects = seen.length - 1;
    if (exchange.response) observation.response = exchange.response;
    const failures = exchange.failure ? [exchange.failure] : [];
    if (hop && isLoop(hop, exchange.response, seen)) failures.push("redirect_loop");
    if (failures.length > 0) observation.failures = failures;
    const verdict = decide(observation);
    if (!("redirect" in verdict)) return { verdict, exchange, url };
    url = verdict.redirect.url;
  }
}

/** isLoop reports whether a redirect leads to a URL of this attempt (D3). All its requests have the same headers. */
function isLoop(hop: HttpUrl, response: HttpResponse | undefined, seen: HttpUrl[]): boolean {
  if (!response || response.status < 300 || response.status > 399) return false;
  const location = header(response, "Location");
  const target = location ? resolve(hop, location) : undefined;
  return typeof target === "object" && seen.some((earlier) => sameRequestUrl(earlier, target));
}

function sleep(delay: string): Promise<void> {
  // Node drops fractions of a millisecond, and its timers can fire up to a millisecond early.
  const milliseconds = Math.ceil(Number(parseDuration(delay)) / 1e6);
  return new Promise((done) => setTimeout(done, milliseconds > 0 ? milliseconds + 1 : 0));
}

/** HEAD_OPTION makes Node accept response heads of 64 KiB. */
const HEAD_OPTION = `--max-http-header-size=${MAX_HEAD}`;

/**
 * runAgain starts this program again. Node reads additional authorities and the limit of a response
 * head only when it starts.
 */
function runAgain(script: string, url: string): void {
  const env = process.env.ORIGIN_CA ? { ...process.env, NODE_EXTRA_CA_CERTS: process.env.ORIGIN_CA } : process.env;
  const child = spawn(process.execPath, [HEAD_OPTION, "--no-warnings", script, url], { stdio: "inherit", env });
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => child.kill(signal));
  child.on("close", (code) => {
    process.exitCode = code ?? 1;
  });
}

async function main(): Promise<void> {
  const [, script = "", ...args] = process.argv;
  const [url] = args;
  if (args.length !== 1 || url === undefined) {
    process.stderr.write("usage: client URL | client --version\n");
    process.exitCode = 1;
  } else if (url === "--version") {
    process.stdout.write(`${VERSION}\n`);
  } else if (parseUrl(url)?.userinfo !== undefined || !parseUrl(url)) { // fetch accepts no credentials in a URL
    process.stderr.write("client: not an http or https URL without credentials\n");
    process.exitCode = 1;
  } else if (!process.execArgv.includes(HEAD_OPTION)) {
    runAgain(script, url);
  } else {
    const code = await fetchUrl(url);
    process.stdout.write("", () => process.exit(code)); // Idle connections would delay the exit.
  }
}

await main();
