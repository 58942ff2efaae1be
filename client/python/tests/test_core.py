"""The parts without input and output."""

import datetime
import unittest
from unittest import mock

import grpc

from fetchd import _address, _convert, _pool, contract, errors
from fetchd._body import Body
from fetchd._client import broken, check_size, ends_many, response_of, stream_request, task_of
from fetchd._response import Headers, charset_of
from fetchd._sync import StreamResponse

WireRequest = contract.message_class("fetchd.wire.FetchManyRequest")
SHUTDOWN = 34
OK = contract.HttpResponse(status_code=200)


class AddressTest(unittest.TestCase):
    def test_forms(self):
        for text, target, tls in [
            ("127.0.0.1:8080", "127.0.0.1:8080", None),
            ("fetchd.example:8080", "fetchd.example:8080", None),
            ("[::1]:8080", "[::1]:8080", None),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", False),
            ("http://[::1]:8080/", "[::1]:8080", False),
            ("http://fetchd.example", "fetchd.example:80", False),
            ("HTTPS://fetchd.example:8443", "fetchd.example:8443", True),
            ("https://fetchd.example/", "fetchd.example:443", True),
            ("dns:///fetchd.example:8080", "dns:///fetchd.example:8080", None),
            ("dns://9.9.9.9/fetchd.example:8080", "dns://9.9.9.9/fetchd.example:8080", None),
            ("dns:fetchd.example:8080", "dns:fetchd.example:8080", None),
            ("ipv4:10.0.0.1:8080,10.0.0.2:8080", "ipv4:10.0.0.1:8080,10.0.0.2:8080", None),
            ("unix:///run/fetchd.sock", "unix:///run/fetchd.sock", None),
        ]:
            with self.subTest(text):
                self.assertEqual(_address.parsed(text), (target, tls))

    def test_errors_say_what_to_give(self):
        for text, says in [
            ("", "the host is missing"),
            (":8080", "the host is missing"),
            ("fetchd.example", "the port is missing"),
            ("dns:///fetchd.example", "the port is missing"),
            ("dns:///", "the host is missing"),
            ("::1:8080", "an IPv6 address needs brackets"),
            ("127.0.0.1:http", "the port is 'http', not a number from 1 to 65535"),
            ("http://127.0.0.1:0", "the port is '0'"),
            ("http://127.0.0.1:", "the port is ''"),
            ("127.0.0.1:65536", "the port is '65536'"),
            ("http://127.0.0.1:8080/v1/fetch", "'/v1/fetch' follows the host and the port"),
            ("127.0.0.1:8080/", "'/' follows"),
            ("https://fetchd.example?a=b", "'?a=b' follows"),
            ("grpc://127.0.0.1:8080", "the scheme grpc:// is none of a service"),
            ("127.0.0.1 :8080", "the host is missing or invalid"),
            ("http://user:secret@fetchd.example:8080", "pass the token as token="),
        ]:
            with self.subTest(text), self.assertRaises(ValueError) as raised:
                _address.parsed(text)
            self.assertIn(says, str(raised.exception))
            self.assertIn("want HOST:PORT, http://HOST:PORT, https://HOST:PORT for TLS, or dns:///HOST:PORT", str(raised.exception))
            self.assertNotIn("secret", str(raised.exception))
        with self.assertRaisesRegex(TypeError, "target is int, want a str"):
            _address.parsed(8080)


