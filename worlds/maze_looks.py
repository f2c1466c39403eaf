"""What mazes are made of: meshes, textures, colours and lights."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from worldloom.kernels.maze_dress import MazeLooks
from worldloom.kernels.tables import F32, U8
from worldloom.render import textures
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, capsule, quad
from worldloom.worlds.props import rgb, take_mesh, take_texture

GOAL_COLORS = ("ff4040", "ffc61a", "2fe06a", "2fb4ff", "a64dff", "f4f4f4")
AGENT_COLORS = ("f08a24", "3569c9", "d8434e", "2f9e68", "8a56c4", "1fa7a7", "d4a72c", "6b7480")
_VISOR_COLOR = "ffffff"

_LIGHTS = (
    # to the sun; sun, ambient from above, ambient from below, horizon, zenith
    ((0.45, -0.7, 0.8), "8f8672 98a0b4 a49c94 e3eff5 5b9bdb"),
    ((-0.8, -0.5, 0.5), "b57a4e 8a86a4 8d7a7c fcc799 6166a8"),
    ((0.6, -0.5, 0.7), "957a78 9c96ac 94858c fad9d4 a899cc"),
    ((0.5, -0.7, 0.9), "70857c 98acac 86948e dbf0e3 5ca8a8"),
    ((-0.4, -0.4, 0.8), "5c6686 7680a4 6a6a86 8f99c7 212b61"),
    ((0.3, -0.6, 1.0), "7c7874 a6a6a6 94908a f5f0e6 c7c9cc"),
)
_WALL_COLORS = ("ffffff", "ffe0b8", "c8def2", "ffc8b4", "c2e6c8", "e2caf2", "fff0a0", "b4c2d8")
_FLOOR_COLORS = ("ffffff", "f0dcbc", "c9d6e0", "e8c9b5", "bcd4bf", "d8cfe0", "b8b8b8")
_FIXED_TOP = "59423d"
_GLOW = np.float32(1.12)
"""Goals are brighter than what is painted, to be seen well from their dark sides."""
_SHADE = 0.4
"""What is left of a floor's colour in a shadow."""


def make_looks(assets: AssetLibrary, random_textures: bool, random_lighting: bool) -> MazeLooks:
    """The looks, and what they need in the library."""
    paints: dict[str, Callable[[int], U8]] = {
        "brick": partial(textures.brick, rows=10, columns=5),
        "wood": textures.wood,
        "noise": textures.noise,
        "checker": partial(textures.checker, squares=4, light=240, dark=170),
    }
    every_wall = [take_texture(assets, f"{name} wall", partial(_as_wall, paint)) for name, paint in paints.items()]
    every_floor = ["wood", "brick", "noise", "checker"]
    walls, floors = (every_wall, every_floor) if random_textures else (every_wall[:1], every_floor[:1])
    wall_colors = _colors(_WALL_COLORS if random_textures else _WALL_COLORS[:1])
    lights = _LIGHTS if random_lighting else _LIGHTS[:1]
    return MazeLooks(
        face=_take_one_sided(assets, "one-sided quad", quad),
        ball=take_mesh(assets, "ball"),
        disc=take_mesh(assets, "disc"),
        body=_take_one_sided(assets, "maze body", _body),
        wall_textures=np.array([assets.texture(name) for name in walls], np.int32),
        floor_textures=np.array([assets.texture(name) for name in floors], np.int32),
        wall_colors=wall_colors,
        top_colors=np.float32(0.42) * wall_colors if random_textures else _colors([_FIXED_TOP]),
        floor_colors=_colors(_FLOOR_COLORS if random_textures else _FLOOR_COLORS[:1]),
        floor_shades=np.array([_SHADE * _mean_color(assets, name) for name in floors], np.float32),
        lights=np.array([[sun, *(rgb(color) for color in colors.split())] for sun, colors in lights], np.float32),
        goal_colors=_GLOW * _colors(GOAL_COLORS),
        agent_colors=_colors(AGENT_COLORS),
        visor_color=_colors([_VISOR_COLOR]),
    )


def _as_wall(paint: Callable[[int], U8], size: int) -> U8:
    """A texture that stands once in a wall's height: darker towards the floor, with a pale stone along the top."""
    level = np.linspace(0.0, 1.0, size)[:, None, None]  # from the top down
    shade = 1.0 - 0.42 * np.clip((level - 0.72) / 0.28, 0, 1) ** 2
    cap = np.clip(textures.noise(size).astype(np.float64) * 0.5 + 110.0, 0, 255) * (1.0 - 0.35 * (level > 0.058))
    return np.rint(np.where(level < 0.07, cap, paint(size) * shade)).astype(np.uint8)


def _colors(words: Sequence[str]) -> F32:
    return np.array([rgb(word) for word in words], np.float32)


def _mean_color(assets: AssetLibrary, name: str) -> F32:
    """Of a texture, which is its smallest version."""
    texel = assets.table.texels[assets.texture(name), -1]
    return np.array([texel & 255, texel >> 8 & 255, texel >> 16 & 255], np.float32) / np.float32(255)


def _take_one_sided(assets: AssetLibrary, name: str, make: Callable[[], Mesh]) -> int:
    """The number of one of our own meshes, taken into the library by the first who needs it."""
    try:
        return assets.mesh(name)
    except ValueError:
        mesh = make()
        return assets.add_mesh(name, Mesh(mesh.positions, mesh.normals, mesh.uvs, mesh.triangles, two_sided=False))


def _body() -> Mesh:
    """A capsule of width 1 that stands on the ground, 1.7 high."""
    mesh = capsule(slices=20, stacks=5, half_length=0.35)
    return Mesh(mesh.positions + np.array([0, 0, 0.85], np.float32), mesh.normals, mesh.uvs, mesh.triangles)
