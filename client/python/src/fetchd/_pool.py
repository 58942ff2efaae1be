"""The fetches of a client over a few streams of FetchMany, without input and output.

A driver (threads or asyncio) opens the calls, sends next_message and passes on what arrives.
It guards everything here with one lock, if it has threads.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Set, Type

from . import contract
from ._body import Body, check_outcome, check_size
from .errors import BROKEN, ContractError, DeadlineError, FetchdError, LostError, OverloadedError, RefusedError, ServiceError, UnavailableError, late

STREAM_TASKS = 256
# A stream with so many tasks gets company, so that more than one replica has work.
SPREAD_TASKS = 64
SPREAD_STREAMS = 4
MAX_STREAMS = 40
MESSAGE_TASKS = 16
MESSAGE_BYTES = 1 << 20
TASK_BYTES = 2 << 20
CLOSE_SECONDS = 1.0  # for the streams to end by themselves
MAX_SENDS = 3  # of a task that draining services return
# Seconds before a stream is opened after one that ended without an outcome. They double with each.
FIRST_PAUSE = 0.1
LAST_PAUSE = 5.0
DEFAULT_BODY_BYTES = 16 << 20

_Request = contract.message_class("fetchd.wire.FetchManyRequest")
_Responses = contract.message_class("fetchd.wire.FetchManyResponse")
_Event = contract.FetchEvent
_SHUTDOWN = contract.FetchError.DESCRIPTOR.fields_by_name["error_class"].enum_type.values_by_name["ERROR_CLASS_SHUTDOWN"].number


class Task:
    """One fetch. When it is over, `outcome` or `error` is set, and `done` has been called."""

    __slots__ = ("data", "limit", "deadline", "undelivered", "done", "on_event", "tag", "stream", "sent", "sends", "body", "received", "outcome", "error", "over", "timeout", "limited", "resume")

    def __init__(
        self,
        data: bytes,
        done: Callable[["Task"], object],
        limit: int = DEFAULT_BODY_BYTES,
        deadline: Optional[float] = None,
        on_event: Optional[Callable[[contract.FetchEvent], None]] = None,
        undelivered: bool = False,
        timeout: Optional[float] = None,
        limited: bool = False,
        resume: int = 0,
    ):
        self.data = data  # the FetchRequest
        self.limit = limit  # of a body that arrives in chunks
        self.deadline = deadline  # by the clock of the driver
        self.undelivered = undelivered  # the caller wants no body
        self.resume = resume  # the resume point of the request
        self.timeout = timeout  # as the caller has set it
        self.limited = limited  # the total_timeout of the request follows from it
        self.done = done
        self.on_event = on_event
        self.tag = ""
        self.stream: Optional[Stream] = None
        self.sent = False
        self.sends = 0
        self.body: Optional[Body] = None
        self.received: Any = b""
        self.outcome: Optional[contract.FetchOutcome] = None
        self.error: Optional[Exception] = None
        self.over = False

    def fail(self, error: Exception) -> None:
        """Ends the task without an outcome."""
        if not self.over:
            self.over, self.error = True, error
            self.done(self)


class Stream:
    """One call of FetchMany."""

    __slots__ = ("pool", "tasks", "queue", "cancels", "hello", "answered", "fruitful", "leaving", "driver", "pause")

    def __init__(self, pool: "Pool"):
        self.pool = pool
        self.tasks: Dict[str, Task] = {}  # sent and without an outcome, by tag
        self.queue: Deque[Task] = deque()  # to be sent
        self.cancels: List[str] = []
        self.hello = False
        self.answered = False
        self.fruitful = False  # an outcome arrived, other than of a task that was returned
        self.leaving = False  # it accepts no more tasks
        # The driver waits so long before the call, so that a service that drains each stream at
        # once does not get new connections without end.
        self.pause = min(FIRST_PAUSE * 2 ** (pool.fruitless - 1), LAST_PAUSE) if pool.fruitless else 0.0
        self.pause, pool.asked = max(self.pause, pool.asked), 0.0
        self.driver: Any = None  # what the driver keeps for it

    @property
    def load(self) -> int:
        return len(self.tasks) + len(self.queue)

    @property
    def finished(self) -> bool:
        """Reports whether nothing more is sent, so that the call is half-closed."""
        return self.leaving and not self.tasks and not self.queue

    @property
    def unsent(self) -> bool:
        """Reports whether the service has no task of the stream, so that the call can be made again."""
        return not (self.answered or self.tasks or self.leaving)

    def next_message(self) -> Optional[bytes]:
        """Returns the next message to send, or None.

        The first one is empty. Until it is sent there is no connection, so that all tasks are
        known not to have been sent."""
        if not self.hello:
            self.hello = True
            return b""
        if not self.queue and not self.cancels:
            return None
        message = _Request()
        if self.cancels:
            message.cancel_tags.extend(self.cancels)
            self.cancels = []
        size, queue, add = 0, self.queue, message.tasks.add
        for _ in range(min(MESSAGE_TASKS, len(queue))):
            task = queue[0]
            size += len(task.data)
            if size > MESSAGE_BYTES and size > len(task.data):
                break
            queue.popleft()
            task.sent = True
            task.sends += 1
            self.tasks[task.tag] = task
            add(tag=task.tag, request=task.data)
        return message.SerializeToString()  # type: ignore[no-any-return]

    def receive(self, data: bytes) -> None:
        """Handles a message of the service."""
        message = _Responses.FromString(data)
        self.answered = True
        if message.draining:
            self.leave()
        for answer in message.events:
            task = self.tasks.get(answer.tag)
            if task is None:
                continue
            event = _Event.FromString(answer.event)
            if event.HasField("outcome"):
                del self.tasks[answer.tag]
                if not task.over:
                    self._outcome(task, event.outcome)
            elif not task.over:
                try:
                    self._event(task, event)
                except Exception as error:  # ContractError, or one of the caller's on_event
                    self.cancels.append(answer.tag)
                    self.pool.wake(self)
                    task.fail(error)
        if self.pool.waiting:
            self.pool.fill()
        if self.leaving and self.finished:
            self.pool.wake(self)

    def _outcome(self, task: Task, outcome: contract.FetchOutcome) -> None:
        if outcome.HasField("error") and outcome.error.error_class == _SHUTDOWN and outcome.exchange_count == 0:
            self.leave()  # it may not have said so yet
            if task.sends < MAX_SENDS:
                task.body, task.received = None, b""
                self.pool.submit(task)
                return
        else:
            self.fruitful, self.pool.fruitless = True, 0
        try:
            check_outcome(outcome)
            if not task.undelivered:
                check_size(outcome, task.body, task.resume)
            if task.body is not None:
                restart = task.body.ended(outcome)
                if restart is not None:
                    del task.received[restart - task.body.start :]
            if outcome.HasField("inline_body"):
                task.received = outcome.inline_body
                outcome.ClearField("inline_body")
            task.outcome = outcome
        except ContractError as error:
            task.error = error
        task.over = True
        task.done(task)

    def _event(self, task: Task, event: contract.FetchEvent) -> None:
        kind = event.WhichOneof("event")
        if kind == "body_chunk":
            if task.body is None:
                task.body = Body(task.resume)
            restart = task.body.chunk(event.body_chunk)
            if not task.received:
                task.received = bytearray()
            if restart is not None:
                del task.received[restart - task.body.start :]
            task.received += event.body_chunk.data
            if len(task.received) > task.limit:
                raise ContractError(f"the body has more than {task.limit} bytes, the limit of the request")
            return
        if kind == "response_started":
            if task.body is None:
                task.body = Body(task.resume)
            task.body.started(event.response_started)
        if task.on_event is not None and kind is not None and kind != "heartbeat":
            task.on_event(event)

    def leave(self) -> None:
        """Gives the stream no more tasks. Those that were not sent move to another stream."""
        if not self.leaving:
            self.leaving = True
            if self.answered and not self.fruitful:
                self.pool.fruitless = min(self.pool.fruitless + 1, 16)
            self.pool.streams.remove(self)
            queue, self.queue = self.queue, deque()
            for task in queue:
                self.pool.submit(task)
            self.pool.wake(self)

    def end(self, error: Optional[Exception]) -> None:
        """Handles the end of the call. Tasks that were not sent move to another stream if the
        service has answered on this one."""
        sent, queue, self.queue = list(self.tasks.values()), self.queue, deque()
        self.tasks.clear()
        again = self._refused(error)
        if again:
            self.pool.asked = max(self.pool.asked, again)
        self.leave()
        for task in sent:
            if again and not task.over:
                task.sends -= 1
                self.pool.submit(task)
            else:
                task.fail(self._lost(error))
        self.pool.wake(self)  # finished
        self.pool.open.discard(self)
        unsent = error or UnavailableError("UNAVAILABLE", "the service ended the stream")
        if isinstance(unsent, LostError):  # a proxy answered
            unsent = UnavailableError(unsent.code, unsent.message)
        for task in queue:
            if (self.answered or again) and self.pool.closed is None:
                self.pool.submit(task)
            else:
                task.fail(unsent)
        self.pool.fill()

    def _refused(self, error: Optional[Exception]) -> float:
        """Returns the wait that the service asked for when it refused the stream, or 0. No task was started then."""
        return (error.retry_in or 0.0) if isinstance(error, OverloadedError) and not self.answered else 0.0

    def _lost(self, error: Optional[Exception]) -> Exception:
        if error is None:
            return ContractError("the call ended without the outcome of this fetch; requests may have been made")
        if not isinstance(error, ServiceError):
            return error
        kind: Type[ServiceError] = type(error)
        if kind is UnavailableError or kind is ServiceError and error.code in BROKEN:
            kind = LostError
        elif not self.answered and (kind is OverloadedError or error.code == "UNIMPLEMENTED"):
            return error  # the service has not accepted the stream
        elif not self.answered and kind is RefusedError:
            return kind(error.code, error.message, error.violations, error.reason, sent=True, policy=error.policy)  # or has revoked the token since
        text = f"the stream broke before the outcome arrived, and requests may have been made: {error.message}"
        return kind(error.code, text, error.violations, error.reason, sent=True)


class Pool:
    """The streams of a client."""

    def __init__(self, open_stream: Callable[[Stream], None], wake: Callable[[Stream], object]):
        self.open_stream = open_stream
        self.wake = wake  # next_message or finished may have changed
        self.open: Set[Stream] = set()  # those whose call has not ended
        self.streams: List[Stream] = []  # those that accept tasks
        self.waiting: Deque[Task] = deque()  # for a stream with capacity
        self.closed: Optional[FetchdError] = None
        self.asked = 0.0  # seconds that the service asked for when it refused the last stream
        self.fruitless = 0  # streams in a row that a service has ended without an outcome
        self._tags = 0

    def submit(self, task: Task) -> None:
        """Sends a task, for the first time or again."""
        if self.closed is not None:
            task.fail(self.closed)
            return
        self._tags += 1
        task.tag, task.sent, task.stream = str(self._tags), False, None
        try:
            stream = self._choose()
        except Exception as error:  # of open_stream; the stream that ends may have more tasks to move
            task.fail(error)
            return
        if stream is None:
            self.waiting.append(task)
            return
        task.stream = stream
        stream.queue.append(task)
        self.wake(stream)

    def _choose(self) -> Optional[Stream]:
        best, count = None, len(self.streams)
        if count == 1:
            best = self.streams[0]
        elif count:
            best = min(self.streams, key=lambda stream: stream.load)
        load = best.load if best is not None else STREAM_TASKS
        if load >= STREAM_TASKS and count >= MAX_STREAMS:
            return None
        if best is None or load >= STREAM_TASKS or (load >= SPREAD_TASKS and count < SPREAD_STREAMS):
            best = Stream(self)
            self.open_stream(best)  # first: nothing ends the tasks of a stream that is not open
            self.open.add(best)
            self.streams.append(best)
        return best

    def fill(self) -> None:
        """Gives waiting tasks to streams that have capacity again."""
        while self.waiting and (len(self.streams) < MAX_STREAMS or min(s.load for s in self.streams) < STREAM_TASKS):
            task = self.waiting.popleft()
            if not task.over:
                self.submit(task)

    def cancel(self, task: Task, error: Exception) -> None:
        """Ends a task for its caller, and cancels it in the service if it was sent."""
        stream = task.stream
        if task.over:
            return
        if stream is not None and task.sent:
            stream.cancels.append(task.tag)
            self.wake(stream)
        elif stream is not None and task in stream.queue:
            stream.queue.remove(task)
            self.wake(stream)
        task.fail(error)

    def expire(self, task: Task) -> None:
        """Ends a task whose deadline has passed."""
        self.cancel(task, DeadlineError("DEADLINE_EXCEEDED", late(task.timeout), sent=task.sent))

    def tasks(self) -> Iterator[Task]:
        """Yields all tasks."""
        for stream in self.open:
            yield from stream.tasks.values()
            yield from stream.queue
        yield from self.waiting

    def close(self) -> None:
        """Ends all tasks for their callers. The streams are half-closed when the service has
        answered for those that are cancelled."""
        if self.closed is None:
            self.closed = UnavailableError("CANCELLED", "the client is closed")
        lost = LostError("CANCELLED", "the client was closed before the outcome arrived, and requests may have been made", sent=True)
        for task in list(self.tasks()):
            self.cancel(task, lost if task.sent else self.closed)
        self.waiting.clear()
        for stream in list(self.streams):
            stream.leave()
