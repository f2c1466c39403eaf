"""The scene: the instance rows of every lane of every world, and each lane's light, sky and fog.

A lane owns a run of instance rows from the moment it is added until it is freed, so a view can only ever see its own
lane's rows. Freed rows serve later lanes of the same size. Where there are more of them than rows in use, the rows in
use move together and the rest is given back: lanes of ever other sizes leave nothing behind.

So `add` and `free` may make new arrays, and `free` may move rows. Lane numbers stay as they are. Take
`scene.instances`, `scene.lanes` and `scene.rows(lanes)` anew after either, do not keep them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import (
    I32,
    I64,
    LAMP_NUMBERS,
    MAX_LAMPS,
    NO_MESH,
    NO_TEXTURE,
    InstanceTable,
    LaneTable,
    Table,
    each_column,
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
)
_LANE_DEFAULTS = LaneTable(
    first_row=np.array([0], np.int32),
    row_count=np.array([0], np.int32),
    still_rows=np.array([0], np.int32),
    light_direction=np.array([[-0.4, 0.55, -0.75]], np.float32),
    light_color=np.array([[0.68, 0.66, 0.60]], np.float32),
    ambient=np.array([[0.44, 0.47, 0.52]], np.float32),
    ambient_ground=np.array([[0.26, 0.25, 0.24]], np.float32),
    sky_horizon=np.array([[0.80, 0.87, 0.93]], np.float32),
    sky_zenith=np.array([[0.30, 0.52, 0.80]], np.float32),
    sky_textures=np.array([NO_TEXTURE], np.int32),
    lamp_count=np.array([0], np.int32),
    lamps=np.zeros((1, MAX_LAMPS, LAMP_NUMBERS), np.float32),
    fog_color=np.array([[0.80, 0.87, 0.93]], np.float32),
    fog_range=np.array([[0.0, 0.0]], np.float32),
)

SPARE_ROWS = 4096
"""Freed rows, some 300 KiB of them, that are not worth moving others for."""


class Scene:
    """All lanes and their instance rows, over one asset library.

    Of R rows in use and at most L lanes at once, the table has max(2 R, R + max(spare_rows, L)) rows or fewer.
    """

    def __init__(self, assets: AssetLibrary, spare_rows: int = SPARE_ROWS) -> None:
        self.assets = assets
        self._spare_rows = spare_rows
        self._instances = _repeated(_INSTANCE_DEFAULTS, 0)
        self._lanes = _repeated(_LANE_DEFAULTS, 0)
        self._shown_instances: InstanceTable | None = None  # the part of it that is there, made when it is asked for
        self._shown_lanes: LaneTable | None = None
        self._in_use = np.zeros(0, np.bool_)  # as long as the lane table has room
        self._lane_count = 0
        self._row_count = 0
        self._rows_in_use = 0
        self._free_lanes: list[int] = []
        self._free_runs: dict[int, list[int]] = {}  # first rows of the runs that are free, by their length

    @property
    def instances(self) -> InstanceTable:
        """The instance rows in use or freed; write into the arrays in place."""
        if self._shown_instances is None:
            self._shown_instances = each_column(self._instances, lambda column: column[: self._row_count])
        return self._shown_instances

    @property
    def lanes(self) -> LaneTable:
        """The lanes in use or freed; write into the arrays in place."""
        if self._shown_lanes is None:
            self._shown_lanes = each_column(self._lanes, lambda column: column[: self._lane_count])
        return self._shown_lanes

    def add(self, count: int, rows_per_lane: int, still_rows: int = 0) -> I32:
        """Take `count` lanes with that many instance rows each, all empty and with the default look.

        Where the first `still_rows` of them look the same in most lanes and at most times, they are drawn once for all.
        """
        if count < 0 or rows_per_lane < 0:
            raise ValueError(f"cannot add {count} lanes of {rows_per_lane} rows: both must be 0 or more")
        if not 0 <= still_rows <= rows_per_lane:
            raise ValueError(f"still_rows is {still_rows}: expected 0 to {rows_per_lane}, the rows of a lane")
        runs = self._free_runs.get(rows_per_lane, [])
        fresh_lanes, fresh_runs = max(0, count - len(self._free_lanes)), max(0, count - len(runs))
        self._make_room(fresh_lanes, fresh_runs * rows_per_lane)
        self._shown_instances = self._shown_lanes = None
        lanes = np.concatenate([_take(self._free_lanes, count), self._lane_count + np.arange(fresh_lanes)])
        first_rows = np.concatenate([_take(runs, count), self._row_count + rows_per_lane * np.arange(fresh_runs)])
        self._lane_count += fresh_lanes
        self._row_count += fresh_runs * rows_per_lane
        self._rows_in_use += count * rows_per_lane
        self._lanes.first_row[lanes] = first_rows
        self._lanes.row_count[lanes] = rows_per_lane
        self._lanes.still_rows[lanes] = still_rows
        self._in_use[lanes] = True
        return lanes.astype(np.int32)

    def free(self, lanes: ArrayLike) -> None:
        """Give lanes back. Their rows are emptied at once, and the rows of other lanes may move."""
        lanes = np.atleast_1d(np.asarray(lanes, np.int64))
        known = (lanes >= 0) & (lanes < self._lane_count)
        if not known.all() or not self._in_use[lanes].all():
            wrong = lanes[~known] if not known.all() else lanes[~self._in_use[lanes]]
            raise ValueError(f"cannot free lane {wrong[0]}: expected a lane that is in use")
        if np.unique(lanes).size != lanes.size:
            raise ValueError(f"cannot free lanes {lanes.tolist()}: one of them is named twice")
        first_rows, counts = self._lanes.first_row[lanes], self._lanes.row_count[lanes]
        self._in_use[lanes] = False
        self._free_lanes.extend(lanes.tolist())
        self._rows_in_use -= int(counts.sum())
        _reset(self._lanes, _LANE_DEFAULTS, lanes)
        # Packing looks at all rows in use and at all lanes: worth it once more than that was freed.
        if self._row_count - self._rows_in_use > max(self._rows_in_use, self._lane_count, self._spare_rows):
            self._pack()
            return
        for rows_per_lane in np.unique(counts[counts > 0]).tolist():
            same = first_rows[counts == rows_per_lane]
            _reset(self._instances, _INSTANCE_DEFAULTS, _runs(same, rows_per_lane).ravel())
            self._free_runs.setdefault(rows_per_lane, []).extend(same.tolist())

    def rows(self, lanes: ArrayLike) -> I64:
        """The instance rows [n, rows_per_lane] of lanes that have equally many."""
        lanes = np.atleast_1d(np.asarray(lanes, np.int64))
        counts = np.unique(self._lanes.row_count[lanes])
        if counts.size > 1:
            raise ValueError(f"lanes with {counts.tolist()} rows in one call: expected lanes with equally many")
        return _runs(self._lanes.first_row[lanes], int(counts[0]) if counts.size else 0)

    def _make_room(self, lanes: int, rows: int) -> None:
        """See that so many lanes and rows fit behind those there are."""
        self._lanes = _grown(self._lanes, _LANE_DEFAULTS, self._lane_count, self._lane_count + lanes)
        self._instances = _grown(self._instances, _INSTANCE_DEFAULTS, self._row_count, self._row_count + rows)
        if len(self._in_use) < len(self._lanes.first_row):
            self._in_use = np.pad(self._in_use, (0, len(self._lanes.first_row) - len(self._in_use)))

    def _pack(self) -> None:
        """Move the rows in use together, in the order of their lanes, into tables of just their number."""
        lanes = np.flatnonzero(self._in_use[: self._lane_count])
        counts = self._lanes.row_count[lanes].astype(np.int64)
        first_rows = np.cumsum(counts) - counts
        rows = np.arange(self._rows_in_use) + np.repeat(self._lanes.first_row[lanes] - first_rows, counts)
        self._instances = each_column(self._instances, lambda column: column[rows])
        self._lanes.first_row[lanes] = first_rows
        self._row_count = self._rows_in_use
        self._shown_instances = None
        self._free_runs.clear()


def _runs(first_rows: I32, length: int) -> I64:
    """The rows [n, length] of runs of that length."""
    rows: I64 = first_rows.astype(np.int64)[:, None] + np.arange(length, dtype=np.int64)
    return rows


def _take(stack: list[int], count: int) -> I64:
    """The last `count` of a stack, or all if there are fewer; they are gone from it."""
    split = max(0, len(stack) - count)
    taken = np.array(stack[split:], np.int64)
    del stack[split:]
    return taken


def _repeated(defaults: Table, count: int) -> Table:
    return each_column(defaults, lambda column: np.repeat(column, count, axis=0))


def _reset(table: Table, defaults: Table, rows: I64) -> None:
    columns: Iterator[tuple[Any, Any]] = zip(table, defaults, strict=True)
    for column, default in columns:
        column[rows] = default


def _grown(table: Table, defaults: Table, used: int, wanted: int) -> Table:
    """The same table with room for `wanted` rows: at least twice as large when it has to move."""
    capacity = len(table[0])
    if wanted <= capacity:
        return table
    larger = _repeated(defaults, max(wanted, 2 * capacity))
    columns: Iterator[tuple[Any, Any]] = zip(larger, table, strict=True)
    for new, old in columns:
        new[:used] = old[:used]
    return larger
