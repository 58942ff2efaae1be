"""Tests of the decision: the vectors, and properties that every verdict has."""

from __future__ import annotations

import copy
import io
import json
import os
import random
import unittest
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Iterator

import fetch_decision
from fetch_decision import (ROWS, SECOND, Observation, decide, format_duration, parse_duration, parse_http_date,
                            parse_timestamp, splitmix64)
from fetch_url import Unusable, parse_url, resolve

FOLDER = Path(__file__).resolve().parent.parent / os.environ.get("VECTORS", "../../vectors")


def vectors() -> Iterator[dict[str, Any]]:
    files = sorted(FOLDER.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"no vectors in {FOLDER}; set VECTORS")
    for file in files:
        yield from json.loads(file.read_text(encoding="utf-8"))["vectors"]


class Vectors(unittest.TestCase):
    def test_vectors(self) -> None:
        for vector in vectors():
            with self.subTest(vector["name"]):
                verdict = decide(vector["observation"])
                if "reason" not in vector["verdict"].get("failure", {}):
                    verdict.get("failure", {}).pop("reason", None)  # It is compared only if it is given.
                self.assertEqual(verdict, vector["verdict"], vector["why"])

    def test_program_keeps_names_and_order(self) -> None:
        cases = [{"name": v["name"], "observation": v["observation"]} for v in vectors()]
        random.Random(1).shuffle(cases)
        output = io.StringIO()
        fetch_decision.main(io.StringIO("".join(json.dumps(case) + "\n" for case in cases)), output)
        lines = [json.loads(line) for line in output.getvalue().splitlines()]
        self.assertEqual([line["name"] for line in lines], [case["name"] for case in cases])

    def test_order_of_failures_does_not_matter(self) -> None:
        for vector in vectors():
            observation = copy.deepcopy(vector["observation"])
            if "failures" in observation:
                observation.setdefault("observed_at", "2026-03-02T07:00:00Z")
                verdict = decide(observation)
                observation["failures"].reverse()
                self.assertEqual(decide(observation), verdict, vector["name"])


STATUSES = (100, 101, 200, 204, 206, 299, 300, 301, 302, 303, 304, 305, 307, 308, 399, 400, 401, 403, 404, 408, 425, 429,
            451, 499, 500, 503, 599, 600, 999)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
LOCATIONS = ("", "/next", "next", "?q", "#f", "//other.example/", "https://origin.example/", "ftp://origin.example/",
             "http://user@origin.example/", "http://[::1", "http://[::1]:8080/x", "http://origin.example:99999/", "ü/ö")
WAITS = ("0", "1", "30", "31", "99999999999999999999", "-1", "soon", "Mon, 02 Mar 2026 07:00:20 GMT")


def some_observation(r: random.Random) -> dict[str, Any]:
    """some_observation returns an observation that the schema allows."""
    policy: dict[str, Any] = {}
    for name, values in {
        "profile": ("standard", "download"),
        "max_attempts": (1, 2, 11),
        "base_delay": ("0s", "0.000000007s", "300s"),
        "max_delay": ("0s", "0.15s", "300s"),
        "multiplier": (1, 1.5, 10),
        "max_jitter": ("0s", "0.0009s", "0.5s", "60s"),
        "jitter_seed": ("0", "18446744073709551615"),
        "max_retry_after": ("0s", "1.5s", "900s"),
        "retry_tls_handshake": (True, False),
        "additional_status_codes": ([425], [418, 499]),
        "excluded_status_codes": ([503], [429, 408]),
        "idempotency_key": ("key",),
        "allow_non_idempotent": (True, False),
    }.items():
        if r.random() < 0.3:
            policy[name] = r.choice(values)
    observation: dict[str, Any] = {"retry_policy": policy, "observed_at": "2026-03-02T07:00:00.25Z"}
    for name, choices in {
        "method": METHODS,
        "hop_method": METHODS,
        "url": ("http://origin.example/a/b", "https://origin.example:8443/"),
        "hop_url": ("https://origin.example/a#f", "http://other.example"),
        "attempt": (1, 2, 3, 11, 12),
        "redirects": (1, 4, 5, 20),
        "conditional": (True,),
        "body_committed": (True,),
        "reused": (True,),
        "request_state": ("not_sent", "not_processed", "unknown"),
        "time_left": ("0s", "0.2s", "0.200000001s", "60s"),
        "credential": ("not_asked", "refreshed", "refresh_failed", "refused_again"),
        "redirect_policy": ({"follow": False}, {"scope": "same_origin"}, {"forbid_downgrade": True, "max_redirects": 0}),
    }.items():
        if r.random() < 0.4:
            observation[name] = r.choice(choices)
    if r.random() < 0.8:
        headers = [[name, r.choice(values)] for name, values in (("Location", LOCATIONS), ("Retry-After", WAITS))
                   if r.random() < 0.7]
        observation["response"] = {"status": r.choice(STATUSES), "headers": headers}
    if "response" not in observation or r.random() < 0.4:
        observation["failures"] = r.sample(list(ROWS), r.randint(1, 3))
    return observation


