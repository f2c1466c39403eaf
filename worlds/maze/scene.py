"""Scene of the maze: its meshes, textures, colours and lights, and the kernels that write its instance rows.

The rows of a lane are, in this order: the floor; the sides and tops of walls, each run of them as one rectangle; unused
rows; then what moves or disappears: a shadow below each goal and each agent, a ball for each goal, a front marker for
each agent (it shows where the agent looks) and a body for each agent.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from worldloom.kernels.compiling import device_function, inlined, kernel, kernel_holding_gil
from worldloom.kernels.tables import (
    CASTS_NOTHING,
    F32,
    F64,
    I32,
    I64,
    NO_MESH,
    NO_TEXTURE,
    STANDS_FOR_SHADOW,
    U8,
    InstanceTable,
    LaneTable,
)
from worldloom.render import textures
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, capsule, quad
from worldloom.worlds.instance_template import find_or_add_mesh, find_or_add_texture, parse_color
from worldloom.worlds.maze.kernels import RADIUS_M, MazeTable
from worldloom.worlds.random import scalar_integer, scalar_uniform

FLOOR, WALL, GOAL, AGENT = 1, 2, 3, 4
"""Labels."""
WALL_HEIGHT = 1.0
EYE_HEIGHT = 0.42
"""Metres above the floor. The eye is inside its agent's body and front marker, whose meshes are one-sided: it does not
see them."""
_GOAL_RADIUS, _GOAL_HEIGHT = 0.2, 0.34
_MARKER_AHEAD, _MARKER_SIZE = 0.08, (0.22, 0.28, 0.15)
"""Place, and length, width and height, of the front marker; the eye is inside it."""
_SHADOW_HEIGHT = 0.004
_GOAL_SHADOW, _AGENT_SHADOW = 0.36, 0.4
"""Diameters of the discs on the floor."""
GOAL_COLORS = ("ff4040", "ffc61a", "2fe06a", "2fb4ff", "a64dff", "f4f4f4")
AGENT_COLORS = ("f08a24", "3569c9", "d8434e", "2f9e68", "8a56c4", "1fa7a7", "d4a72c", "6b7480")

_LIGHTS = (
    # direction to the sun; colours of the sun, ambient from above, ambient from below, horizon, zenith
    ((0.45, -0.7, 0.8), "8f8672 98a0b4 a49c94 e3eff5 5b9bdb"),
    ((-0.8, -0.5, 0.5), "b57a4e 8a86a4 8d7a7c fcc799 6166a8"),
    ((0.6, -0.5, 0.7), "957a78 9c96ac 94858c fad9d4 a899cc"),
    ((0.5, -0.7, 0.9), "70857c 98acac 86948e dbf0e3 5ca8a8"),
    ((-0.4, -0.4, 0.8), "5c6686 7680a4 6a6a86 8f99c7 212b61"),
    ((0.3, -0.6, 1.0), "7c7874 a6a6a6 94908a f5f0e6 c7c9cc"),
)
_WALL_COLORS = ("ffffff", "ffe0b8", "c8def2", "ffc8b4", "c2e6c8", "e2caf2", "fff0a0", "b4c2d8")
_FLOOR_COLORS = ("ffffff", "f0dcbc", "c9d6e0", "e8c9b5", "bcd4bf", "d8cfe0", "b8b8b8")
_MARKER_COLOR, _FIXED_TOP_COLOR = "ffffff", "59423d"
_GOAL_BRIGHTNESS = np.float32(1.12)
"""Factor that makes goals brighter than other surfaces: they are visible from their dark sides too."""
_SHADOW_BRIGHTNESS = 0.4
"""Brightness of the floor in a shadow."""


class MazeStyle(NamedTuple):
    """Meshes, textures, colours and lights of mazes. Where there are several, a maze has one of them at random."""

    face: int  # meshes: an upright square that faces -y, a ball, a disc, an agent's body
    ball: int
    disc: int
    body: int
    wall_textures: I32  # [n]
    floor_textures: I32  # [n]
    wall_colors: F32  # [n, 3]
    top_colors: F32  # [n, 3] of the tops of walls of each colour
    floor_colors: F32  # [n, 3]
    shadow_colors: F32  # [n, 3] of shadows on each floor texture, to be multiplied by the floor's colour
    lights: F32  # [n, 6, 3] direction to the sun; colours of sun, ambient from above, from below, horizon, zenith
    goal_colors: F32  # [n, 3]
    agent_colors: F32  # [n, 3]
    marker_color: F32  # [1, 3]


def build_style(assets: AssetLibrary, random_textures: bool, random_lighting: bool) -> MazeStyle:
    """Build the style of mazes, and add the meshes and textures that the library lacks."""
    texture_builders: dict[str, Callable[[int], U8]] = {
        "brick": partial(textures.brick, rows=10, columns=5),
        "wood": textures.wood,
        "noise": textures.noise,
        "checker": partial(textures.checker, squares=4, light=240, dark=170),
    }
    every_wall = [
        find_or_add_texture(assets, f"{name} wall", partial(_build_wall_texture, build))
        for name, build in texture_builders.items()
    ]
    every_floor = ["wood", "brick", "noise", "checker"]
    walls, floors = (every_wall, every_floor) if random_textures else (every_wall[:1], every_floor[:1])
    wall_colors = _parse_colors(_WALL_COLORS if random_textures else _WALL_COLORS[:1])
    lights = _LIGHTS if random_lighting else _LIGHTS[:1]
    return MazeStyle(
        face=_find_or_add_one_sided(assets, "one-sided quad", quad),
        ball=find_or_add_mesh(assets, "coarse sphere"),
        disc=find_or_add_mesh(assets, "disc"),
        body=_find_or_add_one_sided(assets, "maze body", _build_body),
        wall_textures=np.array([assets.texture(name) for name in walls], np.int32),
        floor_textures=np.array([assets.texture(name) for name in floors], np.int32),
        wall_colors=wall_colors,
        top_colors=np.float32(0.42) * wall_colors if random_textures else _parse_colors([_FIXED_TOP_COLOR]),
        floor_colors=_parse_colors(_FLOOR_COLORS if random_textures else _FLOOR_COLORS[:1]),
        shadow_colors=np.array([_SHADOW_BRIGHTNESS * _mean_color(assets, name) for name in floors], np.float32),
        lights=np.array(
            [[sun, *(parse_color(color) for color in colors.split())] for sun, colors in lights], np.float32
        ),
        goal_colors=_GOAL_BRIGHTNESS * _parse_colors(GOAL_COLORS),
        agent_colors=_parse_colors(AGENT_COLORS),
        marker_color=_parse_colors([_MARKER_COLOR]),
    )


def _build_wall_texture(build: Callable[[int], U8], size: int) -> U8:
    """Build a texture as high as a wall: darker towards the floor, with a pale stone along the top."""
    level = np.linspace(0.0, 1.0, size)[:, None, None]  # from the top down
    shade = 1.0 - 0.42 * np.clip((level - 0.72) / 0.28, 0, 1) ** 2
    cap = np.clip(textures.noise(size).astype(np.float64) * 0.5 + 110.0, 0, 255) * (1.0 - 0.35 * (level > 0.058))
    return np.rint(np.where(level < 0.07, cap, build(size) * shade)).astype(np.uint8)


def _parse_colors(words: Sequence[str]) -> F32:
    return np.array([parse_color(word) for word in words], np.float32)


def _mean_color(assets: AssetLibrary, name: str) -> F32:
    """Return the mean colour of a texture: its smallest mip level."""
    texel = assets.table.texels[assets.texture(name), -1]
    return np.array([texel & 255, texel >> 8 & 255, texel >> 16 & 255], np.float32) / np.float32(255)


def _find_or_add_one_sided(assets: AssetLibrary, name: str, build: Callable[[], Mesh]) -> int:
    """Return the number of a one-sided mesh; add it to the library first if it lacks it."""
    try:
        return assets.mesh(name)
    except ValueError:
        mesh = build()
        return assets.add_mesh(name, Mesh(mesh.positions, mesh.normals, mesh.uvs, mesh.triangles, two_sided=False))


def _build_body() -> Mesh:
    """Build a capsule of width 1 and height 1.7 that stands on the ground."""
    mesh = capsule(slices=20, stacks=5, half_length=0.35)
    return Mesh(mesh.positions + np.array([0, 0, 0.85], np.float32), mesh.normals, mesh.uvs, mesh.triangles)


@kernel
def write_mazes(
    maze: MazeTable,
    lanes: I64,
    scene_lanes: I32,
    style: MazeStyle,
    random_lighting: bool,
    instances: InstanceTable,
    table: LaneTable,
) -> None:
    """Write the rows of these lanes: goals and agents always; floor, walls and light if the lane lacks them.

    A lane of the scene is empty when a pool gets it: if its first row has no mesh, nothing was written into it yet.
    """
    for k in range(lanes.size):
        lane, scene_lane = lanes[k], scene_lanes[k]
        first = table.first_row[scene_lane]
        after = first + table.row_count[scene_lane]
        moving = after - 2 * maze.goal_collected.shape[1] - 3 * maze.heading.shape[1]
        if maze.walls_written[lane] == 0 or instances.mesh[first] == NO_MESH:
            _write_light(style, maze.style_seed[lane], random_lighting, table, scene_lane)
            row = _write_floor_and_walls(maze, lane, style, instances, first)
            for unused in range(row, moving):
                instances.mesh[unused] = NO_MESH
            maze.walls_written[lane] = 1
        _write_goals_and_agents(maze, lane, style, instances, moving)


@kernel_holding_gil
def place_eyes(lanes: I64, agent: int, position: F64, facing: F64, camera: F32) -> None:
    """Write the poses [n, 3, 4] of the cameras of one agent in each lane into `camera`."""
    for k in range(lanes.size):
        lane = lanes[k]
        east, north = facing[lane, agent, 0], facing[lane, agent, 1]
        pose = camera[k]
        pose[0, 0], pose[0, 1], pose[0, 2], pose[0, 3] = north, 0.0, -east, position[lane, agent, 0]
        pose[1, 0], pose[1, 1], pose[1, 2], pose[1, 3] = -east, 0.0, -north, position[lane, agent, 1]
        pose[2, 0], pose[2, 1], pose[2, 2], pose[2, 3] = 0.0, 1.0, 0.0, EYE_HEIGHT


@device_function
def _write_light(style: MazeStyle, seed: np.uint64, random_lighting: bool, table: LaneTable, lane: int) -> None:
    """Write the sun, the sky and the fog of a lane."""
    choice = scalar_integer(seed, 0, len(style.lights))
    light = style.lights[choice]
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
def _write_floor_and_walls(maze: MazeTable, lane: int, style: MazeStyle, instances: InstanceTable, first: int) -> int:
    """Write the floor and the walls, from row `first` on; return the row after them."""
    seed, size = maze.style_seed[lane], maze.walls.shape[1]
    wall_texture = style.wall_textures[scalar_integer(seed, 8, len(style.wall_textures))]
    wall = scalar_integer(seed, 9, len(style.wall_colors))
    floor_texture, floor = _choose_floor(style, seed)
    row = first
    instances.shadow[row] = CASTS_NOTHING
    _write_level(instances, row, style.face, 0.0, 0.0, size, size, 0.0)
    _write_material(instances, row, style.floor_colors, floor, style.floor_textures[floor_texture], FLOOR, size, size)
    row += 1
    for line in range(1, size):
        row = _write_sides(maze, lane, line, False, style, wall, wall_texture, instances, row)
        row = _write_sides(maze, lane, line, True, style, wall, wall_texture, instances, row)
    for line in range(0, size, 2):
        row = _write_tops(maze, lane, line, False, style, wall, instances, row)
        row = _write_tops(maze, lane, line, True, style, wall, instances, row)
    return row


@inlined
def _choose_floor(style: MazeStyle, seed: np.uint64) -> tuple[int, int]:
    """Return the indices of a floor's texture and colour."""
    return scalar_integer(seed, 10, len(style.floor_textures)), scalar_integer(seed, 11, len(style.floor_colors))


