"""RLlib's PPO on our vector env, and the episodes that its env runners collect. Runs in .venv-rllib."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune.registry import register_env

from worldloom.client import VectorEnv
from worldloom.client.adaptors.rllib import make_rllib_env

LANES = 4
# Ray and its dependencies warn of their own future, and leave files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    ray.shutdown()  # that of another file's tests
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_env("catch", make_rllib_env)
    yield
    ray.shutdown()


def make_config(env: str, runners: int, **env_config: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=LANES,
            gym_env_vectorize_mode="vector_entry_point",
            rollout_fragment_length="auto",
        )
        .training(train_batch_size=128, minibatch_size=64, num_epochs=1)
        .rl_module(model_config=DefaultModelConfig(conv_filters=[[8, 4, 2], [8, 4, 2]]))
        .debugging(seed=3)
    )


@pytest.mark.parametrize("runners", [0, 2])
def test_ppo_trains(runners: int) -> None:
    algorithm = make_config("catch", runners, family="catch", width=16, height=16).build_algo()
    for _ in range(3):
        results = algorithm.train()["env_runners"]
    assert results["num_env_steps_sampled_lifetime"] >= 3 * 128
    assert -1.0 <= results["episode_return_mean"] <= 1.0
    algorithm.stop()


def test_ppo_trains_on_a_registered_name() -> None:
    """Floats need no scaling, so the name alone is enough."""
    config = make_config("worldloom:worldloom/Cartpole-v0", 0, observations=["pose"])
    algorithm = config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16])).build_algo()
    assert algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"] >= 128
    algorithm.stop()


def test_episodes_are_those_of_the_env() -> None:
    """The steps that begin episodes are no transitions, and nothing else is missing."""
    runner = SingleAgentEnvRunner(config=make_config("catch", 0, family="catch", width=16, height=16))
    episodes = runner.sample(num_episodes=3 * LANES, random_actions=True)
    assert len(episodes) >= 3 * LANES
    for episode in episodes:
        assert episode.is_done
        frames, actions = episode.get_observations(), episode.get_actions()
        rewards = episode.get_rewards()
        assert len(frames) == len(actions) + 1 == len(rewards) + 1
        assert not any(rewards[:-1])
        assert abs(rewards[-1]) == 1.0
        assert frames[0].dtype == np.float32
        assert frames[0].min() >= -1
        assert frames[0].max() <= 1
    model = VectorEnv("local", "catch", 1, width=16, height=16)
    model.reset(seed=1)
    steps = 1
    while not model.step({"paddle": [0]})[2][0]:
        steps += 1
    assert {len(episode) for episode in episodes} == {steps}
    model.close()
    runner.stop()


@pytest.mark.parametrize(
    ("names", "flat"),
    [(["eye.rgb", "ball"], False), (["eye.gray"], False), (["ball"], False), (["eye.gray"], True), (["ball"], True)],
)
def test_frames_are_scaled_and_nothing_else(names: list[str], flat: bool) -> None:
    options: dict[str, Any] = {"width": 16, "height": 16, "observations": names, "flat": flat, "seed": 3}
    env = make_rllib_env({"family": "catch", "num_envs": LANES, **options})
    model = VectorEnv("local", "catch", LANES, **options)
    pairs = [(env.reset()[0], model.reset()[0])]
    env.action_space.seed(1)
    for _ in range(15):
        actions = env.action_space.sample()
        pairs.append((env.step(actions)[0], model.step(actions)[0]))
    for found, expected in pairs:
        assert found in env.observation_space
        for name in names:
            array, plain = (found, expected) if flat else (found[name], expected[name])
            if plain.dtype == np.uint8:
                assert array.dtype == np.float32
                # A step of the bytes is 2/255; float32 rounds by less than a millionth.
                np.testing.assert_allclose((array + 1) * 127.5, plain, atol=1e-4)
            else:
                assert array.dtype == plain.dtype
                np.testing.assert_array_equal(array, plain)
    env.close()
    model.close()


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ({"family": "catch", "autoreset": "same_step"}, ValueError, "autoreset is 'same_step': expected .*'next_step'"),
        ({"family": "catch", "autoreset": "disabled"}, ValueError, "autoreset is 'disabled': expected .*'next_step'"),
        ({}, TypeError, "env_config has no 'family'"),
        ({"family": "catch", "size": 9}, TypeError, "unknown argument 'size'"),
    ],
)
def test_wrong_configurations(config: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make_rllib_env(config)
