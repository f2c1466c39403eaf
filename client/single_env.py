"""One lane as a `gymnasium.Env`, for programs that step one environment at a time."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from worldloom.client.arguments import MAX_VARIATION, VARIATION, check_keywords, parse_integer
from worldloom.client.vector_env import VectorEnv

_NOT_FOR_ONE = frozenset({"autoreset", "episode_statistics", "num_envs", "streams"})
"""Arguments of VectorEnv that mean nothing for one lane, which its user resets."""


class SingleEnv(gymnasium.Env[Any, Any]):
    """A Gymnasium environment of one lane of a family: flat arrays unless told otherwise.

    For many lanes VectorEnv is faster by far: a step of 64 lanes takes little longer than a step of one.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012  # as in the base class

    def __init__(self, address: str, family: str, *, flat: bool = True, **arguments: Any) -> None:
        """Create a world of one lane and join it. Arguments are those of VectorEnv, without those about many lanes."""
        for name in sorted(_NOT_FOR_ONE.intersection(arguments)):
            raise TypeError(f"SingleEnv with {name}: expected none, that is an argument of VectorEnv alone")
        check_keywords(VectorEnv, arguments)
        self._arguments = {"address": address, "family": family, "flat": flat, **arguments}
        self._env = VectorEnv(address, family, 1, flat=flat, autoreset="disabled", **arguments)
        self.action_space = self._env.single_action_space
        self.observation_space = self._env.single_observation_space
        self.render_mode = self._env.render_mode
        self.metadata = {name: value for name, value in self._env.metadata.items() if name != "autoreset_mode"}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode. A seed restarts the random numbers.

        `options["variation"]` is the number of the variation that the env shows from then on.
        """
        if options and set(options) != {VARIATION}:
            raise ValueError(f"options are {options!r}: expected none, or {VARIATION!r}")
        chosen = {VARIATION: parse_integer(VARIATION, options[VARIATION], -1, MAX_VARIATION)} if options else None
        super().reset(seed=seed)
        observations, info = self._env.reset(seed=seed, options=chosen)
        return _map_arrays(_take_lane, observations), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step once. After the end of an episode call `reset`: until then steps change nothing."""
        observations, reward, terminated, truncated, info = self._env.step(_map_arrays(_add_lanes, action))
        return _map_arrays(_take_lane, observations), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def render(self) -> np.ndarray:
        """Return the frame [height, width, 3] of the last step or reset."""
        frame: np.ndarray = self._env.rendered_frames[0]
        return frame

    def close(self) -> None:
        """Destroy the world and close the connection."""
        self._env.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._arguments), (), {"spec": self.spec}


def _map_arrays(function: Any, given: Any) -> Any:
    return {name: function(value) for name, value in given.items()} if isinstance(given, Mapping) else function(given)


def _add_lanes(action: Any) -> np.ndarray:
    return np.asarray(action)[None]


def _take_lane(observation: np.ndarray) -> np.ndarray:
    return observation[0, ...]  # an array even where it is one number
