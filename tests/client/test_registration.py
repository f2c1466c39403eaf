"""Environments by name: `gymnasium.make` and `gymnasium.make_vec`, and one lane as a `gymnasium.Env`."""

import pickle
import re
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from worldloom.client import VectorEnv
from worldloom.client.registration import DMC_TASKS, list_env_ids
from worldloom.client.single_env import SingleEnv

SMALL: dict[str, Any] = {"width": 12, "height": 8, "renderer": "cpu"}
MAKE = "; assert gymnasium.spec('worldloom/Maze-v0').vector_entry_point"


@pytest.mark.parametrize(
    "code",
    [
        "import worldloom, gymnasium" + MAKE,
        "import gymnasium, worldloom" + MAKE,
        "import importlib.util, worldloom; importlib.util.find_spec('gymnasium'); import gymnasium" + MAKE,
        "import worldloom.client, gymnasium.spaces" + MAKE,
        "import sys, worldloom, gymnasium; finders = list(sys.meta_path); del sys.modules['worldloom']; "
        "import worldloom; assert sys.meta_path == finders" + MAKE,
        "import gymnasium; gymnasium.make_vec('worldloom:worldloom/Catch-v0', num_envs=2).reset()",
    ],
)
def test_names_are_registered_in_any_order_of_imports(code: str) -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


