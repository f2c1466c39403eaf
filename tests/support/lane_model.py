"""A model of one lane of a vector world, made of a world without lanes: it knows only the rules of autoreset.

The world without lanes gives single episodes: `PlainLane` begins them and advances them one step at a time. The model
repeats actions, adds up rewards, and decides when the next episode begins. Episodes come in the same order in all
modes: a reset right after the end of one begins the next, even where that has begun within the last step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
FIRST, MID, LAST = 0, 1, 2


def lane_seed(world_seed: int, number: int) -> int:
    """Seed of the world of one lane that equals a lane of a larger one, as docs and `worldloom describe` say."""
    return (world_seed + number * GOLDEN) % 2**64


@dataclass(frozen=True)
class Plain:
    """A step of the world without lanes."""

    reward: Any
    discount: float
    is_last: bool
    observations: Mapping[str, np.ndarray]


class PlainLane(Protocol):
    """A world without lanes."""

    def begin(self) -> Plain:
        """Begin the next episode."""

    def advance(self, actions: Mapping[str, np.ndarray]) -> Plain:
        """Advance the episode by one step."""

    def reseed(self, seed: int) -> None:
        """Start over with a seed."""


@dataclass(frozen=True)
class Expected:
    """The outcome of a step of the lane in the vector world."""

    reward: Any
    discount: float
    step_type: int
    observations: Mapping[str, np.ndarray]
    final: Mapping[str, np.ndarray] | None = None
    """Last observations of the episode that ended, where the next one begins within the step."""


class LaneModel:
    """One lane, in one of the modes of autoreset."""

    def __init__(self, plain: PlainLane, mode: str, repeat: int) -> None:
        self._plain = plain
        self._mode = mode
        self._repeat = repeat
        self._last: Expected | None = None
        """The last outcome; None if the next step begins an episode whatever the mode is."""
        self._begun: Plain | None = None
        """The first step of an episode that has begun within the last step of another, while no step has followed."""

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode with the next step; with a seed start over."""
        if seed is not None:
            self._plain.reseed(seed)
            self._begun = None
        self._last = None

    def hold(self) -> Expected:
        """Observe the lane as it is."""
        assert self._last is not None
        self._last = Expected(
            np.zeros_like(self._last.reward), self._last.discount, self._last.step_type, self._last.observations
        )
        return self._last

    def step(self, actions: Mapping[str, np.ndarray]) -> Expected:
        """Step the lane."""
        if self._last is None or (self._mode == "next_step" and self._last.step_type == LAST):
            self._last = self._begin()
        elif self._mode == "disabled" and self._last.step_type == LAST:
            return self.hold()
        else:
            self._last = self._advance(actions)
        return self._last

    def _begin(self) -> Expected:
        first = self._begun or self._plain.begin()
        self._begun = None
        return Expected(np.zeros_like(first.reward), 1.0, FIRST, first.observations)

    def _advance(self, actions: Mapping[str, np.ndarray]) -> Expected:
        step = self._plain.advance(actions)
        self._begun = None
        reward = step.reward
        for _ in range(self._repeat - 1):
            if step.is_last:
                break
            step = self._plain.advance(actions)
            reward = reward + step.reward
        if not step.is_last:
            return Expected(reward, 1.0, MID, step.observations)
        if self._mode == "same_step":
            self._begun = self._plain.begin()
            return Expected(reward, step.discount, LAST, self._begun.observations, step.observations)
        return Expected(reward, step.discount, LAST, step.observations)
