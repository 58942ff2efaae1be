"""A service whose answers lack one field or event, have a wrong one, or never end."""

import time
import unittest
from concurrent import futures

import grpc
import httpx
import requests

import fetchd
from fetchd.httpx_transport import FetchdTransport
from fetchd.requests_adapter import FetchdAdapter
from rig import Blocking, Case

Fetched = fetchd.contract.FetchResponse
Asked = fetchd.contract.FetchRequest
ManyAsked = fetchd.contract.message_class("fetchd.wire.FetchManyRequest")
ManyFetched = fetchd.contract.message_class("fetchd.wire.FetchManyResponse")
HEARTBEAT = fetchd.contract.FetchEvent(heartbeat={})


def mutants(message):
    """Yields copies of a message that lack a field, or in which it is wrong, also within other messages."""
    for field, value in message.ListFields():
        copy = type(message)()
        copy.CopyFrom(message)
        copy.ClearField(field.name)
        yield field.name + " is missing", copy
        for wrong in wrongs(field):
            copy = type(message)()
            copy.CopyFrom(message)
            setattr(copy, field.name, wrong)
            yield f"{field.name} is {wrong}", copy
        if field.message_type is None:
            continue
        repeated = field.label == field.LABEL_REPEATED
        for name, inner in mutants(value[0] if repeated else value):
            copy = type(message)()
            copy.CopyFrom(message)
            (getattr(copy, field.name)[0] if repeated else getattr(copy, field.name)).CopyFrom(inner)
            yield f"{field.name}.{name}", copy


def wrongs(field):
    if field.label == field.LABEL_REPEATED or field.message_type is not None:
        return ()
    if field.enum_type is not None:
        return (99, -1)
    if field.cpp_type == field.CPPTYPE_INT32:
        return (-(2**31), 2**31 - 1)
    if field.cpp_type == field.CPPTYPE_INT64:
        return (-(2**63), 2**63 - 1)
    return ()


def wrong(events):
    """Yields sequences of events that differ from the given ones in one place."""
    for i, event in enumerate(events):
        before, after = events[:i], events[i + 1 :]
        yield f"event {i} is missing", before + after
        yield f"event {i} is the last", before
        yield f"event {i} is repeated", before + [event, event] + after
        if i:
            yield f"event {i} is too early", before[:-1] + [event, before[-1]] + after
        for name, mutant in mutants(event):
            yield f"event {i}: {name}", before + [mutant] + after


class Script(grpc.GenericRpcHandler):
    """Answers http://script.test/N with events[N], and anything else with heartbeats that never end."""

    def __init__(self):
        self.events = []

    def service(self, details):
        name = details.method.rpartition("/")[2]
        if name == "Fetch":
            return grpc.unary_stream_rpc_method_handler(self.fetch)
        return grpc.stream_stream_rpc_method_handler(self.many) if name == "FetchMany" else None

    def play(self, url, context):
        number = url.rpartition("/")[2]
        if number.isdigit():
            yield from self.events[int(number)]
        else:
            while context.is_active():
                yield HEARTBEAT
                time.sleep(0.01)

    def fetch(self, data, context):
        for event in self.play(Asked.FromString(data).url, context):
            yield Fetched(events=[event]).SerializeToString()

    def many(self, messages, context):
        for data in messages:
            for task in ManyAsked.FromString(data).tasks:
                over = False
                for event in self.play(Asked.FromString(task.request).url, context):
                    over = over or event.HasField("outcome")
                    answer = ManyFetched()
                    answer.events.add(tag=task.tag, event=event.SerializeToString())
                    yield answer.SerializeToString()
                if not over:
                    return


class WrongTest(Case):
    kind = fetchd.Client

    def setUp(self):
        self.script = Script()
        server = grpc.server(futures.ThreadPoolExecutor(20), handlers=[self.script])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, 0)
        self.target = f"127.0.0.1:{port}"
        self.client = self.kind(self.target, timeout=20)
        self.addCleanup(self.client.close)

    def record(self, url):
        with fetchd.Client(self.service.target) as client:
            return list(client.events("GET", url, event_level="all", body_policy={"stream": {}}))

    def streamed(self, url):
        with self.client.stream("GET", url) as response:
            data = response.read()
            return data, response.outcome is not None and response.ok

    def of_events(self, url):
        data = bytearray()
        for event in self.client.events("GET", url):
            if event.HasField("body_chunk"):
                del data[event.body_chunk.offset_bytes :]
                data += event.body_chunk.data
        return bytes(data) + event.outcome.inline_body, fetchd.enum_name(event.outcome, "kind") == "success"

    def many(self, url):
        (result,) = self.client.fetch_many([url])
        if result.error is not None:
            raise result.error
        return result.response.content, True

    def got(self, url):
        response = self.client.get(url)
        return response.content, response.ok

    def ways(self):
        return [self.got, self.streamed, self.of_events, self.many]

    def test_wrong_answers(self):
        size = 2000
        body = self.record(self.url("body", f"503/200:size={size}"))
        want = b"".join(event.body_chunk.data for event in body)
        self.assertEqual(len(want), size)
        names = []
        for right, events in [(want, body), (None, self.record(self.url("gone", "404:body=gone")))]:
            for name, sequence in wrong(events):
                self.script.events.append(sequence)
                names.append((right, name))
        for number, (right, name) in enumerate(names):
            ways = self.ways()
            way = ways[number % len(ways)]
            for call in {way, ways[0]}:
                with self.subTest(f"{call.__name__}, {name}, {'a body' if right else 'a failure'}"):
                    try:
                        data, ok = call(f"http://script.test/{number}")
                    except (fetchd.FetchdError, requests.RequestException, httpx.HTTPError) as error:
                        self.assertTrue(str(error))
                        continue
                    if ok:
                        self.assertEqual((len(data), data == right), (size, True))

    def test_heartbeats_only(self):
        self.client = self.kind(self.target, timeout=0.3)
        self.addCleanup(self.client.close)
        for call in self.ways():
            with self.subTest(call.__name__):
                began = time.monotonic()
                with self.assertRaises((TimeoutError, requests.Timeout, httpx.TimeoutException)):
                    call("http://script.test/endless")
                self.assertLess(time.monotonic() - began, 15)


class AsyncWrongTest(WrongTest):
    kind = Blocking


class AdapterWrongTest(WrongTest):
    def ways(self):
        return [self.requests, self.httpx]

    def requests(self, url):
        with requests.Session() as session:
            session.trust_env = False
            session.mount("http://", FetchdAdapter(self.client))
            response = session.get(url)
            return response.content, response.ok

    def httpx(self, url):
        with httpx.Client(transport=FetchdTransport(self.client)) as http:
            response = http.get(url)
            return response.content, response.is_success


if __name__ == "__main__":
    unittest.main()
