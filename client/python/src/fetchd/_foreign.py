"""Names of requests and httpx that this package does not have, with what to use instead."""

from __future__ import annotations

from typing import Dict

_OPERATOR = "the operator of fetchd sets it"
_ADAPTER = "use requests or httpx with the adapter of this package"
_OF_CALL = ("body", "method", "url")  # misplaced arguments of a fetch

#: Arguments of a fetch and of a client.
ARGUMENTS: Dict[str, str] = {
    "allow_redirects": 'use redirect_policy={"follow": False}; redirects are followed by default',
    "follow_redirects": 'use redirect_policy={"follow": False}; redirects are followed by default',
    "max_redirects": 'use redirect_policy={"max_redirects": 5}',
    **dict.fromkeys(("retries", "retry", "max_retries", "max_attempts"), 'use retry_policy={"max_attempts": 5}; fetchd makes 3 attempts by default'),
    **dict.fromkeys(("backoff", "backoff_factor"), 'use retry_policy={"base_delay": 0.5}'),
    "status_forcelist": 'use retry_policy={"additional_status_codes": [404]}',
    **dict.fromkeys(("connect_timeout", "read_timeout", "sock_connect", "sock_read"), 'use timeout_policy={"connect_timeout": 5, "idle_timeout": 30}'),
    **dict.fromkeys(("max_size", "max_body_size", "max_response_size"), 'use body_policy={"max_size_bytes": 1 << 20}'),
    "stream": 'use client.stream("GET", url)',
    "files": f"build the multipart body and pass it as content, or {_ADAPTER}, which sends files",
    "hooks": "use on_event, or look at the response after the call",
    "event_hooks": "use on_event, or look at the response after the call",
    **dict.fromkeys(("ssl", "ssl_context", "ca_certs"), f"certificates are verified by fetchd: {_OPERATOR}, with a certificate authority in --origins-file"),
    "verify": f"certificates are verified by fetchd: {_OPERATOR}, with a certificate authority in --origins-file; for fetchd itself pass https:// or credentials",
    "cert": f"client certificates are presented by fetchd: {_OPERATOR}, in --origins-file; for fetchd itself pass credentials",
    "proxies": f"fetchd makes the connections: {_OPERATOR}, with --egress-proxy",
    "proxy": f"fetchd makes the connections: {_OPERATOR}, with --egress-proxy",
    "trust_env": "leave it out: the environment of your program changes nothing",
    "transport": "leave it out: fetchd makes the connections. To keep httpx, pass FetchdTransport(client) to httpx.Client",
    "mounts": "leave it out: fetchd makes the connections. To keep requests, mount FetchdAdapter(client) on its Session",
    "limits": "leave it out: fetchd limits its connections; fetch_many(open=64) limits the fetches in flight",
    "http1": "leave it out: fetchd agrees with the origin on the version",
    "http2": "leave it out: fetchd agrees with the origin on the version",
    "extensions": "leave it out: the policies have the settings of a fetch",
    "default_encoding": "set response.encoding; the default is that of Content-Type, or utf-8",
    **dict.fromkeys(("fields", "form"), "use data"),
    "query": "use params",
    "user_agent": 'use headers={"User-Agent": "..."}',
    "body": "use content, data or json",
    "method": 'use client.request("PUT", url)',
    "url": "pass it as the first argument",
}

#: Values with which these arguments mean what fetchd does. None is one for all of them.
SAME: Dict[str, bool] = {"allow_redirects": True, "follow_redirects": True, "stream": False, "verify": True}

#: Attributes of a client. Those that are methods here cannot be set.
CLIENT: Dict[str, str] = {
    **{name: text for name, text in ARGUMENTS.items() if name not in _OF_CALL},
    "adapters": ARGUMENTS["transport"],
    "mount": ARGUMENTS["mounts"],
    "get_adapter": ARGUMENTS["mounts"],
    "send": "use client.request(method, url)",
    "build_request": "use client.request(method, url)",
    "prepare_request": "use client.request(method, url)",
    "is_closed": "keep the client in a with statement",
    "aclose": "use close()",
}

