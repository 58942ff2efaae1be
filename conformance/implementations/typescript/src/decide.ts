// The decisions of docs/spec.md as a pure function: decide maps what was observed to what follows.
// Comments cite its rules, such as W2.

import type {
  Decision, Duration, Failure, FailureClass, FailureType, HttpResponse, Observation, Outcome, Redirect, Retry,
  Verdict,
} from "./types.js";
import { parseUrl, resolve, sameHost, sameOrigin } from "./url.js";

// --- Section 2: profiles ---

const SECOND = 1_000_000_000n;
const MILLISECOND = 1_000_000n;

/** MAX_DURATION is where durations saturate: the largest signed number of 64 bits, in nanoseconds. */
const MAX_DURATION = (1n << 63n) - 1n;

const PROFILES = {
  standard: {
    maxAttempts: 3, baseDelay: "0.1s", maxDelay: "2s", exponentShift: 0, maxJitter: "0s",
    maxRetryAfter: "30s", maxRedirects: 5, retries408: false, retryTlsHandshake: true,
  },
  download: {
    maxAttempts: 4, baseDelay: "1s", maxDelay: "32s", exponentShift: 1, maxJitter: "0.5s",
    maxRetryAfter: "60s", maxRedirects: 20, retries408: true, retryTlsHandshake: false,
  },
} as const;

/** Context is an observation with its defaults filled in. */
interface Context {
  method: string;
  url: string;
  hopMethod: string;
  hopUrl: string;
  attempt: number;
  redirects: number;
  response: HttpResponse | undefined;
  failures: ReadonlySet<FailureClass>;
  conditional: boolean;
  bodyCommitted: boolean;
  observedAt: bigint;
  timeLeft: bigint | undefined;
  credential: Observation["credential"];
  profile: (typeof PROFILES)[keyof typeof PROFILES];
  maxAttempts: number;
  baseDelay: bigint;
  maxDelay: bigint;
  multiplier: number;
  maxJitter: bigint;
  jitterSeed: bigint;
  maxRetryAfter: bigint;
  retryTlsHandshake: boolean;
  additional: ReadonlySet<number>;
  excluded: ReadonlySet<number>;
  follow: boolean;
  maxRedirects: number;
  scope: "any" | "same_host" | "same_origin";
  forbidDowngrade: boolean;
  /** Whether I2 permits the request of the fetch only once. */
  sentOnce: boolean;
}

/** IDEMPOTENT has the methods that section 1 calls idempotent. */
const IDEMPOTENT: ReadonlySet<string> = new Set(["GET", "HEAD", "PUT", "DELETE", "OPTIONS"]);

function contextOf(o: Observation): Context {
  const retry = o.retry_policy ?? {};
  const redirect = o.redirect_policy ?? {};
  const profile = PROFILES[retry.profile ?? "standard"];
  const method = o.method ?? "GET";
  const url = o.url ?? "http://origin.example/";
  const repeatable = Boolean(retry.idempotency_key) && retry.allow_non_idempotent === true;
  return {
    method,
    url,
    hopMethod: o.hop_method ?? method,
    hopUrl: o.hop_url ?? url,
    attempt: o.attempt ?? 1,
    redirects: o.redirects ?? 0,
    response: o.response,
    failures: new Set(o.failures ?? []),
    conditional: o.conditional ?? false,
    bodyCommitted: o.body_committed ?? false,
    observedAt: o.observed_at === undefined ? BigInt(Date.now()) * MILLISECOND : parseTimestamp(o.observed_at),
    timeLeft: o.time_left === undefined ? undefined : parseDuration(o.time_left),
    credential: o.credential,
    profile,
    maxAttempts: retry.max_attempts ?? profile.maxAttempts,
    baseDelay: parseDuration(retry.base_delay ?? profile.baseDelay),
    maxDelay: parseDuration(retry.max_delay ?? profile.maxDelay),
    multiplier: retry.multiplier ?? 2,
    maxJitter: parseDuration(retry.max_jitter ?? profile.maxJitter),
    jitterSeed: BigInt(retry.jitter_seed ?? "0"),
    maxRetryAfter: parseDuration(retry.max_retry_after ?? profile.maxRetryAfter),
    retryTlsHandshake: retry.retry_tls_handshake ?? profile.retryTlsHandshake,
    additional: new Set(retry.additional_status_codes),
    excluded: new Set(retry.excluded_status_codes),
    follow: redirect.follow ?? true,
    maxRedirects: redirect.max_redirects ?? profile.maxRedirects,
    scope: redirect.scope ?? "any",
    forbidDowngrade: redirect.forbid_downgrade ?? false,
    sentOnce: !IDEMPOTENT.has(method) && !repeatable, // I2
  };
}

