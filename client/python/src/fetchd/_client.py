"""What Client and AsyncClient have in common."""

from __future__ import annotations

import functools
import pathlib
import re
import warnings
from collections import deque
from typing import IO, TYPE_CHECKING, Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import grpc

from . import _address, _convert, _foreign, contract
from . import _body
from ._body import Body
from ._pool import DEFAULT_BODY_BYTES, TASK_BYTES, Task
from ._response import NOT_DELIVERED, Head, Headers, Response, failed_status, headers_of
from .errors import (
    BodyNotDelivered,
    BodyRestarted,
    ContractError,
    InvalidRequestError,
    OverloadedError,
    RefusedError,
    ServiceError,
    Violation,
    failure,
    invalid,
    service_error,
)
from . import policies
from .policies import Duration, Policies

OnEvent = Callable[[contract.FetchEvent], None]
Pairs = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]


class Defaults(Policies, total=False):
    """The keyword arguments of a client that apply to each of its fetches: these, and the policies."""

    #: Request headers. None as a value leaves out a header of the client.
    headers: Union[Mapping[str, Optional[str]], Iterable[Tuple[str, Optional[str]]]]
    #: Parameters that are appended to the query of the URL, without those that are None.
    params: Union[str, bytes, Pairs]
    #: Cookies to send, as the header Cookie.
    cookies: Union[Mapping[str, str], Iterable[Tuple[str, str]]]
    #: User name and password, as the header Authorization with the scheme Basic.
    auth: Tuple[str, str]
    #: Time for the whole fetch, its body included. Default: the limits of the service.
    timeout: Duration


class Options(Defaults, total=False):
    """The keyword arguments of a fetch: these, and the policies."""

    #: The request body; at most one of the three. It has at most 1 MiB.
    content: Union[str, bytes, IO[bytes], IO[str]]
    #: The same. A dict or pairs are sent as a form.
    data: Union[str, bytes, IO[bytes], IO[str], Pairs]
    #: The same, as JSON.
    json: Any
    #: Lets the service write the body to this store; response.stored says where it is.
    store: str
    #: Key of the object in the store. Default: it is named by its digest.
    key: str
    #: Called with each event; sets event_level "attempts" unless you set it.
    on_event: OnEvent


class RequestURL(Options):
    """A request of fetch_many."""

    url: str


class Request(RequestURL, total=False):
    """A request of fetch_many: the URL, the method, and the arguments of a fetch."""

    method: str


def _value(message: str, field: str, name: str) -> Any:
    enum = getattr(contract, message).DESCRIPTOR.fields_by_name[field].enum_type
    numbers = {text: number for number, text in contract.short_names(enum).items()}
    return numbers.get(name)


_UNDELIVERED = ("digest", "none", "store")
ANY_SIZE = (1 << 53) - 1  # the service reduces it to its maximum, and to that of a policy
_DOWNLOAD = _value("RetryPolicy", "profile", "download")
_OUTCOME = _value("FetchRequest", "event_level", "outcome")
_ATTEMPTS = _value("FetchRequest", "event_level", "attempts")
_INVALID_REQUEST = _value("FetchError", "error_class", "invalid_request")


