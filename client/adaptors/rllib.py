"""RLlib's vector environments: an environment creator for `register_env`.

RLlib expects next-step autoreset, the default of VectorEnv. Its networks take floats, so frames are scaled on the way.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from worldloom.client.adaptors.arguments import make_vector_env
from worldloom.client.vector_env import VectorEnv
from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.client.adaptors.rllib", "rllib"):
    import ray.rllib  # noqa: F401  # not used, but who imports this module without it should be told

_DEFAULTS = {"flat": True, "autoreset": "next_step", "clip_actions": True}


def make_rllib_env(config: Mapping[str, Any]) -> "gymnasium.vector.VectorEnv[Any, Any, Any]":
    """Make the env of one env runner, from `env_config`: the arguments of VectorEnv, flat and local unless given.

        register_env("catch", make_rllib_env)
        config.environment("catch", env_config={"family": "catch"})
        config.env_runners(gym_env_vectorize_mode="vector_entry_point", num_envs_per_env_runner=64)

    RLlib says how many lanes. Frames of bytes come as float32 from -1 to 1.
    """
    arguments = dict(config)
    address, num_envs = arguments.pop("address", "local"), arguments.pop("num_envs", 1)
    family = arguments.pop("family", None)
    if family is None:
        raise TypeError("env_config has no 'family': expected a kind of world, such as env_config={'family': 'catch'}")
    env = make_vector_env(address, family, num_envs, arguments, _DEFAULTS, ["next_step"])
    return ScaledFrames(env) if _has_bytes(env.single_observation_space) else env


class ScaledFrames(gymnasium.vector.VectorObservationWrapper):
    """Frames of bytes as float32 from -1 to 1; other observations are left as they are."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self.single_observation_space = _scale_space(env.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: Any) -> Any:
        """Scale the frames of all lanes."""
        if isinstance(observations, Mapping):
            return {name: self.observations(array) for name, array in observations.items()}
        if observations.dtype != np.uint8:
            return observations
        scaled: np.ndarray = observations * np.float32(2 / 255)
        scaled -= np.float32(1)
        return scaled


def _has_bytes(space: Any) -> bool:
    return any(map(_has_bytes, space.values())) if isinstance(space, spaces.Dict) else space.dtype == np.uint8


def _scale_space(space: Any) -> "spaces.Space[Any]":
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _scale_space(part) for name, part in space.items()})
    return spaces.Box(-1.0, 1.0, space.shape, np.float32) if _has_bytes(space) else space
