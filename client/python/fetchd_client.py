"""A client for fetchd. You read the body of a response like a file; a failed fetch
raises an exception.

    with Client("127.0.0.1:8080") as client:
        with client.get("https://example.com/", retry_policy={"max_attempts": 5}) as response:
            for piece in response:
                ...

Copy this file into your project. It needs grpcio, protobuf, and protoc or
grpcio-tools, because it generates its messages at run time from one proto file:
the one that FETCHD_PROTO names, or else fetch.proto next to this file, or else that
of the repository that contains this file.

There are two kinds of errors. If the origin failed, you get a FetchError, with a
subclass for each failure type. If the request is invalid or the service failed, you
get a grpc.RpcError with code() and details(). client/python/README.md in the repository
of fetchd has an example of each.
"""

import http.client
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

__all__ = [
    "BodyRestarted",
    "Client",
    "ContractError",
    "FetchError",
    "NeedsAuthError",
    "PermanentError",
    "RateLimitedError",
    "Response",
    "Result",
    "SERVICE_CONFIG",
    "TransientError",
]

# A copy of deploy/grpc/service-config.json; deploy/grpc/README.md explains it. If you
# send only idempotent methods, you may pass service-config-idempotent.json to Client.
SERVICE_CONFIG = """{
  "loadBalancingConfig": [{"round_robin": {}}],
  "healthCheckConfig": {"serviceName": "fetchd.v1.FetchService"},
  "methodConfig": [
    {
      "name": [
        {"service": "fetchd.v1.FetchService", "method": "Fetch"},
        {"service": "fetchd.v1.FetchService", "method": "FetchUnary"}
      ],
      "retryPolicy": {
        "maxAttempts": 4,
        "initialBackoff": "0.1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]
      }
    },
    {
      "name": [{"service": "fetchd.v1.FetchService", "method": "Explain"}],
      "retryPolicy": {
        "maxAttempts": 4,
        "initialBackoff": "0.1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]
      }
    }
  ],
  "retryThrottling": {"maxTokens": 1000, "tokenRatio": 0.1}
}"""

MAX_OPEN = 256  # tasks in flight on one stream
MAX_SENDS = 3  # of a task that draining services return


class FetchError(Exception):
    """A fetch that failed at its origin. The service itself did not fail."""

    def __init__(self, outcome, contract):
        super().__init__(outcome, contract)
        self.outcome = outcome  # FetchOutcome: everything that is known
        self.error_class = contract.name("ErrorClass", outcome.error.error_class)  # such as "HTTP_SERVER_ERROR"
        self.failure_type = contract.name("FailureType", outcome.error.failure_type)  # such as "TRANSIENT"
        self.stop_reason = contract.name("RetryVerdict", outcome.error.stop_reason)  # why no attempt followed, such as "ATTEMPTS_EXHAUSTED"

    @property
    def retryable(self):
        """Whether a later fetch of the same request may succeed."""
        return self.outcome.error.retryable

    @property
    def reason(self):
        """A finer cause, such as "too_many_redirects", or ""."""
        return self.outcome.error.reason

    @property
    def rule(self):
        """The number of the rule that classified the failure, such as "H2"."""
        return self.outcome.error.rule

    @property
    def status(self):
        """The status of the last response, or 0 if there was none."""
        return self.outcome.response.status_code

    @property
    def retry_after(self):
        """The Retry-After of the origin in seconds, or None."""
        after = self.outcome.error.retry_after
        return after.ToNanoseconds() / 1e9 if self.outcome.error.HasField("retry_after") else None

    def __str__(self):
        status = f", status {self.status}" if self.status else ""
        error = self.outcome.error
        detail = f"; {error.detail}" if error.detail else ""
        fetch = f"fetch {error.url}" if error.url else "fetch"
        return f"{fetch}: {self.error_class}{status} (rule {error.rule}, attempt {self.outcome.attempts}): {error.message}{detail}"

    def __repr__(self):
        return f"{type(self).__name__}({str(self)!r})"


class TransientError(FetchError):
    """A later fetch may succeed."""


class PermanentError(FetchError):
    """A later fetch will fail too."""


class RateLimitedError(FetchError):
    """The origin limits the rate; see retry_after."""


class NeedsAuthError(FetchError):
    """The origin requires credentials, or other ones."""


