"""The policies of a request, as types. .ci/generated writes this file from fetch.proto. Durations are in
seconds, or timedeltas."""

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
TextContent = Literal["marked", "article"]
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
AuthResult = Literal[
    "refreshed",
    "refresh_failed",
    "refused_again",
    "not_asked",
    "no_provider",
    "challenged",
]
RequestState = Literal["not_sent", "not_processed", "unknown"]


class RedirectPolicy(TypedDict, total=False):
    """RedirectPolicy says which redirects are followed.

    follow: Whether redirects are followed. Unset means true. If false, a 3xx response gives the
        outcome REDIRECT, which is not an error.
    max_redirects: Maximum number of redirects in one attempt, 0 to 20. Unset means the profile's
        default: 5 in STANDARD, 20 in DOWNLOAD. The next redirect fails with TOO_MANY_REDIRECTS. So
        with 0, the first redirect is a failure.
    scope: Hosts that a redirect may lead to. Unset means any. A redirect to another host is not
        followed: the 3xx response gives the outcome REDIRECT, which is not an error.
    forbid_downgrade: Rejects a redirect from https to http with REDIRECT_REJECTED. Unset means
        false: the redirect is followed, without credentials.
    forward_credentials: Forwards all headers of the caller to other origins, though never from
        https to http. Unset means false: only headers that carry no identity and no credential are
        forwarded (spec D4).
    """

    follow: bool
    max_redirects: int
    scope: RedirectScope
    forbid_downgrade: bool
    forward_credentials: bool


class RetryPolicy(TypedDict, total=False):
    """RetryPolicy says which failures are retried, and when.

    profile: Set of rules and defaults. Unset means STANDARD.
    max_attempts: Maximum number of attempts, including the first, 1 to 11. Unset means the
        profile's default: 3 in STANDARD, 4 in DOWNLOAD. 1 means no retry. 0 is rejected.
    base_delay: Base of the backoff, 0 to 5 min and at most max_delay. Unset means the profile's
        default, 100 ms in STANDARD and 1 s in DOWNLOAD, or max_delay if that is shorter. Zero means
        that only the jitter is waited. The wait before retry n is base_delay * multiplier^n in
        STANDARD and base_delay * multiplier^(n-1) in DOWNLOAD, at most max_delay. n is the number
        of the attempt that ended.
    max_delay: Maximum backoff before jitter is added, 0 to 5 min. Unset means the profile's
        default: 2 s in STANDARD, 32 s in DOWNLOAD. Zero means that only the jitter is waited.
    multiplier: Factor between consecutive waits, 1 to 10. Unset means 2. 1 means a constant wait.
    max_jitter: Maximum random addition to a backoff, 0 to 1 min. It is drawn uniformly in whole
        milliseconds from 0 and added after max_delay is applied. Unset means the profile's default:
        none in STANDARD, 500 ms in DOWNLOAD. Zero means no jitter.
    jitter_seed: Seed that makes the jitter repeatable. Unset means a new seed for each fetch, which
        is reported in the effective policy. Zero is a seed like any other.
    max_retry_after: Maximum Retry-After that the server waits for, 0 to 15 min. A longer one ends
        the fetch with stop reason RETRY_AFTER_TOO_LONG. Unset means the profile's default: 30 s in
        STANDARD, 60 s in DOWNLOAD. Zero means that only "Retry-After: 0" is followed.
    additional_status_codes: Statuses that are retried in addition to those of the profile: any 4xx
        except 400, 401, 403, 404, 409, 410, 422 and 451. At most 128. Empty means none.
    excluded_status_codes: Statuses that are not retried although the profile retries them: 408, 429
        and 500 to 599. At most 128. Empty means none. A status that is in both lists is rejected.
        The failure stays `retryable`: a later fetch may succeed.
    allow_non_idempotent: Allows retries of POST and PATCH. Rejected without idempotency_key, and if
        the operator of the server forbids such retries. Unset means false: such a request is sent
        once.
    idempotency_key: Value of the header Idempotency-Key, the same on every attempt. At most 256
        bytes of visible ASCII. Empty means that the header is not sent.
    retry_tls_handshake: Whether a failed TLS handshake is retried; a rejected certificate never is.
        Unset means the profile's default: true in STANDARD, false in DOWNLOAD.
    """

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
    """TimeoutPolicy holds the time limits of a fetch; the table of all defaults is in section 2 of docs/spec.md.

    total_timeout: Limit for the whole fetch, including waits between attempts. Unset means 60 s in
        STANDARD and the server's maximum (15 min) in DOWNLOAD. A longer value is clamped to that
        maximum. Zero is rejected.
    attempt_timeout: Limit for one attempt, including its redirects and body. Time in which the
        caller does not read does not count. Unset means 30 s in STANDARD and no limit in DOWNLOAD.
        Zero means that only total_timeout applies. A value above the server's maximum is clamped.
    connect_timeout: Limit for name lookup, TCP and TLS of one connection. Unset means 10 s. A value
        above the server's maximum is clamped. Zero is rejected.
    header_timeout: Limit from the sent request to the complete response headers. It is also the
        limit for sending the request. Unset means 15 s. A value above the server's maximum is
        clamped. Zero is rejected.
    idle_timeout: Maximum time without data from the target while a body is read. Time in which the
        caller does not read does not count. Unset means 15 s. A value above the server's maximum is
        clamped. Zero is rejected.
    """

    total_timeout: Duration
    attempt_timeout: Duration
    connect_timeout: Duration
    header_timeout: Duration
    idle_timeout: Duration


