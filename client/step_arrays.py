"""Arrays of all lanes that the results of several streams come together in, each stream's in the rows of its lanes.

Where servers share memory with this process, the pages of all of them are mapped one after the other
(`shared_memory.join_frames`): the servers draw into one array, and nothing is copied. Other results are copied once,
into their rows. Arrays are used again when the program has dropped them: new memory costs time for each page.
"""

import logging
import mmap
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from worldloom.client.frames import arrange_channels
from worldloom.client.replies import Arrays
from worldloom.client.results import Observing
from worldloom.client.shared_memory import SharedPart, join_frames
from worldloom.client.specs import Spec
from worldloom.client.streams import LaneStream, StreamOutput
from worldloom.client.vector_world import is_frame

_KEPT_ARRAYS = 4
"""Sets of arrays that are used again."""
_log = logging.getLogger("worldloom.client")

Outputs: TypeAlias = "dict[LaneStream, StreamOutput]"
"""Arrays of each stream: its rows of those of all lanes."""


class _JoinedSet(NamedTuple):
    """Arrays of all lanes that servers draw into, for one set of frames in their shared memory."""

    arrays: Arrays
    outputs: Outputs
    references: list[int]
    """References to each array that there are while nobody else has it."""


class StepArrays:
    """Arrays for the observations of all lanes."""

    def __init__(self, observing: Observing, lanes: int) -> None:
        self._observing = observing
        self._lanes = lanes
        self._specs: Mapping[str, Spec] = {}
        self._free: deque[Arrays] = deque(maxlen=_KEPT_ARRAYS)
        self._joined: list[_JoinedSet] = []
        self._joined_streams: tuple[LaneStream, ...] = ()
        """The streams that they were made for, or could not be made for."""
        self.shapes: dict[str, tuple[tuple[int, ...], Any]] = {}
        """Shape and dtype of one lane's observations, as the caller gets them."""

    @property
    def is_joined(self) -> bool:
        """Servers draw into arrays of all lanes."""
        return bool(self._joined)

    def use_specs(self, specs: Mapping[str, Spec]) -> None:
        """Take the specs of a world, which all others have, too."""
        self._specs = specs
        for name in self._observing.names:
            shape = self._observing.arranged_shape(name, specs[name].shape[1:])
            self.shapes[name] = (shape, specs[name].wire_dtype)

    def make(self, rows: int) -> Arrays:
        """Return arrays for so many lanes."""
        if rows < self._lanes:
            return {name: np.empty((rows, *shape), dtype) for name, (shape, dtype) in self.shapes.items()}
        for arrays in self._free:
            if max(map(sys.getrefcount, arrays.values())) <= _FREE_REFERENCES:
                return dict(arrays)
        new = {name: np.empty((rows, *shape), dtype) for name, (shape, dtype) in self.shapes.items()}
        self._free.append(new)
        return dict(new)

    def make_outputs(self, streams: Sequence[LaneStream], out: Arrays | None) -> tuple[Arrays, Outputs]:
        """Return arrays for all lanes, and each stream's part of them, which its results are to be written into.

        `streams` have all lanes, each a range of them. `out` are arrays of the caller's to use.
        """
        if out is None:
            if self._joined_streams != tuple(streams):
                self._join(streams)
            for arrays, outputs, references in self._joined:
                if list(map(sys.getrefcount, arrays.values())) <= references:
                    return {name: array[...] for name, array in arrays.items()}, outputs
            out = self.make(self._lanes)
        return out, {stream: stream.make_output(_part(out, stream), None) for stream in streams}

    def drop_joined(self) -> None:
        """Use the servers' memory no more: others choose what is drawn into it. Arrays that the program has stay."""
        self._joined, self._joined_streams = [], ()

    def _join(self, streams: Sequence[LaneStream]) -> None:
        """Map the shared memory of the streams' servers into arrays of all lanes, as far as that is possible."""
        self.drop_joined()
        self._joined_streams = tuple(streams)
        if self._observing.frame_stack > 1:
            return
        parts = [stream.shared_parts for stream in streams]
        ring_sizes = [part.shared.ring_size for each in parts if each for part in each.values()]
        if not ring_sizes:
            return
        try:
            for ring_index in range(min(ring_sizes)):
                self._joined.append(self._make_joined(streams, parts, ring_index))
        except OSError as error:
            _log.info("frames are copied, since memory of several servers cannot be mapped as one: %s", error)
            self._joined = []

    def _make_joined(
        self, streams: Sequence[LaneStream], parts: Sequence[Mapping[str, SharedPart] | None], ring_index: int
    ) -> _JoinedSet:
        arrays: Arrays = {}
        mapped: set[str] = set()
        for name in self._observing.names:
            sizes = [stream.world.observations[name].size_bytes for stream in streams]
            if is_frame(name) and not any(size % mmap.PAGESIZE for size in sizes):
                pieces = [size if each is None else each[name] for size, each in zip(sizes, parts, strict=True)]
                spec = self._specs[name]
                joined = join_frames(pieces, ring_index, (self._lanes, *spec.shape[1:]), spec.wire_dtype)
                arrays[name] = arrange_channels(joined, self._observing.channels)
                mapped.add(name)
            else:
                shape, dtype = self.shapes[name]
                arrays[name] = np.zeros((self._lanes, *shape), dtype)
        outputs: Outputs = {}
        for stream, each in zip(streams, parts, strict=True):
            is_drawn = each is not None and all(name in mapped for name in each)
            outputs[stream] = stream.make_output(_part(arrays, stream), ring_index if is_drawn else None)
        return _JoinedSet(arrays, outputs, list(map(sys.getrefcount, arrays.values())))


def _part(arrays: Arrays, stream: LaneStream) -> Arrays:
    return {name: array[stream.part] for name, array in arrays.items()}


_FREE_REFERENCES = max(map(sys.getrefcount, {"": np.empty(1)}.values()))
"""References to an array that a dict alone has, as they are counted."""