#: Attributes of a response.
RESPONSE: Dict[str, str] = {
    "request": "it is not kept; url is the URL of the response, and history has the redirects before it",
    "raw": "use client.stream(), whose response has read() and is a file",
    "status": "use status_code",
    "body": "use content",
    "data": "use content",
    "stream": "use iter_bytes()",
    "extensions": "use outcome",
    "is_informational": "leave it out: it would be False, because another response follows",
    "has_redirect_location": "use is_redirect",
    "is_stream_consumed": "use outcome, which is None while a body is streamed",
    "aiter_raw": 'use iter_bytes(); body_policy={"keep_encoding": True} leaves the body compressed',
    "iter_raw": 'use iter_bytes(); body_policy={"keep_encoding": True} leaves the body compressed',
    "next": "use headers['location']",
    "next_request": "use headers['location']",
    "apparent_encoding": "use encoding, which you may set; to guess, use charset_normalizer on content",
    "charset_encoding": "use encoding",
    "is_client_error": "use 400 <= status_code < 500",
    "is_server_error": "use status_code >= 500",
    "is_permanent_redirect": "use status_code in (301, 308)",
    "is_closed": "use outcome, which is None while a body is streamed",
    "num_bytes_downloaded": "use outcome.body_summary.size_bytes",
    "content": "a streamed body is not kept: use read()",
    "text": "a streamed body is not kept: use read().decode(response.encoding)",
    "json": "a streamed body is not kept: use json.loads(response.read())",
    "elapsed": "use outcome.total_duration.ToTimedelta() after the body was read",
    "close": "leave it out: the body is in memory",
    "aread": "use content: the body is in memory",
    "aclose": "leave it out: the body is in memory",
    "aiter_bytes": "use iter_bytes(): the body is in memory",
    "aiter_text": "use iter_text(): the body is in memory",
    "aiter_lines": "use iter_lines(): the body is in memory",
}

#: Attributes of the headers of a response.
HEADERS: Dict[str, str] = {
    **dict.fromkeys(("get_list", "getlist"), "use get_all(name)"),
    **dict.fromkeys(("multi_items", "raw"), "use pairs()"),
    "copy": "use dict(headers)",
    "encoding": "leave it out: values that are not UTF-8 are read as Latin-1",
}

#: Attributes of values that are a str or a dict here. Python has the text of their error.
VALUES: Dict[str, str] = {
    "Response.url.host": "`url` is a str: use `urllib.parse.urlsplit(url).hostname`",
    "Response.url.path": "`url` is a str: use `urllib.parse.urlsplit(url).path`",
    "Response.cookies.get_dict": "`cookies` is a dict",
    "Client.cookies.get_dict": "`cookies` is a dict",
    "Client.cookies.set": "`cookies` is a dict: use `cookies[name] = value`",
    "Client.cookies.jar": "`cookies` is a dict: cookies of responses are not added",
}

_CLASS = "catch fetchd.FetchError, and look at error_class"

