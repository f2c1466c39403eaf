"""Frames of a local socket, put together from bytes that come in pieces of any size."""

from typing import NamedTuple

from worldloom.protos.local_frames import HEADER


class Frame(NamedTuple):
    """A frame. The content of one that is too large is not kept."""

    kind: int
    size_bytes: int
    content: bytes | None


class FrameReader:
    """Reader of one direction of a connection. It holds at most one frame of the largest size, and what came with it.

    The content of a frame above `max_bytes` is dropped as it comes. One above `max_dropped_bytes` is returned as soon
    as its header is there: nothing can be read after it.
    """

    def __init__(self, max_bytes: int, max_dropped_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.max_dropped_bytes = max_dropped_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._needed_bytes = HEADER.size
        """Bytes that have to be there before it is worth to look at them again."""
        self._dropping: Frame | None = None
        """The frame whose content is being dropped."""
        self._to_drop_bytes = 0

    @property
    def has_bytes(self) -> bool:
        """True if something came that is not part of a frame that was returned."""
        return bool(self._pieces) or self._dropping is not None

    @property
    def missing_bytes(self) -> int:
        """Bytes that are missing for the current frame, as far as is known."""
        return self._to_drop_bytes or max(0, self._needed_bytes - self._held_bytes)

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        if self._to_drop_bytes:
            dropped = min(self._to_drop_bytes, len(data))
            self._to_drop_bytes -= dropped
            data = data[dropped:]
        if data:
            self._pieces.append(data)
            self._held_bytes += len(data)

    def take(self) -> Frame | None:
        """Return the next frame, or None if it is not complete yet."""
        if self._dropping is not None:
            if self._to_drop_bytes:
                return None
            frame, self._dropping = self._dropping, None
            return frame
        if self._held_bytes < self._needed_bytes:
            return None
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        size_bytes, kind = HEADER.unpack_from(data)
        end = HEADER.size + size_bytes
        if size_bytes > self.max_dropped_bytes:
            return Frame(kind, size_bytes, None)
        if size_bytes > self.max_bytes:
            self._keep(data[end:])
            self._to_drop_bytes = max(0, end - len(data))
            self._dropping = Frame(kind, size_bytes, None)
            return self.take()
        if len(data) < end:
            self._keep(data, end)
            return None
        self._keep(data[end:])
        return Frame(kind, size_bytes, data[HEADER.size : end])

    def _keep(self, data: bytes, needed_bytes: int = HEADER.size) -> None:
        self._pieces = [data] if data else []
        self._held_bytes = len(data)
        self._needed_bytes = needed_bytes
