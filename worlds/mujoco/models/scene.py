"""What does not move of a lane's rows, for a model or one that differs from it in numbers.

Height fields that are not the same in all lanes: a mesh for each, written over when an episode brings another.

How a MuJoCo model looks: imported once into assets and rows, then moved by kernels that read MuJoCo's own memory.

The rows of a lane are the model's geoms and sites, what stands still first, then its tendons and skins. Whatever a
model has that is not drawn is listed in words.
"""

import hashlib
from collections.abc import Callable, Collection
from itertools import count
from typing import NamedTuple
from weakref import WeakKeyDictionary

import mujoco
import numpy as np

from worldloom.kernels.tables import F32, I32, I64, NO_MESH, NO_TEXTURE, U8
from worldloom.render.arena import PROCESS_FLOAT64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import Camera, CameraPlacement
from worldloom.worlds.mujoco.models import shapes
from worldloom.worlds.mujoco.models.appearance import Part, Surfaces, finish_of
from worldloom.worlds.mujoco.models.cameras import Cameras
from worldloom.worlds.mujoco.models.contents import Thing, label_of, share_labels, shown_things
from worldloom.worlds.mujoco.models.kernels import dress_lamps, dress_things
from worldloom.worlds.mujoco.models.lamps import lamps_of
from worldloom.worlds.mujoco.models.omissions import SOLID_ALPHA, not_drawn
from worldloom.worlds.mujoco.models.skins import Skins
from worldloom.worlds.mujoco.models.tendons import Tendons
from worldloom.worlds.mujoco.simulation.data import (
    GEOM_XMAT,
    GEOM_XPOS,
    LIGHT_XDIR,
    LIGHT_XPOS,
    SITE_XMAT,
    SITE_XPOS,
)

_KEPT = 64
"""Of models that differ, so many are kept for when they come again."""
_DECIDING = (
    *("geom_size", "geom_rgba", "geom_matid", "geom_dataid", "site_size", "site_rgba", "site_matid"),
    *("tendon_rgba", "tendon_matid", "skin_rgba", "skin_matid"),
    *("mat_rgba", "mat_emission", "mat_specular", "mat_shininess", "mat_texrepeat", "mat_texid", "mat_texuniform"),
)
"""What of a model decides how its things look."""


class Columns(NamedTuple):
    """Of a lane's rows, and how large each thing is along its own axes."""

    mesh: I32
    color: F32
    texture: I32
    uv_scale: F32
    label: U8
    shine: F32
    scale: F32


def blank_columns(rows: int) -> Columns:
    """Rows that draw nothing."""
    return Columns(
        mesh=np.full(rows, NO_MESH, np.int32),
        color=np.zeros((rows, 3), np.float32),
        texture=np.full(rows, NO_TEXTURE, np.int32),
        uv_scale=np.ones((rows, 2), np.float32),
        label=np.zeros(rows, np.uint8),
        shine=np.zeros((rows, 3), np.float32),
        scale=np.ones((rows, 3), np.float32),
    )


class KnownColumns:
    """Columns by what decides them: most lanes look like another."""

    def __init__(self, make: Callable[[mujoco.MjModel], Columns]) -> None:
        self._make = make
        self._known: dict[bytes, Columns] = {}

    def of(self, model: mujoco.MjModel) -> Columns:
        """Those of a model, made if they are not known."""
        digest = hashlib.sha256()
        for name in _DECIDING:
            digest.update(getattr(model, name).tobytes())
        key = digest.digest()
        if key not in self._known:
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = self._make(model)
        return self._known[key]


_scene_numbers: WeakKeyDictionary[Scene, int] = WeakKeyDictionary()
_next_number = count()


