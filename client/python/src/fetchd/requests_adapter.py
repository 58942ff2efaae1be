"""An adapter for requests: mount it on a Session, and its requests go through fetchd.

    session = requests.Session()
    session.mount("http://", FetchdAdapter(client))
    session.mount("https://", FetchdAdapter(client))
"""

from __future__ import annotations

import email.message
import http.client
import io
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Type, Union, cast
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from requests.cookies import extract_cookies_to_jar
from requests.structures import CaseInsensitiveDict
from requests.utils import get_encoding_from_headers

from . import _adapters, contract
from ._response import Response, headers_of
from ._sync import Client, StreamResponse
from .errors import FetchdError, FetchError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .policies import Policies, RedirectPolicy

__all__ = ["FetchdAdapter", "FetchdResponse", "NotIdempotentError"]


class NotIdempotentError(requests.RequestException):
    """A POST or PATCH that is not sent again, because it may have taken effect. Find out whether it
    did before you send it once more. The cause is a FetchError, or a ServiceError if the answer of
    fetchd was lost."""


_errors = requests.exceptions
_EXCEPTIONS: Dict[str, Type[requests.RequestException]] = {
    "connect": _errors.ConnectionError,
    "connect_timeout": _errors.ConnectTimeout,
    "tls": _errors.SSLError,
    "read": _errors.ConnectionError,
    "protocol": _errors.ConnectionError,
    "body": _errors.ChunkedEncodingError,
    "read_timeout": _errors.ReadTimeout,
    "write_timeout": _errors.ReadTimeout,
    "redirects": _errors.TooManyRedirects,
    "decode": _errors.ContentDecodingError,
    "not_idempotent": NotIdempotentError,
    "service": _errors.ConnectionError,
}

# Session.send does not pass allow_redirects to its adapters.
_SESSION_SEND = requests.Session.send.__code__


class FetchdResponse(requests.Response):
    """A response that came through fetchd."""

    #: Everything that fetchd knows about the fetch; None before a streamed body has ended.
    outcome: Optional[contract.FetchOutcome] = None
    #: The number of attempts.
    attempt_count: int = 0
    _by_fetchd = False

    @property
    def is_redirect(self) -> bool:
        """Whether the session may follow this redirect. It may not if fetchd has followed as
        far as its policy permits."""
        return not self._by_fetchd and super().is_redirect


class FetchdAdapter(BaseAdapter):
    """Sends the requests of a Session through fetchd.

    fetchd retries, so the Retry of the Session's other adapters does not apply. A failed
    status is an ordinary response. A failure without a response raises the exception that
    requests has for it, with the FetchError as its cause. A POST that may have taken effect
    raises NotIdempotentError. `verify`, `cert` and `proxies` are settings of fetchd;
    verify=False is refused.
    """

    def __init__(self, client: Client, **policies: Unpack[Policies]):
        """client: the client to use; the adapter does not close it.
        policies: for all requests. The timeout of a request sets connect_timeout, and
            header_timeout and idle_timeout, as in requests."""
        super().__init__()
        self._client = client
        self._policies: Policies = policies

    def close(self) -> None:
        """Does nothing: the client stays open."""

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Union[None, float, Tuple[Optional[float], Optional[float]]] = None,
        verify: Union[bool, str] = True,
        cert: Any = None,
        proxies: Optional[Mapping[str, str]] = None,
    ) -> FetchdResponse:
        if verify is False:
            raise ValueError("verify=False is not possible through fetchd: give fetchd the certificate authority of the origin")
        if cert is not None:
            raise ValueError("cert is not possible through fetchd: give fetchd the client certificate in its --origins-file")
        follow, session = _sender()
        hops: List[contract.Hop] = []
        connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        url, method = _adapters.without_userinfo(request.url or ""), request.method or "GET"
        try:
            options = _adapters.options(self._policies, connect, read)
            options["headers"] = _adapters.forwarded(request.headers.items(), urlsplit(url).netloc)
            options["redirect_policy"] = cast("RedirectPolicy", {**self._policies.get("redirect_policy", {}), "follow": follow})
            body = _body(request.body)
            if body:
                options["content"] = body
            if follow:
                options.setdefault("cookie_mode", "within_fetch")  # as a Session does
                options["event_level"] = "all"  # for the headers of redirects
                options["on_event"] = lambda event: hops.append(event.redirect_followed.hop) if event.HasField("redirect_followed") else None
            if stream:
                response = self._streamed(request, self._client.stream(method, url, **options), hops, follow)
            else:
                response = self._whole(request, self._client.request(method, url, **options), hops, follow)
        except FetchdError as error:
            raise _translate(error, request, self._policies) from error
        response.connection = self  # type: ignore[attr-defined]  # HTTPDigestAuth sends again with it
        if hops and session is not None:
            session.cookies.update(response.cookies)  # type: ignore[no-untyped-call]
            # The session would store the cookies under the first URL.
            response.raw._original_response = None
        return response

    def _whole(self, request: requests.PreparedRequest, got: Response, hops: List[contract.Hop], follow: bool) -> FetchdResponse:
        content = got.content  # raises the error of a fetch without a response
        response = _response(request, got.status_code, got.url, got.headers.pairs(), io.BytesIO(content), hops, follow)
        response._content, response._content_consumed = content, True  # type: ignore[attr-defined]
        response.outcome, response.attempt_count = got.outcome, got.attempt_count
        return response

    def _streamed(self, request: requests.PreparedRequest, got: StreamResponse, hops: List[contract.Hop], follow: bool) -> FetchdResponse:
        if not got.status_code:
            got.read()  # raises the error
        response = _response(request, got.status_code, got.url, got.headers.pairs(), got, hops, follow)
        response.raw.response, response.raw.translate = response, lambda error: _translate(error, request, self._policies)
        response.outcome, response.attempt_count = got.outcome, got.attempt_count
        return response


