"""The streams that are open, over all transports, and the errors about their limits."""

import asyncio
import itertools
import threading

from worldloom.protos.errors import ResourceExhausted, Unavailable
from worldloom.protos.wire import WireError, read_varint
from worldloom.server.config import Limits
from worldloom.server.engine.engine import SHUTTING_DOWN

_POLL_S = 0.05
_LEAST_RECEIVED_BYTES = 16 << 20
_LARGEST = 2**31 - 1
_CREATE_WORLD_TAG = 0x0A
"""First byte of a request that is a CreateWorldRequest: field 1, with a length."""


class OpenStreams:
    """A count of open streams, which any thread may change."""

    def __init__(self, limits: Limits) -> None:
        self._most = limits.max_streams
        self._count = 0
        self._lock = threading.Lock()
        self._names = itertools.count(1)
        self._is_refusing = False

    def open(self) -> str:
        """Count a new stream, and return its name; ResourceExhausted if there are too many, Unavailable at the end."""
        with self._lock:
            if self._is_refusing:
                raise Unavailable(SHUTTING_DOWN)
            if self._count >= self._most:
                raise ResourceExhausted(
                    f"{self._most} streams are open: expected no more at a time; close one first, or start the server "
                    "with a larger --max-streams"
                )
            self._count += 1
            return f"s{next(self._names)}"

    def close(self) -> None:
        """Count a stream that has ended."""
        with self._lock:
            self._count -= 1

    def refuse(self) -> None:
        """Refuse new streams from now on."""
        with self._lock:
            self._is_refusing = True

    async def have_ended(self) -> None:
        """Wait until no stream is open."""
        while self._count:
            await asyncio.sleep(_POLL_S)


def too_large(size_bytes: int, limits: Limits) -> ResourceExhausted:
    """Return the error for a request of so many bytes."""
    if limits.allow_uploads:
        expected = f"{limits.max_message_bytes}, or {limits.max_request_bytes} to create a world of an uploaded model"
        option = "--max-message-bytes or --max-upload-bytes"
    else:
        expected, option = str(limits.max_message_bytes), "--max-message-bytes (or --allow-uploads, for a model)"
    return ResourceExhausted(
        f"a request of {size_bytes} bytes: expected at most {expected}; send or ask for less at a time, or start the"
        f" server with a larger {option}"
    )


def is_too_large(request: bytes, limits: Limits) -> bool:
    """Return True for a request above the limit; one that creates a world may have an upload in it."""
    if len(request) <= limits.max_message_bytes:
        return False
    return len(request) > limits.max_request_bytes or not _is_create_world(request)


def _is_create_world(request: bytes) -> bool:
    """Return True if a request is a CreateWorldRequest and nothing else, without parsing it."""
    if request[0] != _CREATE_WORLD_TAG:
        return False
    try:
        size_bytes, start = read_varint(request, 1)
    except WireError:
        return False
    return start + size_bytes == len(request)


def receive_limit_bytes(limits: Limits) -> int:
    """Return the size of the largest request that gets an answer; a larger one ends its stream."""
    upload_bytes = limits.max_request_bytes + _LEAST_RECEIVED_BYTES if limits.allow_uploads else 0
    return min(max(4 * limits.max_message_bytes, upload_bytes, _LEAST_RECEIVED_BYTES), _LARGEST)
