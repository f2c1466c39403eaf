"""Kernels of the maze: the tables of its state, the beginning of an episode, and a step of the agents.

A maze is a square grid of blocks of one metre, `walls[y, x]`, with the south-west corner of block (0, 0) at the origin,
x to the east and y to the north. Blocks with two odd coordinates are cells and always open, blocks with two even ones
are posts and always wall, and the others are passages between cells. So all corridors are one block wide, and two walls
never touch at a corner alone. An episode begins with corridors that reach every cell, some loops, and random positions
of agents and goals.

Agents are discs that slide along walls, block each other and collect the goals they touch. They move one after another,
in the order of their indices. A move is made in substeps much shorter than the radius, and after each the disc is
pushed out of what it overlaps: so an agent passes through nothing, at any speed.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import device_function, inlined, kernel
from worldloom.kernels.tables import F32, F64, I32, I64, U8
from worldloom.worlds.random import scalar_integer, scalar_mix

OPEN, WALL = np.uint8(0), np.uint8(1)
_CORRIDORS, _POSITIONS, _STYLE = 0, 1, 2
"""Counters of the seeds derived for each purpose: the number of goals does not change the corridors."""
_QUARTER_OFFSET_M = 0.25
"""Distance along x and y from a block's middle to the middles of its quarters, used where blocks are too few."""


class MazeTable(NamedTuple):
    """State arrays of L lanes with A agents and G goals each."""

    walls: U8  # [L, size, size] by y, then x
    position: F64  # [L, A, 2] metres
    heading: F64  # [L, A] radians from east to north, 0..2π
    facing: F64  # [L, A, 2] cosine and sine of the heading
    goal_position: F64  # [L, G, 2]
    goal_color: U8  # [L, G]
    goal_collected: U8  # [L, G] 1: an agent has collected it
    goals_left: I32  # [L]
    style_seed: NDArray[np.uint64]  # [L] seed of textures and lights
    walls_written: U8  # [L] 1: the scene has the walls of this episode


