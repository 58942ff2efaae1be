"""Completes docstrings and annotations, so that help() answers without another page."""

from __future__ import annotations

import datetime
import inspect
import textwrap
import typing
from typing import Any, Dict, Literal, Mapping

from . import _client, contract, policies

_TEXTS = {
    "client": """
        target: the gRPC port of the service as "HOST:PORT" or "http://HOST:PORT", as
            "https://HOST:PORT" for TLS, or as "dns:///HOST:PORT", which names all replicas.
        credentials: grpc.ChannelCredentials, for TLS with a certificate authority of your own or
            a client certificate. None means the authorities of gRPC for https://, else plaintext.
        token: sent with every call, as the header Authorization: Bearer TOKEN.
        metadata: pairs to send with every call.
        service_config: service config of the channel, as JSON. Default: the published one.
        options: more channel options. The client does not use the proxy of the environment.
        base_url: the URL before relative ones; an absolute URL ignores it.
        defaults: headers, params, cookies, auth, timeout and policies of each fetch. An argument of
            a fetch replaces that of the client; headers, params and cookies are merged by name.
        """,
    "many": """
        An invalid request yields a Result with its error, and the others go on. A fetch in
        flight on a stream that breaks yields a Result with a LostError. If no stream can be
        opened, the error is raised after the results of the fetches in flight, and the rest
        of the requests is not fetched.""",
    "explain": """
        Returns what fetchd would do after an observation; nothing is fetched.

            client.explain(response={"status_code": 503}).retry_decision

        observation: the fields of an ExplainRequest:
        """,
    "outcome": """
        It returns a Response for every outcome, also for a failure: raise_for_status() raises that
        as a FetchError. A ServiceError is raised if there is no outcome, because the request is
        invalid, or because of fetchd itself.

        The body is kept in memory, at most 16 MiB or body_policy={"max_size_bytes": N}. Use
        stream() for a larger one.""",
    "arguments": """
        headers: dict, or pairs of names and values. None leaves out a header of the client.
        params: dict, pairs or str. They are appended to the query of the URL, without those that are None.
        cookies: dict. They are sent as the header Cookie.
        auth: (user name, password). It is sent as the header Authorization, with the scheme Basic.
        timeout: seconds | timedelta. For the whole fetch, its body included. Default: the limits
            of the service.
        content: str | bytes | file. The request body, at most 1 MiB.
        data: the same, or a dict or pairs, which are sent as a form.
        json: any value that is sent as JSON.
        store: str. The service writes the body to this store; response.stored says where it is.
        key: str. Key of the object in the store. Default: it is named by its digest.
        on_event: function. It is called with each event of the fetch, such as the end of an attempt.
        """,
}


class _Unpack:
    """Unpack of typing_extensions, which need not be there."""

    def __class_getitem__(cls, item: Any) -> Any:
        return item


def _shown(kind: Any) -> str:
    """Returns a type as text."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind == policies.Duration:
        return "seconds | timedelta"
    if origin is Literal:
        return " | ".join(map(repr, arguments))
    if origin is typing.Union:
        return "dict or pairs"
    if origin is not None and issubclass(origin, Mapping):
        return "dict of str"
    if origin is not None:
        return f"list of {_shown(arguments[0])}"
    if hasattr(kind, "__total__"):
        return "{" + ", ".join(f"{name}: {_shown(field)}" for name, field in typing.get_type_hints(kind).items()) + "}"
    return "datetime" if kind is datetime.datetime else str(kind.__name__)


def _fields(message: type) -> str:
    lines = (f"{name}: {_shown(kind)}" for name, kind in typing.get_type_hints(message).items())
    return "\n".join(textwrap.fill(line, 100, subsequent_indent="    ", break_on_hyphens=False) for line in lines)


def _with_types(message: type) -> None:
    """Adds the types of fields to the docstring of a policy."""
    for name, kind in typing.get_type_hints(message).items():
        message.__doc__ = (message.__doc__ or "").replace(f"\n    {name}: ", f"\n    {name}: {_shown(kind)}. ", 1)


def complete(namespace: Dict[str, Any], cls: type) -> None:
    """Completes the methods of a client: their docstrings, and annotations that are types."""
    names = {**vars(policies), **vars(_client), **namespace, "Unpack": _Unpack}
    for method in vars(cls).values():
        doc = getattr(method, "__doc__", None) or ""
        if not inspect.isfunction(method) or method.__name__.startswith("_") and method.__name__ != "__init__":
            continue
        method.__annotations__ = typing.get_type_hints(method, names)
        doc = inspect.cleandoc(doc)
        for name, text in _TEXTS.items():
            doc = doc.replace("{" + name + "}", text)
        method.__doc__ = doc


_TEXTS = {name: inspect.cleandoc(text) for name, text in _TEXTS.items()}
_TEXTS["arguments"] += "\n" + _fields(policies.Policies) + "\n\nA body_policy has at most one of stream, auto, inline, digest, none and store."
_TEXTS["arguments"] += "\nhelp(fetchd.RetryPolicy) says what its fields do; so does the help of each other policy."
_EVENTS = [
    f"{event.name} ({', '.join(field.name for field in event.message_type.fields)})"
    for event in contract.FetchEvent.DESCRIPTOR.oneofs_by_name["event"].fields
    if event.name != "heartbeat"
]
_TEXTS["events"] = textwrap.fill(f"event.WhichOneof('event') is one of {', '.join(_EVENTS)}.", 100, break_on_hyphens=False)
_TEXTS["explain"] += "\n" + textwrap.indent(_fields(policies.ExplainRequest), "    ")
_client.Options.__doc__ = f"{_client.Options.__doc__}\n\n{_TEXTS['arguments']}"
for _kind in vars(policies).values():
    if hasattr(_kind, "__total__"):
        _with_types(_kind)
