"""Frames in memory that the server shares with a client on the same machine: arrays over it, without a copy.

The segment has a ring of sets of frames, and each step that asks for shared frames is drawn into the set that the
client chooses. An array keeps its frames for as long as it lives. So the client chooses a set that no array is alive
over; if there is none, it asks for frames in the reply instead (`SharedFrames.choose`). A client that drops old
observations never has to, and its steps are drawn into few sets, which stay in the processor's cache.
"""

import ctypes
import mmap
import os
import stat
import weakref
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from worldloom.client.errors import BadReply
from worldloom.client.specs import Spec
from worldloom.protos.shared_memory import CHOICE_OFFSET, HEADER_BYTES

_REMAP_MAY_MOVE, _REMAP_FIXED = 1, 2
"""Flags of mremap, from sys/mman.h."""
_MAX_PLACE_BYTES = 32 << 20
"""Bytes of positions that are known at a time: some for each set of frames in the ring."""


class SharedFrames:
    """The segment of one stream. Raises OSError if it cannot be opened, or is not the server's."""

    def __init__(self, path: str | int, size_bytes: int, ring_size: int, token: str) -> None:
        """Map the segment at a path, or of a descriptor that came from the server and stays the caller's."""
        self._memory = np.frombuffer(_map_file(path, size_bytes), np.uint8)
        start = token.encode()
        if not start or self._memory[: len(start)].tobytes() != start:
            raise OSError(f"{path} is not the server's memory")
        self.ring_size = ring_size
        self._process = os.getpid()
        self._choice = self._memory[CHOICE_OFFSET : CHOICE_OFFSET + 8].view(np.int64)
        self.address: int = self._memory.__array_interface__["data"][0]
        self._views: list[list[weakref.ref[_FrameView] | weakref.ref[_JoinedView]]] = [[] for _ in range(ring_size)]
        """The views of each ring index that may be alive."""
        self._wholes: list[weakref.ref[_FrameView]] = []
        """Views of all of the ring that may be alive."""
        self._places: dict[tuple[str, int], tuple[np.ndarray, int, int]] = {}
        """Positions that were checked, with ring index and offset, by name and identity: the same arrays come again."""

    def choose(self, ring_index: int | None = None) -> bool:
        """Have the next steps drawn into a set of frames: this one, over what is there, or the first that is free.

        Return False if none is free: then the caller must not ask for shared frames. A forked process has none.
        """
        if os.getpid() != self._process:
            return False
        if ring_index is None:
            if self.is_whole_in_use:
                return False
            ring_index = next((index for index, views in enumerate(self._views) if _is_free(views)), None)
            if ring_index is None:
                return False
        self._choice[0] = 1 + ring_index
        return True

    def hold(self, ring_index: int, view: "_JoinedView") -> None:
        """Have a set of frames in use for as long as a view of it is alive."""
        self._views[ring_index].append(weakref.ref(view))

    @property
    def is_whole_in_use(self) -> bool:
        """An array of all of the ring is alive."""
        return any(whole() is not None for whole in self._wholes)

    def whole_ring(self, offset: int, set_bytes: int, spec: Spec) -> np.ndarray:
        """Return the frames of an observation in all of the ring, [ring size, *shape].

        They begin at an offset from the first set, and sets are so many bytes from one another.

        While the array is alive, frames are drawn only into the sets that the caller chooses by their index.
        """
        start = HEADER_BYTES + offset
        shape = (self.ring_size, *spec.shape)
        view = _FrameView(self._memory, self.address + start, shape, spec, set_bytes)
        self._wholes.append(weakref.ref(view))
        return np.asarray(view)

    def read(self, positions: Mapping[str, np.ndarray], specs: Mapping[str, Spec]) -> dict[str, np.ndarray]:
        """Return frames by name. Positions, also by name, are [lanes, 3]: ring index, byte offset, bytes."""
        frames = {}
        for name, position in positions.items():
            known = self._places.get((name, id(position)))
            if known is None or known[0] is not position:
                self._check_position(name, position, specs[name])
                if (len(self._places) + 1) * position.nbytes > _MAX_PLACE_BYTES:
                    self._places.clear()
                known = position, int(position[0, 0]), int(position[0, 1])
                self._places[name, id(position)] = known
            _, ring_index, offset = known
            frames[name] = self._view(ring_index, offset, specs[name])
        return frames

    def _view(self, ring_index: int, offset: int, spec: Spec) -> np.ndarray:
        view = _FrameView(self._memory, self.address + offset, spec.shape, spec)
        self._views[ring_index] = [other for other in self._views[ring_index] if other() is not None]
        self._views[ring_index].append(weakref.ref(view))
        return np.asarray(view)

    def _check_position(self, name: str, position: np.ndarray, spec: Spec) -> None:
        """Raise BadReply for frames outside of the segment, of another size, or not one after the other."""
        lane_bytes = prod(spec.shape[1:]) * np.dtype(spec.dtype).itemsize
        first, last = position[0].tolist(), position[-1].tolist()
        ring_index, offset, _ = first
        fits = 0 <= ring_index < len(self._views) and 0 <= offset <= len(self._memory) - spec.size_bytes
        expected_last = [ring_index, offset + lane_bytes * (len(position) - 1), lane_bytes]
        if not fits or first[2] != lane_bytes or last != expected_last:
            raise BadReply(
                f"{name!r} has its frames at {first} to {last} (ring index, offset, bytes): expected {lane_bytes} "
                f"bytes a lane, one after the other, in {len(self._memory)} bytes and a ring of {len(self._views)}"
            )