class ResumePoint(TypedDict, total=False):
    """ResumePoint is the position at which an earlier fetch of the same body stopped.

    offset_bytes: Number of bytes that the caller has, at least 1 and at most max_size_bytes.
        Required.
    validator: Validator of the earlier response: a strong ETag of at most 1,024 bytes, or a
        Last-Modified date. Required.
    """

    offset_bytes: int
    validator: str


class StreamDelivery(TypedDict, total=False):
    """StreamDelivery delivers a body in BodyChunk events.

    max_hold_back_bytes: Maximum number of body bytes that are buffered until the attempt has
        succeeded. A connection that breaks before that many bytes are received leads to an ordinary
        retry. Unset means the server's default (512 KiB). A value above 16 MiB is clamped. Zero
        means no buffering. ResponseStarted reports the number that was granted.
    recovery: What happens when the connection breaks inside a body of which chunks were already
        delivered. Unset means RESUME. Only a GET without a Range header of the caller can be
        continued. For other requests effective_request says NONE, or RESTART if that is set.
    resume_point: Continues a body whose first bytes the caller already has, from this server or
        another. Unset means from the beginning. Only for a GET. Rejected together with anything
        that needs the earlier bytes or excludes a continuation: integrity.sha256, a charset check,
        a Range header, a precondition.
    """

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
    """StoreDelivery writes a body to a store that the operator has configured.

    store: Name of the store. Required. A name that this server does not know is rejected.
    key: Key of the object in the store, at most 1,024 bytes of UTF-8: segments that are separated
        by "/", such as "2026/report.pdf". No segment is empty, ".", ".." or ".incoming" (in any
        case), or longer than 255 bytes. A backslash, control characters, U+FFFE and U+FFFF are not
        allowed. An object with that key is replaced. Empty means that the object is named by its
        digest: "sha256/", the first two digits, "/", all 64 digits. A store at S3 needs
        integrity.sha256 for that.
    """

    store: str
    key: str


class BodyPolicy(TypedDict, total=False):
    """BodyPolicy says what happens with the response body.

    stream: In BodyChunk events, as the body arrives. Rejected in FetchUnary.
    auto: Like `stream`, but a body that ends within the granted hold-back and has at most 1 MiB is
        delivered in FetchOutcome.inline_body, without BodyChunk, and at event level OUTCOME without
        ResponseStarted. A small fetch is then one message. A body of which bytes were delivered
        before is streamed to its end. Rejected in FetchUnary.
    inline: Complete, in the outcome, and only from an attempt that succeeded. At most 1 MiB.
    digest: The body is read and hashed, but not delivered.
    none: The body is not read.
    store: The server writes the body to a store that the operator has configured.
    max_size_bytes: Maximum size of the body in bytes, both before and after content decoding. Unset
        means 16 MiB in STANDARD and the server's maximum (1 TiB) in DOWNLOAD, but 1 MiB with
        delivery `inline`. A value above the server's maximum, or above that of `inline`, is
        clamped. Zero means that the body must be empty. A negative value is rejected.
    oversize_action: What happens with a longer body. Unset means FAIL. TRUNCATE is rejected with
        delivery `store`.
    keep_encoding: Delivers the body in the content coding of the target, and requests no coding
        unless a header does. Unset means false: the body is decoded, unless the caller set
        Accept-Encoding.
    max_error_body_bytes: Maximum number of bytes of a failed response's body that are kept in the
        outcome, 0 to 64 KiB. Unset means 16 KiB. Zero means none.
    omit_digest: Omits the SHA-256 of a body, unless integrity needs it. Unset means false. Rejected
        with delivery `store`.
    """

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
    """Precondition makes the request conditional.

    etags: Values of If-None-Match, including the quotes, such as "\\"abc\\"" or "W/\\"abc\\"". At
        most 16, each of at most 1,024 bytes. Empty means that the header is not sent.
    last_modified_time: Last-Modified of the version that the caller has, in whole seconds. It is
        sent as If-Modified-Since. Unset means that the header is not sent.
    """

    etags: Sequence[str]
    last_modified_time: datetime.datetime


