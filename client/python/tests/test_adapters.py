"""The adapter for requests and the transports for httpx."""

import asyncio
import io
import json
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.parse
import warnings

import httpx
import requests
import urllib3

import fetchd
from fetchd import httpx_transport, requests_adapter
from fetchd.httpx_transport import AsyncFetchdTransport, FetchdTransport
from fetchd.requests_adapter import FetchdAdapter
from rig import Case, Link, Service


class Adapters(Case):
    # Name, listener or steps, and what requests and httpx raise.
    failures = [
        ("a refused connection", "refused", None, requests.ConnectionError, httpx.ConnectError),
        ("a rejected certificate", "tls-expired", None, requests.exceptions.SSLError, httpx.ConnectError),
        ("a reset connection", None, "reset", requests.ConnectionError, httpx.ReadError),
        ("a body that breaks off", None, "200:size=1000,cut=300", requests.exceptions.ChunkedEncodingError, httpx.RemoteProtocolError),
        ("no HTTP", None, "bad-status-line", requests.ConnectionError, httpx.RemoteProtocolError),
        ("a body that cannot be decoded", None, "200:body=x,coding-lie=gzip", requests.exceptions.ContentDecodingError, httpx.DecodingError),
    ]

    # What ends a POST without a response after the origin has seen it, and the cause of the exception.
    unrepeatable = [
        ("reset", fetchd.NotIdempotentError),
        ("200:size=9,cut=0", fetchd.NotIdempotentError),
        ("silent", fetchd.NotIdempotentError),
        ("bad-status-line", fetchd.PermanentError),
    ]

    # What a client adds to each fetch, which must not reach another host.
    defaults = [
        ("headers", {"Authorization": "secret"}),
        ("headers", {"X-Api-Key": "secret"}),
        ("params", {"key": "secret"}),
        ("cookies", {"session": "secret"}),
        ("auth", ("secret", "word")),
    ]

    page = "200:type=text%2Fhtml;charset=iso-8859-1,coding=gzip,body=%3Ch1%3EGr%FC%DFe%3C%2Fh1%3E"
    text_headers = {"Content-Type": "text/markdown; charset=utf-8", "Content-Length": "10", "Content-Encoding": None}

    def setUp(self):
        self.client = fetchd.Client(self.service.target)
        self.addCleanup(self.client.close)

    def to_another_host(self, name):
        """Returns a URL that redirects to another host."""
        end = f"{self.origin.base.replace('127.0.0.1', 'localhost')}/s/{self.key(name)}/200"
        return f"{self.origin.base}/s/{self.key(name)}-first/302:header=Location={urllib.parse.quote(end, safe='')}"

    def failing(self, listener, steps, name):
        return self.origin.listeners[listener] + "/" if listener else self.url(name.replace(" ", "-"), steps)