#: Names of the modules.
MODULE: Dict[str, str] = {
    **{name: "create a client, and call its method of that name: fetchd.Client(target)" for name in ("get", "post", "put", "patch", "delete", "head", "options", "request", "stream")},
    "exceptions": "use fetchd.FetchError and its subclasses, and fetchd.ServiceError",
    **dict.fromkeys(("auth", "HTTPBasicAuth", "BasicAuth"), 'use auth=("user", "password")'),
    **dict.fromkeys(("AuthBase", "Auth", "HTTPDigestAuth", "DigestAuth", "NetRCAuth"), _ADAPTER),
    **dict.fromkeys(("HTTPProxyAuth", "Proxy"), ARGUMENTS["proxies"]),
    **dict.fromkeys(("adapters", "HTTPAdapter"), ARGUMENTS["mounts"]),
    **dict.fromkeys(("HTTPTransport", "AsyncHTTPTransport", "BaseTransport", "MockTransport"), ARGUMENTS["transport"]),
    "Retry": ARGUMENTS["retries"],
    **dict.fromkeys(("cookies", "Cookies", "RequestsCookieJar", "QueryParams"), "use a dict"),
    **dict.fromkeys(("structures", "CaseInsensitiveDict"), "use a dict; response.headers ignores case"),
    **dict.fromkeys(("utils", "URL"), "use a str, and urllib.parse"),
    "PreparedRequest": "use client.request(method, url)",
    "status_codes": "use http.HTTPStatus",
    "packages": "leave it out: certificates are verified by fetchd",
    "Session": "use fetchd.Client(target)",
    "session": "use fetchd.Client(target)",
    "codes": "use http.HTTPStatus",
    "Timeout": 'pass seconds as timeout, or timeout_policy={"connect_timeout": 5}; to catch one, ' + _CLASS,
    "Limits": ARGUMENTS["limits"],
    "RequestException": "catch fetchd.FetchdError",
    "RequestError": "catch fetchd.FetchdError",
    "HTTPError": "catch fetchd.FetchError",
    "HTTPStatusError": "catch fetchd.FetchError, whose status_code is not 0",
    "ConnectionError": _CLASS + ', such as "connect_refused"; fetchd.ServiceError is about fetchd itself',
    "ConnectError": _CLASS + ', such as "connect_refused"; fetchd.ServiceError is about fetchd itself',
    "TransportError": _CLASS + ', such as "connection_reset"; fetchd.ServiceError is about fetchd itself',
    "NetworkError": _CLASS + ', such as "connection_reset"; fetchd.ServiceError is about fetchd itself',
    "ProxyError": _CLASS + ', such as "connect_failure"',
    **dict.fromkeys(("WriteError", "CloseError"), _CLASS + ', such as "connection_reset"'),
    **dict.fromkeys(("ProtocolError", "RemoteProtocolError", "LocalProtocolError"), _CLASS + ', such as "protocol"'),
    **dict.fromkeys(("DecodingError", "ContentDecodingError"), _CLASS + ', such as "undecodable"'),
    "ChunkedEncodingError": _CLASS + ', such as "body_interrupted"',
    "WriteTimeout": _CLASS + ', such as "write_timeout"',
    "PoolTimeout": "catch fetchd.OverloadedError",
    "RetryError": "catch fetchd.FetchError, whose stop_reason says why no attempt followed",
    "ReadError": _CLASS + ', such as "connection_reset" or "body_interrupted"',
    "SSLError": _CLASS + ', such as "tls_certificate"',
    "TimeoutException": _CLASS + ', such as "response_timeout" or "deadline"; fetchd.DeadlineError is about fetchd itself',
    "ConnectTimeout": _CLASS + ', such as "connect_timeout"',
    "ReadTimeout": _CLASS + ', such as "response_timeout" or "body_timeout"',
    "TooManyRedirects": _CLASS + ', such as "too_many_redirects" or "redirect_loop"',
    **dict.fromkeys(
        ("InvalidURL", "InvalidHeader", "MissingSchema", "InvalidSchema", "UnsupportedProtocol", "URLRequired"), "catch fetchd.InvalidRequestError"
    ),
    **dict.fromkeys(("StreamError", "StreamConsumed", "StreamClosed"), "catch ValueError: a closed response is not read"),
    **dict.fromkeys(("ResponseNotRead", "RequestNotRead", "CookieConflict", "CookieConflictError"), "leave it out: it is not raised"),
    "JSONDecodeError": "catch ValueError, or json.JSONDecodeError",
}


def text(owner: str, name: str, table: Dict[str, str]) -> str:
    """Returns the text of the error for a name of a table, or of an unknown one."""
    known = table.get(name)
    return f"{owner} has no {name!r}" + (f": {known}" if known else "")
