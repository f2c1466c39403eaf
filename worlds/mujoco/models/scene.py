"""The scene of a MuJoCo model: assets and instance rows, imported once, and poses copied from MuJoCo's memory.

The instance rows of a lane are the model's geoms and sites, static ones first, then its tendons, then its skins. What
does not move (meshes, colours, textures, labels) is written when a lane is new or its model changes; poses are written
before each frame. Lanes may have models of their own that differ in the values of some arrays, such as sizes, colours
and height fields.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from itertools import count
from typing import NamedTuple
from weakref import WeakKeyDictionary

import mujoco
import numpy as np

from worldloom.kernels.tables import CASTS, CASTS_NOTHING, F32, I32, I64, NO_MESH, NO_TEXTURE, U8
from worldloom.render.arena import PROCESS_FLOAT64, PROCESS_INT32
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import quad
from worldloom.render.scene import Scene
from worldloom.worlds.family import Camera, CameraPlacement
from worldloom.worlds.mujoco.models import shapes
from worldloom.worlds.mujoco.models.appearance import MeshPart, ModelAssets, material_of, write_geom_colors
from worldloom.worlds.mujoco.models.cameras import Cameras
from worldloom.worlds.mujoco.models.contents import (
    DrawnObject,
    assign_labels,
    describe_not_drawn,
    label_of,
    list_drawn_objects,
)
from worldloom.worlds.mujoco.models.lights import read_lamps
from worldloom.worlds.mujoco.models.poses import PoseTables, PoseTarget, write_lane_poses
from worldloom.worlds.mujoco.models.skins import Skins
from worldloom.worlds.mujoco.models.tendons import Tendons
from worldloom.worlds.mujoco.simulation.data import GEOM_XMAT, GEOM_XPOS, SITE_XMAT, SITE_XPOS

_CACHE_SIZE = 64
"""Models with different looks whose static columns are kept for reuse."""
_KEY_ARRAYS = (
    *("geom_size", "geom_rgba", "geom_matid", "geom_dataid", "site_size", "site_rgba", "site_matid"),
    *("tendon_rgba", "tendon_matid", "skin_rgba", "skin_matid"),
    *("mat_rgba", "mat_emission", "mat_specular", "mat_shininess", "mat_texrepeat", "mat_texid", "mat_texuniform"),
)
"""Model arrays that static columns are computed from."""
_POSE_FIELDS = {"geom": (GEOM_XPOS, GEOM_XMAT), "site": (SITE_XPOS, SITE_XMAT)}


class StaticColumns(NamedTuple):
    """Columns of a lane's instance rows that do not depend on poses, and the scale of each row along its own axes."""

    mesh: I32
    color: F32
    texture: I32
    uv_scale: F32
    label: U8
    shine: F32
    shadow: U8
    alpha: F32
    scale: F32


def allocate_columns(rows: int) -> StaticColumns:
    """Return columns of rows that draw nothing."""
    return StaticColumns(
        mesh=np.full(rows, NO_MESH, np.int32),
        color=np.zeros((rows, 3), np.float32),
        texture=np.full(rows, NO_TEXTURE, np.int32),
        uv_scale=np.ones((rows, 2), np.float32),
        label=np.zeros(rows, np.uint8),
        shine=np.zeros((rows, 3), np.float32),
        shadow=np.full(rows, CASTS, np.uint8),
        alpha=np.ones(rows, np.float32),
        scale=np.ones((rows, 3), np.float32),
    )


def appearance_key(model: mujoco.MjModel) -> bytes:
    """Return a digest of the model values that static columns are computed from."""
    digest = hashlib.sha256()
    for name in _KEY_ARRAYS:
        digest.update(getattr(model, name).tobytes())
    return digest.digest()


class ColumnCache:
    """Static columns by the model values they are computed from: most lanes look like another."""

    def __init__(self) -> None:
        self._columns: dict[bytes, StaticColumns] = {}

    def get(self, model: mujoco.MjModel, build: Callable[[mujoco.MjModel], StaticColumns]) -> StaticColumns:
        """Return the columns of a model, built if they are not cached."""
        key = appearance_key(model)
        if key not in self._columns:
            if len(self._columns) >= _CACHE_SIZE:
                del self._columns[next(iter(self._columns))]
            self._columns[key] = build(model)
        return self._columns[key]


_scene_ids: WeakKeyDictionary[Scene, int] = WeakKeyDictionary()
_next_scene_id = count()


