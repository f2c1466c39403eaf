"""SB3's checker, wrappers and algorithms, and each step against SB3's own DummyVecEnv of single envs."""

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

import worldloom
from worldloom.client import BadAction, ClientError, VectorEnv
from worldloom.client.adaptors.sb3 import SB3VecEnv

LANES = 4
SIZE: dict[str, Any] = {"width": 16, "height": 16}


def make(family: str = "catch", lanes: int = LANES, **arguments: Any) -> SB3VecEnv:
    return SB3VecEnv("local", family, lanes, **{**SIZE, **arguments})


def make_model(family: str, lanes: int = LANES, **arguments: Any) -> DummyVecEnv:
    """SB3's own vector env of single envs, each with a Monitor."""
    env_id = f"worldloom/{family.capitalize()}-v0"
    arguments = {**SIZE, "channels": "first", "clip_actions": True, **arguments}
    return DummyVecEnv([lambda: Monitor(gymnasium.make(env_id, **arguments).unwrapped) for _ in range(lanes)])


@pytest.mark.parametrize("family", ["Catch", "Cartpole", "Maze"])
def test_checker_of_single_envs(family: str) -> None:
    env = gymnasium.make(f"worldloom/{family}-v0", width=64, height=64)
    check_env(env.unwrapped)
    env.close()


