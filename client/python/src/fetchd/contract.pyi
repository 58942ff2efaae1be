# .ci/generated writes this file from fetch.proto, whose comments say what each field means.
# The value of an enum is a number; enum_name returns its name.

import datetime
from typing import Any, Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Type, TypeVar, overload

T = TypeVar("T")

class Message:
    def __init__(self, **fields: Any) -> None: ...
    @classmethod
    def FromString(cls: Type[T], data: bytes) -> T: ...
    def SerializeToString(self) -> bytes: ...
    def ByteSize(self) -> int: ...
    def HasField(self, name: str) -> bool: ...
    def SetInParent(self) -> None: ...
    def ClearField(self, name: str) -> None: ...
    def WhichOneof(self, name: str) -> Optional[str]: ...
    def CopyFrom(self: T, other: T) -> None: ...
    DESCRIPTOR: Any

class Repeated(Generic[T]):
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> List[T]: ...
    def __iter__(self) -> Iterator[T]: ...
    def add(self, **fields: Any) -> T: ...
    def append(self, value: T) -> None: ...
    def extend(self, values: Iterable[T]) -> None: ...

class Duration(Message):
    seconds: int
    nanos: int
    def ToNanoseconds(self) -> int: ...
    def ToMilliseconds(self) -> int: ...
    def ToTimedelta(self) -> datetime.timedelta: ...

class Timestamp(Message):
    seconds: int
    nanos: int
    def ToDatetime(self, tzinfo: Optional[datetime.tzinfo] = ...) -> datetime.datetime: ...

def enum_name(message: Message, field: str) -> str: ...
def short_names(enum: Any) -> Dict[int, str]: ...
def message_class(name: str) -> Any: ...

SERVICE: str

class FetchRequest(Message):
    url: str
    method: str
    headers: Repeated[Header]
    body: bytes
    @property
    def redirect_policy(self) -> RedirectPolicy: ...
    @property
    def retry_policy(self) -> RetryPolicy: ...
    @property
    def timeout_policy(self) -> TimeoutPolicy: ...
    @property
    def body_policy(self) -> BodyPolicy: ...
    @property
    def precondition(self) -> Precondition: ...
    @property
    def integrity(self) -> Integrity: ...
    event_level: int
    labels: Mapping[str, str]
    auth_provider: str
    @property
    def content_policy(self) -> ContentPolicy: ...
    cookie_mode: int
    @property
    def record_policy(self) -> RecordPolicy: ...
    egress_route: str
    @property
    def text_policy(self) -> TextPolicy: ...

class Header(Message):
    name: str
    value: str
    raw_value: bytes

class RedirectPolicy(Message):
    follow: bool
    max_redirects: int
    scope: int
    forbid_downgrade: bool
    forward_credentials: bool

class RetryPolicy(Message):
    profile: int
    max_attempts: int
    @property
    def base_delay(self) -> Duration: ...
    @property
    def max_delay(self) -> Duration: ...
    multiplier: float
    @property
    def max_jitter(self) -> Duration: ...
    jitter_seed: int
    @property
    def max_retry_after(self) -> Duration: ...
    additional_status_codes: Repeated[int]
    excluded_status_codes: Repeated[int]
    allow_non_idempotent: bool
    idempotency_key: str
    retry_tls_handshake: bool

class ContentPolicy(Message):
    accepted_media_types: Repeated[str]
    require_body: bool
    require_valid_charset: bool

class TimeoutPolicy(Message):
    @property
    def total_timeout(self) -> Duration: ...
    @property
    def attempt_timeout(self) -> Duration: ...
    @property
    def connect_timeout(self) -> Duration: ...
    @property
    def header_timeout(self) -> Duration: ...
    @property
    def idle_timeout(self) -> Duration: ...

class BodyPolicy(Message):
    @property
    def stream(self) -> StreamDelivery: ...
    @property
    def auto(self) -> StreamDelivery: ...
    @property
    def inline(self) -> InlineDelivery: ...
    @property
    def digest(self) -> DigestDelivery: ...
    @property
    def none(self) -> NoDelivery: ...
    @property
    def store(self) -> StoreDelivery: ...
    max_size_bytes: int
    oversize_action: int
    keep_encoding: bool
    max_error_body_bytes: int
    omit_digest: bool

