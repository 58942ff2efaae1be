// Properties of decide for observations drawn at random, with a fixed seed.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { decide, formatDuration, parseDuration, parseHttpDate, splitmix64 } from "../src/decide.js";
import type { FailureClass, Observation, Verdict } from "../src/types.js";
import { parseUrl, resolve, type HttpUrl } from "../src/url.js";

const FAILURES: FailureClass[] = [
  "attempt_timeout", "auth_required", "body_interrupted", "body_timeout", "body_too_large", "cancelled",
  "connect_failure", "connect_refused", "connect_timeout", "connection_reset", "content_type", "deadline",
  "dns_failure", "dns_not_found", "empty_body", "forbidden", "http_client_error", "http_server_error",
  "integrity", "internal", "invalid_request", "out_of_memory", "protocol", "rate_limited", "redirect_loop",
  "redirect_rejected", "request_timeout", "response_timeout", "shutdown", "store_failure", "target_blocked",
  "tls_certificate", "tls_handshake", "too_many_redirects", "undecodable", "unexpected_not_modified",
  "write_timeout",
];

/** Draw draws from a fixed sequence of pseudo-random numbers. */
class Draw {
  #state = 1n;

  below(n: number): number {
    return Number(splitmix64(this.#state++) % BigInt(n));
  }

  one<T>(values: readonly T[]): T {
    return values[this.below(values.length)] as T;
  }

  maybe<T>(value: () => T): T | undefined {
    return this.below(2) === 0 ? value() : undefined;
  }
}

function drawObservation(draw: Draw): Observation {
  const duration = () => formatDuration(BigInt(draw.below(5_000)) * 1_000_000n);
  const status = () => draw.one([200, 204, 206, 300, 301, 302, 303, 304, 307, 308, 399, 400, 401, 403, 404,
    408, 418, 425, 429, 500, 503, 599, 99, 101, 600]);
  const url = () => draw.one(["http://a.example/", "https://a.example/x/y?z", "http://a.example:8080/x", "http://b.example/"]);
  const response = () => ({
    status: status(),
    headers: [
      ["Location", draw.one(["/next", "../up", "https://b.example/", "ftp://b.example/", "http://u@b.example/", ""])],
      ["Retry-After", draw.one(["0", "1", "31", "soon", "Mon, 02 Mar 2026 07:00:20 GMT"])],
    ] as [string, string][],
  });
  const all = {
    retry_policy: draw.maybe(() => given({
      profile: draw.maybe(() => draw.one(["standard", "download"] as const)),
      max_attempts: draw.maybe(() => 1 + draw.below(11)),
      base_delay: draw.maybe(duration),
      max_delay: draw.maybe(duration),
      multiplier: draw.maybe(() => 1 + draw.below(90) / 10),
      max_jitter: draw.maybe(duration),
      jitter_seed: draw.maybe(() => String(draw.below(1_000_000))),
      max_retry_after: draw.maybe(duration),
      retry_tls_handshake: draw.maybe(() => draw.below(2) === 0),
      additional_status_codes: draw.maybe(() => [draw.one([408, 418]), 425]),
      excluded_status_codes: draw.maybe(() => [draw.one([429, 500]), 503]),
      idempotency_key: draw.maybe(() => "key"),
      allow_non_idempotent: draw.maybe(() => true),
    })),
    redirect_policy: draw.maybe(() => given({
      follow: draw.maybe(() => draw.below(4) > 0),
      max_redirects: draw.maybe(() => draw.below(3)),
      scope: draw.maybe(() => draw.one(["any", "same_host", "same_origin"] as const)),
      forbid_downgrade: draw.maybe(() => true),
    })),
    method: draw.maybe(() => draw.one(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])),
    url: draw.maybe(url),
    hop_method: draw.below(4) === 0 ? "GET" : undefined,
    hop_url: draw.maybe(url),
    attempt: draw.maybe(() => 1 + draw.below(4)),
    redirects: draw.below(4) === 0 ? 1 + draw.below(6) : undefined,
    response: draw.below(4) > 0 ? response() : undefined,
    failures: draw.maybe(() => [draw.one(FAILURES), draw.one(FAILURES)].slice(draw.below(2))),
    conditional: draw.below(4) === 0 ? true : undefined,
    body_committed: draw.below(8) === 0 ? true : undefined,
    observed_at: "2026-03-02T07:00:00Z",
    time_left: draw.maybe(duration),
    credential: draw.maybe(() => draw.one(["not_asked", "refreshed", "refresh_failed", "refused_again"] as const)),
  };
  const observation = given(all) as Observation;
  if (!observation.response && !observation.failures) observation.failures = [draw.one(FAILURES)];
  return observation;
}

/** given drops the properties that are undefined. */
function given<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined)) as never;
}

