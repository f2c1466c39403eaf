"""Gymnasium's MuJoCo tasks in batches: the bits of Gymnasium's own environments, and lanes that fail."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco import ant_v5
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dm_control_lanes import without_drawing  # noqa: F401
from tests.support.gym_batches import ASSETS, LanesBeside
from worldloom.render.scene import Scene
from worldloom.worlds.gym import tasks
from worldloom.worlds.gym.batched import BatchedGym
from worldloom.worlds.gym.family import Gym
from worldloom.worlds.gym.simulated import MujocoGym
from worldloom.worlds.lanes import INTERRUPTED, TERMINATED
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import mix


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, without_drawing: None) -> None:  # noqa: F811
    """MuJoCo writes the warnings of Gymnasium's own environments into a file in the working directory."""
    monkeypatch.chdir(tmp_path)


TASKS = {
    "Ant-v5": "some",
    "HalfCheetah-v5": "none",
    "Hopper-v5": "some",
    "Humanoid-v5": "some",
    "HumanoidStandup-v5": "none",
    "InvertedDoublePendulum-v5": "some",
    "InvertedPendulum-v5": "some",
    "Pusher-v5": "none",
    "Reacher-v5": "none",
    "Swimmer-v5": "none",
    "Walker2d-v5": "some",
}
"""Whether random actions make episodes terminate within some steps."""
OTHER_KWARGS: list[tuple[str, dict[str, Any]]] = [
    ("Ant-v5", {"main_body": "aux_1", "contact_force_range": [-0.5, 2.0], "healthy_z_range": [0.5, 0.9]}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "exclude_current_positions_from_observation": False}),
    (
        "Ant-v5",
        {"terminate_when_unhealthy": False, "healthy_z_range": [0.7, 0.8], "healthy_reward": 3, "frame_skip": 2},
    ),
    (
        "HalfCheetah-v5",
        {"forward_reward_weight": 2, "ctrl_cost_weight": 0.3, "reset_noise_scale": 0.5, "frame_skip": 3},
    ),
    ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0}),
    ("Hopper-v5", {"healthy_state_range": [-2.0, 2.0], "healthy_z_range": [0.8, 5.0], "healthy_reward": 0.1}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "exclude_current_positions_from_observation": False}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "contact_cost_range": [0.1, 0.2], "frame_skip": 3}),
    ("Humanoid-v5", {"include_cvel_in_observation": False, "include_cfrc_ext_in_observation": False}),
    ("HumanoidStandup-v5", {"include_qfrc_actuator_in_observation": False, "impact_cost_weight": 1e-3}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 7, "reset_noise_scale": 0.3}),
    ("InvertedPendulum-v5", {"reset_noise_scale": 0.1, "frame_skip": 4}),
    ("Pusher-v5", {"reward_near_weight": 2, "reward_dist_weight": 0.3, "reward_control_weight": 1}),
    ("Reacher-v5", {"reward_dist_weight": 0.7, "reward_control_weight": 0.2}),
    ("Swimmer-v5", {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.5, "frame_skip": 7}),
    ("Walker2d-v5", {"healthy_angle_range": [-0.2, 0.2], "terminate_when_unhealthy": False, "healthy_reward": 0.3}),
]


@pytest.mark.parametrize("env_id", TASKS)
@pytest.mark.parametrize(("seed", "lanes"), [(0, 3), (12345, 1)])
def test_tasks_have_the_bits_of_gymnasium(env_id: str, seed: int, lanes: int) -> None:
    """In 200 steps, across ends by the task and by the time limit."""
    beside = LanesBeside(env_id, lanes, seed, max_steps=70)
    rng = np.random.default_rng(seed)
    for _ in range(200):
        beside.step(beside.random_actions(rng))
    assert (beside.ends[TERMINATED] > 0) == (TASKS[env_id] == "some")
    assert beside.ends[TERMINATED] or beside.ends[INTERRUPTED]


@pytest.mark.parametrize(("env_id", "kwargs"), OTHER_KWARGS)
def test_other_keyword_arguments(env_id: str, kwargs: dict[str, Any]) -> None:
    beside = LanesBeside(env_id, 2, **kwargs)
    rng = np.random.default_rng(1)
    for _ in range(50):
        beside.step(beside.random_actions(rng))


WEIGHTS = st.floats(-10, 10) | st.integers(-3, 3)


@settings(max_examples=10, deadline=None)
@given(
    weights=st.fixed_dictionaries(
        {f"{name}_weight": WEIGHTS for name in ("forward_reward", "ctrl_cost", "contact_cost")}
    ),
    healthy_reward=WEIGHTS,
    healthy_z_range=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    contact_force_range=st.tuples(st.floats(-2, 0), st.floats(0, 2)),
    reset_noise_scale=st.floats(0, 1),
    seed=st.integers(0, 2**63),
    lanes=st.integers(1, 4),
)
def test_any_keyword_arguments_and_seeds(seed: int, lanes: int, weights: dict[str, float], **kwargs: Any) -> None:
    beside = LanesBeside("Ant-v5", lanes, seed, max_steps=4, **weights, **kwargs)
    rng = np.random.default_rng(lanes)
    for _ in range(10):
        beside.step(beside.random_actions(rng))


def episode_seed(lane_seed: int, episode: int) -> int:
    return int(mix(np.array([lane_seed], np.uint64), episode)[0])


