"""The maze's tables, and how an episode of it begins: corridors, loops, and places for agents and goals.

A maze is a square grid of blocks of one metre, `walls[y, x]`, the south-west corner of block (0, 0) at the origin, x to
the east and y to the north. Blocks with two odd numbers are cells and always open, blocks with two even ones are
posts and always wall, and the others are passages between cells: so all corridors are one block wide, and two walls
never touch at a corner alone.

How agents walk in a maze: discs that slide along walls, block each other, and take the goals they touch.

Agents move one after another, in the order of their numbers. A way is gone in pieces much shorter than a disc's radius,
and after each the disc is put beside what it ran into; so nothing is passed through, however fast it goes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import device_function, inlined, kernel
from worldloom.kernels.tables import F32, F64, I32, I64, U8
from worldloom.worlds.random import scalar_integer, scalar_mix

OPEN, WALL = np.uint8(0), np.uint8(1)
_CARVING, _PLACING, _LOOKS = 0, 1, 2
"""Streams of chance: so that more goals do not make another maze."""
_NEST = 0.25
"""Metres from a block's middle to the four places in it, where blocks are too few for everything to have its own."""


class MazeTable(NamedTuple):
    """The state of the mazes: L lanes, A agents, G goals."""

    walls: U8  # [L, size, size] by y, then x
    position: F64  # [L, A, 2] metres
    heading: F64  # [L, A] radians from east to north, 0..2π
    facing: F64  # [L, A, 2] cosine and sine of the heading
    goal_position: F64  # [L, G, 2]
    goal_color: U8  # [L, G]
    goal_taken: U8  # [L, G]
    goals_left: I32  # [L]
    look: NDArray[np.uint64]  # [L] the seed of textures and lights
    dressed: U8  # [L] 1: the walls of this episode are in the scene