@inlined
def _is_wall(maze: MazeTable, lane: int, line: int, along: int, is_column: bool) -> bool:
    """Return True if block `along` of a line of blocks is wall; the line is a row, or a column if `is_column`."""
    return maze.walls[lane, along, line] != 0 if is_column else maze.walls[lane, line, along] != 0


@device_function
def _write_sides(
    maze: MazeTable,
    lane: int,
    line: int,
    is_column: bool,
    style: MazeStyle,
    wall: int,
    texture: int,
    instances: InstanceTable,
    row: int,
) -> int:
    """Write the sides of walls between a line of blocks and the one before; return the row after them.

    Each run of sides that face the same line is one rectangle.
    """
    size = maze.walls.shape[1]
    start, last = 0, 0
    for along in range(size + 1):
        side = 0
        if along < size:
            # 1: it faces this line, -1: the one before.
            side = _is_wall(maze, lane, line - 1, along, is_column) - _is_wall(maze, lane, line, along, is_column)
        if side == last:
            continue
        if last != 0:
            length, middle = along - start, 0.5 * (along + start)
            normal_x, normal_y = (last, 0) if is_column else (0, last)
            _write_mesh(instances, row, style.face)
            pose = instances.pose[row]
            pose[0, 0], pose[1, 0] = -normal_y * length, normal_x * length
            pose[0, 1], pose[1, 1] = -normal_x, -normal_y
            pose[2, 2] = WALL_HEIGHT
            pose[0, 3], pose[1, 3] = (line, middle) if is_column else (middle, line)
            pose[2, 3] = 0.5 * WALL_HEIGHT
            _write_material(instances, row, style.wall_colors, wall, texture, WALL, length, 1.0)
            row += 1
        start, last = along, side
    return row


