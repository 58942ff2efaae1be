"""A small HTTP client that follows the profile STANDARD of the specification.

It fetches one URL with GET over HTTP/1.1 and writes the body to standard output. Every hop uses a new connection (I6).
The body is written when it is complete, so a body that breaks off is retried unseen (B1). decide() makes all decisions.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import sys
import zlib
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Awaitable, Optional, TypeVar

from fetch_decision import SECOND, decide, format_duration, parse_duration
from fetch_url import Url, parse_url

VERSION = "0.1.0"
T = TypeVar("T")

# Section 9, and section 2 for STANDARD. Times are in seconds.
TOTAL_TIMEOUT = 60.0
ATTEMPT_TIMEOUT = 30.0
CONNECT_TIMEOUT = 10.0
HEADER_TIMEOUT = 15.0
IDLE_TIMEOUT = 15.0

# Section 12.
MAX_HEAD = 64 * 1024
MAX_FIELDS = 512
MAX_INTERIM = 16
MAX_SIZE = 16 * 1024 * 1024
MAX_RATIO = 200
RATIO_FREE = 1024 * 1024
CODINGS = {"aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "x-compress", "x-gzip", "zstd"}
GZIP = b"\x1f\x8b\x08"


class Fault(Exception):
    """A failure of an attempt, with its class and what happened."""

    def __init__(self, error_class: str, detail: str) -> None:
        super().__init__(detail)
        self.error_class = error_class


@dataclass
class Attempt:
    """What was observed in one attempt."""

    url: str
    hop_url: str = ""
    hop_method: str = "GET"
    redirects: int = 0
    status: Optional[int] = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    observed_at: str = ""
    failures: list[str] = field(default_factory=list)
    body: bytes = b""
    detail: str = ""

    def observation(self, number: int, time_left: float) -> dict[str, Any]:
        """observation returns the attempt in the form that decide() expects."""
        observation: dict[str, Any] = {
            "url": self.url,
            "hop_url": self.hop_url,
            "hop_method": self.hop_method,
            "attempt": number,
            "time_left": format_duration(max(0, int(time_left * SECOND))),
        }
        if self.redirects:
            observation["redirects"] = self.redirects
        if self.status is not None:
            observation["response"] = {"status": self.status, "headers": self.headers}
            observation["observed_at"] = self.observed_at
        if self.failures:
            observation["failures"] = self.failures
        return observation

    def fail(self, error_class: str, detail: str) -> None:
        self.failures.append(error_class)
        self.detail = detail


class Client:
    """One fetch: its attempts, and the waits between them."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self.url = url
        self.context = context

    async def fetch(self) -> tuple[Attempt, dict[str, Any], int]:
        """fetch returns the last attempt, its verdict and its number."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + TOTAL_TIMEOUT
        number = 1
        while True:
            attempt = await self.attempt(deadline)
            verdict = decide(attempt.observation(number, deadline - clock()))
            retry = verdict["decision"].get("retry")
            if retry is None:
                return attempt, verdict, number
            await asyncio.sleep(parse_duration(retry["delay"]) / SECOND)
            number = retry["attempt"]

    async def attempt(self, deadline: float) -> Attempt:
        """attempt sends the hops of one attempt. Each hop is sent once (I6)."""
        attempt = Attempt(self.url, self.url)
        try:
            async with asyncio.timeout_at(deadline) as total:
                async with asyncio.timeout(ATTEMPT_TIMEOUT) as limit:
                    await self.hops(attempt)
        except Fault as fault:
            attempt.fail(fault.error_class, str(fault))
        except TimeoutError:
            if total.expired():
                attempt.fail("deadline", f"total_timeout of {TOTAL_TIMEOUT:g} s expired")  # P3
            elif limit.expired():
                attempt.fail("attempt_timeout", f"attempt_timeout of {ATTEMPT_TIMEOUT:g} s expired")  # N11
            else:
                raise
        return attempt

    async def hops(self, attempt: Attempt) -> None:
        """hops follows redirects until a response ends the attempt (section 6)."""
        requests: set[tuple[str, Optional[Url]]] = set()
        while True:
            requests.add((attempt.hop_method, as_sent(attempt.hop_url)))
            attempt.status, attempt.headers = None, []
            await self.hop(attempt)
            redirect = decide(attempt.observation(1, TOTAL_TIMEOUT)).get("redirect")
            if redirect is None:
                return
            if (redirect["method"], as_sent(redirect["url"])) in requests:  # D3
                attempt.fail("redirect_loop", f"redirect to {redirect['url']}")
                return
            attempt.redirects += 1
            attempt.hop_url, attempt.hop_method = redirect["url"], redirect["method"]

    async def hop(self, attempt: Attempt) -> None:
        """hop sends one request on a new connection and reads its response."""
        url = parse_url(attempt.hop_url)
        if url is None or url.userinfo is not None:
            raise Fault("invalid_request", "not an http or https URL without userinfo")  # P2
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await self.connect(url)
        except TimeoutError:
            raise Fault("connect_timeout", f"no connection to {url.host} in {CONNECT_TIMEOUT:g} s") from None  # N3
        try:
            exchange = Exchange(reader, writer)
            attempt.status, attempt.headers = await exchange.send(attempt.hop_method, url)
            attempt.observed_at = datetime.now(timezone.utc).isoformat()
            length = body_length(attempt.status, attempt.headers)
            if 200 <= attempt.status <= 299:
                attempt.body = await exchange.body(length, attempt.headers)
        finally:
            writer.transport.abort()

    async def connect(self, url: Url) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """connect makes a connection, over TLS if the URL is https (N1 to N3, N5, N6)."""
        loop = asyncio.get_running_loop()
        host, port = url.host.strip("[]"), url.origin[2]
        try:
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            missing = error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
            raise Fault("dns_not_found" if missing else "dns_failure", f"{host}: {error.strerror}") from None
        except (OSError, UnicodeError) as error:
            raise Fault("dns_failure", f"{host}: {error}") from None
        fault = Fault("connect_failure", f"{host}: no address")
        for family, kind, protocol, _, address in addresses:
            connection = socket.socket(family, kind, protocol)
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, address)
            except ConnectionRefusedError as error:
                connection.close()
                fault = Fault("connect_refused", f"{address[0]} port {port}: {error.strerror}")
            except TimeoutError as error:  # ETIMEDOUT of the system.
                connection.close()
                fault = Fault("connect_timeout", f"{address[0]} port {port}: {error.strerror}")
            except OSError as error:
                connection.close()
                fault = Fault("connect_failure", f"{address[0]} port {port}: {error.strerror}")
            except BaseException:
                connection.close()
                raise
            else:
                return await self.handshake(connection, url, host)
        raise fault

    async def handshake(self, connection: socket.socket, url: Url,
                        host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            if url.scheme == "http":
                return await asyncio.open_connection(sock=connection, limit=MAX_HEAD)
            return await asyncio.open_connection(sock=connection, limit=MAX_HEAD, ssl=self.context,
                                                 server_hostname=host, ssl_handshake_timeout=2 * CONNECT_TIMEOUT)
        except ssl.SSLCertVerificationError as error:
            raise Fault("tls_certificate", f"{host}: {error.verify_message}") from None  # N6
        except OSError as error:
            raise Fault("tls_handshake", f"{host}: {error or 'the connection broke in the handshake'}") from None  # N5


STATUS_LINE = re.compile(rb"HTTP/([0-9])\.([0-9]) ([0-9]{3})(?: .*)?")
FIELD_NAME = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Exchange:
    """One request and its response on a connection of HTTP/1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head_left = MAX_HEAD  # Bytes that the rest of a head may have.

    async def send(self, method: str, url: Url) -> tuple[int, list[tuple[str, str]]]:
        """send sends a request and returns the head of its final response (N4, N7, N10)."""
        host = url.host + (f":{url.port}" if url.port else "")
        target = (url.path or "/") + ("" if url.query is None else f"?{url.query}")
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {host}",
            f"User-Agent: fetch-client-python/{VERSION}",
            "Accept: */*",
            "Accept-Encoding: gzip",
            "Connection: close",
        ]
        try:
            async with asyncio.timeout(HEADER_TIMEOUT):
                self.writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii"))
                await self.writer.drain()
                for _ in range(MAX_INTERIM + 1):
                    status, headers = await self.head()
                    if status == 101 or not 100 <= status <= 199:
                        return status, headers
        except TimeoutError as error:
            if error.errno is None:
                raise Fault("response_timeout", f"no response head in {HEADER_TIMEOUT:g} s") from None
            raise Fault("connection_reset", str(error)) from None
        except ssl.SSLError as error:
            if "CERTIFICATE_REQUIRED" in (error.reason or ""):  # N5: no client certificate.
                raise Fault("tls_handshake", str(error)) from None
            raise Fault("connection_reset", str(error)) from None
        except OSError as error:
            raise Fault("connection_reset", str(error)) from None
        raise Fault("protocol", f"more than {MAX_INTERIM} interim responses")

    async def head(self) -> tuple[int, list[tuple[str, str]]]:
        """head reads one response head."""
        self.head_left = MAX_HEAD
        line = await self.line()
        match = STATUS_LINE.fullmatch(line)
        if match is None:
            raise Fault("protocol", "no status line of HTTP/1")
        if match[1] != b"1":
            raise Fault("protocol", f"version {match[1].decode()}.{match[2].decode()} in the status line")
        return int(match[3]), await self.fields()

    async def fields(self) -> list[tuple[str, str]]:
        """fields reads header fields up to the empty line."""
        fields: list[tuple[str, str]] = []
        while line := await self.line():
            if line[:1] in b" \t" and fields:  # RFC 9112 §5.2: obsolete line folding.
                name, value = fields.pop()
                fields.append((name, f"{value} {decode(line)}".strip()))
                continue
            name_bytes, colon, value_bytes = line.partition(b":")
            if not colon or not FIELD_NAME.fullmatch(name_bytes) or b"\0" in value_bytes or b"\r" in value_bytes:
                raise Fault("protocol", "malformed header field")
            if len(fields) == MAX_FIELDS:
                raise Fault("protocol", f"more than {MAX_FIELDS} header fields")
            fields.append((name_bytes.decode("ascii"), decode(value_bytes)))
        return fields

    async def line(self) -> bytes:
        """line reads a line of a head without its end."""
        try:
            line = await self.reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            raise ConnectionError("the connection was closed in a line of a head or a chunk") from None
        except asyncio.LimitOverrunError:
            line = b""
            self.head_left = -1
        self.head_left -= len(line)
        if self.head_left < 0:
            raise Fault("protocol", f"response head over {MAX_HEAD} bytes")
        return line[:-2] if line.endswith(b"\r\n") else line[:-1]

    async def body(self, length: int, headers: list[tuple[str, str]]) -> bytes:
        """body reads and decodes the body of a 2xx (N8, N9, C3, C4)."""
        codings = [coding.lower() for coding in values_of(headers, "content-encoding")]
        body = Body([coding for coding in codings if coding in CODINGS])
        if length > MAX_SIZE:
            raise Fault("body_too_large", f"Content-Length over {MAX_SIZE} bytes")
        try:
            if length == CHUNKED:
                await self.chunks(body)
            elif length == UNTIL_CLOSE:
                while data := await self.read(64 * 1024):
                    body.add(data)
            else:
                await self.exactly(length, body)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise Fault("body_interrupted", f"the body broke off: {error}") from None
        return body.end()

    async def chunks(self, body: Body) -> None:
        """chunks reads a chunked body with its trailers."""
        self.head_left = 1 << 62
        while True:
            size = (await self.in_time(self.line())).split(b";")[0].strip()
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", size):
                raise ConnectionError("invalid chunk size")
            if int(size, 16) == 0:
                break
            await self.exactly(int(size, 16), body)
            if await self.in_time(self.line()):
                raise ConnectionError("a chunk is longer than its size")
        self.head_left = MAX_HEAD
        await self.in_time(self.fields())

    async def exactly(self, length: int, body: Body) -> None:
        while length > 0:
            data = await self.read(min(length, 64 * 1024))
            if not data:
                raise ConnectionError(f"{length} bytes are missing")
            length -= len(data)
            body.add(data)

    async def read(self, limit: int) -> bytes:
        return await self.in_time(self.reader.read(limit))

    async def in_time(self, reading: Awaitable[T]) -> T:
        """in_time limits the time between bytes of the body (N9)."""
        try:
            async with asyncio.timeout(IDLE_TIMEOUT) as limit:
                return await reading
        except TimeoutError as error:
            if limit.expired():
                raise Fault("body_timeout", f"no data for {IDLE_TIMEOUT:g} s") from None
            raise ConnectionError(str(error)) from None


