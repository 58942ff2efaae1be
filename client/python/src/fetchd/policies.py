"""The policies of a request, as types. .ci/generate writes this file from fetch.proto, whose
comments say what each field does. Durations are in seconds, or timedeltas."""

from __future__ import annotations

import datetime
from typing import Iterable, Literal, Mapping, Sequence, Tuple, TypedDict, Union

Duration = Union[float, datetime.timedelta]
Headers = Union[Mapping[str, str], Iterable[Tuple[str, str]]]

RedirectScope = Literal["any", "same_host", "same_origin"]
RetryProfile = Literal["standard", "download"]
BodyRecovery = Literal["none", "resume", "restart"]
OversizeAction = Literal["fail", "truncate"]
EventLevel = Literal["outcome", "attempts", "all"]
CookieMode = Literal["none", "within_fetch"]
ErrorClass = Literal[
    "dns_not_found",
    "dns_failure",
    "connect_refused",
    "connect_timeout",
    "connect_failure",
    "connection_reset",
    "tls_handshake",
    "tls_certificate",
    "response_timeout",
    "write_timeout",
    "body_interrupted",
    "body_timeout",
    "protocol",
    "attempt_timeout",
    "http_server_error",
    "rate_limited",
    "auth_required",
    "forbidden",
    "request_timeout",
    "http_client_error",
    "unexpected_not_modified",
    "too_many_redirects",
    "redirect_loop",
    "redirect_rejected",
    "content_type",
    "empty_body",
    "undecodable",
    "body_too_large",
    "integrity",
    "target_blocked",
    "invalid_request",
    "deadline",
    "cancelled",
    "shutdown",
    "internal",
    "out_of_memory",
    "store_failure",
]
AuthResult = Literal["refreshed", "refresh_failed", "refused_again", "not_asked", "no_provider"]


class RedirectPolicy(TypedDict, total=False):
    """RedirectPolicy says which redirects are followed."""

    follow: bool
    max_redirects: int
    scope: RedirectScope
    forbid_downgrade: bool
    forward_credentials: bool


class RetryPolicy(TypedDict, total=False):
    """RetryPolicy says which failures are retried, and when."""

    profile: RetryProfile
    max_attempts: int
    base_delay: Duration
    max_delay: Duration
    multiplier: float
    max_jitter: Duration
    jitter_seed: int
    max_retry_after: Duration
    additional_status_codes: Sequence[int]
    excluded_status_codes: Sequence[int]
    allow_non_idempotent: bool
    idempotency_key: str
    retry_tls_handshake: bool


class TimeoutPolicy(TypedDict, total=False):
    """TimeoutPolicy holds the time limits of a fetch; the table of all defaults is in section 2 of docs/spec.md."""

    total_timeout: Duration
    attempt_timeout: Duration
    connect_timeout: Duration
    header_timeout: Duration
    idle_timeout: Duration


class ResumePoint(TypedDict, total=False):
    """ResumePoint is the position at which an earlier fetch of the same body stopped."""

    offset_bytes: int
    validator: str


class StreamDelivery(TypedDict, total=False):
    """StreamDelivery delivers a body in BodyChunk events."""

    max_hold_back_bytes: int
    recovery: BodyRecovery
    resume_point: ResumePoint


class InlineDelivery(TypedDict, total=False):
    """InlineDelivery delivers a body in the outcome."""


class DigestDelivery(TypedDict, total=False):
    """DigestDelivery reads a body and delivers its size and digest."""


class NoDelivery(TypedDict, total=False):
    """NoDelivery does not read a body."""


class StoreDelivery(TypedDict, total=False):
    """StoreDelivery writes a body to a store that the operator has configured."""

    store: str
    key: str


class BodyPolicy(TypedDict, total=False):
    """BodyPolicy says what happens with the response body."""

    # At most one of stream, auto, inline, digest, none, store.
    stream: StreamDelivery
    auto: StreamDelivery
    inline: InlineDelivery
    digest: DigestDelivery
    none: NoDelivery
    store: StoreDelivery
    max_size_bytes: int
    oversize_action: OversizeAction
    keep_encoding: bool
    max_error_body_bytes: int
    omit_digest: bool


class Precondition(TypedDict, total=False):
    """Precondition makes the request conditional."""

    etags: Sequence[str]
    last_modified_time: datetime.datetime


class Integrity(TypedDict, total=False):
    """Integrity describes the expected body after decoding."""

    sha256: str
    size_bytes: int


class ContentPolicy(TypedDict, total=False):
    """ContentPolicy holds conditions that a response must meet to be usable."""

    accepted_media_types: Sequence[str]
    require_body: bool
    require_valid_charset: bool


class EarlierRecord(TypedDict, total=False):
    """EarlierRecord is the record of an earlier response, as an outcome has described it."""

    record_id: str
    url: str
    record_time: datetime.datetime
    payload_digest: str


class RecordPolicy(TypedDict, total=False):
    """RecordPolicy records a fetch: every request that was sent and every response, with those of redirects and failed attempts."""

    store: str
    earlier: EarlierRecord


class Policies(TypedDict, total=False):
    """FetchRequest says what to fetch and how."""

    redirect_policy: RedirectPolicy
    retry_policy: RetryPolicy
    timeout_policy: TimeoutPolicy
    body_policy: BodyPolicy
    precondition: Precondition
    integrity: Integrity
    event_level: EventLevel
    labels: Mapping[str, str]
    auth_provider: str
    content_policy: ContentPolicy
    cookie_mode: CookieMode
    record_policy: RecordPolicy


class HttpResponse(TypedDict, total=False):
    """HttpResponse is an HTTP response without its body."""

    status_code: int
    headers: Headers
    content_length: int
    protocol: str


class ExplainRequest(TypedDict, total=False):
    """ExplainRequest is the request of Explain: one observation and what preceded it."""

    retry_policy: RetryPolicy
    redirect_policy: RedirectPolicy
    url: str
    method: str
    hop_url: str
    hop_method: str
    attempt: int
    redirect_count: int
    response: HttpResponse
    error_classes: Sequence[ErrorClass]
    conditional: bool
    observe_time: datetime.datetime
    remaining_duration: Duration
    body_committed: bool
    auth_result: AuthResult