@kernel
def begin_mazes(
    maze: MazeTable,
    lanes: I64,
    seeds: NDArray[np.uint64],
    lane_seeds: NDArray[np.uint64],
    loops: int,
    goal_colors: int,
    scratch: I32,
) -> None:
    """A new maze in each lane, with `loops` more passages than needed; `scratch` has room for a number a block.

    The maze is by the episode's seed, its look by the lane's, which stays.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        _carve(maze.walls, lane, scalar_mix(seeds[k], _CARVING), loops, scratch)
        _place(maze, lane, scalar_mix(seeds[k], _PLACING), goal_colors, scratch)
        maze.look[lane] = scalar_mix(lane_seeds[k], _LOOKS)
        maze.dressed[lane] = 0


@device_function
def _carve(walls: U8, lane: int, seed: np.uint64, loops: int, stack: I32) -> None:
    """Corridors that reach every cell: a walk that goes where it has not been, and back when it cannot; then loops."""
    size = walls.shape[1]
    cells = size // 2
    walls[lane, :, :] = WALL
    draws = 1
    depth = 0
    stack[0] = scalar_integer(seed, 0, cells * cells)
    walls[lane, 2 * (stack[0] // cells) + 1, 2 * (stack[0] % cells) + 1] = OPEN
    while depth >= 0:
        y, x = 2 * (stack[depth] // cells) + 1, 2 * (stack[depth] % cells) + 1
        ways = 0
        for way in range(4):
            to_x, to_y = x + 2 * _east(way), y + 2 * _north(way)
            ways += 0 < to_x < size and 0 < to_y < size and walls[lane, to_y, to_x] == WALL
        if ways == 0:
            depth -= 1
            continue
        chosen = scalar_integer(seed, draws, ways)
        draws += 1
        for way in range(4):
            to_x, to_y = x + 2 * _east(way), y + 2 * _north(way)
            if 0 < to_x < size and 0 < to_y < size and walls[lane, to_y, to_x] == WALL:
                if chosen == 0:
                    walls[lane, y + _north(way), x + _east(way)] = OPEN
                    walls[lane, to_y, to_x] = OPEN
                    depth += 1
                    stack[depth] = to_y // 2 * cells + to_x // 2
                    break
                chosen -= 1
    passages = 2 * cells * (cells - 1)
    for _ in range(loops):
        passage = scalar_integer(seed, draws, passages)
        draws += 1
        y, x = _passage(passage, cells)
        while walls[lane, y, x] == OPEN:
            passage = (passage + 1) % passages
            y, x = _passage(passage, cells)
        walls[lane, y, x] = OPEN


@device_function
def _place(maze: MazeTable, lane: int, seed: np.uint64, goal_colors: int, spots: I32) -> None:
    """Agents and goals on open blocks, no two on the same; four to a block if they are more than the blocks."""
    walls, size = maze.walls, maze.walls.shape[1]
    agents, goals = maze.heading.shape[1], maze.goal_taken.shape[1]
    blocks = 0
    for block in range(size * size):
        if walls[lane, block // size, block % size] == OPEN:
            spots[blocks] = block
            blocks += 1
    nests = 1 if agents + goals <= blocks else 4
    taken = 0
    draws = 0
    for thing in range(agents + goals):
        # The first `taken` entries are used up. A block of four nests is used up when the fourth is.
        chosen = taken + scalar_integer(seed, draws, blocks - taken)
        block = spots[chosen] % (size * size)
        nest = spots[chosen] // (size * size)
        spots[chosen] += size * size
        if nest + 1 == nests:
            spots[chosen] = spots[taken]
            taken += 1
        y, x = block // size + 0.5, block % size + 0.5
        if nests == 4:
            x += _NEST if nest == 0 or nest == 3 else -_NEST
            y += _NEST if nest == 0 or nest == 2 else -_NEST
        if thing < agents:
            maze.position[lane, thing, 0], maze.position[lane, thing, 1] = x, y
            turn = scalar_integer(seed, draws + 1, 4)
            while walls[lane, block // size + _north(turn), block % size + _east(turn)] == WALL:
                turn = (turn + 1) % 4
            maze.heading[lane, thing] = 0.5 * np.pi * turn
            maze.facing[lane, thing, 0], maze.facing[lane, thing, 1] = _east(turn), _north(turn)
        else:
            goal = thing - agents
            maze.goal_position[lane, goal, 0], maze.goal_position[lane, goal, 1] = x, y
            maze.goal_taken[lane, goal] = 0
        draws += 2
    first = scalar_integer(seed, draws, goal_colors)
    for goal in range(goals):
        maze.goal_color[lane, goal] = (first + goal) % goal_colors
    maze.goals_left[lane] = goals


@device_function
def _east(way: int) -> int:
    """How far east one goes: ways 0..3 are east, north, west, south."""
    return (way == 0) - (way == 2)


@device_function
def _north(way: int) -> int:
    """How far north one goes."""
    return (way == 1) - (way == 3)


@device_function
def _passage(number: int, cells: int) -> tuple[int, int]:
    """The block (y, x) of a passage between two cells: first those that lead east, then those that lead north."""
    east_ways = cells * (cells - 1)
    if number < east_ways:
        return 2 * (number // (cells - 1)) + 1, 2 * (number % (cells - 1)) + 2
    number -= east_ways
    return 2 * (number // cells) + 2, 2 * (number % cells) + 1


RADIUS = 0.16
"""Of an agent, in metres: two pass each other in a corridor."""
REACH = 0.36
"""How near a goal's middle an agent's must come to take it, in metres: nobody squeezes by one in a corridor."""
PIECE = 0.08
"""The longest way gone at once, in metres; less than the radius, so that no middle ever gets into a wall."""
APART = 2.0 * RADIUS + 1e-6
"""How far apart two agents are put that ran into each other: a hair more than they must be, for rounding."""


@kernel
def step_mazes(
    maze: MazeTable,
    lanes: I64,
    move: F32,
    turn: F32,
    speed: float,
    turn_speed: float,
    reward: F32,
    ended: NDArray[np.bool_],
) -> None:
    """A step of each lane; speeds in metres and radians a step. `reward` [n, A] and `ended` [n] are outputs."""
    for k in range(lanes.size):
        lane = lanes[k]
        for agent in range(maze.heading.shape[1]):
            _turn(maze, lane, agent, turn_speed * _held(turn[k, agent]))
            reward[k, agent] = _walk(maze, lane, agent, _held(move[k, agent, 0]), _held(move[k, agent, 1]), speed)
        ended[k] = maze.goals_left[lane] == 0


@inlined
def _held(action: np.float32) -> float:
    """An action, held to -1..1; 0 if it is no number."""
    if action >= np.float32(-1.0):
        return np.float64(min(action, np.float32(1.0)))
    return -1.0 if action < np.float32(-1.0) else 0.0


@inlined
def _turn(maze: MazeTable, lane: int, agent: int, angle: float) -> None:
    if angle != 0.0:
        heading = maze.heading[lane, agent] + angle
        if heading < 0.0:
            heading += 2.0 * np.pi
        elif heading >= 2.0 * np.pi:
            heading -= 2.0 * np.pi
        maze.heading[lane, agent] = heading
        maze.facing[lane, agent, 0] = np.cos(heading)
        maze.facing[lane, agent, 1] = np.sin(heading)


@device_function
def _walk(maze: MazeTable, lane: int, agent: int, forward: float, strafe: float, speed: float) -> int:
    """Go forward and to the right; the number of goals taken on the way."""
    stick = np.sqrt(forward * forward + strafe * strafe)
    if stick == 0.0:
        return 0
    pieces = np.int64(np.ceil(min(stick, 1.0) * speed / PIECE))
    scale = speed / (max(stick, 1.0) * pieces)
    east, north = maze.facing[lane, agent, 0], maze.facing[lane, agent, 1]
    step_x, step_y = (forward * east + strafe * north) * scale, (forward * north - strafe * east) * scale
    x, y = maze.position[lane, agent, 0], maze.position[lane, agent, 1]
    goals = 0
    for _ in range(pieces):
        to_x, to_y = _beside_walls(maze.walls, lane, x + step_x, y + step_y)
        other = _touched(maze.position, lane, agent, to_x, to_y)
        if other >= 0:
            # Around whom it ran into, if there is room; else it stays where it is.
            at_x, at_y = maze.position[lane, other, 0], maze.position[lane, other, 1]
            away_x, away_y = to_x - at_x, to_y - at_y
            push = APART / np.sqrt(away_x * away_x + away_y * away_y)
            to_x, to_y = _beside_walls(maze.walls, lane, at_x + away_x * push, at_y + away_y * push)
            if _touched(maze.position, lane, agent, to_x, to_y) >= 0:
                break
        x, y = to_x, to_y
        goals += _take_goals(maze, lane, x, y)
    maze.position[lane, agent, 0], maze.position[lane, agent, 1] = x, y
    return goals


@inlined
def _beside_walls(walls: U8, lane: int, x: float, y: float) -> tuple[float, float]:
    """The nearest place to (x, y), which is in an open block, where a disc does not reach into a wall."""
    block_x, block_y = np.int64(x), np.int64(y)
    if walls[lane, block_y, block_x - 1]:
        x = max(x, block_x + RADIUS)
    if walls[lane, block_y, block_x + 1]:
        x = min(x, block_x + (1.0 - RADIUS))
    if walls[lane, block_y - 1, block_x]:
        y = max(y, block_y + RADIUS)
    if walls[lane, block_y + 1, block_x]:
        y = min(y, block_y + (1.0 - RADIUS))
    # Of the four corners the disc can reach one.
    corner_x, corner_y = np.int64(x + 0.5), np.int64(y + 0.5)
    beyond_x = block_x - 1 + 2 * (corner_x - block_x)
    beyond_y = block_y - 1 + 2 * (corner_y - block_y)
    if walls[lane, beyond_y, beyond_x]:
        away_x, away_y = x - corner_x, y - corner_y
        square = away_x * away_x + away_y * away_y
        if square < RADIUS * RADIUS:
            push = RADIUS / np.sqrt(square)
            x, y = corner_x + away_x * push, corner_y + away_y * push
    return x, y


@inlined
def _touched(position: F64, lane: int, agent: int, x: float, y: float) -> int:
    """The first other agent that a disc at (x, y) would reach into, or -1."""
    for other in range(position.shape[1]):
        away_x, away_y = x - position[lane, other, 0], y - position[lane, other, 1]
        if other != agent and away_x * away_x + away_y * away_y < 4.0 * RADIUS * RADIUS:
            return other
    return -1


@inlined
def _take_goals(maze: MazeTable, lane: int, x: float, y: float) -> int:
    """Take the goals within reach; how many."""
    taken = 0
    for goal in range(maze.goal_taken.shape[1]):
        away_x, away_y = x - maze.goal_position[lane, goal, 0], y - maze.goal_position[lane, goal, 1]
        if maze.goal_taken[lane, goal] == 0 and away_x * away_x + away_y * away_y < REACH * REACH:
            maze.goal_taken[lane, goal] = 1
            taken += 1
    maze.goals_left[lane] -= taken
    return taken
