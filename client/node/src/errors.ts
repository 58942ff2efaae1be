import type { IncomingHttpHeaders } from "node:http2";

import type { ErrorClass, FailureType, FetchOutcome, FetchRequestInit, RequestState, StopReason } from "./contract.js";
import { Reader } from "./wire.js";

/**
 * FetchError reports that a fetch failed at its target, and that there is no response to return: the target could not
 * be reached, its body broke off, or a policy rejected its response. It is a TypeError, like the network errors of fetch.
 */
export class FetchError extends TypeError {
  override readonly name = "FetchError";
  /** What went wrong, such as "connect_refused". Later versions may add values: for an unknown one use failureType. */
  readonly errorClass: ErrorClass;
  /**
   * What to do about it: "transient", "rate_limited", "needs_auth", "permanent", or "not_idempotent": a POST or PATCH was not
   * sent again, because it may have taken effect. A transient or rate limited failure that is not retryable is one of the last two.
   */
  readonly failureType: FailureType | "not_idempotent";
  /** A more specific cause in lower_snake_case. It may be empty. */
  readonly reason: string;
  /** Whether a later fetch of the same request may succeed. The service has already made the retries that could help. */
  readonly retryable: boolean;
  /** Whether a request may have been processed: "not_sent", "not_processed" or "unknown". */
  readonly requestState: RequestState;
  /** The wait in seconds that the target asked for with Retry-After. */
  readonly retryAfter: number | undefined;
  /** Why no further attempt was made, such as "attempts_exhausted". */
  readonly stopReason: StopReason;
  /** The rule that classified the failure, such as "N2". */
  readonly classRule: string;
  /** The policy of the service that forbids the target. It is empty for other failures. */
  readonly policy: string;
  /** The entry of that policy that decides, such as "*.ads.example". It may be empty. */
  readonly policyRule: string;
  /** Everything that is known about the fetch. */
  declare readonly outcome: FetchOutcome;

  constructor(outcome: FetchOutcome, deadline?: number) {
    const e = outcome.error;
    super(describe(outcome, deadline));
    this.errorClass = e?.error_class ?? "unspecified";
    this.reason = e?.reason ?? "";
    this.retryable = e?.retryable ?? false;
    this.requestState = e?.request_state ?? "unspecified";
    this.retryAfter = e?.retry_after;
    this.stopReason = e?.stop_reason ?? "unspecified";
    this.failureType = e?.failure_type ?? "unspecified";
    if (!this.retryable && (this.failureType === "transient" || this.failureType === "rate_limited")) {
      const defect = this.errorClass === "internal" && this.reason !== "too_many_open_files";
      const unprocessed = this.requestState === "not_sent" || this.requestState === "not_processed";
      this.failureType = defect || unprocessed ? "permanent" : "not_idempotent";
    }
    this.classRule = e?.class_rule ?? "";
    this.policy = e?.policy ?? "";
    this.policyRule = e?.policy_rule ?? "";
    Object.defineProperty(this, "outcome", { value: outcome, enumerable: false }); // it is long, and util.inspect would print it
  }
}

function describe(o: FetchOutcome, deadline: number | undefined): string {
  const e = o.error;
  if (!e) return `fetch ${o.final_url}: ${o.kind}`;
  const status = o.response ? `, status ${o.response.status_code}` : "";
  const target = e.error_class === "target_blocked" && o.hops.at(-1)?.location_url;
  const redirect = target ? `, redirect to ${target}` : "";
  const detail = e.detail ? `; ${e.detail}` : "";
  const given = e.message.replace("there were more redirects than max_redirects 0, set by the request", 'unexpected redirect: redirect is "error", or max_redirects is 0');
  const message = deadline === undefined ? given : withDeadline(given, deadline);
  return `fetch ${e.url || o.final_url}: ${e.error_class}${status}${redirect} (rule ${e.class_rule}, attempt ${o.attempt_count}): ${message}${detail}`;
}

/** withDeadline names the deadline as the caller set it. The service knows only what was left of it. */
function withDeadline(message: string, deadline: number): string {
  return message.replace(/the deadline of the call(?:, set by the caller, left ([\w.µ]+))?/, (_, left?: string) => `deadline ${deadline} s${left ? `, of which ${left} were left after the reserve` : ""}`);
}

/** The names of the gRPC status codes, by number. */
const codes = [
  "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
  "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
] as const;

/** Code is the name of a gRPC status code other than OK. */
export type Code = Exclude<(typeof codes)[number], "OK">;

/** Violation says what is wrong with a field of the request. */
export interface Violation {
  /** Path of the field, such as "retry_policy.max_attempts". */
  readonly field: string;
  readonly description: string;
}

/** Details are what the details of a google.rpc.Status say. */
interface Details {
  violations: readonly Violation[];
  reason: string;
  policy: string;
  retryIn: number | undefined;
}