class HeightFields:
    """Height fields that differ between lanes: one mesh for each lane, overwritten when its height field changes."""

    def __init__(self, model: mujoco.MjModel, assets: AssetLibrary, model_assets: ModelAssets) -> None:
        self._assets = assets
        self._model_assets = model_assets
        self._shared_data = model.hfield_data.copy()
        self._rows: list[tuple[DrawnObject, int]] = []
        self._written: set[str] = set()

    def add(self, model: mujoco.MjModel, drawn: DrawnObject, row: int) -> None:
        """Remember the row of an object if it is a height field."""
        if drawn.shape(model).geom_type == mujoco.mjtGeom.mjGEOM_HFIELD:
            self._rows.append((drawn, row))

    def write(self, scene: Scene, scene_lanes: I32, model: mujoco.MjModel) -> None:
        """Give lanes whose height fields differ from the first model's their own meshes."""
        if not self._rows or np.array_equal(model.hfield_data, self._shared_data):
            return
        for drawn, row in self._rows:
            mesh = self._model_assets.height_field(model, drawn.shape(model), drawn.material(model))
            for lane, rows in zip(scene_lanes.tolist(), scene.rows(scene_lanes), strict=True):
                if scene.instances.mesh[rows[row]] != NO_MESH:
                    name = _height_field_name(scene, lane, row)
                    self._written.add(name)
                    scene.instances.mesh[rows[row]] = self._assets.set_mesh(name, mesh)

    def memory_bytes(self, model: mujoco.MjModel) -> int:
        """Estimate the memory of a lane's own meshes."""
        meshes = (
            self._model_assets.height_field(model, one.shape(model), one.material(model)) for one, _ in self._rows
        )
        return sum(mesh.memory_bytes for mesh in meshes)

    def free(self, scene: Scene, scene_lanes: I32) -> None:
        """Free the meshes of lanes. Their names and numbers stay, for later lanes with the same numbers."""
        if self._written:
            for lane in scene_lanes.tolist():
                for _, row in self._rows:
                    name = _height_field_name(scene, lane, row)
                    if name in self._written:
                        self._written.remove(name)
                        self._assets.set_mesh(name, quad())


def _height_field_name(scene: Scene, scene_lane: int, row: int) -> str:
    scene_id = _scene_ids.setdefault(scene, next(_next_scene_id))
    return f"mujoco.height_field of lane {scene_lane} of scene {scene_id}, row {row}"