/** property checks a statement for many observations. */
function property(name: string, check: (o: Observation, v: Verdict) => void): void {
  test(name, () => {
    const draw = new Draw();
    for (let i = 0; i < 5_000; i++) {
      const observation = drawObservation(draw);
      const verdict = decide(observation);
      try {
        check(observation, verdict);
      } catch (error) {
        throw new Error(`${JSON.stringify(observation)} => ${JSON.stringify(verdict)}`, { cause: error });
      }
    }
  });
}

property("a verdict has either a redirect, or an outcome with a decision", (_, v) => {
  assert("redirect" in v !== "decision" in v);
  assert("outcome" in v === "decision" in v);
});

property("a decision either retries or stops, and names a rule", (_, v) => {
  if (!("decision" in v)) return;
  assert("retry" in v.decision !== "stop" in v.decision);
  assert(/^[A-Z][0-9]+$/.test(v.decision.rule));
});

property("only a failed outcome has a failure, and only a failure has another stop reason than NO_FAILURE", (_, v) => {
  if (!("decision" in v)) return;
  assert.equal(v.outcome === "failed", v.failure !== undefined);
  assert.equal(v.outcome !== "failed", "stop" in v.decision && v.decision.stop === "no_failure");
});

property("a retry is never scheduled past the time left (W4)", (o, v) => {
  if (!("decision" in v) || !("retry" in v.decision) || o.time_left === undefined) return;
  assert(parseDuration(v.decision.retry.delay) < parseDuration(o.time_left));
});

property("no attempt exceeds max_attempts (I4)", (o, v) => {
  if (!("decision" in v) || !("retry" in v.decision)) return;
  const maximum = o.retry_policy?.max_attempts ?? (o.retry_policy?.profile === "download" ? 4 : 3);
  assert.equal(v.decision.retry.attempt, (o.attempt ?? 1) + 1);
  assert(v.decision.retry.attempt <= maximum);
});

property("a permanent failure is never retried, and is not retryable", (_, v) => {
  if (!("decision" in v) || v.failure?.type !== "permanent") return;
  assert("stop" in v.decision);
  assert(!v.failure.retryable);
});

property("a wait for Retry-After is at most max_retry_after, and is what the origin asked for (W2, W3)", (o, v) => {
  if (!("decision" in v) || !("retry" in v.decision) || v.decision.retry.source !== "retry_after") return;
  const fallback = o.retry_policy?.profile === "download" ? "60s" : "30s";
  assert(parseDuration(v.decision.retry.delay) <= parseDuration(o.retry_policy?.max_retry_after ?? fallback));
  assert.equal(v.decision.retry.delay, v.failure?.retry_after);
  assert(o.response?.status === 429 || o.response?.status === 503);
});

property("a backoff is at most max_delay and max_jitter (W1)", (o, v) => {
  if (!("decision" in v) || !("retry" in v.decision) || v.decision.retry.source !== "backoff") return;
  const download = o.retry_policy?.profile === "download";
  const longest = parseDuration(o.retry_policy?.max_delay ?? (download ? "32s" : "2s"))
    + parseDuration(o.retry_policy?.max_jitter ?? (download ? "0.5s" : "0s"));
  assert(parseDuration(v.decision.retry.delay) <= longest);
});

property("a request that may be sent only once is repeated only after a 401 or as a GET (I2, I3, A2)", (o, v) => {
  const repeatable = o.retry_policy?.idempotency_key !== undefined && o.retry_policy.allow_non_idempotent === true;
  if (!("decision" in v) || !["POST", "PATCH"].includes(o.method ?? "GET") || repeatable) return;
  assert(!v.failure?.retryable);
  if (!("retry" in v.decision)) return;
  assert(v.decision.retry.start === "failed_hop" || v.failure?.class === "auth_required");
  assert.equal(v.decision.retry.start === "failed_hop", o.hop_method === "GET");
});

property("an attempt after a refresh follows at once (A2)", (_, v) => {
  if (!("decision" in v) || !("retry" in v.decision) || v.decision.retry.source !== "auth_refresh") return;
  assert.equal(v.decision.retry.delay, "0s");
  assert.equal(v.failure?.type, "needs_auth");
});

property("a redirect that is followed leads to http or https, within max_redirects (R1, R3)", (o, v) => {
  if (!("redirect" in v)) return;
  const maximum = o.redirect_policy?.max_redirects ?? (o.retry_policy?.profile === "download" ? 20 : 5);
  assert((o.redirects ?? 0) < maximum);
  assert(parseUrl(v.redirect.url) !== undefined);
  assert.equal(v.redirect.body_kept, v.redirect.method === (o.hop_method ?? o.method ?? "GET"));
});

property("the order of the failures does not matter, and the observation is not changed", (o, v) => {
  const before = JSON.stringify(o);
  const reversed = o.failures ? { ...o, failures: [...o.failures].reverse() } : o;
  assert.deepEqual(decide(reversed), v);
  assert.equal(JSON.stringify(o), before);
});

