"""The exceptions.

FetchError is about the origin: it failed, or could not be reached. ServiceError is about the
request or fetchd itself. Both are FetchdError.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Type

from google.protobuf.message import DecodeError

from . import contract


class FetchdError(Exception):
    """The base of all exceptions of this package."""


class FetchError(FetchdError):
    """A fetch that failed at its origin. There is a subclass for each failure_type."""

    def __init__(self, outcome: contract.FetchOutcome):
        super().__init__(outcome)
        #: Everything that is known about the fetch.
        self.outcome = outcome

    @property
    def error_class(self) -> str:
        """The cause, such as "http_server_error". New values may appear: then use the type."""
        return contract.enum_name(self.outcome.error, "error_class")

    @property
    def failure_type(self) -> str:
        """What to do: "transient", "rate_limited", "needs_auth", "permanent" or "not_idempotent".
        A transient or rate limited failure that is not retryable is one of the last two."""
        return _failure_type(self.outcome.error)

    @property
    def stop_reason(self) -> str:
        """Why no attempt followed, such as "attempts_exhausted"."""
        return contract.enum_name(self.outcome.error, "stop_reason")

    @property
    def phase(self) -> str:
        """The part of the exchange in which it failed, such as "connect"."""
        return contract.enum_name(self.outcome.error, "phase")

    @property
    def retryable(self) -> bool:
        """Whether a later fetch of the same request may succeed, and may be sent."""
        return self.outcome.error.retryable

    @property
    def request_state(self) -> str:
        """Whether a request may have been processed: "not_sent", "not_processed" or "unknown"."""
        return contract.enum_name(self.outcome.error, "request_state")

    @property
    def retry_after(self) -> Optional[float]:
        """The Retry-After of the origin in seconds, or None."""
        error = self.outcome.error
        return error.retry_after.ToNanoseconds() / 1e9 if error.HasField("retry_after") else None

    @property
    def reason(self) -> str:
        """A finer cause, such as "too_many_redirects", or ""."""
        return self.outcome.error.reason

    @property
    def policy(self) -> str:
        """The policy of the service that forbids the target, or ""."""
        return self.outcome.error.policy

    @property
    def policy_rule(self) -> str:
        """The entry of that policy that decides, such as "*.ads.example", or ""."""
        return self.outcome.error.policy_rule

    @property
    def class_rule(self) -> str:
        """The number of the rule that classified the failure, such as "H2"."""
        return self.outcome.error.class_rule

    @property
    def status_code(self) -> int:
        """The status of the last response, or 0 if there was none."""
        return self.outcome.response.status_code

    @property
    def location_url(self) -> str:
        """The target of the redirect that was not followed, or ""."""
        return self.outcome.hops[-1].location_url if self.outcome.hops else ""

    @property
    def attempt_count(self) -> int:
        """The number of attempts."""
        return self.outcome.attempt_count

    def __str__(self) -> str:
        error = self.outcome.error
        status = f", status {self.status_code}" if self.status_code else ""
        detail = f"; {error.detail}" if error.detail else ""
        fetch = f"fetch {error.url}" if error.url else "fetch"
        if self.location_url:
            fetch += f", redirected to {self.location_url}"
        return f"{fetch}: {self.error_class}{status} (rule {error.class_rule}, attempt {self.attempt_count}): {error.message}{detail}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class TransientError(FetchError):
    """A later fetch may succeed."""


class PermanentError(FetchError):
    """A later fetch is not expected to succeed."""


class RateLimitedError(FetchError):
    """The origin limits the rate. A later fetch may succeed; see retry_after."""


class NeedsAuthError(FetchError):
    """The origin requires credentials, or other ones."""


class NotIdempotentError(FetchError):
    """A POST or PATCH was not sent again, because it may have taken effect. Find out whether it
    did before you send it once more."""


_FAILURES: Dict[str, Type[FetchError]] = {
    "transient": TransientError,
    "permanent": PermanentError,
    "rate_limited": RateLimitedError,
    "needs_auth": NeedsAuthError,
    "not_idempotent": NotIdempotentError,
}


def _failure_type(error: contract.FetchError) -> str:
    kind = contract.enum_name(error, "failure_type")
    if error.retryable or kind not in ("transient", "rate_limited"):
        return kind
    defect = contract.enum_name(error, "error_class") == "internal" and error.reason != "too_many_open_files"
    unprocessed = contract.enum_name(error, "request_state") in ("not_sent", "not_processed")
    return "permanent" if defect or unprocessed else "not_idempotent"


def failure(outcome: contract.FetchOutcome) -> FetchError:
    """Returns the exception for an outcome that has an error."""
    return _FAILURES.get(_failure_type(outcome.error), FetchError)(outcome)


class BodyRestarted(FetchdError):
    """The body restarted at a lower offset than you have read. Drop what you read beyond
    `offset`, and continue to read. Only with body_policy={"stream": {"recovery": "restart"}}."""

    def __init__(self, offset: int):
        super().__init__(offset)
        self.offset = offset

    def __str__(self) -> str:
        return f"the body restarts at byte {self.offset}: drop the bytes from there on, and continue to read"


class BodyNotDelivered(FetchdError):
    """The body was requested with delivery "digest", "none" or "store", so there is none to read."""


class ContractError(FetchdError):
    """The service violates the API."""


class Violation(NamedTuple):
    """What is wrong with a field of a request."""

    field: str
    description: str


class ServiceError(FetchdError):
    """fetchd did not run the fetch, or its outcome did not arrive. There is a subclass for each
    code that needs its own handling.

    code: str. The gRPC status, such as "INVALID_ARGUMENT".
    message: str. What happened, and what to do about it.
    violations: list of Violation. The fields of the request that are wrong.
    reason: str. A finer cause in lower_snake_case, such as "memory", or "".
    policy: str. The policy of the service that forbids the request, or whose quota is used up, or "".
    retry_in: float or None. The wait in seconds that the service asks for.
    sent: bool. Whether the origin may have seen requests. If not, it is safe to fetch again."""

    def __init__(
        self,
        code: str,
        message: str,
        violations: Optional[List[Violation]] = None,
        reason: str = "",
        sent: bool = False,
        policy: str = "",
        retry_in: Optional[float] = None,
    ):
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.violations = violations or []
        self.reason = reason
        self.sent = sent
        self.policy = policy
        self.retry_in = retry_in

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class InvalidRequestError(ServiceError, ValueError):
    """The request is invalid; see violations."""


class UnavailableError(ServiceError):
    """fetchd cannot be reached, or is shutting down."""


class OverloadedError(ServiceError):
    """fetchd has no capacity for the call, or the wait for a quota of the caller would outlast the timeout. Try again
    after retry_in."""


class RefusedError(ServiceError):
    """fetchd does not accept the token or the certificate of the caller, or its policy forbids the request: then policy
    and violations are set."""


class DeadlineError(ServiceError, TimeoutError):
    """No outcome arrived within the timeout. Requests may have been made."""


class LostError(ServiceError):
    """The connection or the stream to fetchd broke before the outcome arrived. Requests may have been made."""


_SERVICE: Dict[str, Type[ServiceError]] = {
    "INVALID_ARGUMENT": InvalidRequestError,
    "UNAVAILABLE": UnavailableError,
    "RESOURCE_EXHAUSTED": OverloadedError,
    "UNAUTHENTICATED": RefusedError,
    "PERMISSION_DENIED": RefusedError,
    "DEADLINE_EXCEEDED": DeadlineError,
}


# Other codes of a stream that has broken.
BROKEN = ("INTERNAL", "UNKNOWN", "CANCELLED")

_WRONG_PORT = "this is not the gRPC port of fetchd: pass the address of --grpc-addr, by default port 8080 (8081 is its HTTP port)"

_PROXY_ANSWERED = "a proxy in front of fetchd answered: it cannot reach fetchd, or permits less silence than the call had (docs/operating.md)"

# What to do about an error of the transport, by what its text has, in lower case with spaces.
_REMEDIES = (
    (r"http1\.x server", _WRONG_PORT),
    ("http2 header with status: 50[234]", _PROXY_ANSWERED),
    ("http2 header with status", _WRONG_PORT),
    ("health check call failed", "fetchd is stopping, or this is not the gRPC port of fetchd (--grpc-addr, by default 8080), or a proxy in front of fetchd cannot reach it"),
    ("rst stream with error code 2", "a proxy in front of fetchd may have ended the call, because it permits less silence or shorter requests (docs/operating.md)"),
    ("wrong version number", "this port speaks plaintext: leave out https:// and credentials"),
    ("certificate verify failed", "the authority of this certificate is not known: pass credentials=grpc.ssl_channel_credentials(certificate)"),
    ("(failed to connect|backends failing).*socket closed", "if this port speaks TLS, pass https:// or credentials"),
    ("connection refused", "nothing listens there: start fetchd, or pass the address of its --grpc-addr"),
)


def _with_remedy(text: str) -> str:
    plain = text.lower().replace("_", " ")
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, plain):
            return f"{text}; {remedy}"
    return text


def invalid(outcome: contract.FetchOutcome) -> InvalidRequestError:
    """Returns the exception for a task that the service refused as malformed."""
    error = outcome.error
    return InvalidRequestError("INVALID_ARGUMENT", error.detail or error.message, reason=error.reason, policy=error.policy)


def late(timeout: Optional[float]) -> str:
    """Returns the text of a DeadlineError. timeout is what the caller has set."""
    return f"no answer arrived within timeout={timeout or 0:g}"


def service_error(error: Any, sent: bool = False, timeout: Optional[float] = None) -> ServiceError:
    """Returns the exception for a grpc.RpcError. sent reports whether the fetch had been sent,
    timeout is what the caller has set."""
    code = error.code()
    name = code.name if code is not None else "UNKNOWN"
    details = _Details()
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                details = _details(value)
            except DecodeError:
                pass  # the code and the message are there
    kind = _SERVICE.get(name, ServiceError)
    text = error.details() or ""
    sent = sent or re.search("http2 header with status: 50[234]", text) is not None  # the proxy may have sent it
    if sent and (kind is UnavailableError or kind is ServiceError and name in BROKEN):
        kind = LostError
    if timeout and kind is DeadlineError:
        text = late(timeout)
    elif name in ("UNAVAILABLE", "UNIMPLEMENTED", "INTERNAL"):
        text = _with_remedy(text)
    return kind(name, text, details.violations, details.reason, sent, details.policy, details.retry_in)


def unreached(error: ServiceError) -> bool:
    """Reports whether gRPC had no connection for a call, so that it was not sent."""
    return isinstance(error, UnavailableError) and re.search("connections to all backends failing|failed to connect to all|dns resolution failed", error.message.lower()) is not None


def quota_wait(error: ServiceError, left: Optional[float]) -> Optional[float]:
    """Returns for how many seconds a quota of the caller asks to wait, or None if it is not the cause or if fewer are left."""
    if error.code != "RESOURCE_EXHAUSTED" or error.reason != "quota" or not error.retry_in or (left is not None and left <= error.retry_in):
        return None
    return error.retry_in


class _Details(NamedTuple):
    """The details of a status."""

    violations: List[Violation] = []
    reason: str = ""
    policy: str = ""
    retry_in: Optional[float] = None


def _details(data: bytes) -> _Details:
    found = _Details()
    for detail in contract.message_class("fetchd.wire.Status").FromString(data).details:
        kind = detail.type_url.rpartition(".")[2]
        if kind == "BadRequest":
            bad = contract.message_class("fetchd.wire.BadRequest").FromString(detail.value)
            found = found._replace(violations=found.violations + [Violation(v.field, v.description) for v in bad.field_violations])
        elif kind == "ErrorInfo":
            info = contract.message_class("fetchd.wire.ErrorInfo").FromString(detail.value)
            policy = next((entry.value for entry in info.metadata if entry.key == "policy"), "")
            found = found._replace(reason=info.reason.lower(), policy=policy)
        elif kind == "RetryInfo":
            for delay in contract.message_class("fetchd.wire.RetryInfo").FromString(detail.value).retry_delay:
                found = found._replace(retry_in=max(0.0, delay.seconds + delay.nanos / 1e9))
    return found
