"""The decision: what an observation of an HTTP fetch means, and what follows from it.

decide() is a pure function, except that it reads the clock if observed_at is absent. It implements sections 2 to 8
of the specification as far as an observation has the facts:

- sections 3 and 5, classification and the order of faults: classify()
- section 6, redirects: redirect_of()
- section 4, waits: backoff() and retry_after_of()
- section 5, whether to retry: decision_of()

Comments name the rule that a line follows. Durations and points in time are whole nanoseconds.
"""

from __future__ import annotations

import calendar
import json
import re
import sys
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any, NamedTuple, Optional, TextIO

from fetch_url import Unusable, parse_url, resolve

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
MAX_DURATION = (1 << 63) - 1  # Section 2: arithmetic saturates.


# Section 2: profiles.


@dataclass(frozen=True)
class RetryPolicy:
    """When a fetch is repeated: a profile, and what the request overrides."""

    download: bool
    max_attempts: int
    base_delay: int
    max_delay: int
    multiplier: float
    max_jitter: int
    jitter_seed: int
    max_retry_after: int
    retry_tls_handshake: bool
    additional: frozenset[int]
    excluded: frozenset[int]
    repeats_non_idempotent: bool  # I2: a key and allow_non_idempotent.

    @staticmethod
    def of(fields: dict[str, Any]) -> RetryPolicy:
        download = fields.get("profile", "standard") == "download"

        def span(name: str, standard: int, other: int) -> int:
            if name in fields:
                return parse_duration(fields[name])
            return other if download else standard

        return RetryPolicy(
            download=download,
            max_attempts=fields.get("max_attempts", 4 if download else 3),
            base_delay=span("base_delay", 100 * MILLISECOND, SECOND),
            max_delay=span("max_delay", 2 * SECOND, 32 * SECOND),
            multiplier=float(fields.get("multiplier", 2)),
            max_jitter=span("max_jitter", 0, 500 * MILLISECOND),
            jitter_seed=int(fields.get("jitter_seed", "0")),
            max_retry_after=span("max_retry_after", 30 * SECOND, 60 * SECOND),
            retry_tls_handshake=fields.get("retry_tls_handshake", not download),
            additional=frozenset(fields.get("additional_status_codes", ())),
            excluded=frozenset(fields.get("excluded_status_codes", ())),
            repeats_non_idempotent=bool(fields.get("idempotency_key")) and fields.get("allow_non_idempotent", False),
        )


@dataclass(frozen=True)
class RedirectPolicy:
    """Which redirects are followed."""

    follow: bool
    max_redirects: int
    scope: str
    forbid_downgrade: bool

    @staticmethod
    def of(fields: dict[str, Any], download: bool) -> RedirectPolicy:
        return RedirectPolicy(
            follow=fields.get("follow", True),
            max_redirects=fields.get("max_redirects", 20 if download else 5),
            scope=fields.get("scope", "any"),
            forbid_downgrade=fields.get("forbid_downgrade", False),
        )


@dataclass(frozen=True)
class Observation:
    """An attempt that ended, or a response within it, and what preceded it."""

    retry: RetryPolicy
    redirect: RedirectPolicy
    method: str
    url: str
    hop_method: str
    hop_url: str
    attempt: int
    redirects: int
    status: Optional[int]
    headers: tuple[tuple[str, str], ...]
    failures: frozenset[str]
    conditional: bool
    body_committed: bool
    request_state: str
    reused: bool
    observed_at: int
    time_left: Optional[int]
    credential: Optional[str]

    @staticmethod
    def of(fields: dict[str, Any]) -> Observation:
        retry = RetryPolicy.of(fields.get("retry_policy", {}))
        response = fields.get("response", {})
        method = fields.get("method", "GET")
        url = fields.get("url", "http://origin.example/")
        return Observation(
            retry=retry,
            redirect=RedirectPolicy.of(fields.get("redirect_policy", {}), retry.download),
            method=method,
            url=url,
            hop_method=fields.get("hop_method", method),
            hop_url=fields.get("hop_url", url),
            attempt=fields.get("attempt", 1),
            redirects=fields.get("redirects", 0),
            status=response.get("status"),
            headers=tuple((name, value) for name, value in response.get("headers", ())),
            failures=frozenset(fields.get("failures", ())),
            conditional=fields.get("conditional", False),
            body_committed=fields.get("body_committed", False),
            request_state=fields.get("request_state", "unknown"),
            reused=fields.get("reused", False),
            observed_at=parse_timestamp(fields["observed_at"]) if "observed_at" in fields else time.time_ns(),
            time_left=parse_duration(fields["time_left"]) if "time_left" in fields else None,
            credential=fields.get("credential"),
        )

    def lines(self, name: str) -> list[str]:
        """lines returns all fields with this name, without blanks around them."""
        return [value.strip(" \t") for key, value in self.headers if key.lower() == name]

    def header(self, name: str) -> Optional[str]:
        """header returns the first field with this name, without blanks around it."""
        return next(iter(self.lines(name)), None)

    @property
    def once_only(self) -> bool:
        """once_only reports whether I2 permits the request of this fetch only once."""
        return self.method not in IDEMPOTENT and not self.retry.repeats_non_idempotent

    @property
    def from_failed_hop(self) -> bool:
        """from_failed_hop reports whether a retry sends only the hop that failed (I3)."""
        return self.once_only and self.hop_method == "GET"