@device_function
def _write_tops(
    maze: MazeTable,
    lane: int,
    line: int,
    is_column: bool,
    style: MazeStyle,
    wall: int,
    instances: InstanceTable,
    row: int,
) -> int:
    """Write the tops of the walls on a line of posts, a rectangle for each run; return the row after them.

    Tops of rows and columns overlap. A single post gets its top with the rows.
    """
    size = maze.walls.shape[1]
    start = 0
    for along in range(size + 1):
        if along < size and _is_wall(maze, lane, line, along, is_column):
            continue
        length = along - start
        if length > 1 or (length == 1 and not is_column):
            x, y = (line, start) if is_column else (start, line)
            east, north = (1, length) if is_column else (length, 1)
            _write_level(instances, row, style.face, x, y, east, north, WALL_HEIGHT)
            _write_material(instances, row, style.top_colors, wall, NO_TEXTURE, WALL, 1.0, 1.0)
            row += 1
        start = along + 1
    return row


@device_function
def _write_goals_and_agents(maze: MazeTable, lane: int, style: MazeStyle, instances: InstanceTable, row: int) -> None:
    """Write goals and agents, from row `row` on."""
    goals, agents = maze.goal_collected.shape[1], maze.heading.shape[1]
    shadow, ball, body = row, row + goals + agents, row + 2 * (goals + agents)
    texture, floor = _choose_floor(style, maze.style_seed[lane])
    for item in range(goals + agents):
        _write_material(instances, shadow + item, style.floor_colors, floor, NO_TEXTURE, FLOOR, 1.0, 1.0)
        instances.shadow[shadow + item] = STANDS_FOR_SHADOW
        for c in range(3):
            instances.color[shadow + item, c] *= style.shadow_colors[texture, c]
    for goal in range(goals):
        is_shown = maze.goal_collected[lane, goal] == 0
        x, y = maze.goal_position[lane, goal, 0], maze.goal_position[lane, goal, 1]
        _write_round(instances, shadow + goal, style.disc if is_shown else NO_MESH, x, y, _SHADOW_HEIGHT, _GOAL_SHADOW)
        _write_round(
            instances, ball + goal, style.ball if is_shown else NO_MESH, x, y, _GOAL_HEIGHT, 2.0 * _GOAL_RADIUS
        )
        _write_material(
            instances, ball + goal, style.goal_colors, maze.goal_color[lane, goal], NO_TEXTURE, GOAL, 1.0, 1.0
        )
    for agent in range(agents):
        x, y = maze.position[lane, agent, 0], maze.position[lane, agent, 1]
        east, north = maze.facing[lane, agent, 0], maze.facing[lane, agent, 1]
        marker = ball + goals + agent
        _write_round(instances, shadow + goals + agent, style.disc, x, y, _SHADOW_HEIGHT, _AGENT_SHADOW)
        _write_round(instances, body + agent, style.body, x, y, 0.0, 2.0 * RADIUS_M)
        _write_material(instances, body + agent, style.agent_colors, agent, NO_TEXTURE, AGENT, 1.0, 1.0)
        _write_mesh(instances, marker, style.ball)
        pose = instances.pose[marker]
        pose[0, 0], pose[1, 0] = east * _MARKER_SIZE[0], north * _MARKER_SIZE[0]
        pose[0, 1], pose[1, 1] = -north * _MARKER_SIZE[1], east * _MARKER_SIZE[1]
        pose[2, 2] = _MARKER_SIZE[2]
        pose[0, 3], pose[1, 3], pose[2, 3] = x + _MARKER_AHEAD * east, y + _MARKER_AHEAD * north, EYE_HEIGHT
        _write_material(instances, marker, style.marker_color, 0, NO_TEXTURE, AGENT, 1.0, 1.0)