class Properties(unittest.TestCase):
    def test_properties(self) -> None:
        r = random.Random(7)
        for _ in range(5_000):
            observation = some_observation(r)
            before = copy.deepcopy(observation)
            verdict = decide(observation)
            try:
                self.assertEqual(observation, before, "decide changed its argument")
                self.assertEqual(decide(observation), verdict, "decide is not deterministic")
                self.check(Observation.of(observation), verdict)
            except AssertionError:
                print(json.dumps(observation), json.dumps(verdict))
                raise

    def check(self, o: Observation, verdict: dict[str, Any]) -> None:
        if "redirect" in verdict:
            self.assertEqual(set(verdict), {"redirect"})
            self.assertLess(o.redirects, o.redirect.max_redirects)
            self.assertIn(o.status, (301, 302, 303, 307, 308))
            target = parse_url(verdict["redirect"]["url"])
            assert target is not None
            self.assertEqual(str(target), verdict["redirect"]["url"])
            return
        decision = verdict["decision"]
        self.assertEqual(verdict["outcome"] == "failed", "failure" in verdict)
        self.assertNotEqual("retry" in decision, "stop" in decision)
        self.assertEqual(decision.get("stop") == "no_failure", "failure" not in verdict)
        if "failure" not in verdict:
            return
        failure = verdict["failure"]
        if o.once_only and o.request_state == "unknown":
            self.assertFalse(failure["retryable"], "I2")
        if "retry" not in decision:
            return
        retry = decision["retry"]
        delay = parse_duration(retry["delay"])
        self.assertEqual(retry["attempt"], o.attempt + 1)
        self.assertLessEqual(retry["attempt"], o.retry.max_attempts, "I4")
        self.assertFalse(o.body_committed, "B3")
        self.assertFalse(o.failures & {"deadline", "cancelled", "shutdown", "internal"}, "P3 to P6")
        if o.time_left is not None:
            self.assertLess(delay, o.time_left, "W4")
        if retry["source"] == "retry_after":
            self.assertIn(o.status, (429, 503), "W2")
            self.assertLessEqual(delay, o.retry.max_retry_after, "W3")
            self.assertEqual(retry["delay"], failure["retry_after"], "W2")
        if retry["source"] == "backoff":
            self.assertLessEqual(delay, o.retry.max_delay + o.retry.max_jitter, "section 2")
        if o.once_only and o.status != 401:
            self.assertEqual(retry["start"], "failed_hop", "I2, I3")
        if retry["start"] == "first_url" and not o.once_only:
            self.assertTrue(failure["retryable"], "a failure that is retried is retryable")


