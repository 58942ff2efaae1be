"""Calls a running fetchd with grpcio, and checks its answers.

Usage: main.py HOST:PORT ORIGIN_URL KEY_PREFIX

The origin is cmd/origin. The URL tells it what to do: /cycle/KEY/503/200 answers 503,
then 200, then starts again. .ci/examples starts both, and compares the output with
client/examples/expected.txt and with the origin's log.

The stubs are generated at run time from the proto file, by grpcio-tools or by protoc
with its plugin for gRPC. client/python has a client that needs less code.
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
MAX_FETCHES = 4  # --max-fetches of the service in .ci/examples
LIMIT = 60  # deadline in seconds of the calls that do not test deadlines


def stubs():
    """Generates and imports the modules of fetchd.v1."""
    with tempfile.TemporaryDirectory() as work:
        arguments = [f"-I{ROOT / 'proto'}", f"--python_out={work}", "fetchd/v1/fetch.proto"]
        protoc = ["protoc", *arguments, f"--grpc_out={work}", f"--plugin=protoc-gen-grpc={plugin()}"]
        tools = [sys.executable, "-m", "grpc_tools.protoc", *arguments, f"--grpc_python_out={work}"]
        # Old grpcio-tools do not support optional fields.
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
    # Do not use the proxy of the environment for a service on this machine.
    return grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0), *options])


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: got {got!r}, want {want!r}")


def name(enum, number):
    """The name of a value without the prefix of its enum."""
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
        """A request that the origin answers with these steps. Retries do not wait."""
        return pb.FetchRequest(
            url=f"{self.origin}/cycle/{self.prefix}{key}/{steps}",
            retry_policy=pb.RetryPolicy(base_delay={"seconds": 0}),
            **fields,
        )

    def unary(self, stub):
        """FetchUnary: one answer with the body inside."""
        request = self.request("unary", "503/200:body=hello")
        answer = stub.FetchUnary(pb.FetchUnaryRequest(request=request), timeout=LIMIT)
        statuses = " ".join(str(a.response.status_code) for a in answer.attempts)
        print(f"unary: {describe(answer.outcome)}, statuses {statuses}, body {answer.outcome.inline_body.decode()}")

        # A failure of the origin is an outcome, never a gRPC status.
        request = self.request("missing", "404")
        answer = stub.FetchUnary(pb.FetchUnaryRequest(request=request), timeout=LIMIT)
        print(f"missing: {describe(answer.outcome)}")

        # A gRPC status is about the request or the service.
        try:
            stub.FetchUnary(pb.FetchUnaryRequest(request=pb.FetchRequest(url="no URL")), timeout=LIMIT)
        except grpc.RpcError as error:
            print(f"refused: {error.code().name}")
        else:
            sys.exit("an invalid URL was accepted")

    def stream(self, stub):
        """Fetch: events as they happen, and the body in chunks."""
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
        """FetchMany: a list over one stream. Outcomes arrive as fetches end, with their tags."""
        steps = {"many-a": "200:body=one", "many-b": "404", "many-c": "503/200:body=three"}
        tasks = [pb.Task(tag=tag, request=self.request(tag, step)) for tag, step in steps.items()]
        outcomes = {}
        # The end of the iterator half-closes the stream. The call ends after the last outcome.
        for answer in stub.FetchMany(iter([pb.FetchManyRequest(tasks=tasks)]), timeout=LIMIT):
            for response in answer.responses:
                check("outcomes of " + response.tag, response.tag in outcomes, False)
                outcomes[response.tag] = response.response.outcome
        check("tags", sorted(outcomes), sorted(steps))
        for tag in sorted(outcomes):
            print(f"{tag}: {describe(outcomes[tag])}, {len(outcomes[tag].inline_body)} bytes")

    def cancel(self, stub):
        """Cancelling the call cancels the request to the origin."""
        # Without a hold-back, bytes are delivered as they arrive.
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
            sys.exit("a cancelled call succeeded")

    def deadline(self, stub):
        """The service sends the outcome DEADLINE before the deadline of the call."""
        request = self.request("deadline", "silent")
        answer = stub.FetchUnary(pb.FetchUnaryRequest(request=request), timeout=6)
        print(f"deadline: {describe(answer.outcome)}")

    def service_config(self, stub):
        """With the published service config gRPC retries a rejected call."""
        held = []
        for i in range(MAX_FETCHES):
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
                sys.exit("the service had a free slot")
        pending = stub.FetchUnary.future(request, timeout=LIMIT)
        time.sleep(0.1)  # time for one rejection; the call succeeds without it too
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