class Session:
    """What a client adds to each of its fetches. Its attributes may be changed."""

    def __init__(self, base_url: str, defaults: Mapping[str, Any]):
        _convert.check_names(defaults, client=True)
        rest = {name: value for name, value in defaults.items() if value is not None and name not in _foreign.ARGUMENTS}
        #: The URL before relative ones: "http://o.example/v1" and "users" make "http://o.example/v1/users".
        self.base_url = base_url
        #: Headers of each fetch.
        self.headers: Dict[str, Any] = dict(rest.pop("headers", ()))
        #: Parameters of each fetch.
        self.params: Dict[str, Any] = dict(_convert.param_pairs(rest.pop("params", ())))
        #: Cookies of each fetch. Those of a response are not added.
        self.cookies: Dict[str, str] = dict(rest.pop("cookies", ()))
        #: User name and password of each fetch.
        self.auth: Optional[Tuple[str, str]] = rest.pop("auth", None)
        #: The timeout of each fetch.
        self.timeout: Optional[Duration] = rest.pop("timeout", None)
        self._policies = rest
        prepared("GET", "http://o.example/", self._defaults())  # raises if one is wrong

    def _defaults(self) -> Dict[str, Any]:
        own = {"headers": self.headers, "params": self.params, "cookies": self.cookies, "auth": self.auth, "timeout": self.timeout}
        return {**self._policies, **{name: value for name, value in own.items() if value is not None and value != {}}}

    def _apply(self, url: str, options: Mapping[str, Any]) -> Tuple[str, Mapping[str, Any]]:
        """Returns the URL and the arguments of a fetch with those of the client."""
        if self.base_url and isinstance(url, str) and "://" not in url.partition("?")[0]:
            url = f"{self.base_url.rstrip('/')}/{url.lstrip('/')}" if url else self.base_url
        defaults = self._defaults()
        return url, _convert.merged(defaults, options) if defaults else options

    if not TYPE_CHECKING:  # mypy knows which attributes there are

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_foreign.text(type(self).__name__, name, _foreign.CLIENT))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _foreign.CLIENT:  # it would change nothing
            raise AttributeError(_foreign.text(type(self).__name__, name, _foreign.CLIENT))
        super().__setattr__(name, value)


def prepared(method: str, url: str, options: Mapping[str, Any]) -> Tuple[contract.FetchRequest, Optional[float]]:
    """Returns the request and the timeout in seconds."""
    request: contract.FetchRequest = _convert.request(method, url, options)
    timeout = None
    if options:
        if options.get("timeout") is not None:
            timeout = _convert.seconds(options["timeout"])
        if options.get("on_event") is not None and not request.event_level:
            request.event_level = _ATTEMPTS
    return request, timeout


def task_of(
    method: str, url: str, options: Mapping[str, Any], done: Callable[[Task], object], now: Callable[[], float], session: Optional[Session] = None
) -> Task:
    """Returns the task of a fetch whose body is kept in memory."""
    if session is not None:
        url, options = session._apply(url, options)
    request, timeout = prepared(method, url, options)
    limit, limited, delivery = DEFAULT_BODY_BYTES, None, None  # limited: the total_timeout that follows from timeout
    if request.HasField("body_policy"):
        policy = request.body_policy
        delivery = policy.WhichOneof("delivery")
        if delivery == "stream":
            raise ValueError("body_policy.stream is given, want another delivery, or call stream()")
        if policy.HasField("max_size_bytes"):
            limit = policy.max_size_bytes
    undelivered = delivery in _UNDELIVERED
    resume = _resume_point(request)
    if limit is DEFAULT_BODY_BYTES and request.HasField("retry_policy") and request.retry_policy.profile == _DOWNLOAD and not undelivered:
        request.body_policy.max_size_bytes = limit
    deadline = None
    if timeout is not None:
        deadline = now() + timeout
        limited = _convert.service_timeout(timeout)
        given = request.timeout_policy.total_timeout if request.HasField("timeout_policy") else None
        if given is not None and request.timeout_policy.HasField("total_timeout") and given.ToNanoseconds() < limited * 1e9:
            limited = None
    # Encoded messages of one type merge if they are put together.
    data = request.SerializeToString() + _suffix(limited, delivery is None)
    check_size(data)
    return Task(data, done, limit, deadline, options.get("on_event"), undelivered, timeout, limited is not None, resume)


@functools.lru_cache(maxsize=64)
def _suffix(total_timeout: Optional[float], auto: bool) -> bytes:
    """Returns an encoded FetchRequest with this timeout, and the delivery auto. Programs use few
    timeouts."""
    request = contract.FetchRequest()
    if auto:
        request.body_policy.auto.SetInParent()
    if total_timeout is not None:
        _convert.set_duration(request.timeout_policy.total_timeout, total_timeout, "timeout")
    return request.SerializeToString()


def check_size(data: bytes) -> None:
    """Refuses a request that the service would not read."""
    if len(data) > TASK_BYTES:
        text = f"has {len(data)} bytes, want at most {TASK_BYTES}: the body of a request has at most 1 MiB"
        raise InvalidRequestError("INVALID_ARGUMENT", f"the request {text}", [Violation("request", text)])