class Terrains:
    """The things of a model that are height fields, and the rows that show them."""

    def __init__(self, model: mujoco.MjModel, assets: AssetLibrary, surfaces: Surfaces) -> None:
        self._assets = assets
        self._surfaces = surfaces
        self._data = model.hfield_data.copy()
        self._rows: list[tuple[Thing, int]] = []

    def add(self, model: mujoco.MjModel, thing: Thing, row: int) -> None:
        """Take notice of a thing that is a height field."""
        if thing.form(model).kind == mujoco.mjtGeom.mjGEOM_HFIELD:
            self._rows.append((thing, row))

    def furnish(self, scene: Scene, scene_lanes: I32, model: mujoco.MjModel) -> None:
        """Lanes whose fields are not the first model's get meshes of their own."""
        if not self._rows or np.array_equal(model.hfield_data, self._data):
            return
        number = _scene_numbers.setdefault(scene, next(_next_number))
        for thing, row in self._rows:
            mesh = self._surfaces.terrain(model, thing.form(model), thing.finish(model))
            for lane, rows in zip(scene_lanes.tolist(), scene.rows(scene_lanes), strict=True):
                if scene.instances.mesh[rows[row]] != NO_MESH:
                    name = f"mujoco.terrain of lane {lane} of scene {number}, row {row}"
                    scene.instances.mesh[rows[row]] = self._assets.set_mesh(name, mesh)


_PLACES = {"geom": (GEOM_XPOS, GEOM_XMAT), "site": (SITE_XPOS, SITE_XMAT)}


