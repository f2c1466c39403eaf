"""Lanes of the family gym beside Gymnasium's own environments, which are stepped with the same actions."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from worldloom.worlds.gym.spaces import SpaceArrays


class GymLanes:
    """Environments of Gymnasium with the seeds `seed + k`, which begin their next episodes as a vector world does."""

    def __init__(self, env_id: str, seed: int, lanes: int, render_mode: str | None = None, **kwargs: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions that are not the newest
            self.envs = [gymnasium.make(env_id, render_mode=render_mode, **kwargs) for _ in range(lanes)]
        space = self.envs[0].observation_space
        self._arrays = SpaceArrays("observation", space, "")
        self.names = [spec.name for spec in self._arrays.specs]
        self.observed = [env.reset(seed=seed + k)[0] for k, env in enumerate(self.envs)]
        self.reward = np.zeros(lanes)
        self.terminated, self.truncated = np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_)

    def step(self, actions: Sequence[Any]) -> None:
        """Step each environment; begin the next episode where the last step ended one."""
        for k, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if self.terminated[k] or self.truncated[k]:
                self.observed[k], _ = env.reset()
                self.reward[k], self.terminated[k], self.truncated[k] = 0.0, False, False
            else:
                self.observed[k], reward, self.terminated[k], self.truncated[k], _ = env.step(action)
                self.reward[k] = reward

    def check(self, observations: Mapping[str, Any], *outcome: np.ndarray) -> None:
        """Assert that observations, and rewards and ends if given, have the same bits."""
        for k, observed in enumerate(self.observed):
            rows = [np.empty(spec.shape, spec.dtype) for spec in self._arrays.specs]
            self._arrays.write(observed, rows)
            for name, row in zip(self.names, rows, strict=True):
                assert observations[name][k].tobytes() == row.tobytes(), (name, k)
        if outcome:
            reward, terminated, truncated = outcome
            assert reward.tolist() == self.reward.tolist()
            assert terminated.tolist() == self.terminated.tolist()
            assert truncated.tolist() == self.truncated.tolist()

    def pictures(self) -> np.ndarray:
        """Return what `render()` shows, [n, height, width, 3]."""
        return np.stack([np.asarray(env.render()) for env in self.envs])

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()
