"""The address of the service, in the forms that every client of fetchd takes."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Optional

_WANT = "want HOST:PORT, http://HOST:PORT, https://HOST:PORT for TLS, or dns:///HOST:PORT for all addresses of a name"
_GRPC = ("ipv4:", "ipv6:", "unix:", "unix-abstract:", "xds:")  # other names of gRPC, which it parses itself
_PORTS = {"http": "80", "https": "443"}
_PARTS = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[^\]\s]+)?\]|[^\s:\[\]]+)(?::(?P<port>.*))?", re.DOTALL)


class Address(NamedTuple):
    """An address that was parsed."""

    target: str  # for gRPC
    tls: Optional[bool]  # None if the form does not say


def parsed(text: Any) -> Address:
    """Parses an address. Raises ValueError, which says what is wrong and what to pass instead."""
    if not isinstance(text, str):
        raise TypeError(f"target is {type(text).__name__}, want a str such as '127.0.0.1:8080'")
    if text.startswith(_GRPC):
        return Address(text, None)
    if "@" in text:
        raise ValueError(f"target has a user name or a password: pass the token as token=, and {_WANT}")
    parts = _PARTS.fullmatch(text)
    assert parts is not None  # it matches every text
    scheme, authority, rest = (parts["scheme"] or "").lower(), parts["authority"], parts["rest"]
    if scheme == "dns" or (not scheme and text.startswith("dns:")):
        scheme, authority, rest = "dns", text.rpartition("/")[2] if "/" in text else text[4:], ""
    if scheme not in ("", "dns", *_PORTS):
        raise _wrong(text, f"the scheme {scheme}:// is none of a service")
    if rest not in ("", "/") or (rest and not scheme):
        raise _wrong(text, f"{rest[:40]!r} follows the host and the port")
    found = _HOST.fullmatch(authority)
    if found is None:
        raise _wrong(text, "an IPv6 address needs brackets" if authority.count(":") > 1 else "the host is missing or invalid")
    port = found["port"] if found["port"] is not None else _PORTS.get(scheme)
    if port is None:
        raise _wrong(text, "the port is missing")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise _wrong(text, f"the port is {port[:40]!r}, not a number from 1 to 65535")
    if scheme == "dns":
        return Address(text, None)
    return Address(f"{found['host']}:{port}", None if not scheme else scheme == "https")


def _wrong(text: str, what: str) -> ValueError:
    return ValueError(f"target is {text[:80]!r}: {what}; {_WANT}")