def response_of(task: Task) -> Response:
    """Returns the response of a task that is over, or raises its error."""
    if task.error is not None:
        raise task.error
    outcome = task.outcome
    assert outcome is not None
    if task.limited:
        in_own_words(outcome, _TOTAL_TIMEOUT, task.timeout)
    if outcome.HasField("error") and outcome.error.error_class == _INVALID_REQUEST:
        raise invalid(outcome)
    received = task.received
    return Response(outcome, received if received.__class__ is bytes else bytes(received), task.undelivered)


# The limits that the service names for a timeout: of a task, and of a call.
_TOTAL_TIMEOUT = re.compile(r"total_timeout (\S+), set by the request")
_CALL_DEADLINE = re.compile(r"the deadline of the call, set by the caller, left ([\w.]+)")


def in_own_words(outcome: contract.FetchOutcome, limit: "re.Pattern[str]", timeout: Optional[float]) -> None:
    """Names the limit that follows from timeout as the caller has set it."""
    if timeout is not None and outcome.HasField("error"):
        error = outcome.error
        error.message = limit.sub(lambda left: f"timeout={timeout:g}, which left {left[1]} after the reserve for the answer", error.message)


def ends_many(error: Optional[Exception]) -> bool:
    """Reports whether an error of a fetch means that the service takes no further ones."""
    if isinstance(error, (InvalidRequestError, TimeoutError)):
        return False
    return isinstance(error, (RefusedError, OverloadedError)) or (isinstance(error, ServiceError) and not error.sent)


def many_request(given: Any) -> Tuple[str, str, Mapping[str, Any]]:
    """Returns method, URL and options of an item of fetch_many."""
    if isinstance(given, str):
        return "GET", given, {}
    if not isinstance(given, Mapping):
        raise TypeError(f"the request is {type(given).__name__}, want a URL, or a dict with a url")
    options = dict(given)
    if "url" not in options:
        raise TypeError("the request has no url")
    if options.get("on_event") is not None:
        raise TypeError("on_event is not an option of one request: pass it to fetch_many")
    return options.pop("method", None) or "GET", options.pop("url"), options


def not_one(requests: Any) -> None:
    """Rejects a single request where many are expected."""
    if isinstance(requests, (str, bytes, Mapping)):
        raise TypeError("fetch_many needs an iterable of requests, not one request")


class Settings:
    """How the service is reached."""

    def __init__(
        self,
        target: str,
        credentials: Any,
        token: Optional[str],
        metadata: Sequence[Tuple[str, str]],
        service_config: Optional[str],
        options: Sequence[Tuple[str, Any]],
    ):
        address = _address.parsed(target)
        if address.tls is False and credentials is not None:
            raise ValueError(f"target is {target!r}, which is plaintext, and credentials are given: pass https://, or no credentials")
        if service_config is None:
            service_config = pathlib.Path(__file__).with_name("service-config.json").read_text()
        self.target = target
        self._grpc_target, self._tls = address
        self.credentials = credentials
        self.metadata: List[Tuple[str, str]] = list(metadata)
        if token is not None:
            _check_token(token)
            self.metadata.append(("authorization", f"Bearer {token}"))
        self.options = [
            ("grpc.service_config", service_config),
            ("grpc.enable_http_proxy", 0),
            ("grpc.keepalive_time_ms", 30000),
            # Those of gRPC are 1 s and 120 s, too long for calls that wait for a restart.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # The thread that reads a streamed response also does its input, which takes half the
            # CPU. An experimental option of grpcio.
            ("SingleThreadedUnaryStream", 1),
            *options,
        ]

    def channel(self, module: Any) -> Any:
        """Returns a channel of grpc or grpc.aio."""
        credentials = self.credentials
        if credentials is None and self._tls:
            credentials = grpc.ssl_channel_credentials()
        if credentials is None:
            return module.insecure_channel(self._grpc_target, options=self.options)
        return module.secure_channel(self._grpc_target, credentials, options=self.options)


