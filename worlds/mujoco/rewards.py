"""Rewards of models that an operator's own code gives: functions of many lanes at once.

    from worldloom.worlds.mujoco.family import Mujoco
    from worldloom.worlds.mujoco.simulation.data import Numbers
    from worldloom.worlds.mujoco.rewards import register_reward

    def upright(lanes: Numbers) -> np.ndarray:
        return lanes.xmat[:, lanes.model.body("torso").id, 8]

    register_reward("robot.xml", upright)

A module with this is named to the server as `--family my_rewards:Mujoco`.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from worldloom.worlds.mujoco.simulation.data import Numbers

Reward: TypeAlias = Callable[[Numbers], "np.ndarray | tuple[np.ndarray, np.ndarray]"]
"""Rewards [n] of lanes after a step; or these, and whether each lane's episode is over."""

_rewards: dict[str, Reward] = {}


def register_reward(model: str, function: Reward) -> None:
    """Give a model, named as in the setting `model`, a reward; instead of the one it had, if it had one."""
    _rewards[model] = function


def reward_of(model: str) -> Reward | None:
    """The reward that was registered for a model."""
    return _rewards.get(model)
