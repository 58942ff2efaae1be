"""The client for threads."""

from __future__ import annotations

import _thread
import atexit
import os
import queue
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Generic, Iterable, Iterator, Mapping, Optional, Sequence, Set, Tuple, TypeVar, Union

import grpc

from . import _client, _help, _text, contract
from ._pool import CLOSE_SECONDS, Pool, Stream, Task
from ._response import Response, Result
from .errors import BodyRestarted, FetchdError, UnavailableError, quota_wait, service_error, unreached

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._client import Defaults, Options, Request
    from .policies import Duration, ExplainRequest

GATHER_TASKS = 16  # in flight on a stream, below which a message is sent at once
GATHER_SECONDS = 30e-6  # for each of them

R = TypeVar("R", bound="Union[str, Request, Mapping[str, Any]]")


class _Feed:
    """The messages that are sent on one stream. A thread of grpc iterates over it."""

    def __init__(self, lock: Any, stream: Stream, cancel_dropped_locked: Callable[[], None]):
        self.lock, self.stream, self.cancel_dropped_locked = lock, stream, cancel_dropped_locked
        self.signals: Any = queue.SimpleQueue()
        self.signalled = self.over = False
        self.call: Any = None  # None until the pause of the stream is over

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> bytes:
        while True:
            with self.lock:
                self.signalled = False
                self.cancel_dropped_locked()
                if self.over:
                    raise StopIteration
                message = self.stream.next_message()
                if message is not None:
                    return message
                if self.stream.finished:
                    raise StopIteration
            self.signals.get()
            load = self.stream.load
            if load >= GATHER_TASKS:
                # Other threads are about to send: one message for all costs half the CPU.
                time.sleep(GATHER_SECONDS * min(load, 64))

    def cancel(self) -> None:
        if self.call is not None:
            self.call.cancel()

    def wake_locked(self) -> None:
        if not self.signalled:
            self.signalled = True
            self.signals.put(None)


class _Fetch:
    """A call of Fetch. It is made again after the wait that a quota of the caller asks for."""

    def __init__(self, driver: _Driver, data: bytes, timeout: Optional[float]):
        self.driver, self.data, self.answered = driver, data, False
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.outage = driver.outage(timeout)
        self.open()

    def open(self) -> None:
        self.call = self.driver.methods.fetch(self.data, timeout=_left(self.deadline), metadata=self.driver.metadata)

    def __iter__(self) -> _Fetch:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                message = next(self.call)
            except grpc.RpcError as error:
                failed = service_error(error)
                wait = None if self.answered else quota_wait(failed, _left(self.deadline))
                if self.answered or not (unreached(failed) and self.driver.reconnected(self.outage)) and (wait is None or self.driver.closing.wait(wait)):
                    raise
                self.open()
            else:
                self.answered = self.driver.answered = True
                return message

    def cancel(self) -> None:
        self.call.cancel()


