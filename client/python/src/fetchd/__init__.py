"""Fetch URLs through fetchd.

    import fetchd

    with fetchd.Client("127.0.0.1:8080") as client:
        response = client.get("https://example.com/", retry_policy={"max_attempts": 5})
        response.raise_for_outcome()
        print(response.status_code, response.text)

AsyncClient has the same methods for asyncio. FetchError is about the origin, ServiceError about
the request or fetchd.
"""

import typing

try:
    import google.protobuf as _protobuf
    import grpc as _grpc
except ImportError as _missing:
    raise ImportError(f"{_missing}: fetchd needs grpcio and protobuf; pip install grpcio protobuf, or apt-get install python3-grpcio python3-protobuf") from None

from . import _foreign, contract
from ._aio import AsyncClient, AsyncStreamResponse
from ._client import Defaults, Options, Request
from ._response import Headers, Response, Result
from ._sync import Client, StreamResponse
from .contract import enum_name
from .errors import (
    BodyNotDelivered,
    BodyRestarted,
    ContractError,
    DeadlineError,
    FetchdError,
    FetchError,
    InvalidRequestError,
    LostError,
    NeedsAuthError,
    NotIdempotentError,
    OverloadedError,
    PermanentError,
    RateLimitedError,
    RefusedError,
    ServiceError,
    TransientError,
    UnavailableError,
    Violation,
)
from .policies import (
    BodyPolicy,
    ContentPolicy,
    ExplainRequest,
    Integrity,
    Policies,
    Precondition,
    RedirectPolicy,
    ResumePoint,
    RetryPolicy,
    StoreDelivery,
    StreamDelivery,
    TimeoutPolicy,
)

__all__ = [
    "AsyncClient",
    "AsyncStreamResponse",
    "BodyNotDelivered",
    "BodyPolicy",
    "BodyRestarted",
    "Client",
    "ContentPolicy",
    "ContractError",
    "DeadlineError",
    "Defaults",
    "ExplainRequest",
    "FetchError",
    "FetchdError",
    "Headers",
    "Integrity",
    "InvalidRequestError",
    "LostError",
    "NeedsAuthError",
    "NotIdempotentError",
    "Options",
    "OverloadedError",
    "PermanentError",
    "Policies",
    "Precondition",
    "RateLimitedError",
    "RedirectPolicy",
    "RefusedError",
    "Request",
    "Response",
    "Result",
    "ResumePoint",
    "RetryPolicy",
    "ServiceError",
    "StoreDelivery",
    "StreamDelivery",
    "StreamResponse",
    "TimeoutPolicy",
    "TransientError",
    "UnavailableError",
    "Violation",
    "contract",
    "enum_name",
]


for _name in __all__:  # help() and reprs show the names that programs use
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "fetchd"


__version__: str

if not typing.TYPE_CHECKING:  # mypy knows which names there are

    def __getattr__(name: str) -> str:
        if name == "__version__":
            import importlib.metadata  # only now: it takes longer to import than the rest

            try:
                return importlib.metadata.version("fetchd")
            except importlib.metadata.PackageNotFoundError:  # run from its source
                return "devel"
        raise AttributeError(_foreign.text(f"module {__name__!r}", name, _foreign.MODULE))
