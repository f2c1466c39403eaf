"""Where the numbers of a simulation lie in memory: how kernels read and write what MuJoCo computes, without copies.

An MjData keeps its arrays where they are for as long as it lives. So a lane's places are found once, and kernels go
through `worldloom.render.arena.PROCESS_FLOAT64`, all memory as float64.

The numbers of many simulations at once, as arrays with a row for each lane.

What differs between the models of lanes: a few arrays, kept for each lane as bytes, put into a model when needed.

Some tasks change their model when an episode begins: where a target is, how large, how steep the ground. A model is
mostly textures and meshes, megabytes that are the same for all. So lanes keep what changes, and whoever simulates has a
model to put it into.
"""

from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, I64, U8
from worldloom.render.arena import PROCESS_FLOAT64, address_of, float64_index_of
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.simulation.kernels import gather

FIELDS = (
    *("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "sensordata"),
    *("xpos", "xquat", "xmat", "xipos", "subtree_com"),
    *("geom_xpos", "geom_xmat", "site_xpos", "site_xmat"),
    *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "wrap_xpos"),
)
"""Arrays of float64 in an MjData, in the order of the columns of a table of places."""
QPOS, QVEL, ACT, CTRL, QACC_WARMSTART, SENSORDATA = range(6)
XPOS, XQUAT, XMAT, XIPOS, SUBTREE_COM = range(6, 11)
GEOM_XPOS, GEOM_XMAT, SITE_XPOS, SITE_XMAT = range(11, 15)
CAM_XPOS, CAM_XMAT, LIGHT_XPOS, LIGHT_XDIR, WRAP_XPOS = range(15, 20)


def places_of(data: mujoco.MjData) -> I64:
    """The places [len(FIELDS)] of a simulation's arrays. It must live for as long as they are used."""
    return np.array([float64_index_of(getattr(data, name)) for name in FIELDS], np.int64)


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
        gather(self._lanes, self._state.places, FIELDS.index(name), np.arange(out.shape[1]), PROCESS_FLOAT64, out)
        return out.reshape(len(self._lanes), *shape)

    def sensor(self, name: str) -> F64:
        """What a sensor reads, [n, its numbers]."""
        sensor = self.model.sensor(name)
        return self.sensordata[:, sensor.adr[0] : sensor.adr[0] + sensor.dim[0]]


class Changes:
    """Some arrays of models that all have the same sizes."""

    def __init__(self, names: Iterable[str], model: mujoco.MjModel) -> None:
        self._names = tuple(sorted(names))
        self.lengths: I64 = np.array([getattr(model, name).nbytes for name in self._names], np.int64)
        self.size_bytes = int(self.lengths.sum())

    def read(self, model: mujoco.MjModel) -> U8:
        """What a model has of them."""
        parts = [np.ascontiguousarray(getattr(model, name)).view(np.uint8).ravel() for name in self._names]
        return np.concatenate([np.zeros(0, np.uint8), *parts])

    def write(self, row: U8, model: mujoco.MjModel) -> None:
        """Make a model have these."""
        first = 0
        for name, length in zip(self._names, self.lengths.tolist(), strict=True):
            array = getattr(model, name)
            array[...] = row[first : first + length].view(array.dtype).reshape(array.shape)
            first += length

    def places(self, model: mujoco.MjModel) -> I64:
        """Where in all memory a model has them. It must live for as long as that is used."""
        return np.array([address_of(getattr(model, name)) for name in self._names], np.int64)


def arrays_of(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Copies of all arrays of a model, by name."""
    found: dict[str, Any] = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    return {name: value.copy() for name, value in found.items() if isinstance(value, np.ndarray) and value.size}


def changed(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> set[str]:
    """The names of arrays that are not the same in both."""
    return {name for name, value in one.items() if not np.array_equal(value, two[name])}
