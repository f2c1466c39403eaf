"""Gymnasium spaces of a world's specs, and actions that are one array instead of a dict of arrays."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from worldloom.client.errors import BadAction, BadReply
from worldloom.client.specs import Spec


def build_action_space(specs: Iterable[Spec], lanes: int) -> spaces.Dict:
    """Build the action space of one lane: Discrete for integers with limits, Box for everything else."""
    return spaces.Dict({spec.name: _action_space(spec, lanes) for spec in specs})


def build_observation_space(specs: Iterable[Spec], lanes: int) -> spaces.Dict:
    """Build the observation space of one lane: a Box for each, which has exactly the dtype of the arrays."""
    return spaces.Dict({spec.name: _box(spec, lanes) for spec in specs})


class LaneSpaces(NamedTuple):
    """Spaces of one lane of an env, by name."""

    observations: dict[str, spaces.Space[Any]]
    actions: dict[str, spaces.Space[Any]]
    """In a flat env one of all actions, without a name."""
    is_flat: bool
    """Observations and actions are plain arrays instead of dicts."""

    def select(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Return arrays by name as the env does: a new dict of them, or the only one if it is flat."""
        return next(iter(arrays.values())) if self.is_flat else dict(arrays)


class FlatActions:
    """All actions of a family as one array: Discrete, MultiDiscrete from 0, or a Box of one dimension."""

    def __init__(self, specs: Mapping[str, Spec], lanes: int) -> None:
        """Take the specs of a world with so many lanes; ValueError if its actions have no form as one array."""
        self._parts = {name: _action_space(spec, lanes) for name, spec in specs.items()}
        kinds = {_flat_kind(part) for part in self._parts.values()}
        if len(kinds) != 1 or "" in kinds:
            raise ValueError(
                f"flat=True with the actions {self._parts}: expected integers with limits and no dimensions, or floats "
                "of any shape; use flat=False, which takes a dict of actions"
            )
        self._is_discrete = kinds == {"discrete"}
        self.space: spaces.Space[Any]
        if self._is_discrete:
            counts = [int(part.n) for part in self._parts.values()]  # type: ignore[attr-defined]
            self._starts = np.array([part.start for part in self._parts.values()])  # type: ignore[attr-defined]
            self.space = spaces.Discrete(counts[0]) if len(counts) == 1 else spaces.MultiDiscrete(counts)
            self._counts = np.array(counts)
        else:
            lows, highs = (
                np.concatenate([np.ravel(getattr(part, bound)) for part in self._parts.values()])
                for bound in ("low", "high")
            )
            self.space = spaces.Box(lows, highs, dtype=np.result_type(lows))

    def unflatten(self, actions: ArrayLike, lanes: int) -> dict[str, np.ndarray]:
        """Return the actions of some lanes by name; BadAction if they are not an array of the space's shape.

        Integers are checked here, where they are counted from 0; the range of floats is left to the encoder.
        """
        try:
            given = np.asarray(actions)
        except ValueError as error:  # lists of different lengths
            raise BadAction(f"actions are not an array ({error}): expected {self._expected(lanes)}") from error
        if given.shape != (lanes, *self.space.shape):  # type: ignore[misc]  # these spaces have one
            raise BadAction(f"actions have shape {list(given.shape)}: expected {self._expected(lanes)}")
        if self._is_discrete:
            return self._unflatten_discrete(given, lanes)
        if given.dtype.kind not in "fiu":
            raise BadAction(f"actions have dtype {given.dtype}: expected {self._expected(lanes)}")
        found = {}
        start = 0
        for name, part in self._parts.items():
            shape: tuple[int, ...] = part.shape  # type: ignore[assignment]  # a Box has one
            stop = start + int(np.prod(shape))
            found[name] = given[:, start:stop].reshape(lanes, *shape)
            start = stop
        return found

    def _unflatten_discrete(self, given: np.ndarray, lanes: int) -> dict[str, np.ndarray]:
        if given.dtype.kind not in "iu":
            raise BadAction(f"actions have dtype {given.dtype}: expected {self._expected(lanes)}")
        columns = given.reshape(lanes, len(self._counts))
        is_inside = (columns >= 0) & (columns < self._counts)
        if not is_inside.all():
            lane, column = np.argwhere(~is_inside)[0].tolist()
            where = [lane] if given.ndim == 1 else [lane, column]
            raise BadAction(f"actions are {columns[lane, column]} at {where}: expected {self._expected(lanes)}")
        shifted = columns.astype(np.int64) + self._starts
        return {name: shifted[:, index] for index, name in enumerate(self._parts)}

    def _expected(self, lanes: int) -> str:
        names = ", ".join(self._parts)
        shape = [lanes, *(self.space.shape or ())]
        if self._is_discrete:
            counts = self._counts.tolist()
            return (
                f"integers {shape} from 0 to {counts[0] - 1 if len(counts) == 1 else [n - 1 for n in counts]}, {names}"
            )
        return f"{self.space.dtype} {shape}, {names}"


def _flat_kind(part: spaces.Space[Any]) -> str:
    if isinstance(part, spaces.Discrete):
        return "discrete"
    return "float" if isinstance(part, spaces.Box) and part.dtype.kind == "f" else ""


def _action_space(spec: Spec, lanes: int) -> spaces.Space[Any]:
    box = _box(spec, lanes)
    if np.dtype(spec.dtype).kind in "iu" and box.shape == () and spec.low is not None and spec.high is not None:
        start = int(box.low)
        return spaces.Discrete(int(box.high) - start + 1, start=start)
    return box


def _box(spec: Spec, lanes: int) -> "spaces.Box[Any]":
    shape = spec.shape[1:]
    if spec.shape[:1] != (lanes,):
        raise BadReply(f"{spec.name!r} has shape {list(spec.shape)}: expected a leading dimension of {lanes} lanes")
    dtype = np.dtype(spec.dtype)
    least: Any = -np.inf
    greatest: Any = np.inf
    if dtype.kind in "iu":
        least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif dtype.kind == "b":
        least, greatest = 0, 1
    low, high = (
        np.array(np.broadcast_to(np.asarray(limit if bound is None else bound, dtype), spec.shape)[0])
        for limit, bound in ((least, spec.low), (greatest, spec.high))
    )
    return spaces.Box(low, high, shape, dtype)