class BodyTest(unittest.TestCase):
    def test_offsets(self):
        def head(offset=0):
            return contract.ResponseStarted(response=OK, body_offset_bytes=offset)

        def chunk(offset, data):
            return contract.BodyChunk(offset_bytes=offset, data=data)

        def end(size):
            return contract.FetchOutcome(kind=1, body_summary=contract.BodySummary(size_bytes=size))

        first, later = chunk(0, b"ab"), chunk(2, b"c")
        for name, events, want in [
            ("in order", [head(), first, later, end(3)], b"abc"),
            ("continued", [head(), first, head(2), later, end(3)], b"abc"),
            ("from a resume point", [head(2), later, end(3)], b"c"),
            ("from a byte that was not asked for", [head(4), chunk(4, b"c"), end(5)], errors.ContractError),
            ("from before the first byte", [head(-1), chunk(-1, b"c"), end(0)], errors.ContractError),
            ("restarted", [head(), first, head(), chunk(0, b"xyz"), end(3)], b"xyz"),
            ("restarted below a resume point", [head(3), chunk(3, b"cd"), head(), chunk(0, b"xyz"), end(3)], b"xyz"),
            ("emptied below a resume point", [head(3), chunk(3, b"cd"), head(), end(0)], b""),
            ("restarted at a later byte", [head(), first, head(1), chunk(1, b"xyz"), end(4)], b"axyz"),
            ("restarted, failed and continued", [head(), first, head(), head(2), later, end(3)], b"abc"),
            ("restarted by an empty body", [head(), first, head(), end(0)], b""),
            ("a gap", [head(), first, chunk(3, b"d"), end(4)], errors.ContractError),
            ("an overlap", [head(), first, chunk(1, b"bc"), end(3)], errors.ContractError),
            ("a body without ResponseStarted", [first, end(2)], errors.ContractError),
            ("shorter than the outcome says", [head(), first, end(3)], errors.ContractError),
        ]:
            with self.subTest(name):
                if want is errors.ContractError:
                    with self.assertRaises(want):
                        self.assembled(events)
                else:
                    self.assertEqual(self.assembled(events), want)

    def assembled(self, events):
        body, got = Body(3), bytearray()
        for event in events:
            if isinstance(event, contract.ResponseStarted):
                body.started(event)
                continue
            restart = body.chunk(event) if isinstance(event, contract.BodyChunk) else body.ended(event)
            if restart is not None:
                del got[restart - body.start :]
            if isinstance(event, contract.BodyChunk):
                got += event.data
        return bytes(got)


class Call(list):
    """A call of Fetch that has received these messages."""

    cancelled = False

    def __iter__(self):
        return self

    def __next__(self):
        if not self:
            raise StopIteration
        return self.pop(0)

    def cancel(self):
        self.cancelled = True


class StreamTest(unittest.TestCase):
    head = contract.FetchEvent(response_started=contract.ResponseStarted(response=OK))

    def chunk(self, offset, data):
        return contract.FetchEvent(body_chunk=contract.BodyChunk(attempt=1, offset_bytes=offset, data=data))

    def end(self, size):
        return contract.FetchEvent(outcome=contract.FetchOutcome(kind=1, response=OK, attempt_count=1, body_summary=contract.BodySummary(size_bytes=size)))

    def stream(self, *messages, **options):
        self.call = Call(contract.FetchResponse(events=events) for events in messages)
        return StreamResponse(self.call, options.get("on_event"), stream_request("GET", "http://o.example/", {}))

    def test_messages(self):
        """A message has any number of events."""
        events = [contract.FetchEvent(admitted={}), self.head, self.chunk(0, b"ab"), self.chunk(2, b"c"), contract.FetchEvent(), self.end(3)]
        for name, messages in [
            ("one message", [events]),
            ("one event each", [[event] for event in events]),
            ("messages without events", [[], events[:3], [], events[3:]]),
        ]:
            with self.subTest(name):
                seen = []
                response = self.stream(*messages, on_event=lambda event: seen.append(event.WhichOneof("event")))
                self.assertEqual((response.outcome, list(response.iter_bytes())), (None, [b"ab", b"c"]))
                self.assertEqual((seen, response.outcome.attempt_count), (["admitted", "response_started", "outcome"], 1))

    def test_restart(self):
        """The bytes before a restart are read first, although the restart arrived with them."""
        response = self.stream([self.head, self.chunk(0, b"ab"), self.head, self.chunk(0, b"xyz"), self.end(3)])
        self.assertEqual(response.read(2), b"ab")
        with self.assertRaises(errors.BodyRestarted) as raised:
            response.read(3)
        self.assertEqual((raised.exception.offset, response.read()), (0, b"xyz"))

    def test_event_after_the_outcome(self):
        for messages in [[self.head, self.chunk(0, b"a"), self.end(1), self.head]], [[self.head, self.chunk(0, b"a"), self.end(1), self.end(1)], [self.end(1)]]:
            response = self.stream(*messages)
            self.assertEqual(response.read(1), b"a")
            with self.assertRaisesRegex(errors.ContractError, "after the outcome"):
                response.read(1)
            self.assertTrue(self.call.cancelled)