// --- Section 3: classification ---

/** CLASSES has the rule and the failure type of each class. Policies change the type of two of them. */
const CLASSES: Readonly<Record<FailureClass, readonly [rule: string, type: FailureType]>> = {
  dns_not_found: ["N1", "transient"],
  dns_failure: ["N1", "transient"],
  connect_refused: ["N2", "transient"],
  connect_timeout: ["N3", "transient"],
  connect_failure: ["N3", "transient"],
  connection_reset: ["N4", "transient"],
  tls_handshake: ["N5", "transient"],
  tls_certificate: ["N6", "permanent"],
  response_timeout: ["N7", "transient"],
  write_timeout: ["N7", "transient"],
  body_interrupted: ["N8", "transient"],
  body_timeout: ["N9", "transient"],
  protocol: ["N10", "permanent"],
  attempt_timeout: ["N11", "transient"],
  http_server_error: ["H1", "transient"],
  rate_limited: ["H2", "rate_limited"],
  auth_required: ["H3", "needs_auth"],
  forbidden: ["H4", "needs_auth"],
  request_timeout: ["H5", "transient"],
  http_client_error: ["H6", "permanent"],
  unexpected_not_modified: ["H8", "permanent"],
  too_many_redirects: ["R1", "permanent"],
  redirect_loop: ["R2", "permanent"],
  redirect_rejected: ["R3", "permanent"],
  content_type: ["C1", "permanent"],
  empty_body: ["C2", "permanent"],
  undecodable: ["C3", "permanent"],
  body_too_large: ["C4", "permanent"],
  integrity: ["C5", "permanent"],
  target_blocked: ["P1", "permanent"],
  invalid_request: ["P2", "permanent"],
  deadline: ["P3", "transient"],
  cancelled: ["P4", "permanent"],
  shutdown: ["P5", "transient"],
  internal: ["P6", "transient"],
  out_of_memory: ["P7", "transient"],
  store_failure: ["P8", "transient"],
};

// The groups of the precedence of section 3. In each group the first class that applies decides.
const SERVER_OR_CALLER: readonly FailureClass[] = [
  "internal", "invalid_request", "cancelled", "shutdown", "out_of_memory", "store_failure"];
const REDIRECT_FAULTS: readonly FailureClass[] = [
  "target_blocked", "redirect_rejected", "redirect_loop", "too_many_redirects"];
const BEFORE_HEAD: readonly FailureClass[] = [
  "dns_not_found", "dns_failure", "connect_refused", "connect_timeout", "connect_failure",
  "connection_reset", "tls_handshake", "tls_certificate", "response_timeout", "write_timeout",
  "protocol"];
const STATUS_CLASSES: readonly FailureClass[] = [
  "http_server_error", "rate_limited", "auth_required", "forbidden", "request_timeout",
  "http_client_error", "unexpected_not_modified"];
const TIME_LIMITS: readonly FailureClass[] = ["deadline", "attempt_timeout"];
const BODY_FAULTS: readonly FailureClass[] = [
  "body_interrupted", "body_timeout", "undecodable", "body_too_large", "empty_body", "integrity"];

/** STOPPING has the classes whose stop reason is STOPPED (I7). */
const STOPPING: ReadonlySet<FailureClass> = new Set(["cancelled", "shutdown", "out_of_memory", "store_failure"]);

/** Found is what an observation means: a failure, an end without a failure, or a redirect to follow. */
type Found =
  | { kind: "failure"; class: FailureClass; rule: string; reason?: string }
  | { kind: "end"; outcome: Outcome; rule: string }
  | { kind: "follow"; redirect: Redirect };

