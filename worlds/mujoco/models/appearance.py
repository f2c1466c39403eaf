"""What a geom or a site is shown with: meshes, textures and scales, as MuJoCo's own renderer would choose them."""

from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.tables import NO_TEXTURE
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh
from worldloom.worlds.mujoco.models import shapes
from worldloom.worlds.mujoco.models.cube_maps import wrapped
from worldloom.worlds.mujoco.models.meshes import digest_of, field_solid, has_texcoords, laid_on, mesh_solid
from worldloom.worlds.mujoco.models.textures import faces_of, paint, paint_sky, pixels_of

_GEOM = mujoco.mjtGeom
_ENDLESS = 8.0
"""A plane without end reaches so many times as far as cameras see."""
_SKIN_SIZE = 0.1
"""What MuJoCo takes for the size of a skin."""
_SHININESS = 128.0
_DEFAULT_FINISH = (0.0, 0.5, 0.5)
"""Emission, specular and shininess of what has no material."""
PLAIN = (0.5, 0.5, 0.5, 1.0)
"""A colour that gives way to the material's."""


class Finish(NamedTuple):
    """What the surface of a thing is like."""

    rgba: tuple[float, float, float, float]
    shine: tuple[float, float, float]
    """As in `InstanceTable.shine`."""
    texture: int
    """Of the model, or NO_TEXTURE."""
    repeat: tuple[float, float]
    is_uniform: bool
    """It repeats by the metre, not by the thing."""


class Form(NamedTuple):
    """What a thing is shaped like."""

    kind: int
    """An mjtGeom."""
    size: tuple[float, float, float]
    """From its middle to its sides."""
    data: int
    """Which mesh or height field it is."""


class Part(NamedTuple):
    """One instance row of a thing."""

    mesh: int
    texture: int
    uv_scale: tuple[float, float]
    scale: tuple[float, float, float]


def finish_of(model: mujoco.MjModel, material: int, rgba: np.ndarray) -> Finish:
    """The surface that a material and a colour of its own give a thing: the colour counts unless it is the default."""
    own = tuple(float(value) for value in rgba)
    if material < 0:
        emission, specular, shininess = _DEFAULT_FINISH
        return Finish(own, (emission, specular, _SHININESS * shininess), NO_TEXTURE, (0.0, 0.0), False)  # type: ignore[arg-type]
    color = tuple(float(value) for value in model.mat_rgba[material]) if own == PLAIN else own
    shine = (
        float(model.mat_emission[material]),
        float(model.mat_specular[material]),
        _SHININESS * float(model.mat_shininess[material]),
    )
    across, down = (float(value) for value in model.mat_texrepeat[material])
    texture = int(model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB])
    return Finish(color, shine, texture, (across, down), bool(model.mat_texuniform[material]))  # type: ignore[arg-type]


def form_of(kind: int, size: np.ndarray, data: int) -> Form:
    """The shape of a geom or a site, sizes given for each axis."""
    x, y, z = (float(value) for value in size)
    if kind == _GEOM.mjGEOM_SPHERE:
        return Form(kind, (x, x, x), data)
    if kind in (_GEOM.mjGEOM_CAPSULE, _GEOM.mjGEOM_CYLINDER):
        return Form(kind, (x, x, y), data)
    return Form(kind, (x, y, z), data)


