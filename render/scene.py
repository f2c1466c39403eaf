"""The scene: the instance rows of all lanes of all worlds, and the light, sky and fog of each lane.

A lane owns a run of consecutive instance rows from `add` to `free`, so a view can only show rows of its own lane. Freed
runs are reused by later lanes of the same size. When there are more free rows than rows in use, those in use are moved
together and the rest is released, so that lanes of ever different sizes do not fragment the table.

`add` and `free` may therefore allocate new arrays, and `free` may move rows. Lane numbers do not change. Get
`scene.instances`, `scene.lanes` and `scene.rows(lanes)` again after either; do not keep them.

Copying a table of hundreds of megabytes would take longer than a step of another world may wait. So a large table
reserves more address space than it will ever use, which costs nothing until it is written to, and grows in place; its
rows are moved together only when they are few against those that are free.
"""

import ctypes
import math
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import (
    CASTS,
    I32,
    I64,
    LAMP_SIZE,
    MAX_LAMPS,
    NO_MESH,
    NO_TEXTURE,
    InstanceTable,
    LaneTable,
    Table,
    map_columns,
)
from worldloom.render.assets import AssetLibrary

_IDENTITY = np.eye(3, 4, dtype=np.float32)
_INSTANCE_DEFAULTS = InstanceTable(
    mesh=np.array([NO_MESH], np.int32),
    pose=_IDENTITY[None],
    color=np.array([[1.0, 1.0, 1.0]], np.float32),
    texture=np.array([NO_TEXTURE], np.int32),
    uv_scale=np.array([[1.0, 1.0]], np.float32),
    label=np.array([0], np.uint8),
    shine=np.zeros((1, 3), np.float32),
    shadow=np.array([CASTS], np.uint8),
    alpha=np.array([1.0], np.float32),
)
_LANE_DEFAULTS = LaneTable(
    first_row=np.array([0], np.int32),
    row_count=np.array([0], np.int32),
    static_rows=np.array([0], np.int32),
    light_direction=np.array([[-0.4, 0.55, -0.75]], np.float32),
    light_color=np.array([[0.68, 0.66, 0.60]], np.float32),
    ambient=np.array([[0.44, 0.47, 0.52]], np.float32),
    ambient_ground=np.array([[0.26, 0.25, 0.24]], np.float32),
    sky_horizon=np.array([[0.80, 0.87, 0.93]], np.float32),
    sky_zenith=np.array([[0.30, 0.52, 0.80]], np.float32),
    sky_textures=np.array([NO_TEXTURE], np.int32),
    lamp_count=np.array([0], np.int32),
    lamps=np.zeros((1, MAX_LAMPS, LAMP_SIZE), np.float32),
    fog_color=np.array([[0.80, 0.87, 0.93]], np.float32),
    fog_range=np.array([[0.0, 0.0]], np.float32),
)

ROW_BYTES = sum(column.nbytes for column in _INSTANCE_DEFAULTS)
LANE_BYTES = sum(column.nbytes for column in _LANE_DEFAULTS) + 1
"""Bytes of an instance row and of a lane in the tables."""
SPARE_ROWS = 4096
"""Free rows, some 300 KiB, below which rows are not moved together."""
_LARGE_ROWS = 1 << 20
"""Rows in use, some 80 MB, above which moving them together takes so long that it is done seldom."""
_LARGE_RATIO = 16
"""Free rows for each row in use at which a large table is packed."""
_LARGE_BYTES = 64 << 20
"""Size of a table above which its memory is reserved in advance."""
_RESERVED_BYTES = 8 << 30
"""Address space of such a table."""
_RELEASED_BYTES = 1 << 20
"""Size of a freed part of a column above which its memory is given back."""


