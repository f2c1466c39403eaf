"""Geometry of mazes: all open blocks can be reached, and agents never overlap walls or each other."""

from typing import Any

import numpy as np
import pytest

from tests.support.maze_model import RADIUS_M
from tests.worlds.maze.test_maze import make_pool, some_actions
from worldloom.kernels.tables import F64, U8
from worldloom.worlds.pool import Pool

ROUNDING = 1e-9
"""Positions are sums of a few doubles below 32, each rounded by some 1e-15; this is a millionth of a millimetre."""


def flooded(walls: U8, start: tuple[int, int]) -> set[tuple[int, int]]:
    """Return all open blocks (y, x) that can be reached."""
    reached, waiting = {start}, [start]
    while waiting:
        y, x = waiting.pop()
        for block in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if not walls[block] and block not in reached:
                reached.add(block)
                waiting.append(block)
    return reached


def blocks_of(places: F64) -> set[tuple[int, int]]:
    return {(int(y), int(x)) for x, y in places}


def check_places(pool: Pool) -> None:
    """Check that every agent is a disc inside the maze that overlaps neither walls nor other agents."""
    walls, position = pool.state.walls, pool.state.position
    lanes, agents, _ = position.shape
    size = walls.shape[1]
    assert np.isfinite(position).all()
    assert (position > 1).all()
    assert (position < size - 1).all()
    block = position.astype(int)
    lane = np.arange(lanes)[:, None]
    for north in (-1, 0, 1):
        for east in (-1, 0, 1):
            low = block + np.array([east, north])
            nearest = np.clip(position, low, low + 1)
            distance = np.linalg.norm(position - nearest, axis=-1)
            is_wall = walls[lane, low[..., 1], low[..., 0]] == 1
            assert (distance[is_wall] >= RADIUS_M - ROUNDING).all()
    apart = np.linalg.norm(position[:, :, None] - position[:, None], axis=-1)
    assert (apart[:, ~np.eye(agents, dtype=bool)] >= 2 * RADIUS_M - ROUNDING).all()


@pytest.mark.parametrize(("seeds", "setting"), [(1000, {}), (200, {"size": 5}), (60, {"size": 31})])
def test_everything_can_be_reached(seeds: int, setting: dict[str, Any]) -> None:
    pool, lanes = make_pool(seeds, agents=8, goals=16, **setting)
    for lane in lanes.tolist():
        walls = pool.state.walls[lane]
        things = np.concatenate([pool.state.position[lane], pool.state.goal_position[lane]])
        reached = flooded(walls, next(iter(blocks_of(things))))
        assert blocks_of(things) <= reached
        assert len(reached) == (walls == 0).sum()
    check_places(pool)


@pytest.mark.parametrize("size", [5, 9, 31])
def test_how_a_maze_is_made(size: int) -> None:
    """A border, posts and cells where they belong, and one passage more than a tree has for every eight cells."""
    pool, _ = make_pool(100, size=size)
    walls = pool.state.walls
    assert (walls[:, [0, -1]] == 1).all()
    assert (walls[:, :, [0, -1]] == 1).all()
    assert (walls[:, ::2, ::2] == 1).all()
    assert (walls[:, 1::2, 1::2] == 0).all()
    cells = (size // 2) ** 2
    assert ((walls == 0).sum(axis=(1, 2)) == cells + (cells - 1) + cells // 8).all()
    assert len({maze.tobytes() for maze in walls}) >= (4 if size == 5 else 99)


def test_things_have_a_block_of_their_own_where_there_are_enough() -> None:
    pool, lanes = make_pool(300, agents=4, goals=8)
    for lane in lanes.tolist():
        things = np.concatenate([pool.state.position[lane], pool.state.goal_position[lane]])
        assert len(blocks_of(things)) == 12
        np.testing.assert_array_equal(things % 1, 0.5)


def test_an_agent_begins_with_a_way_before_it() -> None:
    pool, lanes = make_pool(300, agents=2)
    ahead = (pool.state.position + pool.state.facing).astype(int)
    assert (pool.state.walls[lanes[:, None], ahead[..., 1], ahead[..., 0]] == 0).all()


def test_more_goals_make_no_other_maze() -> None:
    few, _ = make_pool(20, goals=1)
    many, _ = make_pool(20, goals=9, agents=3, textures="random")
    np.testing.assert_array_equal(few.state.walls, many.state.walls)


@pytest.mark.parametrize("agents", [1, 8])
@pytest.mark.parametrize("speed", [0.03, 0.159, 0.9, 10.0])
@pytest.mark.parametrize("size", [5, 9])
def test_nobody_leaves_the_maze_at_any_speed(agents: int, speed: float, size: int) -> None:
    """Moves at random; into walls and corners; to and fro; all to the same position; and actions that are NaN."""
    lanes = 24
    pool, added = make_pool(lanes, agents=agents, speed=speed, size=size, turn_speed=180.0, goals=1)
    rng = np.random.default_rng(agents)
    direction: F64 = np.zeros((lanes, agents))
    for step in range(120):
        actions = some_actions(pool, lanes, rng)
        if 20 <= step < 60:
            # Straight on, in a direction of their own for ten steps, often exactly along a wall or into a corner.
            if step % 10 == 0:
                direction = np.asarray(rng.integers(0, 8, (lanes, agents)) * (np.pi / 4), np.float64)
            _face(pool, direction + (1e-9 if step >= 40 else 0.0))
            actions["move"][:], actions["turn"][:] = (1, 0), 0
        elif 60 <= step < 80:
            actions["move"][:], actions["turn"][:] = (1, 1) if step % 2 else (-1, 1), 0
        elif 80 <= step < 100:
            towards = pool.state.position[:, :1] - pool.state.position
            _face(pool, np.arctan2(towards[..., 1], towards[..., 0]))
            actions["move"][:], actions["turn"][:] = (1, 0), 0
        elif step >= 100:
            wild = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-45, 0.0, 1.0], np.float32)
            actions = {name: rng.choice(wild, action.shape) for name, action in actions.items()}
        pool.step(added, actions)
        check_places(pool)


def _face(pool: Pool, heading: F64) -> None:
    pool.state.heading[:] = heading % (2 * np.pi)
    pool.state.facing[:] = np.stack([np.cos(heading), np.sin(heading)], axis=-1)


def test_agents_pass_each_other_in_a_corridor() -> None:
    """Two agents that meet slightly off the middle slide past each other; two that meet exactly head on stop."""
    for aside, passed in ((0.05, True), (0.0, False)):
        pool, added = make_pool(1, agents=2, goals=1)
        state = pool.state
        state.walls[0] = 1
        state.walls[0, 3, 1:8] = 0
        state.goal_position[0, 0] = (99.0, 99.0)
        state.position[0] = [(2.5, 3.5 + aside), (6.5, 3.5 - aside)]
        _face(pool, np.array([[0.0, np.pi]]))
        for _ in range(60):
            pool.step(added, {"move": np.array([[(1, 0), (1, 0)]], np.float32), "turn": np.zeros((1, 2), np.float32)})
            check_places(pool)
        assert (state.position[0, 0, 0] > state.position[0, 1, 0]) == passed
