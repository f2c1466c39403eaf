"""The maze's rules: compared with a model in plain Python, at the limits of settings, and for many seeds."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.determinism import check_same_bytes, check_seeds_differ
from tests.support.maze_model import RADIUS_M, MazeModel, Walker
from worldloom.kernels.tables import I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.episodes import FIRST, INTERRUPTED, LAST, MID, RUNNING, TERMINATED
from worldloom.worlds.maze.family import Maze
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.settings import SettingError

ASSETS = AssetLibrary(texture_size=8)


def make_pool(lanes: int, seed: int = 0, **given: object) -> tuple[Pool, I64]:
    """Return a pool whose lanes have begun their first episode."""
    pool = Pool(Maze(given, ASSETS), Scene(ASSETS))
    added = pool.add(lane_seeds(seed, lanes))
    pool.step(added, no_actions(pool, lanes))
    return pool, added


def no_actions(pool: Pool, lanes: int) -> dict[str, np.ndarray]:
    agents = pool.family.agents
    return {"move": np.zeros((lanes, agents, 2), np.float32), "turn": np.zeros((lanes, agents), np.float32)}


def some_actions(pool: Pool, lanes: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return random actions, more often forward than back and often at full speed: agents reach corners."""
    agents = pool.family.agents
    move = np.clip(rng.normal((0.6, 0.0), (0.7, 0.5), (lanes, agents, 2)), -1, 1)
    turn = np.clip(rng.normal(0.0, 0.5, (lanes, agents)), -1, 1)
    return {"move": move.astype(np.float32), "turn": turn.astype(np.float32)}


def copy_to_model(pool: Pool, lane: int) -> MazeModel:
    state, family = pool.state, pool.family
    size = len(state.walls[lane])
    return MazeModel(
        walls={(x, y) for y in range(size) for x in range(size) if state.walls[lane, y, x]},
        agents=[
            Walker((x, y), h) for (x, y), h in zip(state.position[lane].tolist(), state.heading[lane], strict=True)
        ],
        goals=[(x, y) for x, y in state.goal_position[lane].tolist()],
        speed=float(family.setting_values["speed"]),
        turn_speed=math.radians(float(family.setting_values["turn_speed"])),
    )


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"agents": 4, "goals": 2, "size": 7},
        {"agents": 8, "goals": 2, "size": 5, "speed": 0.05},
        {"agents": 2, "goals": 16, "size": 15, "speed": 0.6, "turn_speed": 90.0},
    ],
)
def test_agrees_with_the_model(setting: dict[str, Any]) -> None:
    """10,000 steps: ends and rewards are equal, positions to 1e-11.

    Kernels may fuse a product and a sum, which rounds once instead of twice, so places are some 1e-16 apart after a
    step. Going around a corner or another agent multiplies that by a little, and an episode here has up to 250 steps:
    the largest difference seen is 4e-13.
    """
    lanes, steps = 20, 500
    pool, added = make_pool(lanes, max_steps=250, **setting)
    models = [copy_to_model(pool, lane) for lane in added]
    rng = np.random.default_rng(5)
    ends = taken = 0
    for _ in range(steps):
        actions = some_actions(pool, lanes, rng)
        before = pool.status[added].copy()
        pool.step(added, actions)
        for k, lane in enumerate(added.tolist()):
            if before[k] != RUNNING:
                models[k] = copy_to_model(pool, lane)
                continue
            model = models[k]
            rewards, over = model.step([(f, r) for f, r in actions["move"][k].tolist()], actions["turn"][k].tolist())
            assert pool.reward[lane].tolist() == rewards
            assert (pool.status[lane] == TERMINATED) == over
            assert pool.state.goals_left[lane] == len(model.goals) - len(model.taken)
            places = [agent.at for agent in model.agents]
            facing = [(math.cos(agent.heading), math.sin(agent.heading)) for agent in model.agents]
            assert np.abs(pool.state.position[lane] - places).max() < 1e-11
            assert np.abs(pool.state.facing[lane] - facing).max() < 1e-12
            ends += over
            taken += sum(rewards)
    assert taken > 10
    assert ends > 0 or setting.get("goals") != 2


@pytest.mark.parametrize("setting", [{}, {"size": 7, "agents": 3, "textures": "random", "lighting": "random"}])
def test_the_same_bytes_in_any_pool(setting: dict[str, Any]) -> None:
    check_same_bytes(lambda assets: Maze({"max_steps": 25, **setting}, assets), lanes=4, steps=40)


def test_seeds_differ() -> None:
    check_seeds_differ(lambda assets: Maze({"max_steps": 25}, assets))


