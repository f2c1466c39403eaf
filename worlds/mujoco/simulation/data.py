"""Memory of simulations: addresses of MjData arrays, arrays of many lanes at once, and model arrays kept by lane.

Kernels read and write MuJoCo's arrays in place. An MjData never moves its arrays, so their addresses are looked up once
and stay valid for as long as the MjData lives. Addresses of float64 arrays are indices into
`worldloom.render.arena.PROCESS_FLOAT64`, a view of the whole process memory as float64.

Some tasks change their model when an episode begins: the position or size of a target, the slope of the ground. Most of
a model is textures and meshes, megabytes that are the same in all lanes. So lanes share one model, each lane keeps the
bytes of the arrays that differ, and these are written into the model before the lane is stepped or drawn.
"""

import functools
import math
from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, I64, U8
from worldloom.render.arena import PROCESS_FLOAT64, float64_index_of
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.simulation.kernels import gather, gather_columns

FIELDS = (
    *("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "sensordata"),
    *("xpos", "xquat", "xmat", "xipos", "subtree_com"),
    *("geom_xpos", "geom_xmat", "site_xpos", "site_xmat"),
    *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "wrap_xpos"),
    *("cinert", "cvel", "cfrc_ext", "qfrc_actuator", "qfrc_constraint"),
)
"""Names of float64 arrays of an MjData, in the order of the columns of an address table [lanes, fields]."""
QPOS, QVEL, ACT, CTRL, QACC_WARMSTART, SENSORDATA = range(6)
XPOS, XQUAT, XMAT, XIPOS, SUBTREE_COM = range(6, 11)
GEOM_XPOS, GEOM_XMAT, SITE_XPOS, SITE_XMAT = range(11, 15)
CAM_XPOS, CAM_XMAT, LIGHT_XPOS, LIGHT_XDIR, WRAP_XPOS = range(15, 20)


def field_addresses(data: mujoco.MjData) -> I64:
    """Return the addresses [len(FIELDS)] of an MjData's arrays, valid while it lives."""
    return np.array([float64_index_of(getattr(data, name)) for name in FIELDS], np.int64)


class Columns:
    """Single elements of the arrays FIELDS, to be read in many lanes at once: (name, index, ...) for each."""

    def __init__(self, model: mujoco.MjModel, *elements: tuple[str, *tuple[int, ...]]) -> None:
        data = mujoco.MjData(model)
        sources = [
            (FIELDS.index(name), np.ravel_multi_index(indices, getattr(data, name).shape))
            for name, *indices in elements
        ]
        self.sources: I64 = np.array(sources, np.int64)
        """Field and flat index of each element, [m, 2]."""


class LaneArrays:
    """Arrays of several lanes, named as in an MjData: `qpos` [n, nq], `xpos` [n, nbody, 3], and so on.

    Each attribute is a copy, made when it is read. `model` is the MjModel of the lanes.
    """

    def __init__(self, model: mujoco.MjModel, state: State, lanes: I64) -> None:
        self.model = model
        self._state, self._lanes = state, lanes
        self._shapes: dict[str, tuple[int, ...]] = state.simulation[lanes[0]].layout.shapes

    def __len__(self) -> int:
        return len(self._lanes)

    def __getattr__(self, name: str) -> F64:
        if name not in FIELDS:
            raise AttributeError(f"unknown array {name!r}: expected one of {', '.join(FIELDS)}")
        shape = self._shapes[name]
        elements = _elements(math.prod(shape))
        out = np.empty((len(self._lanes), len(elements)))
        gather(self._lanes, self._state.addresses, FIELDS.index(name), elements, PROCESS_FLOAT64, out)
        return out.reshape(len(self._lanes), *shape)

    def columns(self, columns: Columns) -> F64:
        """Return these elements, [m, n]: faster than whole arrays where a few elements of each are needed."""
        out = np.empty((len(columns.sources), len(self._lanes)))
        gather_columns(self._lanes, self._state.addresses, columns.sources, PROCESS_FLOAT64, out)
        return out

    def sensor(self, name: str) -> F64:
        """Return the readings of a sensor, [n, dimension of the sensor]."""
        sensor = self.model.sensor(name)
        return self.sensordata[:, sensor.adr[0] : sensor.adr[0] + sensor.dim[0]]


@functools.cache
def _elements(count: int) -> I64:
    """Return the indices of all elements of an array."""
    return np.arange(count)


class ModelOverrides:
    """The arrays of a model that each lane has its own values of, and their layout in a lane's bytes."""

    def __init__(self, names: Iterable[str], model: mujoco.MjModel) -> None:
        self.names = tuple(sorted(names))
        """Names of the arrays."""
        self.has_height_fields = "hfield_data" in self.names
        """True if each lane has its own height fields."""
        self.lengths_bytes: I64 = np.array([getattr(model, name).nbytes for name in self.names], np.int64)
        self.size_bytes = int(self.lengths_bytes.sum())

    def read(self, model: mujoco.MjModel) -> U8:
        """Return the bytes of these arrays in a model."""
        parts = [np.ascontiguousarray(getattr(model, name)).view(np.uint8).ravel() for name in self.names]
        return np.concatenate([np.zeros(0, np.uint8), *parts])

    def write(self, overrides: U8, model: mujoco.MjModel) -> None:
        """Write a lane's bytes into a model."""
        first = 0
        for name, length in zip(self.names, self.lengths_bytes.tolist(), strict=True):
            array = getattr(model, name)
            array[...] = overrides[first : first + length].view(array.dtype).reshape(array.shape)
            first += length

    def of_lanes(self, name: str, overrides: U8, model: mujoco.MjModel) -> np.ndarray:
        """Return an array of the models of lanes, [n, ...]; `overrides` [n, size_bytes] are the bytes of these."""
        array = getattr(model, name)
        if name not in self.names:
            return np.broadcast_to(array, (len(overrides), *array.shape))
        place = self.names.index(name)
        end = int(self.lengths_bytes[: place + 1].sum())
        own = np.ascontiguousarray(overrides[:, end - self.lengths_bytes[place] : end])
        return np.asarray(own.view(array.dtype).reshape(len(overrides), *array.shape))

    def copy_arrays(self, model: mujoco.MjModel) -> dict[str, np.ndarray]:
        """Return copies of these arrays of a model, by name."""
        return {name: getattr(model, name).copy() for name in self.names}


def copy_model_arrays(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Return copies of all arrays of a model, by name."""
    found: dict[str, Any] = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    return {name: value.copy() for name, value in found.items() if isinstance(value, np.ndarray) and value.size}


def differing_arrays(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> set[str]:
    """Return the names of the arrays whose values differ."""
    return {name for name, value in one.items() if not np.array_equal(value, other[name])}