@kernel
def reset_mazes(
    maze: MazeTable,
    lanes: I64,
    seeds: NDArray[np.uint64],
    lane_seeds: NDArray[np.uint64],
    loops: int,
    goal_colors: int,
    scratch: I32,
) -> None:
    """Build a new maze in each lane, with `loops` more passages than a tree has.

    Corridors and positions depend on the episode's seed; textures and light on the lane's, so they stay the same in all
    its episodes. `scratch` has an element for each block.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        _carve_corridors(maze.walls, lane, scalar_mix(seeds[k], _CORRIDORS), loops, scratch)
        _place_agents_and_goals(maze, lane, scalar_mix(seeds[k], _POSITIONS), goal_colors, scratch)
        maze.style_seed[lane] = scalar_mix(lane_seeds[k], _STYLE)
        maze.walls_written[lane] = 0


@device_function
def _carve_corridors(walls: U8, lane: int, seed: np.uint64, loops: int, stack: I32) -> None:
    """Carve corridors to every cell by depth-first search with random turns, then open `loops` more passages."""
    size = walls.shape[1]
    cells = size // 2
    walls[lane, :, :] = WALL
    draws = 1
    depth = 0
    stack[0] = scalar_integer(seed, 0, cells * cells)
    walls[lane, 2 * (stack[0] // cells) + 1, 2 * (stack[0] % cells) + 1] = OPEN
    while depth >= 0:
        y, x = 2 * (stack[depth] // cells) + 1, 2 * (stack[depth] % cells) + 1
        choices = 0
        for direction in range(4):
            to_x, to_y = x + 2 * _east(direction), y + 2 * _north(direction)
            choices += 0 < to_x < size and 0 < to_y < size and walls[lane, to_y, to_x] == WALL
        if choices == 0:
            depth -= 1
            continue
        chosen = scalar_integer(seed, draws, choices)
        draws += 1
        for direction in range(4):
            to_x, to_y = x + 2 * _east(direction), y + 2 * _north(direction)
            if 0 < to_x < size and 0 < to_y < size and walls[lane, to_y, to_x] == WALL:
                if chosen == 0:
                    walls[lane, y + _north(direction), x + _east(direction)] = OPEN
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
def _place_agents_and_goals(maze: MazeTable, lane: int, seed: np.uint64, goal_colors: int, free_blocks: I32) -> None:
    """Place agents and goals on random open blocks, one to a block, or up to four if they outnumber the blocks."""
    walls, size = maze.walls, maze.walls.shape[1]
    agents, goals = maze.heading.shape[1], maze.goal_collected.shape[1]
    blocks = 0
    for block in range(size * size):
        if walls[lane, block // size, block % size] == OPEN:
            free_blocks[blocks] = block
            blocks += 1
    per_block = 1 if agents + goals <= blocks else 4
    taken = 0
    draws = 0
    for item in range(agents + goals):
        # The first `taken` entries are full: a block is full when `per_block` items are in it. An entry is the
        # block plus size * size for each item in it.
        chosen = taken + scalar_integer(seed, draws, blocks - taken)
        block = free_blocks[chosen] % (size * size)
        quarter = free_blocks[chosen] // (size * size)
        free_blocks[chosen] += size * size
        if quarter + 1 == per_block:
            free_blocks[chosen] = free_blocks[taken]
            taken += 1
        y, x = block // size + 0.5, block % size + 0.5
        if per_block == 4:
            x += _QUARTER_OFFSET_M if quarter == 0 or quarter == 3 else -_QUARTER_OFFSET_M
            y += _QUARTER_OFFSET_M if quarter == 0 or quarter == 2 else -_QUARTER_OFFSET_M
        if item < agents:
            maze.position[lane, item, 0], maze.position[lane, item, 1] = x, y
            direction = scalar_integer(seed, draws + 1, 4)
            while walls[lane, block // size + _north(direction), block % size + _east(direction)] == WALL:
                direction = (direction + 1) % 4
            maze.heading[lane, item] = 0.5 * np.pi * direction
            maze.facing[lane, item, 0], maze.facing[lane, item, 1] = _east(direction), _north(direction)
        else:
            goal = item - agents
            maze.goal_position[lane, goal, 0], maze.goal_position[lane, goal, 1] = x, y
            maze.goal_collected[lane, goal] = 0
        draws += 2
    first = scalar_integer(seed, draws, goal_colors)
    for goal in range(goals):
        maze.goal_color[lane, goal] = (first + goal) % goal_colors
    maze.goals_left[lane] = goals


@device_function
def _east(direction: int) -> int:
    """Return the step along x of a direction; 0..3 are east, north, west, south."""
    return (direction == 0) - (direction == 2)


@device_function
def _north(direction: int) -> int:
    """Return the step along y of a direction."""
    return (direction == 1) - (direction == 3)


@device_function
def _passage(number: int, cells: int) -> tuple[int, int]:
    """Return the block (y, x) of a passage between two cells: those to the east come first, then those to the north."""
    east_passages = cells * (cells - 1)
    if number < east_passages:
        return 2 * (number // (cells - 1)) + 1, 2 * (number % (cells - 1)) + 2
    number -= east_passages
    return 2 * (number // cells) + 2, 2 * (number % cells) + 1


RADIUS_M = 0.16
"""Radius of an agent: two can pass each other in a corridor."""
REACH_M = 0.36
"""Distance between the middles of an agent and a goal below which it is collected: no goal can be passed by."""
MAX_SUBSTEP_M = 0.08
"""Longest substep of a move; less than the radius, so that the middle of an agent never gets into a wall."""
SEPARATION_M = 2.0 * RADIUS_M + 1e-6
"""Distance to which two overlapping agents are pushed apart: slightly more than they need, for rounding."""


@kernel
def step_mazes(
    maze: MazeTable,
    lanes: I64,
    move: F32,
    turn: F32,
    speed: float,
    turn_speed: float,
    reward: F32,
    terminated: NDArray[np.bool_],
) -> None:
    """Step each lane: every agent turns, then moves. Speeds are in metres and radians per step.

    `reward` [n, A] and `terminated` [n] are outputs.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        for agent in range(maze.heading.shape[1]):
            _turn(maze, lane, agent, turn_speed * _clip_action(turn[k, agent]))
            reward[k, agent] = _move(
                maze, lane, agent, _clip_action(move[k, agent, 0]), _clip_action(move[k, agent, 1]), speed
            )
        terminated[k] = maze.goals_left[lane] == 0


