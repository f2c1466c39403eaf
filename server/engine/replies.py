"""Replies to steps: memory that has an address for each observation, so that frames are drawn where they are needed.

A protocol computes a ReplyLayout once for the same observations. For a transport of bytes, a reply is a bytes object
that is complete but for what changes (`ReplyBuffers`). For a client in this process, it is one array for each
observation (`ArrayBuffers`). Either way buffers are used again once nothing else refers to them.
"""

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from worldloom.kernels.tables import I64
from worldloom.render.arena import PROCESS_MEMORY, address_of, address_of_bytes

if TYPE_CHECKING:
    from worldloom.server.engine.observations import ObservationSpec

_MAX_BUFFER_BYTES = 64 << 20
"""Free reply buffers that are kept for one layout; two are kept whatever their size."""


class ObservationField(NamedTuple):
    """The data of one observation in a reply."""

    offset: int
    as_varints: bool


class ReplyBuffer(NamedTuple):
    """Memory for one reply."""

    data: Any
    """A bytes object, or a dict of arrays by the name of their observation."""
    addresses: I64
    """Address of each observation's data in the order of the layout, then that of the state, if there is one."""


class Buffers(Protocol):
    """Reply buffers of one layout."""

    def __len__(self) -> int: ...

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all its buffers."""

    def acquire(self) -> ReplyBuffer:
        """Return a free buffer. The caller must refer to its data at once: that keeps it from being acquired again."""


AppendFinal: TypeAlias = Callable[[Any, Sequence[np.ndarray]], Any]
"""A protocol's function that returns a reply with the values of its final observations, which it has none of."""


class ReplyLayout:
    """The form of replies with the same observations, and the buffers that have it."""

    def __init__(
        self,
        buffers: Buffers,
        fields: tuple[ObservationField, ...],
        state_offset: int | None,
        append_final: AppendFinal | None = None,
    ) -> None:
        self.buffers = buffers
        self.fields = fields
        """In the order of the observations."""
        self.state_offset = state_offset
        """Offset of the byte that holds the state; None if replies have none."""
        self.append_final = append_final
        """Function for replies with final observations, if there are such."""


def bytes_layout(
    size_bytes: int,
    constants: Mapping[int, bytes],
    state_offset: int | None,
    fields: tuple[ObservationField, ...],
    append_final: AppendFinal | None = None,
) -> ReplyLayout:
    """Return the layout of replies that are bytes. `constants` are those that are always the same, by their offset."""
    offsets = [field.offset for field in fields] + ([] if state_offset is None else [state_offset])
    return ReplyLayout(ReplyBuffers(size_bytes, constants, offsets), fields, state_offset, append_final)


class ReplyBuffers:
    """Reply buffers that are bytes. A buffer is reused when nothing but this ring refers to its bytes any more.

    `constants` are the bytes that are the same in every reply, by their offset; `offsets` are of what changes.
    """

    def __init__(self, size_bytes: int, constants: Mapping[int, bytes], offsets: Sequence[int]) -> None:
        if any(offset < 0 or offset + len(piece) > size_bytes for offset, piece in constants.items()):
            raise ValueError(f"a layout of {size_bytes} bytes: expected its constants inside, got one beyond the end")
        self._size_bytes = size_bytes
        self._constants = constants
        self._offsets: I64 = np.array(offsets, np.int64)
        self._max_kept = max(2, _MAX_BUFFER_BYTES // max(1, size_bytes))
        self._ring: deque[ReplyBuffer] = deque([self._allocate()])
        self._references_when_free = self._references()

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all its buffers."""
        return len(self._ring) * self._size_bytes

    def acquire(self) -> ReplyBuffer:
        """Return a free buffer. The caller must refer to its data at once: that keeps it from being acquired again.

        The oldest is tried first, since it was sent before all others. One whose client does not read comes last.
        """
        ring = self._ring
        if not self._size_bytes:
            return ring[0]  # Python has only one empty bytes object, referred to from everywhere
        if self._references() > self._references_when_free:
            ring.rotate(-1)
            if self._references() > self._references_when_free:
                if len(ring) >= self._max_kept:
                    ring.popleft()  # still valid for those who refer to it
                ring.appendleft(self._allocate())
        ring.rotate(-1)
        return ring[-1]

    def _references(self) -> int:
        return sys.getrefcount(self._ring[0].data)

    def _allocate(self) -> ReplyBuffer:
        # A bytes object is immutable for its users. This one has none yet, so it can be written like any memory.
        data = bytes(self._size_bytes)
        address = address_of_bytes(data)
        for offset, piece in self._constants.items():
            PROCESS_MEMORY[address + offset : address + offset + len(piece)] = np.frombuffer(piece, np.uint8)
        return ReplyBuffer(data, address + self._offsets)


def array_layout(observations: "tuple[ObservationSpec, ...]") -> ReplyLayout:
    """Return the layout of replies that are arrays, for clients in this process."""
    final = [spec.name for spec in observations if spec.final_of is not None]

    def append_final(reply: dict[str, np.ndarray], values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        return {**reply, **dict(zip(final, values, strict=True))}

    fields = tuple(ObservationField(0, False) for _ in observations)
    return ReplyLayout(ArrayBuffers(observations), fields, None, append_final if final else None)


def array_buffer(arrays: dict[str, np.ndarray]) -> ReplyBuffer:
    """Return a reply buffer of these arrays, which are contiguous, in the order of the observations."""
    return ReplyBuffer(arrays, np.array([address_of(array) for array in arrays.values()], np.int64))


class ArrayBuffers:
    """Reply buffers that are arrays. Those of a reply are reused together, when nothing else refers to any of them.

    Each array owns its memory, so that what refers to a part of it refers to the array, too.
    """

    def __init__(self, observations: "Sequence[ObservationSpec]") -> None:
        self._shapes = {
            spec.name: (spec.shape if spec.final_of is None else (0, *spec.shape[1:]), np.dtype(spec.dtype))
            for spec in observations
        }
        self._set_bytes = sum(spec.data_bytes for spec in observations)
        self._max_kept = max(2, _MAX_BUFFER_BYTES // max(1, self._set_bytes))
        self._ring: deque[tuple[list[np.ndarray], I64]] = deque([self._allocate()])
        self._references_when_free = self._references()

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all its arrays."""
        return len(self._ring) * self._set_bytes

    def acquire(self) -> ReplyBuffer:
        """Return arrays that nothing else refers to: the oldest, or new ones."""
        ring = self._ring
        if self._references() > self._references_when_free:
            ring.rotate(-1)
            if self._references() > self._references_when_free:
                if len(ring) >= self._max_kept:
                    ring.popleft()
                ring.appendleft(self._allocate())
        ring.rotate(-1)
        arrays, addresses = ring[-1]
        return ReplyBuffer(dict(zip(self._shapes, arrays, strict=True)), addresses)

    def _references(self) -> int:
        return sum(map(sys.getrefcount, self._ring[0][0]))

    def _allocate(self) -> tuple[list[np.ndarray], I64]:
        arrays = [np.empty(shape, dtype) for shape, dtype in self._shapes.values()]
        return arrays, np.array([address_of(array) for array in arrays], np.int64)
