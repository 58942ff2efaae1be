"""Calls a running fetchd from Python and checks what it answers.

Usage: client.py HOST:PORT ORIGIN_URL

The two modules of fetchd.v1 are made by protoc from fetchd/v1/fetch.proto and
must be on the PYTHONPATH; .ci/foreign-client does that and starts the service.
"""

import sys

import grpc
from fetchd.v1 import fetch_pb2, fetch_pb2_grpc

DEADLINE = 20  # seconds, for each call


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: got {got!r}, want {want!r}")


def attempts_of(stream):
    """Prints the events of one fetch; returns its attempts and its outcome."""
    attempts, outcome = 0, None
    for response in stream:
        event = response.WhichOneof("event")
        print(f"  {response.sequence} {event}{detail(response, event)}")
        check("events after the outcome", outcome, None)
        if event == "attempt_finished":
            attempts += 1
        elif event == "outcome":
            outcome = response.outcome
    return attempts, outcome


def detail(response, event):
    if event == "attempt_finished":
        finished = response.attempt_finished
        verdict = fetch_pb2.RetryVerdict.Name(finished.retry_decision.verdict)
        return f": status {finished.response.status_code}, {verdict}"
    if event == "outcome":
        return f": {fetch_pb2.OutcomeKind.Name(response.outcome.kind)}"
    return ""


def fetch(stub, origin):
    """A 503 and then a 200: two attempts, each told, and success."""
    request = fetch_pb2.FetchRequest(url=f"{origin}/s/py1/503/200")
    attempts, outcome = attempts_of(stub.Fetch(request, timeout=DEADLINE))
    check("attempts told", attempts, 2)
    check("attempts of the outcome", outcome.attempts, 2)
    check("kind", outcome.kind, fetch_pb2.OUTCOME_KIND_SUCCESS)
    check("status", outcome.response.status_code, 200)


def fetch_unary(stub, origin):
    """The same in one call, the body inline and the attempts as a list."""
    request = fetch_pb2.FetchRequest(url=f"{origin}/s/py2/503/200")
    answer = stub.FetchUnary(fetch_pb2.FetchUnaryRequest(request=request), timeout=DEADLINE)
    statuses = [attempt.response.status_code for attempt in answer.attempts]
    print(f"  statuses {statuses}, {len(answer.outcome.inline_body)} bytes inline")
    check("statuses", statuses, [503, 200])
    check("kind", answer.outcome.kind, fetch_pb2.OUTCOME_KIND_SUCCESS)
    check("size", answer.outcome.body_summary.size_bytes, len(answer.outcome.inline_body))


def refused(stub):
    """A URL that is none is the caller's fault: a gRPC status, no outcome."""
    try:
        list(stub.Fetch(fetch_pb2.FetchRequest(url="not a URL"), timeout=DEADLINE))
    except grpc.RpcError as error:
        print(f"  {error.code().name}: {error.details()}")
        check("status", error.code(), grpc.StatusCode.INVALID_ARGUMENT)
    else:
        sys.exit("a bad URL was not refused")


def main(address, origin):
    # A proxy of the environment is not for a service on this machine.
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = fetch_pb2_grpc.FetchServiceStub(channel)
        print("Fetch")
        fetch(stub, origin)
        print("FetchUnary")
        fetch_unary(stub, origin)
        print("Fetch of a bad URL")
        refused(stub)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
