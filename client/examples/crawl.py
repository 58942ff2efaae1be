#!/usr/bin/env python3
"""Crawls hosts through the API of "frontier serve". It needs only the standard library.

The frontier decides when a URL is fetched. This program fetches: it claims URLs, sends the requests,
reads the links, puts them, and records how each fetch ended. Start as many as you like, on as many
machines as you like: they share the delay of each host.

    frontier serve --db crawl.db &
    python3 crawl.py https://example.org/
"""

import argparse
import html.parser
import http.client
import json
import signal
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import urllib.robotparser

MAX_BODY = 4 << 20  # bytes of a page
MAX_LINKS = 1000  # of a page, as many as one call of put takes
MAX_CALL = 1 << 20  # bytes of the links in one call
MAX_FAILURES = 3  # temporary ones in a row, after which a URL is tried once more
TIMEOUT = 10  # seconds, for each read
ERRORS = (OSError, ValueError, LookupError, http.client.HTTPException)  # of a fetch; a charset may be unknown


class Rejected(Exception):
    """The API rejects a call, so this program is wrong, or its token or address is."""


class Frontier:
    """Calls the API. A call that fails because the service is away is repeated."""

    def __init__(self, address, token, stopping):
        self.address, self.token, self.stopping = address.rstrip("/"), token, stopping
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, method, **fields):
        request = urllib.request.Request(f"{self.address}/v1/{method}", json.dumps(fields).encode(), {"Content-Type": "application/json"})
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        while True:
            try:
                with self.opener.open(request, timeout=90) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                text = error.read().decode(errors="replace")
                if error.code not in (429, 503):
                    raise Rejected(f"{method}: {text.strip()}") from None
            except ERRORS as error:
                text = str(error)
            print(f"{method}: {text.strip()}", file=sys.stderr)
            if self.stopping.wait(1):
                raise SystemExit(1)  # of this thread