class SharedPart(NamedTuple):
    """Frames in a segment that become a part of one array."""

    shared: SharedFrames
    offset: int
    """Offset of the frames in each set."""
    set_bytes: int
    size_bytes: int


def join_frames(
    parts: Sequence[SharedPart | int], ring_index: int, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    """Return one array over frames of several segments, without a copy: their pages are mapped one after the other.

    A number instead of a part stands for so many bytes of memory of this process. All sizes have to be multiples of a
    page; OSError if the pages cannot be mapped. While the array or a part of it is alive, the set of frames is in use.
    """
    view = _JoinedView([part if isinstance(part, int) else part.size_bytes for part in parts], shape, dtype)
    address = view.address
    for part in parts:
        if isinstance(part, int):
            address += part
            continue
        source = part.shared.address + HEADER_BYTES + ring_index * part.set_bytes + part.offset
        # With a size of 0, the pages are mapped here and stay mapped there.
        if _remap(source, 0, part.size_bytes, _REMAP_MAY_MOVE | _REMAP_FIXED, address) != address:
            raise OSError(ctypes.get_errno(), "the server's memory cannot be mapped again")
        part.shared.hold(ring_index, view)
        address += part.size_bytes
    return np.asarray(view)


_remap = ctypes.CDLL(None, use_errno=True).mremap
_remap.restype = ctypes.c_void_p
_remap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


class _JoinedView:
    """Memory for the parts of one array. Arrays over it keep this alive; this keeps all parts mapped."""

    def __init__(self, sizes: Sequence[int], shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._memory = np.frombuffer(mmap.mmap(-1, sum(sizes)), np.uint8)
        self.address: int = self._memory.__array_interface__["data"][0]
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (self.address, False)}


def _is_free(views: "list[weakref.ref[_FrameView] | weakref.ref[_JoinedView]]") -> bool:
    return all(view() is None for view in views)


class _FrameView:
    """The frames of one observation in the segment. Arrays over them keep this alive; this keeps the segment mapped."""

    def __init__(
        self, memory: np.ndarray, address: int, shape: tuple[int, ...], spec: Spec, first_stride: int | None = None
    ) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": spec.wire_dtype.str,
            "data": (address, False),
        }
        if first_stride is not None:
            rest = np.cumprod([spec.wire_dtype.itemsize, *shape[:1:-1]])[::-1].tolist()
            self.__array_interface__["strides"] = (first_stride, *rest)


def _map_file(path: str | int, size_bytes: int) -> mmap.mmap:
    """Map a whole file, given by its path or a descriptor."""
    found = os.stat(path)  # before it is opened: on another machine the path may be anything, such as a device
    if not stat.S_ISREG(found.st_mode) or found.st_size != size_bytes:
        raise OSError(f"{path} is not the server's memory")
    if isinstance(path, int):
        return mmap.mmap(path, size_bytes)
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, size_bytes)
    finally:
        os.close(file)