_FAILURES = {
    "TRANSIENT": TransientError,
    "PERMANENT": PermanentError,
    "RATE_LIMITED": RateLimitedError,
    "NEEDS_AUTH": NeedsAuthError,
}


class BodyRestarted(Exception):
    """The body restarted at a lower offset than you have read.

    Raised only with body_policy={"recovery": "BODY_RECOVERY_RESTART"}. Drop what
    you read beyond `offset`, and continue to read.
    """

    def __init__(self, offset):
        super().__init__(f"the body restarts at byte {offset}: drop the bytes from there on, and continue to read")
        self.offset = offset


class ContractError(Exception):
    """The server violates the API."""


class _Contract:
    """The message classes, generated from fetch.proto."""

    def __init__(self, proto=None):
        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(_compile(proto or _find_proto()))
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        if hasattr(message_factory, "GetMessageClass"):
            self._message = message_factory.GetMessageClass
        else:  # before protobuf 4.22
            self._message = message_factory.MessageFactory(pool).GetPrototype
        self._pool = pool
        self._names = {}

    def message(self, name):
        """The class of a message, such as "FetchRequest"."""
        return self._message(self._pool.FindMessageTypeByName("fetchd.v1." + name))

    def name(self, enum, number):
        """The name of a value without the prefix of its enum, such as "TRANSIENT". For a
        value that is newer than the proto file it is the number."""
        if (enum, number) not in self._names:
            values = self._pool.FindEnumTypeByName("fetchd.v1." + enum).values_by_number
            prefix = "".join("_" + c if c.isupper() else c.upper() for c in enum)[1:] + "_"
            self._names[enum, number] = values[number].name[len(prefix) :] if number in values else str(number)
        return self._names[enum, number]

    def failure(self, outcome):
        """The exception for an outcome, or None."""
        if not outcome.HasField("error"):
            return None
        kind = _FAILURES.get(self.name("FailureType", outcome.error.failure_type), FetchError)
        return kind(outcome, self)

    def request(self, given):
        """Converts a URL, a dict of fields or a FetchRequest to a FetchRequest."""
        if isinstance(given, str):
            given = {"url": given}
        if not isinstance(given, dict):
            return given
        fields = dict(given)
        headers, body = fields.pop("headers", ()), fields.pop("body", b"")
        request = json_format.ParseDict(fields, self.message("FetchRequest")())
        request.body = body
        for name, value in headers.items() if isinstance(headers, dict) else headers:
            request.headers.add(name=name, value=value)
        return request


def _find_proto():
    here = pathlib.Path(__file__).resolve().parent
    named = os.environ.get("FETCHD_PROTO")
    places = [pathlib.Path(named)] if named else [here / "fetch.proto", here.parent.parent / "proto/fetchd/v1/fetch.proto"]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"fetch.proto is not at {' or '.join(map(str, places))}: set FETCHD_PROTO to its path")