@inlined
def _clip_action(action: np.float32) -> float:
    """Return an action clipped to -1..1, and 0 for NaN."""
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
def _move(maze: MazeTable, lane: int, agent: int, forward: float, right: float, speed: float) -> int:
    """Move an agent forward and to the right; return the number of goals that it collects."""
    length = np.sqrt(forward * forward + right * right)
    if length == 0.0:
        return 0
    substeps = np.int64(np.ceil(min(length, 1.0) * speed / MAX_SUBSTEP_M))
    scale = speed / (max(length, 1.0) * substeps)
    east, north = maze.facing[lane, agent, 0], maze.facing[lane, agent, 1]
    step_x, step_y = (forward * east + right * north) * scale, (forward * north - right * east) * scale
    x, y = maze.position[lane, agent, 0], maze.position[lane, agent, 1]
    goals = 0
    for _ in range(substeps):
        to_x, to_y = _push_out_of_walls(maze.walls, lane, x + step_x, y + step_y)
        other = _find_overlap(maze.position, lane, agent, to_x, to_y)
        if other >= 0:
            # Slide around the other agent if there is space; else stop.
            at_x, at_y = maze.position[lane, other, 0], maze.position[lane, other, 1]
            away_x, away_y = to_x - at_x, to_y - at_y
            push = SEPARATION_M / np.sqrt(away_x * away_x + away_y * away_y)
            to_x, to_y = _push_out_of_walls(maze.walls, lane, at_x + away_x * push, at_y + away_y * push)
            if _find_overlap(maze.position, lane, agent, to_x, to_y) >= 0:
                break
        x, y = to_x, to_y
        goals += _collect_goals(maze, lane, x, y)
    maze.position[lane, agent, 0], maze.position[lane, agent, 1] = x, y
    return goals


@inlined
def _push_out_of_walls(walls: U8, lane: int, x: float, y: float) -> tuple[float, float]:
    """Return the point nearest to (x, y), which is in an open block, where a disc overlaps no wall."""
    block_x, block_y = np.int64(x), np.int64(y)
    if walls[lane, block_y, block_x - 1]:
        x = max(x, block_x + RADIUS_M)
    if walls[lane, block_y, block_x + 1]:
        x = min(x, block_x + (1.0 - RADIUS_M))
    if walls[lane, block_y - 1, block_x]:
        y = max(y, block_y + RADIUS_M)
    if walls[lane, block_y + 1, block_x]:
        y = min(y, block_y + (1.0 - RADIUS_M))
    # The disc can overlap one of the four corners of its block.
    corner_x, corner_y = np.int64(x + 0.5), np.int64(y + 0.5)
    corner_block_x = block_x - 1 + 2 * (corner_x - block_x)
    corner_block_y = block_y - 1 + 2 * (corner_y - block_y)
    if walls[lane, corner_block_y, corner_block_x]:
        away_x, away_y = x - corner_x, y - corner_y
        square = away_x * away_x + away_y * away_y
        if square < RADIUS_M * RADIUS_M:
            push = RADIUS_M / np.sqrt(square)
            x, y = corner_x + away_x * push, corner_y + away_y * push
    return x, y


@inlined
def _find_overlap(position: F64, lane: int, agent: int, x: float, y: float) -> int:
    """Return the first other agent that a disc at (x, y) overlaps, or -1."""
    for other in range(position.shape[1]):
        away_x, away_y = x - position[lane, other, 0], y - position[lane, other, 1]
        if other != agent and away_x * away_x + away_y * away_y < 4.0 * RADIUS_M * RADIUS_M:
            return other
    return -1


@inlined
def _collect_goals(maze: MazeTable, lane: int, x: float, y: float) -> int:
    """Collect the goals within reach; return their number."""
    collected = 0
    for goal in range(maze.goal_collected.shape[1]):
        away_x, away_y = x - maze.goal_position[lane, goal, 0], y - maze.goal_position[lane, goal, 1]
        if maze.goal_collected[lane, goal] == 0 and away_x * away_x + away_y * away_y < REACH_M * REACH_M:
            maze.goal_collected[lane, goal] = 1
            collected += 1
    maze.goals_left[lane] -= collected
    return collected
