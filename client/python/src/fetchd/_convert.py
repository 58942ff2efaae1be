"""Converts arguments to messages of the contract. An unknown field raises TypeError, and so
does a value of the wrong type; a value that cannot be right raises ValueError."""

from __future__ import annotations

import datetime
import json as json_module
import math
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

from . import _foreign, contract

Setter = Callable[[Any, Any, str], None]

# By message: how to set each field, and the fields of each oneof.
_plans: Dict[str, Tuple[Dict[str, Setter], List[List[str]]]] = {}
_INTEGERS = {1: (32, True), 2: (64, True), 3: (32, False), 4: (64, False)}  # bits and sign, by cpp_type


def fill(message: Any, values: Any, path: str = "") -> None:
    """Sets the fields of a message. path names the message in errors."""
    setters, oneofs = _plan(message.DESCRIPTOR)
    if not isinstance(values, Mapping):
        raise _wrong(path, values, "a dict")
    prefix = f"{path}." if path else ""
    for names in oneofs:
        given = [prefix + name for name in names if values.get(name) is not None]
        if len(given) > 1:
            raise TypeError(f"{' and '.join(given)} are given, want one of them")
    for name, value in values.items():
        setter = setters.get(name)
        if setter is None:
            raise TypeError(f"{prefix}{name} is not a field: the fields are {', '.join(setters)}")
        if value is not None:
            setter(message, value, prefix + name)


def _wrong(path: str, value: Any, expected: str) -> TypeError:
    text = repr(value)
    if path.partition("[")[0] in ("headers", "auth", "cookies", *_BODIES):
        text = "a value"  # it may be a secret
    return TypeError(f"{path} is {text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__}), want {expected}")


def _plan(descriptor: Any) -> Tuple[Dict[str, Setter], List[List[str]]]:
    plan = _plans.get(descriptor.full_name)
    if plan is None:
        setters = {field.name: _setter(field) for field in descriptor.fields}
        # An optional field is the only one of its oneof.
        oneofs = [[field.name for field in oneof.fields] for oneof in descriptor.oneofs if len(oneof.fields) > 1]
        plan = _plans[descriptor.full_name] = setters, oneofs
    return plan


def _setter(field: Any) -> Setter:
    name = field.name
    if field.message_type is None:
        check = _scalar(field)
        if field.label == field.LABEL_REPEATED:

            def set_list(message: Any, value: Any, path: str) -> None:
                if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
                    raise _wrong(path, value, "a list")
                getattr(message, name).extend([check(v, f"{path}[{i}]") for i, v in enumerate(value)])

            return set_list
        return lambda message, value, path: setattr(message, name, check(value, path))
    kind = field.message_type.full_name
    if field.message_type.GetOptions().map_entry:
        return lambda message, value, path: _set_map(getattr(message, name), value, path)
    if kind == "fetchd.v1.Header":
        return lambda message, value, path: add_headers(getattr(message, name), value, path)
    if kind == "google.protobuf.Duration":
        return lambda message, value, path: set_duration(getattr(message, name), value, path)
    if kind == "google.protobuf.Timestamp":
        return lambda message, value, path: _set_time(getattr(message, name), value, path)

    def set_message(message: Any, value: Any, path: str) -> None:
        part = getattr(message, name)
        part.SetInParent()
        fill(part, value, path)

    return set_message


