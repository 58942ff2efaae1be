"""A program that uses the package and passes mypy --strict."""

import asyncio
import datetime
from typing import List, Optional

import httpx
import requests

import fetchd
from fetchd.httpx_transport import AsyncFetchdTransport, FetchdTransport
from fetchd.requests_adapter import FetchdAdapter


def fetch(client: fetchd.Client, url: str) -> Optional[bytes]:
    policy = fetchd.RetryPolicy(max_attempts=5, base_delay=0.5, max_delay=datetime.timedelta(minutes=1))
    response = client.get(url, timeout=30, headers={"Accept": "text/html"}, retry_policy=policy, redirect_policy={"scope": "same_origin"})
    try:
        response.raise_for_outcome()
    except fetchd.RateLimitedError as error:
        wait: Optional[float] = error.retry_after
        print(error.error_class, error.status_code, wait)
        return None
    except fetchd.ServiceError as error:
        print(error.code, [violation.field for violation in error.violations])
        return None
    hops: List[str] = [hop.url for hop in response.outcome.hops]
    print(response.headers["content-type"], response.elapsed.total_seconds(), hops)
    return response.content


def save(client: fetchd.Client, url: str, name: str) -> None:
    with client.stream("GET", url, on_event=show) as response, open(name, "wb") as file:
        for piece in response.iter_bytes():
            file.write(piece)


def store(client: fetchd.Client, url: str) -> Optional[int]:
    stored = client.get(url, store="archive", key="2026/report.pdf").stored
    return stored.size_bytes if stored is not None else None


def show(event: fetchd.contract.FetchEvent) -> None:
    if event.HasField("attempt_finished"):
        decision = event.attempt_finished.retry_decision
        print(decision.retry.delay.ToTimedelta() if decision.HasField("retry") else fetchd.enum_name(decision, "stop_reason"))


def many(client: fetchd.Client, urls: List[str]) -> int:
    requests_: List[fetchd.Request] = [{"url": url, "method": "HEAD", "timeout": 5} for url in urls]
    failed = 0
    for result in client.fetch_many(requests_, open=32):
        if result.error is not None:
            print(result.request["url"], result.error)
            failed += 1
    return failed


def familiar(client: fetchd.Client, url: str) -> List[str]:
    response = client.put(url, auth=("user", "password"), cookies={"a": "b"}, params={"page": 2}, headers={"X-A": None})
    response.raise_for_status().encoding = "latin-1"
    print([past.url for past in response.history], response.links, response.cookies, response.reason_phrase)
    with client.stream("GET", url) as streamed:
        return list(streamed.iter_lines())


def watch(client: fetchd.Client, url: str) -> Optional[int]:
    for event in client.events("GET", url, event_level="all"):
        if event.HasField("outcome"):
            return event.outcome.attempt_count
    return None


def through_requests(client: fetchd.Client) -> int:
    with requests.Session() as session:
        session.mount("https://", FetchdAdapter(client, retry_policy={"max_attempts": 5}))
        return session.get("https://example.com/").status_code


async def asynchronously() -> None:
    async with fetchd.AsyncClient("127.0.0.1:8080") as client:
        response = await client.post("https://example.com/", json={"a": 1})
        print(response.status_code)
        async with client.stream("GET", "https://example.com/") as streamed:
            async for piece in streamed.iter_bytes():
                print(len(piece))
            print([line.upper() async for line in streamed.iter_lines()])
        async for event in client.events("GET", "https://example.com/"):
            print(event.WhichOneof("event"))
        async for result in client.fetch_many(["https://example.com/"]):
            print(result.request.upper(), result.status_code)
        explained = await client.explain(response={"status_code": 503})
        print(explained.retry_decision.rule)
        async with httpx.AsyncClient(transport=AsyncFetchdTransport(client)) as http:
            print((await http.get("https://example.com/")).text)


def main() -> None:
    defaults: fetchd.Defaults = {"timeout": 30, "retry_policy": {"max_attempts": 5}, "headers": {"Accept": "text/html"}}
    with fetchd.Client("127.0.0.1:8080", token="secret", base_url="https://example.com/v1", **defaults) as client:
        client.headers.update({"X-A": "1"})
        fetch(client, "https://example.com/")
        with fetchd.Client("127.0.0.1:8080") as plain, httpx.Client(transport=FetchdTransport(plain)) as http:
            http.get("https://example.com/")
    asyncio.run(asynchronously())
