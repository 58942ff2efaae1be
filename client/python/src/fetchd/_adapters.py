"""What the adapter for requests and the transport for httpx have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Container, Dict, Iterable, List, Mapping, Optional, Tuple, cast
from urllib.parse import urlsplit

from ._client import ANY_SIZE, Options, once, prepared
from .errors import FetchdError, FetchError, InvalidRequestError, NotIdempotentError, ServiceError
from .policies import BodyPolicy, Policies, RetryPolicy, TimeoutPolicy

if TYPE_CHECKING:
    from . import contract

MAX_BODY = 1 << 20  # of a request
ANY_TIME = 366 * 86400.0  # the service reduces it to its maximum, and to that of a policy
ERROR_BODY = 65536  # the most that the service keeps of the body of a failed status

# Headers of the connection, which fetchd makes itself. It decodes bodies, unless a request has
# Accept-Encoding.
_CONNECTION = frozenset(("connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive", "te"))

_KEY = "idempotency-key"

_CATEGORIES: Dict[str, str] = {
    "dns_not_found": "connect",
    "dns_failure": "connect",
    "connect_refused": "connect",
    "connect_failure": "connect",
    "target_blocked": "connect",
    "connect_timeout": "connect_timeout",
    "tls_handshake": "tls",
    "tls_certificate": "tls",
    "connection_reset": "read",
    "protocol": "protocol",
    "body_interrupted": "body",
    "response_timeout": "read_timeout",
    "body_timeout": "read_timeout",
    "attempt_timeout": "read_timeout",
    "deadline": "read_timeout",
    "write_timeout": "write_timeout",
    "too_many_redirects": "redirects",
    "redirect_loop": "redirects",
    "undecodable": "decode",
}


def check_client(adapter: object, client: object, kind: type) -> None:
    """Refuses a client of the other kind, or none, before the first request."""
    if not isinstance(client, kind):
        raise TypeError(f"client is {type(client).__name__}: {type(adapter).__name__} needs a fetchd.{kind.__name__}")
    check_defaults(client)


def check_policies(adapter: object, policies: Mapping[str, Any]) -> None:
    """Refuses wrong policies before the first request."""
    prepared("GET", "http://o.example/", policies)
    if (policies.get("retry_policy") or {}).get("idempotency_key") is not None:
        raise TypeError(f"retry_policy.idempotency_key would be the key of each request of this {type(adapter).__name__}: give each request its own header Idempotency-Key")


def check_defaults(client: Any) -> None:
    """Refuses a client that adds something to each request. A guest follows redirects with one request
    each, so that another host would get it."""
    for name in ("headers", "params", "cookies", "auth"):
        if getattr(client, name):
            raise ValueError(f"the client has {name}, which every redirect would send to its host: set {name} of the Session of requests, or of the client of httpx, and give the adapter a fetchd client without")


def failure(error: FetchdError, method: str, headers: Container[str], policies: Policies) -> Tuple[str, str]:
    """Returns the kind of a failure without a response, or "other", and the text of its exception."""
    kind, text = _kind(error), str(error)
    # Programs send a request again after most of the others.
    if kind not in ("redirects", "decode") and _sent_once(error, method, headers, policies):
        kind = "not_idempotent"
        text = f"the {method} may have taken effect; find out before you send it again: {text}"
    return kind, text


def _kind(error: FetchdError) -> str:
    if isinstance(error, FetchError):
        return _CATEGORIES.get(error.error_class, "other")
    if isinstance(error, InvalidRequestError):
        return "invalid"
    if isinstance(error, TimeoutError):
        return "read_timeout"
    return "service"


def _sent_once(error: FetchdError, method: str, headers: Container[str], policies: Policies) -> bool:
    """Reports whether the origin may have seen a request that may be sent only once."""
    if isinstance(error, NotIdempotentError):
        return True
    if not once(method, _KEY in headers and (policies.get("retry_policy") or {}).get("allow_non_idempotent", False)):
        return False
    if isinstance(error, FetchError):
        return error.request_state == "unknown" and not error.retryable
    return not isinstance(error, ServiceError) or error.sent


def without_userinfo(url: str) -> str:
    """Returns a URL without user name and password, of which requests and httpx make the header
    Authorization. fetchd rejects them in a URL."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url


def forwarded(headers: Iterable[Tuple[Any, Any]], host: str) -> List[Tuple[str, str]]:
    """Returns the headers that are passed to fetchd. A Host other than that of the URL is kept,
    so that fetchd rejects it."""
    kept = []
    for name, value in headers:
        text = name.decode("latin-1") if isinstance(name, bytes) else name
        lower = text.lower()
        if lower in _CONNECTION or (lower == "host" and value in (host, host.encode())):
            continue
        kept.append((text, value))
    return kept


def options(policies: Policies, headers: List[Tuple[str, str]], connect: Optional[float], read: Optional[float]) -> Options:
    """Returns the arguments of a fetch."""
    merged = cast(Options, dict(policies))
    merged["headers"] = [(name, value) for name, value in headers if name.lower() != _KEY]
    keys: List[Any] = [value for name, value in headers if name.lower() == _KEY]
    retries = {**(policies.get("retry_policy") or {})}
    if keys:
        retries["idempotency_key"] = keys[0].decode("latin-1") if isinstance(keys[0], bytes) else keys[0]
    else:
        retries.pop("allow_non_idempotent", None)  # the service wants a key with it
    merged["retry_policy"] = cast(RetryPolicy, retries)
    # The guests have no limit for an attempt and for all of it, and none at all without a timeout.
    limits: TimeoutPolicy = {}
    guest: TimeoutPolicy = {"total_timeout": ANY_TIME, "attempt_timeout": 0, "header_timeout": ANY_TIME, "idle_timeout": ANY_TIME}
    if connect is not None:
        limits["connect_timeout"] = connect
    if read is not None:
        limits["header_timeout"] = limits["idle_timeout"] = read
    merged["timeout_policy"] = cast(TimeoutPolicy, {**guest, **(policies.get("timeout_policy") or {}), **limits})
    # A guest that reads a body expects all of it. As in every policy, None means unset.
    body: BodyPolicy = {"max_error_body_bytes": ERROR_BODY, "max_size_bytes": ANY_SIZE}
    merged["body_policy"] = cast(BodyPolicy, {**body, **{name: value for name, value in (policies.get("body_policy") or {}).items() if value is not None}})
    return merged


def too_large(size: int) -> InvalidRequestError:
    return InvalidRequestError("INVALID_ARGUMENT", f"the request body has {size} bytes or more, want at most {MAX_BODY}")


def fields(response: contract.HttpResponse, outcome: Optional[contract.FetchOutcome]) -> List[Tuple[str, bytes]]:
    """Returns the header fields of a response. If the body is a text of text_policy, they are about the text."""
    got = [(f.name, f.raw_value or f.value.encode()) for f in response.headers]
    if outcome is None or not outcome.HasField("text_summary"):
        return got
    text = outcome.text_summary
    kept = [(name, value) for name, value in got if name.lower() not in ("content-type", "content-length", "content-encoding")]
    return [*kept, ("Content-Type", f"{text.media_type}; charset=utf-8".encode()), ("Content-Length", b"%d" % text.size_bytes)]


def merged_headers(pairs: Iterable[Tuple[str, str]]) -> Mapping[str, str]:
    """Joins the values of repeated headers."""
    joined: Dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
