"""Spaces of Gymnasium as specs: names, dtypes and bounds, and values as arrays of fixed shape.

A Box, Discrete, MultiDiscrete or MultiBinary space is one array. A Dict or Tuple is those of its members, with their
keys or numbers in the names: `observation.desired_goal`, `action.0`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from worldloom.worlds.family import Bound, Spec
from worldloom.worlds.settings import SettingError

_WIDENED = {"float16": "float32", "int16": "int32", "uint16": "int32", "longdouble": "float64", "float128": "float64"}
"""Dtypes that messages do not have, and those that hold all their values."""
_DTYPES = frozenset({"float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64", "bool"})
_MAX_ARRAYS, _MAX_DEPTH = 64, 8
"""Most arrays of a space, and most levels of Dict and Tuple."""
_MAX_ELEMENTS = 1 << 24
"""Most elements of one array."""
_MAX_BOUNDS = 1024
"""Most elements that have bounds of their own; larger arrays have the widest of them for all."""


class _Array(NamedTuple):
    """One array of a space: where it is in a value, and the space of it."""

    keys: tuple[Any, ...]
    space: spaces.Space[Any]


class SpaceArrays:
    """The arrays of a space. `name` is that of the space itself: `observation` or `action`."""

    def __init__(self, name: str, space: spaces.Space[Any], text: str) -> None:
        self._space = space
        self._arrays: list[_Array] = []
        specs: list[Spec] = []
        for full_name, array in _walk(name, space, ()):
            self._arrays.append(array)
            specs.append(_spec(full_name, array.space, text))
            if len(specs) > _MAX_ARRAYS:
                raise SettingError(f"the {name} space of this environment has more than {_MAX_ARRAYS} arrays")
        names = [spec.name for spec in specs]
        if len(set(names)) < len(names):
            raise SettingError(f"the {name} space of this environment has keys that differ in nothing but their case")
        self.specs = tuple(specs)
        """The spec of each array."""

    def write(self, value: Any, rows: Sequence[np.ndarray]) -> None:
        """Write the arrays of a value into `rows`, one for each spec; raise ValueError or TypeError if one differs."""
        for array, spec, row in zip(self._arrays, self.specs, rows, strict=True):
            part = np.asarray(_get(value, array.keys))
            if part.shape != spec.shape:
                raise ValueError(f"{spec.name} has the shape {list(part.shape)}: expected {list(spec.shape)}")
            np.copyto(row, part, casting="same_kind")

    def read(self, parts: Sequence[np.ndarray]) -> Any:
        """Return the value that these arrays are, one for each spec, in the form that the space has."""
        values = iter(parts)
        return _build(self._space, lambda space: _native(space, next(values)))


def _walk(name: str, space: spaces.Space[Any], keys: tuple[Any, ...]) -> Iterator[tuple[str, _Array]]:
    """Yield the name and place of each array of a space."""
    if len(keys) > _MAX_DEPTH:
        raise SettingError(f"the space {name!r} of this environment has more than {_MAX_DEPTH} levels")
    if isinstance(space, spaces.Dict):
        for key, member in space.spaces.items():
            yield from _walk(f"{name}.{_clean(str(key))}", member, (*keys, key))
    elif isinstance(space, spaces.Tuple):
        for number, member in enumerate(space.spaces):
            yield from _walk(f"{name}.{number}", member, (*keys, number))
    elif isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        yield name, _Array(keys, space)
    else:
        raise SettingError(
            f"the space {name!r} of this environment is {type(space).__name__}: expected Box, Discrete, MultiDiscrete, "
            "MultiBinary, or a Dict or Tuple of these, whose values are arrays of fixed shape"
        )


def _clean(key: str) -> str:
    """Return a key in lower case letters, digits, '_' and '-'."""
    return re.sub(r"[^a-z0-9_-]", "_", key.lower()) or "_"


def _spec(name: str, space: spaces.Space[Any], text: str) -> Spec:
    assert space.dtype is not None
    dtype = _WIDENED.get(space.dtype.name, space.dtype.name)
    if dtype not in _DTYPES:
        raise SettingError(f"the space {name!r} of this environment has the dtype {dtype}: expected a number or a bool")
    shape = tuple(int(side) for side in space.shape or ())
    if np.prod(shape, dtype=np.float64) > _MAX_ELEMENTS:
        raise SettingError(f"the space {name!r} of this environment has the shape {list(shape)}, which is too large")
    low, high = _bounds(space)
    return Spec(name, dtype, shape, text, bound(low), bound(high, is_upper=True))


def _bounds(space: spaces.Space[Any]) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start), np.asarray(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return np.zeros(space.shape or (), np.int8), np.ones(space.shape or (), np.int8)


def bound(values: np.ndarray, is_upper: bool = False) -> Bound:
    """Return a bound as Spec has it: one number if all elements agree, None if no element is limited."""
    if not values.size or (values.dtype.kind == "f" and np.isinf(values).all()) or values.dtype == np.bool_:
        return None
    if values.size > _MAX_BOUNDS:
        values = values.max(keepdims=True) if is_upper else values.min(keepdims=True)
    first = values.flat[0]
    return first.item() if (values == first).all() else tuple(values.ravel().tolist())


def _get(value: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


def _build(space: spaces.Space[Any], next_part: Callable[[spaces.Space[Any]], Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _build(member, next_part) for key, member in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_build(member, next_part) for member in space.spaces)
    return next_part(space)


def _native(space: spaces.Space[Any], part: np.ndarray) -> Any:
    """Return an array in the dtype of its space, as an object of its own: environments may keep or change it."""
    if isinstance(space, spaces.Discrete):
        return np.int64(part)
    return part.astype(space.dtype, copy=True)