function classify(c: Context): Found {
  const target = redirectTarget(c);

  const stopped = firstOf(SERVER_OR_CALLER, c.failures); // 1
  if (stopped) return failureOf(stopped);

  if (target.kind !== "not_followed") { // 2; a redirect that is not to be followed is H9 (4)
    const faults = new Set(c.failures);
    if (target.kind === "faulty") faults.add(target.fault);
    const fault = firstOf(REDIRECT_FAULTS, faults);
    if (target.kind === "faulty" && fault === target.fault) return { ...failureOf(fault), reason: target.reason };
    if (fault === "too_many_redirects" || fault === "redirect_loop") return { ...failureOf(fault), reason: fault };
    if (fault) return failureOf(fault);
  }

  const beforeHead = firstOf(BEFORE_HEAD, c.failures); // 3
  if (beforeHead) return failureOf(beforeHead);

  const byStatus = classifyStatus(c, target); // 4
  const ended = c.failures.has("deadline") && c.credential !== "refreshed"; // before another credential was sent
  if (ended && byStatus?.kind === "failure" && canAuthenticate(c, byStatus.class)) return failureOf("deadline"); // A2, A8
  if (byStatus) return byStatus;

  const hasBody = c.response === undefined || isSuccess(c.response.status);
  if (hasBody && c.failures.has("content_type") && contentTypeMatters(c)) { // 5
    return failureOf("content_type");
  }
  const limit = firstOf(TIME_LIMITS, c.failures); // 6
  if (limit) return failureOf(limit);
  if (hasBody) { // 7
    const bodyFaults = new Set(c.failures);
    if (!emptyBodyMatters(c)) bodyFaults.delete("empty_body");
    const fault = firstOf(BODY_FAULTS, bodyFaults);
    if (fault) return failureOf(fault);
  }

  if (target.kind === "follow") return { kind: "follow", redirect: target.redirect };
  return { kind: "end", outcome: "success", rule: "H0" };
}

/**
 * classifyStatus returns what the status means, or undefined for a 2xx and a redirect to follow. A failure
 * that only a status can cause represents a status that was not passed on.
 */
function classifyStatus(c: Context, target: Target): Found | undefined {
  if (c.response) return meaningOf(c, c.response.status, target);
  const named = firstOf(STATUS_CLASSES, c.failures);
  return named && failureOf(named);
}

/** meaningOf returns what the status of the response means (H1 to H10, and N10). */
function meaningOf(c: Context, status: number, target: Target): Found | undefined {
  if (status >= 500 && status <= 599) return statusFailure("http_server_error");
  if (status === 429) return statusFailure("rate_limited");
  if (status === 401) return statusFailure("auth_required");
  if (status === 403) return statusFailure("forbidden");
  if (status >= 400 && status <= 499) {
    const cls = status === 408 ? "request_timeout" : "http_client_error";
    return statusFailure(cls, statusIsAdded(c, status) ? "H10" : undefined);
  }
  if (status === 304) {
    return c.conditional
      ? { kind: "end", outcome: "not_modified", rule: "H7" }
      : statusFailure("unexpected_not_modified");
  }
  if (target.kind === "not_followed") return { kind: "end", outcome: "redirect", rule: "H9" };
  if (status >= 200 && status <= 399) return undefined;
  return failureOf("protocol"); // N10: below 200 it is no final response
}

/** statusIsAdded reports whether H10 applies: the request adds a status that its profile does not retry. */
function statusIsAdded(c: Context, status: number): boolean {
  if (status === 408 && c.profile.retries408) return false;
  return c.additional.has(status) && !c.excluded.has(status);
}

function failureOf(cls: FailureClass): Found & { kind: "failure" } {
  return { kind: "failure", class: cls, rule: CLASSES[cls][0] };
}

function statusFailure(cls: FailureClass, rule: string = CLASSES[cls][0]): Found {
  return { kind: "failure", class: cls, rule };
}

function firstOf(order: readonly FailureClass[], present: ReadonlySet<FailureClass>): FailureClass | undefined {
  return order.find((cls) => present.has(cls));
}

function isSuccess(status: number): boolean {
  return status >= 200 && status <= 299;
}

/** contentTypeMatters reports whether C1 can apply: not to 204 and 205. */
function contentTypeMatters(c: Context): boolean {
  return c.response?.status !== 204 && c.response?.status !== 205;
}

/** emptyBodyMatters reports whether C2 can apply: not to a response to HEAD, nor to 204 and 205. */
function emptyBodyMatters(c: Context): boolean {
  return c.response === undefined || (c.hopMethod !== "HEAD" && contentTypeMatters(c));
}

/** typeOf returns the failure type of a failure, which the policy of the request can change. */
function typeOf(c: Context, cls: FailureClass, rule: string): FailureType {
  if (rule === "H10") return "transient";
  // N5: a request that has it retried makes it transient. One that turns it off changes nothing.
  if (cls === "tls_handshake") {
    return c.retryTlsHandshake || c.profile.retryTlsHandshake ? "transient" : "permanent";
  }
  return CLASSES[cls][1];
}