class Body:
    """A body while it is read: its bytes are decoded and limited."""

    def __init__(self, codings: list[str]) -> None:
        if len(codings) > 2:
            raise Fault("undecodable", "more than two content codings")  # C3.
        self.decoder = None
        if codings and codings[-1] in ("gzip", "x-gzip"):
            self.decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
        elif codings:
            raise Fault("undecodable", f"content coding {codings[-1]}")
        self.inner = Body(codings[:-1]) if len(codings) == 2 else None
        self.behind = b""  # what follows a member of gzip
        self.parts: list[bytes] = []
        self.size = 0
        self.encoded = 0
        self.broken = False

    def add(self, data: bytes) -> None:
        self.encoded += len(data)
        if self.decoder is None:
            self.keep(data)
        while self.decoder is not None and data and not self.broken:
            if self.decoder.eof:
                self.behind += data[:3]
                if not self.behind.startswith(GZIP[: len(self.behind)]):
                    return  # It is no other member (B6).
                if len(self.behind) < 3:
                    return
                data, self.behind = self.behind + data[3:], b""
                self.decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
            try:
                self.keep(self.decoder.decompress(data, 64 * 1024))
            except zlib.error:
                self.broken = True  # The transfer is read on: if it breaks off, N8 precedes C3.
                return
            data = self.decoder.unconsumed_tail or self.decoder.unused_data

    def keep(self, data: bytes) -> None:
        if self.inner is None:
            self.parts.append(data)
        else:
            self.inner.add(data)
        self.size += len(data)
        if self.size > MAX_SIZE:
            raise Fault("body_too_large", f"body over {MAX_SIZE} bytes")
        if self.size > RATIO_FREE and self.size > MAX_RATIO * self.encoded:
            raise Fault("body_too_large", f"decompression ratio over {MAX_RATIO}")

    def end(self) -> bytes:
        """end returns the body. It is called when the transfer is complete."""
        if self.decoder is not None and self.encoded and (self.broken or not self.decoder.eof or (self.behind and GZIP.startswith(self.behind))):
            raise Fault("undecodable", "the content coding gzip is broken")
        return b"".join(self.parts) if self.inner is None else self.inner.end()


