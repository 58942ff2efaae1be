"""Code that all callers in Python share: the arguments, the measured span, and the result
line."""

import argparse
import json
import math
import resource
import sys
import threading
import time
import urllib.parse


def arguments(kinds, description):
    """Returns the arguments; see test/bench/callers/README.md."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kind", required=True, choices=sorted(kinds))
    parser.add_argument("--target", required=True, help="URL of every fetch; its last path segment is the length of the body in bytes")
    parser.add_argument("--grpc", default="", metavar="HOST:PORT", help="where fetchd is; for the kinds that go through it")
    parser.add_argument("--open", type=int, default=64, help="fetches under way at once")
    parser.add_argument("--warmup", type=float, default=1, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=5, metavar="SECONDS")
    chosen = parser.parse_args()
    if chosen.open < 1:
        parser.error(f"--open is {chosen.open}, and must be 1 or more")
    return chosen


def body_length(target):
    """Returns the length of the body in bytes, which is part of the URL."""
    return int(urllib.parse.urlsplit(target).path.rsplit("/", 1)[-1])


def tell(word):
    """Writes a line to the parent, which then reads the clocks of the servers."""
    print(word, file=sys.stderr, flush=True)


class Span:
    """The measured part of a load.

    A loop checks `going` before each fetch and calls `ended` after it. A fetch that ends
    before begin() or after finish() is not counted.
    """

    def __init__(self, who=resource.RUSAGE_SELF):
        self.going = True
        self._latencies = []  # seconds; NaN for a fetch that failed
        self._who = who
        self._measuring = False
        self._told = False

    def begin(self):
        tell("measuring")
        self._cpu = self._cpu_now()
        self._start = time.perf_counter()
        self._measuring = True

    def finish(self):
        self._measuring = False
        self._wall = time.perf_counter() - self._start
        self._cpu = self._cpu_now() - self._cpu
        tell("measured")
        self.going = False

    def failure(self, error):
        """Prints the first error of this load. Returns False: the fetch failed."""
        if not self._told:
            self._told = True
            tell(f"the first error: {error}")
        return False

    def ended(self, start, good):
        """Counts a fetch that started at `start` of time.perf_counter()."""
        if self._measuring:
            self.add(time.perf_counter() - start, good)

    def add(self, seconds, good):
        """Counts a fetch with this duration. Threads may share this object: append is atomic."""
        self._latencies.append(seconds if good else math.nan)

    def report(self, kind):
        good = sorted(x for x in self._latencies if not math.isnan(x))
        result = {
            "kind": kind,
            "fetches": len(self._latencies),
            "failed": len(self._latencies) - len(good),
            "seconds": round(self._wall, 6),
            "cpu_seconds": round(self._cpu, 6),
            **{f"p{p}_us": percentile(good, p) for p in (50, 90, 99)},
            "max_rss_kib": resource.getrusage(self._who).ru_maxrss,
        }
        print(json.dumps(result), flush=True)

    def _cpu_now(self):
        used = resource.getrusage(self._who)
        return used.ru_utime + used.ru_stime


def threads(options, span, loop):
    """Runs `loop` on a thread for each fetch in flight, and measures."""
    started = [threading.Thread(target=loop) for _ in range(options.open)]
    for thread in started:
        thread.start()
    time.sleep(options.warmup)
    span.begin()
    time.sleep(options.seconds)
    span.finish()
    for thread in started:
        thread.join()


def percentile(values, p):
    """Returns a percentile by nearest rank, in whole microseconds, or None without values."""
    if not values:
        return None
    return round(values[max(0, math.ceil(len(values) * p / 100) - 1)] * 1e6)
