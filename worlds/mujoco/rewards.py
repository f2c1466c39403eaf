"""Rewards of models that an operator's own code gives: functions of many lanes at once.

    from worldloom.worlds.mujoco.family import Mujoco
    from worldloom.worlds.mujoco.rewards import Numbers, register_reward

    def upright(lanes: Numbers) -> np.ndarray:
        return lanes.xmat[:, lanes.model.body("torso").id, 8]

    register_reward("robot.xml", upright)

A module with this is named to the server as `--family my_rewards:Mujoco`.
"""

from collections.abc import Callable
from typing import TypeAlias

import mujoco
import numpy as np

from worldloom.kernels.mujoco_step import gather
from worldloom.kernels.tables import F64, I64
from worldloom.render.memory import NUMBERS
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.places import FIELDS


class Numbers:
    """The numbers of some lanes, as arrays with a row for each: `qpos` [n, nq], `xpos` [n, nbody, 3], and so on, named as
    in an MjData. They are copies, made when asked for."""

    def __init__(self, model: mujoco.MjModel, state: State, lanes: I64) -> None:
        self.model = model
        self._state, self._lanes = state, lanes
        self._template: mujoco.MjData = state.simulation[lanes[0]]

    def __getattr__(self, name: str) -> F64:
        if name not in FIELDS:
            raise AttributeError(f"no numbers {name!r}: expected some of {', '.join(FIELDS)}")
        shape = getattr(self._template, name).shape
        out = np.empty((len(self._lanes), int(np.prod(shape))))
        places = np.ascontiguousarray(self._state.places[:, FIELDS.index(name)])
        gather(self._lanes, places, np.arange(out.shape[1]), NUMBERS, out)
        return out.reshape(len(self._lanes), *shape)

    def sensor(self, name: str) -> F64:
        """What a sensor reads, [n, its numbers]."""
        sensor = self.model.sensor(name)
        return self.sensordata[:, sensor.adr[0] : sensor.adr[0] + sensor.dim[0]]


Reward: TypeAlias = Callable[[Numbers], "np.ndarray | tuple[np.ndarray, np.ndarray]"]
"""Rewards [n] of lanes after a step; or these, and whether each lane's episode is over."""

_rewards: dict[str, Reward] = {}


def register_reward(model: str, function: Reward) -> None:
    """Give a model, named as in the setting `model`, a reward; instead of the one it had, if it had one."""
    _rewards[model] = function


def reward_of(model: str) -> Reward | None:
    """The reward that was registered for a model."""
    return _rewards.get(model)
