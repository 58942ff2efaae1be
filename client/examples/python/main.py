"""Calls a running fetchd with grpcio, and checks what it answers.

Usage: main.py HOST:PORT ORIGIN_URL KEY_PREFIX

The origin is cmd/origin: a URL says which faults it commits, so that
/cycle/KEY/503/200 answers 503, then 200, then 503 again. .ci/examples starts both, and holds what
is printed here against client/examples/expected.txt and the origin's log.

Stubs are made at run time from the one proto file, by grpcio-tools or by protoc
with its plugin for gRPC. client/python has a client with less to write.
"""

import hashlib
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[3]
SERVICE_CONFIG = ROOT / "deploy/grpc/service-config.json"
PLACES = 4  # fetches that the service, as .ci/examples starts it, has under way at once
LIMIT = 60  # seconds that a call may take, where the time is not the point


def stubs():
    """The modules of fetchd.v1, made from the proto file."""
    with tempfile.TemporaryDirectory() as work:
        arguments = [f"-I{ROOT / 'proto'}", f"--python_out={work}", "fetchd/v1/fetch.proto"]
        protoc = ["protoc", *arguments, f"--grpc_out={work}", f"--plugin=protoc-gen-grpc={plugin()}"]
        tools = [sys.executable, "-m", "grpc_tools.protoc", *arguments, f"--grpc_python_out={work}"]
        # Old grpcio-tools do not know optional fields.
        if subprocess.run(tools, capture_output=True, check=False).returncode != 0:
            subprocess.run(protoc, check=True)
        sys.path.insert(0, work)
        try:
            return importlib.import_module("fetchd.v1.fetch_pb2"), importlib.import_module("fetchd.v1.fetch_pb2_grpc")
        finally:
            sys.path.remove(work)


def plugin():
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = [path for path in (pathlib.Path(f, "grpc_python_plugin") for f in folders) if path.is_file()]
    if not found:
        sys.exit("install grpcio-tools, or protoc with grpc_python_plugin (Debian: protobuf-compiler-grpc, libprotobuf-dev)")
    return found[0]


pb, pb_grpc = stubs()


def connect(target, *options):
    # A proxy of the environment is not for a service on this machine.
    return grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0), *options])


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: got {got!r}, want {want!r}")


def name(enum, number):
    """The name of a value, without what all names of its enum begin with."""
    prefix = enum.Name(0)[: -len("UNSPECIFIED")]
    return enum.Name(number)[len(prefix) :]


def describe(outcome):
    """An outcome in one line."""
    parts = [name(pb.OutcomeKind, outcome.kind)]
    if outcome.HasField("response"):
        parts[0] += f" {outcome.response.status_code}"
    if outcome.HasField("error"):
        error = outcome.error
        parts += [name(pb.ErrorClass, error.error_class), name(pb.FailureType, error.failure_type)]
        parts += ["retryable" if error.retryable else "final"]
    return ", ".join([*parts, f"rule {outcome.rule}", f"{outcome.exchanges} exchanges"])