IDEMPOTENT = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))  # Section 1.


# Section 3: classification.


class Row(NamedTuple):
    """A row of the table of section 3. The group is the number in the list of precedence."""

    rule: str
    group: int
    type: str
    retried: bool


# The order of these rows is the precedence of section 3.
ROWS: dict[str, Row] = {
    # 1. What this server or the caller did.
    "internal": Row("P6", 1, "transient", False),
    "invalid_request": Row("P2", 1, "permanent", False),
    "cancelled": Row("P4", 1, "permanent", False),
    "shutdown": Row("P5", 1, "transient", False),
    "out_of_memory": Row("P7", 1, "transient", False),
    "store_failure": Row("P8", 1, "transient", False),
    # 2. A redirect that cannot be followed.
    "target_blocked": Row("P1", 2, "permanent", False),
    "redirect_rejected": Row("R3", 2, "permanent", False),
    "redirect_loop": Row("R2", 2, "permanent", False),
    "too_many_redirects": Row("R1", 2, "permanent", False),
    # 3. What ended a hop before its response head was complete.
    "dns_not_found": Row("N1", 3, "transient", True),
    "dns_failure": Row("N1", 3, "transient", True),
    "connect_refused": Row("N2", 3, "transient", True),
    "connect_timeout": Row("N3", 3, "transient", True),
    "connect_failure": Row("N3", 3, "transient", True),
    "connection_reset": Row("N4", 3, "transient", True),
    "tls_handshake": Row("N5", 3, "transient", True),
    "tls_certificate": Row("N6", 3, "permanent", False),
    "response_timeout": Row("N7", 3, "transient", True),
    "write_timeout": Row("N7", 3, "transient", True),
    "protocol": Row("N10", 3, "permanent", False),
    # 4. The status.
    "http_server_error": Row("H1", 4, "transient", True),
    "rate_limited": Row("H2", 4, "rate_limited", True),
    "auth_required": Row("H3", 4, "needs_auth", False),
    "forbidden": Row("H4", 4, "needs_auth", False),
    "request_timeout": Row("H5", 4, "transient", False),
    "http_client_error": Row("H6", 4, "permanent", False),
    "unexpected_not_modified": Row("H8", 4, "permanent", False),
    # 5. The media type.
    "content_type": Row("C1", 5, "permanent", False),
    # 6. A time limit.
    "deadline": Row("P3", 6, "transient", False),
    "attempt_timeout": Row("N11", 6, "transient", True),
    # 7. The body.
    "body_interrupted": Row("N8", 7, "transient", True),
    "body_timeout": Row("N9", 7, "transient", True),
    "undecodable": Row("C3", 7, "permanent", False),
    "body_too_large": Row("C4", 7, "permanent", False),
    "empty_body": Row("C2", 7, "permanent", False),
    "integrity": Row("C5", 7, "permanent", False),
}

# I7: these end the fetch with stop reason STOPPED. P6 and P2 are not among them.
STOPPING = ("cancelled", "shutdown", "out_of_memory", "store_failure")


class Failure(NamedTuple):
    """The failure that decides."""

    error_class: str
    rule: str
    type: str
    retried: bool
    reason: Optional[str] = None


class Success(NamedTuple):
    """An outcome without a failure: H0, H7 or H9."""

    outcome: str
    rule: str