class Scene:
    """All lanes and their instance rows, over one asset library.

    With R rows in use and at most L lanes at once, the table has at most max(2 R, R + max(spare_rows, L)) rows, as long
    as R is not large.
    """

    def __init__(self, assets: AssetLibrary, spare_rows: int = SPARE_ROWS) -> None:
        self.assets = assets
        self._spare_rows = spare_rows
        self._instances = map_columns(_INSTANCE_DEFAULTS, lambda column: np.empty((0, *column.shape[1:]), column.dtype))
        self._lanes = map_columns(_LANE_DEFAULTS, lambda column: np.empty((0, *column.shape[1:]), column.dtype))
        self._in_use = np.zeros(0, np.bool_)  # for each row of the lane table
        self._lane_count = 0
        self._row_count = 0
        self._slice_tables()
        self._rows_in_use = 0
        self._free_lanes: list[int] = []
        self._free_runs: dict[int, list[int]] = {}  # first rows of free runs, by length

    def add(self, count: int, rows_per_lane: int, static_rows: int = 0) -> I32:
        """Add `count` lanes with so many empty instance rows each and default light, sky and fog; return their numbers.

        `static_rows` of their first rows are expected to be the same in most lanes, most of the time: the CPU renderer
        draws those once for all.
        """
        if count < 0 or rows_per_lane < 0:
            raise ValueError(f"cannot add {count} lanes of {rows_per_lane} rows: expected both to be 0 or more")
        if not 0 <= static_rows <= rows_per_lane:
            raise ValueError(f"static_rows is {static_rows}: expected 0 to {rows_per_lane}, the rows of a lane")
        self.reserve(count, rows_per_lane)
        runs = self._free_runs.get(rows_per_lane, [])
        fresh_lanes, fresh_runs = max(0, count - len(self._free_lanes)), max(0, count - len(runs))
        lanes = np.concatenate([_pop_last(self._free_lanes, count), self._lane_count + np.arange(fresh_lanes)])
        first_rows = np.concatenate([_pop_last(runs, count), self._row_count + rows_per_lane * np.arange(fresh_runs)])
        _reset(self._lanes, _LANE_DEFAULTS, slice(self._lane_count, self._lane_count + fresh_lanes))
        self._lane_count += fresh_lanes
        self._row_count += fresh_runs * rows_per_lane
        self._rows_in_use += count * rows_per_lane
        for first, length in _spans(first_rows, rows_per_lane):
            _reset(self._instances, _INSTANCE_DEFAULTS, slice(first, first + length))
        self._lanes.first_row[lanes] = first_rows
        self._lanes.row_count[lanes] = rows_per_lane
        self._lanes.static_rows[lanes] = static_rows
        self._in_use[lanes] = True
        self._slice_tables()
        return lanes.astype(np.int32)

    def reserve(self, count: int, rows_per_lane: int) -> None:
        """Make room for so many lanes more, with so many rows each."""
        lanes = self._lane_count + max(0, count - len(self._free_lanes))
        runs = max(0, count - len(self._free_runs.get(rows_per_lane, [])))
        self._lanes = _grown(self._lanes, self._lane_count, lanes)
        self._instances = _grown(self._instances, self._row_count, self._row_count + runs * rows_per_lane)
        missing = lanes - len(self._in_use)
        if missing > 0:
            self._in_use = np.pad(self._in_use, (0, max(missing, len(self._in_use))))
        self._slice_tables()

    def free(self, lanes: ArrayLike) -> None:
        """Free lanes. The rows of other lanes may move."""
        lanes = np.atleast_1d(np.asarray(lanes, np.int64))
        known = (lanes >= 0) & (lanes < self._lane_count)
        if not known.all() or not self._in_use[lanes].all():
            wrong = lanes[~known] if not known.all() else lanes[~self._in_use[lanes]]
            raise ValueError(f"cannot free lane {wrong[0]}: expected a lane that is in use")
        if np.unique(lanes).size != lanes.size:
            raise ValueError(f"cannot free lanes {lanes.tolist()}: expected each only once")
        first_rows, counts = self._lanes.first_row[lanes], self._lanes.row_count[lanes]
        self._in_use[lanes] = False
        self._free_lanes.extend(lanes.tolist())
        _reset(self._lanes, _LANE_DEFAULTS, lanes)
        self._rows_in_use -= int(counts.sum())
        # Packing costs as much as all rows in use and all lanes: it pays once more than that is free.
        ratio = 1 if self._rows_in_use <= _LARGE_ROWS else _LARGE_RATIO
        if self._row_count - self._rows_in_use > max(ratio * self._rows_in_use, self._lane_count, self._spare_rows):
            self._pack()
            return
        for rows_per_lane in np.unique(counts[counts > 0]).tolist():
            same = first_rows[counts == rows_per_lane]
            for first, length in _spans(same, rows_per_lane):
                _release(self._instances, first, length)
                self._instances.mesh[first : first + length] = NO_MESH
            self._free_runs.setdefault(rows_per_lane, []).extend(same.tolist())

    def rows(self, lanes: ArrayLike) -> I64:
        """Return the instance rows [n, rows_per_lane] of lanes that have equally many."""
        lanes = np.atleast_1d(np.asarray(lanes, np.int64))
        counts = np.unique(self._lanes.row_count[lanes])
        if counts.size > 1:
            raise ValueError(f"lanes with {counts.tolist()} rows in one call: expected lanes with equally many")
        return _runs(self._lanes.first_row[lanes], int(counts[0]) if counts.size else 0)

    def _slice_tables(self) -> None:
        """Set the tables that others read and write: views of ours, without the rows that were never used."""
        self.instances: InstanceTable = map_columns(self._instances, lambda column: column[: self._row_count])
        """The instance table, rows in use and free; write into its arrays in place."""
        self.lanes: LaneTable = map_columns(self._lanes, lambda column: column[: self._lane_count])
        """The lane table, lanes in use and free; write into its arrays in place."""

    def _pack(self) -> None:
        """Move the rows in use together, in the order of their lanes, into a table of that size."""
        lanes = np.flatnonzero(self._in_use[: self._lane_count])
        counts = self._lanes.row_count[lanes].astype(np.int64)
        first_rows = np.cumsum(counts) - counts
        rows = np.arange(self._rows_in_use) + np.repeat(self._lanes.first_row[lanes] - first_rows, counts)
        self._instances = map_columns(self._instances, lambda column: column[rows])
        self._lanes.first_row[lanes] = first_rows
        self._row_count = self._rows_in_use
        self._slice_tables()
        self._free_runs.clear()


