"""The scene: the instance rows of every lane of every world, and each lane's light, sky and fog.

A lane owns a fixed run of instance rows from the moment it is added until it is freed, so a view can only ever see its
own lane's rows. Tables grow by doubling, which makes new arrays: take `scene.instances` and `scene.lanes` anew after
`add`, do not keep them.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import I32, I64, NO_MESH, NO_TEXTURE, InstanceTable, LaneTable
from worldloom.render.assets import AssetLibrary

Table = TypeVar("Table", InstanceTable, LaneTable)

_IDENTITY = np.eye(3, 4, dtype=np.float32)
_INSTANCE_DEFAULTS = InstanceTable(
    mesh=np.int32([NO_MESH]),
    pose=_IDENTITY[None],
    color=np.float32([[1.0, 1.0, 1.0]]),
    texture=np.int32([NO_TEXTURE]),
    uv_scale=np.float32([[1.0, 1.0]]),
    label=np.uint8([0]),
)
_LANE_DEFAULTS = LaneTable(
    first_row=np.int32([0]),
    row_count=np.int32([0]),
    light_direction=np.float32([[-0.4, 0.55, -0.75]]),
    light_color=np.float32([[0.68, 0.66, 0.60]]),
    ambient=np.float32([[0.44, 0.47, 0.52]]),
    ambient_ground=np.float32([[0.26, 0.25, 0.24]]),
    sky_horizon=np.float32([[0.80, 0.87, 0.93]]),
    sky_zenith=np.float32([[0.30, 0.52, 0.80]]),
    fog_color=np.float32([[0.80, 0.87, 0.93]]),
    fog_range=np.float32([[0.0, 0.0]]),
)


class Scene:
    """All lanes and their instance rows, over one asset library."""

    def __init__(self, assets: AssetLibrary) -> None:
        self.assets = assets
        self._instances = _rows(_INSTANCE_DEFAULTS, 0)
        self._lanes = _rows(_LANE_DEFAULTS, 0)
        self._lane_count = 0
        self._row_count = 0
        self._free: dict[int, list[int]] = {}

    @property
    def instances(self) -> InstanceTable:
        """The instance rows in use or freed; write into the arrays in place."""
        return InstanceTable(*(column[: self._row_count] for column in self._instances))

    @property
    def lanes(self) -> LaneTable:
        """The lanes in use or freed; write into the arrays in place."""
        return LaneTable(*(column[: self._lane_count] for column in self._lanes))

    def add(self, count: int, rows_per_lane: int) -> I32:
        """Take `count` lanes with that many instance rows each, all empty and with the default look."""
        if count < 0 or rows_per_lane < 0:
            raise ValueError(f"cannot add {count} lanes of {rows_per_lane} rows: both must be 0 or more")
        reusable = self._free.get(rows_per_lane, [])
        reused = [reusable.pop() for _ in range(min(count, len(reusable)))]
        fresh = count - len(reused)
        first_lane, first_row = self._lane_count, self._row_count
        self._lanes = _grown(self._lanes, _LANE_DEFAULTS, first_lane, first_lane + fresh)
        self._instances = _grown(self._instances, _INSTANCE_DEFAULTS, first_row, first_row + fresh * rows_per_lane)
        self._lane_count += fresh
        self._row_count += fresh * rows_per_lane
        self._lanes.first_row[first_lane : self._lane_count] = first_row + rows_per_lane * np.arange(fresh)
        added = np.concatenate([np.int32(reused), np.arange(first_lane, self._lane_count, dtype=np.int32)])
        self._lanes.row_count[added] = rows_per_lane
        return added

    def free(self, lanes: ArrayLike) -> None:
        """Give lanes back. Their rows are emptied at once and serve later lanes of the same size."""
        lanes = np.atleast_1d(np.asarray(lanes, np.int64))
        freed = [lane for several in self._free.values() for lane in several]
        if np.any(lanes < 0) or np.any(lanes >= self._lane_count) or np.isin(lanes, freed).any():
            raise ValueError(f"cannot free lanes {lanes.tolist()}: expected lanes in use, below {self._lane_count}")
        if np.unique(lanes).size != lanes.size:
            raise ValueError(f"cannot free lanes {lanes.tolist()}: a lane is named twice")
        for rows in np.unique(self._lanes.row_count[lanes]):
            same = lanes[self._lanes.row_count[lanes] == rows]
            owned = (self._lanes.first_row[same][:, None] + np.arange(rows)).ravel()
            for column, default in zip(self._instances, _INSTANCE_DEFAULTS, strict=True):
                column[owned] = default
            self._free.setdefault(int(rows), []).extend(same.tolist())
        first_row = self._lanes.first_row[lanes].copy()
        for column, default in zip(self._lanes, _LANE_DEFAULTS, strict=True):
            column[lanes] = default
        self._lanes.first_row[lanes] = first_row

    def rows(self, lanes: ArrayLike) -> I64:
        """The instance rows [n, rows_per_lane] of lanes that have equally many."""
        lanes = np.atleast_1d(np.asarray(lanes, np.int64))
        counts = np.unique(self._lanes.row_count[lanes])
        if counts.size > 1:
            raise ValueError(f"lanes with {counts.tolist()} rows in one call: expected lanes with equally many")
        return self._lanes.first_row[lanes][:, None] + np.arange(counts[0] if counts.size else 0, dtype=np.int64)


def _rows(defaults: Table, count: int) -> Table:
    return type(defaults)(*(np.repeat(column, count, axis=0) for column in defaults))


def _grown(table: Table, defaults: Table, used: int, wanted: int) -> Table:
    """The same table with room for `wanted` rows: at least twice as large when it has to move."""
    capacity = len(table[0])
    if wanted <= capacity:
        return table
    larger = _rows(defaults, max(wanted, 2 * capacity))
    for new, old in zip(larger, table, strict=True):
        new[:used] = old[:used]
    return larger