class Redirect(NamedTuple):
    """A redirect that is followed."""

    url: str
    method: str
    body_kept: bool
    cross_origin: bool


class Refusal(NamedTuple):
    """A redirect that cannot be followed: R1 or R3."""

    error_class: str
    reason: str


def status_class(status: int) -> Optional[str]:
    """status_class returns the class of a status that is a failure by itself. It returns None for 2xx and 3xx."""
    if status == 401:
        return "auth_required"
    if status == 403:
        return "forbidden"
    if status == 408:
        return "request_timeout"
    if status == 429:
        return "rate_limited"
    if 200 <= status <= 399:
        return None
    if 400 <= status <= 499:
        return "http_client_error"
    if 500 <= status <= 599:
        return "http_server_error"
    return "protocol"  # N10: 101, any other 1xx as a final status, and what is outside 100 to 599.


def classify(o: Observation) -> Failure | Success | Redirect:
    """classify applies the table and the precedence of section 3."""
    faults = set(o.failures)
    ends: Optional[Success] = None
    follows: Optional[Redirect] = None
    refusal: Optional[Refusal] = None
    if o.status is not None:
        faults -= {name for name in faults if ROWS[name].group == 4}  # The status says which of them applies.
        by_status = status_class(o.status)
        if o.status == 304:
            if o.conditional:
                ends = Success("not_modified", "H7")
            else:
                by_status = "unexpected_not_modified"
        elif 300 <= o.status <= 399:
            redirect = redirect_of(o)
            if redirect is None:
                # A redirect that is not to be followed cannot be forbidden, a loop or one too many.
                ends = Success("redirect", "H9")
                faults -= {name for name in faults if ROWS[name].group == 2}
            elif isinstance(redirect, Refusal):
                refusal = redirect
                faults.add(refusal.error_class)
            else:
                follows = redirect
        if by_status is not None:
            faults.add(by_status)
        if not 200 <= o.status <= 299:
            # Section 3: C1 and the faults of a body count on a 2xx only.
            faults -= {name for name in faults if ROWS[name].group in (5, 7)}
        if o.status in (204, 205):
            faults -= {"content_type", "empty_body"}
        if o.hop_method == "HEAD":
            faults.discard("empty_body")
    for name, row in ROWS.items():
        if row.group > 4 and ends is not None:
            break
        if name not in faults:
            continue
        if "deadline" in faults and o.credential != "refreshed" and may_authenticate(o, name):
            name, row = "deadline", ROWS["deadline"]  # Section 3: P3 comes before H3 and H4.
        return failure_of(o, name, row, refusal)
    return ends or follows or Success("success", "H0")


def failure_of(o: Observation, name: str, row: Row, refusal: Optional[Refusal]) -> Failure:
    """failure_of returns the failure of a class under the retry policy of the request."""
    rule, kind, retried = row.rule, row.type, row.retried
    if name == "tls_handshake":  # N5
        retried = o.retry.retry_tls_handshake
        if o.retry.download and not retried:
            kind = "permanent"
    if name == "request_timeout":  # H5
        retried = o.retry.download
    if row.group == 4 and o.status is not None:
        if not retried and o.status in o.retry.additional:  # H10
            rule, kind, retried = "H10", "transient", True
        if o.status in o.retry.excluded:
            retried = False
        if o.status == 421 and o.reused:
            rule, kind, retried = "H11", "transient", True
    reason = name if name in ("too_many_redirects", "redirect_loop") else None  # R1, R2
    if refusal is not None and refusal.error_class == name:
        reason = refusal.reason
    return Failure(name, rule, kind, retried, reason)


# Section 6: redirects.


def redirect_of(o: Observation) -> Redirect | Refusal | None:
    """redirect_of returns what a 3xx other than 304 leads to. It returns None if it is not to be followed (H9)."""
    location = o.header("location")
    if not o.redirect.follow or o.status not in (301, 302, 303, 307, 308) or not location:
        return None
    try:
        before, first = resolve(None, o.hop_url), resolve(None, o.url)
        target = resolve(before, location)
    except Unusable as error:
        return Refusal("redirect_rejected", str(error))  # R3. It is in no scope.
    if o.redirect.scope == "same_host" and target.site != first.site:
        return None
    if o.redirect.scope == "same_origin" and target.origin != first.origin:
        return None
    if target.userinfo is not None:
        return Refusal("redirect_rejected", "location_userinfo")
    if o.redirect.forbid_downgrade and before.scheme == "https" and target.scheme == "http":
        return Refusal("redirect_rejected", "downgrade")
    if o.redirects >= o.redirect.max_redirects:  # D1
        return Refusal("too_many_redirects", "too_many_redirects")
    method = o.hop_method
    if o.status in (301, 302) and method == "POST" or o.status == 303 and method != "HEAD":  # D2
        method = "GET"
    if target.fragment is None:
        target = target._replace(fragment=before.fragment)  # D8, RFC 9110 §10.2.2.
    return Redirect(str(target), method, method == o.hop_method, target.origin != before.origin)


