"""How a maze looks: the instance rows of its floor, walls, goals and agents, and the light it lies in.

A lane's rows are: the floor; sides and tops of walls, each run of them as one rectangle; then what moves, by mesh: a
disc below each goal and agent as its shadow, a ball for each goal and a visor for each agent, a body for each agent.

What mazes are made of: meshes, textures, colours and lights.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from worldloom.kernels.compiling import device_function, inlined, kernel, kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I32, I64, NO_MESH, NO_TEXTURE, U8, InstanceTable, LaneTable
from worldloom.render import textures
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, capsule, quad
from worldloom.worlds.maze.kernels import RADIUS, MazeTable
from worldloom.worlds.props import rgb, take_mesh, take_texture
from worldloom.worlds.random import scalar_integer, scalar_uniform

FLOOR, WALL, GOAL, AGENT = 1, 2, 3, 4
"""Labels."""
WALL_HEIGHT = 1.0
EYE_HEIGHT = 0.42
"""Metres above the floor. The eye is inside its body and its visor: those are seen from outside alone."""
_GOAL_RADIUS, _GOAL_HEIGHT = 0.2, 0.34
_VISOR_AHEAD = 0.08
_VISOR = (0.22, 0.28, 0.15)
"""Its length, width and height; the eye lies within."""
_SHADOW_HEIGHT = 0.004
_GOAL_SHADOW, _AGENT_SHADOW = 0.36, 0.4
"""Widths of the discs on the floor."""


class MazeLooks(NamedTuple):
    """What mazes are made of. Where there are several textures or lights, each maze has one of them by chance."""

    face: int  # meshes: an upright square that faces -y, a ball, a disc, an agent's body
    ball: int
    disc: int
    body: int
    wall_textures: I32  # [n]
    floor_textures: I32  # [n]
    wall_colors: F32  # [n, 3]
    top_colors: F32  # [n, 3] of the tops of walls of each colour
    floor_colors: F32  # [n, 3]
    floor_shades: F32  # [n, 3] of each floor texture where a shadow falls on it
    lights: F32  # [n, 6, 3] to the sun; light of the sun, ambient from above, from below; sky at horizon, at zenith
    goal_colors: F32  # [n, 3]
    agent_colors: F32  # [n, 3]
    visor_color: F32  # [1, 3]


@kernel
def dress_mazes(
    maze: MazeTable,
    lanes: I64,
    scene_lanes: I32,
    looks: MazeLooks,
    random_lighting: bool,
    instances: InstanceTable,
    table: LaneTable,
) -> None:
    """Write the rows of these lanes: what moves always, the rest where it is not there yet.

    A scene's lane is empty when a world gets it, so a floor says that the walls are there too.
    """
    for k in range(lanes.size):
        lane, scene_lane = lanes[k], scene_lanes[k]
        first = table.first_row[scene_lane]
        after = first + table.row_count[scene_lane]
        movers = after - 2 * maze.goal_taken.shape[1] - 3 * maze.heading.shape[1]
        if maze.dressed[lane] == 0 or instances.mesh[first] == NO_MESH:
            _light(looks, maze.look[lane], random_lighting, table, scene_lane)
            row = _build(maze, lane, looks, instances, first)
            for unused in range(row, movers):
                instances.mesh[unused] = NO_MESH
            maze.dressed[lane] = 1
        _put_movers(maze, lane, looks, instances, movers)


@kernel_holding_gil
def place_eyes(lanes: I64, agent: int, position: F64, facing: F64, camera: F32) -> None:
    """The poses [n, 3, 4] of cameras in the heads of an agent of each lane."""
    for k in range(lanes.size):
        lane = lanes[k]
        east, north = facing[lane, agent, 0], facing[lane, agent, 1]
        pose = camera[k]
        pose[0, 0], pose[0, 1], pose[0, 2], pose[0, 3] = north, 0.0, -east, position[lane, agent, 0]
        pose[1, 0], pose[1, 1], pose[1, 2], pose[1, 3] = -east, 0.0, -north, position[lane, agent, 1]
        pose[2, 0], pose[2, 1], pose[2, 2], pose[2, 3] = 0.0, 1.0, 0.0, EYE_HEIGHT


@device_function
def _light(looks: MazeLooks, seed: np.uint64, random_lighting: bool, table: LaneTable, lane: int) -> None:
    """The sun, the sky and the fog of a lane."""
    choice = scalar_integer(seed, 0, len(looks.lights))
    light = looks.lights[choice]
    table.fog_range[lane, 0], table.fog_range[lane, 1] = 5.0, 36.0
    for c in range(3):
        table.light_direction[lane, c] = -light[0, c]
        table.light_color[lane, c] = light[1, c]
        table.ambient[lane, c] = light[2, c]
        table.ambient_ground[lane, c] = light[3, c]
        table.sky_horizon[lane, c] = table.fog_color[lane, c] = light[4, c]
        table.sky_zenith[lane, c] = light[5, c]
    if random_lighting:
        bearing = 2.0 * np.pi * scalar_uniform(seed, 1)
        strength = np.float32(0.85 + 0.3 * scalar_uniform(seed, 2))
        table.light_direction[lane, 0] = np.cos(bearing)
        table.light_direction[lane, 1] = np.sin(bearing)
        table.light_direction[lane, 2] = -(0.7 + 0.8 * scalar_uniform(seed, 3))
        table.fog_range[lane, 1] = 14.0 + 26.0 * scalar_uniform(seed, 4)
        for c in range(3):
            table.light_color[lane, c] *= strength


@device_function
def _build(maze: MazeTable, lane: int, looks: MazeLooks, instances: InstanceTable, first: int) -> int:
    """Floor and walls, from row `first` on; the row after them."""
    seed, size = maze.look[lane], maze.walls.shape[1]
    wall_texture = looks.wall_textures[scalar_integer(seed, 8, len(looks.wall_textures))]
    wall = scalar_integer(seed, 9, len(looks.wall_colors))
    floor_texture, floor = _floor_of(looks, seed)
    row = first
    _put_level(instances, row, looks.face, 0.0, 0.0, size, size, 0.0)
    _paint(instances, row, looks.floor_colors, floor, looks.floor_textures[floor_texture], FLOOR, size, size)
    row += 1
    for line in range(1, size):
        row = _put_sides(maze, lane, line, False, looks, wall, wall_texture, instances, row)
        row = _put_sides(maze, lane, line, True, looks, wall, wall_texture, instances, row)
    for line in range(0, size, 2):
        row = _put_tops(maze, lane, line, False, looks, wall, instances, row)
        row = _put_tops(maze, lane, line, True, looks, wall, instances, row)
    return row


@inlined
def _floor_of(looks: MazeLooks, seed: np.uint64) -> tuple[int, int]:
    """Which of the textures and of the colours a floor has."""
    return scalar_integer(seed, 10, len(looks.floor_textures)), scalar_integer(seed, 11, len(looks.floor_colors))


@inlined
def _wall_at(maze: MazeTable, lane: int, line: int, along: int, turned: bool) -> bool:
    """Whether there is wall at a place of a line of blocks: a row of them, or a column if turned."""
    return maze.walls[lane, along, line] != 0 if turned else maze.walls[lane, line, along] != 0


@device_function
def _put_sides(
    maze: MazeTable,
    lane: int,
    line: int,
    turned: bool,
    looks: MazeLooks,
    wall: int,
    texture: int,
    instances: InstanceTable,
    row: int,
) -> int:
    """The sides of walls between a line of blocks and the one before, a rectangle for each run that faces one way."""
    size = maze.walls.shape[1]
    start, last = 0, 0
    for along in range(size + 1):
        side = 0
        if along < size:
            # 1: one looks at it from this line, -1: from the one before.
            side = _wall_at(maze, lane, line - 1, along, turned) - _wall_at(maze, lane, line, along, turned)
        if side == last:
            continue
        if last != 0:
            length, middle = along - start, 0.5 * (along + start)
            normal_x, normal_y = (last, 0) if turned else (0, last)
            _put(instances, row, looks.face)
            pose = instances.pose[row]
            pose[0, 0], pose[1, 0] = -normal_y * length, normal_x * length
            pose[0, 1], pose[1, 1] = -normal_x, -normal_y
            pose[2, 2] = WALL_HEIGHT
            pose[0, 3], pose[1, 3] = (line, middle) if turned else (middle, line)
            pose[2, 3] = 0.5 * WALL_HEIGHT
            _paint(instances, row, looks.wall_colors, wall, texture, WALL, length, 1.0)
            row += 1
        start, last = along, side
    return row


@device_function
def _put_tops(
    maze: MazeTable,
    lane: int,
    line: int,
    turned: bool,
    looks: MazeLooks,
    wall: int,
    instances: InstanceTable,
    row: int,
) -> int:
    """The tops of the walls on a line of posts, a rectangle for each run; they overlap those of the lines across.

    A post by itself is left to the rows of blocks.
    """
    size = maze.walls.shape[1]
    start = 0
    for along in range(size + 1):
        if along < size and _wall_at(maze, lane, line, along, turned):
            continue
        length = along - start
        if length > 1 or (length == 1 and not turned):
            x, y = (line, start) if turned else (start, line)
            east, north = (1, length) if turned else (length, 1)
            _put_level(instances, row, looks.face, x, y, east, north, WALL_HEIGHT)
            _paint(instances, row, looks.top_colors, wall, NO_TEXTURE, WALL, 1.0, 1.0)
            row += 1
        start = along + 1
    return row


@device_function
def _put_movers(maze: MazeTable, lane: int, looks: MazeLooks, instances: InstanceTable, row: int) -> None:
    """Goals and agents, from row `row` on."""
    goals, agents = maze.goal_taken.shape[1], maze.heading.shape[1]
    shadow, ball, body = row, row + goals + agents, row + 2 * (goals + agents)
    texture, floor = _floor_of(looks, maze.look[lane])
    for thing in range(goals + agents):
        _paint(instances, shadow + thing, looks.floor_colors, floor, NO_TEXTURE, FLOOR, 1.0, 1.0)
        for c in range(3):
            instances.color[shadow + thing, c] *= looks.floor_shades[texture, c]
    for goal in range(goals):
        there = maze.goal_taken[lane, goal] == 0
        x, y = maze.goal_position[lane, goal, 0], maze.goal_position[lane, goal, 1]
        _put_round(instances, shadow + goal, looks.disc if there else NO_MESH, x, y, _SHADOW_HEIGHT, _GOAL_SHADOW)
        _put_round(instances, ball + goal, looks.ball if there else NO_MESH, x, y, _GOAL_HEIGHT, 2.0 * _GOAL_RADIUS)
        _paint(instances, ball + goal, looks.goal_colors, maze.goal_color[lane, goal], NO_TEXTURE, GOAL, 1.0, 1.0)
    for agent in range(agents):
        x, y = maze.position[lane, agent, 0], maze.position[lane, agent, 1]
        east, north = maze.facing[lane, agent, 0], maze.facing[lane, agent, 1]
        visor = ball + goals + agent
        _put_round(instances, shadow + goals + agent, looks.disc, x, y, _SHADOW_HEIGHT, _AGENT_SHADOW)
        _put_round(instances, body + agent, looks.body, x, y, 0.0, 2.0 * RADIUS)
        _paint(instances, body + agent, looks.agent_colors, agent, NO_TEXTURE, AGENT, 1.0, 1.0)
        _put(instances, visor, looks.ball)
        pose = instances.pose[visor]
        pose[0, 0], pose[1, 0] = east * _VISOR[0], north * _VISOR[0]
        pose[0, 1], pose[1, 1] = -north * _VISOR[1], east * _VISOR[1]
        pose[2, 2] = _VISOR[2]
        pose[0, 3], pose[1, 3], pose[2, 3] = x + _VISOR_AHEAD * east, y + _VISOR_AHEAD * north, EYE_HEIGHT
        _paint(instances, visor, looks.visor_color, 0, NO_TEXTURE, AGENT, 1.0, 1.0)


@inlined
def _put(instances: InstanceTable, row: int, mesh: int) -> None:
    """A mesh in a row, its pose all 0."""
    instances.mesh[row] = mesh
    for i in range(3):
        for j in range(4):
            instances.pose[row, i, j] = 0.0


@inlined
def _put_round(instances: InstanceTable, row: int, mesh: int, x: float, y: float, z: float, width: float) -> None:
    """Something that has no front."""
    _put(instances, row, mesh)
    pose = instances.pose[row]
    pose[0, 0] = pose[1, 1] = pose[2, 2] = width
    pose[0, 3], pose[1, 3], pose[2, 3] = x, y, z


@inlined
def _put_level(
    instances: InstanceTable, row: int, mesh: int, x: float, y: float, east: float, north: float, z: float
) -> None:
    """A level rectangle that faces up, from its south-west corner."""
    _put(instances, row, mesh)
    pose = instances.pose[row]
    pose[0, 0], pose[1, 2], pose[2, 1] = east, north, -1.0
    pose[0, 3], pose[1, 3], pose[2, 3] = x + 0.5 * east, y + 0.5 * north, z


@inlined
def _paint(
    instances: InstanceTable, row: int, colors: F32, color: int, texture: int, label: int, u: float, v: float
) -> None:
    for c in range(3):
        instances.color[row, c] = colors[color, c]
    instances.texture[row] = texture
    instances.uv_scale[row, 0], instances.uv_scale[row, 1] = u, v
    instances.label[row] = label


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