class Integrity(TypedDict, total=False):
    """Integrity describes the expected body after decoding.

    sha256: SHA-256 of the body as 64 hexadecimal digits. Empty means any.
    size_bytes: Size of the body in bytes, 0 or more. Unset means any.
    """

    sha256: str
    size_bytes: int


class ContentPolicy(TypedDict, total=False):
    """ContentPolicy holds conditions that a response must meet to be usable.

    accepted_media_types: Accepted media types, such as "text/html" or "text/*", without parameters,
        at most 64. A response with another type, or without Content-Type, ends the fetch after the
        headers with CONTENT_TYPE. Empty means any type.
    require_body: Fails an empty body with EMPTY_BODY, except for HEAD, 204 and 205. Unset means
        false. Rejected with delivery `none`, which reads no body.
    require_valid_charset: Fails a body that cannot be decoded with its charset, with UNDECODABLE.
        Unset means false. Rejected with delivery `none`, which reads no body.
    """

    accepted_media_types: Sequence[str]
    require_body: bool
    require_valid_charset: bool


class EarlierRecord(TypedDict, total=False):
    """EarlierRecord is the record of an earlier response, as an outcome has described it.

    record_id: WarcRecord.record_id, at most 256 bytes. Required. Whether such a record exists is
        not checked.
    url: URL whose response was recorded. Required. At most 8 KiB. The response of another URL, such
        as that of a redirect, does not become a revisit. A fragment does not count.
    record_time: WarcRecord.record_time. Required.
    payload_digest: WarcRecord.payload_digest, at most 71 bytes. Empty means that only a 304 is a
        revisit.
    """

    record_id: str
    url: str
    record_time: datetime.datetime
    payload_digest: str


class CrawlPath(TypedDict, total=False):
    """CrawlPath says how a crawler came to a URL.

    via: URL of the page that led to this one. At most 8 KiB, without user information. Empty if
        there is none.
    hops_from_seed: One letter for each hop from the start of the crawl, such as LE: L for a link, E
        for a requisite, R for a redirect. At most 64 letters, digits and "+". Empty at the start.
    requisite_of: URL of the page that needs this one to be shown. At most 8 KiB, without user
        information. Empty for pages.
    """

    via: str
    hops_from_seed: str
    requisite_of: str


class RecordPolicy(TypedDict, total=False):
    """RecordPolicy records a fetch: every request that was sent and every response, with those of redirects and failed attempts.

    store: Name of a store for WARC files that the operator has configured. Required. A name that
        this server does not know is rejected, and so is a store for bodies.
    earlier: The record of an earlier response, so that an equal one is not stored again. A response
        with the same payload digest, and a 304, are then recorded without their body, as a revisit.
        Only responses of `earlier.url` are, not those of other hops. Unset means that every
        response is recorded whole.
    path: How a crawler came to the URL. Each response of the URL then has a metadata record too;
        those of other hops have none. Unset means no such record.
    """

    store: str
    earlier: EarlierRecord
    path: CrawlPath


class TextPolicy(TypedDict, total=False):
    """TextPolicy delivers a page as Markdown, and other text as it is, in UTF-8 (docs/text.md).

    content: How much of a page its text has. Unset means MARKED.
    """

    content: TextContent


