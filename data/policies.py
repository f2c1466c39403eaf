"""Policies: functions from a batch of observations and a generator of random numbers to a batch of actions.

    def act(observations, generator):          # observations: a dict of arrays [lanes, ...] by name
        return {"paddle": generator.integers(-1, 2, len(observations["eye.rgb"]))}

A policy may be any callable. If it has a parameter `is_first`, it is given a mask of the lanes whose episode begins
with these observations. If it has the methods `get_state`, which returns bytes, and `set_state`, which takes them, its
state is kept with each shard, and a collection that was stopped goes on with it.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import gymnasium
import numpy as np

from worldloom.data.errors import PolicyError
from worldloom.data.files import checksum_of_file

Observations = Mapping[str, np.ndarray]
Policy = Callable[..., Any]
NAMES = ("random", "idle")


class SavedPolicy(Protocol):
    """A policy whose state can be kept."""

    def __call__(self, observations: Observations, generator: np.random.Generator) -> Any:
        """Return actions."""

    def get_state(self) -> bytes:
        """Return the state."""

    def set_state(self, state: bytes) -> None:
        """Go on from a state."""


class LoadedPolicy:
    """A policy that is ready to act, and its name."""

    def __init__(self, given: "str | Policy", space: gymnasium.Space[Any], lanes: int) -> None:
        """Load a policy, given by its name, as MODULE:CALLABLE, or as a callable; PolicyError if there is none.

        `space` is the action space of one lane.
        """
        self.name = given if isinstance(given, str) else _name_of(given)
        assert isinstance(space, gymnasium.spaces.Dict), "actions of an env that is not flat have names"
        self._space, self._lanes = space, lanes
        self.hash = ""
        if given == "random":
            self._act: Policy = self._act_at_random
        elif given == "idle":
            self._act = self._idle
        elif isinstance(given, str):
            self._act, file = _load(given)
            self.hash = "" if file is None else checksum_of_file(file)[1]
        elif callable(given):
            self._act = given
        else:
            raise PolicyError(f"the policy is {given!r}: expected {_EXPECTED}, or a callable")
        try:
            parameters: Mapping[str, Any] = inspect.signature(self._act).parameters
        except (TypeError, ValueError):  # some callables of compiled modules have none
            parameters = {}
        self.action_names = tuple(space)
        self._takes_first = "is_first" in parameters
        self.has_state = hasattr(self._act, "get_state") and hasattr(self._act, "set_state")

    def act(self, observations: Observations, generator: np.random.Generator, is_first: np.ndarray) -> dict[str, Any]:
        """Return actions by name; a policy of an env with one action may return that alone."""
        more = {"is_first": is_first} if self._takes_first else {}
        actions = self._act(observations, generator, **more)
        if isinstance(actions, Mapping):
            return dict(actions)
        if len(self._space) == 1:
            return {next(iter(self._space)): actions}
        raise PolicyError(
            f"the policy {self.name} returned {type(actions).__name__}: expected a dict of arrays for "
            f"{', '.join(map(repr, self._space))}"
        )

    def get_state(self) -> bytes | None:
        """Return the state of a policy that can be saved; None for others."""
        if not self.has_state:
            return None
        state = cast(SavedPolicy, self._act).get_state()
        if not isinstance(state, bytes):
            raise PolicyError(f"get_state of the policy {self.name} returned {type(state).__name__}: expected bytes")
        return state

    def set_state(self, state: bytes) -> None:
        """Go on from a state."""
        cast(SavedPolicy, self._act).set_state(state)

    def _act_at_random(self, _: Observations, generator: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: _sample(space, self._lanes, generator) for name, space in self._space.items()}

    def _idle(self, _: Observations, __: np.random.Generator) -> dict[str, np.ndarray]:
        return self.idle_actions()

    def idle_actions(self) -> dict[str, np.ndarray]:
        """Return the actions nearest to zero."""
        return {name: _nearest_to_zero(one, self._lanes) for name, one in self._space.items()}


_EXPECTED = f"{' or '.join(NAMES)}, or MODULE:CALLABLE"


def _load(text: str) -> tuple[Policy, Path | None]:
    module_name, colon, attribute = text.partition(":")
    if not colon or not module_name or not attribute:
        raise PolicyError(f"the policy is {text!r}: expected {_EXPECTED}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of the current directory, as with python -m
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise PolicyError(f"the policy's module {module_name!r} cannot be imported: {error}") from error
        raise PolicyError(
            f"there is no module {module_name!r} for the policy {text!r}: expected one in the current directory "
            "or an installed one"
        ) from None
    except Exception as error:
        raise PolicyError(
            f"the policy's module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise PolicyError(f"the module {module_name!r} has no {attribute!r}: expected a callable for the policy")
        found = getattr(found, part)
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise PolicyError(f"the policy {text} cannot be made: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise PolicyError(f"the policy {text!r} is {type(found).__name__}: expected a callable")
    file = getattr(module, "__file__", None)
    return found, None if file is None else Path(file)


def _name_of(policy: object) -> str:
    named = policy if inspect.isroutine(policy) else type(policy)
    return f"{getattr(named, '__module__', '?')}:{getattr(named, '__qualname__', '?')}"


def _sample(space: gymnasium.Space[Any], lanes: int, generator: np.random.Generator) -> np.ndarray:
    """Return an action for each lane: uniform within bounds, normal where there are none."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return generator.integers(space.start, space.start + space.n, lanes)
    assert isinstance(space, gymnasium.spaces.Box), "actions of worldloom are of one of these spaces"
    shape = (lanes, *space.shape)
    if space.dtype.kind in "iub":
        numbers = generator.integers(space.low.astype(np.int64), space.high.astype(np.int64), shape, endpoint=True)
        return numbers.astype(space.dtype)
    is_bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = (np.where(is_bounded, bound, 0.0) for bound in (space.low, space.high))
    uniform = low + (high - low) * generator.random(shape)
    values = np.where(is_bounded, uniform, generator.standard_normal(shape)) if not is_bounded.all() else uniform
    return np.clip(values, space.low, space.high).astype(space.dtype)


def _nearest_to_zero(space: gymnasium.Space[Any], lanes: int) -> np.ndarray:
    if isinstance(space, gymnasium.spaces.Discrete):
        value: Any = np.clip(0, space.start, space.start + space.n - 1)
        return np.full(lanes, value)
    assert isinstance(space, gymnasium.spaces.Box), "actions of worldloom are of one of these spaces"
    value = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    return np.broadcast_to(value, (lanes, *space.shape)).copy()
