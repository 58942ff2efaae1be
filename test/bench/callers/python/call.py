"""Runs a closed loop of fetches, as a team would write it in Python.

    requests          one Session with urllib3's Retry, and a thread per fetch in flight
    requests-no-env   the same, but the Session ignores the environment
    aiohttp           one ClientSession, a coroutine per fetch in flight, and retries of 5xx
    grpc-unary        fetchd's FetchUnary over grpc.aio, and a coroutine per fetch in flight
    aiohttp-uvloop, grpc-unary-uvloop    the same two on uvloop instead of asyncio's loop
    grpc-package           AsyncClient.get of client/python, and a coroutine per fetch in flight
    grpc-package-threads   Client.get of client/python, and a thread per fetch in flight

test/bench/callers/README.md describes the arguments and the output. protoc and its plugin for
gRPC generate the stubs at the start, before the measurement.
"""

import asyncio
import functools
import importlib
import pathlib
import subprocess
import sys
import tempfile
import time

import measure

ROOT = pathlib.Path(__file__).resolve().parents[4]
TRIES = 3  # as many as fetchd makes by default
BACKOFF = 0.1  # seconds before the first retry, doubled for each more


def run_requests(options, length, span, trust_env=True):
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    # total counts retries.
    retry = Retry(total=TRIES - 1, backoff_factor=BACKOFF, status_forcelist=range(500, 600))
    session = requests.Session()
    # By default each fetch looks for proxies and passwords in the environment.
    session.trust_env = trust_env
    session.mount("http://", HTTPAdapter(pool_connections=1, pool_maxsize=options.open, max_retries=retry))

    def loop():
        while span.going:
            start = time.perf_counter()
            try:
                response = session.get(options.target, timeout=60)
                good = response.status_code == 200 and len(response.content) == length
            except requests.RequestException as error:
                good = span.failure(error)
            span.ended(start, good)

    measure.threads(options, span, loop)


async def run_aiohttp(options, length, span):
    import aiohttp

    async def fetch(session):
        for attempt in range(TRIES):
            if attempt > 0:
                await asyncio.sleep(BACKOFF * 2**attempt)
            async with session.get(options.target) as response:
                body = await response.read()
            if response.status < 500:
                return response.status == 200 and len(body) == length
        return False

    async def loop(session):
        while span.going:
            start = time.perf_counter()
            try:
                good = await fetch(session)
            except (aiohttp.ClientError, asyncio.TimeoutError) as error:
                good = span.failure(error)
            span.ended(start, good)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=options.open)) as session:
        await together(options, span, lambda: loop(session))


async def run_grpc_unary(options, length, span):
    import grpc

    pb, pb_grpc = stubs()
    success = pb.OUTCOME_KIND_SUCCESS
    # The other callers get only the outcome of a fetch too, not each attempt.
    level = pb.EVENT_LEVEL_OUTCOME

    async def loop(stub):
        while span.going:
            start = time.perf_counter()
            request = pb.FetchRequest(url=options.target, event_level=level)
            try:
                outcome = (await stub.FetchUnary(request, timeout=60)).outcome
                good = outcome.kind == success and outcome.response.status_code == 200 and len(outcome.inline_body) == length
            except grpc.RpcError as error:
                good = span.failure(error)
            span.ended(start, good)

    async with grpc.aio.insecure_channel(options.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = pb_grpc.FetchServiceStub(channel)
        await together(options, span, lambda: loop(stub))


async def run_package(options, length, span):
    fetchd = package()

    async def loop(client):
        while span.going:
            start = time.perf_counter()
            try:
                response = await client.get(options.target, timeout=60)
                good = response.status_code == 200 and len(response.content) == length
            except fetchd.FetchdError as error:
                good = span.failure(error)
            span.ended(start, good)

    async with fetchd.AsyncClient(options.grpc) as client:
        await together(options, span, lambda: loop(client))


def run_package_threads(options, length, span):
    fetchd = package()
    client = fetchd.Client(options.grpc)

    def loop():
        while span.going:
            start = time.perf_counter()
            try:
                response = client.get(options.target, timeout=60)
                good = response.status_code == 200 and len(response.content) == length
            except fetchd.FetchdError as error:
                good = span.failure(error)
            span.ended(start, good)

    with client:
        measure.threads(options, span, loop)


def package():
    """Returns the package fetchd, from its source."""
    sys.path.insert(0, str(ROOT / "client/python/src"))
    return importlib.import_module("fetchd")


async def together(options, span, loop):
    """Runs a coroutine of `loop` for each fetch in flight, and measures."""
    tasks = [asyncio.create_task(loop()) for _ in range(options.open)]
    await asyncio.sleep(options.warmup)
    span.begin()
    await asyncio.sleep(options.seconds)
    span.finish()
    await asyncio.gather(*tasks)


def stubs():
    """Returns the modules of fetchd.v1, generated from the proto file."""
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(
            ["/usr/bin/protoc", f"-I{ROOT / 'proto'}", f"--python_out={work}", f"--grpc_out={work}",
             "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin", "fetchd/v1/fetch.proto"],
            check=True,
        )  # fmt: skip
        sys.path.insert(0, work)
        try:
            return importlib.import_module("fetchd.v1.fetch_pb2"), importlib.import_module("fetchd.v1.fetch_pb2_grpc")
        finally:
            sys.path.remove(work)


def on_asyncio(run):
    return lambda *given: asyncio.run(run(*given))


def on_uvloop(run):
    def started(*given):
        import uvloop

        uvloop.install()
        asyncio.run(run(*given))

    return started


KINDS = {
    "requests": run_requests,
    "requests-no-env": functools.partial(run_requests, trust_env=False),
    "aiohttp": on_asyncio(run_aiohttp),
    "aiohttp-uvloop": on_uvloop(run_aiohttp),
    "grpc-package": on_asyncio(run_package),
    "grpc-package-threads": run_package_threads,
    "grpc-unary": on_asyncio(run_grpc_unary),
    "grpc-unary-uvloop": on_uvloop(run_grpc_unary),
}


def main():
    options = measure.arguments(KINDS, __doc__.partition("\n")[0])
    span = measure.Span()
    KINDS[options.kind](options, measure.body_length(options.target), span)
    span.report(options.kind)


if __name__ == "__main__":
    main()