/** isRetried reports whether a failure is retried as its class says (the column "retried" of section 3). */
function isRetried(c: Context, cls: FailureClass, rule: string): boolean {
  switch (rule) {
    case "N1": case "N2": case "N3": case "N4": case "N7": case "N8": case "N9": case "N11": case "H10":
      return true;
    case "N5":
      return c.retryTlsHandshake;
    case "H1": case "H2":
      return !isExcluded(c);
    case "H5":
      return c.profile.retries408 && !isExcluded(c);
    case "H3": case "H4":
      return canAuthenticate(c, cls);
    default:
      return false;
  }
}

/** isExcluded reports whether the request has excluded the status. A class without a status is in no list. */
function isExcluded(c: Context): boolean {
  return c.response !== undefined && c.excluded.has(c.response.status);
}

/** canAuthenticate reports whether an attempt with another credential can follow a 401 or 403 (A2, A8). */
function canAuthenticate(c: Context, cls: FailureClass): boolean {
  if (c.credential === "challenged") return cls === "auth_required" || (cls === "forbidden" && isRepeatable(c));
  return cls === "auth_required" && (c.credential === "not_asked" || c.credential === "refreshed");
}

/**
 * isRepeatable reports whether I1, I2 or I3 permits to repeat the last request. I3 is about a request
 * that may be sent only once, after a redirect has turned it into GET.
 */
function isRepeatable(c: Context): boolean {
  return !c.sentOnce || c.hopMethod === "GET";
}

/** isRetryable reports whether a later fetch of the same request may succeed, and may be sent (section 3). */
function isRetryable(c: Context, cls: FailureClass, type: FailureType): boolean {
  if (c.sentOnce || cls === "internal") return false;
  return type === "transient" || type === "rate_limited" || canAuthenticate(c, cls);
}

// --- Section 6: redirects ---

/** Target is what the response says about a redirect. */
type Target =
  | { kind: "none" } // the response is no redirect
  | { kind: "not_followed" } // H9
  | { kind: "faulty"; fault: "redirect_rejected" | "too_many_redirects"; reason: string } // R3, R1
  | { kind: "follow"; redirect: Redirect };

function redirectTarget(c: Context): Target {
  if (c.response === undefined) return { kind: "none" };
  const status = c.response.status;
  if (status < 300 || status > 399 || status === 304) return { kind: "none" };
  const location = header(c.response, "Location");
  if (![301, 302, 303, 307, 308].includes(status) || !location || !c.follow) return { kind: "not_followed" };

  const from = parseUrl(c.hopUrl);
  const url = from && resolve(from, location);
  const rejected = (reason: string): Target => ({ kind: "faulty", fault: "redirect_rejected", reason }); // R3
  if (!from || !url) return rejected("location_malformed");
  if (typeof url === "string") return rejected(url); // it is in no scope
  const first = parseUrl(c.url) ?? from;
  if ((c.scope === "same_host" && !sameHost(first, url)) || (c.scope === "same_origin" && !sameOrigin(first, url))) {
    return { kind: "not_followed" }; // before all faults of the Location (precedence, 2)
  }

  const method = methodAfter(status, c.hopMethod);
  if (url.userinfo !== undefined) return rejected("location_userinfo");
  if (c.forbidDowngrade && from.scheme === "https" && url.scheme === "http") return rejected("downgrade");
  // R2 is always in the failures: an observation lists neither the hops nor the headers that D3 compares.
  if (c.redirects >= c.maxRedirects) return { kind: "faulty", fault: "too_many_redirects", reason: "too_many_redirects" }; // R1, D1

  return {
    kind: "follow",
    redirect: { url: url.text, method, body_kept: method === c.hopMethod, cross_origin: !sameOrigin(from, url) },
  };
}

/** methodAfter returns the method of the request that follows a redirect (D2). */
function methodAfter(status: number, method: string): string {
  if (status === 303) return method === "HEAD" ? "HEAD" : "GET";
  if ((status === 301 || status === 302) && method === "POST") return "GET";
  return method;
}

// --- Section 4: waiting ---

const MASK_64 = (1n << 64n) - 1n;

/** splitmix64 returns the first output of the generator with the state x. */
export function splitmix64(x: bigint): bigint {
  let z = (x + 0x9e3779b97f4a7c15n) & MASK_64;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK_64;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK_64;
  return z ^ (z >> 31n);
}

