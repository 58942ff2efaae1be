"""An adapter for requests: mount it on a Session, and its requests go through fetchd.

    session = requests.Session()
    session.mount("http://", FetchdAdapter(client))
    session.mount("https://", FetchdAdapter(client))
"""

from __future__ import annotations

import email.message
import http.client
import io
import os
import re
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Type, Union
from urllib.parse import urlsplit
from urllib.request import getproxies

import requests
import urllib3
from requests.adapters import BaseAdapter
from requests.auth import _basic_auth_str
from requests.cookies import extract_cookies_to_jar
from requests.structures import CaseInsensitiveDict
from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_auth_from_url, get_encoding_from_headers, select_proxy

from . import _adapters, contract
from ._response import Response, failed_status
from ._sync import Client, StreamResponse
from .errors import FetchdError, FetchError, InvalidRequestError, RefusedError, ServiceError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .policies import Policies

__all__ = ["FetchdAdapter", "FetchdResponse", "NotIdempotentError", "UnsupportedError"]


class UnsupportedError(requests.RequestException, ValueError):
    """An argument of a request that means nothing to fetchd."""


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
    "url": _errors.InvalidURL,
    "headers": _errors.InvalidHeader,
    "not_idempotent": NotIdempotentError,
    "service": _errors.ConnectionError,
}

_DELIVERIES = {"stream", "auto", "inline", "digest", "none", "store"}


class FetchdResponse(requests.Response):
    """A response that came through fetchd."""

    #: Everything that fetchd knows about the fetch; None before a streamed body has ended.
    outcome: Optional[contract.FetchOutcome] = None
    #: The number of attempts.
    attempt_count: int = 0
    #: Whether the body is only the first bytes of the body of a failed status.
    truncated: bool = False

    @property
    def retryable(self) -> bool:
        """Whether the fetch failed, and a later one may succeed and may be sent."""
        return self.outcome is not None and self.outcome.error.retryable


class FetchdAdapter(BaseAdapter):
    """Sends the requests of a Session through fetchd.

    fetchd retries, so the Retry of the Session's other adapters does not apply. A failed
    status is an ordinary response. A failure without a response raises the exception that
    requests has for it, with the FetchError as its cause, and with `retryable`. A POST that may have taken effect
    raises NotIdempotentError. The Session follows redirects, with one fetch for each. `proxies`
    and REQUESTS_CA_BUNDLE are settings of fetchd; `cert` and another `verify` are refused.
    """

    def __init__(self, client: Client, **policies: Unpack[Policies]):
        """client: the client to use, without headers, params, cookies and auth; the adapter does not close it.
        policies: for all requests, without redirect_policy. The timeout of a request sets
            connect_timeout, and header_timeout and idle_timeout, as in requests."""
        super().__init__()
        _adapters.check_client(self, client, Client)
        _adapters.check_policies(self, policies)
        if policies.get("redirect_policy") is not None:
            raise TypeError("redirect_policy is not an argument: the Session follows redirects, so use its max_redirects, and allow_redirects")
        self._client = client
        self._policies: Policies = policies

    def close(self) -> None:
        """Does nothing: the client stays open."""

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Union[None, float, Tuple[Optional[float], Optional[float]], urllib3.Timeout] = None,
        verify: Union[bool, str] = True,
        cert: Any = None,
        proxies: Optional[Mapping[str, str]] = None,
    ) -> FetchdResponse:
        _check(request, verify, cert, proxies)
        url, method = _adapters.without_userinfo(request.url or ""), request.method or "GET"
        options = _adapters.options(self._policies, _adapters.forwarded(_headers(request), urlsplit(url).netloc), *_limits(timeout))
        if stream and not _DELIVERIES & options["body_policy"].keys():
            options["body_policy"]["auto"] = {"max_hold_back_bytes": 0}  # the guest wants the bytes as they arrive
        options["redirect_policy"] = {"follow": False}
        got: Union[Response, StreamResponse]
        _adapters.check_defaults(self._client)
        try:
            body = _body(request.body)
            if body:
                options["content"] = body
            if stream:
                got = self._client.stream(method, url, **options)
                if not got.status_code:
                    got.read()  # raises the error
            else:
                got = self._client.request(method, url, **options)
                got.content  # raises the error of a fetch without a response
        except FetchdError as error:
            raise _translate(error, request, self._policies) from error
        content = got if isinstance(got, StreamResponse) else io.BytesIO(got.content)
        response = _response(request, got._response(), got.outcome, url, content)
        if got.outcome is not None:
            _check_cut(response, got.outcome, options["body_policy"]["max_error_body_bytes"])
        response.raw.response, response.raw.translate = response, lambda error: _translate(error, request, self._policies)
        response.outcome, response.attempt_count = got.outcome, got.attempt_count
        response.connection = self  # type: ignore[attr-defined]  # HTTPDigestAuth sends again with it
        return response


