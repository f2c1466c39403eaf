"""Envs that benchmarks step in turn."""

import itertools
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from worldloom.client import VectorEnv

SAME_MACHINE = "socket"
"""Transport of clients on the server's machine."""
LOCAL = ("local", "auto")
"""Address and transport of an engine in this process."""
_DIFFERENT_ACTIONS = 16


class Player:
    """A VectorEnv, with actions that were made beforehand."""

    def __init__(
        self,
        where: tuple[str | list[str], str],
        family: str,
        lanes: int,
        settings: Mapping[str, Any] | None = None,
        observations: list[str] | None = None,
        is_still: bool = False,
    ) -> None:
        """`where` is an address, or several, and a transport; actions are random, or all zero if `is_still`."""
        address, transport = where
        arguments: dict[str, Any] = {"transport": transport, "settings": settings, "observations": observations}
        self.env = VectorEnv(address, family, lanes, **arguments)
        self.lanes = lanes
        self.env.reset(seed=0)
        self.env.action_space.seed(0)
        samples: list[dict[str, np.ndarray]] = [self.env.action_space.sample() for _ in range(_DIFFERENT_ACTIONS)]
        if is_still:
            samples = [{name: np.zeros_like(values) for name, values in samples[0].items()}]
        self.actions = itertools.cycle(samples)
        self.times_s: list[float] = []
        """Time of each step of all rounds."""

    def play(self, seconds: float) -> float:
        """Step for `seconds` and return the frames a second."""
        began_s = now_s = time.perf_counter()
        steps = 0
        while now_s < began_s + seconds or not steps:
            before_s = now_s
            self.env.step(next(self.actions))
            now_s = time.perf_counter()
            self.times_s.append(now_s - before_s)
            steps += 1
        return steps * self.lanes / (now_s - began_s)
