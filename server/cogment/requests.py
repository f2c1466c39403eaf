"""Requests as they come in: none may be larger than the server takes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from worldloom.server.errors import ResourceExhausted
from worldloom.server.limits import Limits

M = TypeVar("M", bound=Message)
T = TypeVar("T")


async def take_request(request: M, call: Callable[[M], Awaitable[T]], limits: Limits) -> T:
    """Make a call with a request, if that is not too large."""
    size_bytes, most_bytes = request.ByteSize(), limits.max_message_bytes
    if size_bytes > most_bytes:
        raise ResourceExhausted(
            f"a request of {size_bytes} bytes: expected at most {most_bytes}; send less at a time, or start the"
            " server with a larger --max-message-bytes"
        )
    return await call(request)
