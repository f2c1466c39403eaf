"""Shapes and materials of geoms and sites, and the meshes and textures that draw them as MuJoCo's renderer does."""

from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F32, I32, I64, NO_TEXTURE
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh
from worldloom.worlds.mujoco.models import shapes
from worldloom.worlds.mujoco.models.meshes import (
    build_height_field,
    build_mesh_asset,
    has_texcoords,
    mesh_digest,
    project_texture,
)
from worldloom.worlds.mujoco.models.textures import (
    acquire_sky,
    acquire_texture,
    read_cube_faces,
    read_texture,
    split_by_cube_face,
)

_GEOM = mujoco.mjtGeom
_INFINITE_PLANE_SCALE = 8.0
"""Half the side of an infinite plane, as a multiple of the far plane's distance."""
_SKIN_SIZE = 0.1
"""Size that MuJoCo assumes for a skin when it repeats a texture."""
_MAX_SHININESS = 128.0
_DEFAULT_EMISSION, _DEFAULT_SPECULAR, _DEFAULT_SHININESS = 0.0, 0.5, 0.5
"""Surface of objects without a material."""
DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)
"""Colour of an object that has none of its own: that of its material counts, if it has one."""


class Material(NamedTuple):
    """Surface of an object, from its MuJoCo material and its own colour."""

    rgba: tuple[float, float, float, float]
    shine: tuple[float, float, float]
    """As in `InstanceTable.shine`."""
    texture: int
    """Id of a texture of the model, or NO_TEXTURE."""
    repeat: tuple[float, float]
    is_uniform: bool
    """True if the texture repeats per metre, False if per object."""

    @property
    def alpha(self) -> float:
        """Alpha of its instance rows."""
        return alpha_of_layer(self.rgba[3])


def alpha_of_layer(alpha: float) -> float:
    """Return the alpha that blends an object once as MuJoCo's renderer does by blending it twice."""
    return 1.0 - max(0.0, 1.0 - alpha) ** 2


_alpha_of_layer = inlined(alpha_of_layer)


class Shape(NamedTuple):
    """Shape of an object."""

    geom_type: int
    """An mjtGeom."""
    size: tuple[float, float, float]
    """Half sizes along the object's axes."""
    data_id: int
    """Id of its mesh or height field."""


class MeshPart(NamedTuple):
    """One instance row of an object: a mesh and a texture of the library."""

    mesh: int
    texture: int
    uv_scale: tuple[float, float]
    scale: tuple[float, float, float]


def material_of(model: mujoco.MjModel, material: int, rgba: np.ndarray) -> Material:
    """Return the surface of an object with this material (-1 for none) and colour."""
    own = tuple(float(value) for value in rgba)
    if material < 0:
        shine = (_DEFAULT_EMISSION, _DEFAULT_SPECULAR, _MAX_SHININESS * _DEFAULT_SHININESS)
        return Material(own, shine, NO_TEXTURE, (0.0, 0.0), False)  # type: ignore[arg-type]
    color = tuple(float(value) for value in model.mat_rgba[material]) if own == DEFAULT_RGBA else own
    shine = (
        float(model.mat_emission[material]),
        float(model.mat_specular[material]),
        _MAX_SHININESS * float(model.mat_shininess[material]),
    )
    repeat_u, repeat_v = (float(value) for value in model.mat_texrepeat[material])
    texture = int(model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB])
    return Material(color, shine, texture, (repeat_u, repeat_v), bool(model.mat_texuniform[material]))  # type: ignore[arg-type]


def shape_of(geom_type: int, size: np.ndarray, data_id: int) -> Shape:
    """Return the shape of a geom or site, with a half size for each axis."""
    x, y, z = (float(value) for value in size)
    if geom_type == _GEOM.mjGEOM_SPHERE:
        return Shape(geom_type, (x, x, x), data_id)
    if geom_type in (_GEOM.mjGEOM_CAPSULE, _GEOM.mjGEOM_CYLINDER):
        return Shape(geom_type, (x, x, y), data_id)
    return Shape(geom_type, (x, y, z), data_id)