class RequestsTest(Adapters):
    def setUp(self):
        super().setUp()
        self.session = self.mounted()

    def mounted(self, **policies):
        session = requests.Session()
        self.addCleanup(session.close)
        session.trust_env = False
        # A Retry of the Session's own must not apply.
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=urllib3.Retry(total=5, status_forcelist=[503])))
        adapter = FetchdAdapter(self.client, retry_policy={"base_delay": 0}, **policies)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        return session

    def test_get(self):
        for stream in False, True:
            with self.subTest(stream=stream):
                url = self.url(f"a{stream}", "503/200:body=hell%C3%B6,header=X-A=1,header=X-A=2")
                response = self.session.get(url, stream=stream, timeout=(5, 30))
                self.assertEqual((response.status_code, response.text, response.url, response.ok), (200, "hellö", url, True))
                self.assertEqual((response.headers["x-a"], response.reason, response.history), ("1, 2", "OK", []))
                self.assertEqual((response.attempt_count, response.outcome.decision_rule), (2, "H0"))
                self.assertGreater(response.elapsed.total_seconds(), 0)
                response.raise_for_status()
                self.assertEqual(len(self.seen(f"a{stream}")), 2)

    def test_failed_status(self):
        """A failed status is an ordinary response, and it is not retried twice."""
        for stream in False, True:
            response = self.session.get(self.url(f"a{stream}", "503:body=no"), stream=stream)
            self.assertEqual((response.status_code, response.text, response.ok), (503, "no", False))
            with self.assertRaises(requests.HTTPError):
                response.raise_for_status()
            self.assertEqual(len(self.seen(f"a{stream}")), 3)

    def test_failures(self):
        for name, listener, steps, kind, _ in self.failures:
            for stream in False, True:
                with self.subTest(name, stream=stream), self.assertRaises(requests.RequestException) as raised:
                    self.session.get(self.failing(listener, steps, f"{name}-{stream}"), stream=stream).content
                self.assertIs(type(raised.exception), kind)
                self.assertIsInstance(raised.exception.__cause__, fetchd.FetchError)
                self.assertIsNotNone(raised.exception.request)

    def test_not_sent_again(self):
        """No exception for a broken connection or a timeout invites a second POST."""
        for steps, cause in self.unrepeatable:
            with self.subTest(steps), self.assertRaises(requests.RequestException) as raised:
                self.session.post(self.url(steps[:3], steps), timeout=(30, 0.2))
            self.assertIs(type(raised.exception), requests_adapter.NotIdempotentError)
            self.assertRegex(str(raised.exception), "^the POST may have taken effect; .*: fetch http://")
            self.assertIs(type(raised.exception.__cause__), cause)
            self.assertEqual(raised.exception.__cause__.request_state, "unknown")
            self.assertEqual(len(self.seen(steps[:3])), 1)

    def test_not_sent_at_all(self):
        """A POST that fetchd has not sent fails like a GET."""
        with self.assertRaisesRegex(requests.ConnectionError, "^fetch http://") as raised:
            self.session.post(self.origin.listeners["refused"] + "/")
        self.assertIsInstance(raised.exception.__cause__, fetchd.TransientError)
        self.assertEqual(raised.exception.__cause__.request_state, "not_sent")

    def test_sent_again(self):
        """A POST with a key fails like a GET, and one without is sent once. A key is of one request."""
        keyed = self.mounted()
        keyed.mount("http://", FetchdAdapter(self.client, retry_policy={"allow_non_idempotent": True, "base_delay": 0}))
        with self.assertRaises(requests.ConnectionError):
            keyed.post(self.url("keyed", "reset"), headers={"Idempotency-Key": "order-17"})
        self.assertEqual([seen["header"]["Idempotency-Key"] for seen in self.seen("keyed")], [["order-17"]] * 3)
        with self.assertRaises(requests_adapter.NotIdempotentError):
            keyed.post(self.url("unkeyed", "reset"))
        self.assertEqual(["Idempotency-Key" in seen["header"] for seen in self.seen("unkeyed")], [False])
        for adapter in FetchdAdapter, FetchdTransport:
            with self.assertRaisesRegex(TypeError, "header Idempotency-Key"):
                adapter(self.client, retry_policy={"idempotency_key": "order-17", "allow_non_idempotent": True})

    def test_timeout(self):
        with self.assertRaises(requests.exceptions.ReadTimeout):
            self.session.get(self.url("a", "silent"), timeout=(30, 0.2))  # only the answer is late
        self.assertEqual(len(self.seen("a")), 3)
        self.assertEqual(self.session.get(self.url("b", "200"), timeout=30).status_code, 200)

    def test_long_timeouts(self):
        """As in requests, a read timeout limits the waits and not an attempt or the whole fetch, and None is no limit."""
        for timeout, limit in (40, 40), ((3, None), 900), (None, 900):
            with unittest.mock.patch.object(fetchd.Client, "stream", autospec=True, side_effect=fetchd.Client.stream) as stream:
                self.session.get(self.url("a", "200"), stream=True, timeout=timeout).close()
            first = next(self.client.events("GET", self.url("a", "200"), timeout_policy=stream.call_args[1]["timeout_policy"]))
            limits = first.admitted.effective_request.timeout_policy
            self.assertEqual((limits.header_timeout.seconds, limits.idle_timeout.seconds), (limit, limit))
            self.assertEqual((limits.attempt_timeout.seconds, limits.total_timeout.seconds), (0, 900))
        short = self.mounted(timeout_policy={"total_timeout": 0.5})
        with self.assertRaises(requests.exceptions.ReadTimeout):
            short.get(self.url("b", "silent"), timeout=40)

    def test_first_bytes(self):
        """A streamed body arrives as it comes, and failures before its first byte are retried."""
        start = time.monotonic()
        response = self.session.get(self.url("a", "503/200:size=1000,stall=300"), stream=True, timeout=(5, 30))
        self.assertEqual(len(next(response.iter_content(300))), 300)
        self.assertLess(time.monotonic() - start, 5)
        self.assertEqual(len(self.seen("a")), 2)
        response.close()

    def test_raw(self):
        """response.raw is a file, also for those who read lines or wrap it."""
        for stream in False, True:
            read = lambda: self.session.get(self.url("a", "200:body=one%0Atwo%0A,coding=gzip"), stream=stream).raw
            self.assertEqual(list(read()), [b"one\n", b"two\n"])
            self.assertEqual(list(io.TextIOWrapper(io.BufferedReader(read()))), ["one\n", "two\n"])
            with read() as raw:
                self.assertEqual((raw.read(3), raw.readline(), raw.read(), raw.read(), raw.closed), (b"one", b"\n", b"two\n", b"", False))
            self.assertTrue(raw.closed)

    def test_long_error_page(self):
        """A failed status whose body is truncated says so."""
        for stream in False, True:
            with self.assertWarnsRegex(UserWarning, "status 404 is truncated after 65536 bytes"):
                response = self.session.get(self.url("a", "404:size=100000"), stream=stream)
            self.assertEqual((len(response.content), response.truncated), (65536, True))
            self.assertFalse(self.session.get(self.url("b", "404:size=1000"), stream=stream).truncated)

    def test_truncated(self):
        """The limit of the policy and Content-Length decide, even if no byte is kept."""
        for limit, method, steps, truncated in [
            (1000, "GET", "404:size=1001", True),
            (1000, "GET", "404:size=1000", False),
            (1000, "GET", "404:size=1001,chunked", True),
            (1000, "GET", "404:size=999,chunked", False),
            (1000, "GET", "404:size=1001,coding=gzip", True),
            (1000, "GET", "404:size=999,coding=gzip", False),
            (0, "GET", "404:size=9", True),
            (0, "GET", "404:size=9,chunked", True),
            (0, "GET", "404:size=0", False),
            (0, "HEAD", "404:size=9", False),
            (0, "GET", "304:length=9", False),
            (0, "GET", "302:size=9", True),
            (0, "GET", "200:size=9", False),
            (None, "GET", "404:size=65536", False),
            (None, "GET", "404:size=65535,chunked", False),
            (None, "GET", "404:size=65537", True),
            (None, "GET", "404:length=9,cut=0", True),
        ]:
            session = self.mounted(body_policy={"max_error_body_bytes": limit})
            for stream in False, True:
                with self.subTest(f"{method} {steps}", limit=limit, stream=stream), warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    response = session.request(method, self.url("a", steps), stream=stream, allow_redirects=False)
                    cut = [str(w.message) for w in warned if " is truncated after " in str(w.message)]
                    self.assertEqual((response.truncated, len(cut)), (truncated, int(truncated)))

    def test_retryable(self):
        """Responses and exceptions say whether a later fetch may be made."""
        for method, steps, retryable in ("GET", "503", True), ("POST", "503", False), ("GET", "404", False), ("GET", "200", False):
            self.assertIs(self.session.request(method, self.url(method + steps, steps)).retryable, retryable)
        for method, listener, steps, retryable in ("GET", "refused", None, True), ("POST", None, "reset", False), ("GET", "tls-expired", None, False):
            with self.assertRaises(requests.RequestException) as raised:
                self.session.request(method, self.failing(listener, steps, f"x{steps}"))
            self.assertIs(raised.exception.retryable, retryable)

    def test_retryable_without_an_outcome(self):
        """A lost outcome says nothing against a later fetch, unless the request may be sent only once."""
        for error, method, retryable in [
            (fetchd.LostError("UNAVAILABLE", "lost", sent=True), "GET", True),
            (fetchd.LostError("UNAVAILABLE", "lost", sent=True), "POST", False),
            (fetchd.DeadlineError("DEADLINE_EXCEEDED", "late", sent=True), "GET", True),
            (fetchd.DeadlineError("DEADLINE_EXCEEDED", "late", sent=True), "POST", False),
            (fetchd.UnavailableError("UNAVAILABLE", "away"), "POST", True),
            (fetchd.OverloadedError("RESOURCE_EXHAUSTED", "full"), "GET", True),
            (fetchd.RefusedError("UNAUTHENTICATED", "wrong token"), "GET", False),
            (fetchd.RefusedError("PERMISSION_DENIED", "forbidden"), "GET", False),
            (fetchd.InvalidRequestError("INVALID_ARGUMENT", "invalid"), "GET", False),
            (fetchd.ContractError("no outcome"), "GET", False),
        ]:
            with self.subTest(f"{method} {error!r}"), unittest.mock.patch.object(fetchd.Client, "request", side_effect=error):
                with self.assertRaises(requests.RequestException) as raised:
                    self.session.request(method, self.url("a", "200"))
                self.assertIs(raised.exception.retryable, retryable)

    def test_raw(self):
        raw = self.session.get(self.url("a", "200:header=X-A=1,header=X-A=2"), stream=True).raw
        self.assertEqual((raw.headers.getlist("x-a"), raw.version), (["1", "2"], 11))

    def test_post(self):
        for name, options, size in [
            ("json", {"json": {"a": 1}}, 8),
            ("form", {"data": {"a": "1"}}, 3),
            ("iterable", {"data": iter([b"ab", b"cd"])}, 4),
        ]:
            with self.subTest(name):
                response = self.session.post(self.url(name, "200:echo"), headers={"X-Name": "value"}, **options)
                self.assertEqual(response.json()["body_bytes"], size)
                self.assertEqual(self.seen(name)[0]["header"]["X-Name"], ["value"])
        with self.assertRaises(requests.RequestException):
            self.session.post(self.url("large", "200"), data=b"x" * ((1 << 20) + 1))
        self.assertEqual(self.seen("large"), [])

    def test_redirects(self):
        end = "200:body=there,set-cookie=last=1"
        response = self.session.get(self.url("a", "302:set-cookie=hop=1%3BPath=%2F/2/" + end, kind="r"))
        self.assertEqual((response.url, response.text), (self.url("a", end), "there"))
        self.assertEqual([past.status_code for past in response.history], [302, 302])
        self.assertEqual(self.session.cookies.get_dict(), {"hop": "1", "last": "1"})
        self.assertEqual(self.seen("a")[-1]["header"]["Cookie"], ["hop=1"])

    def test_redirects_not_allowed(self):
        first = self.url("a", "302/1/200", kind="r")
        response = self.session.get(first, allow_redirects=False)
        self.assertEqual((response.status_code, response.url, response.is_redirect), (302, first, True))
        self.assertEqual(response.next.url, self.url("a", "200"))
        self.assertEqual(len(self.seen("a")), 1)

    def test_redirects_like_requests(self):
        """The Session follows: request, history and Authorization are those of requests."""
        end = f"{self.origin.base.replace('127.0.0.1', 'localhost')}/s/{self.key('end')}/200:echo"
        hop = f"{self.origin.base}/s/{self.key('a')}/302:header=Location={urllib.parse.quote(end, safe='')}"
        response = self.session.get(hop, headers={"Authorization": "secret"})
        self.assertEqual((response.request.url, response.url), (end, end))
        self.assertEqual([(past.url, past.is_redirect, past.request.headers["Authorization"]) for past in response.history], [(hop, True, "secret")])
        self.assertNotIn("Authorization", response.request.headers)
        self.assertNotIn("secret", response.text)

    def test_defaults_of_the_client(self):
        """They would reach each host to which a redirect leads."""
        for default, value in self.defaults:
            text = f"the client has {default}, .* set {default} of the Session"
            with self.subTest(f"{default} {value}"), fetchd.Client(self.service.target, **{default: value}) as client:
                with self.assertRaisesRegex(ValueError, text):
                    FetchdAdapter(client)
            for stream in False, True:
                name = f"{default}-{stream}"
                with self.subTest(f"{default} {value}", stream=stream), fetchd.Client(self.service.target) as client:
                    self.session.mount("http://", FetchdAdapter(client))
                    setattr(client, default, value)
                    with self.assertRaisesRegex(ValueError, text):
                        self.session.get(self.to_another_host(name), stream=stream)
                    self.assertEqual(self.seen(name), [])

    def test_max_redirects(self):
        for limit, hops in (2, 2), (30, 25):
            self.session.max_redirects = limit
            self.assertEqual(len(self.session.get(self.url(f"{limit}", f"302/{hops}/200", kind="r")).history), hops)
            with self.assertRaisesRegex(requests.TooManyRedirects, f"Exceeded {limit} redirects") as raised:
                self.session.get(f"{self.origin.base}/loop/{self.key('a')}/302")
            self.assertEqual((raised.exception.response.status_code, len(raised.exception.response.history)), (302, limit))

    def test_coded_body(self):
        response = self.session.get(self.url("a", "200:body=text,coding=gzip"))
        self.assertEqual(response.text, "text")

    def test_text(self):
        """The headers are those of the text, of which the libraries take the charset."""
        for stream in False, True:
            response = self.mounted(text_policy={"content": "marked"}).get(self.url("a", self.page), stream=stream)
            self.assertEqual((response.text, {name: response.headers.get(name) for name in self.text_headers}), ("# Grüße\n", self.text_headers))
        with httpx.Client(transport=FetchdTransport(self.client, text_policy={"content": "marked"})) as client:
            response = client.get(self.url("a", self.page))
            self.assertEqual((response.text, {name: response.headers.get(name) for name in self.text_headers}), ("# Grüße\n", self.text_headers))

    def test_large_body(self):
        response = self.session.get(self.url("a", "200:size=20000000"), stream=True)
        self.assertEqual(sum(map(len, response.iter_content(65536))), 20_000_000)
        self.assertEqual(response.outcome.body_summary.size_bytes, 20_000_000)

    def test_whole_body(self):
        """The body of an ordinary get has no default limit, and the error names the one of the service."""
        self.assertEqual(len(self.session.get(self.url("a", "200:size=20000000")).content), 20_000_000)
        ports = [int(url.rpartition(":")[2]) for url in self.origin.listeners.values()]
        policies = {"policies": {"p": {"egress": {"allow-addresses": ["127.0.0.0/8"], "ports": ports}, "request": {"max-size-bytes": 1000, "max-total-timeout": "20s"}}}, "default": "p"}
        with tempfile.NamedTemporaryFile("w") as file:
            json.dump(policies, file)
            file.flush()
            for flag, setter in ("--max-body-bytes=1000", "set by its operator with --max-body-bytes"), (f"--policies-file={file.name}", "the maximum of the policy"):
                limited = Service(self.origin, flag)
                self.addCleanup(limited.stop)
                with fetchd.Client(limited.target) as client:
                    self.session.mount("http://", FetchdAdapter(client))
                    for stream in False, True:
                        with self.assertRaisesRegex(requests.RequestException, f"max_size_bytes 1000, .*{setter}"):
                            self.session.get(self.url("b", "200:size=1001"), stream=stream).content

    def test_headers_are_latin_1(self):
        """As in requests, a character is a byte, so that a Location in UTF-8 is followed."""
        for value, sent in ("\u00e9", "\ufffd"), ("\u00c3\u00a9", "\u00e9"):
            got = self.session.get(self.url("echo", "200:echo"), headers={"X-A": value}).json()
            self.assertIn({"name": "X-A", "value": sent}, got["headers"])
        with self.assertRaises(UnicodeEncodeError):
            self.session.get(self.url("echo", "200:echo"), headers={"X-A": "\u65e5"})
        self.assertEqual(self.session.get(self.url("a", "200:header=X-A=%C5%A1")).headers["x-a"], "š".encode().decode("latin-1"))

    def test_timeout_forms(self):
        for timeout in None, 30, (5, None), (None, 30), urllib3.Timeout(30), urllib3.Timeout(connect=5, read=30), urllib3.Timeout(connect=5, total=30):
            with self.subTest(str(timeout)):
                self.assertEqual(self.session.get(self.url("a", "200"), timeout=timeout).status_code, 200)
        for timeout in urllib3.Timeout(read=0.2), urllib3.Timeout(total=0.2, read=30):
            with self.assertRaises(requests.Timeout):
                self.mounted(timeout_policy={"attempt_timeout": 20}).get(self.url("b", "silent"), timeout=timeout)
        for timeout in (1, 2, 3), "soon", -1:
            with self.assertRaises(ValueError):
                self.session.get(self.url("c", "200"), timeout=timeout)
        self.assertEqual(self.seen("c"), [])

    def test_refused_options(self):
        unsupported = requests_adapter.UnsupportedError
        self.assertTrue(issubclass(unsupported, requests.RequestException) and issubclass(unsupported, ValueError))
        rows = [
            ({"verify": False}, unsupported, "verify=False is not possible through fetchd: .* --egress-ca-file, .* --origins-file"),
            ({"verify": "other-ca.pem"}, unsupported, "verify='other-ca.pem' is not possible through fetchd: .* --origins-file"),
            ({"cert": "client.pem"}, unsupported, "cert is not possible through fetchd: .* --origins-file"),
            ({"proxies": {"http": "http://127.0.0.1:1"}}, unsupported, "proxies is not possible through fetchd: .* --egress-proxy"),
            ({"headers": {"Host": "other.example"}}, requests.exceptions.InvalidHeader, '"Host" is computed from the URL: remove it'),
            ({"headers": {"Expect": "100-continue"}}, requests.exceptions.InvalidHeader, '"Expect" is not supported: remove it'),
        ]
        for options, kind, text in rows:
            for stream in False, True:
                with self.subTest(str(options)), self.assertRaisesRegex(kind, text):
                    self.session.get(self.url("a", "200"), stream=stream, **options)
        self.assertEqual(self.seen("a"), [])
        mounts = [
            ({"redirect_policy": {"max_redirects": 2}}, "the Session follows redirects"),
            ({"client": "127.0.0.1:1"}, "needs a fetchd.Client"),
            ({"retry_policy": {"total": 5}}, "retry_policy.total is not a field"),
            ({"retry_policy": urllib3.Retry(total=5)}, "retry_policy is Retry"),
            ({"max_retries": 3}, "max_retries is not an argument"),
        ]
        for options, text in mounts:
            with self.assertRaisesRegex(TypeError, text):
                FetchdAdapter(**{"client": self.client, **options})
        with self.assertRaises(requests.exceptions.InvalidURL):
            self.session.get(self.url("b", "302:header=Location=http%3A%2F%2Flocalhost%3A-1"))

    def test_environment(self):
        """The authorities and the proxies of the environment are about the connections of the program."""
        self.session.trust_env = True
        with unittest.mock.patch.dict("os.environ", {"REQUESTS_CA_BUNDLE": "other-ca.pem", "http_proxy": "http://127.0.0.1:1", "no_proxy": ""}):
            self.session.verify = False
            self.assertEqual(self.session.get(self.url("a", "200")).status_code, 200)  # requests has replaced it
            self.session.trust_env = False
            with self.assertRaisesRegex(requests_adapter.UnsupportedError, "verify=False"):
                self.session.get(self.url("a", "200"))
            self.session.verify = self.session.trust_env = True
        with unittest.mock.patch.dict("os.environ", {"http_proxy": "http://user:p%40ss@127.0.0.1:1", "no_proxy": ""}):
            self.assertEqual(self.session.get(self.url("b", "302/2/200", kind="r")).status_code, 200)
            with self.assertRaisesRegex(requests.exceptions.InvalidHeader, "Proxy-Authorization"):
                self.session.get(self.url("c", "200"), headers={"Proxy-Authorization": "own"})
        for name, count in ("b", 3), ("c", 0):
            self.assertEqual(["Proxy-Authorization" in seen["header"] for seen in self.seen(name)], [False] * count)

    def test_service_is_away(self):
        with fetchd.Client("127.0.0.1:1") as away:
            self.session.mount("http://", FetchdAdapter(away))
            with self.assertRaises(requests.ConnectionError) as raised:
                self.session.get(self.url("a", "200"))
        self.assertIsInstance(raised.exception.__cause__, fetchd.UnavailableError)