def values_of(headers: list[tuple[str, str]], name: str) -> list[str]:
    """values_of returns the elements of a field that is a list."""
    values = ",".join(value for key, value in headers if key.lower() == name).split(",")
    return [value.strip() for value in values if value.strip()]


CHUNKED = -1
UNTIL_CLOSE = -2


def body_length(status: int, headers: list[tuple[str, str]]) -> int:
    """body_length returns the length of a body, CHUNKED or UNTIL_CLOSE. Broken framing is N10, whatever the status."""
    if status in (204, 205, 304):
        return 0
    if codings := values_of(headers, "transfer-encoding"):
        if [coding.lower() for coding in codings] != ["chunked"]:
            raise Fault("protocol", "unknown transfer coding")
        return CHUNKED
    if lengths := set(values_of(headers, "content-length")):
        length = lengths.pop()
        if lengths or not re.fullmatch(r"[0-9]{1,18}", length):
            raise Fault("protocol", "invalid Content-Length")
        return int(length)
    return UNTIL_CLOSE


def decode(value: bytes) -> str:
    """decode decodes a field value. Bytes that are not UTF-8 are taken for ISO 8859-1."""
    try:
        return value.strip(b" \t").decode("utf-8")
    except UnicodeDecodeError:
        return value.strip(b" \t").decode("latin-1")