class _Driver:
    """Runs a Pool with threads. It does not know its Client, so that the Client can be
    collected."""

    def __init__(self, settings: _client.Settings):
        self.channel = settings.channel(grpc)
        self.methods = _client.Methods(self.channel)
        self.metadata = settings.metadata
        # Reentrant, because a signal handler may use the client.
        self.lock = threading.RLock()
        self.dropped: Deque[Task] = deque()  # to be cancelled by a stream
        self.forked = self.answered = False
        self.closing = threading.Event()
        self.threads: Set[threading.Thread] = set()
        self.pool = Pool(self._open_locked, lambda stream: stream.driver.wake_locked())
        _drivers.add(self)

    def _open_locked(self, stream: Stream) -> None:
        feed = self._feed_locked(stream)
        if not stream.pause:
            feed.call = self.methods.many(feed, metadata=self.metadata)
        thread = threading.Thread(target=self._read, args=(stream, feed), name="fetchd stream", daemon=True)
        self.threads.add(thread)
        try:
            thread.start()
        except BaseException:
            self.threads.discard(thread)
            feed.cancel()
            raise

    def _feed_locked(self, stream: Stream) -> _Feed:
        feed: _Feed = _Feed(self.lock, stream, self.cancel_dropped_locked)
        stream.driver, stream.hello = feed, False
        return feed

    def _read(self, stream: Stream, feed: _Feed) -> None:
        outage = None
        while True:
            error = self._receive(stream, feed)
            with self.lock:
                feed.over = again = isinstance(error, UnavailableError) and stream.unsent
                feed.wake_locked()
            outage = outage or self.outage()
            if not again or not self.reconnected(outage):
                break
            with self.lock:
                feed = self._feed_locked(stream)
        with self.lock:
            self.threads.discard(threading.current_thread())
            stream.end(error)

    def _receive(self, stream: Stream, feed: _Feed) -> Optional[Exception]:
        """Handles the messages of a call. Returns its error."""
        try:
            if feed.call is None:
                self.closing.wait(stream.pause)
                with self.lock:
                    if not stream.finished:
                        feed.call = self.methods.many(feed, metadata=self.metadata)
            for data in feed.call or ():
                self.answered = True
                with self.lock:
                    stream.receive(data)
        except grpc.RpcError as broken:
            return service_error(broken)
        except Exception as unexpected:  # the tasks of the stream must end
            feed.cancel()
            return unexpected
        return None

    def outage(self, left: Optional[float] = None) -> _client.Outage:
        return _client.Outage(time.monotonic(), self.answered, left)

    def reconnected(self, outage: _client.Outage) -> bool:
        """Waits for a connection. Reports whether a call that was not sent may be made again."""
        pause = outage.wait(time.monotonic())
        if pause is None or self.closing.wait(pause):
            return False
        try:
            self.methods.check(b"", timeout=_left(outage.until), wait_for_ready=True, metadata=self.metadata)
        except (grpc.RpcError, ValueError):
            pass  # there is a connection, or the next try says why there is none; ValueError: the client is closed
        return not self.closing.is_set()

    def unary(self, call: Callable[..., Any], request: Any, timeout: Optional[float]) -> Any:
        """Makes a call that fetches nothing. Waits for the service."""
        deadline = None if timeout is None else time.monotonic() + timeout
        outage = self.outage(timeout)
        while True:
            try:
                return call(request, timeout=_left(deadline), metadata=self.metadata)
            except grpc.RpcError as error:
                if not unreached(service_error(error)) or not self.reconnected(outage):
                    raise

    def fetch(self, request: _client.StreamRequest) -> Any:
        """Starts a call of Fetch."""
        timeout = request.timeout
        if request.once:
            start = time.monotonic()
            try:
                self.unary(self.methods.check, b"", timeout)
            except grpc.RpcError as error:
                _client.connected(error, request.timeout)
            if timeout is not None:
                timeout = max(0.0, start + timeout - time.monotonic())
        return _Fetch(self, request.data, timeout)

    def run(self, task: Task, done: Any) -> None:
        """Runs a task whose `done` releases a lock, and waits for it."""
        try:
            with self.lock:
                self.pool.submit(task)
            if task.deadline is None:
                done.acquire()
            elif not done.acquire(timeout=max(0.0, task.deadline - time.monotonic())):
                with self.lock:
                    self.pool.expire(task)
        except BaseException:
            self.cancel(task)
            raise

    def cancel(self, task: Task) -> None:
        with self.lock:
            self.pool.cancel(task, FetchdError("the caller cancelled the fetch"))

    def drop(self, tasks: Iterable[Task]) -> None:
        """Cancels tasks soon. It takes no lock, because the garbage collector may call it in a
        thread that is changing the pool."""
        self.dropped.extend(tasks)
        for stream in list(self.pool.open):
            stream.driver.signals.put(None)

    def cancel_dropped_locked(self) -> None:
        while self.dropped:
            self.cancel(self.dropped.popleft())

    def close(self) -> None:
        if self.forked:
            return  # the threads and the connections are those of the parent
        with self.lock:
            self.pool.close()
            threads = list(self.threads)
            feeds = [stream.driver for stream in self.pool.open]
        self.closing.set()
        until = time.monotonic() + CLOSE_SECONDS
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        for feed in feeds:
            feed.cancel()
        self.channel.close()
        # A signal handler may close the client in a thread that has the lock, for which these wait.
        until = time.monotonic() + CLOSE_SECONDS
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        _drivers.discard(self)


