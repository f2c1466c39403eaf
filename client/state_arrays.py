"""Arrays of states: read from NumPy, torch or JAX without a copy, checked, and cut into batches."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from worldloom.client.errors import BadAction
from worldloom.client.specs import Spec
from worldloom.kernels.drawing_states import read_array

_SMALL_BATCH = 32
"""Number of states below which the last batch is filled up to a power of two, instead of being divided further."""
QPOS = "qpos"
_NO_JOINTS = Spec(0, QPOS, "float64", (0,), None, None)
"""Joint positions of a model without joints, which have none to send."""
_PARTS = frozenset({"act", "mocap_pos", "mocap_quat"})
"""Parts that states of MuJoCo have, though those of a model may be without."""
_UNSENT = frozenset({"act"})
"""Parts of a state that no frame depends on: they are checked, and not sent."""


class StateBatch:
    """States that were checked: their number, and their arrays by name."""

    def __init__(self, count: int, arrays: Mapping[str, np.ndarray], specs: Mapping[str, Spec], first: int) -> None:
        self.count = count
        self.first = first
        """Number of the first state among all that were given, for errors."""
        self._arrays = arrays
        self._specs = specs

    @property
    def has_colors(self) -> bool:
        """Colours of geoms are part of the states."""
        return "geom_rgba" in self._arrays

    def actions(self, first: int, end: int, lanes: int) -> dict[str, np.ndarray]:
        """Return the actions of a step that sets states `first` to `end`; the last one again in lanes that are left."""
        actions = {}
        for name, array in self._arrays.items():
            spec = self._specs[name]
            if name in _UNSENT or spec is _NO_JOINTS:
                continue
            is_for_all = array.ndim == len(spec.shape)
            rows = array if is_for_all else array[first:end]
            if not is_for_all and end - first == lanes:
                actions[name] = np.ascontiguousarray(rows, spec.wire_dtype)
                continue
            actions[name] = filled = np.empty((lanes, *spec.shape), spec.wire_dtype)
            filled[: end - first] = rows
            filled[end - first :] = filled[end - first - 1]
        return actions


class StateParser:
    """Checks of the arrays of states of one model; `specs` are those of the actions of one state."""

    def __init__(self, specs: Mapping[str, Spec]) -> None:
        self._specs = {QPOS: _NO_JOINTS, **specs}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of one state, by name."""
        return {name: spec.shape for name, spec in self._specs.items()}

    def parse(self, states: Any, more: Mapping[str, Any] | None = None, first: int = 0) -> StateBatch:
        """Return the states of an array of joint positions, or of a dict of arrays, and of more arrays by name.

        BadAction if they are not as the model needs them; `first` is the number of the first state in errors.
        """
        given = dict(states) if isinstance(states, Mapping) else {QPOS: states}
        for name, value in (more or {}).items():
            if value is not None:
                if name in given:
                    raise BadAction(f"{name!r} is in the states and a keyword too: expected it once")
                given[name] = value
        for name in [name for name in given if name in _PARTS and name not in self._specs]:
            if not as_array(name, given[name]).size:
                del given[name]  # the model has none of these, and an array without numbers says so
        for name in given:
            if name not in self._specs:
                raise BadAction(
                    f"{name!r} is not part of a state of this model: expected some of {', '.join(self._specs)}"
                )
        arrays = {name: as_array(name, value) for name, value in given.items()}
        if not arrays:
            raise BadAction(f"no states: expected arrays by name, some of {', '.join(self._specs)}")
        counts = {name: len(array) for name, array in arrays.items() if self._has_rows(name, array)}
        for name, array in arrays.items():
            self._check_form(name, array, counts)
        if not counts:
            name = next(iter(arrays))
            raise BadAction(
                f"{name} has shape {list(arrays[name].shape)}: expected {self._form(name)}, a row for each state; for "
                f"one state give {name}[None]"
            )
        count = next(iter(counts.values()))
        for name, other in counts.items():
            if other != count:
                raise BadAction(f"{name} has {other} states: expected {count}, as {next(iter(counts))} has")
        for name, array in arrays.items():
            self._check_range(name, array, first if name in counts else None)
        return StateBatch(count, arrays, self._specs, first)

    def split(self, states: Any, batch_size: int) -> Iterator[Any]:
        """Yield the parts of an array or a dict of arrays; or what an iterable yields, as it is."""
        is_array = hasattr(states, "__dlpack__") or isinstance(states, np.ndarray)
        if not is_array and not isinstance(states, Mapping):
            if isinstance(states, str | bytes) or not isinstance(states, Iterable):
                raise TypeError(
                    f"states are {type(states).__name__}: expected an array, a dict of arrays, or an iterable"
                )
            yield from states
            return
        by_name = states if isinstance(states, Mapping) else {QPOS: states}
        arrays = {name: as_array(name, value) for name, value in by_name.items()}
        if QPOS not in arrays:
            raise BadAction(f"states have {', '.join(arrays) or 'no arrays'}: expected {QPOS!r} among them")
        count = len(arrays[QPOS]) if arrays[QPOS].ndim else 0
        has_rows = {name: name not in self._specs or self._has_rows(name, array) for name, array in arrays.items()}
        for first in range(0, count, batch_size):
            part = slice(first, first + batch_size)
            yield {name: array[part] if has_rows[name] else array for name, array in arrays.items()}

    def _has_rows(self, name: str, array: np.ndarray) -> bool:
        """Return True for an array with a row for each state, False for one that is for all."""
        return array.ndim == len(self._specs[name].shape) + 1

    def _check_form(self, name: str, array: np.ndarray, counts: Mapping[str, int]) -> None:
        if array.dtype.kind not in "fiu":
            raise BadAction(f"{name} has dtype {array.dtype}: expected numbers {self._form(name)}")
        shape = array.shape[1:] if name in counts else array.shape
        if shape != self._specs[name].shape or (name == QPOS and name not in counts):
            hint = f"; for one state give {name}[None]" if shape == self._specs[name].shape else ""
            raise BadAction(f"{name} has shape {list(array.shape)}: expected {self._form(name)}{hint}")

    def _check_range(self, name: str, array: np.ndarray, first: int | None) -> None:
        spec = self._specs[name]
        limits = np.finfo(np.float64)
        low = limits.min if spec.low is None else float(np.min(spec.low))
        high = limits.max if spec.high is None else float(np.max(spec.high))
        if not array.size or (low <= float(array.min()) and float(array.max()) <= high):
            return
        is_inside = (array >= low) & (array <= high)
        index = [int(place) for place in np.unravel_index(int(np.argmin(is_inside)), array.shape)]
        value = array[tuple(index)]
        where = f"{name} of state {first + index.pop(0)}" if first is not None else name
        expected = f"a finite number from {low:g} to {high:g}"
        raise BadAction(f"{where} is {value} at {index}: expected {expected}")

    def _form(self, name: str) -> str:
        return f"[N, {', '.join(map(str, self._specs[name].shape))}]"


def as_array(name: str, value: Any) -> np.ndarray:
    """Return an array as NumPy's, without a copy where it is in the memory of the CPU; BadAction if it is not."""
    try:
        return read_array(name, value)
    except ValueError as error:
        raise BadAction(str(error)) from error


def divide_states(count: int, largest: int) -> Iterator[tuple[int, int, int]]:
    """Yield the batches of so many states: first state, end, and lanes of the world that draws them.

    Worlds have a power of two lanes, or the largest number. The last few states do not fill theirs.
    """
    first = 0
    while first < count:
        left = count - first
        lanes = largest
        if left < largest:
            lanes = min(largest, round_up(left))
            if lanes > left >= _SMALL_BATCH:
                lanes //= 2
        end = min(count, first + lanes)
        yield first, end, lanes
        first = end


def round_up(count: int) -> int:
    """Return the least power of two that is not less."""
    return 1 << (count - 1).bit_length()