@settings(max_examples=12)
@given(
    family=st.sampled_from(["catch", "cartpole", "maze"]),
    seed=st.integers(0, 2**31),
    max_steps=st.integers(2, 12),
    parts=st.lists(st.integers(1, 15), min_size=1, max_size=3),
)
def test_the_same_as_a_dummy_vec_env(family: str, seed: int, max_steps: int, parts: list[int]) -> None:
    """Steps, ends and resets at any time: observations, rewards, ends and infos, byte for byte.

    But for a reset right after an end: our next episode has begun then, and a DummyVecEnv begins the one after it.
    """
    own: dict[str, Any] = {"settings": {"max_steps": max_steps}} if family != "catch" else {}
    ours, theirs = make(family, **own), make_model(family, **own)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.seed(seed) == theirs.seed(seed)
    random = np.random.default_rng(seed)
    for count in parts:
        np.testing.assert_array_equal(ours.reset(), theirs.reset())
        assert ours.reset_infos == theirs.reset_infos
        steps, has_ended = 0, True
        while steps < count or has_ended:
            if isinstance(ours.action_space, gymnasium.spaces.Discrete):
                actions: np.ndarray = random.integers(0, ours.action_space.n, LANES)
            else:
                actions = random.uniform(-1, 1, (LANES, *ours.action_space.shape)).astype(np.float32)
            found, expected = ours.step(actions), theirs.step(actions)
            for one, other in zip(found[:3], expected[:3], strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            for info, done, other_info in zip(found[3], found[2], expected[3], strict=True):
                assert_same_info(info, other_info, done)
            steps, has_ended = steps + 1, found[2].any()
    ours.close()
    theirs.close()


def assert_same_info(info: dict[str, Any], expected: dict[str, Any], done: bool) -> None:
    if not done:
        assert info == {}
        assert expected == {"TimeLimit.truncated": False}
        return
    assert info.keys() == expected.keys() == {"TimeLimit.truncated", "terminal_observation", "episode"}
    assert info["TimeLimit.truncated"] is expected["TimeLimit.truncated"]
    np.testing.assert_array_equal(info["terminal_observation"], expected["terminal_observation"])
    assert info["episode"]["l"] == expected["episode"]["l"]
    # Monitor rounds to six digits.
    assert info["episode"]["r"] == pytest.approx(expected["episode"]["r"], abs=1e-6)
    assert info["episode"]["t"] >= 0


@pytest.mark.parametrize(
    ("algorithm", "policy", "family", "arguments", "options"),
    [
        (PPO, "CnnPolicy", "catch", {"width": 36, "height": 36}, {"n_steps": 32, "batch_size": 64, "n_epochs": 1}),
        (PPO, "MultiInputPolicy", "maze", {"flat": False, "observations": ["eye.rgb", "heading"]}, {"n_steps": 16}),
        (A2C, "MlpPolicy", "cartpole", {"observations": ["pose"]}, {}),
        (DQN, "CnnPolicy", "catch", {"frame_stack": 2, "width": 36, "height": 36}, {"buffer_size": 500}),
    ],
)
@pytest.mark.filterwarnings("ignore:You are trying to run")
def test_algorithms_learn(algorithm: Any, policy: str, family: str, arguments: dict[str, Any], options: Any) -> None:
    env = make(family, **{"width": 64, "height": 64, **arguments})
    model = algorithm(policy, env, device="cpu", **options)
    model.learn(256)
    assert model.num_timesteps >= 256
    if family == "catch":
        assert len(model.ep_info_buffer) > 0
        assert all(abs(episode["r"]) == 1.0 for episode in model.ep_info_buffer)
        # No warning that there is no Monitor: the env has its own statistics.
        mean, _ = evaluate_policy(model, env, n_eval_episodes=4)
        assert -1.0 <= mean <= 1.0
    env.close()


def test_wrappers() -> None:
    wrap: Any
    for wrap in (
        lambda env: VecNormalize(env, norm_obs=False),
        lambda env: VecFrameStack(env, 3, channels_order="first"),
    ):
        env = wrap(VecMonitor(make(episode_statistics=False)))
        env.reset()
        for _ in range(25):
            observations, rewards, dones, infos = env.step(np.zeros(LANES, np.int64))
            assert observations.shape[0] == len(rewards) == len(dones) == len(infos) == LANES
        env.close()
    last = VecTransposeImage(make(channels="last"))
    assert last.observation_space.shape == (3, 16, 16)
    assert last.reset().shape == (LANES, 3, 16, 16)
    last.close()
    chosen = VecExtractDictObs(make(flat=False, observations=["eye.rgb", "ball"]), "ball")
    assert chosen.reset().shape[0] == LANES
    chosen.close()


def test_attributes_and_methods_of_all_lanes() -> None:
    env = make(observations=["eye.rgb"])
    assert env.get_attr("num_envs") == [LANES] * LANES
    assert env.get_attr("num_envs", [0, 2]) == [LANES] * 2
    assert env.get_attr("num_envs", 1) == [LANES]
    assert env.has_attr("num_envs")
    assert not env.has_attr("no_such_thing")
    env.set_attr("note", "here")
    assert env.get_attr("note", 0) == ["here"]
    env.reset()
    assert len(env.env_method("render")) == LANES
    with pytest.raises(ClientError, match=r"the lanes \[1\]: expected all lanes"):
        env.set_attr("note", "there", [1])
    with pytest.raises(ClientError, match=r"the method 'render'"):
        env.env_method("render", indices=0)
    assert env.env_is_wrapped(Monitor) == [True] * LANES
    assert env.env_is_wrapped(Monitor, [1]) == [True]
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [False] * LANES
    without = make(episode_statistics=False)
    assert without.env_is_wrapped(Monitor) == [False] * LANES
    assert env.render_mode == "rgb_array"
    assert len(env.get_images()) == LANES
    assert env.get_images()[0].shape == (16, 16, 3)
    assert env.render().shape == (32, 32, 3)
    for one in (env, without):
        one.close()


def test_an_existing_env_is_used() -> None:
    env = VectorEnv("local", "catch", 2, flat=True, autoreset="same_step")
    assert SB3VecEnv(env).env is env
    with pytest.raises(TypeError, match=r"a VectorEnv together with num_envs, width"):
        SB3VecEnv(env, num_envs=3, width=8)
    env.close()
    with VectorEnv("local", "catch", 2, flat=True) as other, pytest.raises(ValueError, match=r"autoreset='same_step'"):
        SB3VecEnv(other)
    with pytest.raises(TypeError, match=r"family or num_envs is missing"):
        SB3VecEnv("local", "catch")
    with pytest.raises(ValueError, match=r"autoreset='same_step'"):
        make(autoreset="disabled")


def test_a_server_is_the_same_as_local(server_address: str) -> None:
    local = make("maze", seed=4, settings={"max_steps": 7})
    remote = SB3VecEnv(server_address, "maze", LANES, **SIZE, seed=4, settings={"max_steps": 7})
    np.testing.assert_array_equal(local.reset(), remote.reset())
    random = np.random.default_rng(1)
    for _ in range(20):
        actions = random.uniform(-1, 1, (LANES, 3)).astype(np.float32)
        found, expected = remote.step(actions), local.step(actions)
        for one, other in zip(found[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        for info, other_info in zip(found[3], expected[3], strict=True):
            np.testing.assert_array_equal(info.get("terminal_observation"), other_info.get("terminal_observation"))
    local.close()
    remote.close()


def test_wrong_actions_and_options() -> None:
    env = make()
    env.reset()
    with pytest.raises(BadAction):
        env.step(np.full(LANES, 3))
    env.step(np.zeros(LANES, np.int64))
    env.set_options({"size": 3})
    with pytest.raises(ValueError, match=r"options are"):
        env.reset()
    env.set_options()
    env.step_async(np.zeros(LANES, np.int64))
    env.reset()  # cancels the step
    env.close()
    env.close()
    with pytest.raises(worldloom.ClientError, match="closed"):
        env.reset()


def test_infos_are_not_shared() -> None:
    """Programs write into infos: into those of one lane and one step."""
    env = make()
    env.reset()
    *_, infos = env.step(np.zeros(LANES, np.int64))
    infos[0]["mine"] = 1
    *_, later = env.step(np.zeros(LANES, np.int64))
    assert infos[1:] == [{}] * (LANES - 1)
    assert later == [{}] * LANES
    env.close()


def test_pickled() -> None:
    env = make(seed=5)
    again = pickle.loads(pickle.dumps(env))
    np.testing.assert_array_equal(env.reset(), again.reset())
    for one in (env, again):
        one.close()