# Section 4: waiting.


def splitmix64(x: int) -> int:
    """splitmix64 returns the first output of the generator SplitMix64 with the state x."""
    mask = (1 << 64) - 1
    z = (x + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def backoff(policy: RetryPolicy, n: int) -> int:
    """backoff returns the delay before retry n (section 2, W1)."""
    exponent = n - 1 if policy.download else n
    power = 1.0
    for _ in range(exponent):
        power *= policy.multiplier
    delay = float(policy.base_delay) * power if policy.base_delay else 0.0  # 0 times infinity is no number.
    delay_ns = policy.max_delay if delay >= policy.max_delay else int(delay)
    choices = policy.max_jitter // MILLISECOND + 1
    jitter = splitmix64((policy.jitter_seed + n) & ((1 << 64) - 1)) % choices
    return min(delay_ns + jitter * MILLISECOND, MAX_DURATION)


def retry_after_of(o: Observation) -> Optional[int]:
    """retry_after_of returns the wait that a response asks for (W2). It returns None if there is none."""
    values = o.header("retry-after")
    if values is None:
        return None
    # Lines may have been joined. Two forms of a date have a comma behind the day of the week.
    match = re.match(r"[A-Za-z]+,[^,]*|[^,]*", values)
    value = match[0].strip(" \t") if match else ""
    wait = parse_seconds(value)
    if wait is not None:
        return wait
    reference = response_time(o)
    at = parse_http_date(value, reference)
    if at is None:
        return None
    wait = at - reference
    return min(wait, MAX_DURATION) if wait >= 0 else None


def parse_seconds(text: str) -> Optional[int]:
    """parse_seconds parses seconds, and rounds fractions up. It returns None for anything else (W2)."""
    match = re.fullmatch(r"0*([0-9]+)(\.[0-9]+)?", text)
    if match is None:
        return None
    # Python refuses to convert very long numbers, so they saturate first.
    whole = MAX_DURATION if len(match[1]) > 11 else int(match[1]) * SECOND
    return min(whole + (SECOND if (match[2] or "").strip(".0") else 0), MAX_DURATION)


def response_time(o: Observation) -> int:
    """response_time returns the time with which times in a response are compared (W2)."""
    own_date = o.header("date")
    reference = parse_http_date(own_date, o.observed_at) if own_date is not None else None
    if reference is None:
        return o.observed_at
    age = o.header("age") or ""
    if re.fullmatch(r"[0-9]+", age):
        reference += MAX_DURATION if len(age.lstrip("0")) > 11 else int(age) * SECOND
    return reference


# A list of a structured field (RFC 9651 §3.1), as far as it must be read to find its items that are strings.
_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_NUMBER = r"-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})(?![0-9.])"
_BARE = rf"(?:{_STRING}|{_NUMBER}|[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{{1,15}}(?![0-9.]))"
_PARAMETERS = rf"(?:; *[a-z*][a-z0-9_.*-]*(?:={_BARE})?)*"
_INNER = rf"\( *(?:{_BARE}{_PARAMETERS}(?: +|(?=\))))*\)"
_MEMBER = re.compile(rf"(?P<value>{_BARE}|{_INNER})(?P<parameters>{_PARAMETERS})")
_PARAMETER = re.compile(rf"; *(?P<name>[a-z*][a-z0-9_.*-]*)(?:=(?P<value>{_BARE}))?")


def parse_rate_limits(field: str) -> list[dict[str, str]]:
    """parse_rate_limits returns the parameters of the items of RateLimit that count. A malformed field has none (W2)."""
    items: list[dict[str, str]] = []
    at, field = 0, field.strip(" ")
    if len(field.encode()) > 2048:
        return []
    while at < len(field):
        member = _MEMBER.match(field, at)
        if member is None:
            return []
        if member["value"].startswith('"') and len(re.sub(r"\\(.)", r"\1", member["value"])) <= 64 + 2:
            items.append({p["name"]: p["value"] or "?1" for p in _PARAMETER.finditer(member["parameters"])})
        rest = re.compile(r"[ \t]*(?:,[ \t]*(?=.)|$)").match(field, member.end())
        if rest is None:
            return []
        at = rest.end()
    return items[:16]


def exhausted_reset(o: Observation) -> int:
    """exhausted_reset returns the longest time to the reset of a rate limit that has nothing left, or 0 (W2)."""
    longest = 0
    for item in parse_rate_limits(", ".join(o.lines("ratelimit"))):
        left, reset = item.get("r", ""), item.get("t", "")
        if re.fullmatch(r"-?0+", left) and re.fullmatch(r"[0-9]+", reset):
            longest = max(longest, min(int(reset), MAX_DURATION // SECOND) * SECOND)

    def first(name: str) -> str:
        return (o.header(name) or "").partition(",")[0].strip(" \t")

    wait = parse_seconds(first("x-ratelimit-reset"))
    if re.fullmatch(r"0+", first("x-ratelimit-remaining")) and wait is not None and wait < MAX_DURATION:
        if wait >= 1_000_000_000 * SECOND:
            wait -= response_time(o)
        longest = max(longest, wait)
    return longest


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LONG_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME = r"(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
_MONTH = f"(?P<month>{'|'.join(MONTHS)})"
HTTP_DATES = tuple(re.compile(form) for form in (
    f"(?:{'|'.join(DAYS)}), (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",  # IMF-fixdate
    f"(?:{'|'.join(LONG_DAYS)}), (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",  # rfc850-date
    f"(?:{'|'.join(DAYS)}) {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})",  # asctime-date
))


def parse_http_date(text: str, now: int) -> Optional[int]:
    """parse_http_date parses the three forms of RFC 9110 §5.6.7. It returns None for anything else."""
    for form in HTTP_DATES:
        match = form.fullmatch(text)
        if match is None:
            continue
        day, month = int(match["day"]), MONTHS.index(match["month"]) + 1
        hour, minute, second = (int(part) for part in match["time"].split(":"))
        if hour > 23 or minute > 59 or second > 59:
            return None
        years: tuple[int, ...] = (int(match["year"]),)
        limit: tuple[int, ...] = (10000,)  # No year of four digits is too far ahead.
        if len(match["year"]) == 2:
            # RFC 9110 §5.6.7: the latest year with these digits that is at most 50 years ahead.
            today = datetime.fromtimestamp(now // SECOND, timezone.utc)
            limit = (today.year + 50, *today.timetuple()[1:6])
            first = today.year - today.year % 100 + int(match["year"])
            years = (first + 100, first, first - 100)
        for year in years:
            at = (year, month, day, hour, minute, second)
            if at <= limit and is_date(year, month, day):
                return calendar.timegm((year, month, day, hour, minute, second)) * SECOND
        return None
    return None


def is_date(year: int, month: int, day: int) -> bool:
    """is_date reports whether the calendar has this day."""
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


# Section 5: whether to retry.


def decide(observation: dict[str, Any]) -> dict[str, Any]:
    """decide returns the verdict that follows from an observation."""
    o = Observation.of(observation)
    found = classify(o)
    if isinstance(found, Redirect):
        return {"redirect": dict(found._asdict())}
    if isinstance(found, Success):
        return {"outcome": found.outcome, "decision": {"rule": found.rule, "stop": "no_failure"}}
    asked = retry_after_of(o)
    if asked is None and o.status == 429:
        asked = exhausted_reset(o) or None
    failure: dict[str, Any] = {
        "class": found.error_class,
        "type": found.type,
        "rule": found.rule,
        "retryable": retryable(o, found),
    }
    if asked is not None:
        failure["retry_after"] = format_duration(asked)
    if found.reason is not None:
        failure["reason"] = found.reason
    return {"outcome": "failed", "failure": failure, "decision": decision_of(o, found, asked)}


def may_authenticate(o: Observation, error_class: str) -> bool:
    """may_authenticate reports whether an attempt with another credential or a signature may follow (A2, A8)."""
    if o.credential not in ("not_asked", "refreshed", "challenged"):
        return False
    if error_class == "forbidden":
        # A8: the request must be one that I1, I2 or I3 repeats. A2: I2 does not apply to a 401.
        return o.credential == "challenged" and (not o.once_only or o.from_failed_hop)
    return error_class == "auth_required"


def retryable(o: Observation, failure: Failure) -> bool:
    """retryable reports whether a later fetch of the same request may succeed, and may be sent (section 3)."""
    if o.once_only and o.request_state == "unknown" or failure.error_class == "internal":
        return False
    return failure.type in ("transient", "rate_limited") or may_authenticate(o, failure.error_class)


def decision_of(o: Observation, failure: Failure, asked: Optional[int]) -> dict[str, Any]:
    """decision_of returns the retry, or the first reason to stop of I7."""
    authenticates = may_authenticate(o, failure.error_class)
    if authenticates:
        rule, source, delay = "A2", "auth_refresh", 0
    elif asked is not None and o.status in (429, 503):
        rule, source, delay = "W2", "retry_after", asked
    elif failure.rule == "H11":
        rule, source, delay = "H11", "new_connection", 0
    else:
        rule, source, delay = "W1", "backoff", backoff(o.retry, o.attempt)
    stop = stop_of(o, failure, authenticates, source, delay)
    if stop is not None:
        return {"rule": stop[1], "stop": stop[0]}
    return {"rule": rule, "retry": {
        "attempt": o.attempt + 1,
        "delay": format_duration(delay),
        "source": source,
        "start": "failed_hop" if o.from_failed_hop else "first_url",
    }}


def stop_of(o: Observation, failure: Failure, authenticates: bool, source: str,
            delay: int) -> Optional[tuple[str, str]]:
    """stop_of returns the first reason to stop of I7 with its rule, or None if another attempt follows."""
    if failure.error_class in STOPPING:
        return "stopped", failure.rule
    if failure.error_class == "deadline":
        return "deadline", failure.rule
    if failure.error_class == "auth_required" and o.credential in ("refresh_failed", "refused_again"):
        return "auth_failed", "A2"
    if not failure.retried and not authenticates:
        return "not_retried", failure.rule
    if o.once_only and not o.from_failed_hop and not authenticates:
        return "not_idempotent", "I2"
    if o.body_committed:
        return "body_committed", "B3"
    if o.attempt >= o.retry.max_attempts:
        return "attempts_exhausted", "I4"
    if source == "retry_after" and delay > o.retry.max_retry_after:
        return "retry_after_too_long", "W3"
    # If the time limit expired as well, no time is left, although the failure takes precedence over P3.
    time_left = 0 if "deadline" in o.failures else o.time_left
    if time_left is not None and delay >= time_left:
        return "no_time", "W4"
    return None


# Durations and timestamps of the vectors.


def parse_duration(text: str) -> int:
    """parse_duration parses seconds with at most nine decimals, such as 0.2s."""
    whole, _, decimals = text.removesuffix("s").partition(".")
    return int(whole) * SECOND + int(decimals.ljust(9, "0") or "0")


def format_duration(nanoseconds: int) -> str:
    """format_duration formats seconds with none, three, six or nine decimals, as ProtoJSON does."""
    whole, decimals = divmod(nanoseconds, SECOND)
    text = f"{decimals:09d}" if decimals else ""
    while text.endswith("000"):
        text = text[:-3]
    return f"{whole}.{text}s" if text else f"{whole}s"


def parse_timestamp(text: str) -> int:
    """parse_timestamp parses a timestamp of RFC 3339."""
    match = re.fullmatch(r"(.{10})[Tt ](.{8})(?:\.([0-9]+))?(Z|z|[+-][0-9]{2}:[0-9]{2})", text)
    if match is None:
        raise ValueError(f"not a timestamp: {text!r}")
    zone = "+00:00" if match[4] in "Zz" else match[4]
    at = datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}")
    seconds = (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(seconds=1)
    return seconds * SECOND + int((match[3] or "").ljust(9, "0")[:9])


def main(lines: TextIO = sys.stdin, output: TextIO = sys.stdout) -> None:
    """main reads observations as JSON lines and writes their verdicts in the same order."""
    for line in lines:
        if line.strip():
            case = json.loads(line)
            json.dump({"name": case["name"], "verdict": decide(case["observation"])}, output)
            output.write("\n")
            output.flush()


if __name__ == "__main__":
    main()