def _check_token(token: str) -> None:
    """Rejects a token that gRPC would reject with a text that contains it."""
    if not isinstance(token, str):
        raise TypeError(f"token is {type(token).__name__}, want a str")
    if not token or not all("!" <= c <= "~" for c in token):
        raise ValueError("token is empty, or has a space, a line break or a character outside of ASCII: strip what you read from a file")


class Methods:
    """The methods of the service on a channel."""

    def __init__(self, channel: Any):
        def method(kind: str, name: str, request: Any, response: Any) -> Any:
            return getattr(channel, kind)(f"/{contract.SERVICE}/{name}", request_serializer=request, response_deserializer=response)

        self.many = method("stream_stream", "FetchMany", None, None)
        self.fetch = method("unary_stream", "Fetch", None, contract.FetchResponse.FromString)
        self.check = channel.unary_unary("/grpc.health.v1.Health/Check")
        self.explain = method("unary_unary", "Explain", contract.ExplainRequest.SerializeToString, contract.ExplainResponse.FromString)


class StreamRequest(NamedTuple):
    """A call of Fetch."""

    data: bytes
    timeout: Optional[float]
    undelivered: bool  # the caller wants no body
    # The request may take effect twice if it is sent twice. A driver calls Check first, so that a
    # fetch that could not be sent is not taken for one that was lost.
    once: bool
    resume: int = 0  # the resume point


def once(method: str, allow_non_idempotent: bool) -> bool:
    """Reports whether a request may be sent only once (rule I2)."""
    return method.upper() in ("POST", "PATCH") and not allow_non_idempotent


def stream_request(method: str, url: str, options: Mapping[str, Any], session: Optional[Session] = None, events: bool = False) -> StreamRequest:
    """Returns the call of a fetch whose body is streamed."""
    if session is not None:
        url, options = session._apply(url, options)
    if events and options.get("on_event") is not None:
        raise TypeError("on_event is not an argument of events, which yields the events")
    request, timeout = prepared(method, url, options)
    if not request.event_level:
        request.event_level = _ATTEMPTS if events else _OUTCOME
    delivery = request.body_policy.WhichOneof("delivery")
    if delivery is None:
        request.body_policy.auto.SetInParent()
    if delivery in (None, "auto", "stream") and not request.body_policy.HasField("max_size_bytes"):
        request.body_policy.max_size_bytes = ANY_SIZE
    data = request.SerializeToString()
    check_size(data)
    return StreamRequest(data, timeout, delivery in _UNDELIVERED, once(method, request.retry_policy.allow_non_idempotent), _resume_point(request))


def _resume_point(request: contract.FetchRequest) -> int:
    policy = request.body_policy
    delivery = policy.WhichOneof("delivery")
    return int(getattr(policy, delivery).resume_point.offset_bytes) if delivery in ("auto", "stream") else 0


def connected(error: Any, timeout: Optional[float]) -> None:
    """Handles the error of Check. Any status that the service sends shows that there is a connection."""
    failed = service_error(error, False, timeout)
    if failed.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        raise failed from None


class Outage:
    """How long one call waits for a service that cannot be reached. gRPC connects only while somebody
    waits, otherwise every few seconds: without it a restart of the service would cost a quarter of a minute."""

    # Seconds. The address of a service that has never answered may be wrong.
    KNOWN, UNKNOWN = 5.0, 1.0

    def __init__(self, now: float, answered: bool, left: Optional[float] = None):
        limit = self.KNOWN if answered else self.UNKNOWN
        self.until = now + (limit if left is None else min(limit, left))
        self.pause = 0.05

    def wait(self, now: float) -> Optional[float]:
        """Returns for how many seconds to wait before the next try at least, or None if there is none."""
        self.pause = min(2 * self.pause, 1.0)
        return self.pause if now + self.pause < self.until else None


def explain_timeout(timeout: Optional[Duration]) -> Optional[float]:
    return None if timeout is None else _convert.seconds(timeout)


def explain_request(fields: Mapping[str, Any]) -> Any:
    """Returns the message for the method Explain."""
    request = contract.ExplainRequest()
    _convert.fill(request, fields)
    return request