class Streams:
    """A Pool whose streams the test answers by hand."""

    def __init__(self):
        self.opened = []
        self.pool = _pool.Pool(self.opened.append, lambda stream: None)
        self.over = []

    def start(self, count, **options):
        tasks = [task_of("GET", f"http://o.example/{i}", options, self.over.append, lambda: 0.0) for i in range(count)]
        for task in tasks:
            self.pool.submit(task)
        return tasks

    def sent(self, stream):
        """Takes all messages that can be sent, and returns the tags in each, without the hello."""
        messages = []
        while (data := stream.next_message()) is not None:
            if data:
                message = WireRequest.FromString(data)
                messages.append(([task.tag for task in message.tasks], list(message.cancel_tags)))
        return messages

    def answer(self, stream, *answers, draining=False):
        """answers are pairs of a task and a FetchEvent or a FetchOutcome."""
        message = contract.FetchManyResponse(draining=draining)
        for task, event in answers:
            if isinstance(event, contract.FetchOutcome):
                event = contract.FetchEvent(outcome=event)
            message.events.add(tag=task.tag, event=event)
        stream.receive(message.SerializeToString())


def done(body=b""):
    return contract.FetchOutcome(kind=1, response=OK, inline_body=body, body_summary=contract.BodySummary(size_bytes=len(body)))


def shutdown(exchanges=0):
    return contract.FetchOutcome(kind=4, exchange_count=exchanges, error=contract.FetchError(error_class=SHUTDOWN, failure_type=1, retryable=True))


def unavailable():
    return errors.UnavailableError("UNAVAILABLE", "gone")


