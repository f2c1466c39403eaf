"""Memory that a worker process lends to the process it works for, and uses again when that has dropped what was in it.

New shared memory costs several times as much as writing a batch into memory that was used before: the system clears it,
page by page. So a worker writes each batch into a buffer that its receiver maps once and keeps. The first byte of a
buffer says that it is lent. The receiver clears it when its last array in the buffer is gone; until then the worker
uses others, so arrays are never overwritten while someone has them.
"""

import mmap
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from worldloom.data.layout import Arrays

_HEADER_BYTES = 4096
_ALIGNMENT_BYTES = 64
_MAPPED_BUFFERS = 64
"""Buffers that a receiver keeps mapped."""


class Place(NamedTuple):
    """An array in a buffer."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class Loan(NamedTuple):
    """A batch in a buffer, as it is told to the receiver."""

    process: int
    descriptor: int
    """File descriptor of the buffer, in the worker."""
    size_bytes: int
    places: Mapping[str, Place]


class LentMemory:
    """Buffers of a worker."""

    def __init__(self) -> None:
        self._buffers: list[_Buffer] = []

    def take(self, shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> tuple[Arrays, "_Buffer"]:
        """Return arrays of these shapes and dtypes in a buffer that nobody uses, and the buffer."""
        places, size = {}, _HEADER_BYTES
        for name, (shape, dtype) in shapes.items():
            places[name] = Place(size, shape, dtype)
            nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
            size += -(-nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        buffer = next((one for one in self._buffers if one.is_free and one.size_bytes >= size), None)
        if buffer is None:
            buffer = _Buffer(size)
            self._buffers.append(buffer)
        return buffer.take(places), buffer


class _Buffer:
    """Memory of an anonymous file, which others map by the worker's descriptor."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._descriptor = os.memfd_create("worldloom-batch", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, size_bytes)
        self._memory = mmap.mmap(self._descriptor, size_bytes)
        self._places: Mapping[str, Place] = {}
        self._is_used = False
        """True while this process has arrays in it."""

    @property
    def is_free(self) -> bool:
        """True if no process has arrays in it."""
        return not self._is_used and not self._memory[0]

    def take(self, places: Mapping[str, Place]) -> Arrays:
        self._places, self._is_used = places, True
        return _make_arrays(self._memory, places, self._give_back)

    def lend(self) -> Loan:
        """Mark it as lent; return what the receiver calls `borrow` with."""
        self._memory[0] = 1
        return Loan(os.getpid(), self._descriptor, self.size_bytes, self._places)

    def _give_back(self) -> None:
        self._is_used = False


_mapped: "OrderedDict[tuple[int, int, int], mmap.mmap]" = OrderedDict()
"""Buffers of workers that this process has mapped: by process, descriptor and inode."""


def borrow(loan: Loan) -> Arrays:
    """Return the arrays of a batch that a worker has lent. It gets them back when all of them are gone."""
    path = f"/proc/{loan.process}/fd/{loan.descriptor}"
    key = (loan.process, loan.descriptor, os.stat(path).st_ino)
    memory = _mapped.pop(key, None)
    if memory is None:
        with open(path, "rb+", buffering=0) as file:
            memory = mmap.mmap(file.fileno(), loan.size_bytes)
        for other in [one for one in _mapped if not os.path.exists(f"/proc/{one[0]}")]:
            del _mapped[other]
        if len(_mapped) >= _MAPPED_BUFFERS:
            _mapped.popitem(last=False)
    _mapped[key] = memory

    def give_back() -> None:
        memory[0] = 0

    return _make_arrays(memory, loan.places, give_back)


def _make_arrays(memory: mmap.mmap, places: Mapping[str, Place], when_gone: Callable[[], None]) -> Arrays:
    """Return arrays in some memory; have a function called when all of them, and all views of them, are gone."""
    whole = np.frombuffer(memory, np.uint8)
    weakref.finalize(whole, when_gone).atexit = False
    found = {}
    for name, (offset, shape, dtype) in places.items():
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        found[name] = whole[offset : offset + nbytes].view(dtype).reshape(shape)
    return found
