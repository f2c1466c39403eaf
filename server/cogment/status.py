"""Refusals and gRPC's statuses: what is refused here goes out as a status, what others answer comes in as a refusal.

Requests as they come in: none may be larger than the server takes.

What every service answers that is asked for its version.
"""

import functools
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import Message

from worldloom.protos.cogment.api.common_pb2 import VersionInfo
from worldloom.protos.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    RequestError,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from worldloom.server.config import Limits
from worldloom.server.logs import Log

log = Log("cogment")

T = TypeVar("T")

_MOST_TEXT_BYTES = 2000
"""Of a text. It travels as metadata, of which clients take 8 KiB; there some bytes become three."""
_STATUSES: dict[int, grpc.StatusCode] = {status.value[0]: status for status in grpc.StatusCode}
_REFUSALS: dict[int, type[RequestError]] = {
    kind.code: kind
    for kind in (
        *(InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, PermissionDenied, ResourceExhausted),
        *(FailedPrecondition, Unimplemented, Unavailable, Unauthenticated),
    )
}
"""Statuses that mean the same to whoever hears of them next; all others are a bug of somebody's."""


async def answered(context: Any, call: Awaitable[T]) -> T:
    """What a call gives; if it is refused, or fails, the call of the context ends with that status."""
    try:
        return await call
    except RequestError as refusal:
        refused = refusal
    except Exception as error:
        log.error("request failed")
        refused = Internal(f"the server failed: {type(error).__name__}; its log has more")
    return await abort(context, refused)


async def abort(context: Any, refusal: RequestError) -> NoReturn:
    """End a call with the refusal's status."""
    await context.abort(_STATUSES[refusal.code], shortened(str(refusal)))
    raise AssertionError("a call goes on that was ended")


def refusal_of(error: grpc.aio.AioRpcError, who: str) -> RequestError:
    """What another service answered; the text begins with `who` that is."""
    status = error.code()
    kind = _REFUSALS.get(status.value[0], Internal)
    return kind(f"{who} answered {status.name}: {shortened(error.details() or 'without saying why')}")


def shortened(text: str) -> str:
    """As much of a text as fits into a status."""
    # A lone surrogate has no UTF-8 form and must not turn one error into another.
    data = text.encode(errors="replace")
    return data[:_MOST_TEXT_BYTES].decode(errors="ignore") + "…" * (len(data) > _MOST_TEXT_BYTES)


M = TypeVar("M", bound=Message)


async def take_request(request: M, call: Callable[[M], Awaitable[T]], limits: Limits) -> T:
    """Make a call with a request, if that is not too large."""
    size_bytes, most_bytes = request.ByteSize(), limits.max_message_bytes
    if size_bytes > most_bytes:
        raise ResourceExhausted(
            f"a request of {size_bytes} bytes: expected at most {most_bytes}; send less at a time, or start the"
            " server with a larger --max-message-bytes"
        )
    return await call(request)


API_VERSION = "0.3.0"
"""Of the Cogment API that is spoken here."""


def version_info() -> VersionInfo:
    """The versions of this server, of the API and of gRPC."""
    found = {"worldloom": _own_version(), "cogment-api": API_VERSION, "grpc": grpc.__version__}
    return VersionInfo(versions=[VersionInfo.Version(name=name, version=version) for name, version in found.items()])


@functools.cache
def _own_version() -> str:
    return metadata.version("worldloom")