def _runs(first_rows: I32, length: int) -> I64:
    """Return the rows [n, length] of runs of that length."""
    rows: I64 = first_rows.astype(np.int64)[:, None] + np.arange(length, dtype=np.int64)
    return rows


def _pop_last(stack: list[int], count: int) -> I64:
    """Remove and return the last `count` entries of a list, or all if there are fewer."""
    split = max(0, len(stack) - count)
    taken = np.array(stack[split:], np.int64)
    del stack[split:]
    return taken


def _spans(first_rows: I64, length: int) -> Iterator[tuple[int, int]]:
    """Yield first row and length of runs of that length; those that follow one another are joined."""
    if not len(first_rows) or not length:
        return
    first_rows = np.sort(first_rows)
    breaks = np.flatnonzero(np.diff(first_rows) != length) + 1
    starts = np.concatenate([[0], breaks, [len(first_rows)]])
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        yield int(first_rows[start]), (stop - start) * length


def _columns(table: Table) -> Iterator[Any]:
    return iter(table)


def _reset(table: Table, defaults: Table, rows: "I64 | slice") -> None:
    columns: Iterator[tuple[Any, Any]] = zip(table, defaults, strict=True)
    for column, default in columns:
        column[rows] = default


def _grown(table: Table, used: int, wanted: int) -> Table:
    """Return the table with a capacity of `wanted` rows: at least twice as large if it has to be copied."""
    capacity = len(table[0])
    if wanted <= capacity:
        return table
    larger = _allocated(table, max(wanted, 2 * capacity))
    columns: Iterator[tuple[Any, Any]] = zip(larger, table, strict=True)
    for new, old in columns:
        new[:used] = old[:used]
    return larger


def _allocated(table: Table, rows: int) -> Table:
    """Return a table of the same kind with that many rows; with more, whose memory is not used yet, if it is large."""
    row_bytes = sum(column.itemsize * math.prod(column.shape[1:]) for column in _columns(table))
    if rows * row_bytes > _LARGE_BYTES:
        reserved = max(rows, _RESERVED_BYTES // row_bytes)
        try:
            return map_columns(table, lambda column: np.zeros((reserved, *column.shape[1:]), column.dtype))
        except MemoryError:
            pass  # address space is limited here
    return map_columns(table, lambda column: np.empty((rows, *column.shape[1:]), column.dtype))


def _release(table: Table, first: int, length: int) -> None:
    """Give the memory of free rows back to the operating system, if it is much. Their values are lost."""
    for column in _columns(table):
        row_bytes = column.strides[0]
        if length * row_bytes >= _RELEASED_BYTES:
            start = column.ctypes.data + first * row_bytes
            aligned, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, start + length * row_bytes
            size_bytes = (end - aligned) // mmap.PAGESIZE * mmap.PAGESIZE
            _libc.madvise(ctypes.c_void_p(aligned), ctypes.c_size_t(size_bytes), mmap.MADV_DONTNEED)


_libc = ctypes.CDLL(None)
