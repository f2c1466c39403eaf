"""The streams that are open, over all transports, and the errors about their limits."""

import asyncio
import itertools
import threading

from worldloom.protos.errors import ResourceExhausted, Unavailable
from worldloom.server.config import Limits
from worldloom.server.engine.engine import SHUTTING_DOWN

_POLL_S = 0.05
_LEAST_RECEIVED_BYTES = 16 << 20
_LARGEST = 2**31 - 1


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


def too_large(size_bytes: int, most_bytes: int) -> ResourceExhausted:
    """Return the error for a request of so many bytes."""
    return ResourceExhausted(
        f"a request of {size_bytes} bytes: expected at most {most_bytes}; ask for less at a time, or start the"
        " server with a larger --max-message-bytes"
    )


def receive_limit_bytes(limits: Limits) -> int:
    """Return the size of the largest request that gets an answer; a larger one ends its stream."""
    return min(max(4 * limits.max_message_bytes, _LEAST_RECEIVED_BYTES), _LARGEST)
