"""Responses and results."""

from __future__ import annotations

import datetime
import json
from typing import Any, Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar

from . import contract
from .errors import BodyNotDelivered, FetchError, failure

# The classes of a status that is a failure. Its response has a body, of which the outcome has
# the first bytes.
_STATUS_CLASSES = frozenset(
    (
        "http_server_error",
        "rate_limited",
        "auth_required",
        "forbidden",
        "request_timeout",
        "http_client_error",
        "unexpected_not_modified",
    )
)


NOT_DELIVERED = "the body was requested with delivery none, digest or store: it was not delivered"


class Headers(Mapping[str, str]):
    """Response headers. Names are case-insensitive. A repeated header has its values joined by
    ", "; get_all returns them one by one."""

    __slots__ = ("_fields", "_index")

    def __init__(self, fields: Iterable[Tuple[str, str]]):
        self._fields = list(fields)
        self._index: Dict[str, List[str]] = {}
        for name, value in self._fields:
            self._index.setdefault(name.lower(), []).append(value)

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._index[name.lower()])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._index

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower(): name for name, _ in self._fields}.values())

    def __len__(self) -> int:
        return len(self._index)

    def get_all(self, name: str) -> List[str]:
        """Returns the values of a header, or []."""
        return list(self._index.get(name.lower(), ()))

    def pairs(self) -> List[Tuple[str, str]]:
        """Returns all lines in order."""
        return list(self._fields)

    def __repr__(self) -> str:
        return f"Headers({self._fields!r})"


def headers_of(fields: Iterable[contract.Header]) -> Headers:
    """Returns headers of a message."""
    return Headers((f.name, f.raw_value.decode("latin-1") if f.raw_value else f.value) for f in fields)


def failed_status(outcome: contract.FetchOutcome) -> bool:
    """Reports whether a fetch failed because of the status of its response."""
    return contract.enum_name(outcome.error, "error_class") in _STATUS_CLASSES


def charset_of(content_type: str) -> str:
    """Returns the charset of a media type, or utf-8."""
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            value = value.strip().strip("\"'")
            try:
                b"-".decode(value, "replace")  # as text does
            except (LookupError, ValueError):
                break
            return value
    return "utf-8"


class Head:
    """What a Response and a stream have in common."""

    __slots__ = ()

    _outcome: Optional[contract.FetchOutcome]

    def _response(self) -> contract.HttpResponse:
        raise NotImplementedError

    @property
    def status_code(self) -> int:
        """The status of the last response, or 0 if there was none."""
        return self._response().status_code

    @property
    def headers(self) -> Headers:
        """The headers of the last response."""
        raise NotImplementedError

    @property
    def encoding(self) -> str:
        """The charset of Content-Type, or utf-8."""
        return charset_of(self.headers.get("content-type", ""))

    @property
    def error(self) -> Optional[FetchError]:
        """Why the fetch failed, or None."""
        if self._outcome is not None and self._outcome.HasField("error"):
            return failure(self._outcome)
        return None

    @property
    def stored(self) -> Optional[contract.StoredObject]:
        """Where the body is, or None: store, key, size_bytes, sha256, etag and version."""
        if self._outcome is not None and self._outcome.HasField("stored_object"):
            return self._outcome.stored_object
        return None

    def raise_for_outcome(self) -> None:
        """Raises a FetchError if the fetch failed."""
        error = self.error
        if error is not None:
            raise error


class Response(Head):
    """The response of a fetch that has ended, whatever its outcome."""

    __slots__ = ("_outcome", "_headers", "_body", "_undelivered")

    _outcome: contract.FetchOutcome

    def __init__(self, outcome: contract.FetchOutcome, body: bytes, undelivered: bool = False):
        self._outcome = outcome
        self._headers: Optional[Headers] = None
        self._body = body
        self._undelivered = undelivered

    def _response(self) -> contract.HttpResponse:
        return self._outcome.response

    @property
    def headers(self) -> Headers:
        """The headers of the last response."""
        if self._headers is None:
            self._headers = headers_of(self._outcome.response.headers)
        return self._headers

    @property
    def outcome(self) -> contract.FetchOutcome:
        """Everything that is known about the fetch, except the body."""
        return self._outcome

    @property
    def ok(self) -> bool:
        """Whether the fetch did not fail. A 304 to a conditional request and a redirect that
        the policy says not to follow are no failures."""
        return not self._outcome.HasField("error")

    @property
    def kind(self) -> str:
        """"success", "not_modified", "redirect" or "failed"."""
        return contract.enum_name(self._outcome, "kind")

    @property
    def url(self) -> str:
        """The URL of the response, after redirects."""
        return self._outcome.final_url

    @property
    def attempt_count(self) -> int:
        """The number of attempts."""
        return self._outcome.attempt_count

    @property
    def elapsed(self) -> datetime.timedelta:
        """The time that the fetch took in the service, waits included."""
        return self._outcome.total_duration.ToTimedelta()

    @property
    def content(self) -> bytes:
        """The body. Of a failed status it is the first bytes of the body. If there is no
        response, or its body is incomplete, this raises the FetchError."""
        outcome = self._outcome
        if outcome.HasField("error"):
            if not failed_status(outcome):
                raise failure(outcome)
            return outcome.error_body
        if self.kind != "success":
            return outcome.error_body
        if self._undelivered:
            raise BodyNotDelivered(NOT_DELIVERED)
        return self._body

    @property
    def text(self) -> str:
        """The body as text. Bytes that are not valid in its charset are replaced."""
        return self.content.decode(self.encoding, "replace")

    def json(self, **options: Any) -> Any:
        """Returns the body, parsed as JSON."""
        return json.loads(self.content, **options)

    def __repr__(self) -> str:
        error = self.error
        failed = f", error_class={error.error_class!r}, retryable={error.retryable}" if error else ""
        size = f", {len(self._body)} bytes" if self.kind == "success" and not self._undelivered else ""
        return f"<Response {self.status_code or 'none'} {self.url!r}, {self.kind}{failed}, attempt {self.attempt_count}{size}>"


T = TypeVar("T")


class Result(Generic[T]):
    """How one fetch of fetch_many ended."""

    __slots__ = ("request", "response", "error")

    def __init__(self, request: T, response: Optional[Response], error: Optional[Exception]):
        #: The request as you passed it.
        self.request = request
        #: The response, or None if there is no outcome.
        self.response = response
        #: A FetchError, a ServiceError, or a TypeError or ValueError of the request; or None.
        self.error = error

    @property
    def ok(self) -> bool:
        """Whether the fetch did not fail."""
        return self.error is None

    @property
    def status_code(self) -> int:
        """The status of the last response, or 0 if there was none."""
        return self.response.status_code if self.response is not None else 0

    def __repr__(self) -> str:
        # Not the whole request, whose headers may have a token.
        of = self.request.get("url") if isinstance(self.request, Mapping) else self.request
        return f"<Result of {of!r}: {self.response!r}, error={self.error!r}>"
