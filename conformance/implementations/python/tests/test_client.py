"""Tests of the client, with an origin on loopback that plays a script."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import socket
import ssl
import unittest
from typing import Any, AsyncIterator, Optional, Union
from unittest import mock

import fetch_client
from fetch_client import Client

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage"
RESET, CLOSE, SILENCE = "reset", "close", "silence"
Answer = Union[bytes, str]
CONTEXT = ssl.create_default_context()


class Origin:
    """An origin that answers request n with answer n, and each later one with the last answer."""

    def __init__(self, *answers: Answer, hang: bool = False, speaks_http: bool = True) -> None:
        self.answers = answers
        self.hang = hang  # Whether the connection stays open after an answer.
        self.speaks_http = speaks_http  # Whether it reads a request before it answers.
        self.requests: list[str] = []
        self.times: list[float] = []
        self.tasks: set[Optional[asyncio.Task[Any]]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        try:
            answer = self.answers[min(len(self.times), len(self.answers) - 1)]
            self.times.append(asyncio.get_running_loop().time())
            if self.speaks_http:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head.decode().split(" ")[1])
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            if self.hang or answer == SILENCE:
                await asyncio.sleep(3600)
            if answer == RESET:
                writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self.tasks:
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(task for task in self.tasks if task is not None), return_exceptions=True)


def status(line: str, *fields: str, body: bytes = b"") -> bytes:
    head = "".join(f"{text}\r\n" for text in (f"HTTP/1.1 {line}", f"Content-Length: {len(body)}", *fields, ""))
    return head.encode() + body


class Fetches(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().slow_callback_duration = 10  # No warnings of the debug mode on a slow machine.

    async def fetch(self, origin: Origin, path: str = "/", scheme: str = "http") -> tuple[bytes, dict[str, Any], int]:
        async with origin.listen() as port:
            client = Client(f"{scheme}://127.0.0.1:{port}{path}", CONTEXT)
            attempt, verdict, number = await client.fetch()
        return attempt.body, verdict, number

    async def expect(self, origin: Origin, rule: str, stop: str, attempts: int, scheme: str = "http") -> dict[str, Any]:
        _, verdict, number = await self.fetch(origin, scheme=scheme)
        self.assertEqual((verdict["failure"]["rule"], verdict["decision"]["stop"], number), (rule, stop, attempts))
        return verdict

    def expect_waits(self, origin: Origin, *waits: float) -> None:
        # A machine can be slow, so a wait may be longer. It must not be shorter.
        for before, after, wait in zip(origin.times[:-1], origin.times[1:], waits, strict=True):
            self.assertGreaterEqual(after - before, wait - 0.001)

    async def test_success(self) -> None:
        origin = Origin(OK)
        self.assertEqual((await self.fetch(origin, "/a?b#c"))[0], b"page")
        self.assertEqual(origin.requests, ["/a?b"])

    async def test_backoff(self) -> None:
        origin = Origin(status("503 Busy"), RESET, OK)
        body, _, number = await self.fetch(origin)
        self.assertEqual((body, number), (b"page", 3))
        self.expect_waits(origin, 0.2, 0.4)

    async def test_retry_after(self) -> None:
        origin = Origin(status("429 Slow down", "Retry-After: 1"), status("503 Busy", "Retry-After: 0"), OK)
        self.assertEqual((await self.fetch(origin))[0], b"page")
        self.expect_waits(origin, 1, 0)

    async def test_retry_after_too_long(self) -> None:
        verdict = await self.expect(Origin(status("503 Busy", "Retry-After: 31")), "H1", "retry_after_too_long", 1)
        self.assertEqual(verdict["failure"]["retry_after"], "31s")

    async def test_failures(self) -> None:
        cases: tuple[tuple[Answer, str, str, int], ...] = (
            (status("404 Not Found"), "H6", "not_retried", 1),
            (status("999 What"), "N10", "not_retried", 1),
            (CLOSE, "N4", "attempts_exhausted", 3),
            (b"HTTP/1.1 200 OK\r\nContent-Le", "N4", "attempts_exhausted", 3),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "N8", "attempts_exhausted", 3),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n", "N8", "attempts_exhausted", 3),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\nzz\r\n", "N8", "attempts_exhausted", 3),
            (b"HTTP/2.0 200 OK\r\n\r\n", "N10", "not_retried", 1),
            (b"SSH-2.0-server\r\n", "N10", "not_retried", 1),
            (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "N10", "not_retried", 1),
            (b"HTTP/1.1 503 Busy\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "N10", "not_retried", 1),
            (b"HTTP/1.1 200 OK\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", "N10", "not_retried", 1),
            (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 17 + OK, "N10", "not_retried", 1),
            (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\npage", "C3", "not_retried", 1),
            (status("200 OK", "Content-Encoding: gzip", body=gzip.compress(b"page" * 99)[:-4]), "C3", "not_retried", 1),
            (status("200 OK", "Content-Encoding: gzip", body=gzip.compress(bytes(4 << 20))), "C4", "not_retried", 1),
            (status("200 OK", "Content-Encoding: compress", body=b"page"), "C3", "not_retried", 1),
            (status("200 OK", "Content-Encoding: gzip, gzip", body=gzip.compress(b"page")), "C3", "not_retried", 1),
            (status("200 OK", "Content-Encoding: gzip, gzip, gzip", body=b"page"), "C3", "not_retried", 1),
            (status("200 OK", "Content-Encoding: gzip", body=gzip.compress(b"page") + b"\x1f"), "C3", "not_retried", 1),
            (status("302 Found", "Location: /"), "R2", "not_retried", 1),
            (status("302 Found", "Location: ftp://127.0.0.1/"), "R3", "not_retried", 1),
        )
        ends = await asyncio.gather(*(self.fetch(Origin(answer)) for answer, *_ in cases))
        for (answer, rule, stop, attempts), (_, verdict, number) in zip(cases, ends, strict=True):
            with self.subTest(answer[:60]):
                self.assertEqual((verdict["failure"]["rule"], verdict["decision"]["stop"], number), (rule, stop, attempts))

    async def test_bodies(self) -> None:
        for answer in (
            b"HTTP/1.0 200 OK\r\n\r\npage",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\npag\r\n1\r\ne\r\n0\r\nTrailer: x\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 16 + OK,
            status("200 OK", "Content-Encoding: gzip", body=gzip.compress(b"pa") + gzip.compress(b"ge")),
            status("200 OK", "Content-Encoding: gzip, gzip", body=gzip.compress(gzip.compress(b"page"))),
            status("200 OK", "Content-Encoding: ,gzip, identity", body=gzip.compress(b"page") + b"\r\n"),
            status("200 OK", "Content-Encoding: UTF-8", body=b"page"),
        ):
            with self.subTest(answer[:60]):
                self.assertEqual((await self.fetch(Origin(answer)))[0], b"page")

    async def test_redirects(self) -> None:
        origin = Origin(*(status("302 Found", f"Location: /{n}") for n in range(1, 6)), OK)
        self.assertEqual((await self.fetch(origin))[0], b"page")
        origin = Origin(*(status("302 Found", f"Location: /{n}") for n in range(1, 9)))
        await self.expect(origin, "R1", "not_retried", 1)
        self.assertEqual(len(origin.requests), 6)

    async def test_retry_starts_at_the_first_url(self) -> None:
        moved = status("302 Found", "Location: /next")
        origin = Origin(moved, status("503 Busy"), moved, OK)
        await self.fetch(origin, "/first")
        self.assertEqual(origin.requests, ["/first", "/next", "/first", "/next"])

    async def test_refused(self) -> None:
        with socket.socket() as bound:  # Nothing listens on its port, and no other program gets it.
            bound.bind(("127.0.0.1", 0))
            _, verdict, number = await Client(f"http://127.0.0.1:{bound.getsockname()[1]}/", CONTEXT).fetch()
        self.assertEqual((verdict["failure"]["rule"], number), ("N2", 3))

    async def test_no_tls(self) -> None:
        answers: tuple[Answer, ...] = (b"HTTP/1.1 400 Bad Request\r\n\r\n", CLOSE, RESET)
        for answer in answers:
            with self.subTest(answer):
                await self.expect(Origin(answer, speaks_http=False), "N5", "attempts_exhausted", 3, scheme="https")

    async def test_timeouts(self) -> None:
        partial = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"
        cases: tuple[tuple[str, Answer, str, str, int], ...] = (
            ("HEADER_TIMEOUT", SILENCE, "N7", "attempts_exhausted", 3),
            ("IDLE_TIMEOUT", partial, "N9", "attempts_exhausted", 3),
            ("ATTEMPT_TIMEOUT", partial, "N11", "attempts_exhausted", 3),
            ("TOTAL_TIMEOUT", partial, "P3", "deadline", 1),
        )
        for name, answer, rule, stop, attempts in cases:
            with self.subTest(name), mock.patch.object(fetch_client, name, 0.1):
                await self.expect(Origin(answer, hang=True), rule, stop, attempts)

    async def test_handshake_timeout(self) -> None:
        with mock.patch.object(fetch_client, "CONNECT_TIMEOUT", 0.1):
            await self.expect(Origin(SILENCE), "N3", "attempts_exhausted", 3, scheme="https")

    async def test_no_time_for_the_wait(self) -> None:
        with mock.patch.object(fetch_client, "TOTAL_TIMEOUT", 29.0):
            await self.expect(Origin(status("503 Busy", "Retry-After: 30")), "H1", "no_time", 1)


class Program(unittest.TestCase):
    def run_client(self, *arguments: str) -> tuple[int, str, str]:
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = fetch_client.main(list(arguments))
        return code, output.getvalue(), errors.getvalue()

    def test_version(self) -> None:
        self.assertEqual(self.run_client("--version"), (0, f"fetch-client-python {fetch_client.VERSION}\n", ""))

    def test_a_redirect_that_is_not_followed(self) -> None:
        verdict = {"outcome": "redirect", "decision": {"rule": "H9", "stop": "no_failure"}}
        with mock.patch.object(Client, "fetch", return_value=(fetch_client.Attempt("http://a.example/", body=b"no"), verdict, 1)):
            self.assertEqual(self.run_client("http://a.example/"), (0, "", ""))

    def test_one_line_on_failure(self) -> None:
        for url in ("ftp://127.0.0.1/", "http://user@127.0.0.1/", "http://127.0.0.1:1/"):
            code, output, errors = self.run_client(url)
            self.assertEqual((code, output, errors.count("\n")), (1, "", 1), errors)


if __name__ == "__main__":
    unittest.main()
