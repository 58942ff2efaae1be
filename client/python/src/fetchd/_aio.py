"""The client for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, AsyncContextManager, AsyncIterable, AsyncIterator, Callable, Generic, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import grpc

from . import _client, _help, _text, contract
from ._pool import CLOSE_SECONDS, Pool, Stream, Task
from ._response import Response, Result
from .errors import BodyRestarted, FetchdError, UnavailableError, quota_wait, service_error, unreached

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._client import Defaults, Options, Request
    from .policies import Duration, ExplainRequest

R = TypeVar("R", bound="Union[str, Request, Mapping[str, Any]]")


class _Feed:
    """The call and the coroutines of one stream."""

    def __init__(self) -> None:
        self.call: Any = None  # None until the pause of the stream is over
        self.signal = asyncio.Event()
        self.running: List[Any] = []


class _Fetch:
    """A call of Fetch. It is made again after the wait that a quota of the caller asks for."""

    def __init__(self, driver: _Driver, data: bytes, timeout: Optional[float]):
        self.driver, self.data, self.answered = driver, data, False
        self.deadline = None if timeout is None else driver.loop.time() + timeout
        self.outage = driver.outage(timeout)
        self.open()

    @property
    def left(self) -> Optional[float]:
        return None if self.deadline is None else max(0.0, self.deadline - self.driver.loop.time())

    def open(self) -> None:
        self.call = self.driver.methods.fetch(self.data, timeout=self.left, metadata=self.driver.metadata)

    async def read(self) -> Any:
        while True:
            try:
                message = await self.call.read()
            except grpc.RpcError as error:
                failed = service_error(error)
                wait = None if self.answered else quota_wait(failed, self.left)
                if wait is not None:
                    await asyncio.sleep(wait)
                elif self.answered or not unreached(failed) or not await self.driver.reconnected(self.outage):
                    raise
                self.open()
            else:
                self.answered = self.driver.answered = True
                return message

    def cancel(self) -> None:
        self.call.cancel()

    def cancelled(self) -> bool:
        return self.call.cancelled()  # type: ignore[no-any-return]


class _Driver:
    """Runs a Pool in one event loop. It does not know its AsyncClient, so that the client can
    be collected."""

    def __init__(self, settings: _client.Settings):
        self.loop = asyncio.get_running_loop()
        self.channel = settings.channel(grpc.aio)
        self.methods = _client.Methods(self.channel)
        self.metadata = settings.metadata
        self.pool = Pool(self._open, lambda stream: stream.driver.signal.set())
        self._timer: Any = None
        self.answered = False

    def _open(self, stream: Stream) -> None:
        feed = stream.driver = _Feed()
        if stream.pause:
            feed.running = [self.loop.create_task(self._open_later(stream, feed))]
        else:
            self._start(stream, feed)

    def _start(self, stream: Stream, feed: _Feed) -> None:
        feed.call = self.methods.many(metadata=self.metadata)
        feed.running += [self.loop.create_task(self._write(stream, feed)), self.loop.create_task(self._read(stream, feed))]

    async def _open_later(self, stream: Stream, feed: _Feed) -> None:
        try:
            await asyncio.sleep(stream.pause)
            self._start(stream, feed)
        except asyncio.CancelledError:
            stream.end(self.pool.closed)
        except Exception as unexpected:  # the tasks of the stream must end
            stream.end(unexpected)

    async def _write(self, stream: Stream, feed: _Feed) -> None:
        try:
            while True:
                feed.signal.clear()
                message = stream.next_message()
                if message is not None:
                    await feed.call.write(message)
                elif stream.finished:
                    await feed.call.done_writing()
                    return
                else:
                    await feed.signal.wait()
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # _read gets the reason
        except Exception:
            feed.call.cancel()  # _read ends the tasks
            raise

    async def _read(self, stream: Stream, feed: _Feed) -> None:
        error: Optional[Exception] = None
        outage = None
        try:
            while True:
                error = await self._receive(stream, feed.call)
                outage = outage or self.outage()
                if not isinstance(error, UnavailableError) or not stream.unsent or not await self.reconnected(outage) or not stream.unsent:
                    break
                await self._reopen(stream, feed)
        except asyncio.CancelledError:
            error = self.pool.closed
        except Exception as unexpected:  # the tasks of the stream must end
            error = unexpected
            feed.call.cancel()
        stream.end(error)

    async def _receive(self, stream: Stream, call: Any) -> Optional[Exception]:
        """Handles the messages of a call. Returns its error."""
        try:
            while (data := await call.read()) is not grpc.aio.EOF:
                self.answered = True
                stream.receive(data)
        except grpc.RpcError as broken:
            return service_error(broken)
        return None

    async def _reopen(self, stream: Stream, feed: _Feed) -> None:
        """Makes the call of a stream again, which has sent no task."""
        *_, writer, reader = feed.running
        writer.cancel()
        await asyncio.wait([writer])
        stream.hello = False
        feed.call = self.methods.many(metadata=self.metadata)
        feed.running = [self.loop.create_task(self._write(stream, feed)), reader]

    def outage(self, left: Optional[float] = None) -> _client.Outage:
        return _client.Outage(self.loop.time(), self.answered, left)

    async def reconnected(self, outage: _client.Outage) -> bool:
        """Waits for a connection. Reports whether a call that was not sent may be made again."""
        pause = outage.wait(self.loop.time())
        if pause is None:
            return False
        await asyncio.sleep(pause)
        try:
            await self.methods.check(b"", timeout=max(0.0, outage.until - self.loop.time()), wait_for_ready=True, metadata=self.metadata)
        except grpc.RpcError:
            pass  # there is a connection, or the next try says why there is none
        return self.pool.closed is None

    async def unary(self, call: Callable[..., Any], request: Any, timeout: Optional[float]) -> Any:
        """Makes a call that fetches nothing. Waits for the service."""
        start, outage, left = self.loop.time(), self.outage(timeout), timeout
        while True:
            try:
                return await call(request, timeout=left, metadata=self.metadata)
            except grpc.RpcError as error:
                if not unreached(service_error(error)) or not await self.reconnected(outage):
                    raise
            left = None if timeout is None else max(0.0, start + timeout - self.loop.time())

    async def fetch(self, request: _client.StreamRequest) -> Any:
        """Starts a call of Fetch."""
        timeout = request.timeout
        if request.once:
            start = self.loop.time()
            try:
                await self.unary(self.methods.check, b"", timeout)
            except grpc.RpcError as error:
                _client.connected(error, request.timeout)
            if timeout is not None:
                timeout = max(0.0, start + timeout - self.loop.time())
        return _Fetch(self, request.data, timeout)

    def submit(self, task: Task) -> None:
        self.pool.submit(task)
        if task.deadline is not None and (self._timer is None or task.deadline < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(task.deadline, self._expire)

    def _expire(self) -> None:
        now, following = self.loop.time(), None
        for task in list(self.pool.tasks()):
            if task.deadline is None or task.over:
                continue
            if task.deadline <= now:
                self.pool.expire(task)
            elif following is None or task.deadline < following:
                following = task.deadline
        self._timer = None if following is None else self.loop.call_at(following, self._expire)

    def cancel(self, task: Task) -> None:
        if not task.over:
            self.pool.cancel(task, FetchdError("the caller cancelled the fetch"))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.pool.close()
        feeds = [stream.driver for stream in self.pool.open]
        for task in [task for feed in feeds if feed.call is None for task in feed.running]:
            task.cancel()
        running = [task for feed in feeds for task in feed.running]
        if running:
            await asyncio.wait(running, timeout=CLOSE_SECONDS)
        for feed in feeds:
            if feed.call is not None:
                feed.call.cancel()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.channel.close()


class AsyncClient(_client.Session):
    """A client of fetchd for asyncio, with the methods of Client. It belongs to the event loop
    in which it is first used. Close it, or use `async with`."""

    _closed = True

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
        self._settings = _client.Settings(target, credentials, token, metadata, service_config, options)
        self._driver: Optional[_Driver] = None
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.target!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if not self._closed and self._driver is not None:
            _client.unclosed(self)
            driver = self._driver
            if not driver.loop.is_closed():
                driver.loop.call_soon_threadsafe(lambda: driver.loop.create_task(driver.close()))

    async def close(self) -> None:
        """Cancels the fetches in flight, and closes the connections."""
        self._closed = True
        if self._driver is not None:
            await self._driver.close()

    aclose = close

    def _open(self) -> _Driver:
        if self._closed:
            raise ValueError(f"{self!r} is closed")
        driver = self._driver
        if driver is None:
            driver = self._driver = _Driver(self._settings)
        elif driver.loop is not asyncio.get_running_loop():
            raise RuntimeError(f"{self!r} belongs to another event loop: create one for each")
        return driver

    async def get(self, url: str, **options: Unpack[Options]) -> Response:
        """Fetches a URL with GET.

        {outcome}

        {arguments}"""
        return await self.request("GET", url, **options)

    async def head(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a HEAD, and follows redirects.

        {outcome}

        {arguments}"""
        return await self.request("HEAD", url, **options)

    async def options(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends OPTIONS.

        {outcome}

        {arguments}"""
        return await self.request("OPTIONS", url, **options)

    async def post(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a POST, which is sent again only if it certainly reached no origin or retry_policy
        allows it.

        {outcome}

        {arguments}"""
        return await self.request("POST", url, **options)

    async def put(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a PUT.

        {outcome}

        {arguments}"""
        return await self.request("PUT", url, **options)

    async def patch(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a PATCH, which is sent again only if it certainly reached no origin or retry_policy
        allows it.

        {outcome}

        {arguments}"""
        return await self.request("PATCH", url, **options)

    async def delete(self, url: str, **options: Unpack[Options]) -> Response:
        """Sends a DELETE.

        {outcome}

        {arguments}"""
        return await self.request("DELETE", url, **options)

    async def request(self, method: str, url: str, **options: Unpack[Options]) -> Response:
        """Fetches a URL with any method. If the coroutine is cancelled, so is the fetch.

        {outcome}

        {arguments}"""
        driver = self._open()
        over = driver.loop.create_future()
        task = _client.task_of(method, url, options, lambda _: None if over.done() else over.set_result(None), driver.loop.time, self)
        try:
            driver.submit(task)
            await over
        except BaseException:
            driver.cancel(task)
            raise
        return _client.response_of(task)

    def stream(self, method: str, url: str, **options: Unpack[Options]) -> AsyncContextManager[AsyncStreamResponse]:
        """Fetches a URL whose body you read piece by piece: `async with client.stream("GET", url)
        as response`. The body may have any size.

        The response is there when the first bytes of the body have arrived, or the fetch has ended.
        A ServiceError is raised if there is no outcome.

        {arguments}"""
        return self._opening(method, url, options)

    def _opening(self, method: str, url: str, options: Options) -> _Opening:
        return _Opening(self, _client.stream_request(method, url, options, self), options.get("on_event"))

    def events(self, method: str, url: str, **options: Unpack[Options]) -> AsyncIterator[contract.FetchEvent]:
        """Fetches a URL and yields its events as they arrive: attempts, waits, the head of the
        response, and the chunks of a body that does not come in the outcome. The last event has
        the outcome; a fetch that failed is an outcome too. A ServiceError is raised if there is none.

            async for event in client.events("GET", url):
                if event.HasField("attempt_finished"):
                    print(event.attempt_finished.response.status_code)
            print(fetchd.enum_name(event.outcome, "kind"))

        Closing the iterator cancels the fetch. event_level="all" yields every event.

        {events}

        {arguments}"""
        return self._events(_client.stream_request(method, url, options, self, events=True))

    async def _events(self, request: _client.StreamRequest) -> AsyncIterator[contract.FetchEvent]:
        state, call = _client.EventState(request), await self._open().fetch(request)
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                for event in state.events(message):
                    yield event
        except grpc.RpcError as error:
            if state.outcome is None:
                raise state.broken(error) from None
        finally:
            call.cancel()
        yield state.last()

    def fetch_many(
        self,
        requests: Union[Iterable[R], AsyncIterable[R]],
        *,
        open: int = 64,
        on_event: Optional[Callable[[R, contract.FetchEvent], None]] = None,
    ) -> AsyncIterator[Result[R]]:
        """Fetches many URLs, and yields a Result for each as it ends.

        requests: URLs, or dicts with a "url", a "method" and the arguments of get. An iterable or
            an asynchronous one, which is read while fewer than `open` fetches are in flight.
        on_event: called with the request and each of its events.

        {many}"""
        _client.not_one(requests)
        return _Many(self._open, requests, max(1, open), on_event, self).run()

    async def explain(self, *, timeout: Optional[Duration] = 20, **observation: Unpack[ExplainRequest]) -> contract.ExplainResponse:
        """{explain}"""
        driver = self._open()
        request, limit = _client.explain_request(observation), _client.explain_timeout(timeout)
        try:
            return await driver.unary(driver.methods.explain, request, limit)  # type: ignore[no-any-return]
        except grpc.RpcError as error:
            raise service_error(error, False, limit) from None


class _Many(Generic[R]):
    """One run of fetch_many."""

    def __init__(
        self, opened: Callable[[], _Driver], requests: Any, open: int, on_event: Optional[Callable[[R, contract.FetchEvent], None]], session: _client.Session
    ):
        self.opened, self.requests, self.limit, self.on_event, self.session = opened, requests, open, on_event, session
        self.arrived: "asyncio.Queue[Any]" = asyncio.Queue()  # of tasks that are over, results, and None
        self.tasks: "dict[Task, R]" = {}  # without those whose result was yielded
        self.refused = 0  # results of invalid requests in arrived
        self.capacity = asyncio.Event()  # a result was yielded
        self.more = True
        self.stopped: Optional[Exception] = None

    async def run(self) -> AsyncIterator[Result[R]]:
        driver = self.opened()
        feeder: "Optional[asyncio.Future[None]]" = None
        source: Iterator[R] = iter(())
        if hasattr(self.requests, "__aiter__"):
            feeder = asyncio.ensure_future(self.feed(driver))
        else:
            source = iter(self.requests)
        try:
            while True:
                while feeder is None and self.more and len(self.tasks) < self.limit:
                    try:
                        given = next(source)
                    except StopIteration:
                        self.more = False
                        break
                    refused = self.start(driver, given)
                    if refused is not None:
                        yield refused
                if not self.more and not self.tasks and not self.refused:
                    break
                item = await self.arrived.get()
                if item is None and feeder is not None:
                    await feeder  # raises what the source raised
                    continue
                if isinstance(item, Result):
                    self.refused -= 1
                    result = item
                else:
                    result = self.finish(item)
                self.capacity.set()
                yield result
        finally:
            if feeder is not None:
                feeder.cancel()
                await asyncio.gather(feeder, return_exceptions=True)
            for task in self.tasks:
                driver.cancel(task)
        if self.stopped is not None:
            raise self.stopped

    async def feed(self, driver: _Driver) -> None:
        """Starts the fetches of an asynchronous source. It is a separate task, because a source
        may wait for the results of earlier requests."""
        try:
            async for given in self.requests:
                refused = self.start(driver, given)
                if refused is not None:
                    self.refused += 1
                    self.arrived.put_nowait(refused)
                while self.more and len(self.tasks) + self.refused >= self.limit:
                    self.capacity.clear()
                    await self.capacity.wait()
                if not self.more:
                    break
        finally:
            self.more = False
            self.arrived.put_nowait(None)

    def start(self, driver: _Driver, given: R) -> Optional[Result[R]]:
        """Starts a fetch. Returns its result if the request is invalid."""
        try:
            method, url, options = _client.many_request(given)
            on_event = self.on_event
            if on_event is not None:
                options = {**options, "on_event": lambda event: on_event(given, event)}
            task = _client.task_of(method, url, options, self.arrived.put_nowait, driver.loop.time, self.session)
        except Exception as error:  # whatever is wrong with one request
            return Result(given, None, error)
        self.tasks[task] = given
        driver.submit(task)
        return None

    def finish(self, task: Task) -> Result[R]:
        given = self.tasks.pop(task)
        try:
            response = _client.response_of(task)
        except Exception as error:
            if _client.ends_many(error) and self.more:
                self.more, self.stopped = False, error
            return Result(given, None, error)
        return Result(given, response, response.error)


def _cancelling() -> bool:
    """Reports whether the running task is being cancelled. Before Python 3.11 that is not known."""
    task = asyncio.current_task()
    return task is not None and hasattr(task, "cancelling") and task.cancelling() > 0


class _Opening(AsyncContextManager["AsyncStreamResponse"]):
    """The context manager of a streamed response."""

    def __init__(self, client: AsyncClient, request: _client.StreamRequest, on_event: Any):
        self._client, self._request, self._on_event = client, request, on_event
        self._opened: Optional[AsyncStreamResponse] = None

    async def __aenter__(self) -> AsyncStreamResponse:
        self._opened = await self.open()
        return self._opened

    async def open(self) -> AsyncStreamResponse:
        """Returns the response, which the caller closes."""
        call = await self._client._open().fetch(self._request)
        response = AsyncStreamResponse(call, self._on_event, self._request)
        try:
            while not response._ready and response._end is None:
                await response._advance()
            response._opened()
        except BaseException:  # the caller gets nothing to close
            call.cancel()
            raise
        return response

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await self._opened.close()


class AsyncStreamResponse(_client.StreamState):
    """A response whose body you read piece by piece."""

    async def close(self) -> None:
        """Cancels the fetch if it is in flight. Does not wait."""
        self._close()

    async def _advance(self) -> None:
        while not self._next_event():
            try:
                message = await self._call.read()
            except asyncio.CancelledError:
                if self._end is None or not self._call.cancelled() or _cancelling():
                    raise
                return  # the response was closed, or the service violates the API
            except grpc.RpcError as error:
                self._broken(error)
                return
            if message is grpc.aio.EOF:
                self._ended()
                return
            self._feed(message)

    async def _piece(self, size: int) -> bytes:
        while True:
            piece = self._take(size)
            if piece is not None:
                return piece
            await self._advance()

    def iter_bytes(self, chunk_size: Optional[int] = None) -> AsyncIterator[bytes]:
        """Yields the body in pieces of this size; None is as they arrive."""
        return self._converted(_text.Pieces(chunk_size))

    def iter_text(self, chunk_size: Optional[int] = None) -> AsyncIterator[str]:
        """Yields the body as text, in pieces of so many characters; None is as they arrive."""
        return self._converted(_text.Pieces(chunk_size, self.encoding))

    def iter_lines(self) -> AsyncIterator[str]:
        """Yields the lines of the body as text, without their ends."""
        return self._converted(_text.Lines(self.encoding))

    async def _converted(self, converter: Any) -> AsyncIterator[Any]:
        piece = b"-"
        while piece:
            piece = await self._piece(-1)
            for converted in converter.feed(piece, not piece):
                yield converted

    async def read(self, size: int = -1) -> bytes:
        """Returns up to `size` bytes, or the rest; b"" at the end. Raises FetchError if the
        fetch fails inside the body: iterate to keep the bytes before it."""
        if size == 0:
            return b""
        if size > 0:
            return await self._piece(size)
        data, start = bytearray(), self._body.offset - len(self._rest)
        while True:
            try:
                piece = await self._piece(-1)
            except BodyRestarted as restart:
                if restart.offset < start:
                    raise
                del data[restart.offset - start :]  # not returned yet
                continue
            if not piece:
                return bytes(data)
            data += piece

    aread, aclose, aiter_bytes, aiter_text, aiter_lines = read, close, iter_bytes, iter_text, iter_lines


_help.complete(globals(), AsyncClient)
