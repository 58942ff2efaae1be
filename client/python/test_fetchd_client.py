"""Checks fetchd_client.py against a running fetchd and its origin.

Usage: test_fetchd_client.py HOST:PORT ORIGIN_URL KEY_PREFIX

.ci/examples starts both. The tests compare requests with the origin's log.
"""

import json
import pathlib
import sys
import threading
import unittest
import urllib.request

import grpc

import fetchd_client
from fetchd_client import BodyRestarted, Client, FetchError, NeedsAuthError, PermanentError, RateLimitedError, TransientError

TARGET = ORIGIN = PREFIX = ""
AT_ONCE = {"retry_policy": {"base_delay": "0s"}}
NO_HOLD_BACK = {"hold_back_bytes": 0}


def url(key, steps):
    return f"{ORIGIN}/s/{PREFIX}{key}/{steps}"


def log(key):
    """The requests with a key that the origin saw."""
    plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with plain.open(f"{ORIGIN}/_log?key={PREFIX}{key}", timeout=20) as answer:
        return json.load(answer) or []


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.client = Client(TARGET)
        self.addCleanup(self.client.close)

    def test_read(self):
        with self.client.get(url("read", "503/200:size=3000000,header=X-A=1,header=X-A=2"), timeout=60, **AT_ONCE) as response:
            self.assertEqual(response.status, 200)
            self.assertEqual(response.headers["x-a"], "1")
            self.assertEqual(response.headers.get_all("X-A"), ["1", "2"])
            self.assertEqual(response.final_url, url("read", "503/200:size=3000000,header=X-A=1,header=X-A=2"))
            self.assertIsNone(response.outcome)
            first = response.read(10)
            rest = response.read()
            self.assertEqual((len(first) <= 10, len(first) + len(rest)), (True, 3000000))
            self.assertEqual(response.read(), b"")
            self.assertEqual((response.attempts, response.outcome.exchanges), (2, 2))
        self.assertEqual(len(log("read")), 2)

    def test_iterate(self):
        with self.client.get(url("iterate", "200:size=200000"), timeout=60) as response:
            pieces = list(response)
        self.assertEqual(sum(map(len, pieces)), 200000)
        self.assertGreater(len(pieces), 1)

    def test_redirect(self):
        with self.client.get(f"{ORIGIN}/r/{PREFIX}hops/302/2/200:body=there", timeout=60) as response:
            self.assertEqual(response.final_url, url("hops", "200:body=there"))
            self.assertEqual(response.read(), b"there")

    def test_no_body(self):
        with self.client.get(url("empty", "204"), timeout=60) as response:
            self.assertEqual((response.status, response.read(), response.outcome.rule), (204, b"", "H0"))

    def test_request(self):
        """Fields, headers and a body reach the origin."""
        with self.client.get(url("post", "200:echo"), timeout=60, method="POST", headers={"X-Name": "value"}, body=b"abc") as response:
            self.assertIn(b"X-Name", response.read())
        seen = log("post")
        self.assertEqual([(s["method"], s["body_bytes"], s["header"]["X-Name"]) for s in seen], [("POST", 3, ["value"])])

    def test_failures(self):
        for key, steps, kind, name, rule, retryable, status, after in [
            ("f503", "503", TransientError, "HTTP_SERVER_ERROR", "H1", True, 503, None),
            ("f404", "404", PermanentError, "HTTP_CLIENT_ERROR", "H6", False, 404, None),
            ("f429", "429:retry-after=3600", RateLimitedError, "RATE_LIMITED", "H2", True, 429, 3600),
            ("f401", "401", NeedsAuthError, "AUTH_REQUIRED", "H3", False, 401, None),
        ]:
            with self.subTest(key):
                with self.assertRaises(FetchError) as raised:
                    self.client.get(url(key, steps), timeout=60, **AT_ONCE)
                error = raised.exception
                self.assertIs(type(error), kind)
                got = (error.error_class, error.rule, error.retryable, error.status, error.retry_after)
                self.assertEqual(got, (name, rule, retryable, status, after))
                self.assertIn(f"rule {rule}", str(error))
                self.assertEqual(len(log(key)), error.outcome.exchanges)

    def test_stop_reason(self):
        for method, want in ("GET", "ATTEMPTS_EXHAUSTED"), ("POST", "NOT_IDEMPOTENT"):
            with self.subTest(method), self.assertRaises(FetchError) as raised:
                self.client.get(url("stop" + method, "503"), timeout=60, method=method, **AT_ONCE)
            self.assertEqual(raised.exception.stop_reason, want)

    def test_failure_in_body(self):
        response = self.client.get(url("cut", "200:size=1000,cut=300"), timeout=60, body_policy=NO_HOLD_BACK, **AT_ONCE)
        got = b""
        with self.assertRaises(TransientError) as raised:
            for piece in response:
                got += piece
        self.assertEqual((len(got), raised.exception.error_class, raised.exception.retryable), (300, "BODY_INTERRUPTED", True))
        self.assertIs(response.outcome, raised.exception.outcome)

    def test_restart(self):
        policy = dict(NO_HOLD_BACK, recovery="BODY_RECOVERY_RESTART")
        steps = "200:size=1000,cut=300/200:size=1000,offset=500"
        response = self.client.get(url("restart", steps), timeout=60, body_policy=policy, **AT_ONCE)
        held = response.read(100)
        with self.assertRaises(BodyRestarted) as raised:
            response.read()
        held = held[: raised.exception.offset] + response.read()
        with self.client.get(url("whole", "200:size=1500"), timeout=60) as whole:
            want = whole.read()[500:]
        self.assertEqual(held, want)
        with self.client.get(url("again", steps), timeout=60, body_policy=policy, **AT_ONCE) as unread:
            self.assertEqual(unread.read(), want, "no byte was read, so none must be dropped")

    def test_service_error(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.get("no URL", timeout=60)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertNotIsInstance(raised.exception, FetchError)

    def test_close(self):
        with self.client.get(url("close", "200:size=1000,stall=300"), timeout=60, body_policy=NO_HOLD_BACK) as response:
            self.assertGreater(len(response.read(300)), 0)
        with self.assertRaises(ValueError):
            response.read()

    def test_events(self):
        events = []
        with self.client.get(url("events", "503/200"), timeout=60, on_event=lambda e: events.append(e.WhichOneof("event")), **AT_ONCE) as response:
            response.read()
        attempt = ["attempt_started", "response_started", "attempt_finished"]
        self.assertEqual(events, ["admitted", *attempt, *attempt, "outcome"])

    def test_many(self):
        wanted = {}
        for i in range(200):
            steps = "404" if i % 3 == 0 else f"503/200:size={i}"
            wanted[url(f"many{i}", steps)] = i
        results = list(self.client.fetch_many(({"url": u, **AT_ONCE} for u in wanted), open=8))
        self.assertEqual({r.request["url"] for r in results}, set(wanted))
        self.assertEqual(len(results), 200)
        for result in results:
            i = wanted[result.request["url"]]
            if i % 3 == 0:
                self.assertIs(type(result.error), PermanentError)
                self.assertEqual((result.status, result.attempts), (404, 1))
                self.assertIn("error=PermanentError('fetch http://", repr(result))
            else:
                self.assertEqual((result.error, result.status, result.attempts, len(result.body)), (None, 200, 2, i))
        self.assertEqual(len(log("many1")), 2)

    def test_many_closed(self):
        results = self.client.fetch_many([url("left0", "200"), url("left1", "silent")])
        self.assertEqual(next(results).request, url("left0", "200"))
        results.close()
        self.assertNotIn("fetchd stream", [t.name for t in threading.enumerate()])

    def test_many_unavailable(self):
        with Client("127.0.0.1:1") as client:
            results = []
            with self.assertRaises(grpc.RpcError) as raised:
                for result in client.fetch_many([url(f"away{i}", "200") for i in range(20)], open=4):
                    results.append(result)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual([(r.outcome, r.status, r.error.code()) for r in results], [(None, 0, grpc.StatusCode.UNAVAILABLE)] * 4)

    def test_many_invalid(self):
        """An invalid URL and a body over the limit fail alone."""
        (invalid,) = self.client.fetch_many(["no URL"])
        self.assertEqual((invalid.error.error_class, invalid.status), ("INVALID_REQUEST", 0))
        self.assertTrue(str(invalid.error).startswith("fetch: INVALID_REQUEST"), invalid.error)
        (large,) = self.client.fetch_many([url("large", "200:size=2000000")])
        self.assertEqual((large.error.error_class, large.body), ("BODY_TOO_LARGE", b""))

    def test_many_one_request(self):
        for request in url("one", "200"), {"url": url("one", "200")}:
            with self.assertRaises(TypeError):
                self.client.fetch_many(request)

    def test_many_empty(self):
        self.assertEqual(list(self.client.fetch_many([])), [])

    def test_service_config(self):
        published = pathlib.Path(__file__).resolve().parents[2] / "deploy/grpc/service-config.json"
        self.assertEqual(fetchd_client.SERVICE_CONFIG.strip(), published.read_text().strip())


class Call:
    """A call of Fetch that yields these messages."""

    def __init__(self, messages):
        self.messages = iter(messages)

    def __next__(self):
        return next(self.messages)

    def cancel(self):
        pass


class OffsetTest(unittest.TestCase):
    """The chunks of a body must be contiguous."""

    @classmethod
    def setUpClass(cls):
        cls.contract = fetchd_client._Contract()

    def response(self, *events):
        message = self.contract.message("FetchResponse")
        return fetchd_client.Response(Call(message(**event) for event in events), self.contract, None, True)

    def test_offsets(self):
        head = {"response_started": {"response": {"status_code": 200}}}
        first = {"body_chunk": {"data": b"ab"}}
        end = {"outcome": {"kind": 1}}
        later = {"body_chunk": {"offset_bytes": 2, "data": b"c"}}
        contract = fetchd_client.ContractError
        for name, events, want in [
            ("in order", [head, first, later, end], b"abc"),
            ("continued", [head, first, {"response_started": {"body_offset_bytes": 2}}, later, end], b"abc"),
            ("an unknown event", [head, first, {}, later, end], b"abc"),
            ("from a resume point", [{"response_started": {"body_offset_bytes": 2}}, later, end], b"c"),
            ("restarted before reading", [head, first, head, {"body_chunk": {"data": b"xyz"}}, end], b"xyz"),
            ("restarted, failed and continued", [head, first, head, {"response_started": {"body_offset_bytes": 2}}, later, end], b"abc"),
            ("restarted by an empty body", [head, first, head, end], b""),
            ("a gap", [head, first, {"body_chunk": {"offset_bytes": 3, "data": b"d"}}, end], contract),
            ("an overlap", [head, first, {"body_chunk": {"offset_bytes": 1, "data": b"bc"}}, end], contract),
            ("a body without ResponseStarted", [first, end], contract),
            ("no outcome", [head, first], contract),
            ("two outcomes", [head, first, end, end], contract),
        ]:
            with self.subTest(name):
                if want is contract:
                    with self.assertRaises(contract):
                        self.response(*events).read()
                else:
                    self.assertEqual(self.response(*events).read(), want)


class Unavailable(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.UNAVAILABLE


class StreamTest(unittest.TestCase):
    """Services that drain, and streams that break."""

    @classmethod
    def setUpClass(cls):
        cls.contract = fetchd_client._Contract()

    def run_many(self, answer, count):
        """Runs count tasks, one at a time. answer(n, task) returns the message for the
        n-th task, or the exception that ends the stream."""
        calls, numbers = [], iter(range(1000))

        def open_call(requests):
            def call():
                for request in requests:
                    for task in request.tasks:
                        message = answer(next(numbers), task)
                        if isinstance(message, Exception):
                            raise message
                        yield self.contract.message("FetchManyResponse")(**message)

            calls.append(generator := Generator(call()))
            return generator

        many = fetchd_client._Many(self.contract, open_call, 1, None)
        return list(many.run(iter([f"http://origin.example/{i}" for i in range(count)]))), len(calls)

    def done(self, task):
        return {"responses": [{"tag": task.tag, "response": {"outcome": {"kind": 1}}}]}

    def shutdown(self, task, exchanges):
        error = {"error_class": 34, "failure_type": 1, "retryable": True}
        outcome = {"kind": 4, "error": error, "exchanges": exchanges}
        return {"draining": True, "responses": [{"tag": task.tag, "response": {"outcome": outcome}}]}

    def test_returned_by_draining_service(self):
        for name, returns, exchanges, streams, ok in [
            ("once", 1, 0, 2, True),
            ("twice", 2, 0, 3, True),
            ("always", 100, 0, 3, False),
            ("after a request was made", 1, 1, 1, False),
        ]:
            with self.subTest(name):
                results, opened = self.run_many(lambda n, task: self.shutdown(task, exchanges) if n < returns else self.done(task), 1)
                self.assertEqual(([r.error is None for r in results], opened), ([ok], streams))

    def test_draining(self):
        results, opened = self.run_many(lambda n, task: dict(self.done(task), draining=n == 3), 10)
        self.assertEqual(([r.error for r in results], opened), ([None] * 10, 2))

    def test_broken_stream(self):
        results, opened = self.run_many(lambda n, task: Unavailable() if n == 5 else self.done(task), 10)
        self.assertEqual([(r.error is None, r.outcome is None) for r in results], [(True, False)] * 5 + [(False, True)] + [(True, False)] * 4)
        self.assertEqual(opened, 2)


class Generator:
    """A call of FetchMany over a generator."""

    def __init__(self, generator):
        self.generator = generator

    def __iter__(self):
        return self.generator

    def cancel(self):
        pass


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    TARGET, ORIGIN, PREFIX = sys.argv[1:]
    unittest.main(argv=sys.argv[:1], verbosity=2)