def test_without_gymnasium_nothing_fails() -> None:
    code = "import sys; sys.modules['gymnasium'] = None; import worldloom"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
    code = (
        "import sys, worldloom; sys.path_importer_cache.clear(); sys.path[:] = []; sys.meta_path[1:] = []\n"
        "try: import gymnasium\nexcept ModuleNotFoundError: sys.exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 7


def test_the_tasks_of_dm_control() -> None:
    suite = pytest.importorskip("dm_control.suite")
    assert {(domain, task) for domain, tasks in DMC_TASKS.items() for task in tasks} == set(suite.ALL_TASKS)
    assert {name for name, _ in list_env_ids()} <= set(gymnasium.registry)


@pytest.mark.parametrize("name", ["Catch", "Cartpole", "Maze"])
def test_vector_envs_by_name(name: str) -> None:
    made: Any = gymnasium.make_vec(f"worldloom/{name}-v0", num_envs=3, seed=2, **SMALL)
    with made, VectorEnv("local", name.lower(), 3, flat=True, seed=2, **SMALL) as other:
        assert isinstance(made, VectorEnv)
        assert made.single_observation_space == spaces.Box(0, 255, (8, 12, 3), np.uint8)
        assert made.spec is not None
        assert np.array_equal(made.reset()[0], other.reset()[0])
        with pickle.loads(pickle.dumps(made)) as again:
            assert again.spec == made.spec
            assert np.array_equal(again.reset()[0], other.reset(seed=2)[0])


def test_arguments_of_vector_envs_by_name() -> None:
    made: Any = gymnasium.make_vec(
        "worldloom/Catch-v0", num_envs=2, flat=False, observations=["ball"], settings={"rows": 4}, **SMALL
    )
    with made:
        assert list(made.reset()[0]) == ["ball"]


def test_settings_are_added_to_those_of_a_task() -> None:
    made: Any = gymnasium.make_vec(
        "worldloom/dmc-pendulum-swingup-v0", num_envs=2, settings={"time_limit": 0.1}, **SMALL
    )
    with made:
        made.reset()
        ends = [made.step(made.action_space.sample())[3].all() for _ in range(5)]
        assert ends == [False, False, False, False, True]
        assert made.single_action_space == spaces.Box(-1, 1, (1,), np.float64)


def test_one_lane_equals_a_vector_env_of_one() -> None:
    env = SingleEnv("local", "maze", flat=False, observations=["eye.rgb", "goals_left"], **SMALL)
    many = VectorEnv("local", "maze", 1, observations=["eye.rgb", "goals_left"], **SMALL)
    with many:
        found, expected = env.reset(seed=4)[0], many.reset(seed=4)[0]
        env.action_space.seed(1)
        for _ in range(20):
            assert found in env.observation_space
            for name, value in expected.items():
                assert np.array_equal(found[name], value[0])
            action = env.action_space.sample()
            found, reward, terminated, truncated, _ = env.step(action)
            expected, *outcome, _ = many.step({name: value[None] for name, value in action.items()})
            assert [reward, terminated, truncated] == [array[0] for array in outcome]
            assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert np.array_equal(env.render(), found["eye.rgb"])
    env.close()


def test_one_lane_shows_the_variation_that_a_reset_names() -> None:
    settings = {"vary_colors": 0.5, "vary_seed": 3}
    given: dict[str, Any] = {"settings": settings, "observations": ["eye.rgb", "variation"], "flat": False, **SMALL}
    env: Any = gymnasium.make("worldloom/Catch-v0", **given)
    with VectorEnv("local", "catch", 2, seed=0, **given) as many:
        expected = many.reset(seed=4, options={"variation": [7, 9]})[0]
    for lane, number in enumerate((7, 9)):
        found = env.reset(seed=4, options={"variation": number})[0]
        assert found["variation"] == number
        background = found["eye.rgb"][0, 0]  # a still part of the scene, whatever the seed of the lane
        assert np.array_equal(background, expected["eye.rgb"][lane, 0, 0])
    again = env.reset(seed=4)[0]
    assert np.array_equal(again["eye.rgb"], found["eye.rgb"])
    assert not np.array_equal(env.reset(seed=4, options={"variation": 7})[0]["eye.rgb"], found["eye.rgb"])
    with pytest.raises(TypeError, match=r"variation is \[1\]: expected one integer"):
        env.reset(options={"variation": [1]})
    for wrong in ({"reset_mask": np.ones(1, bool)}, {"variation": 1, "other": 2}):
        with pytest.raises(ValueError, match="expected none, or 'variation'"):
            env.reset(options=wrong)
    env.close()


@pytest.mark.parametrize("name", ["Catch", "Cartpole", "dmc-cartpole-swingup"])
def test_the_checker_of_gymnasium(name: str) -> None:
    env: Any = gymnasium.make(f"worldloom/{name}-v0", render_mode="rgb_array", **SMALL)
    check_env(env.unwrapped)
    copied = pickle.loads(pickle.dumps(env.unwrapped))
    assert np.array_equal(copied.reset(seed=3)[0], env.reset(seed=3)[0])
    assert copied.render().shape == (8, 12, 3)
    assert np.array_equal(copied.render(), env.render())
    copied.close()
    env.close()


def test_single_envs_in_a_vector_env_of_gymnasium() -> None:
    made = gymnasium.make_vec("worldloom/Catch-v0", 2, vectorization_mode="sync", settings={"rows": 4}, **SMALL)
    first, _ = made.reset(seed=3)
    for _ in range(3):
        _, _, terminated, _, _ = made.step(np.ones(2, int))
    assert terminated.all()
    with VectorEnv("local", "catch", 1, flat=True, settings={"rows": 4}, **SMALL) as one:
        assert np.array_equal(first[0], one.reset(seed=3)[0][0])
        assert np.array_equal(first[1], one.reset(seed=4)[0][0])
    made.close()


@pytest.mark.parametrize("name", ["num_envs", "autoreset", "streams", "episode_statistics"])
def test_arguments_about_many_lanes(name: str) -> None:
    given: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=f"SingleEnv with {name}: expected none"):
        SingleEnv("local", "catch", **given)


@pytest.mark.parametrize("make", [gymnasium.make_vec, gymnasium.make])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": 9}, "unknown argument 'size': expected arguments of VectorEnv; settings of the family"),
        ({"size": 9}, "go into settings={'size': ...}"),
        ({"widht": 9}, "unknown argument 'widht' (did you mean 'width'?)"),
    ],
)
def test_unknown_arguments(make: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        make("worldloom/Maze-v0", **given)


def test_a_time_limit_is_a_setting() -> None:
    with pytest.raises(TypeError, match=re.escape("go into settings={'max_steps': ...}")):
        gymnasium.make_vec("worldloom/Maze-v0", num_envs=2, max_episode_steps=3)