def broken(error: Any, answered: bool, once: bool, timeout: Optional[float]) -> ServiceError:
    """Returns the exception for a call of Fetch that ended with a status."""
    code = error.code()
    sent = answered or code is None or code.name not in _NOT_SENT
    # Without Check there may have been no connection.
    lost = sent and (answered or once or code is not grpc.StatusCode.UNAVAILABLE)
    failed = service_error(error, lost, timeout)
    failed.sent = sent
    return failed


class EventState:
    """The state of an iterator over events."""

    def __init__(self, request: StreamRequest):
        self.request = request
        self.answered = False
        self._body = Body(request.resume)
        self.outcome: Optional[contract.FetchOutcome] = None

    def events(self, message: contract.FetchResponse) -> Iterator[contract.FetchEvent]:
        """Yields the events of a message, without the outcome."""
        self.answered = True
        for event in message.events:
            if self.outcome is not None:
                raise ContractError("an event arrived after the outcome")
            if not event.HasField("outcome"):
                if event.HasField("response_started"):
                    self._body.started(event.response_started)
                elif event.HasField("body_chunk"):
                    self._body.chunk(event.body_chunk)
                if event.WhichOneof("event") not in (None, "heartbeat"):
                    yield event
                continue
            _body.check_outcome(event.outcome)
            if not self.request.undelivered:
                _body.check_size(event.outcome, self._body, self.request.resume)
                self._body.ended(event.outcome)
            self.outcome = event.outcome
            in_own_words(self.outcome, _CALL_DEADLINE, self.request.timeout)

    def last(self) -> contract.FetchEvent:
        """Returns the event with the outcome, after the end of the call."""
        if self.outcome is None:
            raise ContractError("the call ended without an outcome")
        if self.outcome.HasField("error") and self.outcome.error.error_class == _INVALID_REQUEST:
            raise invalid(self.outcome)
        return contract.FetchEvent(outcome=self.outcome)

    def broken(self, error: Any) -> ServiceError:
        """Returns the exception for a call that ended with a status."""
        return broken(error, self.answered, self.request.once, self.request.timeout)


