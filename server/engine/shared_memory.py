"""A segment: memory that a stream shares with its client on the same machine. Pictures are painted right into it.

It is memory without a file, sealed against changes of its size, so that a client can neither shrink it under the
painter's brush nor leave it behind: it is gone when both sides have let go of it, however they end. The server only
ever writes there. Whoever may look at the server's own memory (the same user) can open it by the path under /proc that
`name` gives; it begins with a token, for clients to see that the path still means what it did when they were told.
"""

import fcntl
import mmap
import os
import secrets
from collections.abc import Mapping

import numpy as np

from worldloom.render.arena import place_of

SLOTS = 4
"""Steps whose pictures are there at a time: the latest, and those that the client may still look at."""
_HEAD_BYTES = 4096
_ALIGNED_TO = 64
"""Where pictures begin, in bytes: the client can look at them as arrays of any type."""


class Segment:
    """Room for some pictures, in a ring of slots."""

    def __init__(self, picture_bytes: Mapping[str, int]) -> None:
        self.offsets: dict[str, int] = {}
        """Where in a slot the pictures of that name begin, one lane after the other."""
        end = 0
        for name, size in picture_bytes.items():
            self.offsets[name] = end
            end += _aligned(size)
        self.slot_bytes = end
        self.size_bytes = segment_bytes(picture_bytes)
        self.token = secrets.token_hex(16)
        self._fd = os.memfd_create("worldloom-pictures", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(self._fd, 0o600)
            os.ftruncate(self._fd, self.size_bytes)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._memory = mmap.mmap(self._fd, self.size_bytes)
        except OSError:
            os.close(self._fd)
            raise
        self._memory[: len(self.token)] = self.token.encode()
        self._array = np.frombuffer(self._memory, np.uint8)
        self._place = place_of(self._array)
        self._turn = -1

    @property
    def name(self) -> str:
        """A path to open it by."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def turn(self) -> int:
        """The next slot of the ring, to be painted into."""
        self._turn = (self._turn + 1) % SLOTS
        return self._turn

    def start(self, name: str, slot: int) -> int:
        """Where in the segment the pictures of that name begin."""
        return _HEAD_BYTES + slot * self.slot_bytes + self.offsets[name]

    def place(self, name: str, slot: int) -> int:
        """The same, in MEMORY."""
        return self._place + self.start(name, slot)

    def close(self) -> None:
        """Let go of it. The client's side of it stays for as long as the client holds on."""
        del self._array
        self._memory.close()
        os.close(self._fd)


def segment_bytes(picture_bytes: Mapping[str, int]) -> int:
    """How large a segment for these pictures is."""
    return _HEAD_BYTES + SLOTS * sum(_aligned(size) for size in picture_bytes.values())


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED_TO) * _ALIGNED_TO