@inlined
def _write_mesh(instances: InstanceTable, row: int, mesh: int) -> None:
    """Write a mesh into a row and set its pose to 0."""
    instances.mesh[row] = mesh
    for i in range(3):
        for j in range(4):
            instances.pose[row, i, j] = 0.0


@inlined
def _write_round(instances: InstanceTable, row: int, mesh: int, x: float, y: float, z: float, width: float) -> None:
    """Write a mesh without a rotation, of the same size along all axes."""
    _write_mesh(instances, row, mesh)
    pose = instances.pose[row]
    pose[0, 0] = pose[1, 1] = pose[2, 2] = width
    pose[0, 3], pose[1, 3], pose[2, 3] = x, y, z


@inlined
def _write_level(
    instances: InstanceTable, row: int, mesh: int, x: float, y: float, east: float, north: float, z: float
) -> None:
    """Write a level rectangle that faces up; (x, y) is its south-west corner."""
    _write_mesh(instances, row, mesh)
    pose = instances.pose[row]
    pose[0, 0], pose[1, 2], pose[2, 1] = east, north, -1.0
    pose[0, 3], pose[1, 3], pose[2, 3] = x + 0.5 * east, y + 0.5 * north, z


@inlined
def _write_material(
    instances: InstanceTable, row: int, colors: F32, color: int, texture: int, label: int, u: float, v: float
) -> None:
    """Write the colour, texture, texture scale and label of a row."""
    for c in range(3):
        instances.color[row, c] = colors[color, c]
    instances.texture[row] = texture
    instances.uv_scale[row, 0], instances.uv_scale[row, 1] = u, v
    instances.label[row] = label