def _scalar(field: Any) -> Callable[[Any, str], Any]:
    if field.enum_type is not None:
        numbers = {text: number for number, text in contract.short_names(field.enum_type).items() if number}

        def enum(value: Any, path: str) -> int:
            if not isinstance(value, str):
                raise _wrong(path, value, "one of " + ", ".join(map(repr, numbers)))
            if value not in numbers:
                raise ValueError(f"{path} is {value[:60]!r}, want one of {', '.join(map(repr, numbers))}")
            number: int = numbers[value]
            return number

        return enum
    if field.cpp_type in _INTEGERS:
        bits, signed = _INTEGERS[field.cpp_type]
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

        def integer(value: Any, path: str) -> int:
            if not isinstance(value, int) or isinstance(value, bool):
                raise _wrong(path, value, "an int")
            if not low <= value <= high:
                raise ValueError(f"{path} is {value}, want {low} to {high}")
            return value

        return integer
    if field.cpp_type == field.CPPTYPE_BOOL:
        return _checked((bool,), "True or False")
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):

        def number(value: Any, path: str) -> float:
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise _wrong(path, value, "a number")
            return value

        return number
    if field.type == field.TYPE_BYTES:
        return _checked((bytes,), "bytes")
    return _checked((str,), "a str")


def _checked(kinds: Tuple[type, ...], expected: str) -> Callable[[Any, str], Any]:
    def check(value: Any, path: str) -> Any:
        if not isinstance(value, kinds):
            raise _wrong(path, value, expected)
        return value

    return check


