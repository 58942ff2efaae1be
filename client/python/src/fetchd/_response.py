"""Responses and results."""

from __future__ import annotations

import datetime
import http
import json
import re
from typing import TYPE_CHECKING, Any, Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar

from . import _foreign, _text, contract
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

    if not TYPE_CHECKING:  # mypy knows which attributes there are

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_foreign.text(type(self).__name__, name, _foreign.HEADERS))

    def __repr__(self) -> str:
        return f"Headers({self._fields!r})"


def headers_of(fields: Iterable[contract.Header]) -> Headers:
    """Returns headers of a message."""
    return Headers((f.name, f.raw_value.decode("latin-1") if f.raw_value else f.value) for f in fields)


def failed_status(outcome: contract.FetchOutcome) -> bool:
    """Reports whether a fetch failed because of the status of its response. A response without one would look ok."""
    return 100 <= outcome.response.status_code <= 999 and contract.enum_name(outcome.error, "error_class") in _STATUS_CLASSES


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


def links_of(value: str) -> Dict[str, Dict[str, str]]:
    """Parses the header Link."""
    links: Dict[str, Dict[str, str]] = {}
    for part in re.split(r",\s*(?=<)", value) if value else ():
        url, _, parameters = part.partition(";")
        link = {"url": url.strip("<> ")}
        for parameter in parameters.split(";"):
            name, mark, text = parameter.partition("=")
            if mark:
                link[name.strip()] = text.strip(" '\"")
        links[link.get("rel", link["url"])] = link
    return links


H = TypeVar("H", bound="Head")
ERROR_BODY = 16384  # bytes that fetchd keeps of the body of a failed status, by default


class Head:
    """What a Response and a stream have in common."""

    __slots__ = ("_encoding",)

    _outcome: Optional[contract.FetchOutcome]
    _encoding: Optional[str]

    def _response(self) -> contract.HttpResponse:
        raise NotImplementedError

    def __bool__(self) -> bool:
        """Whether the fetch has not failed, as in requests."""
        return self._outcome is None or not self._outcome.HasField("error")

    @property
    def status_code(self) -> int:
        """The status of the last response, or 0 if there was none."""
        return self._response().status_code

    @property
    def headers(self) -> Headers:
        """The headers of the last response."""
        raise NotImplementedError

    @property
    def reason_phrase(self) -> str:
        """The name of the status, such as "Not Found", or ""."""
        try:
            return http.HTTPStatus(self.status_code).phrase
        except ValueError:
            return ""

    reason = reason_phrase

    @property
    def http_version(self) -> str:
        """The HTTP version of the response, such as "HTTP/2.0", or ""."""
        return self._response().protocol

    @property
    def is_success(self) -> bool:
        """Whether the status is 200 to 299. Use ok to know whether the fetch succeeded."""
        return 200 <= self.status_code < 300

    @property
    def is_error(self) -> bool:
        """Whether the status is 400 to 599. Use ok to know whether the fetch succeeded."""
        return 400 <= self.status_code < 600

    @property
    def is_redirect(self) -> bool:
        """Whether the response is a redirect, which was not followed."""
        return self.status_code in (301, 302, 303, 307, 308) and "location" in self.headers

    @property
    def truncated(self) -> bool:
        """Whether this is only the start of the body of a failed status: 16 KiB, or what
        body_policy.max_error_body_bytes says. Of a body without Content-Length only 16 KiB are noticed."""
        size = len(self._outcome.error_body) if self._outcome else 0
        length = self.headers.get("content-length", "")
        if length.isdecimal() and "content-encoding" not in self.headers:
            return 0 < size < int(length)
        return size == ERROR_BODY

    @property
    def cookies(self) -> Dict[str, str]:
        """The cookies that the response sets, by name."""
        pairs = (line.partition(";")[0].partition("=") for line in self.headers.get_all("set-cookie"))
        return {name.strip(): value.strip().strip('"') for name, _, value in pairs}

    @property
    def links(self) -> Dict[str, Dict[str, str]]:
        """The header Link: a dict with "url" and the parameters, by rel or URL."""
        return links_of(self.headers.get("link", ""))

    @property
    def history(self) -> List[Response]:
        """The redirects that led to the response, oldest first: url, status_code and the header
        Location of each. Of a streamed response it is [] before its end."""
        hops = self._outcome.hops[:-1] if self._outcome is not None else []
        return [_redirect(hop) for hop in hops]

    @property
    def encoding(self) -> str:
        """The charset of Content-Type, or utf-8, unless you set another one. A text of text_policy is utf-8."""
        if self._encoding is None and self._outcome is not None and self._outcome.HasField("text_summary"):
            return "utf-8"
        return self._encoding or charset_of(self.headers.get("content-type", ""))

    @encoding.setter
    def encoding(self, name: Optional[str]) -> None:
        self._encoding = name

    def iter_content(self, chunk_size: Optional[int] = None, decode_unicode: bool = False) -> Any:
        """Returns iter_bytes(chunk_size), or iter_text(chunk_size) if decode_unicode is True."""
        pieces: Any = self
        return pieces.iter_text(chunk_size) if decode_unicode else pieces.iter_bytes(chunk_size)

    @property
    def error(self) -> Optional[FetchError]:
        """Why the fetch failed, or None. Its error_class is a name; outcome.error.error_class is
        the number of the contract, of which fetchd.enum_name returns the name."""
        if self._outcome is not None and self._outcome.HasField("error"):
            return failure(self._outcome)
        return None

    @property
    def stored(self) -> Optional[contract.StoredObject]:
        """Where the body is, or None: store, key, size_bytes, sha256, etag and version."""
        if self._outcome is not None and self._outcome.HasField("stored_object"):
            return self._outcome.stored_object
        return None

    def raise_for_outcome(self: H) -> H:
        """Raises a FetchError if the fetch failed, because of its status or in another way.
        Returns the response."""
        error = self.error
        if error is not None:
            raise error
        return self

    raise_for_status = raise_for_outcome

    if not TYPE_CHECKING:  # mypy knows which attributes there are

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_foreign.text(type(self).__name__, name, _foreign.RESPONSE))