class _Raw(io.RawIOBase):
    """The body as a file, and what requests reads the cookies from."""

    # Of a streamed body.
    response: Optional[FetchdResponse] = None
    translate: Callable[[FetchdError], requests.RequestException]

    def __init__(self, status: int, headers: List[Tuple[str, str]], body: Any, protocol: str):
        self.status, self.reason = status, http.client.responses.get(status, "")
        self.headers = urllib3._collections.HTTPHeaderDict(headers)
        self.version = int("".join(filter(str.isdigit, protocol)) or "0")  # 11 for HTTP/1.1
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

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        super().close()
        if self._body is not None:
            self._body.close()

    def __del__(self) -> None:
        """Closes nothing: the client ends calls that nobody reads."""

    def release_conn(self) -> None:
        pass


def _response(request: requests.PreparedRequest, got: contract.HttpResponse, outcome: Optional[contract.FetchOutcome], url: str, body: Any) -> FetchdResponse:
    # As in requests, a character is a byte.
    status, headers = got.status_code, [(name, value.decode("latin-1")) for name, value in _adapters.fields(got, outcome)]
    response = FetchdResponse()
    response.status_code = status
    response.headers = CaseInsensitiveDict(_adapters.merged_headers(headers))
    response.encoding = get_encoding_from_headers(response.headers)  # type: ignore[no-untyped-call]
    response.raw = _Raw(status, headers, body, got.protocol)
    response.reason = response.raw.reason
    response.url = url
    response.request = request
    extract_cookies_to_jar(response.cookies, request, response.raw)  # type: ignore[no-untyped-call]
    return response


def _check_cut(response: FetchdResponse, outcome: contract.FetchOutcome, limit: int) -> None:
    """Warns of the body of a failed status of which there is only the start. limit is max_error_body_bytes."""
    redirect = contract.enum_name(outcome, "kind") == "redirect"
    if response.request.method == "HEAD" or response.status_code in (204, 304) or not (redirect or failed_status(outcome)):
        return
    length, size = response.headers.get("content-length", ""), len(outcome.error_body)
    if length.isdecimal() and (int(length) == 0 or response.headers.get("content-encoding", "identity") == "identity"):
        response.truncated = int(length) > size
    else:
        response.truncated = size >= limit  # a body of exactly that size cannot be told apart
    if response.truncated:
        warnings.warn(f"the body of status {response.status_code} is truncated after {size} bytes: fetchd keeps no more of a failed status", stacklevel=5)


def _check(request: requests.PreparedRequest, verify: Union[bool, str], cert: Any, proxies: Optional[Mapping[str, str]]) -> None:
    """Refuses what fetchd cannot do for one request. The proxies and the authorities of the environment are about
    the connections of the program."""
    if cert is not None:
        raise UnsupportedError("cert is not possible through fetchd: its operator sets the client certificate of an origin, with --origins-file")
    usual = (True, None, DEFAULT_CA_BUNDLE_PATH, os.environ.get("REQUESTS_CA_BUNDLE"), os.environ.get("CURL_CA_BUNDLE"))
    if verify not in usual:
        raise UnsupportedError(f"verify={verify!r} is not possible through fetchd: its operator adds an authority with --egress-ca-file, or for one origin with --origins-file")
    url = request.url or ""
    if select_proxy(url, proxies) not in (None, select_proxy(url, getproxies())):
        raise UnsupportedError("proxies is not possible through fetchd: its operator sets a proxy, with --egress-proxy")


def _headers(request: requests.PreparedRequest) -> Iterable[Tuple[Any, Any]]:
    """Returns the headers, in which a character is a byte as in requests, without the password of a proxy of the
    environment, which requests adds to a redirect."""
    user, password = get_auth_from_url(select_proxy(request.url or "", getproxies()) or "")
    own = _basic_auth_str(user, password) if user else None
    return [(name, value.encode("latin-1") if isinstance(value, str) else value) for name, value in request.headers.items() if value != own or name.lower() != "proxy-authorization"]


def _limits(timeout: Any) -> Tuple[Optional[float], Optional[float]]:
    """Returns the limits for connecting and reading, from a timeout in each form that requests has."""
    if isinstance(timeout, tuple):
        if len(timeout) != 2:
            raise ValueError(f"timeout is {timeout}, want (connect, read), or a number for both")
        timeout = urllib3.Timeout(connect=timeout[0], read=timeout[1])
    elif not isinstance(timeout, urllib3.Timeout):
        timeout = urllib3.Timeout(connect=timeout, read=timeout)
    clock = timeout.clone()
    clock.start_connect()
    connect, read = (limit if isinstance(limit, (int, float)) else None for limit in (clock.connect_timeout, clock.read_timeout))
    return connect, read


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


def _translate(error: FetchdError, request: requests.PreparedRequest, policies: Policies) -> requests.RequestException:
    kind, text = _adapters.failure(error, request.method or "GET", request.headers, policies)
    if isinstance(error, InvalidRequestError):
        field = re.match(r"invalid request: (?:request\.)?(url|headers)\b", error.message)
        kind = field[1] if field else kind
    response = None
    if isinstance(error, FetchError) and error.status_code:
        outcome = error.outcome
        response = _response(request, outcome.response, outcome, outcome.final_url, io.BytesIO(outcome.error_body))
    raised = _EXCEPTIONS.get(kind, requests.RequestException)(text, request=request, response=response)
    again = isinstance(error, ServiceError) and kind != "not_idempotent" and not isinstance(error, (InvalidRequestError, RefusedError))
    raised.retryable = error.retryable if isinstance(error, FetchError) else again  # type: ignore[attr-defined]
    return raised
