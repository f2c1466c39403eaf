"""Lanes of BatchedGym, and Gymnasium's own environments to compare them with."""

import json
from typing import Any

import gymnasium
import numpy as np

from worldloom.kernels.tables import I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.gym.batched import BatchedGym
from worldloom.worlds.gym.family import Gym
from worldloom.worlds.lanes import INTERRUPTED, RUNNING, TERMINATED
from worldloom.worlds.pool import Pool

ASSETS = AssetLibrary(texture_size=8)


class LanesBeside:
    """Lanes of a batch, and an environment of Gymnasium for each: stepped together, they must agree to the last bit."""

    def __init__(self, env_id: str, lanes: int, seed: int = 0, max_steps: int = 0, **kwargs: Any) -> None:
        family = Gym({"id": env_id, "kwargs": json.dumps(kwargs), "max_steps": max_steps}, ASSETS)
        assert isinstance(family, BatchedGym)
        self.family = family
        self.pool = Pool(family, Scene(ASSETS))
        self.lanes: I64 = self.pool.add(family.lane_seeds(seed, lanes))
        self.environments: list[Any] = [gymnasium.make(env_id, max_steps or None, **kwargs) for _ in range(lanes)]
        self._next_seed: list[int | None] = [seed + k for k in range(lanes)]
        self._is_over = [True] * lanes
        self.ends = {TERMINATED: 0, INTERRUPTED: 0}
        """Episodes that have ended so far."""

    def random_actions(self, rng: np.random.Generator) -> np.ndarray:
        """Return random actions [n, nu] in the action space."""
        space = self.environments[0].action_space
        return rng.uniform(space.low, space.high, (len(self.lanes), *space.shape)).astype(space.dtype)

    def step(self, actions: np.ndarray) -> None:
        """Step the lanes and each environment that runs; begin episodes in the others."""
        pool, lanes = self.pool, self.lanes
        pool.step(lanes, {"action": actions[:, None]})
        observations, has_failed = pool.observe(lanes, "observation"), pool.observe(lanes, "failed")
        assert not has_failed.any()
        for k, environment in enumerate(self.environments):
            status = pool.status[lanes[k]]
            if self._is_over[k]:
                expected, _ = environment.reset(seed=self._next_seed[k])
                self._next_seed[k], self._is_over[k] = None, False
                assert status == RUNNING
                assert pool.reward[lanes[k], 0] == 0.0
            else:
                expected, reward, terminated, truncated, _ = environment.step(actions[k])
                assert status == (TERMINATED if terminated else INTERRUPTED if truncated else RUNNING)
                assert pool.reward[lanes[k], 0].tobytes() == np.float64(reward).tobytes()
                self._is_over[k] = terminated or truncated
                if self._is_over[k]:
                    self.ends[status] += 1
            assert observations.dtype == expected.dtype
            assert observations[k].tobytes() == expected.tobytes()
