"""Client and AsyncClient against a real fetchd, compared with the origin's log."""

import asyncio
import hashlib
import threading
import time
import unittest

import fetchd
from rig import AT_ONCE, Blocking, Case

NO_HOLD_BACK = {"auto": {"max_hold_back_bytes": 0}}


class ClientTest(Case):
    kind = fetchd.Client

    def setUp(self):
        self.client = self.kind(self.service.target)
        self.addCleanup(self.client.close)

    def test_get(self):
        url = self.url("a", "503/200:body=hell%C3%B6,header=X-A=1,header=X-A=2")
        response = self.client.get(url, timeout=60, **AT_ONCE)
        self.assertEqual((response.status_code, response.text, response.attempt_count, response.kind), (200, "hellö", 2, "success"))
        self.assertEqual((response.headers["x-a"], response.headers.get_all("X-A")), ("1, 2", ["1", "2"]))
        self.assertEqual((response.ok, response.url, response.outcome.decision_rule, response.error), (True, url, "H0", None))
        self.assertEqual(response.elapsed, response.outcome.total_duration.ToTimedelta())
        self.assertIn("<Response 200 'http://127.0.0.1:", repr(response))
        response.raise_for_outcome()
        self.assertEqual(len(self.seen("a")), 2)

    def test_addresses(self):
        """A client takes the forms of an address that each client takes."""
        for form in "{}", "http://{}", "http://{}/", "dns:///{}":
            with self.subTest(form), self.kind(form.format(self.service.target)) as client:
                self.assertEqual(client.get(self.url("a", "200"), timeout=60).status_code, 200)
        with self.assertRaisesRegex(ValueError, "the port is missing; want HOST:PORT"):
            self.kind("127.0.0.1")

    def test_json(self):
        for steps, want in ("200:body=[1]", [1]), ("200:type=application%2Fjson;charset=iso-8859-1,body=%22%E9%22", "é"), ("200:body=%22%C3%A9%22", "é"):
            self.assertEqual(self.client.get(self.url("a", steps)).json(), want)

    def test_text(self):
        """The text of a page is UTF-8, whatever the page is."""
        url = self.url("a", "200:type=text%2Fhtml;charset=iso-8859-1,body=%3Ctitle%3EA%3C%2Ftitle%3E%3Ch1%3EGr%FC%DFe%3C%2Fh1%3E")
        response = self.client.get(url, text_policy={"content": "marked"})
        self.assertEqual((response.text, response.encoding, response.outcome.text_summary.title), ("# Grüße\n", "utf-8", "A"))
        (result,) = self.client.fetch_many([{"url": url, "text_policy": {"content": "article"}}])
        self.assertEqual((result.response.text, result.response.outcome.text_summary.title), ("# Grüße\n", "A"))

    def test_large_body(self):
        """A body that is no longer small arrives whole."""
        for size in 600_000, 1 << 20, 5_000_000:
            response = self.client.get(self.url(str(size), f"200:size={size}"), timeout=60)
            self.assertEqual((response.error, len(response.content), response.outcome.body_summary.size_bytes), (None, size, size))

    def test_long_error_page(self):
        """A failed status whose body is truncated says so."""
        for steps, truncated in (
            ("404:size=100000", True), ("404:size=100000,chunked", True), ("404:size=100000,coding=gzip", True),
            ("404:size=1000", False), ("404:size=1000,chunked", False), ("200:size=100000", False),
        ):
            response = self.client.get(self.url(steps, steps))
            self.assertEqual((steps, response.truncated, "truncated>" in repr(response)), (steps, truncated, truncated))
        with self.client.stream("GET", self.url("a", "404:size=100000")) as streamed:
            self.assertTrue((streamed.read(), streamed.truncated)[1])
        self.assertFalse(self.client.head(self.url("b", "404:size=100000")).truncated)

    def test_limited_body(self):
        response = self.client.get(self.url("a", "200:size=1000"), body_policy={"max_size_bytes": 100})
        with self.assertRaises(fetchd.PermanentError) as raised:
            response.content
        self.assertEqual(raised.exception.error_class, "body_too_large")

    def test_post(self):
        seen = self.client.post(self.url("a", "200:echo"), json={"a": 1}, headers={"X-Name": "value"}).json()
        self.assertEqual((seen["method"], seen["body_bytes"]), ("POST", 7))
        self.assertIn({"name": "Content-Type", "value": "application/json"}, seen["headers"])
        self.assertEqual([s["header"]["X-Name"] for s in self.seen("a")], [["value"]])

    def test_post_is_sent_once(self):
        response = self.client.post(self.url("a", "503/200"), content=b"x", **AT_ONCE)
        self.assertEqual((response.status_code, response.error.stop_reason, len(self.seen("a"))), (503, "not_idempotent", 1))

    def test_requeue(self):
        """A program that puts a failed request back into its queue, if the exception says that a later
        fetch may succeed, repeats every GET and no POST."""
        for steps in "503/200", "429/200", "reset/200", "200:size=9,cut=0/200", "silent/200":
            for method, kind, count in ("GET", type(None), 2), ("POST", fetchd.NotIdempotentError, 1):
                with self.subTest(method, steps=steps):
                    name = f"{method}-{steps[:3]}-{len(steps)}"
                    for _ in range(2):
                        response = self.client.request(
                            method, self.url(name, steps), retry_policy={"max_attempts": 1}, timeout_policy={"header_timeout": 0.3}, timeout=60
                        )
                        try:
                            response.raise_for_outcome()
                        except (fetchd.TransientError, fetchd.RateLimitedError):
                            continue
                        except fetchd.FetchError:
                            pass
                        break
                    self.assertIs(type(response.error), kind)
                    self.assertEqual(len(self.seen(name)), count)

    def test_what_to_do(self):
        """An exception says that a later fetch may succeed only if it is retryable."""
        for policy, kind, name in [
            ({"excluded_status_codes": [503]}, fetchd.TransientError, "transient"),
            ({"max_attempts": 1}, fetchd.TransientError, "transient"),
        ]:
            error = self.client.get(self.url(name, "503"), retry_policy=policy, timeout=60).error
            self.assertEqual((type(error), error.failure_type, error.outcome.error.failure_type), (kind, name, 1))
        error = self.client.post(self.url("post", "503"), timeout=60).error
        self.assertEqual((error.failure_type, error.stop_reason, error.outcome.error.failure_type), ("not_idempotent", "not_idempotent", 1))

    def test_head(self):
        response = self.client.request("HEAD", self.url("a", "200:size=10"))
        self.assertEqual((response.status_code, response.content, response.headers["content-length"]), (200, b"", "10"))

    def test_failures(self):
        """A failed status is a response with the body of the error."""
        for key, steps, kind, name, rule, retryable, status, after in [
            ("f503", "503:body=no", fetchd.TransientError, "http_server_error", "H1", True, 503, None),
            ("f404", "404:body=no", fetchd.PermanentError, "http_client_error", "H6", False, 404, None),
            ("f429", "429:body=no,retry-after=3600", fetchd.RateLimitedError, "rate_limited", "H2", True, 429, 3600),
            ("f401", "401:body=no", fetchd.NeedsAuthError, "auth_required", "H3", False, 401, None),
        ]:
            with self.subTest(key):
                response = self.client.get(self.url(key, steps), timeout=60, **AT_ONCE)
                self.assertEqual((response.ok, response.kind, response.content, response.status_code), (False, "failed", b"no", status))
                with self.assertRaises(fetchd.FetchError) as raised:
                    response.raise_for_outcome()
                error = raised.exception
                self.assertIs(type(error), kind)
                got = (error.error_class, error.class_rule, error.retryable, error.status_code, error.retry_after)
                self.assertEqual(got, (name, rule, retryable, status, after))
                self.assertIn(f"rule {rule}", str(error))
                self.assertIn(f"error_class={name!r}", repr(response))
                self.assertEqual(len(self.seen(key)), response.outcome.exchange_count)

    def test_no_response(self):
        """An empty body never passes for a real one."""
        for key, url, name in [
            ("refused", self.origin.listeners["refused"] + "/", "connect_refused"),
            ("cut", self.url("cut", "200:size=1000,cut=300"), "body_interrupted"),
            ("reset", self.url("reset", "reset"), "connection_reset"),
            ("loop", f"{self.origin.base}/loop/{self.key('loop')}/302", "redirect_loop"),
            ("tls", self.origin.listeners["tls-expired"] + "/", "tls_certificate"),
        ]:
            with self.subTest(key):
                response = self.client.get(url, timeout=60, **AT_ONCE)
                for read in (lambda: response.content, lambda: response.text, response.json, response.raise_for_outcome):
                    with self.assertRaises(fetchd.FetchError) as raised:
                        read()
                    self.assertEqual(raised.exception.error_class, name)

    def test_redirects(self):
        end = "200:body=there"
        response = self.client.get(self.url("a", "302/2/" + end, kind="r"))
        self.assertEqual((response.url, response.text, len(response.outcome.hops)), (self.url("a", end), "there", 3))
        first = self.url("b", "302/2/" + end, kind="r")
        response = self.client.get(first, redirect_policy={"follow": False})
        self.assertEqual((response.ok, response.kind, response.status_code, response.url), (True, "redirect", 302, first))
        response.raise_for_outcome()

    def test_redirect_that_is_not_followed(self):
        """The error names its target."""
        forbidden = "http://10.0.0.1:22/a"
        for name, url, options, error_class, target in [
            ("forbidden", self.url("forbidden", "302:to=" + forbidden.replace("/", "%2F")), {}, "target_blocked", forbidden),
            ("too many", self.url("many", "302/3/200", kind="r"), {"redirect_policy": {"max_redirects": 0}}, "too_many_redirects", None),
            ("no redirect", forbidden, {}, "target_blocked", ""),
        ]:
            with self.subTest(name):
                error = self.client.get(url, timeout=60, **options).error
                self.assertEqual(error.error_class, error_class)
                self.assertEqual(error.location_url, target if target is not None else error.location_url)
                self.assertEqual(f"fetch {error.outcome.error.url}, redirected to {error.location_url}: {error_class}" in str(error), target != "")

    def test_not_modified(self):
        response = self.client.get(self.url("a", '200:etag="x",cond'), precondition={"etags": ['"x"']})
        self.assertEqual((response.kind, response.status_code, response.content, response.ok), ("not_modified", 304, b"", True))

    def test_undelivered(self):
        for delivery in "digest", "none":
            response = self.client.get(self.url(delivery, "200:size=10"), body_policy={delivery: {}})
            self.assertTrue(response.ok)
            with self.assertRaises(fetchd.BodyNotDelivered):
                response.content
        with self.assertRaises(ValueError):
            self.client.get(self.url("stream", "200"), body_policy={"stream": {}})

    def test_store(self):
        """The body goes to the store, and response.stored says where it is."""
        url = self.url("page", "503/200:body=hello")
        response = self.client.get(url, store="local", key="a/page")
        stored = response.stored
        self.assertEqual((stored.store, stored.key, stored.size_bytes, stored.sha256), ("local", "a/page", 5, hashlib.sha256(b"hello").hexdigest()))
        self.assertEqual((self.service.bodies / "a/page").read_bytes(), b"hello")
        with self.assertRaises(fetchd.BodyNotDelivered):
            response.content
        large = self.client.get(self.url("large", "200:size=20000000"), store="local", body_policy={"max_size_bytes": 20_000_000})
        self.assertEqual((large.stored.size_bytes, large.stored.key[:7]), (20_000_000, "sha256/"))
        self.assertEqual(hashlib.sha256((self.service.bodies / large.stored.key).read_bytes()).hexdigest(), large.stored.sha256)
        (result,) = self.client.fetch_many([{"url": url, "store": "local", "key": "many"}])
        self.assertEqual((result.response.stored.key, (self.service.bodies / "many").read_bytes()), ("many", b"hello"))
        with self.client.stream("GET", url, store="local", key="stream") as streamed:
            self.assertEqual(streamed.stored.key, "stream")
            with self.assertRaises(fetchd.BodyNotDelivered):
                streamed.read()

    def test_store_without_object(self):
        self.assertIsNone(self.client.get(self.url("plain", "200:body=hello")).stored)
        self.assertIsNone(self.client.get(self.url("empty", "204"), store="local", key="none").stored)
        failed = self.client.get(self.url("failed", "404"), store="local", key="none")
        self.assertEqual((failed.stored, failed.error.error_class), (None, "http_client_error"))
        self.assertFalse((self.service.bodies / "none").exists())

    def test_store_arguments(self):
        url = self.url("never", "200")
        for error, text, options in (
            (TypeError, "key is given without store", {"key": "a"}),
            (TypeError, "store is 5", {"store": 5}),
            (fetchd.InvalidRequestError, "body_policy.store.store", {"store": "other"}),
            (fetchd.InvalidRequestError, "body_policy.store.key", {"store": "local", "key": "../a"}),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                self.client.get(url, **options)
        self.assertEqual(self.seen("never"), [])

    def test_invalid_request(self):
        """A malformed request ends nothing but itself."""
        with self.assertRaises(fetchd.InvalidRequestError) as raised:
            self.client.get("no URL")
        self.assertIn("url", str(raised.exception))
        with self.assertRaisesRegex(TypeError, "retry_polcy is not an argument, did you mean retry_policy"):
            self.client.get(self.url("a", "200"), retry_polcy={})
        with self.assertRaises(fetchd.InvalidRequestError):
            self.client.post(self.url("a", "200"), content=b"x" * (3 << 20))
        self.assertEqual(self.client.get(self.url("a", "200")).status_code, 200)
        self.assertEqual(len(self.seen("a")), 1)

    def test_timeout(self):
        start = time.monotonic()
        response = self.client.get(self.url("a", "silent"), timeout=1)
        self.assertEqual((response.error.error_class, response.error.retryable), ("deadline", True))
        self.assertLess(time.monotonic() - start, 30)  # the service's own limit

    def test_timeout_in_own_words(self):
        """An error names the limit that the caller has set, and then what was left of it."""

        def got(options, name, steps):
            return self.client.get(self.url(name, steps), **options).error

        def streamed(options, name, steps):
            with self.client.stream("GET", self.url(name, steps), **options) as response:
                with self.assertRaises(fetchd.FetchError) as raised:
                    response.read()
                    response.raise_for_outcome()
            return raised.exception

        own, left = {"timeout": 0.5}, r"timeout=0\.5, which left 37\dms after the reserve for the answer"
        for name, run, options, steps, says in [
            ("get", got, own, "silent", "the time limit of the fetch passed: " + left),
            ("stream", streamed, own, "silent", "the time limit of the fetch passed: " + left),
            ("a wait", got, own, "503:retry-after=9/200", "the wait before the next attempt is too long for " + left),
            ("a wait of a stream", streamed, own, "503:retry-after=9/200", "the wait before the next attempt is too long for " + left),
            ("a limit of the policy", got, {"timeout": 9, "timeout_policy": {"total_timeout": 0.3}}, "silent", "total_timeout 300ms, set by the request"),
            ("a limit of the policy, stream", streamed, {"timeout": 9, "timeout_policy": {"total_timeout": 0.3}}, "silent", "total_timeout 300ms, set by the request"),
        ]:
            with self.subTest(name):
                self.assertRegex(str(run(options, name.replace(" ", "-"), steps)), says)

    def test_explain(self):
        explained = self.client.explain(response={"status_code": 503, "headers": {"Retry-After": "2"}}, attempt=1)
        decision = explained.retry_decision
        self.assertEqual((decision.WhichOneof("next"), decision.rule), ("retry", "W2"))
        self.assertEqual((decision.retry.attempt, decision.retry.delay.ToTimedelta().total_seconds()), (2, 2))
        decision = self.client.explain(error_classes=["tls_certificate"]).retry_decision
        self.assertEqual((decision.HasField("retry"), fetchd.enum_name(decision, "stop_reason")), (False, "not_retried"))
        with self.assertRaises(fetchd.InvalidRequestError) as raised:
            self.client.explain(attempt=1)
        self.assertTrue(raised.exception.violations[0].description, raised.exception)

    def test_events_end_with_the_outcome(self):
        attempt = ["attempt_started", "response_started", "attempt_finished"]
        for name, steps, options, kinds, kind in [
            ("retried", "503/200:body=hi", {}, ["admitted", *attempt, *attempt], "success"),
            ("failed", "404", {}, ["admitted", *attempt], "failed"),
            ("outcome", "200", {"event_level": "outcome"}, [], "success"),
        ]:
            with self.subTest(name):
                events = list(self.client.events("GET", self.url(name, steps), timeout=60, **AT_ONCE, **options))
                self.assertEqual([event.WhichOneof("event") for event in events], [*kinds, "outcome"])
                self.assertEqual(fetchd.enum_name(events[-1].outcome, "kind"), kind)

    def test_events_with_a_body(self):
        """A small body is in the outcome, a larger one in chunks."""
        (*_, last) = self.client.events("GET", self.url("small", "200:body=hi"), timeout=60)
        self.assertEqual(last.outcome.inline_body, b"hi")
        chunks = [event.body_chunk.data for event in self.client.events("GET", self.url("large", "200:size=3000000"), timeout=60)]
        self.assertEqual(sum(map(len, chunks)), 3_000_000)

    def test_events_left(self):
        events = self.client.events("GET", self.url("a", "silent"))
        self.assertEqual(next(events).WhichOneof("event"), "admitted")
        while not self.seen("a"):
            time.sleep(0.02)
        events.close()
        self.wait_for_cancel("a")

    def test_events_without_outcome(self):
        with self.assertRaises(fetchd.InvalidRequestError):
            list(self.client.events("GET", "not a URL"))
        with self.assertRaisesRegex(TypeError, "on_event"):
            self.client.events("GET", self.url("a", "200"), on_event=print)
        (*_, last) = self.client.events("GET", self.url("b", "silent"), timeout=0.5)
        self.assertIn("timeout=0.5", last.outcome.error.message)

    def test_events(self):
        events = []
        response = self.client.get(self.url("a", "503/200"), timeout=60, on_event=lambda e: events.append(e.WhichOneof("event")), **AT_ONCE)
        self.assertEqual(response.status_code, 200)
        self.assertEqual([e for e in events if e != "response_started"], ["admitted", *["attempt_started", "attempt_finished"] * 2])

    def test_event_that_raises(self):
        def raises(event):
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            self.client.get(self.url("a", "200"), timeout=60, on_event=raises)
        self.assertEqual(self.client.get(self.url("b", "200")).status_code, 200)

    # The body piece by piece.

    def test_stream(self):
        url = self.url("a", "503/200:size=3000000,header=X-A=1,header=X-A=2")
        with self.client.stream("GET", url, timeout=60, **AT_ONCE) as response:
            self.assertEqual((response.status_code, response.headers.get_all("x-a"), response.url), (200, ["1", "2"], url))
            self.assertEqual((response.outcome, response.ok, response.attempt_count), (None, True, 2))
            first, rest = response.read(10), response.read()
            self.assertEqual((len(first), len(first) + len(rest), response.read()), (10, 3000000, b""))
            self.assertEqual((response.attempt_count, response.outcome.exchange_count), (2, 2))
        self.assertEqual(len(self.seen("a")), 2)

    def test_stream_pieces(self):
        with self.client.stream("GET", self.url("a", "200:size=700000"), timeout=60) as response:
            pieces = list(response.iter_bytes())
        self.assertEqual((sum(map(len, pieces)), len(pieces) > 1), (700000, True))

    def test_stream_without_body(self):
        with self.client.stream("GET", self.url("a", "204"), timeout=60) as response:
            self.assertEqual((response.status_code, response.read(), response.outcome.decision_rule), (204, b"", "H0"))
        with self.client.stream("GET", self.url("b", "200:body=small"), timeout=60) as response:
            self.assertEqual(response.read(), b"small")

    def test_stream_failures(self):
        with self.client.stream("GET", self.url("a", "404:body=no"), timeout=60) as response:
            self.assertEqual((response.status_code, response.ok, response.read()), (404, False, b"no"))
            with self.assertRaises(fetchd.PermanentError):
                response.raise_for_outcome()
        with self.client.stream("GET", self.origin.listeners["refused"] + "/", timeout=60, **AT_ONCE) as response:
            self.assertEqual(response.status_code, 0)
            with self.assertRaises(fetchd.TransientError):
                response.read()
        with self.assertRaises(fetchd.InvalidRequestError) as raised:
            with self.client.stream("GET", "no URL") as response:
                pass
        self.assertEqual(raised.exception.violations[0].field, "url")

    def test_stream_that_fails_in_the_body(self):
        with self.client.stream("GET", self.url("a", "200:size=1000,cut=300"), timeout=60, body_policy=NO_HOLD_BACK, **AT_ONCE) as response:
            got = b""
            with self.assertRaises(fetchd.TransientError) as raised:
                for piece in response.iter_bytes():
                    got += piece
        error = raised.exception
        self.assertEqual((len(got), error.error_class, error.retryable), (300, "body_interrupted", True))
        self.assertIs(response.outcome, error.outcome)

    def test_restart(self):
        policy = {"auto": {"max_hold_back_bytes": 0, "recovery": "restart"}}
        steps = "200:size=1000,cut=300/200:size=1000,offset=500"
        with self.client.stream("GET", self.url("a", steps), timeout=60, body_policy=policy, **AT_ONCE) as response:
            held = response.read(100)
            with self.assertRaises(fetchd.BodyRestarted) as raised:
                response.read()
            held = held[: raised.exception.offset] + response.read()
        want = self.client.get(self.url("whole", "200:size=1500")).content[500:]
        self.assertEqual(held, want)
        with self.client.stream("GET", self.url("b", steps), timeout=60, body_policy=policy, **AT_ONCE) as unread:
            self.assertEqual(unread.read(), want, "no byte was read, so none must be dropped")

    def test_stream_closed(self):
        with self.client.stream("GET", self.url("a", "200:size=1000,stall=300"), timeout=60, body_policy=NO_HOLD_BACK) as response:
            self.assertGreater(len(response.read(300)), 0)
        with self.assertRaises(ValueError):
            response.read()
        self.wait_for_cancel("a")

    def wait_for_cancel(self, name):
        """Waits until the origin has seen that its only request was cancelled."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            seen = self.seen(name)
            if seen and seen[0]["end"]:
                break
            time.sleep(0.05)
        self.assertEqual([s["end"] == "answered" for s in seen], [False])

    # Many fetches.

    def test_many(self):
        wanted = {}
        for i in range(200):
            steps = "404" if i % 3 == 0 else f"503/200:size={i}"
            wanted[self.url(str(i), steps)] = i
        results = list(self.client.fetch_many(({"url": u, **AT_ONCE} for u in wanted), open=8))
        self.assertEqual({r.request["url"] for r in results}, set(wanted))
        self.assertEqual(len(results), 200)
        for result in results:
            i = wanted[result.request["url"]]
            if i % 3 == 0:
                self.assertIs(type(result.error), fetchd.PermanentError)
                self.assertEqual((result.status_code, result.response.attempt_count, result.ok), (404, 1, False))
                self.assertIn("error=PermanentError('fetch http://", repr(result))
            else:
                self.assertEqual((result.error, result.status_code, result.response.attempt_count, len(result.response.content)), (None, 200, 2, i))
        for i in range(200):
            self.assertEqual(len(self.seen(str(i))), 1 if i % 3 == 0 else 2, i)

    def test_many_invalid(self):
        """Invalid requests yield a result each, and the others go on."""
        requests = [
            "no URL",
            {"url": self.url("a", "200"), "retry_policy": {"max_attempts": "5"}},
            {"url": self.url("a", "200"), "unknown": 1},
            {"method": "GET"},
            None,
            {"url": self.url("a", "200"), "method": "POST", "content": b"x" * (3 << 20)},
            {"url": self.url("a", "200"), "method": "POST", "content": b"x" * ((1 << 20) + 1)},
            self.url("good", "200"),
        ]
        results = {id(r.request): r for r in self.client.fetch_many(requests)}
        invalid = fetchd.InvalidRequestError
        want = [invalid, TypeError, TypeError, TypeError, TypeError, invalid, invalid, type(None)]
        self.assertEqual([type(results[id(r)].error) for r in requests], want)
        self.assertEqual((len(self.seen("a")), len(self.seen("good"))), (0, 1))

    def test_many_events(self):
        events = []
        requests = [{"url": self.url(str(i), "503/200"), **AT_ONCE} for i in range(3)]
        results = list(self.client.fetch_many(requests, on_event=lambda request, event: events.append((request["url"], event.WhichOneof("event")))))
        self.assertEqual(len(results), 3)
        for request in requests:
            self.assertEqual(sum(e == (request["url"], "attempt_finished") for e in events), 2)

    def test_many_timeout(self):
        (result,) = self.client.fetch_many([{"url": self.url("a", "silent"), "timeout": 1}])
        self.assertEqual(result.error.error_class, "deadline")

    def test_many_left(self):
        """Leaving the loop cancels the other fetches. The first one waits until the other is sent."""
        slow = self.url("a", "200:delay=1s")
        results = self.client.fetch_many([slow, self.url("b", "silent")])
        self.assertEqual(next(iter(results)).request, slow)
        results.close()
        self.wait_for_cancel("b")

    def test_many_one_request(self):
        for request in self.url("a", "200"), {"url": self.url("a", "200")}:
            with self.assertRaises(TypeError):
                self.client.fetch_many(request)

    def test_many_empty(self):
        self.assertEqual(list(self.client.fetch_many([])), [])

    def test_many_source_that_raises(self):
        def source():
            yield self.url("a", "200")
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            list(self.client.fetch_many(source(), open=1))

    # The service.

    def test_unavailable(self):
        with self.kind("127.0.0.1:1") as client:
            for call in (lambda: client.get("http://o.example/"), lambda: client.stream("GET", "http://o.example/"), lambda: client.explain(response={"status_code": 200})):
                with self.assertRaises(fetchd.UnavailableError) as raised:
                    call()
                self.assertEqual(raised.exception.code, "UNAVAILABLE")
                self.assertNotIn("Rendezvous", repr(raised.exception))
            results = []
            with self.assertRaises(fetchd.UnavailableError) as raised:
                for result in client.fetch_many([self.url(str(i), "200") for i in range(20)], open=4):
                    results.append(result)
        self.assertFalse(raised.exception.sent)
        self.assertEqual([(r.response, r.status_code, type(r.error)) for r in results], [(None, 0, fetchd.UnavailableError)] * 4)


class AsyncClientTest(ClientTest):
    kind = Blocking


class ThreadsTest(Case):
    def test_closed(self):
        client = fetchd.Client(self.service.target)
        client.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            client.get(self.url("a", "200"))
        client.close()

    def test_threads(self):
        """Threads share the streams of a client."""
        with fetchd.Client(self.service.target) as client:
            statuses = []

            def work(n):
                for i in range(20):
                    statuses.append(client.get(self.url(f"{n}-{i}", "503/200"), **AT_ONCE).status_code)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(statuses, [200] * 320)
            self.assertEqual(client._driver.pool._tags, 320)
        self.assertEqual([t.name for t in threading.enumerate() if "fetchd" in t.name], [])
        self.assertEqual({len(self.seen(f"{n}-{i}")) for n in range(16) for i in range(20)}, {2})


class AsyncioTest(Case):
    def run_with(self, work):
        async def main():
            async with fetchd.AsyncClient(self.service.target) as client:
                await work(client)

        asyncio.run(main())

    def test_concurrent(self):
        async def work(client):
            urls = [self.url(str(i), "503/200") for i in range(600)]
            responses = await asyncio.gather(*(client.get(url, **AT_ONCE) for url in urls))
            self.assertEqual({r.status_code for r in responses}, {200})
            self.assertEqual([r.url for r in responses], urls)

        self.run_with(work)
        self.assertEqual({len(self.seen(str(i))) for i in range(600)}, {2})

    def test_large_bodies(self):
        """Bodies that arrive in chunks at the same time are not mixed up."""

        async def work(client):
            sizes = [1_500_000 + i for i in range(8)]
            responses = await asyncio.gather(*(client.get(self.url(str(size), f"200:size={size}")) for size in sizes))
            for size, response in zip(sizes, responses):
                self.assertEqual(len(response.content), size)
                self.assertEqual(hashlib.sha256(response.content).hexdigest(), response.outcome.body_summary.sha256)

        self.run_with(work)

    def test_cancel(self):
        """Cancelling a coroutine cancels the request to the origin."""

        async def work(client):
            fetch = asyncio.create_task(client.get(self.url("a", "silent")))
            while not self.seen("a"):
                await asyncio.sleep(0.05)
            fetch.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await fetch
            while not self.seen("a")[0]["end"]:
                await asyncio.sleep(0.05)
            self.assertEqual((await client.get(self.url("b", "200"))).status_code, 200)

        self.run_with(work)
        self.assertNotEqual(self.seen("a")[0]["end"], "answered")

    def test_asynchronous_source(self):
        async def source():
            for i in range(5):
                await asyncio.sleep(0)
                yield self.url(str(i), "200")

        async def work(client):
            self.assertEqual([r.status_code async for r in client.fetch_many(source())], [200] * 5)

        self.run_with(work)

    def test_source_that_waits_for_results(self):
        """A crawler yields the next URL when it has the page that links to it."""

        async def work(client):
            found = asyncio.Queue()
            found.put_nowait(self.url("0", "200"))

            async def source():
                for _ in range(5):
                    yield await found.get()
                yield 5  # no request
                yield self.url("end", "200")

            got = []
            async for result in client.fetch_many(source(), open=2):
                got.append(result.status_code if result.error is None else type(result.error).__name__)
                found.put_nowait(self.url(str(len(got)), "200"))
            self.assertEqual(sorted(map(str, got)), ["200"] * 6 + ["TypeError"])

        self.run_with(work)

    def test_source_that_fails(self):
        async def source():
            yield self.url("0", "200")
            raise LookupError("no more")

        async def work(client):
            with self.assertRaisesRegex(LookupError, "no more"):
                async for _ in client.fetch_many(source()):
                    pass

        self.run_with(work)

    def test_closed(self):
        async def work(client):
            await client.close()
            with self.assertRaisesRegex(ValueError, "closed"):
                await client.get(self.url("a", "200"))

        self.run_with(work)

    def test_another_loop(self):
        client = fetchd.AsyncClient(self.service.target)

        async def use():
            return await client.get(self.url("a", "200"))

        async def close():
            await client.close()

        loop = asyncio.new_event_loop()
        self.addCleanup(loop.close)
        self.assertEqual(loop.run_until_complete(use()).status_code, 200)
        with self.assertRaisesRegex(RuntimeError, "another event loop"):
            asyncio.run(use())
        loop.run_until_complete(close())


if __name__ == "__main__":
    unittest.main()
