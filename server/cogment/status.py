"""Conversion between RequestError and gRPC statuses, in both directions.

Errors of this server become the status of a call (`abort`); the status with which another service answered becomes an
error here (`error_from_status`).
"""

from typing import Any, NoReturn

import grpc

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

_MAX_TEXT_BYTES = 2000
"""Maximum length of a status text. It travels as metadata, which clients limit to 8 KiB and where a byte may take
three."""
_STATUSES: dict[int, grpc.StatusCode] = {status.value[0]: status for status in grpc.StatusCode}
_ERRORS: dict[int, type[RequestError]] = {
    kind.code: kind
    for kind in (
        *(InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, PermissionDenied, ResourceExhausted),
        *(FailedPrecondition, Unimplemented, Unavailable, Unauthenticated),
    )
}
"""Statuses that are passed on as they are; all others mean a bug in the other service, and become Internal."""


async def abort(context: Any, error: RequestError) -> NoReturn:
    """End a call with the status of an error."""
    await context.abort(_STATUSES[error.code], shorten(str(error)))
    raise AssertionError("context.abort returned: expected it to raise")


def error_from_status(error: grpc.aio.AioRpcError, caller: str) -> RequestError:
    """Return the error for a status from another service. `caller` names the service and method in its text."""
    status = error.code()
    # A server that stops cancels its calls; nobody else cancels them, since cancelled tasks here get no status.
    kind = Unavailable if status is grpc.StatusCode.CANCELLED else _ERRORS.get(status.value[0], Internal)
    return kind(f"{caller} answered {status.name}: {shorten(error.details() or 'without a text')}")


def shorten(text: str) -> str:
    """Cut a text to the maximum length of a status text."""
    # A lone surrogate has no UTF-8 form; encoding it strictly would replace this error with another one.
    data = text.encode(errors="replace")
    return data[:_MAX_TEXT_BYTES].decode(errors="ignore") + "…" * (len(data) > _MAX_TEXT_BYTES)