class ModelScene:
    """Instance rows, lamps, sky and cameras of the lanes of one model."""

    def __init__(
        self,
        model: mujoco.MjModel,
        assets: AssetLibrary,
        task_placed: Collection[str] = (),
        eye: mujoco.MjvCamera | None = None,
    ) -> None:
        """`task_placed`: labels of geoms and sites that are fixed to the world, but placed anew in each episode.

        `eye` defines the camera of that name; else it is the first of the model.
        """
        self._model = model
        self._assets = assets
        self._model_assets = ModelAssets(model, assets)
        self._cameras = Cameras(model, eye)
        objects = list_drawn_objects(model, task_placed)
        # Where surfaces coincide, MuJoCo shows the one drawn last and our renderers the one drawn first. So objects are
        # in reverse order, static ones first.
        order = sorted(range(len(objects)), key=lambda k: (not objects[k].is_static, -k))
        self._objects = [objects[k] for k in order]
        self._row_counts = [len(self._parts(model, drawn)) for drawn in self._objects]
        object_rows = sum(self._row_counts)
        self._tendons = Tendons(model, object_rows)
        self._skins = Skins(model, object_rows + self._tendons.rows)
        self._height_fields = HeightFields(model, assets, self._model_assets)
        for k, drawn in enumerate(self._objects):
            self._height_fields.add(model, drawn, sum(self._row_counts[:k]))
        names = [label_of(model, drawn.kind, drawn.id) for drawn in objects]
        names += [label_of(model, "tendon", tendon) for tendon in self._tendons.ids]
        names += [label_of(model, "skin", skin) for skin in self._skins.ids]
        self.labels, numbers = assign_labels(names)
        self._object_labels = [numbers[k] for k in order]
        self._tendon_labels = numbers[len(objects) :][: len(self._tendons.ids)]
        self._skin_labels = numbers[len(objects) + len(self._tendons.ids) :]
        self._columns = ColumnCache()
        self._sky = self._model_assets.sky_texture(model)
        _, light_ids = read_lamps(model)
        self.pose_tables = PoseTables(
            _pose_sources(self._objects, self._row_counts), light_ids, *self._tendons.tables, *self._skins.tables
        )
        """Sources of the poses of all instance rows and lamps, for kernels."""
        self.rows_per_lane = object_rows + self._tendons.rows + self._skins.rows
        self.static_rows = sum(
            rows for drawn, rows in zip(self._objects, self._row_counts, strict=True) if drawn.is_static
        )
        self.cameras: tuple[Camera, ...] = self._cameras.specs
        self.camera_ids = self._cameras.ids
        self.row_groups: Sequence[int] = self._find_groups(model)
        """Group of each instance row: rows of one material, or of one label if they have none."""
        self._columns.get(model, self._build_columns)  # now, so that the first draw adds no assets
        self.not_drawn: tuple[str, ...] = describe_not_drawn(model)

    def write_static(
        self, scales: F32, lanes: I64, scene: Scene, scene_lanes: I32, model: mujoco.MjModel | None = None
    ) -> None:
        """Write everything that does not move into lanes that are new, or whose own model has changed.

        `lanes` are the rows of `scales` [lane, row, 3], the scales of all instance rows along their own axes.
        """
        model = model or self._model
        columns, table, rows = self._columns.get(model, self._build_columns), scene.instances, scene.rows(scene_lanes)
        table.mesh[rows], table.texture[rows] = columns.mesh, columns.texture
        table.color[rows], table.shine[rows] = columns.color, columns.shine
        table.uv_scale[rows], table.label[rows] = columns.uv_scale, columns.label
        table.shadow[rows] = columns.shadow
        table.alpha[rows] = columns.alpha
        scales[lanes] = columns.scale
        self._height_fields.write(scene, scene_lanes, model)
        lamps, _ = read_lamps(model)
        scene.lanes.lamp_count[scene_lanes] = len(lamps)
        scene.lanes.lamps[scene_lanes[:, None], np.arange(len(lamps))] = lamps
        scene.lanes.sky_textures[scene_lanes] = self._sky
        scene.lanes.sky_horizon[scene_lanes] = scene.lanes.sky_zenith[scene_lanes] = 0.0

    def write_poses(self, addresses: I64, scales: F32, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write the poses of all rows and lamps of lanes that are about to be drawn; see `write_static`."""
        write_lane_poses(
            PROCESS_FLOAT64,
            PROCESS_INT32,
            addresses,
            self.pose_tables,
            scales,
            lanes,
            scene_lanes,
            pose_target(scene),
        )

    def memory_bytes(self, has_own_height_fields: bool) -> int:
        """Estimate the memory of a lane's own meshes."""
        return self._height_fields.memory_bytes(self._model) if has_own_height_fields else 0

    def free(self, scene: Scene, scene_lanes: I32) -> None:
        """Free the meshes of lanes."""
        self._height_fields.free(scene, scene_lanes)

    def place_camera(self, addresses: I64, camera: str) -> CameraPlacement:
        """Return the pose and projection of a camera."""
        return self._cameras.place(addresses, camera)

    def place_posed_camera(self, poses: F32, lanes: I64, camera: str) -> CameraPlacement:
        """Return the same for lanes whose cameras have these poses [lane, camera, 3, 4]."""
        return self._cameras.place_posed(poses, lanes, camera)

    def write_colors(self, geom_rgba: F32, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write the looks of geoms in lanes that have colours [lane, geom, 4] of their own, instead of the model's.

        Geoms that are invisible in the model have no rows, and stay so.
        """
        first_row, table = scene.lanes.first_row, scene.instances
        sources, materials = self._color_tables
        write_geom_colors(geom_rgba, lanes, scene_lanes, first_row, sources, materials, table.color, table.alpha)

    @cached_property
    def _color_tables(self) -> tuple[I32, F32]:
        """For rows of geoms: row and geom [n, 2], and the colour of the material; NaN if there is none."""
        rows, materials = [], []
        first = 0
        for drawn, row_count in zip(self._objects, self._row_counts, strict=True):
            if drawn.kind == "geom":
                material = int(self._model.geom_matid[drawn.id])
                rows += [(row, drawn.id) for row in range(first, first + row_count)]
                materials += [self._model.mat_rgba[material] if material >= 0 else np.full(4, np.nan)] * row_count
            first += row_count
        return np.array(rows, np.int32).reshape(-1, 2), np.array(materials, np.float32).reshape(-1, 4)

    def list_surfaces(self, model: mujoco.MjModel) -> Iterator[tuple[slice, int, F32]]:
        """Yield the instance rows, the material (-1 for none) and the own colour of everything that is drawn."""
        materials = {"geom": (model.geom_matid, model.geom_rgba), "site": (model.site_matid, model.site_rgba)}
        first = 0
        for drawn, row_count in zip(self._objects, self._row_counts, strict=True):
            material, rgba = materials[drawn.kind]
            yield slice(first, first + row_count), int(material[drawn.id]), rgba[drawn.id]
            first += row_count
        for k, tendon in enumerate(self._tendons.ids):
            tubes, spheres = self._tendons.rows_of(k)
            rows = slice(tubes.start, spheres.stop)
            yield rows, int(model.tendon_matid[tendon]), model.tendon_rgba[tendon]
        for k, skin in enumerate(self._skins.ids):
            pieces = self._skins.rows_of(k)
            yield slice(pieces.start, pieces.stop), int(model.skin_matid[skin]), model.skin_rgba[skin]

    def _find_groups(self, model: mujoco.MjModel) -> list[int]:
        keys = np.full(self.rows_per_lane, -1, np.int64)
        for rows, material, _ in self.list_surfaces(model):
            keys[rows] = material
        labels = self._columns.get(model, self._build_columns).label
        keys = np.where(keys < 0, model.nmat + labels.astype(np.int64), keys)
        return [int(group) for group in np.unique(keys, return_inverse=True)[1].reshape(-1)]

    def _parts(self, model: mujoco.MjModel, drawn: DrawnObject) -> tuple[MeshPart, ...]:
        return self._model_assets.parts(model, drawn.shape(model), drawn.material(model))

    def _build_columns(self, model: mujoco.MjModel) -> StaticColumns:
        """Return the columns of a model."""
        columns = allocate_columns(self.rows_per_lane)
        self._fill_objects(model, columns)
        self._fill_tendons(model, columns)
        self._fill_skins(model, columns)
        return columns

    def _fill_objects(self, model: mujoco.MjModel, columns: StaticColumns) -> None:
        first = 0
        for drawn, row_count, label in zip(self._objects, self._row_counts, self._object_labels, strict=True):
            material, rows = drawn.material(model), slice(first, first + row_count)
            columns.color[rows], columns.shine[rows], columns.label[rows] = material.rgba[:3], material.shine, label
            if drawn.shape(model).geom_type == mujoco.mjtGeom.mjGEOM_PLANE:
                columns.shadow[rows] = CASTS_NOTHING
            columns.alpha[rows] = material.alpha
            for row, part in zip(range(first, first + row_count), self._parts(model, drawn), strict=False):
                columns.mesh[row], columns.texture[row] = part.mesh, part.texture
                columns.uv_scale[row], columns.scale[row] = part.uv_scale, part.scale
            first += row_count

    def _fill_tendons(self, model: mujoco.MjModel, columns: StaticColumns) -> None:
        for k, tendon in enumerate(self._tendons.ids):
            material = material_of(model, int(model.tendon_matid[tendon]), model.tendon_rgba[tendon])
            tubes, spheres = self._tendons.rows_of(k)
            both = slice(tubes.start, spheres.stop)
            columns.color[both], columns.shine[both] = material.rgba[:3], material.shine
            columns.label[both], columns.alpha[both] = self._tendon_labels[k], material.alpha
            columns.mesh[tubes] = shapes.acquire_tube(self._assets)
            columns.mesh[spheres] = shapes.acquire_sphere(self._assets)

    def _fill_skins(self, model: mujoco.MjModel, columns: StaticColumns) -> None:
        for k, skin in enumerate(self._skins.ids):
            material = material_of(model, int(model.skin_matid[skin]), model.skin_rgba[skin])
            for row, piece in zip(self._skins.rows_of(k), self._skins.pieces[k], strict=True):
                part = self._model_assets.skin_part(model, skin, material, piece.mesh)
                columns.color[row], columns.shine[row] = material.rgba[:3], material.shine
                columns.label[row], columns.alpha[row] = self._skin_labels[k], material.alpha
                columns.mesh[row], columns.texture[row], columns.uv_scale[row] = part[:3]


def pose_target(scene: Scene) -> PoseTarget:
    """Return the columns of a scene that poses are written into, until lanes are added or freed."""
    return PoseTarget(scene.lanes.first_row, scene.instances.pose, scene.instances.color, scene.lanes.lamps)


def _pose_sources(objects: list[DrawnObject], row_counts: list[int]) -> I32:
    """Return for each row the fields of its position and rotation, and its id in both, [rows, 3]."""
    rows = [
        (*_POSE_FIELDS[drawn.kind], drawn.id)
        for drawn, row_count in zip(objects, row_counts, strict=True)
        for _ in range(row_count)
    ]
    return np.array(rows, np.int32).reshape(-1, 3)