test("splitmix64 has the values of its reference implementation", () => {
  assert.equal(splitmix64(0n), 0xe220a8397b1dcdafn);
  assert.equal(splitmix64(0x9e3779b97f4a7c15n), 0x6e789e6aa1b965f4n);
});

test("durations survive being written and read", () => {
  for (const text of ["0s", "0.200s", "1s", "0.000001s", "0.000000001s", "1.234567s", "9223372036.854775807s"]) {
    assert.equal(formatDuration(parseDuration(text)), text);
  }
  assert.equal(formatDuration(parseDuration("99999999999s")), "9223372036.854775807s");
});

test("the three forms of HTTP-date are the same date (W2)", () => {
  const expected = BigInt(Date.UTC(1994, 10, 6, 8, 49, 37)) * 1_000_000n;
  for (const text of ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]) {
    assert.equal(parseHttpDate(text, BigInt(Date.UTC(2026, 0, 1)) * 1_000_000n), expected);
  }
  assert.equal(parseHttpDate("Sun, 29 Feb 2026 00:00:00 GMT", 0n), undefined);
});

test("references are resolved as in RFC 3986 §5.4", () => {
  const base = parseUrl("http://a/b/c/d;p?q");
  assert(base);
  const examples: [string, string][] = [
    ["g", "http://a/b/c/g"], ["./g", "http://a/b/c/g"], ["g/", "http://a/b/c/g/"], ["/g", "http://a/g"],
    ["//g", "http://g"], ["?y", "http://a/b/c/d;p?y"], ["g?y", "http://a/b/c/g?y"], ["#s", "http://a/b/c/d;p?q#s"],
    ["g#s", "http://a/b/c/g#s"], ["g?y#s", "http://a/b/c/g?y#s"], [";x", "http://a/b/c/;x"], ["g;x", "http://a/b/c/g;x"],
    ["g;x?y#s", "http://a/b/c/g;x?y#s"], [".", "http://a/b/c/"], ["./", "http://a/b/c/"], ["..", "http://a/b/"],
    ["../", "http://a/b/"], ["../g", "http://a/b/g"], ["../..", "http://a/"], ["../../", "http://a/"],
    ["../../g", "http://a/g"], ["../../../g", "http://a/g"], ["/./g", "http://a/g"], ["/../g", "http://a/g"],
    ["g.", "http://a/b/c/g."], [".g", "http://a/b/c/.g"], ["..g", "http://a/b/c/..g"], ["./../g", "http://a/b/g"],
    ["./g/.", "http://a/b/c/g/"], ["g/./h", "http://a/b/c/g/h"], ["g/../h", "http://a/b/c/h"],
    ["g;x=1/../y", "http://a/b/c/y"], ["g?y/../x", "http://a/b/c/g?y/../x"], ["g#s/../x", "http://a/b/c/g#s/../x"],
    ["é ü", "http://a/b/c/%C3%A9%20%C3%BC"],
    ["/\u0001", "location_malformed"], ["g%zz", "location_malformed"],
    ["http:g", "location_relative"], ["http:///g", "location_relative"], ["g:h", "location_scheme"],
    ["http://b c/", "location_host"], ["http://[::1", "location_host"], ["http://[fe80::1%25lo]/", "location_zone"],
    ["http://b:99999/", "location_port"], ["http://b:c/", "location_port"],
    ["http://127.1/", "location_number_like_host"], ["http://a.0x7f/", "location_number_like_host"],
    [`/${"a".repeat(8192)}`, "location_too_long"],
  ];
  for (const [reference, expected] of examples) {
    const url = resolve(base, reference);
    assert.equal(typeof url === "string" ? url : url.text, expected, reference);
  }
});

test("a redirect inherits the fragment (RFC 9110 §10.2.2)", () => {
  const base = parseUrl("http://a/b#top");
  assert(base);
  const textOf = (location: string): unknown => (resolve(base, location) as HttpUrl).text;
  assert.equal(textOf("/c"), "http://a/c#top");
  assert.equal(textOf("/c#end"), "http://a/c#end");
});

test("the program decide answers each line in order", () => {
  const lines = [
    { name: "one", observation: { response: { status: 200 } } },
    { name: "two", observation: { response: { status: 503 } } },
  ];
  const program = fileURLToPath(new URL("../src/decide-main.js", import.meta.url));
  const run = spawnSync(process.execPath, [program], {
    input: `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`, encoding: "utf8",
  });
  assert.equal(run.status, 0, run.stderr);
  const answers = run.stdout.trim().split("\n").map((line) => JSON.parse(line) as unknown);
  assert.deepEqual(answers, lines.map(({ name, observation }) => ({ name, verdict: decide(observation) })));
});
