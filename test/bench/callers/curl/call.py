"""Runs fetches with curl.

    curl            a process per fetch, as scripts do, with --open of them at once
    curl-parallel   one process with --parallel for all fetches, up to 300 at once

test/bench/callers/README.md describes the arguments and the output. The CPU time is that of curl,
without this program.
"""

import os
import pathlib
import resource
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import measure  # noqa: E402

CURL = ["curl", "--silent", "--show-error", "--no-progress-meter", "--retry", "2", "--max-time", "60", "--output", os.devnull, "--noproxy", "*"]
MOST_PARALLEL = 300  # above this curl silently uses 50
CALIBRATION = 2000  # transfers with which to estimate how many fill the span


def run_curl(options, length, span):
    want = f"200 {length}"
    command = [*CURL, "--write-out", "%{http_code} %{size_download}", options.target]

    def loop():
        while span.going:
            start = time.perf_counter()
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            good = ended.returncode == 0 and ended.stdout == want
            span.ended(start, good or span.failure(f"exit code {ended.returncode}, {ended.stdout} {ended.stderr}"))

    measure.threads(options, span, loop)


def run_parallel(options, length, span):
    if options.open > MOST_PARALLEL:
        sys.exit(f"--open is {options.open}, and curl --parallel does at most {MOST_PARALLEL}")

    def transfers(count):
        """Makes this many fetches. Returns the result line of each one."""
        # curl expands the URLs of a range as needed. The origin ignores the query.
        command = [*CURL, "--parallel", "--parallel-immediate", "--parallel-max", str(options.open)]
        command += ["--write-out", "%{http_code} %{size_download} %{time_total}\n", f"{options.target}?n=[1-{count}]"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return [line.split() for line in ended.stdout.splitlines()], f"exit code {ended.returncode}, {ended.stderr[:200]}"

    start = time.perf_counter()
    transfers(CALIBRATION)
    count = max(CALIBRATION, int(CALIBRATION * options.seconds / (time.perf_counter() - start)))
    span.begin()
    told, fault = transfers(count)
    span.finish()
    for code, size, seconds in told:
        good = (code, size) == ("200", str(length))
        span.add(float(seconds), good or span.failure(f"{code} {size}, {fault}"))
    # A transfer without a result line has failed.
    for _ in range(count - len(told)):
        span.add(0, span.failure(f"{len(told)} of {count} transfers, {fault}"))


KINDS = {"curl": run_curl, "curl-parallel": run_parallel}


def main():
    options = measure.arguments(KINDS, __doc__.partition("\n")[0])
    span = measure.Span(resource.RUSAGE_CHILDREN)
    KINDS[options.kind](options, measure.body_length(options.target), span)
    span.report(options.kind)


if __name__ == "__main__":
    main()
