"""Rewards and observations of dm_control tasks for many lanes at once, with the same bits as dm_control's own code.

The same operations in the same order on arrays [n, ...] give the same bits, with two exceptions. NumPy squares a single
number with the C library's pow, but an array by multiplication, or with its own vector code on processors with AVX-512;
the three differ in the last bit now and then. So where dm_control computes a gaussian tolerance of a single number,
`gaussian_tolerance` is used. And norms go through BLAS, as `numpy.linalg.norm` does for a vector.

The family compares these rewards with dm_control's before it uses them: dm_control or NumPy may change.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.dm_control.suite import rewards
from worldloom.worlds.mujoco.simulation.data import LaneArrays

XX, XY, XZ, YX, YY, YZ, ZX, ZY, ZZ = range(9)
"""Columns of a flattened rotation matrix [n, ..., 9], as dm_control names them."""


class TaskRewards(ABC):
    """Rewards and observations of a dm_control task for many lanes.

    It does not keep the model: `observations` refers back to it, so it is freed by the garbage collector, some time
    after everything else that belongs to a family.
    """

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        self.task = task
        self.observations: dict[str, Callable[[LaneArrays], F64]] = {"velocity": lambda lanes: lanes.qvel}
        """Functions that compute each observation, [n, *shape]."""

    @abstractmethod
    def reward(self, lanes: LaneArrays) -> F64:
        """Return the rewards of the last step, [n]."""


def sensor_columns(model: mujoco.MjModel, *names: str) -> list[int]:
    """Return the columns of `sensordata` that hold the readings of these sensors."""
    sensors = [model.sensor(name) for name in names]
    return [column for sensor in sensors for column in range(sensor.adr[0], sensor.adr[0] + sensor.dim[0])]


def tolerance(x: F64, bounds: tuple[float, float] = (0.0, 0.0), **edge: Any) -> F64:
    """Return dm_control's tolerance of each element, computed on the array as dm_control does for arrays."""
    return np.asarray(rewards.tolerance(x, bounds, **edge))


@kernel_holding_gil
def pow_each(x: F64, exponent: float, out: F64) -> None:
    """Raise each element to a power with the C library's pow, as Python and NumPy do with a single number.

    The exponent is an argument, since a constant one would be compiled into multiplications.
    """
    for k in range(x.size):
        out[k] = x[k] ** exponent


def gaussian_tolerance(x: F64, lower: float, upper: float, margin: float) -> F64:
    """Return dm_control's tolerance of each element, with the bits that it gives for single numbers.

    Its sigmoid is gaussian and has the value 0.1 at the margin, dm_control's defaults.
    """
    scale = np.sqrt(-2 * np.log(0.1))
    beyond = np.where(x < lower, lower - x, x - upper) / margin
    squared = np.empty(len(x))
    pow_each(beyond * scale, 2.0, squared)
    edge = np.exp(-0.5 * squared)
    return np.where(np.logical_and(lower <= x, x <= upper), 1.0, edge)


def norm(vectors: F64) -> F64:
    """Return the lengths of vectors [n, k]."""
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors)))


def small_control(lanes: LaneArrays) -> F64:
    """Return the mean over the actuators of 1 for no control, falling to 0 for full control."""
    effort = tolerance(lanes.ctrl, margin=1, value_at_margin=0, sigmoid="quadratic")
    return np.asarray(effort.mean(axis=1))
