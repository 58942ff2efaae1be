"""What happens when the service drains, dies, or refuses the caller."""

import asyncio
import pathlib
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from concurrent import futures

import grpc

import fetchd
from rig import AT_ONCE, BIN, Blocking, Case, Service, free_address

DONE = fetchd.contract.FetchOutcome(kind=1, inline_body=b"done")
DONE.response.status_code, DONE.body_summary.size_bytes = 200, 4


class Faults(Case):
    kind = fetchd.Client

    def service_of(self, *flags, **options):
        service = Service(self.origin, *flags, **options)
        self.addCleanup(service.stop)
        return service

    def client_of(self, target, **options):
        client = self.kind(target, **options)
        self.addCleanup(client.close)
        return client

    def two(self, *flags):
        """Two replicas, and the target that names both."""
        services = [self.service_of(*flags), self.service_of(*flags)]
        return services, "ipv4:" + ",".join(service.target for service in services)

    def requests(self, count, steps):
        return [{"url": self.url(str(i), steps), **AT_ONCE} for i in range(count)]

    def counts(self, count):
        return [len(self.seen(str(i))) for i in range(count)]

    def test_drain(self):
        """A replica that is stopped with SIGTERM loses nothing, and nothing is fetched twice."""
        services, target = self.two()
        client, count = self.client_of(target), 400
        results = []
        for result in client.fetch_many(self.requests(count, "200:delay=20ms"), open=100):
            results.append(result)
            if len(results) == 50:
                services[0].process.send_signal(signal.SIGTERM)
        self.assertEqual({(r.status_code, r.error) for r in results}, {(200, None)})
        self.assertEqual((len(results), self.counts(count)), (count, [1] * count))
        self.assertEqual(services[0].process.wait(timeout=30), 0)

    def test_drain_of_the_only_replica(self):
        """Fetches in flight end; the next ones cannot be sent."""
        service = self.service_of()
        client, count = self.client_of(service.target), 100
        results = []
        with self.assertRaises(fetchd.UnavailableError):
            for result in client.fetch_many(self.requests(count, "200:delay=50ms"), open=10):
                results.append(result)
                if len(results) == 20:
                    service.process.send_signal(signal.SIGTERM)
        for result in results:
            i = next(i for i in range(count) if result.request["url"] == self.url(str(i), "200:delay=50ms"))
            sent = len(self.seen(str(i)))
            self.assertEqual(sent, 1 if result.ok else 0, result)
        self.assertLess(len(results), count)

    def test_kill(self):
        """A replica that is killed loses its fetches in flight, and the client says so."""
        services, target = self.two()
        client, count = self.client_of(target), 400
        results = []
        for result in client.fetch_many(self.requests(count, "200:delay=20ms"), open=100):
            results.append(result)
            if len(results) == 50:
                services[0].process.kill()
        lost = [r for r in results if not r.ok]
        self.assertEqual((len(results), {type(r.error) for r in lost} - {fetchd.LostError}), (count, set()))
        self.assertTrue(all(r.error.sent and "may have been made" in str(r.error) for r in lost))
        self.assertEqual(max(self.counts(count)), 1, "no request is repeated")
        self.assertLess(len(lost), count // 2, "the other replica does the rest")

    def test_kill_and_restart(self):
        """Calls wait for a service that restarts, and fail if it does not come back soon."""
        service = self.service_of(grpc_addr=free_address())
        client = self.client_of(service.target)

        def streamed(method, url):
            with client.stream(method, url) as response:
                return response

        ways = {
            "request": lambda url: client.request("POST", url).status_code,
            "stream": lambda url: streamed("GET", url).status_code,
            "post": lambda url: streamed("POST", url).status_code,
            "many": lambda url: [r.status_code for r in client.fetch_many([url])][0],
            "explain": lambda url: client.explain(response={"status_code": 200}) and 200,
        }
        for name, way in ways.items():
            with self.subTest(name):
                self.assertEqual(client.get(self.url("first", "200")).status_code, 200)
                service.process.kill()
                service.process.wait()
                self.rest(client, 0.2)  # the client sees the end of the connection
                start, services = time.monotonic(), []
                again = threading.Timer(0.7, lambda: services.append(self.service_of(grpc_addr=service.target)))
                again.start()
                self.assertEqual(way(self.url(name, "200")), 200)
                self.assertLess(time.monotonic() - start, 4)
                again.join()
                service = services[0]
                self.assertEqual(len(self.seen(name)), int(name != "explain"))
        service.process.kill()
        service.process.wait()
        with self.assertRaises(fetchd.ServiceError):
            client.get(self.url("b", "200"), timeout=0.5)
        self.assertEqual(len(self.seen("b")), 0)

    def rest(self, client, seconds):
        time.sleep(seconds)

    def test_kill_in_a_body(self):
        service = self.service_of()
        client = self.client_of(service.target)
        with client.stream("GET", self.url("a", "200:size=1000,stall=300"), body_policy={"auto": {"max_hold_back_bytes": 0}}) as response:
            self.assertEqual(len(response.read(300)), 300)
            service.process.kill()
            with self.assertRaises(fetchd.LostError) as raised:
                response.read()
        self.assertTrue(raised.exception.sent)

    def test_kill_in_a_post(self):
        """A POST that was sent is lost, and one that was not sent is not."""
        for name, post in [
            ("post", lambda client, url: client.post(url)),
            ("stream", lambda client, url: client.stream("POST", url)),
        ]:
            with self.subTest(name):
                service = self.service_of()
                client = self.client_of(service.target)
                threading.Thread(target=self.kill_when_seen, args=(service, name)).start()
                with self.assertRaises(fetchd.LostError) as raised:
                    post(client, self.url(name, "silent"))
                self.assertTrue(raised.exception.sent)
                with self.assertRaises(fetchd.UnavailableError) as raised:
                    post(client, self.url(name, "silent"))
                self.assertFalse(raised.exception.sent)
                self.assertEqual(len(self.seen(name)), 1)

    def kill_when_seen(self, service, name):
        while not self.seen(name):
            time.sleep(0.02)
        service.process.kill()

    def test_token(self):
        """Without the right token nothing is fetched, and no token is in any message."""
        said = subprocess.run([BIN / "fetchd", "token", "ci"], capture_output=True, text=True, check=True).stdout.split("\n")
        token, line = said[0], said[1]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(line + "\n")
            file.flush()
            service = self.service_of(f"--token-file={file.name}")
        client = self.client_of(service.target, token=token)
        self.assertEqual(client.get(self.url("a", "200")).status_code, 200)
        self.assertNotIn(token, repr(client))
        for wrong in None, "wrong":
            refused = self.client_of(service.target, token=wrong)
            for call in (lambda: refused.get(self.url("b", "200")), lambda: refused.stream("GET", self.url("b", "200"))):
                with self.assertRaises(fetchd.RefusedError) as raised:
                    call()
                self.assertEqual((raised.exception.code, "wrong" in repr(raised.exception)), ("UNAUTHENTICATED", False))
            with self.assertRaises(fetchd.RefusedError):
                list(refused.fetch_many([self.url("b", "200")] * 3, open=2))
        self.assertEqual(self.seen("b"), [])

    def with_tls(self, *flags):
        """Starts a service that speaks TLS, and returns it with its certificate."""
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = pathlib.Path(folder, "key.pem"), pathlib.Path(folder, "cert.pem")
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=fetchd",
                 "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                check=True, capture_output=True,
            )  # fmt: skip
            return self.service_of(f"--tls-cert-file={certificate}", f"--tls-key-file={key}", *flags), certificate.read_bytes()

    def test_tls(self):
        service, certificate = self.with_tls()
        trusted = grpc.ssl_channel_credentials(certificate)
        for target in service.target, f"https://{service.target}":
            client = self.client_of(target, credentials=trusted)
            self.assertEqual(client.get(self.url("a", "200")).status_code, 200)
        for target, credentials in [
            (service.target, None),
            (f"https://{service.target}", None),  # the authorities of gRPC
            (service.target, grpc.ssl_channel_credentials(self.other_authority())),
        ]:
            with self.assertRaises(fetchd.UnavailableError):
                self.client_of(target, credentials=credentials).get(self.url("b", "200"))
        with self.assertRaisesRegex(ValueError, "pass https://, or no credentials"):
            self.client_of(f"http://{service.target}", credentials=trusted)
        self.assertEqual(self.seen("b"), [])

    def test_wrong_port(self):
        """The error says which port to use, and how."""
        plain, (secure, certificate) = self.service_of("--http-addr=127.0.0.1:0"), self.with_tls("--http-addr=127.0.0.1:0")
        port = "this is not the gRPC port of fetchd"
        for name, target, credentials, says in [
            ("the HTTP port", plain.http, None, port),
            ("the HTTP port with TLS", secure.http, grpc.ssl_channel_credentials(certificate), port),
            ("an origin", self.origin.base, None, port),
            ("https:// for plaintext", f"https://{plain.target}", None, "leave out https:// and credentials"),
            ("plaintext for TLS", secure.target, None, "pass https:// or credentials"),
            ("an unknown authority", f"https://{secure.target}", None, "pass credentials=grpc.ssl_channel_credentials(certificate)"),
            ("no service", free_address(), None, "start fetchd, or pass the address of its --grpc-addr"),
        ]:
            client = self.client_of(target, credentials=credentials)
            for method, call in ("GET", client.request), ("GET", client.stream), ("POST", client.stream):
                with self.subTest(name, call=call.__name__, method=method):
                    with self.assertRaises(fetchd.ServiceError) as raised:
                        call(method, self.url("a", "200"), timeout=20)
                    self.assertIn(says, str(raised.exception))
                    if (method, call) != ("GET", client.stream):  # which does not ask first
                        self.assertFalse(raised.exception.sent)
        self.assertEqual(self.seen("a"), [])

    def other_authority(self):
        address = self.origin.listeners["https"].partition("://")[2].split(":")
        return ssl.get_server_certificate((address[0], int(address[1]))).encode()

    def test_quota(self):
        """Fetches above the quota of the caller wait."""
        client = self.client_of(self.service_of("--max-fetches-per-caller=2").target)
        results = list(client.fetch_many(self.requests(20, "200:delay=10ms"), open=20))
        self.assertEqual({r.status_code for r in results}, {200})
        self.assertEqual(self.counts(20), [1] * 20)

    def test_overloaded(self):
        """Streams wait for a place as the service config says, and then fail."""
        client = self.client_of(self.service_of("--max-fetches=1").target)
        with client.stream("GET", self.url("a", "200:size=1000,stall=300"), body_policy={"auto": {"max_hold_back_bytes": 0}}):
            with self.assertRaises(fetchd.OverloadedError) as raised:
                client.stream("GET", self.url("b", "200"))
        self.assertEqual((raised.exception.code, raised.exception.sent), ("RESOURCE_EXHAUSTED", False))
        self.assertTrue(raised.exception.reason)

    def test_silent_service(self):
        """The timeout ends a fetch also if the service says nothing at all."""
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        client = self.client_of("127.0.0.1:%d" % silent.getsockname()[1])
        for method in "GET", "POST":
            for call in client.request, client.stream:
                with self.assertRaisesRegex(fetchd.DeadlineError, r"no answer arrived within timeout=0\.5"):
                    call(method, "http://o.example/", timeout=0.5)
        (result,) = client.fetch_many([{"url": "http://o.example/", "timeout": 0.5}])
        self.assertIsInstance(result.error, fetchd.DeadlineError)


    def test_service_that_drains_at_once(self):
        """It gets new streams after longer and longer pauses, and the fetch succeeds in the end."""
        opened = []

        def many(requests, context):
            opened.append(time.monotonic())
            kept = len(opened) > 3
            yield fetchd.contract.FetchManyResponse(draining=not kept).SerializeToString()
            for data in requests:
                answer = fetchd.contract.FetchManyResponse()
                for task in fetchd.contract.FetchManyRequest.FromString(data).tasks:
                    outcome = DONE
                    if not kept:
                        outcome = fetchd.contract.FetchOutcome(kind=4, error=fetchd.contract.FetchError(error_class=34, failure_type=1, retryable=True))
                    answer.events.add(tag=task.tag, event=fetchd.contract.FetchEvent(outcome=outcome))
                yield answer.SerializeToString()

        client = self.client_of(self.fake(many), service_config="{}")
        while not (response := client.get("http://o.example/", timeout=30)).ok:
            self.assertLessEqual(len(opened), 3)
        self.assertEqual((response.content, len(opened)), (b"done", 4))
        for i, pause in enumerate((0.1, 0.2, 0.4)):
            self.assertGreaterEqual(opened[i + 1] - opened[i], pause)

    def test_close_in_a_pause(self):
        """It does not wait for the end of the pause."""
        client = self.client_of(self.fake(lambda requests, context: iter(())), service_config="{}")
        with self.assertRaises(fetchd.FetchdError):
            client.get("http://o.example/", timeout=30)
        client._driver.pool.fruitless = 8
        with self.assertRaises(fetchd.DeadlineError):
            client.get("http://o.example/", timeout=0.1)
        start = time.monotonic()
        client.close()
        self.assertLess(time.monotonic() - start, 4)

    def test_quota_of_a_policy(self):
        """A refused fetch waits as long as the service asks for, unless the timeout ends before."""
        calls = []

        def fetch(data, context):
            calls.append(time.monotonic())
            refusals = {1: ("QUOTA", 0.6), 2: ("QUOTA", 0.6), 4: ("QUOTA", 0.6), 6: ("QUOTA", 30), 7: ("MEMORY", 0.1)}
            if len(calls) in refusals:
                reason, wait = refusals[len(calls)]
                refuse(context, "RESOURCE_EXHAUSTED", reason, wait)
            outcome = DONE
            yield fetchd.contract.FetchResponse(events=[fetchd.contract.FetchEvent(outcome=outcome)]).SerializeToString()

        client = self.client_of(self.fake(fetch=fetch), service_config="{}")
        with client.stream("GET", "http://o.example/", timeout=20) as response:
            self.assertEqual(response.read(), b"done")
        self.assertEqual(len(list(client.events("GET", "http://o.example/", timeout=20))), 1)
        self.assertEqual(len(calls), 5)
        for i in 0, 1, 3:
            self.assertGreaterEqual(calls[i + 1] - calls[i], 0.6)
        for wait, reason, count in (30, "quota", 6), (0.1, "memory", 7):
            with self.assertRaises(fetchd.OverloadedError) as raised:
                client.stream("GET", "http://o.example/", timeout=20)
            error = raised.exception
            self.assertEqual((error.reason, error.policy, error.retry_in, error.sent, len(calls)), (reason, "p", wait, False, count))

    def test_refused_streams_of_tasks(self):
        """No fetch is lost if the service refuses its stream and asks for a wait."""
        opened = []

        def many(requests, context):
            opened.append(time.monotonic())
            for data in requests:
                tasks = fetchd.contract.FetchManyRequest.FromString(data).tasks
                if tasks and len(opened) < 3:
                    refuse(context, "RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS_OF_CALLER", wait=0.6)
                answer = fetchd.contract.FetchManyResponse()
                for task in tasks:
                    answer.events.add(tag=task.tag, event=fetchd.contract.FetchEvent(outcome=DONE))
                if tasks:
                    yield answer.SerializeToString()

        client = self.client_of(self.fake(many), service_config="{}")
        self.assertEqual(client.get("http://o.example/", timeout=20).content, b"done")
        for i in range(2):
            self.assertGreaterEqual(opened[i + 1] - opened[i], 0.6)

    def test_denied_by_a_policy(self):
        """The error has the policy and the field, and the fetch is not repeated."""
        calls = []

        def fetch(data, context):
            calls.append(data)
            if len(calls) == 1:
                refuse(context, "PERMISSION_DENIED", "POLICY", field="method")
            error = fetchd.contract.FetchError(error_class=30, failure_type=2, policy="p", policy_rule="*.ads.example")
            outcome = fetchd.contract.FetchOutcome(kind=4, error=error)
            yield fetchd.contract.FetchResponse(events=[fetchd.contract.FetchEvent(outcome=outcome)]).SerializeToString()

        def many(requests, context):
            for data in requests:
                answer = fetchd.contract.FetchManyResponse()
                for task in fetchd.contract.FetchManyRequest.FromString(data).tasks:
                    error = fetchd.contract.FetchError(error_class=31, failure_type=2, reason="method", policy="p", message="no")
                    answer.events.add(tag=task.tag, event=fetchd.contract.FetchEvent(outcome=fetchd.contract.FetchOutcome(kind=4, error=error)))
                yield answer.SerializeToString()

        client = self.client_of(self.fake(many, fetch), service_config="{}")
        with self.assertRaises(fetchd.RefusedError) as raised:
            client.stream("GET", "http://o.example/", timeout=20)
        error = raised.exception
        self.assertEqual((error.policy, error.violations[0].field, error.reason, error.sent, len(calls)), ("p", "method", "policy", False, 1))
        with client.stream("GET", "http://o.example/", timeout=20) as response, self.assertRaises(fetchd.PermanentError) as raised:
            response.read()
        self.assertEqual((raised.exception.policy, raised.exception.policy_rule, len(calls)), ("p", "*.ads.example", 2))
        with self.assertRaises(fetchd.InvalidRequestError) as raised:
            client.get("http://o.example/", timeout=20)
        self.assertEqual((raised.exception.policy, raised.exception.reason), ("p", "method"))

    def fake(self, many=None, fetch=None):
        """Starts a service with these methods FetchMany and Fetch, and returns its address."""

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                if details.method.endswith("/FetchMany") and many:
                    return grpc.stream_stream_rpc_method_handler(many)
                return grpc.unary_stream_rpc_method_handler(fetch) if details.method.endswith("/Fetch") else None

        server = grpc.server(futures.ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers((Handler(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        return f"127.0.0.1:{port}"


def refuse(context, code, reason, wait=0.0, field=""):
    """Ends a call with a status that has the details of the service."""
    wire = lambda name: fetchd.contract.message_class("fetchd.wire." + name)
    details = [wire("ErrorInfo")(reason=reason, metadata=[wire("Entry")(key="policy", value="p")])]
    if wait:
        details.append(wire("RetryInfo")(retry_delay=[wire("Duration")(seconds=int(wait), nanos=round(wait % 1 * 1e9))]))
    if field:
        details.append(wire("BadRequest")(field_violations=[wire("Violation")(field=field, description="no")]))
    status = wire("Status")(details=[wire("Any")(type_url="type.googleapis.com/google.rpc." + type(d).__name__, value=d.SerializeToString()) for d in details])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode[code], "no")


class AsyncFaults(Faults):
    kind = Blocking

    def rest(self, client, seconds):
        client._run(asyncio.sleep(seconds))


if __name__ == "__main__":
    unittest.main()