class Example:
    def __init__(self, target, origin, prefix):
        self.target, self.origin, self.prefix = target, origin, prefix

    def request(self, key, steps, **fields):
        """What the origin answers with these steps, tried again at once."""
        return pb.FetchRequest(
            url=f"{self.origin}/cycle/{self.prefix}{key}/{steps}",
            retry_policy=pb.RetryPolicy(base_delay={"seconds": 0}),
            **fields,
        )

    def unary(self, stub):
        """One call and one answer, the body inside."""
        request = self.request("unary", "503/200:body=hello")
        answer = stub.FetchUnary(pb.FetchUnaryRequest(request=request), timeout=LIMIT)
        statuses = " ".join(str(a.response.status_code) for a in answer.attempts)
        print(f"unary: {describe(answer.outcome)}, statuses {statuses}, body {answer.outcome.inline_body.decode()}")

        # What the origin does is an outcome, never a status of gRPC.
        request = self.request("missing", "404")
        answer = stub.FetchUnary(pb.FetchUnaryRequest(request=request), timeout=LIMIT)
        print(f"missing: {describe(answer.outcome)}")

        # A status speaks of the request or of the service.
        try:
            stub.FetchUnary(pb.FetchUnaryRequest(request=pb.FetchRequest(url="no URL")), timeout=LIMIT)
        except grpc.RpcError as error:
            print(f"refused: {error.code().name}")
        else:
            sys.exit("a bad URL was not refused")

    def stream(self, stub):
        """Attempts as they happen, and the body in pieces."""
        body, last = b"", None
        for event in stub.Fetch(self.request("stream", "503/429:retry-after=0/200:size=100000"), timeout=LIMIT):
            check("event after the outcome", last, None)
            kind = event.WhichOneof("event")
            if kind == "body_chunk":
                check("offset", event.body_chunk.offset_bytes, len(body))
                body += event.body_chunk.data
            elif kind == "attempt_finished":
                finished = event.attempt_finished
                decision = finished.retry_decision
                verdict, source = name(pb.RetryVerdict, decision.verdict), name(pb.DelaySource, decision.delay_source)
                print(f"stream: attempt {finished.attempt}, status {finished.response.status_code}, {verdict}, wait of {source}, rule {decision.rule}")
            elif kind == "outcome":
                last = event.outcome
        check("digest", hashlib.sha256(body).hexdigest(), last.body_summary.sha256)
        print(f"stream: {describe(last)}, {len(body)} bytes")

    def many(self, stub):
        """A list over one stream; outcomes come as fetches end, by tag."""
        steps = {"many-a": "200:body=one", "many-b": "404", "many-c": "503/200:body=three"}
        tasks = [pb.Task(tag=tag, request=self.request(tag, step)) for tag, step in steps.items()]
        outcomes = {}
        # The sequence ends: that half-closes the stream, and the call ends with the last outcome.
        for answer in stub.FetchMany(iter([pb.FetchManyRequest(tasks=tasks)]), timeout=LIMIT):
            for response in answer.responses:
                check("outcomes of " + response.tag, response.tag in outcomes, False)
                outcomes[response.tag] = response.response.outcome
        check("tags", sorted(outcomes), sorted(steps))
        for tag in sorted(outcomes):
            print(f"{tag}: {describe(outcomes[tag])}, {len(outcomes[tag].inline_body)} bytes")

    def cancel(self, stub):
        """Cancelling the call ends the request to the origin."""
        # Bytes go out as they come: nothing is held back for a retry.
        call = stub.Fetch(self.request("cancel", "200:size=1000,stall=100", body_policy={"hold_back_bytes": 0}), timeout=LIMIT)
        received = 0
        try:
            for event in call:
                received += len(event.body_chunk.data)
                if received == 100:
                    call.cancel()
        except grpc.RpcError as error:
            print(f"cancel: {received} bytes, {error.code().name}")
        else:
            sys.exit("a cancelled call ended well")

    def deadline(self, stub):
        """The service keeps a part of the deadline back, to tell the outcome in."""
        request = self.request("deadline", "silent")
        answer = stub.FetchUnary(pb.FetchUnaryRequest(request=request), timeout=6)
        print(f"deadline: {describe(answer.outcome)}")

    def service_config(self, stub):
        """With the published service config a refused call is made again."""
        held = []
        for i in range(PLACES):
            call = stub.Fetch(self.request(f"held{i}", "200:size=1000,stall=100", body_policy={"hold_back_bytes": 0}), timeout=LIMIT)
            next(event for event in call if event.WhichOneof("event") == "body_chunk")
            held.append(call)

        request = pb.FetchUnaryRequest(request=self.request("config", "200"))
        with connect(self.target) as plain:
            try:
                pb_grpc.FetchServiceStub(plain).FetchUnary(request, timeout=LIMIT)
            except grpc.RpcError as error:
                refusal = error.code().name
            else:
                sys.exit("the service had a place left")
        pending = stub.FetchUnary.future(request, timeout=LIMIT)
        time.sleep(0.1)  # so that it is refused once; without that it would pass all the same
        for call in held:
            call.cancel()
        print(f"config: without it {refusal}, with it {describe(pending.result().outcome)}")


def main(target, origin, prefix):
    example = Example(target, origin, prefix)
    with connect(target, ("grpc.service_config", SERVICE_CONFIG.read_text())) as channel:
        stub = pb_grpc.FetchServiceStub(channel)
        example.unary(stub)
        example.stream(stub)
        example.many(stub)
        example.cancel(stub)
        example.deadline(stub)
        example.service_config(stub)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