class PoolTest(unittest.TestCase):
    def setUp(self):
        self.streams = Streams()

    def test_packing(self):
        """At most 16 tasks and about 1 MiB go into a message, and a large task alone."""
        self.streams.start(40)
        (stream,) = self.streams.opened
        self.assertEqual([len(tags) for tags, _ in self.streams.sent(stream)], [16, 16, 8])
        self.streams.start(5, content=b"x" * 400_000)
        self.assertEqual([len(tags) for tags, _ in self.streams.sent(stream)], [2, 2, 1])
        self.streams.start(2, content=b"x" * (1 << 20))
        self.assertEqual([len(tags) for tags, _ in self.streams.sent(stream)], [1, 1])

    def test_hello(self):
        """The first message is empty, so that a task is known not to be sent before there is a connection."""
        (task,) = self.streams.start(1)
        (stream,) = self.streams.opened
        self.assertEqual((stream.next_message(), task.sent), (b"", False))
        self.assertNotEqual(stream.next_message(), b"")
        self.assertTrue(task.sent)

    def test_many_streams(self):
        """A stream has at most 256 tasks, and tasks wait if all streams are full."""
        tasks = self.streams.start(_pool.MAX_STREAMS * _pool.STREAM_TASKS + 3)
        self.assertEqual(len(self.streams.opened), _pool.MAX_STREAMS)
        self.assertEqual({stream.load for stream in self.streams.opened}, {_pool.STREAM_TASKS})
        self.assertEqual(len(self.streams.pool.waiting), 3)
        stream = tasks[0].stream
        self.streams.sent(stream)
        self.streams.answer(stream, (tasks[0], done()))
        self.assertEqual((stream.load, len(self.streams.pool.waiting)), (_pool.STREAM_TASKS, 2))

    def test_spread(self):
        """Streams share the work before they are full, because each may lead to another replica."""
        self.streams.start(4 * _pool.SPREAD_TASKS)
        self.assertEqual([stream.load for stream in self.streams.opened], [_pool.SPREAD_TASKS] * 4)

    def test_draining(self):
        """A draining stream gets no more tasks, and is half-closed after its last outcome."""
        first = self.streams.start(2)
        (stream,) = self.streams.opened
        self.streams.sent(stream)
        self.streams.answer(stream, (first[0], done()), draining=True)
        self.assertFalse(stream.finished)
        (second,) = self.streams.start(1)
        self.assertIs(second.stream, self.streams.opened[1])
        self.streams.answer(stream, (first[1], done(b"x")))
        self.assertTrue(stream.finished)
        self.assertEqual(response_of(first[1]).content, b"x")

    def test_draining_with_unsent_tasks(self):
        """Tasks that were not sent to a draining service go to another stream."""
        first = self.streams.start(1)
        (stream,) = self.streams.opened
        self.streams.sent(stream)
        second = self.streams.start(2)
        self.streams.answer(stream, (first[0], done()), draining=True)
        self.assertEqual(([task.stream for task in second], stream.finished), ([self.streams.opened[1]] * 2, True))
        self.assertEqual(self.streams.sent(stream), [])

    def test_returned_by_draining_service(self):
        for name, returns, exchanges, streams, ok in [
            ("once", 1, 0, 2, True),
            ("twice", 2, 0, 3, True),
            ("always", 100, 0, 3, False),
            ("after a request was made", 1, 1, 1, False),
        ]:
            with self.subTest(name):
                rig = Streams()
                (task,) = rig.start(1)
                while not task.over:
                    stream = rig.opened[-1]
                    rig.sent(stream)
                    rig.answer(stream, (task, shutdown(exchanges) if returns > 0 else done()))
                    returns -= 1
                self.assertEqual((response_of(task).ok, len(rig.opened)), (ok, streams))

    def test_pauses(self):
        """Streams that a service ends without an outcome are replaced after longer and longer pauses."""
        for name, drain in [
            ("drained at once", lambda stream, task: self.streams.answer(stream, draining=True)),
            ("tasks returned", lambda stream, task: self.streams.answer(stream, (task, shutdown()))),
            ("ended at once", lambda stream, task: (self.streams.answer(stream), stream.end(None))),
        ]:
            with self.subTest(name):
                self.streams = Streams()
                for _ in range(9):
                    (task,) = self.streams.start(1)
                    stream = task.stream
                    self.streams.sent(stream)
                    drain(stream, task)
                (task,) = self.streams.start(1)
                pauses = sorted({round(stream.pause, 1) for stream in self.streams.opened})
                self.assertEqual(pauses, [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0])
                stream = task.stream
                self.streams.sent(stream)
                self.streams.answer(stream, (task, done()))
                self.streams.answer(stream, draining=True)
                (task,) = self.streams.start(1)
                self.assertEqual(task.stream.pause, 0)

    def test_broken_stream(self):
        """Tasks that were sent are lost. Others move to another stream if the service answered on this one."""
        for answered in False, True:
            with self.subTest(answered=answered):
                rig = Streams()
                tasks = rig.start(20)
                stream = rig.opened[0]
                stream.next_message(), stream.next_message()  # the hello, and 16 tasks
                if answered:
                    rig.answer(stream, (tasks[0], done()))
                stream.end(unavailable())
                lost = [task for task in tasks if isinstance(task.error, errors.LostError)]
                self.assertEqual(lost, tasks[1 if answered else 0 : 16])
                self.assertTrue(all(task.error.sent for task in lost))
                if answered:
                    self.assertEqual([task.stream for task in tasks[16:]], [rig.opened[1]] * 4)
                else:
                    self.assertEqual([type(task.error) for task in tasks[16:]], [errors.UnavailableError] * 4)
                    self.assertFalse(tasks[16].error.sent)

    def test_refused_stream(self):
        """A service that refuses the stream has seen no task; with a revoked token it may have."""
        for error, sent in [
            (errors.OverloadedError("RESOURCE_EXHAUSTED", "full"), False),
            (errors.RefusedError("UNAUTHENTICATED", "no token"), True),
        ]:
            rig = Streams()
            (task,) = rig.start(1)
            rig.sent(rig.opened[0])
            rig.opened[0].end(error)
            self.assertEqual((type(task.error), task.error.sent, str(task.error)), (type(error), sent, str(error)))
            self.assertTrue(ends_many(task.error))
        self.assertFalse(ends_many(errors.LostError("UNAVAILABLE", "gone", sent=True)))
        self.assertFalse(ends_many(errors.InvalidRequestError("INVALID_ARGUMENT", "url")))

    def test_broken_by_a_proxy(self):
        """A proxy that ends a stream, or answers for the service, leaves open whether requests were made."""
        rig = Streams()
        (task,) = rig.start(1)
        rig.sent(rig.opened[0])
        rig.opened[0].end(errors.ServiceError("INTERNAL", "Received RST_STREAM with error code 2"))
        self.assertEqual((type(task.error), task.error.sent), (errors.LostError, True))
        for code, text, sent, kind, says in [
            ("INTERNAL", "Received RST_STREAM with error code 2", True, errors.LostError, "permits less silence or shorter requests"),
            ("UNAVAILABLE", "Received http2 header with status: 504", False, errors.LostError, "a proxy in front of fetchd answered"),
            ("UNAVAILABLE", "health check call failed", False, errors.UnavailableError, "8080), or a proxy in front of fetchd cannot reach it"),
            ("UNIMPLEMENTED", "Received http2 header with status: 404", False, errors.ServiceError, "not the gRPC port of fetchd"),
            ("INTERNAL", "internal error", False, errors.ServiceError, "INTERNAL: internal error"),
        ]:
            with self.subTest(text):
                rpc = mock.Mock(**{"code.return_value": mock.Mock(), "details.return_value": text, "trailing_metadata.return_value": ()})
                rpc.code.return_value.name = code
                error = errors.service_error(rpc, sent)
                self.assertIs(type(error), kind)
                self.assertIn(says, str(error))

    def test_behind_a_proxy_that_answers(self):
        """Tasks that were sent are lost, and others were not sent."""
        rig = Streams()
        tasks = rig.start(20)
        rig.opened[0].next_message(), rig.opened[0].next_message()  # the hello, and 16 tasks
        rig.opened[0].end(errors.LostError("UNAVAILABLE", "Received http2 header with status: 504", sent=True))
        self.assertEqual({(type(task.error), task.error.sent) for task in tasks[:16]}, {(errors.LostError, True)})
        self.assertEqual({(type(task.error), task.error.sent) for task in tasks[16:]}, {(errors.UnavailableError, False)})

    def test_broken_fetch(self):
        """What a call of Fetch raises before its first message."""
        for code, text, once, kind, sent in [
            ("INTERNAL", "Received RST_STREAM with error code 2", False, errors.LostError, True),
            ("INTERNAL", "Received RST_STREAM with error code 2", True, errors.LostError, True),
            ("CANCELLED", "Received RST_STREAM with error code 8", False, errors.LostError, True),
            ("UNAVAILABLE", "Received http2 header with status: 502", False, errors.LostError, True),
            ("UNAVAILABLE", "failed to connect", False, errors.UnavailableError, True),
            ("UNAVAILABLE", "gone", True, errors.LostError, True),
            ("UNAUTHENTICATED", "no token", True, errors.RefusedError, False),
            ("UNIMPLEMENTED", "no such method", True, errors.ServiceError, False),
        ]:
            with self.subTest(f"{code} {text}", once=once):
                rpc = mock.Mock(**{"code.return_value": grpc.StatusCode[code], "details.return_value": text, "trailing_metadata.return_value": ()})
                error = broken(rpc, False, once, None)
                self.assertEqual((type(error), error.sent), (kind, sent))

    def test_ended_without_outcome(self):
        (task,) = self.streams.start(1)
        self.streams.sent(self.streams.opened[0])
        self.streams.opened[0].end(None)
        self.assertIsInstance(task.error, errors.ContractError)

    def test_cancel(self):
        sent, queued = self.streams.start(1) + [None]
        (stream,) = self.streams.opened
        self.streams.sent(stream)
        (queued,) = self.streams.start(1)
        self.streams.pool.cancel(queued, errors.FetchdError("cancelled"))
        self.streams.pool.cancel(sent, errors.FetchdError("cancelled"))
        self.assertEqual(self.streams.sent(stream), [([], [sent.tag])])
        self.assertEqual(self.streams.over, [queued, sent])
        self.streams.answer(stream, (sent, done()))  # its outcome arrives all the same
        self.assertEqual((stream.load, len(self.streams.over)), (0, 2))

    def test_deadline(self):
        (task,) = self.streams.start(1, timeout=10)
        self.assertEqual(task.deadline, 10)
        request = contract.FetchRequest.FromString(task.data)
        self.assertEqual(request.timeout_policy.total_timeout.ToMilliseconds(), 9500)
        self.streams.pool.expire(task)
        with self.assertRaises(TimeoutError):
            response_of(task)

    def chunks(self, task, *pieces, offset=0):
        answers = [(task, contract.FetchEvent(response_started=contract.ResponseStarted(response=OK, body_offset_bytes=offset)))]
        for piece in pieces:
            answers.append((task, contract.FetchEvent(body_chunk=contract.BodyChunk(offset_bytes=offset, data=piece))))
            offset += len(piece)
        return answers

    def test_chunks(self):
        """Chunks of tasks that arrive together are assembled by tag."""
        one, two = self.streams.start(2)
        (stream,) = self.streams.opened
        self.streams.sent(stream)
        mixed = [answer for pair in zip(self.chunks(one, b"ab", b"cd"), self.chunks(two, b"12", b"34")) for answer in pair]
        self.streams.answer(stream, *mixed)
        end = contract.FetchOutcome(kind=1, response=OK, body_summary=contract.BodySummary(size_bytes=4))
        self.streams.answer(stream, (two, end), (one, end))
        self.assertEqual((response_of(one).content, response_of(two).content), (b"abcd", b"1234"))

    def test_chunks_restarted(self):
        (task,) = self.streams.start(1)
        (stream,) = self.streams.opened
        self.streams.sent(stream)
        self.streams.answer(stream, *self.chunks(task, b"abcd"), *self.chunks(task, b"XY", offset=2))
        self.streams.answer(stream, (task, contract.FetchOutcome(kind=1, response=OK, body_summary=contract.BodySummary(size_bytes=4))))
        self.assertEqual(response_of(task).content, b"abXY")

    def test_chunks_over_the_limit(self):
        """A service that sends more than the limit does not fill the memory, and other tasks go on."""
        large, small = self.streams.start(2, body_policy={"max_size_bytes": 10})
        (stream,) = self.streams.opened
        self.streams.sent(stream)
        self.streams.answer(stream, *self.chunks(large, b"x" * 8, b"x" * 8), (small, done(b"ok")))
        with self.assertRaisesRegex(errors.ContractError, "10 bytes"):
            response_of(large)
        self.assertEqual(response_of(small).content, b"ok")
        self.assertEqual(self.streams.sent(stream), [([], [large.tag])])

    def test_close(self):
        sent = self.streams.start(20)
        self.streams.sent(self.streams.opened[0])
        queued = self.streams.start(1)
        self.streams.pool.close()
        self.assertEqual({(type(task.error), task.error.sent) for task in sent}, {(errors.LostError, True)})
        self.assertEqual([(type(task.error), task.error.sent) for task in queued], [(errors.UnavailableError, False)])
        (late,) = self.streams.start(1)
        self.assertEqual(late.error.message, "the client is closed")

    def test_download_is_bounded(self):
        """The profile download has no default limit that fits into memory."""
        for options, want in [
            ({"retry_policy": {"profile": "download"}}, 16 << 20),
            ({"retry_policy": {"profile": "download"}, "body_policy": {"max_size_bytes": 1 << 30}}, 1 << 30),
        ]:
            (task,) = self.streams.start(1, **options)
            self.assertEqual((contract.FetchRequest.FromString(task.data).body_policy.max_size_bytes, task.limit), (want, want))