/** ServiceError is about the request or about the service, not about the target of a fetch. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  /** The gRPC status code. If failureType is "not_idempotent", it is never one that invites a retry, such as "UNAVAILABLE". */
  readonly code: Code;
  /** What is wrong with each field, if the code is INVALID_ARGUMENT, or PERMISSION_DENIED by a policy. */
  readonly violations: readonly Violation[];
  /** A more specific cause, such as "CONSUMER_STALLED". It may be empty. */
  readonly reason: string;
  /** The policy of the service that forbids the request, or whose quota is used up. It may be empty. */
  readonly policy: string;
  /** The wait in seconds that the service asks for. */
  readonly retryIn: number | undefined;
  /** Whether requests to the target may have been made. If it is false, none was. */
  readonly sent: boolean;
  /**
   * "not_idempotent" for a POST or PATCH whose outcome is lost, unless it sets allow_non_idempotent: it may have taken
   * effect. Do not send it again before you know that it did not.
   */
  readonly failureType: "not_idempotent" | undefined;

  constructor(code: Code, message: string, sent = false, details: Partial<Details> & { failureType?: "not_idempotent" | undefined } = {}) {
    super(`${code}: ${message}`);
    this.code = code;
    this.violations = details.violations ?? [];
    this.reason = details.reason ?? "";
    this.policy = details.policy ?? "";
    this.retryIn = details.retryIn;
    this.sent = sent;
    this.failureType = details.failureType;
  }
}

/**
 * unknownEffect returns the error of a fetch whose outcome is lost. A POST or PATCH may have taken effect, so its error
 * says so, and is not one after which callers fetch again. allow_non_idempotent permits them to, and needs a key.
 */
export function unknownEffect(error: ServiceError, { method, retry_policy }: Pick<FetchRequestInit, "method" | "retry_policy">): ServiceError {
  if (!error.sent || (method !== "POST" && method !== "PATCH") || retry_policy?.allow_non_idempotent) return error;
  const code = error.code === "UNAVAILABLE" || error.code === "RESOURCE_EXHAUSTED" ? "UNKNOWN" : error.code;
  const text = error.message.slice(error.code.length + 2);
  return new ServiceError(code, `${text}; the ${method} may have taken effect: find out whether it did before you send it again`, true, { ...error, failureType: "not_idempotent" });
}

// These codes are returned before a fetch starts, if no message came before.
const refusals: ReadonlySet<Code> = new Set<Code>(["INVALID_ARGUMENT", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "UNAUTHENTICATED"]);

/**
 * statusOf returns the error that the trailers of a call describe, or undefined for OK. answered says whether a
 * message came before.
 */
export function statusOf(trailers: IncomingHttpHeaders, answered: boolean): ServiceError | undefined {
  const status = trailers["grpc-status"];
  if (status === "0") return undefined;
  const code = (typeof status === "string" && /^\d{1,2}$/.test(status) && codes[Number(status)]) || "UNKNOWN";
  const text = decodePercent(String(trailers["grpc-message"] ?? ""));
  return new ServiceError(code as Code, text || "the service gave no message", answered || !refusals.has(code as Code), detailsOf(trailers["grpc-status-details-bin"]));
}

/** decodePercent decodes a grpc-message. A sequence that is not valid is kept. */
function decodePercent(text: string): string {
  if (!text.includes("%")) return text;
  const bytes = Buffer.from(text, "latin1");
  let length = 0;
  for (let i = 0; i < bytes.length; i++) {
    const pair = bytes[i] === 0x25 ? bytes.toString("latin1", i + 1, i + 3) : "";
    if (/^[0-9a-fA-F]{2}$/.test(pair)) {
      bytes[length++] = parseInt(pair, 16);
      i += 2;
    } else bytes[length++] = bytes[i]!;
  }
  return bytes.toString("utf8", 0, length);
}

/** detailsOf reads the details of a google.rpc.Status. Details that cannot be read are left out. */
function detailsOf(header: string | string[] | undefined): Details {
  const violations: Violation[] = [];
  const found: Details = { violations, reason: "", policy: "", retryIn: undefined };
  if (typeof header !== "string") return found;
  try {
    fields(Buffer.from(header, "base64"), (n, any) => {
      if (n !== 3) return;
      let type = "";
      let value: Buffer = Buffer.alloc(0);
      fields(any, (n, bytes) => {
        if (n === 1) type = bytes.toString();
        if (n === 2) value = bytes;
      });
      if (type.endsWith("/google.rpc.ErrorInfo")) {
        fields(value, (n, bytes) => {
          if (n === 1) found.reason = bytes.toString();
          const entry = n === 3 ? strings(bytes) : [];
          if (entry[1] === "policy") found.policy = entry[2] ?? "";
        });
      }
      if (type.endsWith("/google.rpc.RetryInfo")) fields(value, (n, bytes) => { if (n === 1) found.retryIn = secondsOf(bytes); });
      if (type.endsWith("/google.rpc.BadRequest")) {
        fields(value, (n, violation) => {
          const v = n === 1 ? strings(violation) : undefined;
          if (v) violations.push({ field: v[1] ?? "", description: v[2] ?? "" });
        });
      }
    });
  } catch {
    // The code and the message are enough.
  }
  return found;
}

/** strings returns the strings of a message by the numbers of their fields. */
function strings(message: Buffer): string[] {
  const found: string[] = [];
  fields(message, (n, bytes) => { found[n] = bytes.toString(); });
  return found;
}

/** secondsOf reads a google.protobuf.Duration. */
function secondsOf(duration: Buffer): number {
  let seconds = 0;
  const r = new Reader(duration);
  while (r.at < r.length) {
    const tag = r.uint32();
    if (tag === 8) seconds += r.int64();
    else if (tag === 16) seconds += r.int32() / 1e9;
    else r.skip(tag);
  }
  return Math.max(0, seconds);
}

/** fields calls visit for each field of a message that has a length. */
function fields(message: Buffer, visit: (field: number, bytes: Buffer) => void): void {
  const r = new Reader(message);
  while (r.at < r.length) {
    const tag = r.uint32();
    if ((tag & 7) === 2) visit(tag >>> 3, r.bytes());
    else r.skip(tag);
  }
}