class Looks:
    """How lanes of one model are drawn. Lanes may have models of their own that differ in numbers."""

    def __init__(self, model: mujoco.MjModel, assets: AssetLibrary, restless: Collection[str] = ()) -> None:
        """`restless` are labels of what hangs on the world and yet is elsewhere in most lanes: a task puts it there."""
        self._model = model
        self._assets = assets
        self._surfaces = Surfaces(model, assets)
        self._cameras = Cameras(model)
        things = shown_things(model, restless)
        # Where surfaces meet, MuJoCo shows the one it draws last, our renderers the first: so from the last to the
        # first, those that stand still before those that move.
        order = sorted(range(len(things)), key=lambda place: (not things[place].is_still, -place))
        self._things = [things[place] for place in order]
        self._room = [len(self._parts(model, thing)) for thing in self._things]
        self._rows = _rows_of(self._things, self._room)
        self._tendons = Tendons(model, sum(self._room))
        self._skins = Skins(model, sum(self._room) + self._tendons.rows)
        self._terrains = Terrains(model, assets, self._surfaces)
        for place, thing in enumerate(self._things):
            self._terrains.add(model, thing, sum(self._room[:place]))
        names = [label_of(model, thing.kind, thing.number) for thing in things]
        names += [label_of(model, "tendon", tendon) for tendon in self._tendons.shown]
        names += [label_of(model, "skin", skin) for skin in self._skins.shown]
        self.labels, numbers = share_labels(names)
        self._label = [numbers[place] for place in order]
        self._tendon_label = numbers[len(things) :][: len(self._tendons.shown)]
        self._skin_label = numbers[len(things) + len(self._tendons.shown) :]
        self._columns = KnownColumns(self._make_columns)
        self._scales: WeakKeyDictionary[Scene, F32] = WeakKeyDictionary()
        self._sky = self._surfaces.sky(model)
        _, self._lights = lamps_of(model)
        self.rows_per_lane = sum(self._room) + self._tendons.rows + self._skins.rows
        self.static_rows = sum(room for thing, room in zip(self._things, self._room, strict=True) if thing.is_still)
        self.cameras: tuple[Camera, ...] = self._cameras.described
        self.not_drawn: tuple[str, ...] = not_drawn(model, things)

    def furnish(self, scene: Scene, scene_lanes: I32, model: mujoco.MjModel | None = None) -> None:
        """Write all that does not move of lanes that were just taken, or whose own model has changed."""
        model = model or self._model
        columns, table, rows = self._columns.of(model), scene.instances, scene.rows(scene_lanes)
        table.mesh[rows], table.texture[rows] = columns.mesh, columns.texture
        table.color[rows], table.shine[rows] = columns.color, columns.shine
        table.uv_scale[rows], table.label[rows] = columns.uv_scale, columns.label
        self._scales_in(scene)[scene_lanes] = columns.scale
        self._terrains.furnish(scene, scene_lanes, model)
        lamps, _ = lamps_of(model)
        scene.lanes.lamp_count[scene_lanes] = len(lamps)
        scene.lanes.lamps[scene_lanes[:, None], np.arange(len(lamps))] = lamps
        scene.lanes.sky_textures[scene_lanes] = self._sky
        scene.lanes.sky_horizon[scene_lanes] = scene.lanes.sky_zenith[scene_lanes] = 0.0

    def dress(self, places: I64, scene: Scene, scene_lanes: I32) -> None:
        """Poses of all that may move, and of the lamps, in lanes that are about to be drawn."""
        first_row, pose = scene.lanes.first_row, scene.instances.pose
        dress_things(PROCESS_FLOAT64, places, self._rows, self._scales_in(scene), scene_lanes, first_row, pose)
        dress_lamps(PROCESS_FLOAT64, places, LIGHT_XPOS, LIGHT_XDIR, self._lights, scene_lanes, scene.lanes.lamps)
        self._tendons.dress(places, scene, scene_lanes)
        self._skins.dress(places, scene, scene_lanes)

    def look(self, places: I64, camera: str) -> CameraPlacement:
        """Where a camera stands."""
        return self._cameras.look(places, camera)

    def _parts(self, model: mujoco.MjModel, thing: Thing) -> tuple[Part, ...]:
        return self._surfaces.parts(model, thing.form(model), thing.finish(model))

    def _make_columns(self, model: mujoco.MjModel) -> Columns:
        columns = blank_columns(self.rows_per_lane)
        first = 0
        for thing, room, label in zip(self._things, self._room, self._label, strict=True):
            finish, rows = thing.finish(model), slice(first, first + room)
            columns.color[rows], columns.shine[rows], columns.label[rows] = finish.rgba[:3], finish.shine, label
            if finish.rgba[3] >= SOLID_ALPHA:
                for row, part in zip(range(first, first + room), self._parts(model, thing), strict=False):
                    columns.mesh[row], columns.texture[row] = part.mesh, part.texture
                    columns.uv_scale[row], columns.scale[row] = part.uv_scale, part.scale
            first += room
        for place, tendon in enumerate(self._tendons.shown):
            finish = finish_of(model, int(model.tendon_matid[tendon]), model.tendon_rgba[tendon])
            tubes, balls = self._tendons.rows_of(place)
            both = slice(tubes.start, balls.stop)
            columns.color[both], columns.shine[both] = finish.rgba[:3], finish.shine
            columns.label[both] = self._tendon_label[place]
            if finish.rgba[3] >= SOLID_ALPHA:
                columns.mesh[tubes], columns.mesh[balls] = shapes.tube(self._assets), shapes.ball(self._assets)
        for place, skin in enumerate(self._skins.shown):
            finish = finish_of(model, int(model.skin_matid[skin]), model.skin_rgba[skin])
            for row, piece in zip(self._skins.rows_of(place), self._skins.pieces[place], strict=True):
                part = self._surfaces.skin_part(model, skin, finish, piece.mesh)
                columns.color[row], columns.shine[row] = finish.rgba[:3], finish.shine
                columns.label[row] = self._skin_label[place]
                if finish.rgba[3] >= SOLID_ALPHA:
                    columns.mesh[row], columns.texture[row], columns.uv_scale[row] = part[:3]
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
        (*_PLACES[thing.kind], thing.number) for thing, count in zip(things, room, strict=True) for _ in range(count)
    ]
    return np.array(rows, np.int32).reshape(-1, 3)
