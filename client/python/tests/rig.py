"""A fetchd and an origin for the tests. FETCHD_BIN names the folder with both programs."""

import asyncio
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import fetchd

BIN = pathlib.Path(os.environ.get("FETCHD_BIN", pathlib.Path(__file__).resolve().parents[3] / "bin"))
AT_ONCE = {"retry_policy": {"base_delay": 0}}
_plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Origin:
    """cmd/origin. listeners has the URL of each listener by its name."""

    def __init__(self):
        command = [BIN / "origin", "--addr=127.0.0.1:0", "--tls-addr=127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.listeners = {}
        for line in self.process.stdout:
            words = line.split()
            if len(words) >= 2 and "://127.0.0.1:" in words[1]:
                self.listeners[words[0]] = words[1]
            if "refused" in self.listeners:  # the last one
                break
        self.base = self.listeners["http"]

    def url(self, key, steps, kind="s"):
        return f"{self.base}/{kind}/{key}/{steps}"

    def log(self, key):
        """The requests with a key that the origin saw."""
        with _plain.open(f"{self.base}/_log?key={key}", timeout=20) as answer:
            return json.load(answer) or []

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def free_address():
    """Returns an address on which nothing listens. Its port is below those that the system gives to
    connections and to listeners on port 0, so that none of them takes it while a service restarts."""
    while True:
        address = ("127.0.0.1", random.randrange(10000, 32000))
        with socket.socket() as s:
            try:
                s.bind(address)
            except OSError:
                continue
        return "%s:%d" % address


class Service:
    """cmd/fetchd, which may reach the origin. Its store "local" is the directory bodies."""

    def __init__(self, origin, *flags, grpc_addr="127.0.0.1:0"):
        ports = ",".join(url.rpartition(":")[2] for url in origin.listeners.values())
        self.log = tempfile.TemporaryFile("w+")
        self.folder = tempfile.TemporaryDirectory()
        self.bodies = pathlib.Path(self.folder.name, "bodies")
        stores = pathlib.Path(self.folder.name, "stores.yaml")
        stores.write_text(json.dumps({"stores": {"local": {"url": f"file://{self.bodies}"}}}))
        command = [BIN / "fetchd", f"--grpc-addr={grpc_addr}", "--http-addr=", "--egress-allow-cidr=127.0.0.0/8"]
        self.process = subprocess.Popen([*command, f"--egress-allow-port={ports}", f"--stores-file={stores}", *flags], stderr=self.log, stdout=self.log)
        self.target = self._address()

    def _address(self):
        until = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < until:
            self.log.seek(0)
            for line in self.log:
                if '"msg":"serving"' in line and line.endswith("\n"):
                    self.http = json.loads(line).get("http_addr")
                    return json.loads(line)["grpc_addr"]
            time.sleep(0.02)
        self.log.seek(0)
        raise RuntimeError(f"fetchd did not start: {self.log.read()}")

    def stop(self, how=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=60)
        self.log.close()
        self.folder.cleanup()


class Link:
    """A TCP proxy before a service, whose connections a test can break."""

    def __init__(self, target):
        address, _, port = target.rpartition(":")
        self._to, self._sockets = (address, int(port)), []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._to)
            self._sockets += near, far
            for source, sink in (near, far), (far, near):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in source, sink:
            self._shut(end)

    def _shut(self, end):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def cut(self):
        """Breaks all connections. New ones are possible."""
        for end in self._sockets:
            self._shut(end)

    def close(self):
        self._shut(self._listener)  # ends accept
        self._listener.close()
        self.cut()
        for end in self._sockets:
            end.close()


class Blocking:
    """An AsyncClient with the methods of Client, so that the same tests run with both."""

    def __init__(self, target, **options):
        self._client = fetchd.AsyncClient(target, **options)
        self._loop = asyncio.new_event_loop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _run(self, coroutine):
        return self._loop.run_until_complete(coroutine)

    def close(self):
        if not self._loop.is_closed():
            self._run(self._client.close())
            self._run(self._loop.shutdown_asyncgens())
            self._loop.close()

    def __getattr__(self, name):
        found = getattr(self._client, name)
        return (lambda *a, **options: self._run(found(*a, **options))) if asyncio.iscoroutinefunction(found) else found

    def stream(self, method, url, **options):
        return _BlockingStream(self._run, self._client.stream(method, url, **options))

    def fetch_many(self, requests, **options):
        return self._iterate(self._client.fetch_many(requests, **options))

    def events(self, method, url, **options):
        return self._iterate(self._client.events(method, url, **options))

    def _iterate(self, source):
        return _iterate(self._run, source)


def _iterate(run, source):
    try:
        while True:
            try:
                item = run(source.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(source.aclose())


class _BlockingStream:
    def __init__(self, run, opening):
        self._run, self._opening = run, opening
        self._got = run(opening.__aenter__())

    def __getattr__(self, name):
        found = getattr(self._got, name)
        return (lambda *a: _iterate(self._run, found(*a))) if name.startswith("iter_") else found

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._run(self._opening.__aexit__(*error))

    def close(self):
        self._run(self._got.close())

    def read(self, size=-1):
        return self._run(self._got.read(size))


class Case(unittest.TestCase):
    """Tests with an origin and a service, which the class shares."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.origin = Origin()
        cls.addClassCleanup(cls.origin.stop)
        cls.service = Service(cls.origin, *cls.flags)
        cls.addClassCleanup(cls.service.stop)

    def key(self, name=""):
        """A key of the origin that no other test has."""
        return f"{type(self).__name__}-{self._testMethodName}-{name}"

    def url(self, name, steps, kind="s"):
        return self.origin.url(self.key(name), steps, kind)

    def seen(self, name):
        return self.origin.log(self.key(name))
