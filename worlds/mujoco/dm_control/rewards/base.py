"""Rewards and observations of dm_control tasks for many lanes at once, with the same bits as dm_control's own code.

The same operations in the same order on arrays [n, ...] give the same bits, with the exceptions that
`worlds/mujoco/simulation/arithmetic.py` names. So where dm_control computes a gaussian tolerance of a single number,
`gaussian_tolerance` is used.

The family compares these rewards with dm_control's before it uses them: dm_control or NumPy may change.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.simulation.arithmetic import pow_each
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


@kernel_holding_gil
def write_excess(x: F64, lower: float, upper: float, margin: float, scale: float, out: F64) -> None:
    """Write the distance of each element from the bounds, 0 within them, in margins and times `scale`."""
    for k in range(x.size):
        if lower <= x[k] <= upper:
            out[k] = 0.0
        else:
            out[k] = (lower - x[k] if x[k] < lower else x[k] - upper) / margin * scale


@kernel_holding_gil
def write_remainder(excess: F64, loss: F64, out: F64) -> None:
    """Write 1 less the loss of each element, and 0 where the excess is 1 or more."""
    for k in range(excess.size):
        out[k] = 1.0 - loss[k] if abs(excess[k]) < 1.0 else 0.0


def tolerance(
    x: F64,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    sigmoid: str = "gaussian",
    value_at_margin: float = 0.1,
) -> F64:
    """Return dm_control's tolerance of each element, with the bits that it gives for arrays.

    `sigmoid` is "gaussian", "linear" or "quadratic". Squares are NumPy's own, and no kernel multiplies and adds, which
    would be compiled into one instruction that rounds once.
    """
    lower, upper = bounds
    if margin == 0:
        return np.where((lower <= x) & (x <= upper), 1.0, 0.0)
    excess = _excess(x, bounds, margin, _sigmoid_scale(sigmoid, value_at_margin))
    if sigmoid == "gaussian":
        return np.exp(-0.5 * excess**2).reshape(x.shape)
    out = np.empty(excess.size)
    write_remainder(excess, excess if sigmoid == "linear" else excess**2, out)
    return out.reshape(x.shape)


def gaussian_tolerance(x: F64, bounds: tuple[float, float], margin: float) -> F64:
    """Return dm_control's tolerance of each element, with the bits that it gives for single numbers.

    Its sigmoid is gaussian and has the value 0.1 at the margin, dm_control's defaults.
    """
    excess = _excess(x, bounds, margin, _sigmoid_scale("gaussian", 0.1))
    pow_each(excess, 2.0, excess)
    return np.asarray(np.exp(-0.5 * excess)).reshape(x.shape)


def _excess(x: F64, bounds: tuple[float, float], margin: float, scale: float) -> F64:
    out = np.empty(x.size)
    write_excess(x.ravel(), float(bounds[0]), float(bounds[1]), float(margin), scale, out)
    return out


@functools.cache
def _sigmoid_scale(sigmoid: str, value_at_margin: float) -> float:
    """Return the scale by which a distance of one margin gets this value."""
    if sigmoid == "gaussian":
        return float(np.sqrt(-2 * np.log(value_at_margin)))
    return float(np.sqrt(1 - value_at_margin)) if sigmoid == "quadratic" else 1.0 - value_at_margin


def small_control(lanes: LaneArrays) -> F64:
    """Return the mean over the actuators of 1 for no control, falling to 0 for full control."""
    effort = tolerance(lanes.ctrl, margin=1, value_at_margin=0, sigmoid="quadratic")
    return np.asarray(effort.mean(axis=1))