class Response(Head):
    """The response of a fetch that has ended, whatever its outcome."""

    __slots__ = ("_outcome", "_headers", "_body", "_undelivered")

    _outcome: contract.FetchOutcome

    def __init__(self, outcome: contract.FetchOutcome, body: bytes, undelivered: bool = False):
        self._outcome = outcome
        self._headers: Optional[Headers] = None
        self._body = body
        self._undelivered = undelivered
        self._encoding = None

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
        """Everything that is known about the fetch, except the body: a message of the contract, in
        which enums are numbers. fetchd.enum_name(outcome.error, "error_class") is a name."""
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
        """Returns the body, parsed as JSON. Raises json.JSONDecodeError, a ValueError."""
        utf8 = self.encoding.lower() in ("utf-8", "utf8")
        return json.loads(self.content if utf8 else self.text, **options)

    def read(self) -> bytes:
        """Returns content."""
        return self.content

    def iter_bytes(self, chunk_size: Optional[int] = None) -> Iterator[bytes]:
        """Yields the body in pieces of this size; None is the whole body."""
        return iter(_text.Pieces(chunk_size).feed(self.content, True))

    def iter_text(self, chunk_size: Optional[int] = None) -> Iterator[str]:
        """Yields the body as text, in pieces of so many characters; None is the whole body."""
        return iter(_text.Pieces(chunk_size, self.encoding).feed(self.content, True))

    def iter_lines(self) -> Iterator[str]:
        """Yields the lines of the body as text, without their ends."""
        return iter(_text.Lines(self.encoding).feed(self.content, True))

    def __repr__(self) -> str:
        error = self.error
        failed = f", error_class={error.error_class!r}, retryable={error.retryable}" if error else ""
        size = f", {len(self._body)} bytes" if self.kind == "success" and not self._undelivered else ""
        size += ", truncated" if self.truncated else ""
        return f"<Response {self.status_code or 'none'} {self.url!r}, {self.kind}{failed}, attempt {self.attempt_count}{size}>"


def _redirect(hop: contract.Hop) -> Response:
    outcome = contract.FetchOutcome(kind="OUTCOME_KIND_REDIRECT", final_url=hop.url)
    outcome.response.status_code = hop.status_code
    if hop.location_url:
        outcome.response.headers.add(name="Location", value=hop.location_url)
    return Response(outcome, b"")


T = TypeVar("T")


class Result(Generic[T]):
    """How one fetch of fetch_many ended.

    request: the request as you passed it.
    response: Response, or None if there is no outcome.
    error: FetchError, ServiceError, a TypeError or ValueError of the request, or None."""

    __slots__ = ("request", "response", "error")

    def __init__(self, request: T, response: Optional[Response], error: Optional[Exception]):
        self.request = request
        self.response = response
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