def test_an_episode_ends_when_all_goals_are_taken() -> None:
    pool, lanes = make_pool(1, goals=2)
    state = pool.state
    for number, (reward, status, step_type, discount) in enumerate(
        [(1.0, RUNNING, MID, 1.0), (1.0, TERMINATED, LAST, 0.0)]
    ):
        state.position[0, 0] = state.goal_position[0, number]
        pool.step(lanes, {"move": np.full((1, 1, 2), 0.01, np.float32), "turn": np.zeros((1, 1), np.float32)})
        assert (pool.reward[0, 0], pool.status[0], pool.step_type[0]) == (reward, status, step_type)
        assert pool.discount[0] == discount
        assert pool.observe(lanes, "goals_left")[0] == 1 - number
    walls = state.walls[0].copy()
    pool.step(lanes, no_actions(pool, 1))
    assert (pool.step_type[0], pool.reward[0, 0], pool.observe(lanes, "goals_left")[0]) == (FIRST, 0.0, 2)
    assert (state.walls[0] != walls).any()


def test_time_interrupts() -> None:
    pool, lanes = make_pool(1, max_steps=3)
    seen = []
    for _ in range(4):
        pool.step(lanes, no_actions(pool, 1))
        seen.append((pool.status[0], pool.discount[0]))
    assert seen == [(RUNNING, 1.0), (RUNNING, 1.0), (INTERRUPTED, 1.0), (RUNNING, 1.0)]


def test_the_first_agent_to_come_takes_the_goal() -> None:
    pool, lanes = make_pool(1, agents=3, goals=1)
    pool.state.position[0, 1] = pool.state.goal_position[0, 0]
    pool.step(lanes, {"move": np.full((1, 3, 2), 0.01, np.float32), "turn": np.zeros((1, 3), np.float32)})
    assert pool.reward[0].tolist() == [0.0, 1.0, 0.0]


def test_what_actions_do() -> None:
    """After a quarter turn left, forward is north and right is east; both together are no faster than one."""
    pool, lanes = make_pool(1, speed=0.1, turn_speed=90.0, agents=1)
    state = pool.state
    state.walls[0, 1:-1, 1:-1] = 0
    state.position[0, 0], state.heading[0, 0], state.facing[0, 0] = (4.5, 4.5), 0.0, (1.0, 0.0)
    for move, turn, moved in (
        ((0, 0), 1, (0, 0)),
        ((1, 0), 0, (0, 0.1)),
        ((0, 1), 0, (0.1, 0)),
        ((-0.5, 0), 0, (0, -0.05)),
        ((1, 1), 0, (0.1 / math.sqrt(2), 0.1 / math.sqrt(2))),
        ((1, 0), -1, (0.1, 0)),
    ):
        before = state.position[0, 0].copy()
        pool.step(lanes, {"move": np.array([[move]], np.float32), "turn": np.array([[turn]], np.float32)})
        np.testing.assert_allclose(state.position[0, 0] - before, moved, atol=1e-12)
    np.testing.assert_array_equal(pool.observe(lanes, "position"), state.position[:, 0].astype(np.float32))
    np.testing.assert_allclose(pool.observe(lanes, "heading"), [(1.0, 0.0)], atol=1e-7)  # float32


def test_what_is_hidden() -> None:
    hidden = {spec.name: spec.hidden for spec in Maze({}, ASSETS).observations}
    assert hidden == {"position": True, "heading": True, "goals_left": False}


IN_RANGE = st.fixed_dictionaries(
    {
        "size": st.integers(5, 31),
        "agents": st.integers(1, 8),
        "goals": st.integers(1, 16),
        "max_steps": st.integers(1, 1_000_000),
        "speed": st.floats(0.001, 10.0),
        "turn_speed": st.floats(0.001, 180.0),
        "textures": st.sampled_from(["fixed", "random"]),
        "lighting": st.sampled_from(["fixed", "random"]),
    }
)


@settings(max_examples=60)
@given(setting=IN_RANGE, seed=st.integers(0, 2**63))
def test_any_settings_in_range_work(setting: dict[str, Any], seed: int) -> None:
    pool, lanes = make_pool(3, seed, **setting)
    family, state = pool.family, pool.state
    assert state.walls.shape[1:] == (2 * (int(setting["size"]) // 2) + 1,) * 2
    rng = np.random.default_rng(seed)
    for _ in range(4):
        pool.step(lanes, some_actions(pool, 3, rng))
    for spec in family.observations:
        for agent in range(family.agents):
            value = pool.observe(lanes, spec.name, agent)
            assert value.dtype == spec.dtype
            assert (value >= spec.minimum).all()
            assert (value <= spec.maximum).all()
    for camera in family.cameras:
        pool.views(lanes, camera.name, family.agents - 1)
    apart = np.linalg.norm(state.position[:, :, None] - state.position[:, None], axis=-1)
    assert (apart + 9 * np.eye(family.agents) >= 2 * RADIUS_M).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", 4),
        ("size", 32),
        ("size", 9.0),
        ("agents", 0),
        ("agents", 9),
        ("goals", 0),
        ("goals", 17),
        ("max_steps", 0),
        ("speed", 0.0),
        ("speed", 10.1),
        ("speed", math.nan),
        ("turn_speed", -1.0),
        ("turn_speed", 181.0),
        ("textures", "loud"),
        ("lighting", True),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: object) -> None:
    expected = next(setting.expected for setting in Maze.settings if setting.name == name)
    with pytest.raises(SettingError) as refusal:
        Maze({name: value}, ASSETS)
    assert all(word in str(refusal.value) for word in (repr(name), repr(value), expected))