def _compile(proto):
    """The descriptors of the file and its imports."""
    proto, tried = pathlib.Path(proto), []
    with tempfile.TemporaryDirectory() as work:
        out = pathlib.Path(work, "descriptors")
        arguments = [f"--descriptor_set_out={out}", "--include_imports", f"-I{proto.parent}", proto.name]
        for tool in _compilers():
            try:
                done = subprocess.run(tool + arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            except OSError as error:
                tried.append(f"{tool[0]}: {error}")
                continue
            if done.returncode == 0:
                return out.read_bytes()
            tried.append(f"{' '.join(tool)}: {done.stderr.strip()}")
    raise RuntimeError("fetch.proto could not be read; install grpcio-tools, or protoc 3.15 or newer: " + "; ".join(tried))


def _compilers():
    try:
        import grpc_tools
    except ImportError:
        pass
    else:
        yield [sys.executable, "-m", "grpc_tools.protoc", "-I" + os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")]
    yield ["protoc"]


class Client:
    """A client of one service. It is safe for use from several threads."""

    def __init__(self, target, credentials=None, metadata=(), proto=None, service_config=SERVICE_CONFIG, options=()):
        """Creates a client. It connects at the first call.

        target: a gRPC target that names all replicas, such as "dns:///fetchd.example:8080".
        credentials: grpc.ChannelCredentials; None means plaintext.
        metadata: pairs to send with every call, such as ("authorization", "Bearer ...").
        proto: path of fetch.proto.
        service_config: service config of the channel, as JSON.
        options: more channel options. The client does not use the proxy of the environment.
        """
        options = [("grpc.service_config", service_config), ("grpc.enable_http_proxy", 0), ("grpc.keepalive_time_ms", 30000), *options]
        if credentials is None:
            self._channel = grpc.insecure_channel(target, options=options)
        else:
            self._channel = grpc.secure_channel(target, credentials, options=options)
        self._metadata = tuple(metadata)
        self.contract = contract = _Contract(proto)
        self._fetch = self._channel.unary_stream(
            "/fetchd.v1.FetchService/Fetch",
            request_serializer=contract.message("FetchRequest").SerializeToString,
            response_deserializer=contract.message("FetchResponse").FromString,
        )
        self._many = self._channel.stream_stream(
            "/fetchd.v1.FetchService/FetchMany",
            request_serializer=contract.message("FetchManyRequest").SerializeToString,
            response_deserializer=contract.message("FetchManyResponse").FromString,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the channel and cancels its calls."""
        self._channel.close()

    def get(self, url, timeout=None, on_event=None, **policy):
        """Fetches a URL. Returns a Response when the first bytes of the body have
        arrived, or when the fetch has ended without a body. Raises FetchError if the
        fetch failed.

        timeout: deadline in seconds, body included. None means the limits of the service.
        on_event: called with each FetchResponse as it arrives, except body chunks and
            heartbeats. client.contract.name("RetryVerdict", number) returns the name of
            an enum value in it.
        policy: fields of FetchRequest in fetch.proto as dicts, durations as "1.5s",
            enums by their full names: retry_policy={"max_attempts": 5, "base_delay":
            "0.5s"}, redirect_policy={"scope": "REDIRECT_SCOPE_SAME_ORIGIN"}. headers may
            be a dict or pairs of text; body is bytes.
        """
        request = self.contract.request(dict(policy, url=url))
        if not request.event_level:
            request.event_level = 3  # ALL: otherwise the final URL is not known before the body
        call = self._fetch(request, timeout=timeout, metadata=self._metadata)
        return Response(call, self.contract, on_event, request.event_level == 3)

    def fetch_many(self, requests, open=64, on_event=None):
        """Fetches many URLs, and yields a Result for each as it ends. A fetch that fails
        yields a Result with a FetchError. So does an invalid request: its error class
        is INVALID_REQUEST. Bodies are limited to 1 MiB; use get for larger ones.

        requests: URLs, or dicts of fields with a "url". The iterable is read in your
            thread while fewer than `open` (1 to 256) fetches are in flight. While it
            blocks, no result is yielded.
        on_event: called with the request and each FetchResponse, if the event_level
            of the request asks for events.

        If a stream breaks, each fetch in flight on it yields a Result with the
        grpc.RpcError and without an outcome: the origin may have seen requests. The
        remaining fetches use another stream. A fetch that a draining service returns
        before it sent a request is sent again. If no other stream can be opened, the
        RpcError is raised, and the rest of `requests` is not fetched.
        """
        if isinstance(requests, (str, dict)):
            raise TypeError("fetch_many needs an iterable of requests, not one request")
        return _Many(self.contract, self._open_many, max(1, min(open, MAX_OPEN)), on_event).run(iter(requests))

    def _open_many(self, requests):
        return self._many(requests, metadata=self._metadata)


class Response:
    """A response with a body to read, from one thread. Close it, or use `with`.
    shutil.copyfileobj copies the body to a file."""

    def __init__(self, call, contract, on_event, all_events):
        self.status = 0  # 0 if there was no response
        self.headers = http.client.HTTPMessage()  # case-insensitive; get_all() returns repeated ones
        self.final_url = ""  # known before the end of the body only at event level ALL
        self.attempts = 0  # started so far
        self.outcome = None  # FetchOutcome, after the body has been read to its end
        self._call, self._contract, self._all_events = call, contract, all_events
        self._on_event = on_event or (lambda event: None)
        self._url = ""
        self._head = None  # the last ResponseStarted
        self._ready = False
        self._offset = 0  # of the next byte to read
        self._restart = None  # lower offset of the next chunk, if it starts the body again
        self._rest = b""  # received bytes from there on
        self._end = None  # what to raise after the rest; EOFError means the end
        try:
            while not self._ready and self._end is None:
                self._advance()
        except BaseException:  # the caller gets nothing to close
            self._call.cancel()
            raise
        if self._end is not None and not isinstance(self._end, EOFError):
            raise self._end

    def __repr__(self):
        return f"Response(status={self.status}, final_url={self.final_url!r}, attempts={self.attempts})"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Cancels the fetch if it is in flight. Does not wait."""
        self._call.cancel()
        if self._end is None:
            self._end, self._rest = ValueError("read of a closed response"), b""

    def read(self, size=-1):
        """Returns up to `size` bytes, or the rest; b"" at the end. Raises FetchError if
        the fetch fails inside the body: iterate to keep the bytes before it."""
        start, data = self._offset, bytearray()
        while size != 0:
            try:
                piece = self._piece(size)
            except BodyRestarted as restart:
                if restart.offset < start:
                    raise
                del data[restart.offset - start :]  # not returned yet
                continue
            data += piece
            if size > 0 or not piece:
                break
        return bytes(data)

    def __iter__(self):
        """Yields the pieces of the body as they arrive."""
        while True:
            piece = self._piece(-1)
            if not piece:
                return
            yield piece

    def _piece(self, size):
        while not self._rest:
            if isinstance(self._end, EOFError):
                return b""
            if self._end is not None:
                raise self._end
            self._advance()
        piece = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(piece) :]
        self._offset += len(piece)
        return piece

    def _advance(self):
        try:
            message = next(self._call)
        except StopIteration:
            self._end = ContractError("the call ended without an outcome")
            return
        except grpc.RpcError as error:
            self._end = self._end or error
            return
        event = message.WhichOneof("event")
        if event == "body_chunk":
            self._chunk(message.body_chunk)
            return
        if event is None or event == "heartbeat":
            return
        if event == "outcome":
            self._finish(message.outcome)
        elif event == "attempt_started":
            self.attempts, self._url = message.attempt_started.attempt, message.attempt_started.url
        elif event == "redirect_followed":
            self._url = message.redirect_followed.hop.location_url
        self._on_event(message)
        if event == "response_started":
            self._started(message.response_started)
        elif event == "outcome" and isinstance(self._end, EOFError):
            self._restarted(self._restart)  # by an empty body

    def _started(self, head):
        self._head, offset = head, head.body_offset_bytes
        if not self._ready:
            self._offset = offset  # of a resume point
        else:  # drop nothing yet: if this response fails without a byte, the body may continue where it is
            self._restart = offset if offset < self._offset else None

    def _chunk(self, chunk):
        restart, self._restart = self._restart, None
        want = self._offset if restart is None else restart
        if self._head is None or chunk.offset_bytes != want:
            self._end = ContractError(f"the body continues at byte {chunk.offset_bytes}, want {want} after a ResponseStarted")
            self._call.cancel()
            return
        if not self._ready:
            self._ready = True
            self._fill(self._head.response)
            self.final_url = self._url if self._all_events else ""
        self._rest = chunk.data
        self._restarted(restart)

    def _restarted(self, offset):
        if offset is not None:
            self._offset = offset
            raise BodyRestarted(offset)

    def _finish(self, outcome):
        try:
            more = next(self._call, None)
        except grpc.RpcError:
            more = None  # nothing else was expected
        if more is not None:
            self._end = ContractError("an event arrived after the outcome")
            self._call.cancel()
            return
        self.outcome, self.final_url, self.attempts = outcome, outcome.final_url, outcome.attempts
        if not self._ready:
            self._fill(outcome.response)
            self._rest = outcome.inline_body
        self._end = self._contract.failure(outcome) or EOFError()

    def _fill(self, response):
        self.status = response.status_code
        for field in response.headers:
            self.headers[field.name] = field.raw_value.decode("latin-1") if field.raw_value else field.value


class Result:
    """How one fetch of fetch_many ended."""

    def __init__(self, request, outcome, error):
        self.request = request  # as you passed it
        self.outcome = outcome  # FetchOutcome; None if the stream broke before it arrived
        self.error = error  # FetchError, grpc.RpcError or None

    def __repr__(self):
        return f"Result({self.request!r}, status={self.status}, body of {len(self.body)} bytes, error={self.error!r})"

    @property
    def status(self):
        """The status of the last response, or 0 if there was none."""
        return self.outcome.response.status_code if self.outcome else 0

    @property
    def attempts(self):
        """The attempts that were started, or 0 if there is no outcome."""
        return self.outcome.attempts if self.outcome else 0

    @property
    def body(self):
        """The inline body, or b""."""
        return self.outcome.inline_body if self.outcome else b""


class _Task:
    def __init__(self, given):
        self.given = given
        self.sends = 0


class _Many:
    """One run of fetch_many. Only the thread of the generator uses its state; the threads
    of the streams put messages into a queue."""

    def __init__(self, contract, open_call, max_open, on_event):
        self.contract, self.open_call, self.max_open = contract, open_call, max_open
        self.on_event = on_event or (lambda request, event: None)
        self.incoming = queue.SimpleQueue()  # of (stream, message) and (stream, exception or None)
        self.streams, self.current = set(), None
        self.open, self.tags, self.error = 0, 0, None

    def run(self, source):
        more = True
        try:
            while True:
                while more and self.error is None and self.open < self.max_open:
                    try:
                        given = next(source)
                    except StopIteration:
                        more = False
                        break
                    self.open += 1
                    self.send(_Task(given))
                if not more or self.error is not None:
                    self.half_close(self.current)
                if not self.open and not self.streams:
                    break
                for result in self.handle(*self.incoming.get()):
                    self.open -= 1
                    yield result
        finally:
            for stream in self.streams:
                stream.cancel()
        if self.error is not None:
            raise self.error

    def send(self, task):
        if self.current is None:
            self.current = _Stream(self.open_call, self.incoming)
            self.streams.add(self.current)
        self.tags += 1
        task.sends += 1
        tag = str(self.tags)
        self.current.tasks[tag] = task
        request = self.contract.message("FetchManyRequest")()
        request.tasks.add(tag=tag, request=self.contract.request(task.given))
        self.current.outbox.put(request)

    def half_close(self, stream):
        """Sends nothing more on a stream."""
        if stream is not None and stream is self.current:
            self.current = None
            stream.outbox.put(None)

    def handle(self, stream, message):
        """Returns the results in a message, or those at the end of a stream."""
        if message is None or isinstance(message, Exception):
            return self.handle_end(stream, message)
        stream.answered = True
        if message.draining:
            self.half_close(stream)
        results = []
        for answer in message.responses:
            results += self.handle_answer(stream, answer)
        return results

    def handle_answer(self, stream, answer):
        task, event = stream.tasks.get(answer.tag), answer.response
        if task is None:
            return
        if event.WhichOneof("event") != "outcome":
            self.on_event(task.given, event)
            return
        del stream.tasks[answer.tag]
        outcome = event.outcome
        error = self.contract.failure(outcome)
        if error and error.error_class == "SHUTDOWN" and not outcome.exchanges and task.sends < MAX_SENDS:
            self.half_close(stream)
            self.send(task)
            return
        yield Result(task.given, outcome, error)

    def handle_end(self, stream, error):
        self.half_close(stream)
        self.streams.discard(stream)
        left = list(stream.tasks.values())
        if error is None and left:
            error = ContractError(f"the call ended without an outcome for {len(left)} tasks")
        if error is not None and not self.recoverable(stream, error):
            self.error = self.error or error
        return [Result(task.given, None, error) for task in left]

    @staticmethod
    def recoverable(stream, error):
        return stream.answered and isinstance(error, grpc.RpcError) and error.code() == grpc.StatusCode.UNAVAILABLE


class _Stream:
    """One call of FetchMany, and the thread that reads it."""

    def __init__(self, open_call, incoming):
        self.tasks = {}  # in flight, by tag
        self.answered = False
        self.outbox = queue.SimpleQueue()  # of requests; None half-closes
        self.call = open_call(iter(self.outbox.get, None))
        self.thread = threading.Thread(target=self.read, args=(incoming,), name="fetchd stream", daemon=True)
        self.thread.start()

    def read(self, incoming):
        try:
            for message in self.call:
                incoming.put((self, message))
        except grpc.RpcError as error:
            incoming.put((self, error))
        else:
            incoming.put((self, None))

    def cancel(self):
        self.outbox.put(None)  # unblocks the sender
        self.call.cancel()
        self.thread.join()