def as_sent(text: str) -> Optional[Url]:
    """as_sent returns a URL as far as a request contains it."""
    url = parse_url(text)
    return url and url._replace(path=url.path or "/", fragment=None)


def reason(attempt: Attempt, verdict: dict[str, Any], number: int) -> str:
    """reason describes in one line why a fetch has no body."""
    decision = verdict["decision"]
    detail = attempt.detail or f"status {attempt.status}"
    failure = verdict["failure"]
    what = f"{failure['class'].upper()} ({failure['rule']})"
    text = f"{attempt.hop_url}: {what} in attempt {number}, {decision['stop'].upper()} ({decision['rule']}): {detail}"
    if "retry_after" in failure:
        text += f"; retry after {failure['retry_after']}"
    return "".join(c if c.isprintable() else "?" for c in text)


def main(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"fetch-client-python {VERSION}")
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: client URL | client --version", file=sys.stderr)
        return 2
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if authority := os.environ.get("ORIGIN_CA"):
        try:
            context.load_verify_locations(authority)
        except OSError as error:
            print(f"client: ORIGIN_CA: {authority}: {error}", file=sys.stderr)
            return 1
    attempt, verdict, number = asyncio.run(Client(arguments[0], context).fetch())
    if verdict["outcome"] == "failed":
        print(f"client: {reason(attempt, verdict, number)}", file=sys.stderr)
        return 1
    if verdict["outcome"] == "success":  # Section 3: the other outcomes without an error have no body.
        sys.stdout.buffer.write(attempt.body)
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