class _Raw:
    """The body, and what requests reads the cookies from."""

    # Of a streamed body.
    response: Optional[FetchdResponse] = None
    translate: Callable[[FetchdError], requests.RequestException]

    def __init__(self, status: int, headers: List[Tuple[str, str]], body: Any):
        self.status, self.reason = status, http.client.responses.get(status, "")
        self.headers = CaseInsensitiveDict(_adapters.merged_headers(headers))
        self.closed = False
        self._body = body
        message = email.message.Message()
        for name, value in headers:
            message[name] = value
        self._original_response: Any = type("Original", (), {"msg": message})()

    def read(self, amt: Optional[int] = None, decode_content: Optional[bool] = None) -> bytes:
        try:
            data: bytes = self._body.read(-1 if amt is None else amt)
        except FetchdError as error:
            raise self.translate(error) from error
        if self.response is not None and isinstance(self._body, StreamResponse):
            self.response.outcome, self.response.attempt_count = self._body.outcome, self._body.attempt_count
        return data

    def close(self) -> None:
        self.closed = True
        if self._body is not None:
            self._body.close()

    def release_conn(self) -> None:
        pass


def _response(
    request: requests.PreparedRequest, status: int, url: str, headers: List[Tuple[str, str]], body: Any, hops: List[contract.Hop], follow: bool
) -> FetchdResponse:
    response = FetchdResponse()
    response.status_code = status
    response.headers = CaseInsensitiveDict(_adapters.merged_headers(headers))
    response.encoding = get_encoding_from_headers(response.headers)  # type: ignore[no-untyped-call]
    response.raw = _Raw(status, headers, body)
    response.reason = response.raw.reason
    response.url = url
    response.request = request
    response._by_fetchd = follow
    sent = request
    if hops:
        sent = request.copy()
        sent.url = url
    extract_cookies_to_jar(response.cookies, sent, response.raw)  # type: ignore[no-untyped-call]
    for hop in hops:
        asked = request.copy()
        asked.url, asked.method = hop.url, hop.method
        past = _response(asked, hop.status_code, hop.url, headers_of(hop.headers).pairs(), io.BytesIO(), [], follow)
        past._content, past._content_consumed = b"", True  # type: ignore[attr-defined]
        response.history.append(past)
    return response


def _body(body: Any) -> bytes:
    """Returns the body of a prepared request, which may be a file or an iterable."""
    if body is None:
        return b""
    data: bytes
    if isinstance(body, (str, bytes)):
        data = body.encode() if isinstance(body, str) else body
    elif hasattr(body, "read"):
        read = body.read(_adapters.MAX_BODY + 1)
        data = read.encode() if isinstance(read, str) else read
    else:
        data = b""
        for piece in body:
            data += piece.encode() if isinstance(piece, str) else piece
            if len(data) > _adapters.MAX_BODY:
                break
    if len(data) > _adapters.MAX_BODY:
        raise _adapters.too_large(len(data))
    return data


def _sender() -> Tuple[bool, Optional[requests.Session]]:
    """Returns allow_redirects and the Session that sends. If it is not found, fetchd follows no
    redirect, and the session does it with one fetch for each."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code is _SESSION_SEND:
            return bool(frame.f_locals.get("allow_redirects", False)), frame.f_locals.get("self")
        frame = frame.f_back
    return False, None


def _translate(error: FetchdError, request: requests.PreparedRequest, policies: Policies) -> requests.RequestException:
    kind, text = _adapters.failure(error, request.method or "GET", policies)
    response = None
    if isinstance(error, FetchError) and error.status_code:
        outcome = error.outcome
        response = _response(request, error.status_code, outcome.final_url, headers_of(outcome.response.headers).pairs(), io.BytesIO(outcome.error_body), [], True)
    return _EXCEPTIONS.get(kind, requests.RequestException)(text, request=request, response=response)
