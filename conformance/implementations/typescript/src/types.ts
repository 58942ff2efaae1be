// Observations and verdicts, as conformance/schema/vectors.json describes them.

/** Duration is a number of seconds with at most nine decimals, such as "0.25s". */
export type Duration = string;

export type FailureClass =
  | "attempt_timeout" | "auth_required" | "body_interrupted" | "body_timeout" | "body_too_large"
  | "cancelled" | "connect_failure" | "connect_refused" | "connect_timeout" | "connection_reset"
  | "content_type" | "deadline" | "dns_failure" | "dns_not_found" | "empty_body" | "forbidden"
  | "http_client_error" | "http_server_error" | "integrity" | "internal" | "invalid_request"
  | "out_of_memory" | "protocol" | "rate_limited" | "redirect_loop" | "redirect_rejected"
  | "request_timeout" | "response_timeout" | "shutdown" | "store_failure" | "target_blocked"
  | "tls_certificate" | "tls_handshake" | "too_many_redirects" | "undecodable"
  | "unexpected_not_modified" | "write_timeout";

export type FailureType = "needs_auth" | "permanent" | "rate_limited" | "transient";

export type Credential = "not_asked" | "refreshed" | "refresh_failed" | "refused_again" | "challenged";

export interface RetryPolicy {
  profile?: "standard" | "download";
  max_attempts?: number;
  base_delay?: Duration;
  max_delay?: Duration;
  multiplier?: number;
  max_jitter?: Duration;
  jitter_seed?: string;
  max_retry_after?: Duration;
  retry_tls_handshake?: boolean;
  additional_status_codes?: number[];
  excluded_status_codes?: number[];
  idempotency_key?: string;
  allow_non_idempotent?: boolean;
}

export interface RedirectPolicy {
  follow?: boolean;
  max_redirects?: number;
  scope?: "any" | "same_host" | "same_origin";
  forbid_downgrade?: boolean;
  forward_credentials?: boolean;
}

export interface HttpResponse {
  status: number;
  headers?: [string, string][];
}

export interface Observation {
  retry_policy?: RetryPolicy;
  redirect_policy?: RedirectPolicy;
  method?: string;
  url?: string;
  hop_method?: string;
  hop_url?: string;
  attempt?: number;
  redirects?: number;
  response?: HttpResponse;
  failures?: FailureClass[];
  conditional?: boolean;
  body_committed?: boolean;
  observed_at?: string;
  time_left?: Duration;
  credential?: Credential;
}

export type Outcome = "success" | "not_modified" | "redirect" | "failed";

export interface Failure {
  class: FailureClass;
  type: FailureType;
  rule: string;
  retryable: boolean;
  retry_after?: Duration;
  reason?: string;
}

export interface Redirect {
  url: string;
  method: string;
  body_kept: boolean;
  cross_origin: boolean;
}

export type StopReason =
  | "attempts_exhausted" | "auth_failed" | "body_committed" | "deadline" | "no_failure" | "no_time"
  | "not_idempotent" | "not_retried" | "retry_after_too_long" | "stopped";

export interface Retry {
  attempt: number;
  delay: Duration;
  source: "auth_refresh" | "backoff" | "retry_after";
  start: "failed_hop" | "first_url";
}

export type Decision = { rule: string; retry: Retry } | { rule: string; stop: StopReason };

export type Verdict =
  | { redirect: Redirect }
  | { outcome: Outcome; failure?: Failure; decision: Decision };
