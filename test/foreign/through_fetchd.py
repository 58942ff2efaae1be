"""A plugin for pytest: requests and httpx fetch through fetchd, at FETCHD_TARGET. FOREIGN_LIST has the tests that
fail, below the sentence of client/python/README.md that says so. A listed test that passes is a failure."""

import os
import pathlib

import httpx
import pytest
import requests

import fetchd
from fetchd.httpx_transport import AsyncFetchdTransport, FetchdTransport
from fetchd.requests_adapter import FetchdAdapter

TARGET = os.environ["FETCHD_TARGET"]
# The originals do not retry. Their servers serve one request after the other, and some take 10 seconds.
POLICIES = {"retry_policy": {"max_attempts": 1}, "timeout_policy": {"header_timeout": 60, "attempt_timeout": 120, "total_timeout": 120}}
client = fetchd.Client(TARGET)


class PerLoop(httpx.AsyncBaseTransport):
    """A transport whose client is made in the event loop of its test."""

    through = None

    async def handle_async_request(self, request):
        if self.through is None:
            self.through = fetchd.AsyncClient(TARGET)
        return await AsyncFetchdTransport(self.through, **POLICIES).handle_async_request(request)

    async def aclose(self):
        if self.through is not None:
            await self.through.close()


def through(kind, make):
    original = kind._init_transport

    def init(self, *args, transport=None, app=None, **options):
        return original(self, *args, transport=make() if transport is None and app is None else transport, app=app, **options)

    kind._init_transport = init


def mounted(self, original=requests.Session.__init__):
    original(self)
    self.mount("http://", FetchdAdapter(client, **POLICIES))
    self.mount("https://", FetchdAdapter(client, **POLICIES))


requests.Session.__init__ = mounted
through(httpx.Client, lambda: FetchdTransport(client, **POLICIES))
through(httpx.AsyncClient, PerLoop)


def pytest_collection_modifyitems(items):
    listed, sentence = {}, ""
    for line in pathlib.Path(os.environ["FOREIGN_LIST"]).read_text().splitlines():
        if line.startswith("> "):
            sentence = line[2:]
        elif line and not line.startswith("#"):
            listed[line] = sentence
    for item in items:
        sentence = listed.pop(item.nodeid, None)
        if sentence is not None:
            item.add_marker(pytest.mark.xfail(reason=sentence, strict=True))
    assert not listed, f"there are no such tests: {', '.join(listed)}"
