"""Memory shared with a client on the same machine. Frames are drawn straight into it.

A segment is memory without a file, sealed against changes of its size. So a client can neither shrink it while the
server draws nor leave it behind: it is freed when both sides have closed it, however they end. The server reads
nothing from it but the client's choice of the next set of frames. Processes of the same user can open it by the path
under /proc that `path` gives. It begins with a token, by which clients check that the path still refers to the
segment that they were told of.
"""

import fcntl
import mmap
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from worldloom.kernels.tables import I64
from worldloom.protos.shared_memory import CHOICE_OFFSET, HEADER_BYTES
from worldloom.render.arena import address_of

if TYPE_CHECKING:
    from worldloom.server.engine.world import Step

RING_SIZE = 4
"""Sets of frames unless the client asks for more: the latest, and those that it may still read."""
MAX_RING_SIZE = 1 << 16
"""Most sets of frames of a segment. Its bytes are limited, too."""
_ALIGNMENT_BYTES = 4096
"""Alignment of frames: a page, so that clients can map the frames of several segments one after the other."""


class Segment:
    """Shared memory for the frames of one agent: a ring of sets of frames.

    With a `ring_size` that the client has asked for, it reads all sets as one array: if there is only one frame
    observation, the sets follow one another without gaps.
    """

    def __init__(self, frame_bytes: Mapping[str, int], ring_size: int | None = None) -> None:
        self.ring_size = RING_SIZE if ring_size is None else ring_size
        self.offsets: dict[str, int] = {}
        """Offset of each frame observation in a set; its lanes follow one another."""
        end = 0
        for name, size in frame_bytes.items():
            self.offsets[name] = end
            end += size if ring_size and len(frame_bytes) == 1 else _aligned(size)
        self.set_bytes = end
        self.size_bytes = segment_bytes(frame_bytes, self.ring_size)
        self.token = secrets.token_hex(16)
        self._fd = os.memfd_create("worldloom-frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
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
        self._address = address_of(self._array)
        self._choice: I64 = self._array[CHOICE_OFFSET : CHOICE_OFFSET + 8].view(np.int64)
        self._next_in_turn = 0

    @property
    def file(self) -> int:
        """Its descriptor, for processes that cannot open the path."""
        return self._fd

    @property
    def path(self) -> str:
        """Path by which processes of the same user open the segment."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def advance(self) -> int:
        """Return the ring index of the set of frames to draw into: the client's choice, or else the next in turn."""
        chosen = int(self._choice[0]) - 1
        index = chosen if 0 <= chosen < self.ring_size else self._next_in_turn
        self._next_in_turn = (index + 1) % self.ring_size
        return index

    def offset(self, name: str, ring_index: int) -> int:
        """Return the offset of a frame observation in the segment."""
        return HEADER_BYTES + ring_index * self.set_bytes + self.offsets[name]

    def address(self, name: str, ring_index: int) -> int:
        """Return the address of a frame observation in the memory of this process."""
        return self._address + self.offset(name, ring_index)

    def close(self) -> None:
        """Release the segment. The client's mapping stays valid for as long as the client keeps it."""
        del self._array, self._choice
        self._memory.close()
        os.close(self._fd)


def segment_bytes(frame_bytes: Mapping[str, int], ring_size: int = RING_SIZE) -> int:
    """Return the size of a segment for so many sets of these frames."""
    return HEADER_BYTES + ring_size * sum(_aligned(size) for size in frame_bytes.values())


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def next_ring_index(step: "Step") -> int:
    """Return the set of frames in shared memory that a step is drawn into; the same if it is drawn again."""
    if step.ring_index is None:
        step.ring_index = _segment_of(step).advance()
    return step.ring_index


def shared_addresses(steps: "Sequence[Step]", ring_indices: Sequence[int], frame: str) -> I64:
    """Return the address of a frame in shared memory, for each step."""
    pairs = zip(steps, ring_indices, strict=True)
    return np.array([_segment_of(step).address(frame, ring_index) for step, ring_index in pairs], np.int64)


def shared_locations(steps: "Sequence[Step]", ring_indices: Sequence[int], frame: str) -> I64:
    """Return ring index, byte offset and size of each lane's frame in shared memory, a row for each step."""
    lanes_each = len(steps[0].agent.world.lanes)
    lane_bytes = steps[0].agent.specs.shared_bytes[frame] // lanes_each
    rows = np.empty((len(steps), lanes_each, 3), np.int64)
    rows[:, :, 0] = np.array(ring_indices)[:, None]
    first = np.array([_segment_of(step).offset(frame, k) for step, k in zip(steps, ring_indices, strict=True)])
    rows[:, :, 1] = first[:, None] + lane_bytes * np.arange(lanes_each)
    rows[:, :, 2] = lane_bytes
    values: I64 = rows.reshape(len(steps), -1)
    return values


def _segment_of(step: "Step") -> Segment:
    segment = step.agent.segment
    assert segment is not None, "an agent with @shm observations has a segment"
    return segment
