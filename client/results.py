"""Results of steps as an env returns them: what is observed, and the outcome in each lane."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from worldloom.client.arguments import FINAL_LANES, Autoreset
from worldloom.client.frames import Channels
from worldloom.client.replies import Arrays
from worldloom.client.vector_world import is_frame

Observations: TypeAlias = Any
"""A dict of arrays by name, or one array if the env is flat. Each user knows which, and a checker does not."""
Actions: TypeAlias = Any
"""In the same form."""
StepResult: TypeAlias = tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]

FIRST, LAST = 0, 2
"""The step_type of an episode's first state and of its last."""
FINAL_SUFFIX = "@final"
OF_LAST_STEP = frozenset({"reward", "discount", "step_type"})
"""Observations that are of the last step even where the next episode has begun."""


@dataclass(frozen=True)
class Observing:
    """Observations of an env, and how frames and ends of episodes come."""

    names: tuple[str, ...]
    rendered_name: str | None
    """The frames that `render` shows."""
    channels: Channels | None
    frame_stack: int
    autoreset: Autoreset

    def arranged_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an observation of one lane as the env returns it, from that in which the server does."""
        if not is_frame(name) or self.channels is None:
            return shape
        height, width, *channels = shape
        count = (channels[0] if channels else 1) * self.frame_stack
        return (height, width, count) if self.channels == "last" else (count, height, width)

    @property
    def requested(self) -> tuple[str, ...]:
        """Names to ask the server for."""
        names = self.names if self.rendered_name is None else (*self.names, self.rendered_name)
        if self.autoreset != "same_step":
            return names
        return *names, FINAL_LANES, *(f"{name}{FINAL_SUFFIX}" for name in self.names if name not in OF_LAST_STEP)


@dataclass
class LaneResults:
    """Results of a step in some lanes."""

    lanes: np.ndarray
    """Their indices in the env."""
    observations: Arrays
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    step_type: np.ndarray
    is_held: np.ndarray | None
    """Lanes whose episode had ended before, and which wait to be reset; None if there are none."""
    final_rows: np.ndarray
    """Rows in these results whose episode ended and whose next one has begun."""
    final: Arrays
    """The last observations of these, in the same order."""
    is_lost: np.ndarray | None = None
    """Lanes whose server was lost, if there are several servers: their episode is over."""

    @cached_property
    def is_first(self) -> np.ndarray:
        """Mask of lanes whose episode began with this step, which ignored their actions."""
        is_first: np.ndarray = self.step_type == FIRST
        return is_first

    @cached_property
    def has_ended(self) -> np.ndarray:
        """Mask of lanes whose episode ended with this step."""
        is_last: np.ndarray = self.terminated | self.truncated
        return is_last if self.is_held is None else is_last & ~self.is_held


def merge_results(results: list[LaneResults]) -> LaneResults:
    """Return the results of several streams as one."""
    if len(results) == 1:
        return results[0]
    starts = np.cumsum([0, *(len(part.lanes) for part in results[:-1])])
    with_final = [part.final for part in results if len(part.final_rows)]
    return LaneResults(
        lanes=np.concatenate([part.lanes for part in results]),
        observations=_join([part.observations for part in results]),
        reward=np.concatenate([part.reward for part in results]),
        terminated=np.concatenate([part.terminated for part in results]),
        truncated=np.concatenate([part.truncated for part in results]),
        step_type=np.concatenate([part.step_type for part in results]),
        is_held=_merge_held(results),
        final_rows=np.concatenate([part.final_rows + start for part, start in zip(results, starts, strict=True)]),
        final=_join(with_final) if with_final else {},
    )


def _merge_held(results: list[LaneResults]) -> np.ndarray | None:
    if all(part.is_held is None for part in results):
        return None
    return np.concatenate(
        [np.zeros(len(part.lanes), bool) if part.is_held is None else part.is_held for part in results]
    )


def _join(parts: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