/** backoff returns the wait after the attempt that ended, in nanoseconds (section 2, W1). */
function backoff(c: Context): bigint {
  const n = c.attempt;
  let power = 1; // Math.pow rounds in its own way
  for (let i = c.profile.exponentShift; i < n; i++) power *= c.multiplier;
  const grown = Number(c.baseDelay) * power;
  let delay = c.maxDelay;
  if (c.baseDelay === 0n) delay = 0n; // 0 times infinity is no number
  else if (grown < Number(c.maxDelay)) delay = BigInt(Math.trunc(grown));
  const jitter = splitmix64(c.jitterSeed + BigInt(n)) % (c.maxJitter / MILLISECOND + 1n);
  return saturate(delay + jitter * MILLISECOND);
}

/** retryAfter returns the wait that the origin asked for, or undefined (W2). */
function retryAfter(c: Context): bigint | undefined {
  if (c.response?.status !== 429 && c.response?.status !== 503) return undefined;
  const value = header(c.response, "Retry-After");
  if (value === undefined) return undefined;
  if (/^[0-9]+$/.test(value)) return saturate(BigInt(value) * SECOND);
  const sent = header(c.response, "Date");
  const reference = (sent === undefined ? undefined : parseHttpDate(sent, c.observedAt)) ?? c.observedAt;
  const date = parseHttpDate(value, reference);
  if (date === undefined || date < reference) return undefined;
  return saturate(date - reference);
}

// --- Section 5: whether to retry ---

/** decide returns what an observation means, and what follows. */
export function decide(observation: Observation): Verdict {
  const c = contextOf(observation);
  const found = classify(c);
  if (found.kind === "follow") return { redirect: found.redirect };
  if (found.kind === "end") {
    return { outcome: found.outcome, decision: { rule: found.rule, stop: "no_failure" } };
  }
  const type = typeOf(c, found.class, found.rule);
  const wanted = retryAfter(c);
  const failure: Failure = {
    class: found.class, type, rule: found.rule, retryable: isRetryable(c, found.class, type),
  };
  if (wanted !== undefined) failure.retry_after = formatDuration(wanted);
  if (found.reason !== undefined) failure.reason = found.reason;
  return { outcome: "failed", failure, decision: decisionAfter(c, failure, wanted) };
}

/** decisionAfter returns whether another attempt follows a failure. The order of its checks is that of I7. */
function decisionAfter(c: Context, failure: Failure, wanted: bigint | undefined): Decision {
  if (STOPPING.has(failure.class)) return { rule: failure.rule, stop: "stopped" };
  if (failure.class === "deadline") return { rule: failure.rule, stop: "deadline" };
  // A 403 whose challenge cannot be answered, or that refuses a signature, is an ordinary 403 (A8).
  const authFailed = c.credential === "refresh_failed" || c.credential === "refused_again";
  if (authFailed && failure.class === "auth_required") return { rule: "A2", stop: "auth_failed" };
  if (!isRetried(c, failure.class, failure.rule)) return { rule: failure.rule, stop: "not_retried" };

  // A2: a request that got a 401 was not processed, so I2 does not apply.
  if (!isRepeatable(c) && failure.class !== "auth_required") return { rule: "I2", stop: "not_idempotent" };
  if (c.bodyCommitted) return { rule: "B3", stop: "body_committed" };
  if (c.attempt >= c.maxAttempts) return { rule: "I4", stop: "attempts_exhausted" };

  let delay: bigint;
  let source: Retry["source"];
  let rule: string;
  if (canAuthenticate(c, failure.class)) {
    [delay, source, rule] = [0n, "auth_refresh", "A2"];
  } else if (wanted !== undefined) {
    [delay, source, rule] = [wanted, "retry_after", "W2"];
    if (delay > c.maxRetryAfter) return { rule: "W3", stop: "retry_after_too_long" };
  } else {
    [delay, source, rule] = [backoff(c), "backoff", "W1"];
  }
  // W4: a delay that would end at the deadline itself exceeds it. With P3 no time is left, whatever the class is.
  if (c.failures.has("deadline") || (c.timeLeft !== undefined && delay >= c.timeLeft)) return { rule: "W4", stop: "no_time" };
  const start = c.sentOnce && isRepeatable(c) ? "failed_hop" : "first_url"; // I3
  return { rule, retry: { attempt: c.attempt + 1, delay: formatDuration(delay), source, start } };
}

// --- Fields, dates and durations ---