def _set_map(entries: Any, value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(path, value, "a dict of str to str")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise _wrong(f"{path}[{key!r}]", text, "a str for a str")
        entries[key] = text


def add_headers(fields: Any, value: Any, path: str = "headers") -> None:
    """Appends headers from a dict, or from pairs of names and values."""
    for name, text in _pairs(value, path):
        if text is None:  # it leaves out a header of the client
            continue
        if not isinstance(name, str):
            raise TypeError(f"{path}: a name is {type(name).__name__}, want a str")
        if isinstance(text, str):
            fields.add(name=name, value=text)
        elif isinstance(text, bytes):
            add_raw(fields, name, text)
        else:
            raise TypeError(f"{path}[{name!r}] is {type(text).__name__}, want a str or bytes")


def _pairs(value: Any, path: str) -> List[Tuple[Any, Any]]:
    """Returns pairs of names and values."""
    if isinstance(value, (str, bytes)) or not isinstance(value, (Mapping, Iterable)):
        raise _wrong(path, value, "a dict, or pairs of names and values")
    pairs = []
    for pair in value.items() if isinstance(value, Mapping) else value:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise _wrong(path, pair, "pairs of names and values")
        pairs.append((pair[0], pair[1]))
    return pairs


def add_raw(fields: Any, name: str, value: bytes) -> None:
    """Appends a header whose value is bytes."""
    try:
        fields.add(name=name, value=value.decode())
    except UnicodeDecodeError:
        fields.add(name=name, raw_value=value)


def set_duration(duration: Any, value: Any, path: str) -> None:
    """Sets a duration from seconds or a timedelta."""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(path, value, "seconds or a timedelta")
    if not math.isfinite(value) or abs(value) > 315_576_000_000:
        raise ValueError(f"{path} is {value}, want a finite number of seconds")
    duration.FromNanoseconds(round(value * 1e9))
    duration.SetInParent()  # zero is not unset


def _set_time(timestamp: Any, value: Any, path: str) -> None:
    if not isinstance(value, datetime.datetime):
        raise _wrong(path, value, "a datetime")
    if value.tzinfo is None:
        raise ValueError(f"{path} is {value}, want a datetime with a time zone")
    timestamp.FromDatetime(value.astimezone(datetime.timezone.utc).replace(tzinfo=None))


MAX_TIMEOUT = 1_000_000_000  # gRPC and the clock of Python take no ten times more
_BODIES = ("content", "data", "json")
_FILE_BYTES = 2 << 20  # of a file; a request may have half of it
_KEPT = "surrogateescape"  # bytes of a query that are not UTF-8 stay as they are
_OF_A_FETCH = (*_BODIES, "store", "key", "on_event")  # and not of a client
_OWN = ("headers", "params", "cookies", "auth", "timeout", *_OF_A_FETCH)  # arguments that are no field of FetchRequest


def request(method: str, url: str, options: Mapping[str, Any]) -> Any:
    """Returns the FetchRequest for the arguments of a client's method. The options timeout
    and on_event are not part of it."""
    if not isinstance(url, str):
        raise _wrong("url", url, "a str")
    if not isinstance(method, str):
        raise _wrong("method", method, "a str")
    message = contract.FetchRequest(url=url)
    method = method.upper()
    if method != "GET":
        message.method = method
    if options:
        check_names(options)
        rest = {name: value for name, value in options.items() if name not in _foreign.ARGUMENTS}
        if rest.get("params") is not None:
            message.url = _with_params(url, rest["params"])
        headers = _with_credentials(rest)
        if rest.get("cookies") is not None:
            headers.append(("Cookie", _cookies(rest["cookies"], headers)))
        add_headers(message.headers, headers)
        _set_body(message, rest)
        store = {name: rest.pop(name) for name in ("store", "key") if rest.get(name) is not None}
        for name in _OWN:
            rest.pop(name, None)
        fill(message, rest)
        if store:
            _set_store(message.body_policy, store)
    return message


def check_names(options: Mapping[str, Any], client: bool = False) -> None:
    """Refuses unknown arguments, and those of a fetch if they are given to a client."""
    fields, _ = _plan(contract.FetchRequest.DESCRIPTOR)
    for name, value in options.items():
        if client and name in _OF_A_FETCH:
            raise TypeError(f"{name} is an argument of a fetch, not of a client")
        if name in _foreign.ARGUMENTS:
            if value is None or value is _foreign.SAME.get(name):
                continue
            raise TypeError(f"{name} is not an argument: {_foreign.ARGUMENTS[name]}")
        if name in _OWN or name in fields:
            continue
        import difflib

        names = [*_OWN, *(field for field in fields if field not in _OWN and field not in _foreign.ARGUMENTS)]
        close = difflib.get_close_matches(name, names, 1)
        raise TypeError(f"{name} is not an argument{f', did you mean {close[0]}' if close else ''}: the arguments are {', '.join(names)}")


def merged(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the arguments of a fetch with those of its client. The client's are replaced, but
    headers, params and cookies are merged by name."""
    both = {**defaults, **{name: value for name, value in options.items() if value is not None}}
    both["headers"] = _joined(_with_credentials(defaults), _with_credentials(options), str.lower)
    both.pop("auth", None)
    for name, pairs in ("params", param_pairs), ("cookies", lambda value: _pairs(value, "cookies")):
        if defaults.get(name) and options.get(name) is not None:
            both[name] = _joined(pairs(defaults[name]), pairs(options[name]), lambda key: key)
    return both


def _joined(first: List[Tuple[Any, Any]], then: List[Tuple[Any, Any]], fold: Callable[[Any], Any]) -> List[Tuple[Any, Any]]:
    replaced = {fold(name) for name, _ in then if isinstance(name, str)}
    return [(name, value) for name, value in first if not isinstance(name, str) or fold(name) not in replaced] + then


def _with_credentials(options: Mapping[str, Any]) -> List[Tuple[Any, Any]]:
    """Returns the headers, with one for auth."""
    headers, auth = _pairs(options.get("headers") or (), "headers"), options.get("auth")
    if auth is None:
        return headers
    if not isinstance(auth, (tuple, list)) or len(auth) != 2 or not all(isinstance(part, (str, bytes)) for part in auth):
        raise _wrong("auth", auth, 'a pair of user name and password; a token is headers={"Authorization": "Bearer ..."}, other schemes need the adapter for requests or httpx')
    if _has(headers, "authorization"):
        raise TypeError("auth and headers['Authorization'] are given, want one of them")
    import base64

    pair = b":".join(part.encode() if isinstance(part, str) else part for part in auth)
    return [*headers, ("Authorization", "Basic " + base64.b64encode(pair).decode())]


def _cookies(value: Any, headers: List[Tuple[Any, Any]]) -> str:
    if _has(headers, "cookie"):
        raise TypeError("cookies and headers['Cookie'] are given, want one of them")
    pairs = _pairs(value, "cookies")
    if not all(isinstance(part, str) for pair in pairs for part in pair):
        raise _wrong("cookies", value, "a dict of str to str")
    return "; ".join(f"{name}={text}" for name, text in pairs)


def _has(headers: List[Tuple[Any, Any]], name: str) -> bool:
    return any(isinstance(given, str) and given.lower() == name for given, _ in headers)


def _set_store(policy: Any, store: Mapping[str, Any]) -> None:
    if "store" not in store:
        raise TypeError("key is given without store")
    delivery = policy.WhichOneof("delivery")
    if delivery is not None:
        raise TypeError(f"store and body_policy.{delivery} are given, want one of them")
    fill(policy.store, store)


def param_pairs(params: Any) -> List[Tuple[Any, Any]]:
    """Returns the pairs of params, which may be a query."""
    if not isinstance(params, (str, bytes)):
        return _pairs(params, "params")
    import urllib.parse

    text = params if isinstance(params, str) else params.decode(errors=_KEPT)
    return urllib.parse.parse_qsl(text, keep_blank_values=True, errors=_KEPT)


def _with_params(url: str, params: Any) -> str:
    query = _form(param_pairs(params), "params", _KEPT)
    address, mark, fragment = url.partition("#")
    if not query:
        return url
    return address + ("&" if "?" in address else "?") + query + mark + fragment


def _form(value: Any, path: str, errors: str = "strict") -> str:
    """Encodes names and values, without the values that are None."""
    import urllib.parse

    pairs = [(name, text if isinstance(text, (str, bytes)) or not isinstance(text, Iterable) else [one for one in text if one is not None]) for name, text in _pairs(value, path)]
    return urllib.parse.urlencode([pair for pair in pairs if pair[1] is not None], doseq=True, errors=errors)


def _read(file: Any) -> Any:
    """Returns the content of a file, or the start of one that is too large. A raw file and a response of
    urllib3 may return less than they are asked for before they end."""
    content = piece = file.read(_FILE_BYTES)
    while piece and len(content) < _FILE_BYTES:
        piece = file.read(_FILE_BYTES - len(content))
        content += piece
    return content


def _set_body(message: Any, options: Mapping[str, Any]) -> None:
    given = [name for name in _BODIES if options.get(name) is not None]
    if not given:
        return
    if len(given) > 1:
        raise TypeError(f"{' and '.join(given)} are given, want one of them")
    name, value, kind = given[0], options[given[0]], ""
    if name != "json" and hasattr(value, "read"):
        value = _read(value)
    if name == "json":
        body, kind = json_module.dumps(value, separators=(",", ":"), allow_nan=False).encode(), "application/json"
    elif isinstance(value, str):
        body = value.encode()
    elif isinstance(value, (bytes, bytearray, memoryview)):
        body = bytes(value)
    elif name == "data" and isinstance(value, (Mapping, list, tuple)):
        body, kind = _form(value, name).encode(), "application/x-www-form-urlencoded"
    else:
        raise _wrong(name, value, "str, bytes or a file" if name == "content" else "str, bytes, a file, a dict or pairs")
    message.body = body
    if kind and not any(h.name.lower() == "content-type" for h in message.headers):
        message.headers.add(name="Content-Type", value=kind)


def seconds(value: Any) -> float:
    """Returns a timeout in seconds."""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong("timeout", value, 'seconds or a timedelta for the whole fetch; its parts are timeout_policy={"connect_timeout": 5, "idle_timeout": 30}')
    if not 0 < value <= MAX_TIMEOUT:
        raise ValueError(f"timeout is {value}, want more than 0 and at most {MAX_TIMEOUT} seconds")
    return float(value)


def service_timeout(timeout: float) -> float:
    """Returns the time after which the service ends a fetch, so that its outcome arrives within
    the timeout."""
    return timeout - min(max(timeout * 0.05, min(0.25, timeout / 4)), 1)