class TextPolicy(Message):
    content: int

class StreamDelivery(Message):
    max_hold_back_bytes: int
    recovery: int
    @property
    def resume_point(self) -> ResumePoint: ...

class ResumePoint(Message):
    offset_bytes: int
    validator: str

class InlineDelivery(Message):
    pass

class DigestDelivery(Message):
    pass

class NoDelivery(Message):
    pass

class StoreDelivery(Message):
    store: str
    key: str

class RecordPolicy(Message):
    store: str
    @property
    def earlier(self) -> EarlierRecord: ...
    @property
    def path(self) -> CrawlPath: ...

class CrawlPath(Message):
    via: str
    hops_from_seed: str
    requisite_of: str

class EarlierRecord(Message):
    record_id: str
    url: str
    @property
    def record_time(self) -> Timestamp: ...
    payload_digest: str

class Precondition(Message):
    etags: Repeated[str]
    @property
    def last_modified_time(self) -> Timestamp: ...

class Integrity(Message):
    sha256: str
    size_bytes: int

class FetchResponse(Message):
    events: Repeated[FetchEvent]

class FetchEvent(Message):
    sequence: int
    @property
    def elapsed_offset(self) -> Duration: ...
    @property
    def admitted(self) -> Admitted: ...
    @property
    def attempt_started(self) -> AttemptStarted: ...
    @property
    def redirect_followed(self) -> RedirectFollowed: ...
    @property
    def response_started(self) -> ResponseStarted: ...
    @property
    def body_chunk(self) -> BodyChunk: ...
    @property
    def attempt_finished(self) -> AttemptFinished: ...
    @property
    def heartbeat(self) -> Heartbeat: ...
    @property
    def outcome(self) -> FetchOutcome: ...

class Admitted(Message):
    fetch_id: str
    @property
    def effective_request(self) -> FetchRequest: ...
    @property
    def expire_time(self) -> Timestamp: ...
    clamped_fields: Repeated[str]
    @property
    def start_time(self) -> Timestamp: ...

class AttemptStarted(Message):
    attempt: int
    url: str

class RedirectFollowed(Message):
    attempt: int
    @property
    def hop(self) -> Hop: ...

class Hop(Message):
    url: str
    status_code: int
    location_url: str
    @property
    def exchange(self) -> Exchange: ...
    method: str
    @property
    def start_offset(self) -> Duration: ...
    headers: Repeated[Header]

class Exchange(Message):
    remote_address: str
    protocol: str
    tls_version: str
    connection_reused: bool
    @property
    def resolve_duration(self) -> Duration: ...
    @property
    def connect_duration(self) -> Duration: ...
    @property
    def tls_duration(self) -> Duration: ...
    @property
    def processing_duration(self) -> Duration: ...
    @property
    def transfer_duration(self) -> Duration: ...
    @property
    def backpressure_duration(self) -> Duration: ...
    tls_cipher_suite: str
    alpn_protocol: str
    @property
    def certificate(self) -> Certificate: ...

class Certificate(Message):
    subject: str
    issuer: str
    @property
    def not_after(self) -> Timestamp: ...
    sha256: str

class ResponseStarted(Message):
    attempt: int
    @property
    def response(self) -> HttpResponse: ...
    body_offset_bytes: int
    hold_back_bytes: int
    url: str

class HttpResponse(Message):
    status_code: int
    headers: Repeated[Header]
    content_length: int
    protocol: str

class BodyChunk(Message):
    attempt: int
    offset_bytes: int
    data: bytes

class AttemptFinished(Message):
    attempt: int
    @property
    def response(self) -> HttpResponse: ...
    @property
    def error(self) -> FetchError: ...
    @property
    def exchange(self) -> Exchange: ...
    @property
    def retry_decision(self) -> RetryDecision: ...
    hops: Repeated[Hop]