class HttpxTest(Adapters):
    def run_both(self, work, **options):
        """Runs work(get, key) with a function that sends a request through each transport."""
        policies = {"retry_policy": {"base_delay": 0}}
        with httpx.Client(transport=FetchdTransport(self.client, **policies), **options) as client:
            work(client.request, "sync")

        async def main():
            async with fetchd.AsyncClient(self.service.target) as through:
                async with httpx.AsyncClient(transport=AsyncFetchdTransport(through, **policies), **options) as client:
                    loop = asyncio.get_running_loop()

                    def request(*args, **kwargs):
                        return asyncio.run_coroutine_threadsafe(client.request(*args, **kwargs), loop).result()

                    await loop.run_in_executor(None, work, request, "async")

        asyncio.run(main())

    def test_get(self):
        def work(request, name):
            url = self.url(name, "503/200:body=hell%C3%B6,header=X-A=1,header=X-A=2")
            response = request("GET", url)
            self.assertEqual((response.status_code, response.text, response.http_version), (200, "hellö", "HTTP/1.1"))
            self.assertEqual((response.headers.get_list("x-a"), str(response.url)), (["1", "2"], url))
            self.assertEqual(response.extensions["fetchd"].attempt_count, 2)
            self.assertEqual(len(self.seen(name)), 2)

        self.run_both(work)

    def test_failed_status(self):
        def work(request, name):
            response = request("GET", self.url(name, "503:body=no"))
            self.assertEqual((response.status_code, response.text, len(self.seen(name))), (503, "no", 3))
            with self.assertRaises(httpx.HTTPStatusError):
                response.raise_for_status()

        self.run_both(work)

    def test_failures(self):
        def work(request, key):
            for name, listener, steps, _, kind in self.failures:
                with self.subTest(name, key=key), self.assertRaises(httpx.RequestError) as raised:
                    request("GET", self.failing(listener, steps, f"{name}-{key}"))
                self.assertIs(type(raised.exception), kind)
                self.assertIsInstance(raised.exception.__cause__, fetchd.FetchError)

        self.run_both(work)

    def test_not_sent_again(self):
        def work(request, name):
            for steps, cause in self.unrepeatable:
                with self.subTest(steps), self.assertRaises(httpx.RequestError) as raised:
                    request("POST", self.url(name + steps[:3], steps))
                self.assertIs(type(raised.exception), httpx_transport.NotIdempotentError)
                self.assertRegex(str(raised.exception), "^the POST may have taken effect; .*: fetch http://")
                self.assertIs(type(raised.exception.__cause__), cause)
                self.assertEqual(len(self.seen(name + steps[:3])), 1)

        self.run_both(work, timeout=httpx.Timeout(30, read=0.2))

    def test_timeout(self):
        def work(request, name):
            with self.assertRaises(httpx.ReadTimeout):
                request("GET", self.url(name, "silent"))
            self.assertEqual(len(self.seen(name)), 3)

        self.run_both(work, timeout=httpx.Timeout(30, read=0.2))  # only the answer is late

    def test_post(self):
        def work(request, name):
            response = request("POST", self.url(name, "200:echo"), json={"a": 1}, headers={"X-Name": "value"})
            self.assertEqual((response.json()["body_bytes"], self.seen(name)[0]["header"]["X-Name"]), (8, ["value"]))
            with self.assertRaises(httpx.LocalProtocolError):
                request("POST", self.url(name + "large", "200"), content=b"x" * ((1 << 20) + 1))

        self.run_both(work)

    def test_redirects(self):
        def work(request, name):
            first = self.url(name, "302:set-cookie=hop=1%3BPath=%2F/1/200:body=there", kind="r")
            response = request("GET", first)
            self.assertEqual((response.status_code, str(response.url)), (302, first))
            response = request("GET", first, follow_redirects=True)
            self.assertEqual((str(response.url), response.text, len(response.history)), (self.url(name, "200:body=there"), "there", 1))
            self.assertEqual(self.seen(name)[-1]["header"]["Cookie"], ["hop=1"])

        self.run_both(work)

    def test_defaults_of_the_client(self):
        """They would reach each host to which a redirect leads."""

        async def asynchronously(client, through, url):
            async with client, httpx.AsyncClient(transport=through, follow_redirects=True) as http:
                await http.get(url)

        def synchronously(client, through, url):
            with client, httpx.Client(transport=through, follow_redirects=True) as http:
                http.get(url)

        ways = [
            (fetchd.Client, FetchdTransport, synchronously),
            (fetchd.AsyncClient, AsyncFetchdTransport, lambda *args: asyncio.run(asynchronously(*args))),
        ]
        for kind, transport, get in ways:
            for default, value in self.defaults:
                text, name = f"the client has {default}, .* set {default} of the Session", f"{kind.__name__}-{default}"
                client = kind(self.service.target)
                through = transport(client)
                setattr(client, default, value)
                with self.subTest(f"{kind.__name__} {default} {value}"), self.assertRaisesRegex(ValueError, text):
                    get(client, through, self.to_another_host(name))
                self.assertEqual(self.seen(name), [])
                with self.subTest(f"{transport.__name__} {default} {value}"), self.assertRaisesRegex(ValueError, text):
                    transport(client)

    def test_refused(self):
        """Whatever cannot work is refused at once, as in httpx."""
        for transport, client in (FetchdTransport, object()), (AsyncFetchdTransport, self.client), (FetchdTransport, "127.0.0.1:1"):
            with self.assertRaisesRegex(TypeError, f"{transport.__name__} needs a fetchd"):
                transport(client)

        def work(request, name):
            for url in "invalid://example.org", "//example.org":
                with self.assertRaises(httpx.UnsupportedProtocol):
                    request("GET", url)
            for header, text in ("Host", "computed from the URL"), ("Expect", "not supported"):
                with self.assertRaisesRegex(httpx.LocalProtocolError, f'"{header}" is {text}: remove it'):
                    request("GET", self.url(name, "200"), headers={header: "a.example"})
            with self.assertRaisesRegex(ValueError, "sni_hostname is not possible"):
                request("GET", self.url(name, "200"), extensions={"sni_hostname": "a.example"})
            self.assertEqual(self.seen(name), [])

        self.run_both(work)

    def test_coded_body(self):
        def work(request, name):
            self.assertEqual(request("GET", self.url(name, "200:body=text,coding=gzip")).text, "text")

        self.run_both(work)
        with httpx.Client(transport=FetchdTransport(self.client, body_policy={"keep_encoding": True})) as client:
            response = client.get(self.url("kept", "200:body=text,coding=gzip"), headers={"Accept-Encoding": "gzip"})
            self.assertEqual((response.text, response.headers["content-encoding"]), ("text", "gzip"))