class Surfaces:
    """Turns forms and finishes of one model into parts, and keeps what it has made."""

    def __init__(self, model: mujoco.MjModel, assets: AssetLibrary) -> None:
        self._assets = assets
        self._far = float(model.vis.map.zfar * model.stat.extent)
        self._solids: dict[tuple[int, int], Mesh] = {}
        self._pictures: dict[int, tuple[int, ...]] = {}

    def parts(self, model: mujoco.MjModel, form: Form, finish: Finish) -> tuple[Part, ...]:
        """The rows that show a thing."""
        pictures = self._pictures_of(model, finish.texture)
        if len(pictures) > 1:
            if not self._has_own_uvs(model, form):
                return self._cube_parts(model, form, finish, pictures)
            pictures = ()  # OpenGL finds no flat texture to lay on, and shows none
        texture = pictures[0] if pictures else NO_TEXTURE
        scale, repeat = self._scale(form), _repeat(form, finish)
        if form.kind == _GEOM.mjGEOM_PLANE and min(form.size[:2]) <= 0:
            return (Part(self._ground(form, repeat), texture, (1.0, 1.0), scale),)
        if form.kind == _GEOM.mjGEOM_HFIELD or (_is_mesh(form) and not has_texcoords(model, form.data)):
            return (
                Part(self._taken(self._laid_on(self._solid(model, form), form, finish)), texture, (1.0, 1.0), scale),
            )
        return (Part(self._mesh(model, form), texture, repeat, scale),)

    def skin_part(self, model: mujoco.MjModel, skin: int, finish: Finish, mesh: Mesh) -> Part:
        """The row that shows a piece of a skin; a texture needs to be told where it lies."""
        pictures = self._pictures_of(model, finish.texture) if model.skin_texcoordadr[skin] >= 0 else ()
        texture = pictures[0] if len(pictures) == 1 else NO_TEXTURE
        repeat = _repeat(Form(_GEOM.mjGEOM_SKIN, (_SKIN_SIZE,) * 3, skin), finish)
        return Part(self._taken(mesh), texture, repeat, (1.0, 1.0, 1.0))

    def sky(self, model: mujoco.MjModel) -> int:
        """The first of six textures of the sky, or NO_TEXTURE: then it is black."""
        for texture in np.flatnonzero(model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX):
            faces = faces_of(model, int(texture))
            return NO_TEXTURE if faces is None else paint_sky(self._assets, faces)
        return NO_TEXTURE

    def _pictures_of(self, model: mujoco.MjModel, texture: int) -> tuple[int, ...]:
        """The library's textures that are one of the model's: none, one, or one for each face of a cube."""
        if texture < 0:
            return ()
        if texture not in self._pictures:
            self._pictures[texture] = self._paint(model, texture)
        return self._pictures[texture]

    def _paint(self, model: mujoco.MjModel, texture: int) -> tuple[int, ...]:
        if model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_2D:
            pixels = pixels_of(model, texture)
            return () if pixels is None else (paint(self._assets, pixels, repeats=True),)
        return tuple(paint(self._assets, face, repeats=False) for face in faces_of(model, texture) or ())

    def _has_own_uvs(self, model: mujoco.MjModel, form: Form) -> bool:
        return _is_mesh(form) and has_texcoords(model, form.data)

    def _scale(self, form: Form) -> tuple[float, float, float]:
        x, y, _ = form.size
        if form.kind == _GEOM.mjGEOM_PLANE:
            endless = _ENDLESS * self._far
            return (x if x > 0 else endless, y if y > 0 else endless, 1.0)
        if form.kind == _GEOM.mjGEOM_CAPSULE:
            return (x, x, x)
        return (1.0, 1.0, 1.0) if form.kind in (*_MESHES, _GEOM.mjGEOM_HFIELD) else form.size

    def _mesh(self, model: mujoco.MjModel, form: Form) -> int:
        """A mesh for a form, with UVs of its own."""
        if form.kind == _GEOM.mjGEOM_CAPSULE:
            return shapes.capsule(self._assets, form.size[2] / form.size[0])
        if form.kind in _SHAPES:
            return _SHAPES[form.kind](self._assets)
        return self._taken(self._solid(model, form))

    def _ground(self, form: Form, repeat: tuple[float, float]) -> int:
        """A plane without an end in x or y: there a texture repeats by the metre, half a texture off the middle."""
        x, y, _ = self._scale(form)
        u = (0.0, repeat[0]) if form.size[0] > 0 else (-0.5 * x * repeat[0], 0.5 * x * repeat[0])
        v = (repeat[1], 0.0) if form.size[1] > 0 else (0.5 * y * repeat[1], -0.5 * y * repeat[1])
        return shapes.ground(self._assets, (u[0] - 0.5, u[1] - 0.5), (v[0] - 0.5, v[1] - 0.5))

    def terrain(self, model: mujoco.MjModel, form: Form, finish: Finish) -> Mesh:
        """A height field that is a lane's own. Under a cube texture it shows but one face of it."""
        return self._laid_on(field_solid(model, form.data), form, finish)

    def _laid_on(self, solid: Mesh, form: Form, finish: Finish) -> Mesh:
        """A mesh that does not say where textures lie: they are laid on from above."""
        if finish.texture < 0:
            return solid
        x, y = (
            repeat if finish.is_uniform or size <= 0 else repeat / size
            for repeat, size in zip(finish.repeat, form.size[:2], strict=True)
        )
        return laid_on(solid, (x, y))

    def _solid(self, model: mujoco.MjModel, form: Form) -> Mesh:
        """What a mesh or a height field was when it was first seen."""
        key = (form.kind, form.data)
        if key not in self._solids:
            make = field_solid if form.kind == _GEOM.mjGEOM_HFIELD else mesh_solid
            self._solids[key] = make(model, form.data)
        return self._solids[key]

    def _taken(self, mesh: Mesh) -> int:
        return shapes.take(self._assets, f"mujoco.{digest_of(mesh)}", lambda: mesh)

    def _cube_parts(
        self, model: mujoco.MjModel, form: Form, finish: Finish, pictures: tuple[int, ...]
    ) -> tuple[Part, ...]:
        stretch = np.array(form.size if finish.is_uniform else (1.0, 1.0, 1.0))
        half_length = form.size[2] / form.size[0] if form.kind == _GEOM.mjGEOM_CAPSULE else 1.0
        scale = self._scale(form)
        if form.kind == _GEOM.mjGEOM_PLANE:
            stretch = stretch * scale

        def ways(points: np.ndarray) -> np.ndarray:
            # MuJoCo's capsule is a tube of half length 1, however long, and half balls that begin where it ends.
            z = np.clip(points[:, 2] / half_length, -1, 1)
            z = z + np.sign(points[:, 2]) * np.clip(np.abs(points[:, 2]) - half_length, 0, None)
            return np.asarray(np.column_stack([points[:, :2], z]) * stretch)

        mesh = _MAKERS[form.kind]() if form.kind in _MAKERS else None
        if mesh is None:
            mesh = shapes.pill(half_length) if form.kind == _GEOM.mjGEOM_CAPSULE else self._solid(model, form)
        cut = wrapped(mesh, ways, pictures, self._assets.texture_size)
        return tuple(Part(self._taken(some), picture, (1.0, 1.0), scale) for picture, some in cut.items())


