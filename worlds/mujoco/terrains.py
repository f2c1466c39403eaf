"""Height fields that are not the same in all lanes: a mesh for each, written over when an episode brings another."""

from itertools import count
from weakref import WeakKeyDictionary

import mujoco
import numpy as np

from worldloom.kernels.tables import I32, NO_MESH
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.surfaces import Surfaces
from worldloom.worlds.mujoco.things import Thing

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
                    scene.instances.mesh[rows[row]] = self._assets.put_mesh(name, mesh)
