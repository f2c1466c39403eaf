"""How agents walk in a maze: discs that slide along walls, block each other, and take the goals they touch.

Agents move one after another, in the order of their numbers. A way is gone in pieces much shorter than a disc's radius,
and after each the disc is put beside what it ran into; so nothing is passed through, however fast it goes.
"""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import called, inlined, kernel
from worldloom.kernels.maze import MazeTable
from worldloom.kernels.tables import F32, F64, I64, U8

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


@called
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