class ModelAssets:
    """Meshes and textures of one model, added to the asset library on first use."""

    def __init__(self, model: mujoco.MjModel, assets: AssetLibrary) -> None:
        self._assets = assets
        self._far = float(model.vis.map.zfar * model.stat.extent)
        self._meshes: dict[tuple[int, int], Mesh] = {}
        self._textures: dict[int, tuple[int, ...]] = {}

    def parts(self, model: mujoco.MjModel, shape: Shape, material: Material) -> tuple[MeshPart, ...]:
        """Return the instance rows that draw an object: one, or several if it has a cube texture."""
        textures = self._textures_of(model, material.texture)
        if len(textures) > 1:
            if not _has_own_texcoords(model, shape):
                return self._cube_parts(model, shape, material, textures)
            textures = ()  # MuJoCo's renderer uses a flat texture here, finds none, and shows none
        texture = textures[0] if textures else NO_TEXTURE
        scale, repeat = self._scale(shape), _texture_repeat(shape, material)
        if shape.geom_type == _GEOM.mjGEOM_PLANE and min(shape.size[:2]) <= 0:
            return (MeshPart(self._infinite_plane(shape, repeat), texture, (1.0, 1.0), scale),)
        if shape.geom_type == _GEOM.mjGEOM_HFIELD or (_is_mesh(shape) and not has_texcoords(model, shape.data_id)):
            mesh = self._acquire(_project(self._source_mesh(model, shape), shape, material))
            return (MeshPart(mesh, texture, (1.0, 1.0), scale),)
        return (MeshPart(self._mesh(model, shape), texture, repeat, scale),)

    def skin_part(self, model: mujoco.MjModel, skin: int, material: Material, mesh: Mesh) -> MeshPart:
        """Return the instance row of a piece of a skin; without texture coordinates it has no texture."""
        textures = self._textures_of(model, material.texture) if model.skin_texcoordadr[skin] >= 0 else ()
        texture = textures[0] if len(textures) == 1 else NO_TEXTURE
        repeat = _texture_repeat(Shape(_GEOM.mjGEOM_SKIN, (_SKIN_SIZE,) * 3, skin), material)
        return MeshPart(self._acquire(mesh), texture, repeat, (1.0, 1.0, 1.0))

    def sky_texture(self, model: mujoco.MjModel) -> int:
        """Return the id of the first of the six textures of the sky, or NO_TEXTURE for a black sky."""
        for texture in np.flatnonzero(model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX):
            faces = read_cube_faces(model, int(texture))
            return NO_TEXTURE if faces is None else acquire_sky(self._assets, faces)
        return NO_TEXTURE

    def height_field(self, model: mujoco.MjModel, shape: Shape, material: Material) -> Mesh:
        """Return the mesh of a height field of one lane. A cube texture shows only one of its faces on it."""
        return _project(build_height_field(model, shape.data_id), shape, material)

    def _textures_of(self, model: mujoco.MjModel, texture: int) -> tuple[int, ...]:
        """Return the library's ids of a texture of the model: none, one, or one for each face of a cube."""
        if texture < 0:
            return ()
        if texture not in self._textures:
            self._textures[texture] = self._acquire_textures(model, texture)
        return self._textures[texture]

    def _acquire_textures(self, model: mujoco.MjModel, texture: int) -> tuple[int, ...]:
        if model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_2D:
            pixels = read_texture(model, texture)
            return () if pixels is None else (acquire_texture(self._assets, pixels, repeats=True),)
        faces = read_cube_faces(model, texture) or ()
        return tuple(acquire_texture(self._assets, face, repeats=False) for face in faces)

    def _scale(self, shape: Shape) -> tuple[float, float, float]:
        x, y, _ = shape.size
        if shape.geom_type == _GEOM.mjGEOM_PLANE:
            infinite = _INFINITE_PLANE_SCALE * self._far
            return (x if x > 0 else infinite, y if y > 0 else infinite, 1.0)
        if shape.geom_type == _GEOM.mjGEOM_CAPSULE:
            return (x, x, x)
        return (1.0, 1.0, 1.0) if shape.geom_type in (*_MESH_TYPES, _GEOM.mjGEOM_HFIELD) else shape.size

    def _mesh(self, model: mujoco.MjModel, shape: Shape) -> int:
        """Return the id of a shape's mesh that has its own texture coordinates."""
        if shape.geom_type == _GEOM.mjGEOM_CAPSULE:
            return shapes.acquire_capsule(self._assets, shape.size[2] / shape.size[0])
        if shape.geom_type in _ACQUIRE:
            return _ACQUIRE[shape.geom_type](self._assets)
        return self._acquire(self._source_mesh(model, shape))

    def _infinite_plane(self, shape: Shape, repeat: tuple[float, float]) -> int:
        """Return the id of a plane that is infinite in x or y: there the texture repeats per metre, offset by half."""
        x, y, _ = self._scale(shape)
        u = (0.0, repeat[0]) if shape.size[0] > 0 else (-0.5 * x * repeat[0], 0.5 * x * repeat[0])
        v = (repeat[1], 0.0) if shape.size[1] > 0 else (0.5 * y * repeat[1], -0.5 * y * repeat[1])
        return shapes.acquire_textured_plane(self._assets, (u[0] - 0.5, u[1] - 0.5), (v[0] - 0.5, v[1] - 0.5))

    def _source_mesh(self, model: mujoco.MjModel, shape: Shape) -> Mesh:
        """Return the mesh of a mesh asset or height field, built from the first model it was needed for."""
        key = (shape.geom_type, shape.data_id)
        if key not in self._meshes:
            build = build_height_field if shape.geom_type == _GEOM.mjGEOM_HFIELD else build_mesh_asset
            self._meshes[key] = build(model, shape.data_id)
        return self._meshes[key]

    def _acquire(self, mesh: Mesh) -> int:
        return shapes.acquire_mesh(self._assets, f"mujoco.{mesh_digest(mesh)}", lambda: mesh)

    def _cube_parts(
        self, model: mujoco.MjModel, shape: Shape, material: Material, textures: tuple[int, ...]
    ) -> tuple[MeshPart, ...]:
        stretch = np.array(shape.size if material.is_uniform else (1.0, 1.0, 1.0))
        half_length = shape.size[2] / shape.size[0] if shape.geom_type == _GEOM.mjGEOM_CAPSULE else 1.0
        scale = self._scale(shape)
        if shape.geom_type == _GEOM.mjGEOM_PLANE:
            stretch = stretch * scale

        def directions(points: np.ndarray) -> np.ndarray:
            # MuJoCo's capsule is a tube of half length 1, however long it is, with a hemisphere at each end.
            z = np.clip(points[:, 2] / half_length, -1, 1)
            z = z + np.sign(points[:, 2]) * np.clip(np.abs(points[:, 2]) - half_length, 0, None)
            return np.asarray(np.column_stack([points[:, :2], z]) * stretch)

        if shape.geom_type in _BUILD:
            mesh = _BUILD[shape.geom_type]()
        elif shape.geom_type == _GEOM.mjGEOM_CAPSULE:
            mesh = shapes.build_capsule(half_length)
        else:
            mesh = self._source_mesh(model, shape)
        parts = split_by_cube_face(mesh, directions, textures, self._assets.texture_size)
        return tuple(MeshPart(self._acquire(part), texture, (1.0, 1.0), scale) for texture, part in parts.items())