class ConvertTest(unittest.TestCase):
    def request(self, method="GET", url="http://o.example/", **options):
        return _convert.request(method, url, options)

    def test_fields(self):
        request = self.request(
            "post",
            "http://o.example/?a=1#f",
            params={"b": "x y", "c": [1, 2]},
            headers={"A": "1"},
            json={"k": "ü"},
            retry_policy={"max_attempts": 5, "base_delay": 0.5, "max_delay": datetime.timedelta(minutes=1), "additional_status_codes": [418]},
            redirect_policy={"scope": "same_origin", "follow": False},
            precondition={"etags": ['"a"'], "last_modified_time": datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)},
            labels={"job": "nightly"},
            cookie_mode="within_fetch",
            integrity=None,
        )
        self.assertEqual((request.method, request.url), ("POST", "http://o.example/?a=1&b=x+y&c=1&c=2#f"))
        self.assertEqual([(h.name, h.value) for h in request.headers], [("A", "1"), ("Content-Type", "application/json")])
        self.assertEqual(request.body, b'{"k":"\\u00fc"}')
        self.assertEqual(request.retry_policy.base_delay.ToMilliseconds(), 500)
        self.assertEqual(request.retry_policy.max_delay.ToMilliseconds(), 60000)
        self.assertEqual(list(request.retry_policy.additional_status_codes), [418])
        self.assertEqual((request.redirect_policy.scope, request.redirect_policy.HasField("follow")), (3, True))
        self.assertEqual(request.precondition.last_modified_time.seconds, 1767225600)
        self.assertEqual((dict(request.labels), request.cookie_mode), ({"job": "nightly"}, 2))
        self.assertFalse(request.HasField("integrity"))

    def test_zero_is_not_unset(self):
        request = self.request(retry_policy={"base_delay": 0}, timeout_policy={})
        self.assertTrue(request.retry_policy.HasField("base_delay"))
        self.assertTrue(request.HasField("timeout_policy"))

    def test_bodies(self):
        for name, options, body, kind in [
            ("bytes", {"content": b"a"}, b"a", None),
            ("text", {"content": "ü"}, "ü".encode(), None),
            ("a form", {"data": {"a": "1", "b": "x y"}}, b"a=1&b=x+y", "application/x-www-form-urlencoded"),
            ("pairs", {"data": [("a", "1"), ("a", "2")]}, b"a=1&a=2", "application/x-www-form-urlencoded"),
            ("data as bytes", {"data": b"raw"}, b"raw", None),
            ("json with its own type", {"json": 1, "headers": {"content-type": "application/x"}}, b"1", "application/x"),
        ]:
            with self.subTest(name):
                request = self.request("POST", **options)
                types = [h.value for h in request.headers if h.name.lower() == "content-type"]
                self.assertEqual((request.body, types), (body, [kind] if kind else []))

    def test_errors_name_field_value_and_form(self):
        for name, options, kind, text in [
            ("an option of requests", {"retries": 3}, TypeError, 'retries is not an argument: use retry_policy={"max_attempts": 5}'),
            ("an unknown option", {"tries": 3}, TypeError, "tries is not an argument: the arguments are headers, params, cookies, auth, timeout, content, "),
            ("a misspelt option", {"header": {}}, TypeError, "header is not an argument, did you mean headers: the arguments are"),
            ("a token as auth", {"auth": "secret"}, TypeError, 'auth is a value (str), want a pair of user name and password; a token is headers={"Authorization": "Bearer ..."}'),
            ("auth and its header", {"auth": ("a", "b"), "headers": {"authorization": "c"}}, TypeError, "auth and headers['Authorization'] are given"),
            ("cookies and their header", {"cookies": {"a": "b"}, "headers": {"cookie": "c"}}, TypeError, "cookies and headers['Cookie'] are given"),
            ("a number as a cookie", {"cookies": {"a": 1}}, TypeError, "cookies is a value (dict), want a dict of str to str"),
            ("an unknown field", {"retry_policy": {"max_tries": 3}}, TypeError, "retry_policy.max_tries is not a field: the fields are profile, max_attempts"),
            ("a wrong type", {"retry_policy": {"max_attempts": "5"}}, TypeError, "retry_policy.max_attempts is '5' (str), want an int"),
            ("a bool for an int", {"retry_policy": {"max_attempts": True}}, TypeError, "retry_policy.max_attempts is True (bool), want an int"),
            ("too large", {"retry_policy": {"max_attempts": 1 << 40}}, ValueError, "retry_policy.max_attempts is 1099511627776, want -2147483648 to 2147483647"),
            ("an unknown value", {"redirect_policy": {"scope": "SAME_ORIGIN"}}, ValueError, "redirect_policy.scope is 'SAME_ORIGIN', want one of 'any', 'same_host', 'same_origin'"),
            ("a number for a value", {"redirect_policy": {"scope": 3}}, TypeError, "redirect_policy.scope is 3 (int), want one of 'any'"),
            ("text for a duration", {"retry_policy": {"base_delay": "5s"}}, TypeError, "retry_policy.base_delay is '5s' (str), want seconds or a timedelta"),
            ("an endless duration", {"retry_policy": {"base_delay": float("inf")}}, ValueError, "retry_policy.base_delay is inf, want a finite number"),
            ("text for a policy", {"retry_policy": "none"}, TypeError, "retry_policy is 'none' (str), want a dict"),
            ("text for a list", {"content_policy": {"accepted_media_types": "a/b"}}, TypeError, "content_policy.accepted_media_types is 'a/b' (str), want a list"),
            ("an item of a list", {"precondition": {"etags": [1]}}, TypeError, "precondition.etags[0] is 1 (int), want a str"),
            ("a time without a zone", {"precondition": {"last_modified_time": datetime.datetime(2026, 1, 1)}}, ValueError, "want a datetime with a time zone"),
            ("a number for a header", {"headers": {"A": 1}}, TypeError, "headers['A'] is int, want a str or bytes"),
            ("text for headers", {"headers": "A: 1"}, TypeError, "headers is a value (str), want a dict, or pairs"),
            ("two bodies", {"content": b"a", "json": 1}, TypeError, "content and json are given, want one of them"),
            ("two deliveries", {"body_policy": {"inline": {}, "digest": {}}}, TypeError, "body_policy.inline and body_policy.digest are given, want one of them"),
            ("a store and a delivery", {"store": "a", "body_policy": {"none": {}}}, TypeError, "store and body_policy.none are given, want one of them"),
            ("text for a delivery", {"body_policy": {"digest": "yes"}}, TypeError, "body_policy.digest is 'yes' (str), want a dict"),
            ("body", {"body": b"a"}, TypeError, "body is not an argument: use content, data or json"),
            ("a dict as content", {"content": {}}, TypeError, "content is a value (dict), want str, bytes or a file"),
        ]:
            with self.subTest(name), self.assertRaises(kind) as raised:
                self.request("GET", **options)
            self.assertIn(text, str(raised.exception))

    def test_no_secret_in_errors(self):
        with self.assertRaises(TypeError) as raised:
            self.request(headers={"Authorization": ["secret"]})
        self.assertNotIn("secret", str(raised.exception))

    def test_wrong_url(self):
        with self.assertRaisesRegex(TypeError, "url is None"):
            self.request("GET", None)

    def test_size(self):
        check_size(b"x" * (2 << 20))
        with self.assertRaises(errors.InvalidRequestError) as raised:
            check_size(b"x" * ((2 << 20) + 1))
        self.assertEqual(raised.exception.violations[0].field, "request")


