"""The scene: the instance rows of every lane of every world, and each lane's light, sky and fog.

A lane owns a fixed run of instance rows from the moment it is added until it is freed, so a view can only ever see its
own lane's rows. Tables grow by doubling, which makes new arrays: take `scene.instances` and `scene.lanes` anew after
`add`, do not keep them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import I32, I64, NO_MESH, NO_TEXTURE, InstanceTable, LaneTable, Table, each_column
from worldloom.render.assets import AssetLibrary

_IDENTITY = np.eye(3, 4, dtype=np.float32)
_INSTANCE_DEFAULTS = InstanceTable(
    mesh=np.array([NO_MESH], np.int32),
    pose=_IDENTITY[None],
    color=np.array([[1.0, 1.0, 1.0]], np.float32),
    texture=np.array([NO_TEXTURE], np.int32),
    uv_scale=np.array([[1.0, 1.0]], np.float32),
    label=np.array([0], np.uint8),
)
_LANE_DEFAULTS = LaneTable(
    first_row=np.array([0], np.int32),
    row_count=np.array([0], np.int32),
    light_direction=np.array([[-0.4, 0.55, -0.75]], np.float32),
    light_color=np.array([[0.68, 0.66, 0.60]], np.float32),
    ambient=np.array([[0.44, 0.47, 0.52]], np.float32),
    ambient_ground=np.array([[0.26, 0.25, 0.24]], np.float32),
    sky_horizon=np.array([[0.80, 0.87, 0.93]], np.float32),
    sky_zenith=np.array([[0.30, 0.52, 0.80]], np.float32),
    fog_color=np.array([[0.80, 0.87, 0.93]], np.float32),
    fog_range=np.array([[0.0, 0.0]], np.float32),
)


class Scene:
    """All lanes and their instance rows, over one asset library."""

    def __init__(self, assets: AssetLibrary) -> None:
        self.assets = assets
        self._instances = _repeated(_INSTANCE_DEFAULTS, 0)
        self._lanes = _repeated(_LANE_DEFAULTS, 0)
        self._in_use = np.zeros(0, np.bool_)  # as long as the lane table has room
        self._lane_count = 0
        self._row_count = 0
        self._free: dict[int, list[int]] = {}

    @property
    def instances(self) -> InstanceTable:
        """The instance rows in use or freed; write into the arrays in place."""
        return each_column(self._instances, lambda column: column[: self._row_count])

    @property
    def lanes(self) -> LaneTable:
        """The lanes in use or freed; write into the arrays in place."""
        return each_column(self._lanes, lambda column: column[: self._lane_count])

    def add(self, count: int, rows_per_lane: int) -> I32:
        """Take `count` lanes with that many instance rows each, all empty and with the default look."""
        if count < 0 or rows_per_lane < 0:
            raise ValueError(f"cannot add {count} lanes of {rows_per_lane} rows: both must be 0 or more")
        reusable = self._free.get(rows_per_lane, [])
        split = max(0, len(reusable) - count)
        reused = np.array(reusable[split:], np.int32)
        del reusable[split:]
        fresh = self._add_fresh(count - len(reused), rows_per_lane)
        added = np.concatenate([reused, fresh])
        self._lanes.row_count[added] = rows_per_lane
        self._in_use[added] = True
        return added

    def free(self, lanes: ArrayLike) -> None:
        """Give lanes back. Their rows are emptied at once and serve later lanes of the same size."""
        lanes = np.atleast_1d(np.asarray(lanes, np.int64))
        known = (lanes >= 0) & (lanes < self._lane_count)
        if not known.all() or not self._in_use[lanes].all():
            wrong = lanes[~known] if not known.all() else lanes[~self._in_use[lanes]]
            raise ValueError(f"cannot free lane {wrong[0]}: expected a lane that is in use")
        if np.unique(lanes).size != lanes.size:
            raise ValueError(f"cannot free lanes {lanes.tolist()}: one of them is named twice")
        self._in_use[lanes] = False
        counts = self._lanes.row_count[lanes]
        for rows_per_lane in np.unique(counts):
            same = lanes[counts == rows_per_lane]
            _reset(self._instances, _INSTANCE_DEFAULTS, self.rows(same).ravel())
            self._free.setdefault(int(rows_per_lane), []).extend(same.tolist())
        first_row = self._lanes.first_row[lanes]
        _reset(self._lanes, _LANE_DEFAULTS, lanes)
        self._lanes.first_row[lanes] = first_row

    def rows(self, lanes: ArrayLike) -> I64:
        """The instance rows [n, rows_per_lane] of lanes that have equally many."""
        lanes = np.atleast_1d(np.asarray(lanes, np.int64))
        counts = np.unique(self._lanes.row_count[lanes])
        if counts.size > 1:
            raise ValueError(f"lanes with {counts.tolist()} rows in one call: expected lanes with equally many")
        within = np.arange(counts[0] if counts.size else 0, dtype=np.int64)
        rows: I64 = self._lanes.first_row[lanes].astype(np.int64)[:, None] + within
        return rows

    def _add_fresh(self, count: int, rows_per_lane: int) -> I32:
        """Lanes that were never used before, at the end of the tables."""
        first_lane, first_row = self._lane_count, self._row_count
        fresh = np.arange(first_lane, first_lane + count, dtype=np.int32)
        self._lanes = _grown(self._lanes, _LANE_DEFAULTS, first_lane, first_lane + count)
        self._instances = _grown(self._instances, _INSTANCE_DEFAULTS, first_row, first_row + count * rows_per_lane)
        if len(self._in_use) < len(self._lanes.first_row):
            self._in_use = np.pad(self._in_use, (0, len(self._lanes.first_row) - len(self._in_use)))
        self._lane_count += count
        self._row_count += count * rows_per_lane
        self._lanes.first_row[fresh] = first_row + rows_per_lane * np.arange(count)
        return fresh


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
