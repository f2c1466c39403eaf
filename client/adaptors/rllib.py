"""RLlib's vector environments: an environment creator for `register_env`.

RLlib steps next-step autoreset, the default of VectorEnv. Its networks take floats, so frames are scaled on the way.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from worldloom.client.adaptors import explain_missing
from worldloom.client.vector_env import VectorEnv

with explain_missing("rllib"):
    import ray.rllib  # noqa: F401  # not used, but who imports this module without it should be told

_DEFAULTS = {"address": "local", "num_envs": 1, "flat": True, "clip_actions": True}


def make_rllib_env(config: Mapping[str, Any]) -> "gymnasium.vector.VectorEnv[Any, Any, Any]":
    """Make the env of one env runner, from `env_config`: the arguments of VectorEnv, flat and local unless given.

        register_env("catch", make_rllib_env)
        config.environment("catch", env_config={"family": "catch"})
        config.env_runners(gym_env_vectorize_mode="vector_entry_point", num_envs_per_env_runner=64)

    RLlib says how many lanes. Frames come as float32 from -1 to 1.
    """
    env = VectorEnv(**{**_DEFAULTS, **config})
    if isinstance(env.single_observation_space, spaces.Box) and env.single_observation_space.dtype == np.uint8:
        return ScaledFrames(env)
    return env


class ScaledFrames(gymnasium.vector.VectorObservationWrapper):
    """Frames of bytes as float32 from -1 to 1."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        shape = env.single_observation_space.shape
        self.single_observation_space = spaces.Box(-1.0, 1.0, shape, np.float32)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: np.ndarray) -> np.ndarray:
        """Scale the frames of all lanes."""
        scaled: np.ndarray = observations * np.float32(2 / 255)
        scaled -= np.float32(1)
        return scaled
