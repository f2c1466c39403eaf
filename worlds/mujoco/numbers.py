"""The numbers of many simulations at once, as arrays with a row for each lane."""

import mujoco
import numpy as np

from worldloom.kernels.mujoco_step import gather
from worldloom.kernels.tables import F64, I64
from worldloom.render.memory import NUMBERS
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.places import FIELDS


class Numbers:
    """The numbers of some lanes, as arrays with a row for each: `qpos` [n, nq], `xpos` [n, nbody, 3], and so on.

    They are named as in an MjData, and copies, made when asked for.
    """

    def __init__(self, model: mujoco.MjModel, state: State, lanes: I64) -> None:
        self.model = model
        self._state, self._lanes = state, lanes
        self._template: mujoco.MjData = state.simulation[lanes[0]]

    def __len__(self) -> int:
        return len(self._lanes)

    def __getattr__(self, name: str) -> F64:
        if name not in FIELDS:
            raise AttributeError(f"no numbers {name!r}: expected some of {', '.join(FIELDS)}")
        shape = getattr(self._template, name).shape
        out = np.empty((len(self._lanes), int(np.prod(shape))))
        gather(self._lanes, self._state.places, FIELDS.index(name), np.arange(out.shape[1]), NUMBERS, out)
        return out.reshape(len(self._lanes), *shape)

    def sensor(self, name: str) -> F64:
        """What a sensor reads, [n, its numbers]."""
        sensor = self.model.sensor(name)
        return self.sensordata[:, sensor.adr[0] : sensor.adr[0] + sensor.dim[0]]