/** header returns the value of the first field with this name, without blanks around it. */
export function header(response: HttpResponse, name: string): string | undefined {
  const wanted = name.toLowerCase();
  const field = (response.headers ?? []).find(([n]) => n.toLowerCase() === wanted);
  return field?.[1].replace(/^[ \t]+|[ \t]+$/g, "");
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)";
const LONG_DAY = "(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)";
const MONTH = `(?<month>${MONTHS.join("|")})`;
const TIME = "(?<hour>[0-9]{2}):(?<minute>[0-9]{2}):(?<second>[0-9]{2})";
/** The three forms of HTTP-date (RFC 9110 §5.6.7). They are case-sensitive. */
const HTTP_DATES = [
  new RegExp(`^${DAY}, (?<day>[0-9]{2}) ${MONTH} (?<year>[0-9]{4}) ${TIME} GMT$`), // IMF-fixdate
  new RegExp(`^${LONG_DAY}, (?<day>[0-9]{2})-${MONTH}-(?<year>[0-9]{2}) ${TIME} GMT$`), // RFC 850
  new RegExp(`^${DAY} ${MONTH} (?<day>[0-9]{2}| [0-9]) ${TIME} (?<year>[0-9]{4})$`), // asctime
];

/** parseHttpDate returns a date in nanoseconds since 1970. now decides the century of a year of two digits. */
export function parseHttpDate(text: string, now: bigint): bigint | undefined {
  const parts = HTTP_DATES.map((form) => form.exec(text)?.groups).find((groups) => groups !== undefined);
  if (!parts) return undefined;
  const at = (year: number): bigint | undefined => timestamp(
    year, MONTHS.indexOf(parts.month ?? ""), Number(parts.day), Number(parts.hour), Number(parts.minute),
    Number(parts.second));
  if (parts.year?.length !== 2) return at(Number(parts.year));
  // The latest year with these digits that is not more than 50 years in the future.
  const limit = new Date(Number(now / MILLISECOND));
  limit.setUTCFullYear(limit.getUTCFullYear() + 50);
  const last = limit.getUTCFullYear();
  const year = last - ((((last - Number(parts.year)) % 100) + 100) % 100);
  const date = at(year);
  return date !== undefined && date > BigInt(limit.getTime()) * MILLISECOND ? at(year - 100) : date;
}

/** timestamp returns nanoseconds since 1970, or undefined if there is no such date. month starts at 0. */
function timestamp(
  year: number, month: number, day: number, hour: number, minute: number, second: number,
): bigint | undefined {
  const date = new Date(0);
  date.setUTCFullYear(year, month, day);
  const exists = date.getUTCMonth() === month && date.getUTCDate() === day;
  if (!exists || hour > 23 || minute > 59 || second > 59) return undefined;
  date.setUTCHours(hour, minute, second);
  return BigInt(date.getTime()) * MILLISECOND;
}

const RFC_3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))$/;

function parseTimestamp(text: string): bigint {
  const m = RFC_3339.exec(text);
  const base = m && timestamp(Number(m[1]), Number(m[2]) - 1, Number(m[3]), Number(m[4]), Number(m[5]), Number(m[6]));
  if (!m || base === undefined || base === null) throw new Error(`not a date: ${text}`);
  const fraction = BigInt((m[7] ?? "").slice(0, 9).padEnd(9, "0"));
  const offset = BigInt(Number(m[9] ?? 0) * 60 + Number(m[10] ?? 0)) * 60n * SECOND;
  return base + fraction + (m[8] === "-" ? offset : -offset);
}

/** parseDuration returns a duration in nanoseconds. */
export function parseDuration(text: Duration): bigint {
  const m = /^([0-9]+)(?:\.([0-9]{1,9}))?s$/.exec(text);
  if (!m) throw new Error(`not a duration: ${text}`);
  return saturate(BigInt(m[1] ?? "0") * SECOND + BigInt((m[2] ?? "").padEnd(9, "0")));
}

/** formatDuration writes a duration with 0, 3, 6 or 9 decimals, as few as it needs. */
export function formatDuration(nanoseconds: bigint): Duration {
  const fraction = (nanoseconds % SECOND).toString().padStart(9, "0").replace(/(?:000)+$/, "");
  return `${nanoseconds / SECOND}${fraction && `.${fraction}`}s`;
}

function saturate(nanoseconds: bigint): bigint {
  return nanoseconds > MAX_DURATION ? MAX_DURATION : nanoseconds;
}