class Parts(unittest.TestCase):
    def test_splitmix64(self) -> None:
        self.assertEqual(splitmix64(0), 0xE220A8397B1DCDAF)

    def test_durations(self) -> None:
        for text in ("0s", "0.200s", "0.337500s", "0.000000001s", "30s", "9223372036.854775807s"):
            self.assertEqual(format_duration(parse_duration(text)), text)

    def test_timestamps(self) -> None:
        self.assertEqual(parse_timestamp("1970-01-01T01:00:00.5+01:00"), SECOND // 2)

    def test_dates(self) -> None:
        r = random.Random(3)
        for _ in range(1000):
            at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=r.randrange(4_000_000_000))
            want = int(at.timestamp()) * SECOND
            self.assertEqual(parse_http_date(format_datetime(at, usegmt=True), 0), want)
            self.assertEqual(parse_http_date(at.strftime("%a %b ") + f"{at.day:2}" + at.strftime(" %H:%M:%S %Y"), 0), want)
            self.assertEqual(parse_http_date(at.strftime("%A, %d-%b-%y %H:%M:%S GMT"), want), want)

    def test_dates_that_do_not_exist(self) -> None:
        for text in ("Sun, 29 Feb 2026 00:00:00 GMT", "Sat, 01 Jan 0000 00:00:00 GMT", "Mon, 02 Mar 2026 24:00:00 GMT"):
            self.assertIsNone(parse_http_date(text, 0))
        self.assertIsNotNone(parse_http_date("Friday, 31-Dec-99 23:59:59 GMT", 253402300799 * SECOND))

    def test_references(self) -> None:
        # The examples of RFC 3986 §5.4 that have an http URL as their result.
        base = parse_url("http://a/b/c/d;p?q")
        for reference, want in {
            "g": "http://a/b/c/g", "./g": "http://a/b/c/g", "g/": "http://a/b/c/g/", "/g": "http://a/g",
            "//g": "http://g", "?y": "http://a/b/c/d;p?y", "g?y": "http://a/b/c/g?y", "#s": "http://a/b/c/d;p?q#s",
            "g#s": "http://a/b/c/g#s", "g?y#s": "http://a/b/c/g?y#s", ";x": "http://a/b/c/;x", "g;x": "http://a/b/c/g;x",
            "g;x?y#s": "http://a/b/c/g;x?y#s", "": "http://a/b/c/d;p?q", ".": "http://a/b/c/", "./": "http://a/b/c/",
            "..": "http://a/b/", "../": "http://a/b/", "../g": "http://a/b/g", "../..": "http://a/", "../../": "http://a/",
            "../../g": "http://a/g", "../../../g": "http://a/g", "/./g": "http://a/g", "/../g": "http://a/g",
            "g.": "http://a/b/c/g.", ".g": "http://a/b/c/.g", "g..": "http://a/b/c/g..", "..g": "http://a/b/c/..g",
            "./../g": "http://a/b/g", "./g/.": "http://a/b/c/g/", "g/./h": "http://a/b/c/g/h", "g/../h": "http://a/b/c/h",
            "g;x=1/./y": "http://a/b/c/g;x=1/y", "g?y/./x": "http://a/b/c/g?y/./x", "g#s/../x": "http://a/b/c/g#s/../x",
        }.items():
            self.assertEqual(str(resolve(base, reference)), want, reference)

    def test_any_reference_is_harmless(self) -> None:
        r = random.Random(5)
        for _ in range(5_000):
            text = "".join(r.choice("ab:/?#[]@%.0é 9\\\ud800\n") for _ in range(r.randint(0, 12)))
            for reference in (text, f"http:{text}", f"//{text}"):
                try:
                    target = resolve(parse_url("http://origin.example/a/b"), reference)
                except Unusable:
                    continue
                self.assertEqual(parse_url(str(target)), target._replace(fragment=target.fragment or None), repr(reference))

    def test_reasons(self) -> None:
        for reference, reason in {
            "/\x01": "location_malformed", "//%4/": "location_malformed", "http:": "location_relative",
            "http:///path": "location_relative", "ftp://a/": "location_scheme", "http://a b/": "location_host",
            "http://[::1": "location_host", "http://[fe80::1%25lo]/": "location_zone", "http://a:b/": "location_port",
            "http://127.1/": "location_number_like_host", "http://a.0x7f/": "location_number_like_host",
            "/" + "a" * 8192: "location_too_long",
        }.items():
            with self.assertRaises(Unusable, msg=reference) as raised:
                resolve(parse_url("http://origin.example/"), reference)
            self.assertEqual(str(raised.exception), reason, reference)


if __name__ == "__main__":
    unittest.main()