class RetryDecision(Message):
    rule: str
    @property
    def retry(self) -> Retry: ...
    stop_reason: int

class Retry(Message):
    attempt: int
    @property
    def delay(self) -> Duration: ...
    delay_source: int
    start: int

class Heartbeat(Message):
    pass

class FetchOutcome(Message):
    kind: int
    final_url: str
    @property
    def response(self) -> HttpResponse: ...
    @property
    def error(self) -> FetchError: ...
    attempt_count: int
    exchange_count: int
    hops: Repeated[Hop]
    inline_body: bytes
    @property
    def stored_object(self) -> StoredObject: ...
    @property
    def body_summary(self) -> BodySummary: ...
    @property
    def total_duration(self) -> Duration: ...
    idempotency_key: str
    fetch_id: str
    response_attempt: int
    error_body: bytes
    decision_rule: str
    records: Repeated[WarcRecord]
    policy_reports: Repeated[PolicyReport]
    rate_limits: Repeated[RateLimit]
    @property
    def text_summary(self) -> TextSummary: ...

class TextSummary(Message):
    media_type: str
    title: str
    size_bytes: int
    character_count: int
    truncated: bool
    left_out: bool
    fallback: int

class RateLimit(Message):
    name: str
    source: int
    remaining: int
    @property
    def reset_duration(self) -> Duration: ...
    quota: int
    @property
    def window_duration(self) -> Duration: ...

class PolicyReport(Message):
    policy: str
    reason: str
    policy_rule: str
    host: str

class WarcRecord(Message):
    type: int
    record_id: str
    file: str
    offset_bytes: int
    length_bytes: int
    attempt: int
    hop: int
    @property
    def record_time(self) -> Timestamp: ...
    payload_digest: str

class StoredObject(Message):
    store: str
    key: str
    size_bytes: int
    sha256: str
    etag: str
    version: str

class BodySummary(Message):
    size_bytes: int
    sha256: str
    truncated: bool
    encoded_size_bytes: int
    length_known: bool
    partial_content: bool
    unrequested_data: bool

class FetchError(Message):
    error_class: int
    failure_type: int
    reason: str
    message: str
    phase: int
    retryable: bool
    @property
    def retry_after(self) -> Duration: ...
    stop_reason: int
    url: str
    class_rule: str
    detail: str
    policy: str
    policy_rule: str
    request_state: int

class FetchUnaryResponse(Message):
    @property
    def outcome(self) -> FetchOutcome: ...
    attempts: Repeated[AttemptFinished]
    @property
    def effective_request(self) -> FetchRequest: ...
    clamped_fields: Repeated[str]

class FetchManyRequest(Message):
    tasks: Repeated[Task]
    cancel_tags: Repeated[str]

class Task(Message):
    tag: str
    @property
    def request(self) -> FetchRequest: ...

class FetchManyResponse(Message):
    events: Repeated[TaskEvent]
    draining: bool

class TaskEvent(Message):
    tag: str
    @property
    def event(self) -> FetchEvent: ...

class ExplainRequest(Message):
    @property
    def retry_policy(self) -> RetryPolicy: ...
    @property
    def redirect_policy(self) -> RedirectPolicy: ...
    url: str
    method: str
    hop_url: str
    hop_method: str
    attempt: int
    redirect_count: int
    @property
    def response(self) -> HttpResponse: ...
    error_classes: Repeated[int]
    conditional: bool
    @property
    def observe_time(self) -> Timestamp: ...
    @property
    def remaining_duration(self) -> Duration: ...
    body_committed: bool
    auth_result: int
    request_state: int
    connection_reused: bool

class ExplainResponse(Message):
    kind: int
    @property
    def error(self) -> FetchError: ...
    @property
    def redirect(self) -> RedirectStep: ...
    @property
    def retry_decision(self) -> RetryDecision: ...
    @property
    def effective_retry_policy(self) -> RetryPolicy: ...

class RedirectStep(Message):
    url: str
    method: str
    body_kept: bool
    cross_origin: bool
