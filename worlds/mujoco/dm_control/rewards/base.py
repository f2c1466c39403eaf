"""Rewards and observations of dm_control's tasks for many lanes at once, with the same bits as dm_control's own code.

The same operations in the same order on arrays [n, …] give the same bits, with two exceptions. NumPy squares a single
number with the C library's pow, and an array by multiplication, or with vector code of its own where the processor has
AVX-512; all three differ in the last bit now and then. So what dm_control computes of a single number is computed by
`bell`. And norms go through BLAS, as `numpy.linalg.norm` does for a vector.

Whoever uses a judge tries it first: dm_control may change, and so may NumPy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.dm_control.suite import rewards
from worldloom.worlds.mujoco.simulation.data import Numbers

XX, XY, XZ, YX, YY, YZ, ZX, ZY, ZZ = range(9)
"""Columns of a rotation matrix, as dm_control names them."""


class Judge(ABC):
    """The reward of a task, and what is observed of it by name."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        self.task, self.model = task, model
        self.observations: dict[str, Callable[[Numbers], F64]] = {"velocity": lambda lanes: lanes.qvel}

    @abstractmethod
    def reward(self, lanes: Numbers) -> F64:
        """Of the last step, [n]."""

    def sensor(self, *names: str) -> list[int]:
        """Where in sensordata these sensors are."""
        found = [self.model.sensor(name) for name in names]
        return [place for one in found for place in range(one.adr[0], one.adr[0] + one.dim[0])]


def tolerance(x: F64, bounds: tuple[float, float] = (0.0, 0.0), **edge: Any) -> F64:
    """dm_control's own, for arrays."""
    return np.asarray(rewards.tolerance(x, bounds, **edge))


@kernel_holding_gil
def raise_each(x: F64, exponent: float, out: F64) -> None:
    """Raise each number to a power with the C library's pow, as Python and NumPy do with a single number.

    The exponent is an argument, since a constant one would be compiled into multiplications.
    """
    for k in range(x.size):
        out[k] = x[k] ** exponent


def bell(x: F64, lower: float, upper: float, margin: float) -> F64:
    """dm_control's tolerance with a gaussian edge and its usual value there, for each of many single numbers."""
    scale = np.sqrt(-2 * np.log(0.1))
    beyond = np.where(x < lower, lower - x, x - upper) / margin
    squared = np.empty(len(x))
    raise_each(beyond * scale, 2.0, squared)
    edge = np.exp(-0.5 * squared)
    return np.where(np.logical_and(lower <= x, x <= upper), 1.0, edge)


def norm(vectors: F64) -> F64:
    """The lengths of vectors [n, k]."""
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors)))
