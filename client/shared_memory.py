"""Pictures in memory that the server shares with us: arrays over it, without a copy.

The memory is a ring of slots. Each step that asks for it paints the next one. An array keeps its picture for as long as
it lives: while any array over the slot that comes next is alive, pictures have to be asked for in the reply instead
(`take_turn` says so). Whoever lets go of old observations never leaves the ring.
"""

import mmap
import os
import stat
import weakref
from collections.abc import Mapping
from math import prod

import numpy as np

from worldloom.client.errors import BadReply
from worldloom.client.specs import Spec


class SharedPictures:
    """The segment of one stream. Raises OSError if it cannot be had."""

    def __init__(self, path: str, size_bytes: int, slots: int, token: str) -> None:
        self._memory = np.frombuffer(_map(path, size_bytes), np.uint8)
        start = token.encode()
        if not start or self._memory[: len(start)].tobytes() != start:
            raise OSError(f"{path} is other memory than the server's")
        self._address: int = self._memory.__array_interface__["data"][0]
        self._loans: list[list[weakref.ref[_Loan]]] = [[] for _ in range(slots)]
        self._next: int | None = 0
        """The slot that is painted next; None: not known."""

    def take_turn(self) -> bool:
        """Whether the next pictures may be painted here, which harms nobody. If so, ask for them.

        Until `read` shows where they are, nobody knows how far the ring has turned: they may be refused, or forgotten.
        """
        slots = range(len(self._loans)) if self._next is None else [self._next]
        if not all(map(self._is_free, slots)):
            return False
        self._next = None
        return True

    def read(self, places: Mapping[str, np.ndarray], specs: Mapping[str, Spec]) -> dict[str, np.ndarray]:
        """The pictures at these places: [lanes, 3] of slot, byte and bytes, by the picture's name."""
        pictures = {}
        slots = set()
        for name, place in places.items():
            slots.add(int(place[0, 0]))
            self._check(name, place, specs[name])
            pictures[name] = self._lend(int(place[0, 0]), int(place[0, 1]), specs[name])
        if slots:
            self._next = (max(slots) + 1) % len(self._loans)
        return pictures

    def _lend(self, slot: int, start: int, spec: Spec) -> np.ndarray:
        loan = _Loan(self._memory, self._address + start, spec)
        self._loans[slot] = [other for other in self._loans[slot] if other() is not None]
        self._loans[slot].append(weakref.ref(loan))
        return np.asarray(loan)

    def _is_free(self, slot: int) -> bool:
        return all(loan() is None for loan in self._loans[slot])

    def _check(self, name: str, place: np.ndarray, spec: Spec) -> None:
        """Refuse places outside of the memory, or not as large as the picture, or not one after the other."""
        lane_bytes = prod(spec.shape[1:]) * np.dtype(spec.dtype).itemsize
        first, last = place[0].tolist(), place[-1].tolist()
        slot, start, _ = first
        fits = 0 <= slot < len(self._loans) and 0 <= start <= len(self._memory) - spec.size_bytes
        if not fits or first[2] != lane_bytes or last != [slot, start + lane_bytes * (len(place) - 1), lane_bytes]:
            raise BadReply(
                f"{name!r} is said to lie at {first} and {last}: expected {lane_bytes} bytes a lane, one after the "
                f"other, in {len(self._memory)} bytes and {len(self._loans)} slots"
            )


class _Loan:
    """A picture in shared memory. An array over it holds on to this, and this to the memory."""

    def __init__(self, memory: np.ndarray, address: int, spec: Spec) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": spec.shape,
            "typestr": spec.wire_dtype.str,
            "data": (address, not memory.flags.writeable),
        }


def _map(path: str, size_bytes: int) -> mmap.mmap:
    """The whole of a file as memory; writable, which many a library expects, unless it cannot be."""
    found = os.stat(path)  # before it is opened: on another machine the path may mean anything
    if not stat.S_ISREG(found.st_mode) or found.st_size != size_bytes:
        raise OSError(f"{path} is other memory than the server's")
    for mode, access in ((os.O_RDWR, mmap.ACCESS_WRITE), (os.O_RDONLY, mmap.ACCESS_READ)):
        try:
            file = os.open(path, mode | os.O_CLOEXEC)
        except PermissionError:
            if mode == os.O_RDONLY:
                raise
            continue
        try:
            return mmap.mmap(file, size_bytes, access=access)
        except PermissionError:
            if mode == os.O_RDONLY:
                raise
        finally:
            os.close(file)
    raise AssertionError("the last of the ways in has raised its error")