class StreamState(Head):
    """The state of a streamed response. A subclass reads the messages and passes them on."""

    def __init__(self, call: Any, on_event: Optional[OnEvent], request: StreamRequest):
        self._call = call
        self._on_event = on_event
        self._undelivered, self._once, self._timeout = request.undelivered, request.once, request.timeout
        self._resume = request.resume
        self._body = Body(request.resume)
        self._events: Deque[contract.FetchEvent] = deque()  # received and not handled yet
        self._ready = False  # the head is known for good
        self._answered = False
        self._rest = b""  # received and not read yet
        self._restarted: Optional[BodyRestarted] = None  # to be raised before the rest
        self._end: Optional[Exception] = None  # to be raised after the rest; EOFError is the end
        self._outcome = None
        self._headers: Headers = headers_of(())
        self._shown = contract.HttpResponse()
        self._url = ""
        self._attempt = 0
        self._encoding = None

    def _response(self) -> contract.HttpResponse:
        return self._shown

    @property
    def headers(self) -> Headers:
        """The headers of the last response."""
        return self._headers

    @property
    def outcome(self) -> Optional[contract.FetchOutcome]:
        """Everything that is known about the fetch, after the body was read to its end."""
        return self._outcome

    @property
    def ok(self) -> bool:
        """Whether the fetch did not fail so far."""
        return self._outcome is None or not self._outcome.HasField("error")

    @property
    def url(self) -> str:
        """The URL of the response, after redirects."""
        return self._url

    @property
    def attempt_count(self) -> int:
        """The number of attempts so far."""
        return self._attempt

    def __repr__(self) -> str:
        state = contract.enum_name(self._outcome, "kind") if self._outcome is not None else "in flight"
        return f"<{type(self).__name__} {self.status_code or 'none'} {self.url!r}, {state}, attempt {self.attempt_count}>"

    def _feed(self, message: contract.FetchResponse) -> None:
        """Receives a message."""
        self._answered = True
        self._events.extend(message.events)

    def _next_event(self) -> bool:
        """Handles the next event that was received. Reports whether the caller can go on: not if
        there is none, and not at the outcome, which the end of the call follows."""
        while self._events:
            event = self._events.popleft()
            self._event(event)
            if not event.HasField("outcome"):
                return True
        return False

    def _event(self, event: contract.FetchEvent) -> None:
        kind = event.WhichOneof("event")
        if kind is None or kind == "heartbeat":
            return
        if self._outcome is not None:
            self._fail(ContractError("an event arrived after the outcome"))
        elif kind == "body_chunk":
            self._chunk(event.body_chunk)
        elif kind == "outcome":
            self._finish(event.outcome)
        elif kind == "response_started":
            try:
                self._body.started(event.response_started)
            except ContractError as error:
                self._fail(error)
                return
        if kind != "body_chunk" and self._on_event is not None:
            self._on_event(event)

    def _chunk(self, chunk: contract.BodyChunk) -> None:
        try:
            restart = self._body.chunk(chunk)
        except ContractError as error:
            self._fail(error)
            return
        head = self._body.head
        assert head is not None
        if not self._ready:
            self._show(head.response, head.url)
        self._attempt = chunk.attempt
        self._rest = chunk.data
        if restart is not None:
            self._restarted = BodyRestarted(restart)

    def _show(self, response: contract.HttpResponse, url: str) -> None:
        self._ready, self._shown, self._headers, self._url = True, response, headers_of(response.headers), url

    def _finish(self, outcome: contract.FetchOutcome) -> None:
        try:
            _body.check_outcome(outcome)
            if not self._undelivered:
                _body.check_size(outcome, self._body, self._resume)
        except ContractError as error:
            self._fail(error)
            return
        self._outcome, self._attempt = outcome, outcome.attempt_count
        in_own_words(outcome, _CALL_DEADLINE, self._timeout)
        try:
            restart = self._body.ended(outcome)
        except ContractError as error:
            self._fail(error)
            return
        if restart is not None:
            self._restarted = BodyRestarted(restart)
        started = self._ready
        self._show(outcome.response, outcome.final_url)
        self._end = EOFError()
        if outcome.HasField("error"):
            if outcome.error.error_class == _INVALID_REQUEST:
                self._end = invalid(outcome)
            elif started or not failed_status(outcome):
                self._end = failure(outcome)
            else:
                self._rest = outcome.error_body
        elif contract.enum_name(outcome, "kind") != "success":
            self._rest = outcome.error_body
        elif self._undelivered:
            self._end = BodyNotDelivered(NOT_DELIVERED)
        elif not started:
            self._rest = outcome.inline_body
            outcome.ClearField("inline_body")

    def _fail(self, error: Exception) -> None:
        if self._end is None or self._outcome is not None:
            self._end = error
        self._call.cancel()

    def _ended(self) -> None:
        """Handles the end of the call with status OK."""
        if self._end is None:
            self._end = ContractError("the call ended without an outcome")

    def _broken(self, error: Any) -> None:
        """Handles the end of the call with another status."""
        if self._end is None:
            self._end = broken(error, self._answered, self._once, self._timeout)

    def _opened(self) -> None:
        """Raises the error of a call that has no outcome."""
        if self._outcome is None and self._end is not None and not isinstance(self._end, EOFError):
            raise self._end

    def _take(self, size: int) -> Optional[bytes]:
        """Returns a piece of the body, b"" at its end, or None if a message must be read."""
        if self._restarted is not None:
            restarted, self._restarted = self._restarted, None
            raise restarted
        if self._rest:
            piece = self._rest if size < 0 else self._rest[:size]
            self._rest = self._rest[len(piece) :]
            return piece
        if self._end is None:
            return None
        if isinstance(self._end, EOFError):
            return b""
        raise self._end

    def _close(self) -> None:
        self._call.cancel()
        if self._end is None or self._rest:
            self._end, self._rest = ValueError("read of a closed response"), b""


# The codes with which the service ends a call before it fetches.
_NOT_SENT = ("INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED")


def unclosed(client: Any) -> None:
    """Warns of a client that was not closed."""
    warnings.warn(f"unclosed {client!r}: call close(), or use with", ResourceWarning, source=client)
