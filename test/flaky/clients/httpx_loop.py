# httpx retries only failed connections by itself, and leaves the rest to its users:
# www.python-httpx.org/advanced/transports/. This is the loop that they write, with care: it reads the
# body inside the loop, repeats no POST, and obeys a Retry-After in seconds.
import asyncio

import httpx

from jobs import done, failed, jobs

RETRIED = {429, 500, 502, 503, 504}


async def fetch(client, method, url):
    attempts = 4 if method == "GET" else 1
    for attempt in range(1, attempts + 1):
        wait = 0.25 * 2**attempt
        try:
            response = await client.request(method, url)
            if response.status_code not in RETRIED or attempt == attempts:
                response.raise_for_status()
                return response.content
            retry_after = response.headers.get("Retry-After", "")
            if retry_after.isdigit():
                wait = int(retry_after)
        except httpx.TransportError:
            if attempt == attempts:
                raise
        await asyncio.sleep(wait)


async def worker(client, queue):
    for method, url in queue:
        try:
            done(url, await fetch(client, method, url))
        except httpx.HTTPError as error:
            failed(url, error)


async def main():
    queue = jobs()
    async with httpx.AsyncClient(timeout=5, follow_redirects=True) as client:
        await asyncio.gather(*(worker(client, queue) for _ in range(32)))


asyncio.run(main())
