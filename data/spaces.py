"""Gymnasium spaces of a dataset's columns, and actions that are one array, as those of a flat env.

A column keeps the bounds of its values in a form that fits into JSON: none where they are the limits of the dtype, one
number where all elements have the same, else nested lists.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from worldloom.data.layout import Arrays, Column, Description


def bounds_of(space: gymnasium.Space[Any]) -> tuple[Any, Any]:
    """Return the least and greatest values of a space, as columns keep them."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    assert isinstance(space, gymnasium.spaces.Box), "observations and actions are of one of these spaces"
    least, greatest = _limits(space.dtype)
    return _to_plain(space.low, least), _to_plain(space.high, greatest)


def space_of(column: Column) -> gymnasium.Space[Any]:
    """Return the space of a column: Discrete for actions that are an integer with limits, Box for everything else."""
    dtype = np.dtype(column.dtype)
    is_limited = column.low is not None and column.high is not None
    if column.role == "action" and dtype.kind in "iu" and not column.shape and is_limited:
        return gymnasium.spaces.Discrete(int(column.high) - int(column.low) + 1, start=int(column.low))
    least, greatest = _limits(dtype)
    low, high = _from_plain(column.low, least, column), _from_plain(column.high, greatest, column)
    return gymnasium.spaces.Box(low, high, column.shape, dtype)


class DatasetObservations:
    """The observations of a dataset as flat envs return them, if there is only one; else by name."""

    def __init__(self, description: Description) -> None:
        """Find the form: the Box of the observation, which has channels if it is a frame, or a Dict of all."""
        columns = description.of_role("observation")
        self.columns: Sequence[str] = [column.name for column in columns]
        self.is_flat = len(columns) == 1
        self._lacks_channels = self.is_flat and columns[0].is_frame and len(columns[0].shape) == 2
        spaces = {column.name: space_of(column) for column in columns}
        self.space: gymnasium.Space[Any] = gymnasium.spaces.Dict(spaces)
        if self._lacks_channels:
            box = spaces[self.columns[0]]
            assert isinstance(box, gymnasium.spaces.Box), "frames are of this space"
            self.space = gymnasium.spaces.Box(box.low[..., None], box.high[..., None], dtype=box.dtype)
        elif self.is_flat:
            self.space = spaces[self.columns[0]]

    def select(self, rows: Mapping[str, np.ndarray]) -> "np.ndarray | Arrays":
        """Return the observations of rows [rows, ...] in this form."""
        if not self.is_flat:
            return {name: rows[name] for name in self.columns}
        found = rows[self.columns[0]]
        return found[..., None] if self._lacks_channels else found


class DatasetActions:
    """The actions of a dataset as one array, as flat envs take them, if they have such a form; else by name."""

    def __init__(self, description: Description) -> None:
        """Find the form: Discrete or MultiDiscrete from 0 for integers with limits, a Box for floats, else a Dict."""
        self._spaces = {column.name: space_of(column) for column in description.of_role("action")}
        parts = list(self._spaces.values())
        self._starts: np.ndarray | None = None
        self.is_flat = True
        self.space: gymnasium.Space[Any]
        if all(isinstance(part, gymnasium.spaces.Discrete) for part in parts):
            counts = [int(part.n) for part in parts]  # type: ignore[attr-defined]  # each is Discrete
            self._starts = np.array([part.start for part in parts])  # type: ignore[attr-defined]
            single = len(counts) == 1
            self.space = gymnasium.spaces.Discrete(counts[0]) if single else gymnasium.spaces.MultiDiscrete(counts)
        elif all(isinstance(part, gymnasium.spaces.Box) and part.dtype.kind == "f" for part in parts):
            low, high = (
                np.concatenate([np.ravel(getattr(part, bound)) for part in parts]) for bound in ("low", "high")
            )
            self.space = gymnasium.spaces.Box(low, high, dtype=np.result_type(low))
        else:
            self.is_flat = False
            self.space = gymnasium.spaces.Dict({_short(name): part for name, part in self._spaces.items()})

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns."""
        return list(self._spaces)

    def select(self, rows: Mapping[str, np.ndarray]) -> "np.ndarray | Arrays":
        """Return the actions of rows [rows, ...] in this form."""
        values = [rows[name] for name in self._spaces]
        if not self.is_flat:
            return {_short(name): array for name, array in zip(self._spaces, values, strict=True)}
        if self._starts is not None:
            shifted: np.ndarray = np.stack(values, axis=-1).astype(np.int64) - self._starts
            return shifted[:, 0] if len(values) == 1 else shifted
        return np.concatenate([array.reshape(len(array), -1) for array in values], axis=1)


def _short(column: str) -> str:
    return column.removeprefix("action.")


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return (0, 1) if dtype.kind == "b" else (-np.inf, np.inf)


def _to_plain(bound: np.ndarray, limit: Any) -> Any:
    is_limit = bound == limit
    if is_limit.all():
        return None
    if (bound == bound.reshape(-1)[0]).all():
        return bound.reshape(-1)[0].item()
    plain = bound.astype(object)
    plain[is_limit] = None
    return plain.tolist()


def _from_plain(bound: Any, limit: Any, column: Column) -> np.ndarray:
    def fill(value: Any) -> Any:
        return [fill(one) for one in value] if isinstance(value, list) else limit if value is None else value

    return np.broadcast_to(np.array(fill(bound), column.dtype), column.shape).copy()
