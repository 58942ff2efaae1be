"""URLs of http and https: parsing, and the resolution of references (D8, RFC 3986 §5.2)."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple, Optional


class Url(NamedTuple):
    """A URL in the parts of RFC 3986. Scheme and host are in lower case."""

    scheme: str
    userinfo: Optional[str]
    host: str
    port: Optional[str]
    path: str
    query: Optional[str]
    fragment: Optional[str]

    @property
    def origin(self) -> tuple[str, str, int]:
        default = 443 if self.scheme == "https" else 80
        return self.scheme, self.site, int(self.port) if self.port else default

    @property
    def site(self) -> str:
        """site is the host as it is compared: a dot at its end makes no difference (D4)."""
        return self.host.removesuffix(".")

    def __str__(self) -> str:
        text = f"{self.scheme}://"
        if self.userinfo is not None:
            text += f"{self.userinfo}@"
        text += self.host
        if self.port is not None:
            text += f":{self.port}"
        text += self.path
        if self.query is not None:
            text += f"?{self.query}"
        if self.fragment:  # D8: an empty one is not written.
            text += f"#{self.fragment}"
        return text


URI_PARTS = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
NAME = re.compile(r"(?=.{1,253}\.?$)(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?")
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
HALF_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
ENCODED = re.compile(r'[ "#<>\\^`{|}]|[^\x00-\x7f]|%(?![0-9A-Fa-f]{2})')
ENCODED_IN_QUERY = re.compile(r'[ "<>]|[^\x00-\x7f]')
MAX_URL = 8 * 1024  # Section 12.


class Unusable(ValueError):
    """The URL cannot be used. The text is the reason that R3 has in D8."""


def encode(text: Optional[str], these: re.Pattern[str] = ENCODED) -> Optional[str]:
    """encode replaces the characters that D8 names."""
    if text is None:
        return None
    return these.sub(lambda m: "".join(f"%{b:02X}" for b in m.group().encode("utf-8", "surrogatepass")), text)


def parse_url(text: str) -> Optional[Url]:
    """parse_url parses an absolute http or https URL. It returns None if it is none."""
    try:
        return resolve(None, text)
    except Unusable:
        return None


def resolve(base: Optional[Url], reference: str) -> Url:
    """resolve applies RFC 3986 §5.2. It raises Unusable if the reference or the result cannot be used."""
    url = reference_url(base, reference)
    if len(str(url)) > MAX_URL:
        raise Unusable("location_too_long")
    return url


def reference_url(base: Optional[Url], reference: str) -> Url:
    match = URI_PARTS.fullmatch(reference)
    if match is None or CONTROL.search(reference):
        raise Unusable("location_malformed")
    scheme, authority, path, query, fragment = match.groups()
    if any(HALF_ESCAPE.search(part or "") for part in (scheme, authority)):
        raise Unusable("location_malformed")
    path, query, fragment = encode(path) or "", encode(query, ENCODED_IN_QUERY), encode(fragment)
    if scheme is not None:
        scheme = scheme.lower()
        if scheme not in ("http", "https"):
            raise Unusable("location_scheme")
    elif base is not None:
        scheme = base.scheme
    if authority is not None and scheme is not None:
        return Url(scheme, *parse_authority(authority), remove_dot_segments(path), query, fragment)
    if base is None or match[1] is not None:
        raise Unusable("location_relative")
    if path == "":
        return base._replace(query=base.query if query is None else query, fragment=fragment)
    if not path.startswith("/"):
        path = base.path[:base.path.rfind("/") + 1] + path if base.path else "/" + path
    return base._replace(path=remove_dot_segments(path), query=query, fragment=fragment)


def parse_authority(text: str) -> tuple[Optional[str], str, Optional[str]]:
    """parse_authority returns userinfo, host and port."""
    before, at, host = text.rpartition("@")
    if host.startswith("["):
        address, bracket, rest = host[1:].partition("]")
        if not bracket or rest and not rest.startswith(":"):
            raise Unusable("location_host")
        if "%" in address:
            raise Unusable("location_zone")
        try:
            parsed = ipaddress.IPv6Address(address)
        except ValueError:
            raise Unusable("location_host") from None
        mapped = parsed.ipv4_mapped
        host, port = f"[::ffff:{mapped}]" if mapped else f"[{parsed.compressed}]", rest[1:]
    else:
        host, _, port = host.partition(":")
        host = parse_name(host)
    digits = (port or "").lstrip("0")
    if port and not (re.fullmatch(r"[0-9]{1,5}", digits) and int(digits) <= 65535):
        raise Unusable("location_port")
    return (before if at else None), host, digits or None


def parse_name(host: str) -> str:
    """parse_name returns a name or an IPv4 address in lower case and in ASCII."""
    if host == "":
        raise Unusable("location_relative")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise Unusable("location_host") from None
    host = host.lower()
    if not NAME.fullmatch(host):
        raise Unusable("location_host")
    if NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise Unusable("location_number_like_host") from None
    return host


def remove_dot_segments(path: str) -> str:
    """remove_dot_segments applies RFC 3986 §5.2.4 to an absolute path."""
    output: list[str] = []
    segments = path.split("/")
    for i, segment in enumerate(segments):
        last = i == len(segments) - 1
        if segment == "..":
            if len(output) > 1:
                output.pop()
            if last:
                output.append("")
        elif segment == ".":
            if last:
                output.append("")
        else:
            output.append(segment)
    return "/".join(output)