def _is_mesh(form: Form) -> bool:
    return form.kind in _MESHES


def _repeat(form: Form, finish: Finish) -> tuple[float, float]:
    """How often a texture is laid on in all, in u and v."""
    u, v = (
        (repeat if repeat > 0 else 1.0) * (size if finish.is_uniform and size > 0 else 1.0)
        for repeat, size in zip(finish.repeat, form.size[:2], strict=True)
    )
    return u, v


_MESHES = (_GEOM.mjGEOM_MESH, _GEOM.mjGEOM_SDF)
_SHAPES = {
    _GEOM.mjGEOM_PLANE: shapes.plane,
    _GEOM.mjGEOM_SPHERE: shapes.ball,
    _GEOM.mjGEOM_ELLIPSOID: shapes.ball,
    _GEOM.mjGEOM_CYLINDER: shapes.cylinder,
    _GEOM.mjGEOM_BOX: shapes.box,
}
_MAKERS = {
    _GEOM.mjGEOM_PLANE: lambda: shapes.sheet((0.0, 1.0), (1.0, 0.0)),
    _GEOM.mjGEOM_SPHERE: shapes.sphere,
    _GEOM.mjGEOM_ELLIPSOID: shapes.sphere,
    _GEOM.mjGEOM_CYLINDER: shapes.drum,
    _GEOM.mjGEOM_BOX: shapes.cube,
}
