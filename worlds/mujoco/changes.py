"""What differs between the models of lanes: a few arrays, kept for each lane as bytes, put into a model when needed.

Some tasks change their model when an episode begins: where a target is, how large, how steep the ground. A model is
mostly textures and meshes, megabytes that are the same for all. So lanes keep what changes, and whoever simulates has a
model to put it into.
"""

from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import I64, U8
from worldloom.render.memory import place_of


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
        return np.array([place_of(getattr(model, name)) for name in self._names], np.int64)


def arrays_of(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Copies of all arrays of a model, by name."""
    found: dict[str, Any] = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    return {name: value.copy() for name, value in found.items() if isinstance(value, np.ndarray) and value.size}


def changed(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> set[str]:
    """The names of arrays that are not the same in both."""
    return {name for name, value in one.items() if not np.array_equal(value, two[name])}