def test_a_lane_whose_first_episode_here_is_a_later_one_begins_with_the_seed_of_that() -> None:
    beside = LanesBeside("Walker2d-v5", 2)
    pool, lanes = beside.pool, beside.lanes
    pool.set_next_episode(lanes, np.array([3, 0]))
    pool.begin(lanes)
    for k, seed in enumerate((episode_seed(0, 3), 1)):
        expected, _ = beside.environments[k].reset(seed=seed)
        assert np.array_equal(pool.observe(lanes, "observation")[k], expected)


def test_a_simulation_that_diverges_goes_on_as_in_gymnasium(caplog: pytest.LogCaptureFixture) -> None:
    """MuJoCo resets it by itself; the other lane is not affected."""
    beside = LanesBeside("HalfCheetah-v5", 2)
    rng = np.random.default_rng(2)
    for step in range(12):
        if step in (4, 8):
            for data in (beside.pool.state.simulation[beside.lanes[1]], beside.environments[1].unwrapped.data):
                data.qvel[:] = 1e11 if step == 4 else np.nan
        beside.step(beside.random_actions(rng))
    logged = [record.getMessage() for record in caplog.records if "went on" in record.getMessage()]
    assert logged == [
        "a simulation of HalfCheetah-v5 went on after a warning of MuJoCo, as Gymnasium does: bad velocities"
    ]


def register_ant_with_little_memory(folder: Path) -> str:
    """Register Ant with a model whose simulations run out of memory when the ant touches the ground."""
    text = (Path(ant_v5.__file__).parent / "assets/ant.xml").read_text()
    path = folder / "ant.xml"
    path.write_text(re.sub(r"(<mujoco[^>]*>)", r'\1<size memory="18944"/>', text, count=1))
    entry_point = "gymnasium.envs.mujoco.ant_v5:AntEnv"
    kwargs = {"xml_file": str(path), "terminate_when_unhealthy": False}
    gymnasium.register("SmallAnt-v0", entry_point, kwargs=kwargs, max_episode_steps=1000)
    return "SmallAnt-v0"


def test_an_error_inside_mujoco_ends_the_episode_of_its_lane_alone(tmp_path: Path) -> None:
    """It comes in the step in which Gymnasium's environment raises it; a new environment plays the next episode."""
    env_id = register_ant_with_little_memory(tmp_path)
    try:
        family = BatchedGym({"id": env_id}, ASSETS)
        pool = Pool(family, Scene(ASSETS))
        lanes = pool.add(family.lane_seeds(0, 4))
        environments: list[Any] = [None] * 4
        episodes, failed_at = [0] * 4, []
        rng = np.random.default_rng(0)
        for step in range(40):
            actions = rng.uniform(-1, 1, (4, 8)).astype(np.float32)
            pool.step(lanes, {"action": actions[:, None]})
            observations, has_failed = pool.observe(lanes, "observation"), pool.observe(lanes, "failed")
            for k in range(4):
                if environments[k] is None:
                    environments[k] = gymnasium.make(env_id)
                    seed = episode_seed(k, episodes[k]) if episodes[k] else k
                    expected, _ = environments[k].reset(seed=seed)
                else:
                    try:
                        expected, reward, _, _, _ = environments[k].step(actions[k])
                    except mujoco.FatalError:
                        assert has_failed[k]
                        assert (pool.status[lanes[k]], pool.reward[lanes[k], 0]) == (TERMINATED, 0.0)
                        environments[k] = None
                        episodes[k] += 1
                        failed_at.append(step)
                        continue
                    assert pool.reward[lanes[k], 0] == reward
                assert not has_failed[k]
                assert np.array_equal(observations[k], expected)
        assert min(episodes) >= 3
        assert len(set(failed_at)) > 10  # not all lanes in the same steps
    finally:
        del gymnasium.registry[env_id]


class WrappedAction(gymnasium.ActionWrapper[Any, Any, Any]):
    def action(self, action: Any) -> Any:
        return action


class OwnCheetah(HalfCheetahEnv):
    """A subclass, which may compute anything."""


def test_only_the_tasks_themselves_are_supported() -> None:
    assert BatchedGym.supports(HalfCheetahEnv())
    assert not BatchedGym.supports(WrappedAction(HalfCheetahEnv()))
    assert not BatchedGym.supports(OwnCheetah())
    with pytest.warns(DeprecationWarning, match="out of date"):
        assert not BatchedGym.supports(gymnasium.make("HalfCheetah-v4"))


@pytest.mark.parametrize("problem", ["another number", "an error"])
def test_lanes_have_environments_if_the_formulas_differ(
    problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def observe(self: tasks.Task, lanes: tasks.Arrays) -> np.ndarray:
        if problem == "an error":
            raise AttributeError("no attribute '_weight'")
        return np.asarray(np.nextafter(np.concatenate([lanes.qpos[:, 1:], lanes.qvel], axis=1), np.inf))

    monkeypatch.setattr(tasks.HalfCheetah, "observe", observe)
    with caplog.at_level(logging.INFO):
        family = Gym({"id": "HalfCheetah-v5", "kwargs": json.dumps({"ctrl_cost_weight": 0.5})}, ASSETS)
    assert type(family) is MujocoGym
    assert (
        len([record for record in caplog.records if "each lane has an environment of its own" in record.message]) == 1
    )
