# aiohttp has no retries of its own. This is the loop that its users write, with the same care as in
# httpx_loop.py. What may be raised: docs.aiohttp.org/en/stable/client_reference.html#client-exceptions
import asyncio

import aiohttp

from jobs import done, failed, jobs

RETRIED = {429, 500, 502, 503, 504}


async def fetch(session, method, url):
    attempts = 4 if method == "GET" else 1
    for attempt in range(1, attempts + 1):
        wait = 0.25 * 2**attempt
        try:
            async with session.request(method, url) as response:
                if response.status not in RETRIED or attempt == attempts:
                    response.raise_for_status()
                    return await response.read()
                retry_after = response.headers.get("Retry-After", "")
                if retry_after.isdigit():
                    wait = int(retry_after)
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, asyncio.TimeoutError):
            if attempt == attempts:
                raise
        await asyncio.sleep(wait)


async def worker(session, queue):
    for method, url in queue:
        try:
            done(url, await fetch(session, method, url))
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            failed(url, error)


async def main():
    queue = jobs()
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await asyncio.gather(*(worker(session, queue) for _ in range(32)))


asyncio.run(main())
