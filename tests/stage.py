"""What test scenes are built with: pieces, looks, shots, shadows, and meshes as a user would bring them."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import DEPTH, F32, GRAY, NO_TEXTURE, RGB, SEGMENTATION, ViewTable
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, capsule, cylinder, grid, sphere
from worldloom.render.scene import Scene
from worldloom.render.views import make_views

Point: TypeAlias = tuple[float, float, float]
Color: TypeAlias = tuple[float, float, float] | str

ALL_OUTPUTS = RGB | GRAY | DEPTH | SEGMENTATION
FACETED = ("box", "plane", "quad", "roof")
"""Meshes whose normals are those of their triangles."""


class Piece(NamedTuple):
    """One instance row to be."""

    mesh: str
    pose: F32
    color: Color
    label: int
    texture: str | None = None
    uv_scale: tuple[float, float] = (1.0, 1.0)


class Look(NamedTuple):
    """A lane's light, sky and fog; fog has the horizon's colour unless told."""

    sun_at: Point = (0.45, -0.6, 0.8)
    sun: Color = (0.62, 0.58, 0.50)
    ambient: Color = (0.46, 0.50, 0.56)
    ambient_ground: Color = (0.30, 0.28, 0.27)
    horizon: Color = "dfe9ec"
    zenith: Color = "7fb0d6"
    fog: Color | None = None
    fog_range: tuple[float, float] = (0.0, 0.0)


class Shot(NamedTuple):
    """One view to be."""

    camera: F32
    fov_degrees: float = 40.0
    orthographic_height: float = np.nan
    near: float = 0.05
    far: float = 100.0
    lane: int = 0


class Stage(NamedTuple):
    """Lanes, and the shots taken of them."""

    lanes: Sequence[tuple[Look, Sequence[Piece]]]
    shots: Sequence[Shot]


class SceneFunction(Protocol):
    """Builds a test scene, and a view for each of its shots."""

    def __call__(
        self, width: int = 96, height: int = 96, samples: int = 1, outputs: int = ALL_OUTPUTS
    ) -> tuple[Scene, ViewTable]: ...


SCENES: dict[str, SceneFunction] = {}
"""Every staged scene by name."""


def staged(function: Callable[[], Stage]) -> SceneFunction:
    """Make a function that describes a stage into one that builds it, and list it."""

    def make(
        width: int = 96, height: int = 96, samples: int = 1, outputs: int = ALL_OUTPUTS
    ) -> tuple[Scene, ViewTable]:
        stage = function()
        shots = stage.shots
        views = make_views(
            [shot.lane for shot in shots],
            camera=[shot.camera for shot in shots],
            fov_degrees=[shot.fov_degrees for shot in shots],
            orthographic_height=[shot.orthographic_height for shot in shots],
            near=[shot.near for shot in shots],
            far=[shot.far for shot in shots],
            width=width,
            height=height,
            samples=samples,
            outputs=outputs,
        )
        return build(*stage.lanes), views

    SCENES[function.__name__] = make
    return make


def build(*lanes: tuple[Look, Sequence[Piece]]) -> Scene:
    """A scene with these lanes."""
    library = assets()
    scene = Scene(library)
    for look, pieces in lanes:
        (lane,) = scene.add(1, len(pieces))
        table, instances = scene.lanes, scene.instances
        table.light_direction[lane] = -np.asarray(look.sun_at)
        table.light_color[lane], table.ambient[lane] = rgb(look.sun), rgb(look.ambient)
        table.ambient_ground[lane] = rgb(look.ambient_ground)
        table.sky_horizon[lane], table.sky_zenith[lane] = rgb(look.horizon), rgb(look.zenith)
        table.fog_color[lane], table.fog_range[lane] = rgb(look.fog or look.horizon), look.fog_range
        for row, piece in zip(scene.rows(lane)[0], pieces, strict=True):
            instances.mesh[row] = library.mesh(piece.mesh)
            instances.pose[row], instances.color[row], instances.label[row] = piece.pose, rgb(piece.color), piece.label
            instances.texture[row] = NO_TEXTURE if piece.texture is None else library.texture(piece.texture)
            instances.uv_scale[row] = piece.uv_scale
    return scene


def rgb(color: Color) -> tuple[float, float, float]:
    """A colour as three numbers in 0..1; a text has two hexadecimal digits for each."""
    if isinstance(color, str):
        return int(color[0:2], 16) / 255, int(color[2:4], 16) / 255, int(color[4:6], 16) / 255
    return color


def shaded(color: Color, factor: float) -> Color:
    """The same colour, darker or lighter."""
    red, green, blue = rgb(color)
    return red * factor, green * factor, blue * factor


def pose(at: Point, size: float | Point = 1.0, yaw: float = 0.0, pitch: float = 0.0, roll: float = 0.0) -> F32:
    """Scaled, then turned by degrees around x (roll), y (pitch) and z (yaw), then put in its place."""
    (cy, cp, cr), (sy, sp, sr) = np.cos(np.radians([yaw, pitch, roll])), np.sin(np.radians([yaw, pitch, roll]))
    around_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    around_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    around_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    turned = around_z @ around_y @ around_x @ np.diag(np.broadcast_to(np.asarray(size, np.float64), 3))
    return np.column_stack([turned, at]).astype(np.float32)


def ground(color: Color, label: int, size: float = 60.0, texture: str | None = None, tile: float = 2.0) -> Piece:
    """A square floor at z = 0; a texture repeats every `tile` metres."""
    repeats = size / tile
    return Piece("plane", pose((0, 0, 0), (size, size, 1)), color, label, texture, (repeats, repeats))


def shadow(piece: Piece, look: Look, floor: Color, label: int, height: float = 0.004) -> Piece:
    """The piece pressed flat onto the floor along the light: a pose without volume.

    Its colour is what the floor has left where the sun does not reach. Round shapes are pressed with a normal for each
    facet: upper and lower side lie in one plane, and a smooth normal may disagree with its triangle on which it is.
    """
    mesh = piece.mesh if piece.mesh in FACETED else f"{piece.mesh} in facets"
    sun = np.asarray(look.sun_at) / np.linalg.norm(look.sun_at)
    pressed = np.array([[1, 0, -sun[0] / sun[2]], [0, 1, -sun[1] / sun[2]], [0, 0, 0]]) @ piece.pose
    pressed[2, 3] = height
    lit = np.asarray(rgb(look.ambient)) + np.asarray(rgb(look.sun)) * sun[2]
    red, green, blue = np.asarray(rgb(floor)) * rgb(look.ambient) / lit
    return Piece(mesh, pressed.astype(np.float32), (red, green, blue), label)


@cache
def assets() -> AssetLibrary:
    """The one library of all test scenes."""
    library = AssetLibrary()
    long_capsule = capsule(slices=24, stacks=6, half_length=1.5)
    for name, mesh in (("torus", torus()), ("ribbon", ribbon()), ("roof", roof()), ("long_capsule", long_capsule)):
        library.add_mesh(name, mesh)
    for name, mesh in (
        ("sphere", sphere(24, 12)),
        ("cylinder", cylinder(24)),
        ("capsule", capsule(24, 6)),
        ("long_capsule", long_capsule),
        ("torus", torus(32, 14)),
        ("ribbon", ribbon()),
    ):
        library.add_mesh(f"{name} in facets", in_facets(mesh))
    return library


def torus(slices: int = 40, sides: int = 20, thickness: float = 0.16) -> Mesh:
    """A ring of diameter 1 around z."""
    v, u = np.meshgrid(np.linspace(0, 2 * np.pi, sides + 1), np.linspace(0, 2 * np.pi, slices + 1), indexing="ij")
    around = np.stack([np.cos(u), np.sin(u), np.zeros_like(u)], axis=-1)
    normals = np.cos(v)[..., None] * around + np.sin(v)[..., None] * (0, 0, 1)
    positions = (0.5 - thickness) * around + thickness * normals
    uvs = np.stack([u / (2 * np.pi), v / (2 * np.pi)], axis=-1)
    return _mesh(positions, normals, uvs, grid(slices, sides), two_sided=False)


def ribbon(steps: int = 72, turns: float = 1.5) -> Mesh:
    """A band that winds up around z: open, so both its sides are seen."""
    across, t = np.meshgrid([-0.12, 0.12], np.linspace(0, 1, steps + 1), indexing="ij")
    angle = 2 * np.pi * turns * t
    outward = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(t)], axis=-1)
    positions = (0.5 - 0.25 * t)[..., None] * outward + (t - 0.5 + across)[..., None] * (0, 0, 1)
    return _mesh(positions, outward, np.stack([6 * t, across * 4 + 0.5], axis=-1), grid(steps, 1), two_sided=True)


def roof() -> Mesh:
    """A saddle roof over the unit square, ridge along y, half a metre high; open below, hard edges."""
    left_front, right_front, ridge_front = (-0.5, -0.5, 0.0), (0.5, -0.5, 0.0), (0.0, -0.5, 0.5)
    left_back, right_back, ridge_back = (-0.5, 0.5, 0.0), (0.5, 0.5, 0.0), (0.0, 0.5, 0.5)
    corners = np.array(
        [
            (right_front, right_back, ridge_back),
            (right_front, ridge_back, ridge_front),
            (left_back, left_front, ridge_front),
            (left_back, ridge_front, ridge_back),
            (left_front, right_front, ridge_front),
            (right_back, left_back, ridge_back),
        ]
    )
    any_normals = np.ones_like(corners)
    return in_facets(_mesh(corners, any_normals, corners[..., 1:], np.arange(18).reshape(-1, 3), two_sided=False))


def in_facets(mesh: Mesh) -> Mesh:
    """The same shape with a normal for each triangle."""
    corners = mesh.positions[mesh.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    numbers = np.arange(mesh.triangles.size).reshape(-1, 3)
    return _mesh(corners, np.repeat(normals, 3, axis=0), mesh.uvs[mesh.triangles], numbers, mesh.two_sided)


def _mesh(positions: ArrayLike, normals: ArrayLike, uvs: ArrayLike, triangles: ArrayLike, two_sided: bool) -> Mesh:
    """A mesh from vertices in any layout whose last axis is the coordinate."""
    return Mesh(
        np.asarray(positions, np.float32).reshape(-1, 3),
        np.asarray(normals, np.float32).reshape(-1, 3),
        np.asarray(uvs, np.float32).reshape(-1, 2),
        np.asarray(triangles, np.int32),
        two_sided,
    )