_drivers: Any = weakref.WeakSet()


def _after_fork() -> None:
    for driver in list(_drivers):
        driver.forked = True


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    for driver in list(_drivers):
        driver.close()


class Client(_client.Session):
    """A client of fetchd for programs with threads. It is safe for use from several threads,
    and one is enough for a program. Close it, or use `with`."""

    _driver: Optional[_Driver] = None

    def __init__(
        self,
        target: str,
        *,
        credentials: Any = None,
        token: Optional[str] = None,
        metadata: Sequence[Tuple[str, str]] = (),
        service_config: Optional[str] = None,
        options: Sequence[Tuple[str, Any]] = (),
        base_url: str = "",
        **defaults: Unpack[Defaults],
    ):
        """Creates a client. It connects at the first call.

        {client}"""
        super().__init__(base_url, defaults)
        settings = _client.Settings(target, credentials, token, metadata, service_config, options)
        self._target = target
        self._closed = False
        self._driver = _Driver(settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._driver is not None and not self._closed and self._driver.pool.closed is None:
            self._closed = True
            # The collector may run this in a thread that has the lock. The new thread waits for it.
            _thread.start_new_thread(self._driver.close, ())
            _client.unclosed(self)

    def close(self) -> None:
        """Cancels the fetches in flight, and closes the connections."""
        self._closed = True
        if self._driver is not None:
            self._driver.close()

    @property
    def _open(self) -> _Driver:
        if self._driver is None or self._closed:
            raise ValueError(f"{self!r} is closed")
        if self._driver.forked:
            raise RuntimeError(f"{self!r} was created before a fork: create one after it")
        return self._driver

    def get(self, url: str, **options: Unpack[Options]) -> Response:
        """Fetches a URL with GET.

        {outcome}

        {arguments}"""
        return self.request("GET", url, **options)

    def head(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a HEAD, and follows redirects.

        {outcome}

        {arguments}"""
        return self.request("HEAD", url, **options)

    def options(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends OPTIONS.

        {outcome}

        {arguments}"""
        return self.request("OPTIONS", url, **options)

    def post(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a POST, which is sent again only if it certainly reached no origin or retry_policy
        allows it.

        {outcome}

        {arguments}"""
        return self.request("POST", url, **options)

    def put(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a PUT.

        {outcome}

        {arguments}"""
        return self.request("PUT", url, **options)

    def patch(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a PATCH, which is sent again only if it certainly reached no origin or retry_policy
        allows it.

        {outcome}

        {arguments}"""
        return self.request("PATCH", url, **options)

    def delete(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a DELETE.

        {outcome}

        {arguments}"""
        return self.request("DELETE", url, **options)

    def request(self, method: str, url: str, **options: Unpack[Options]) -> Response:
        """Fetches a URL with any method.

        {outcome}

        {arguments}"""
        done = threading.Lock()
        done.acquire()
        task = _client.task_of(method, url, options, lambda _: done.release(), time.monotonic, self)
        if task.on_event is not None:
            self._with_events(task)
        else:
            self._open.run(task, done)
        return _client.response_of(task)

    def _with_events(self, task: Task) -> None:
        """Runs a task, and calls on_event in this thread."""
        events: Any = queue.SimpleQueue()
        on_event, task.on_event, task.done = task.on_event, events.put, lambda _: events.put(None)
        driver = self._open
        assert on_event is not None
        try:
            with driver.lock:
                driver.pool.submit(task)
            while True:
                try:
                    event = events.get(timeout=_left(task.deadline))
                except queue.Empty:
                    with driver.lock:
                        driver.pool.expire(task)
                    return
                if event is None:
                    return
                on_event(event)
        except BaseException:
            driver.cancel(task)
            raise

    def stream(self, method: str, url: str, **options: Unpack[Options]) -> StreamResponse:
        """Fetches a URL whose body you read piece by piece: `with client.stream("GET", url) as
        response`, or close the response. The body may have any size.

        It returns when the first bytes of the body have arrived, or the fetch has ended. A
        ServiceError is raised if there is no outcome.

        {arguments}"""
        request = _client.stream_request(method, url, options, self)
        return StreamResponse(self._open.fetch(request), options.get("on_event"), request)

    def events(self, method: str, url: str, **options: Unpack[Options]) -> Iterator[contract.FetchEvent]:
        """Fetches a URL and yields its events as they arrive: attempts, waits, the head of the
        response, and the chunks of a body that does not come in the outcome. The last event has
        the outcome; a fetch that failed is an outcome too. A ServiceError is raised if there is none.

            for event in client.events("GET", url):
                if event.HasField("attempt_finished"):
                    print(event.attempt_finished.response.status_code)
            print(fetchd.enum_name(event.outcome, "kind"))

        Leaving the loop cancels the fetch. event_level="all" yields every event.

        {events}

        {arguments}"""
        return self._events(_client.stream_request(method, url, options, self, events=True))

    def _events(self, request: _client.StreamRequest) -> Iterator[contract.FetchEvent]:
        state, call = _client.EventState(request), self._open.fetch(request)
        try:
            for message in call:
                yield from state.events(message)
        except grpc.RpcError as error:
            if state.outcome is None:
                raise state.broken(error) from None
        finally:
            call.cancel()
        yield state.last()

    def fetch_many(
        self,
        requests: Iterable[R],
        *,
        open: int = 64,
        on_event: Optional[Callable[[R, contract.FetchEvent], None]] = None,
    ) -> Iterator[Result[R]]:
        """Fetches many URLs, and yields a Result for each as it ends.

        requests: URLs, or dicts with a "url", a "method" and the arguments of get. The iterable is
            read in your thread while fewer than `open` fetches are in flight.
        on_event: called with the request and each of its events, in your thread.

        {many}"""
        _client.not_one(requests)
        return _Many(self._open, iter(requests), max(1, open), on_event, self).run()

    def explain(self, *, timeout: Optional[Duration] = 20, **observation: Unpack[ExplainRequest]) -> contract.ExplainResponse:
        """{explain}"""
        driver = self._open
        request, limit = _client.explain_request(observation), _client.explain_timeout(timeout)
        try:
            return driver.unary(driver.methods.explain, request, limit)  # type: ignore[no-any-return]
        except grpc.RpcError as error:
            raise service_error(error, False, limit) from None


def _left(deadline: Optional[float]) -> Optional[float]:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class _Many(Generic[R]):
    """One run of fetch_many."""

    def __init__(
        self, driver: _Driver, source: Iterator[R], open: int, on_event: Optional[Callable[[R, contract.FetchEvent], None]], session: _client.Session
    ):
        self.driver, self.source, self.limit, self.on_event, self.session = driver, source, open, on_event, session
        self.arrived: Any = queue.SimpleQueue()  # of tasks that are over, and (task, event)
        self.tasks: "dict[Task, R]" = {}
        self.more = True
        self.timed = False  # some tasks have a deadline
        self.stopped: Optional[Exception] = None

    def run(self) -> Iterator[Result[R]]:
        try:
            while True:
                while self.more and len(self.tasks) < self.limit:
                    try:
                        given = next(self.source)
                    except StopIteration:
                        self.more = False
                        break
                    refused = self.start(given)
                    if refused is not None:
                        yield refused
                if not self.tasks:
                    break
                result = self.receive()
                if result is not None:
                    yield result
        finally:
            self.driver.drop(self.tasks)
        if self.stopped is not None:
            raise self.stopped

    def start(self, given: R) -> Optional[Result[R]]:
        """Starts a fetch. Returns its result if the request is invalid."""
        try:
            method, url, options = _client.many_request(given)
            if self.on_event is not None:
                options = {**options, "on_event": _never}
            task = _client.task_of(method, url, options, self.arrived.put, time.monotonic, self.session)
        except Exception as error:  # whatever is wrong with one request
            return Result(given, None, error)
        if self.on_event is not None:
            task.on_event = lambda event: self.put(task, event)
        self.tasks[task] = given
        self.timed = self.timed or task.deadline is not None
        with self.driver.lock:
            self.driver.pool.submit(task)
        return None

    def put(self, task: Task, event: contract.FetchEvent) -> None:
        self.arrived.put((task, event))

    def receive(self) -> Optional[Result[R]]:
        """Waits for an event or a result."""
        deadline = min((t.deadline for t in self.tasks if t.deadline is not None), default=None) if self.timed else None
        try:
            item = self.arrived.get(timeout=_left(deadline))
        except queue.Empty:
            with self.driver.lock:
                for task in self.tasks:
                    if task.deadline is not None and task.deadline <= time.monotonic():
                        self.driver.pool.expire(task)
            return None
        if isinstance(item, tuple):
            if self.on_event is not None and item[0] in self.tasks:
                self.on_event(self.tasks[item[0]], item[1])
            return None
        given = self.tasks.pop(item)
        try:
            response = _client.response_of(item)
        except Exception as error:
            if _client.ends_many(error) and self.more:
                self.more, self.stopped = False, error
            return Result(given, None, error)
        return Result(given, response, response.error)


def _never(event: contract.FetchEvent) -> None:
    pass


class StreamResponse(_client.StreamState):
    """A response whose body you read piece by piece, from one thread."""

    def __init__(self, call: Any, on_event: Optional[Callable[[contract.FetchEvent], None]], request: _client.StreamRequest):
        super().__init__(call, on_event, request)
        try:
            while not self._ready and self._end is None:
                self._advance()
            self._opened()
        except BaseException:  # the caller gets nothing to close
            call.cancel()
            raise

    def __enter__(self) -> StreamResponse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the fetch if it is in flight. Does not wait."""
        self._close()

    def _advance(self) -> None:
        while not self._next_event():
            try:
                message = next(self._call)
            except StopIteration:
                self._ended()
                return
            except grpc.RpcError as error:
                self._broken(error)
                return
            self._feed(message)

    def _piece(self, size: int) -> bytes:
        while True:
            piece = self._take(size)
            if piece is not None:
                return piece
            self._advance()

    def iter_bytes(self, chunk_size: Optional[int] = None) -> Iterator[bytes]:
        """Yields the body in pieces of this size; None is as they arrive."""
        return self._converted(_text.Pieces(chunk_size))

    def iter_text(self, chunk_size: Optional[int] = None) -> Iterator[str]:
        """Yields the body as text, in pieces of so many characters; None is as they arrive."""
        return self._converted(_text.Pieces(chunk_size, self.encoding))

    def iter_lines(self) -> Iterator[str]:
        """Yields the lines of the body as text, without their ends."""
        return self._converted(_text.Lines(self.encoding))

    def _converted(self, converter: Any) -> Iterator[Any]:
        piece = b"-"
        while piece:
            piece = self._piece(-1)
            yield from converter.feed(piece, not piece)

    def read(self, size: int = -1) -> bytes:
        """Returns up to `size` bytes, or the rest; b"" at the end. Raises FetchError if the
        fetch fails inside the body: iterate to keep the bytes before it."""
        if size == 0:
            return b""
        if size > 0:
            return self._piece(size)
        data, start = bytearray(), self._body.offset - len(self._rest)
        while True:
            try:
                piece = self._piece(-1)
            except BodyRestarted as restart:
                if restart.offset < start:
                    raise
                del data[restart.offset - start :]  # not returned yet
                continue
            if not piece:
                return bytes(data)
            data += piece


_help.complete(globals(), Client)