class Links(html.parser.HTMLParser):
    """Collects the links of a page."""

    def __init__(self, base):
        super().__init__()
        self.base, self.found = base, []

    def handle_starttag(self, tag, attributes):
        href = dict(attributes).get("href")
        if href is None or tag not in ("a", "area", "base"):
            return
        try:
            url = urllib.parse.urldefrag(urllib.parse.urljoin(self.base, href.strip())).url
        except ValueError:
            return  # not a URL
        if tag == "base":
            self.base = url
        elif url.startswith(("http://", "https://")) and len(self.found) < MAX_LINKS:
            self.found.append(url)


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect may lead to a host whose delay is not over: it becomes a URL of the frontier."""

    def redirect_request(self, *_):
        return None


class Crawler:
    def __init__(self, options):
        self.options = options
        self.stopping = threading.Event()
        self.frontier = Frontier(options.api, options.token, self.stopping)
        self.opener = urllib.request.build_opener(NoRedirects)
        self.robots = {}  # by origin; None means that it could not be read
        self.rejected = None

    def work(self):
        """Runs until nothing is left, or until the API rejects a call."""
        try:
            self.run()
        except Rejected as error:
            self.rejected = error
            self.stopping.set()

    def run(self):
        """Claims and fetches until nothing is left. Several threads run it."""
        while not self.stopping.is_set():
            claimed = self.frontier.call("claim", limit=1, lease_duration=f"{self.options.lease}s", max_wait="10s", worker=self.options.name)
            if claimed["done"] and (not self.options.recrawl or self.stopping.wait(1)):
                return
            for claim in claimed["claims"]:
                self.visit(claim)

    def visit(self, claim):
        origin = "{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(claim["url"]))
        if self.options.robots and origin not in self.robots:
            self.read_robots(origin, claim)
            return
        rules = self.robots.get(origin)
        if rules is not None and not rules.can_fetch(self.options.user_agent, claim["url"]):
            self.record(claim, status="STATUS_DEAD", attempt_count=0, error_class="robots_disallowed", last_error="robots.txt forbids it")
            return
        self.fetch(claim)

    def read_robots(self, origin, claim):
        """Reads robots.txt instead of the page. That was a request to the host, so the host is closed for
        its delay before the page is given back."""
        rules = urllib.robotparser.RobotFileParser()
        try:
            with self.open(origin + "/robots.txt") as response:
                rules.parse(response.read(512 << 10).decode(errors="replace").splitlines())
        except urllib.error.HTTPError as error:
            error.close()
            rules.disallow_all = error.code >= 500 or error.code == 429
            rules.allow_all = not rules.disallow_all
        except ERRORS:
            rules.disallow_all = True
        delay = max(self.options.delay, float(rules.crawl_delay(self.options.user_agent) or 0))
        if delay > self.options.delay:
            self.frontier.call("set-delay", host=claim["host"], delay=f"{min(delay, 60)}s")
        self.frontier.call("block", host=claim["host"], retry_after=f"{delay}s")
        self.robots[origin] = rules
        self.frontier.call("release", leases=[claim["lease"]])

    def open(self, url, **headers):
        headers["User-Agent"] = self.options.user_agent
        return self.opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)

    def fetch(self, claim):
        began = time.monotonic()
        conditions = {"If-None-Match": claim["etag"], "If-Modified-Since": claim["last_modified"]}
        try:
            try:
                with self.open(claim["url"], **{name: value for name, value in conditions.items() if value}) as response:
                    outcome = self.read(claim, response)
            except urllib.error.HTTPError as error:
                with error:
                    outcome = self.refused(claim, error)
        except ERRORS as error:
            outcome = self.failed(claim, "fetch_failed", str(error))
        self.record(claim, attempt_count=1, fetch_duration=f"{time.monotonic() - began:.3f}s", **outcome)

    def read(self, claim, response):
        body = response.read(MAX_BODY)
        kind = response.headers.get_content_type()
        if kind == "text/html":
            links = Links(claim["url"])
            try:
                links.feed(body.decode(response.headers.get_content_charset() or "utf-8", errors="replace"))
            except AssertionError:
                pass  # html.parser ends at markup such as <![x]>; the links before it were found
            self.put(claim, links.found)
        return {"status": "STATUS_FETCHED", "status_code": response.status, "content_type": kind[:255], "body_bytes": len(body),
                "etag": response.headers.get("ETag", "")[:1024], "last_modified": response.headers.get("Last-Modified", "")[:64]}

    def refused(self, claim, error):
        """Returns the outcome of a response that is not 2xx."""
        if error.code == 304:
            return {"status": "STATUS_FETCHED", "status_code": 304}
        target = error.headers.get("Location")
        if 300 <= error.code < 400 and target:
            self.put(claim, [urllib.parse.urljoin(claim["url"], target)])
            return {"status": "STATUS_FETCHED", "status_code": error.code}
        if error.code in (429, 503):
            after = error.headers.get("Retry-After", "")
            self.frontier.call("block", host=claim["host"], **({"retry_after": after + "s"} if after.isdecimal() and 0 < int(after) <= 86400 else {}))
        if error.code in (408, 429) or error.code >= 500:
            return {**self.failed(claim, "http_error", str(error)), "status_code": error.code}
        return {"status": "STATUS_DEAD", "status_code": error.code, "error_class": "http_error", "last_error": str(error)[:500]}

    @staticmethod
    def failed(claim, error_class, text):
        status = "STATUS_FAILED" if claim["failure_count"] < MAX_FAILURES else "STATUS_DEAD"
        return {"status": status, "error_class": error_class, "last_error": text[:500], "retry_delay": "60s"}

    def put(self, claim, urls):
        host = urllib.parse.urlsplit(claim["url"]).netloc
        entries = [{"url": url, "depth": claim["depth"] + 1, "parent_url": claim["url"]}
                   for url in dict.fromkeys(urls) if urllib.parse.urlsplit(url).netloc == host or self.options.any_host]
        batch, size = [], 0
        for entry in entries:
            batch.append(entry)
            size += len(json.dumps(entry))
            if size > MAX_CALL or entry is entries[-1]:
                self.frontier.call("put", entries=batch, max_urls=self.options.max_urls)
                batch, size = [], 0

    def record(self, claim, **outcome):
        """Records after the links are put: if this program ends in between, the page is fetched again."""
        if self.options.recrawl and outcome["status"] == "STATUS_FETCHED":
            outcome["recrawl_delay"] = f"{self.options.recrawl}s"
        result = self.frontier.call("record", outcomes=[{"lease": claim["lease"], **outcome}])["results"][0]
        if not self.options.quiet:
            print(result.removeprefix("RECORD_RESULT_").lower(), outcome.get("status_code", "-"), claim["url"], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*", metavar="URL", help="where to start")
    parser.add_argument("--api", default="http://127.0.0.1:8091", help="HTTP address of frontier serve")
    parser.add_argument("--token", default="", help="token of this caller")
    parser.add_argument("--name", default="", help="name of this program, for people")
    parser.add_argument("--user-agent", default="crawl.py", help="name that origins see: say how to reach you")
    parser.add_argument("--threads", type=int, default=4, help="fetches at once")
    parser.add_argument("--delay", type=float, default=1, help="as that of frontier serve, in seconds")
    parser.add_argument("--lease", type=float, default=60, help="how long a URL stays with a program that is gone, in seconds: longer than a fetch takes")
    parser.add_argument("--max-urls", type=int, default=0, help="maximum number of URLs in the frontier")
    parser.add_argument("--recrawl", type=float, default=0, help="fetch each URL again after this time, in seconds")
    parser.add_argument("--any-host", action="store_true", help="also follow links to other hosts")
    parser.add_argument("--ignore-robots", dest="robots", action="store_false", help="only for your own hosts")
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    options = parser.parse_args()
    if not options.api.startswith(("http://", "https://")):
        parser.error(f"--api: {options.api} is not a URL: give one such as http://127.0.0.1:8091")
    crawler = Crawler(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: crawler.stopping.set())
    if options.urls:
        try:
            put = crawler.frontier.call("put", entries=[{"url": url} for url in options.urls])
        except Rejected as error:
            sys.exit(str(error))
        for bad in put["bad_entries"]:
            print(f"{options.urls[bad['index']]}: {bad['message']}", file=sys.stderr)
    threads = [threading.Thread(target=crawler.work) for _ in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if crawler.rejected:
        sys.exit(str(crawler.rejected))


if __name__ == "__main__":
    main()
