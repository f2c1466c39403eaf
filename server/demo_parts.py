"""What the worlds of `worldloom demo` are put together from: shapes, looks, paints, and ways to fill many rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldloom.kernels.tables import F32, I32, I64, NO_TEXTURE
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, cylinder, disc, sphere
from worldloom.render.scene import Scene

Numbers = NDArray[np.floating[Any]]


class Kind(NamedTuple):
    """Lanes of one kind, and how they look at a time."""

    name: str
    lanes: I32
    move: Callable[[float], F32]
    """Puts what moves in its place for that second; the cameras [L, 3, 4] come back."""
    fov_degrees: float = 45.0
    orthographic_height: float = np.nan


class Look(NamedTuple):
    """The light and the sky of some lanes, each [L, 3]."""

    sun_at: Numbers
    """The way to the sun, of unit length."""
    sun: Numbers
    ambient: Numbers
    ambient_ground: Numbers
    horizon: Numbers
    zenith: Numbers


def colors(text: str) -> Numbers:
    """Colours [n, 3] from hexadecimal words."""
    return np.array([list(bytes.fromhex(word)) for word in text.split()]) / 255


_SUNS = np.array(
    [(-0.5, -0.6, 0.9), (-0.8, -0.5, 0.5), (0.6, -0.5, 0.7), (0.5, -0.7, 0.9), (-0.4, -0.4, 0.8), (0.3, -0.6, 1.0)]
)
"""Where the sun is in each look."""
_LIGHTS = np.array(
    [  # the sun's light, ambient light from above and from below, horizon, zenith
        colors("b2a88f 6b758a 4c4745 deebf0 6ba3db"),
        colors("eb9457 5c5c7a 4c3d42 fcc799 6166a8"),
        colors("bd948f 706b85 52454c fad9d4 a899cc"),
        colors("859e94 708585 47524c dbf0e3 5ca8a8"),
        colors("7a85a8 576185 3d3d57 8f99c7 212b61"),
        colors("a8a39e 808080 57524c f5f0e6 c7c9cc"),
    ]
)
PAINTS = colors("e2725b e9b44c 2a9d8f 3d5a98 f4ead7 b5533c 8ab17d 7a4b8b e8a6a1 4cb5d6")


def make_library() -> AssetLibrary:
    """The basic meshes and textures, round ones with fewer triangles, and what their shadows are made of."""
    library = AssetLibrary()
    library.add_mesh("ball", sphere(20, 10))
    library.add_mesh("ball in facets", _in_facets(sphere(14, 6)))
    library.add_mesh("pillar", cylinder(20))
    library.add_mesh("pillar in facets", _in_facets(cylinder(16)))
    library.add_mesh("disc", disc(24))
    return library


def add(scene: Scene, count: int, rows_per_lane: int) -> tuple[I32, I64]:
    """New lanes [L], and their rows [L, rows_per_lane]."""
    lanes = scene.add(count, rows_per_lane)
    return lanes, scene.rows(lanes)


def put(
    scene: Scene,
    rows: I64,
    mesh: str | NDArray[np.integer[Any]],
    pose: Numbers,
    color: ArrayLike,
    label: ArrayLike,
    texture: ArrayLike = NO_TEXTURE,
    uv_scale: ArrayLike = (1.0, 1.0),
) -> None:
    """Fill instance rows; every value is one for all of them or one each."""
    table = scene.instances
    table.mesh[rows] = scene.assets.mesh(mesh) if isinstance(mesh, str) else mesh
    table.pose[rows], table.color[rows], table.label[rows] = pose, color, label
    table.texture[rows], table.uv_scale[rows] = texture, uv_scale


def poses(at: ArrayLike, size: ArrayLike = (1.0, 1.0, 1.0), yaw: ArrayLike = 0.0) -> Numbers:
    """Poses [..., 3, 4]: scaled, turned around z by radians, put in their place."""
    at, size, yaw = np.asarray(at, np.float64), np.asarray(size, np.float64), np.asarray(yaw, np.float64)
    shape = np.broadcast_shapes(at.shape[:-1], size.shape[:-1], yaw.shape)
    made = np.zeros((*shape, 3, 4))
    cos, sin = np.cos(yaw), np.sin(yaw)
    made[..., 0, 0], made[..., 0, 1] = cos * size[..., 0], -sin * size[..., 1]
    made[..., 1, 0], made[..., 1, 1] = sin * size[..., 0], cos * size[..., 1]
    made[..., 2, 2] = size[..., 2]
    made[..., 3] = at
    return made


def shadows(placed: Numbers, sun_at: Numbers) -> Numbers:
    """Poses [L, n, 3, 4] pressed flat onto the floor, each away from its lane's sun."""
    press = np.zeros((len(sun_at), 1, 3, 3))
    press[..., 0, 0] = press[..., 1, 1] = 1.0
    press[:, 0, :2, 2] = -sun_at[:, :2] / sun_at[:, 2:]
    pressed: Numbers = press @ placed
    pressed[..., 2, 3] = 0.004
    return pressed


def set_looks(scene: Scene, lanes: I32, rng: np.random.Generator, fog_range: tuple[float, float]) -> Look:
    """Give the lanes the looks in turn, each sun a little moved; fog has the colour of the horizon."""
    table = scene.lanes
    number = (rng.integers(len(_SUNS)) + np.arange(len(lanes))) % len(_SUNS)
    sun_at = _SUNS[number] + rng.uniform(-0.15, 0.15, (len(lanes), 3))
    look = Look(sun_at / np.linalg.norm(sun_at, axis=1, keepdims=True), *_LIGHTS[number].swapaxes(0, 1))
    table.light_direction[lanes], table.light_color[lanes] = -look.sun_at, look.sun
    table.ambient[lanes], table.ambient_ground[lanes] = look.ambient, look.ambient_ground
    table.sky_horizon[lanes], table.sky_zenith[lanes] = look.horizon, look.zenith
    table.fog_color[lanes], table.fog_range[lanes] = look.horizon, fog_range
    return look


def pick(choices: Numbers, rng: np.random.Generator, shape: int | tuple[int, ...]) -> Numbers:
    """Any of the choices, for each place of the shape."""
    return np.asarray(choices[rng.integers(0, len(choices), shape)])


def around(look: Look, phase: Numbers, second: float, radius: float, height: Numbers) -> Numbers:
    """Places [L, 3] that swing to and fro on a circle, on the side where the sun is."""
    turn = np.arctan2(look.sun_at[:, 1], look.sun_at[:, 0]) + 1.1 * np.sin(phase + 0.3 * second)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=-1)


def _in_facets(mesh: Mesh) -> Mesh:
    """The same shape with a normal for each triangle, as a shape that is pressed flat needs."""
    corners = mesh.positions[mesh.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    numbers = np.arange(mesh.triangles.size, dtype=np.int32).reshape(-1, 3)
    uvs = mesh.uvs[mesh.triangles].reshape(-1, 2)
    return Mesh(corners.reshape(-1, 3), np.repeat(normals, 3, axis=0), uvs, numbers, mesh.two_sided)