class LostTest(Case):
    """The connection to fetchd breaks after a request was sent."""

    # What programs usually retry.
    retried = requests.ConnectionError, requests.Timeout, httpx.TransportError
    keyed = {"retry_policy": {"allow_non_idempotent": True}}

    def senders(self, target, policies):
        """Returns functions that send a request through fetchd, by name, and their NotIdempotentError."""
        client = fetchd.Client(target)
        self.addCleanup(client.close)
        session = requests.Session()
        self.addCleanup(session.close)
        session.trust_env = False
        session.mount("http://", FetchdAdapter(client, **policies))
        headers = {"Idempotency-Key": "key"} if policies else {}
        session.headers.update(headers)
        http = httpx.Client(transport=FetchdTransport(client, **policies), headers=headers)
        self.addCleanup(http.close)

        async def asynchronously(method, url):
            async with fetchd.AsyncClient(target) as through:
                async with httpx.AsyncClient(transport=AsyncFetchdTransport(through, **policies), headers=headers) as client:
                    return await client.request(method, url)

        return [
            ("requests", session.request, requests_adapter.NotIdempotentError),
            ("requests-stream", lambda method, url: session.request(method, url, stream=True), requests_adapter.NotIdempotentError),
            ("httpx", http.request, httpx_transport.NotIdempotentError),
            ("httpx-async", lambda method, url: asyncio.run(asynchronously(method, url)), httpx_transport.NotIdempotentError),
        ]

    def test_lost(self):
        """A program that retries what programs usually retry sends a POST without a key once."""
        link = Link(self.service.target)
        self.addCleanup(link.close)
        for method, policies in ("POST", {}), ("POST", self.keyed), ("GET", {}):
            for name, send, kind in self.senders(link.target, policies):
                key = f"{name}-{method}-{len(policies)}"
                with self.subTest(key):
                    threading.Thread(target=self.cut_when_seen, args=(link, key)).start()
                    status, failure = 0, None
                    while not status:
                        try:
                            status = send(method, self.url(key, "silent/200")).status_code
                        except self.retried:
                            time.sleep(0.1)  # gRPC waits before it connects again
                        except Exception as error:
                            failure = error
                            break
                    if method == "GET" or policies:
                        self.assertEqual((status, failure, len(self.seen(key))), (200, None, 2))
                        continue
                    self.assertIs(type(failure), kind)
                    self.assertRegex(str(failure), "^the POST may have taken effect; ")
                    self.assertEqual((type(failure.__cause__), failure.__cause__.sent, len(self.seen(key))), (fetchd.LostError, True, 1))

    def cut_when_seen(self, link, key):
        while not self.seen(key):
            time.sleep(0.02)
        link.cut()

    def test_service_is_away(self):
        """A POST that fetchd never got may be sent again."""
        for name, send, _ in self.senders("127.0.0.1:1", {}):
            with self.subTest(name), self.assertRaises(self.retried) as raised:
                send("POST", self.url("a", "200"))
            self.assertEqual((type(raised.exception.__cause__), raised.exception.__cause__.sent), (fetchd.UnavailableError, False))


if __name__ == "__main__":
    unittest.main()
