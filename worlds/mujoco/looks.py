"""How a MuJoCo model looks: imported once into assets and rows, then moved by kernels that read MuJoCo's own memory.

The rows of a lane are the model's geoms and sites, what stands still first. Whatever a model has that is not drawn is
listed in words.
"""

import hashlib
from collections.abc import Collection
from typing import NamedTuple
from weakref import WeakKeyDictionary

import mujoco
import numpy as np

from worldloom.kernels.mujoco_dress import dress_lamps, dress_things
from worldloom.kernels.tables import F32, I32, I64, NO_MESH, NO_TEXTURE, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.memory import NUMBERS
from worldloom.render.scene import Scene
from worldloom.worlds.family import Camera, Placement
from worldloom.worlds.mujoco import lamps
from worldloom.worlds.mujoco.cameras import Cameras
from worldloom.worlds.mujoco.omissions import SOLID_ALPHA, not_drawn
from worldloom.worlds.mujoco.places import (
    GEOM_XMAT,
    GEOM_XPOS,
    LIGHT_XDIR,
    LIGHT_XPOS,
    SITE_XMAT,
    SITE_XPOS,
)
from worldloom.worlds.mujoco.surfaces import Part, Surfaces
from worldloom.worlds.mujoco.things import Thing, label_of, share_labels, shown_things

_KEPT = 64
"""Columns of models that differ from the first, kept for when they come again."""
_COLUMNS = {"geom": (GEOM_XPOS, GEOM_XMAT), "site": (SITE_XPOS, SITE_XMAT)}
_LOOKS = (
    *("geom_size", "geom_rgba", "geom_matid", "geom_dataid", "site_size", "site_rgba", "site_matid"),
    *("mat_rgba", "mat_emission", "mat_specular", "mat_shininess", "mat_texrepeat", "mat_texid", "mat_texuniform"),
    *("hfield_data", "hfield_size"),
)
"""What of a model decides how its things look."""


class _Columns(NamedTuple):
    """Of a lane's rows: what does not move."""

    mesh: I32
    color: F32
    texture: I32
    uv_scale: F32
    label: U8
    shine: F32
    scale: F32