class Refusal:
    """A grpc.RpcError with details."""

    def __init__(self, details):
        self.data = details

    def code(self):
        return grpc.StatusCode.INVALID_ARGUMENT

    def details(self):
        return "invalid request"

    def trailing_metadata(self):
        return [("other", "x"), ("grpc-status-details-bin", self.data)]


class ServiceErrorTest(unittest.TestCase):
    def test_details(self):
        wire = {name: contract.message_class("fetchd.wire." + name) for name in ("Status", "BadRequest", "ErrorInfo")}
        request, info = wire["BadRequest"](), wire["ErrorInfo"](reason="MEMORY")
        request.field_violations.add(field="url", description="has no host")
        status = wire["Status"]()
        for name, detail in ("BadRequest", request), ("ErrorInfo", info), ("Unknown", info):
            status.details.add(type_url="type.googleapis.com/google.rpc." + name, value=detail.SerializeToString())
        for name, data, violations, reason in [
            ("details", status.SerializeToString(), [("url", "has no host")], "memory"),
            ("no details", b"", [], ""),
            ("details that are not protobuf", b"\xff\xff\xff", [], ""),
        ]:
            with self.subTest(name):
                error = errors.service_error(Refusal(data))
                got = (type(error), error.code, error.message, [tuple(v) for v in error.violations], error.reason)
                self.assertEqual(got, (errors.InvalidRequestError, "INVALID_ARGUMENT", "invalid request", violations, reason))


