"""Environments of other packages, trained from pixels by Stable-Baselines3 through the family gym."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO

from worldloom.client.adaptors.sb3 import SB3VecEnv
from worldloom.worlds.gym.permissions import allow_gym_ids, import_gym_modules


@pytest.fixture(autouse=True)
def permissions() -> Iterator[None]:
    import_gym_modules(["gymnasium_robotics"])
    allow_gym_ids(["PointMaze*", "AntMaze*"])
    yield
    allow_gym_ids([])


@pytest.mark.parametrize("env_id", ["PointMaze_UMaze-v3", "AntMaze_UMaze-v5"])
def test_tasks_of_gymnasium_robotics_are_trained_from_pixels(env_id: str) -> None:
    settings: dict[str, Any] = {"id": env_id, "max_steps": 12}
    env = SB3VecEnv("local", "gym", 4, settings=settings, width=40, height=40, observations=["eye.rgb"])
    model = PPO("CnnPolicy", env, n_steps=16, batch_size=32, n_epochs=2, seed=0)
    assert env.observation_space.shape == (3, 40, 40)
    before = [value.detach().clone() for value in model.policy.parameters()]
    model.learn(128)
    after = [value.detach() for value in model.policy.parameters()]
    moved = [float((now - value).abs().max()) for now, value in zip(after, before, strict=True)]
    assert all(np.isfinite(moved))
    assert sum(distance > 0 for distance in moved) > len(moved) // 2
    assert len(model.ep_info_buffer or ()) == 4 * (32 // 12)  # episodes of 12 steps in two rollouts of 16
    env.close()