def _is_mesh(shape: Shape) -> bool:
    return shape.geom_type in _MESH_TYPES


def _has_own_texcoords(model: mujoco.MjModel, shape: Shape) -> bool:
    return _is_mesh(shape) and has_texcoords(model, shape.data_id)


def _project(mesh: Mesh, shape: Shape, material: Material) -> Mesh:
    """Give a mesh without texture coordinates those of a texture projected from above, if it has a texture."""
    if material.texture < 0:
        return mesh
    x, y = (
        repeat if material.is_uniform or size <= 0 else repeat / size
        for repeat, size in zip(material.repeat, shape.size[:2], strict=True)
    )
    return project_texture(mesh, (x, y))


def _texture_repeat(shape: Shape, material: Material) -> tuple[float, float]:
    """Return how often a texture repeats over the whole object, in u and v."""
    u, v = (
        (repeat if repeat > 0 else 1.0) * (size if material.is_uniform and size > 0 else 1.0)
        for repeat, size in zip(material.repeat, shape.size[:2], strict=True)
    )
    return u, v


_MESH_TYPES = (_GEOM.mjGEOM_MESH, _GEOM.mjGEOM_SDF)
_ACQUIRE = {
    _GEOM.mjGEOM_PLANE: shapes.acquire_plane,
    _GEOM.mjGEOM_SPHERE: shapes.acquire_sphere,
    _GEOM.mjGEOM_ELLIPSOID: shapes.acquire_sphere,
    _GEOM.mjGEOM_CYLINDER: shapes.acquire_cylinder,
    _GEOM.mjGEOM_BOX: shapes.acquire_box,
}
_BUILD = {
    _GEOM.mjGEOM_PLANE: lambda: shapes.build_plane((0.0, 1.0), (1.0, 0.0)),
    _GEOM.mjGEOM_SPHERE: shapes.build_sphere,
    _GEOM.mjGEOM_ELLIPSOID: shapes.build_sphere,
    _GEOM.mjGEOM_CYLINDER: shapes.build_cylinder,
    _GEOM.mjGEOM_BOX: shapes.build_box,
}


_DEFAULT_RED, _DEFAULT_GREEN, _DEFAULT_BLUE, _DEFAULT_ALPHA = DEFAULT_RGBA


@kernel_holding_gil
def write_geom_colors(
    geom_rgba: F32,
    lanes: I64,
    scene_lanes: I32,
    first_row: I32,
    sources: I32,
    materials: F32,
    color: F32,
    alpha: F32,
) -> None:
    """Write colours and alphas of rows of geoms with colours [lane, geom, 4]; see `ModelScene._color_tables`.

    As in MuJoCo, the default colour stands for that of the material.
    """
    for k in range(lanes.size):
        for n in range(sources.shape[0]):
            row, rgba = first_row[scene_lanes[k]] + sources[n, 0], geom_rgba[lanes[k], sources[n, 1]]
            is_default = (
                rgba[0] == _DEFAULT_RED
                and rgba[1] == _DEFAULT_GREEN
                and rgba[2] == _DEFAULT_BLUE
                and rgba[3] == _DEFAULT_ALPHA
            )
            if is_default and not np.isnan(materials[n, 0]):
                rgba = materials[n]
            for i in range(3):
                color[row, i] = rgba[i]
            alpha[row] = _alpha_of_layer(rgba[3])