class HeadersTest(unittest.TestCase):
    def test_headers(self):
        headers = Headers([("A", "1"), ("b", "2"), ("a", "3")])
        self.assertEqual((headers["a"], headers.get_all("A"), headers.get("c"), len(headers)), ("1, 3", ["1", "3"], None, 2))
        self.assertEqual(headers.pairs(), [("A", "1"), ("b", "2"), ("a", "3")])

    def test_charset(self):
        for value, want in [
            ("", "utf-8"),
            ("text/html", "utf-8"),
            ("text/html; charset=ISO-8859-1", "ISO-8859-1"),
            ('text/html;a=b; Charset="utf-16"', "utf-16"),
            ("text/html; charset=idna", "utf-8"),
            ("text/html; charset=nonsense", "utf-8"),
            ("text/html; charset=\x00", "utf-8"),
        ]:
            with self.subTest(value):
                self.assertEqual(charset_of(value), want)


class ContractTest(unittest.TestCase):
    def test_policies(self):
        """The types of policies name the fields and the values of the contract."""
        from fetchd import policies

        for name in "RedirectPolicy", "RetryPolicy", "TimeoutPolicy", "BodyPolicy", "StreamDelivery", "StoreDelivery", "ContentPolicy", "Precondition", "Integrity", "ExplainRequest":
            fields = set(getattr(contract, name).DESCRIPTOR.fields_by_name)
            self.assertEqual(set(getattr(policies, name).__annotations__), fields, name)

    def test_enum_name(self):
        error = contract.FetchError(error_class=15)
        self.assertEqual(contract.enum_name(error, "error_class"), "http_server_error")
        self.assertEqual(contract.enum_name(error, "failure_type"), "")
        error.error_class = 9999
        self.assertEqual(contract.enum_name(error, "error_class"), "9999")


if __name__ == "__main__":
    unittest.main()