class Policies(TypedDict, total=False):
    """FetchRequest says what to fetch and how.

    redirect_policy: Which redirects are followed. Unset means the defaults of the profile.
    retry_policy: Which failures are retried, and when. Unset means profile STANDARD.
    timeout_policy: Time limits within the RPC deadline. Unset means the defaults of the profile.
    body_policy: What happens with the response body. Unset means all defaults.
    precondition: Makes the request conditional on a version that the caller already has. Unset
        means that the request is unconditional. Rejected if `headers` also contains a conditional
        header.
    integrity: Expected digest and size of the body. Unset means that nothing is checked. Rejected
        with HEAD and with delivery `none`.
    event_level: Which events are sent in addition to the outcome. Unset means ATTEMPTS, and OUTCOME
        in FetchMany.
    labels: Labels of the caller. They appear in logs and are never sent to the target. At most 16;
        each name and each value has at most 256 bytes. Empty means no labels.
    auth_provider: Name of a credential provider that the operator has configured. Empty means none.
        A name that this server does not know is rejected.
    content_policy: Conditions that the response must meet to be usable. Unset means that nothing is
        checked.
    cookie_mode: Whether cookies are kept and sent. Unset means that they are not.
    record_policy: Records every request and response in WARC files of the operator. Unset means
        that nothing is recorded.
    egress_route: Name of an egress route that the operator has configured. All requests of the
        fetch leave by it. Empty means the route of the caller's policy, if it has one. A name that
        the policy does not permit is denied with PERMISSION_DENIED, and so is one that does not
        exist.
    text_policy: Delivers the text of the response instead of its bytes. Unset means the bytes. The
        text is complete, in FetchOutcome.inline_body, so unset delivery means `inline`, and `auto`
        delivers the same. Rejected with another delivery, HEAD, a Range header, resume_point and
        keep_encoding.
    """

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
    egress_route: str
    text_policy: TextPolicy


class HttpResponse(TypedDict, total=False):
    """HttpResponse is an HTTP response without its body.

    status_code: Status code, 1 to 999. Required in a request of Explain, and always set in a
        response.
    headers: Headers, sorted by name. Lines with the same name are in the order received. Empty if
        there are none, or if the server is short of memory for them. In a request of Explain, any
        number in any order; only Retry-After, Date and Location count.
    content_length: Value of Content-Length in bytes. Unset if the header is absent. Ignored in a
        request of Explain.
    protocol: HTTP version, such as "HTTP/1.1" or "HTTP/2.0". Always set in a response. Ignored in a
        request of Explain.
    """

    status_code: int
    headers: Headers
    content_length: int
    protocol: str


class ExplainRequest(TypedDict, total=False):
    """ExplainRequest is the request of Explain: one observation and what preceded it.

    retry_policy: Retry policy in force. Unset means profile STANDARD.
    redirect_policy: Redirect policy in force. Unset means the defaults of the profile.
    url: URL of the fetch, as in FetchRequest.url. Empty means "http://origin.example/". Only its
        scheme, host and port matter, for Location and the redirect scope.
    method: HTTP method of the fetch, as in FetchRequest.method. Empty means GET.
    hop_url: URL of the observed hop, as in FetchRequest.url. Empty means the URL of the fetch.
    hop_method: Method of the observed hop, as in FetchRequest.method. Empty means the method of the
        fetch.
    attempt: Number of the attempt that ended, 1 or more. Zero means 1. A negative one is rejected.
    redirect_count: Number of redirects that were followed in this attempt, and in those before it
        if only the hop that failed was sent again (I3), 0 or more. Zero means none. A negative one
        is rejected.
    response: The response. Unset means that none was received.
    error_classes: Failures that the response does not show, any number in any order, such as a body
        that broke off, a refused connection or a redirect loop. Empty means none. Either response
        or error_classes is required. If several apply, the order in section 3 of the spec decides.
    conditional: Whether the request was conditional. Unset means false.
    observe_time: Time of the observation. A date in Retry-After is relative to it if the response
        has no Date. Unset means now.
    remaining_duration: Time left for the fetch, any that is not negative. Unset means enough. Zero
        means none.
    body_committed: Whether body bytes were delivered and the body cannot be continued. Unset means
        false.
    auth_result: What the auth provider did after a 401, or after a 403 that asks for a signature
        (spec A8). Unset means NO_PROVIDER.
    request_state: What is known about the requests of the fetch. Unset means UNKNOWN.
    connection_reused: Whether the connection of the observed hop had carried another request. It
        matters for a 421 only. Unset means false.
    """

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
    request_state: RequestState
    connection_reused: bool
