"""Transports for httpx: httpx.Client(transport=FetchdTransport(client)), and for asyncio
httpx.AsyncClient(transport=AsyncFetchdTransport(client))."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Iterator, Type, cast

import httpx

from . import _adapters
from ._aio import AsyncClient, AsyncStreamResponse
from ._client import StreamState
from ._sync import Client, StreamResponse
from .errors import FetchdError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._client import Options
    from .policies import Policies, RedirectPolicy

__all__ = ["AsyncFetchdTransport", "FetchdTransport", "NotIdempotentError"]


class NotIdempotentError(httpx.RequestError):
    """A POST or PATCH that is not sent again, because it may have taken effect. Find out whether it
    did before you send it once more. The cause is a FetchError, or a ServiceError if the answer of
    fetchd was lost."""


_EXCEPTIONS: Dict[str, Type[httpx.RequestError]] = {
    "connect": httpx.ConnectError,
    "connect_timeout": httpx.ConnectTimeout,
    "tls": httpx.ConnectError,
    "read": httpx.ReadError,
    "protocol": httpx.RemoteProtocolError,
    "body": httpx.RemoteProtocolError,
    "read_timeout": httpx.ReadTimeout,
    "write_timeout": httpx.WriteTimeout,
    "redirects": httpx.TooManyRedirects,
    "decode": httpx.DecodingError,
    "invalid": httpx.LocalProtocolError,
    "not_idempotent": NotIdempotentError,
    "service": httpx.NetworkError,
}


def _translate(error: FetchdError, request: httpx.Request, policies: Policies) -> httpx.RequestError:
    kind, text = _adapters.failure(error, request.method, request.headers, policies)
    return _EXCEPTIONS.get(kind, httpx.TransportError)(text, request=request)


def _options(request: httpx.Request, content: bytes, policies: Policies) -> Options:
    scheme = request.url.scheme
    if scheme not in ("http", "https"):
        what = f"has an unsupported protocol '{scheme}://'." if scheme else "is missing an 'http://' or 'https://' protocol."
        raise httpx.UnsupportedProtocol(f"Request URL {what}", request=request)
    if "sni_hostname" in request.extensions:
        raise ValueError("sni_hostname is not possible through fetchd: the name is that of the URL")
    if len(content) > _adapters.MAX_BODY:
        raise _adapters.too_large(len(content))
    limits = request.extensions.get("timeout", {})
    headers = _adapters.forwarded(request.headers.raw, request.url.netloc.decode("ascii"))
    options = _adapters.options(policies, headers, limits.get("connect"), limits.get("read"))
    # httpx follows redirects itself, if it is told to, with one fetch for each.
    options["redirect_policy"] = cast("RedirectPolicy", {"follow": False, **policies.get("redirect_policy", {})})
    if content:
        options["content"] = content
    return options


def _extensions(got: StreamState) -> Dict[str, Any]:
    return {"fetchd": got, "http_version": b"HTTP/" + got.http_version.rpartition("/")[2].encode()}


def _headers(got: StreamState, policies: Policies) -> Any:
    coded = policies.get("body_policy", {}).get("keep_encoding", False)
    # httpx must not decode a body that fetchd has decoded.
    # Bytes, because httpx takes only ASCII as text.
    fields = [(name.encode(), value) for name, value in _adapters.fields(got._response(), got.outcome)]
    return [(name, value) for name, value in fields if coded or name.lower() != b"content-encoding"]


class _Stream(httpx.SyncByteStream):
    def __init__(self, got: StreamResponse, request: httpx.Request, policies: Policies):
        self._got, self._request, self._policies = got, request, policies

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._got.iter_bytes()
        except FetchdError as error:
            raise _translate(error, self._request, self._policies) from error

    def close(self) -> None:
        self._got.close()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, got: AsyncStreamResponse, request: httpx.Request, policies: Policies):
        self._got, self._request, self._policies = got, request, policies

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._got.iter_bytes():
                yield piece
        except FetchdError as error:
            raise _translate(error, self._request, self._policies) from error

    async def aclose(self) -> None:
        await self._got.close()


class FetchdTransport(httpx.BaseTransport):
    """Sends the requests of an httpx.Client through fetchd, which retries.

    A failed status is an ordinary response. A failure without a response raises the exception
    that httpx has for it, with the FetchError as its cause. A POST that may have taken effect
    raises NotIdempotentError. httpx follows redirects, if it is told to; with
    redirect_policy={"follow": True} fetchd does it, but then response.url is that of the
    request. response.extensions["fetchd"] is the StreamResponse.
    """

    def __init__(self, client: Client, **policies: Unpack[Policies]):
        """client: the client to use, without headers, params, cookies and auth; the transport does not
            close it.
        policies: for all requests. The timeouts of httpx set connect_timeout, and
            header_timeout and idle_timeout."""
        _adapters.check_client(self, client, Client)
        _adapters.check_policies(self, policies)
        self._client = client
        self._policies: Policies = policies

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            options = _options(request, request.read(), self._policies)
            _adapters.check_defaults(self._client)
            got = self._client.stream(request.method, _adapters.without_userinfo(str(request.url)), **options)
            if not got.status_code:
                got.read()  # raises the error
        except FetchdError as error:
            raise _translate(error, request, self._policies) from error
        return httpx.Response(got.status_code, headers=_headers(got, self._policies), stream=_Stream(got, request, self._policies), extensions=_extensions(got))


class AsyncFetchdTransport(httpx.AsyncBaseTransport):
    """The same as FetchdTransport for an httpx.AsyncClient."""

    def __init__(self, client: AsyncClient, **policies: Unpack[Policies]):
        """client and policies: see FetchdTransport."""
        _adapters.check_client(self, client, AsyncClient)
        _adapters.check_policies(self, policies)
        self._client = client
        self._policies: Policies = policies

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            options = _options(request, await request.aread(), self._policies)
            _adapters.check_defaults(self._client)
            got = await self._client._opening(request.method, _adapters.without_userinfo(str(request.url)), options).open()
            if not got.status_code:
                await got.read()  # raises the error
        except FetchdError as error:
            raise _translate(error, request, self._policies) from error
        return httpx.Response(got.status_code, headers=_headers(got, self._policies), stream=_AsyncStream(got, request, self._policies), extensions=_extensions(got))
