"""Where everything lies in a reply, and the memory that replies are made in.

For a set of observations a reply has the same form every time: only the state, the pixels and the numbers change. So
its form is worked out once (`Layout`, by whoever knows the protocol), and each step takes a slot: bytes that are all
there but for what changes. Pixels are painted straight into them, numbers are written by kernels, and the bytes go out
as they are.
"""

import sys
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from worldloom.render.arena import MEMORY, place_of_bytes

_MOST_KEPT_BYTES = 64 << 20
"""Of one layout's slots; two are kept whatever their size."""


class Place(NamedTuple):
    """Where the data of an observation begins in a reply, and whether its numbers are written as varints."""

    start: int
    as_varints: bool


class Slot(NamedTuple):
    """A reply to be."""

    data: bytes
    place: int
    """Where it lies in MEMORY."""


class Slots:
    """Slots of one form. One is used again when its reply is gone: nobody but us holds on to its bytes.

    `pieces` are the bytes that are the same in every reply, by where they begin.
    """

    def __init__(self, size_bytes: int, pieces: Mapping[int, bytes]) -> None:
        if any(start < 0 or start + len(piece) > size_bytes for start, piece in pieces.items()):
            raise ValueError(f"a form of {size_bytes} bytes: expected its pieces inside, got one beyond")
        self._size_bytes = size_bytes
        self._pieces = pieces
        self._most = max(2, _MOST_KEPT_BYTES // max(1, size_bytes))
        self._ring: deque[Slot] = deque([self._make()])
        self._holders_when_free = self._holders()

    def __len__(self) -> int:
        return len(self._ring)

    def take(self) -> Slot:
        """A slot that nobody holds. Hold its data at once: that is what keeps it from being taken again.

        The oldest is looked at first: it went out before all others. One whose client does not read comes after them.
        """
        ring = self._ring
        if not self._size_bytes:
            return ring[0]  # Python has but one b"", which is held all over
        if self._holders() > self._holders_when_free:
            ring.rotate(-1)
            if self._holders() > self._holders_when_free:
                if len(ring) >= self._most:
                    ring.popleft()  # whoever holds it may keep it
                ring.appendleft(self._make())
        ring.rotate(-1)
        return ring[-1]

    def _holders(self) -> int:
        return sys.getrefcount(self._ring[0].data)

    def _make(self) -> Slot:
        # Bytes are fixed for those who share them. Nobody shares these yet: they can be written like any memory.
        data = bytes(self._size_bytes)
        place = place_of_bytes(data)
        for start, piece in self._pieces.items():
            MEMORY[place + start : place + start + len(piece)] = np.frombuffer(piece, np.uint8)
        return Slot(data, place)


class Layout:
    """The form of replies with certain observations."""

    def __init__(
        self, size_bytes: int, pieces: Mapping[int, bytes], state_at: int | None, places: tuple[Place, ...]
    ) -> None:
        self.state_at = state_at
        """The byte that holds the state; None where replies do not tell it."""
        self.places = places
        """In the order of the observations."""
        self.slots = Slots(size_bytes, pieces)