class Looks:
    """How lanes of one model are drawn. Lanes may have models of their own that differ in numbers."""

    def __init__(self, model: mujoco.MjModel, assets: AssetLibrary, restless: Collection[str] = ()) -> None:
        """`restless` are labels of what hangs on the world and yet is elsewhere in most lanes: a task puts it there."""
        self._model = model
        self._surfaces = Surfaces(model, assets)
        self._cameras = Cameras(model)
        things = shown_things(model, restless)
        self.labels, numbers = share_labels([label_of(model, thing.kind, thing.number) for thing in things])
        # Where surfaces meet, MuJoCo shows the one it draws last, our renderers the first: so from the last to the
        # first, those that stand still before those that move.
        order = sorted(range(len(things)), key=lambda place: (not things[place].is_still, -place))
        self._things = [things[place] for place in order]
        self._label = [numbers[place] for place in order]
        parts = [self._parts(model, thing) for thing in self._things]
        self._room = [len(some) for some in parts]
        self._rows = _rows_of(self._things, self._room)
        self._columns: dict[bytes, _Columns] = {}
        self._scales: WeakKeyDictionary[Scene, F32] = WeakKeyDictionary()
        self._sky = self._surfaces.sky(model)
        _, self._lights = lamps.lamps_of(model)
        self.rows_per_lane = sum(self._room)
        self.still_rows = sum(room for thing, room in zip(self._things, self._room, strict=True) if thing.is_still)
        self.cameras: tuple[Camera, ...] = self._cameras.described
        self.not_drawn: tuple[str, ...] = not_drawn(model, things)

    def furnish(self, scene: Scene, scene_lanes: I32, model: mujoco.MjModel | None = None) -> None:
        """Write all that does not move of lanes that were just taken, or whose own model has changed."""
        model = model or self._model
        columns, table, rows = self._columns_of(model), scene.instances, scene.rows(scene_lanes)
        table.mesh[rows], table.texture[rows] = columns.mesh, columns.texture
        table.color[rows], table.shine[rows] = columns.color, columns.shine
        table.uv_scale[rows], table.label[rows] = columns.uv_scale, columns.label
        self._scales_in(scene)[scene_lanes] = columns.scale
        lit, _ = lamps.lamps_of(model)
        scene.lanes.lamp_count[scene_lanes] = len(lit)
        scene.lanes.lamps[scene_lanes[:, None], np.arange(len(lit))] = lit
        scene.lanes.sky_textures[scene_lanes] = self._sky
        scene.lanes.sky_horizon[scene_lanes] = scene.lanes.sky_zenith[scene_lanes] = 0.0

    def dress(self, places: I64, scene: Scene, scene_lanes: I32) -> None:
        """Poses of all that may move, and of the lamps, in lanes that are about to be drawn."""
        first_row, table = scene.lanes.first_row, scene.instances
        dress_things(NUMBERS, places, self._rows, self._scales_in(scene), scene_lanes, first_row, table.pose)
        dress_lamps(NUMBERS, places, LIGHT_XPOS, LIGHT_XDIR, self._lights, scene_lanes, scene.lanes.lamps)

    def look(self, places: I64, camera: str) -> Placement:
        """Where a camera stands."""
        return self._cameras.look(places, camera)

    def _parts(self, model: mujoco.MjModel, thing: Thing) -> tuple[Part, ...]:
        return self._surfaces.parts(model, thing.form(model), thing.finish(model))

    def _columns_of(self, model: mujoco.MjModel) -> _Columns:
        digest = hashlib.sha256()
        for name in _LOOKS:
            digest.update(getattr(model, name).tobytes())
        key = digest.digest()
        if key not in self._columns:
            if len(self._columns) >= _KEPT:
                del self._columns[next(iter(self._columns))]
            self._columns[key] = self._made_columns(model)
        return self._columns[key]

    def _made_columns(self, model: mujoco.MjModel) -> _Columns:
        count = self.rows_per_lane
        columns = _Columns(
            mesh=np.full(count, NO_MESH, np.int32),
            color=np.zeros((count, 3), np.float32),
            texture=np.full(count, NO_TEXTURE, np.int32),
            uv_scale=np.ones((count, 2), np.float32),
            label=np.zeros(count, np.uint8),
            shine=np.zeros((count, 3), np.float32),
            scale=np.ones((count, 3), np.float32),
        )
        first = 0
        for thing, room, label in zip(self._things, self._room, self._label, strict=True):
            finish, rows = thing.finish(model), slice(first, first + room)
            columns.color[rows], columns.shine[rows], columns.label[rows] = finish.rgba[:3], finish.shine, label
            if finish.rgba[3] >= SOLID_ALPHA:
                for row, part in zip(range(first, first + room), self._parts(model, thing), strict=False):
                    columns.mesh[row], columns.texture[row] = part.mesh, part.texture
                    columns.uv_scale[row], columns.scale[row] = part.uv_scale, part.scale
            first += room
        return columns

    def _scales_in(self, scene: Scene) -> F32:
        """How large the things of each of a scene's lanes are, [lane, row, 3]; grows with the scene."""
        known = self._scales.get(scene)
        wanted = len(scene.lanes.first_row)
        if known is None or len(known) < wanted:
            grown = np.ones((max(wanted, 2 * (0 if known is None else len(known))), self.rows_per_lane, 3), np.float32)
            if known is not None:
                grown[: len(known)] = known
            self._scales[scene] = known = grown
        return known


def _rows_of(things: list[Thing], room: list[int]) -> I32:
    """For each row: in which columns of the places its position and rotation are, and at which number."""
    rows = [
        (*_COLUMNS[thing.kind], thing.number) for thing, count in zip(things, room, strict=True) for _ in range(count)
    ]
    return np.array(rows, np.int32).reshape(-1, 3)
