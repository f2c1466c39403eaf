"""Clients that step as fast as the server lets them: single streams, and a vector world of each family."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from dm_env_rpc.v1 import dm_env_adaptor

from worldloom.client import VectorEnv
from worldloom.demo.connecting import connected

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "catch": {"columns": 10},
    "cartpole": {},
    "maze": {"goals": 6, "textures": "random", "lighting": "random"},
}
"""The families and their settings."""
_HOLD = 8
"""Steps for which an action is held: chance alone trembles on the spot."""
_JOIN_S = 10.0


class Crowd(Protocol):
    """Some clients, connected."""

    name: str
    way: str
    """How pictures come."""
    worlds: int

    def step_until(self, is_over: Callable[[], bool]) -> None:
        """Step all of them until then, which is asked for now and then."""

    def steps(self, family: str) -> int:
        """Steps that worlds of that family have taken."""

    def close(self) -> None:
        """End what is under way, and all connections."""


class VectorWorlds:
    """A vector world of each family. All are under way at the same time."""

    def __init__(self, address: str, lanes: int, size: int) -> None:
        self.worlds = lanes * len(FAMILIES)
        self.name = f"{len(FAMILIES)} vector worlds"
        self._taken = 0
        self._lanes = lanes
        self._at_the_end = ExitStack()
        self._envs: list[tuple[VectorEnv, _Actions]] = []
        with ExitStack() as if_it_fails:
            if_it_fails.callback(self.close)
            for family, settings in FAMILIES.items():
                env = VectorEnv(address, family, lanes, width=size, height=size, settings=settings, seed=1)
                self._at_the_end.callback(env.close)
                env.reset()
                self._envs.append((env, _Actions(env.action_space.sample)))
            if_it_fails.pop_all()
        self.way = "in shared memory" if self._envs[0][0].transport == "shm" else "in replies"

    def step_until(self, is_over: Callable[[], bool]) -> None:
        """On this thread."""
        while not is_over():
            for env, actions in self._envs:
                env.send(actions.next())
            for env, _ in self._envs:
                env.recv()
            self._taken += 1

    def steps(self, family: str) -> int:
        """Those of every lane: all families take as many."""
        return self._taken * self._lanes

    def close(self) -> None:
        """Destroy the worlds."""
        self._at_the_end.close()


class SingleStreams:
    """Single worlds. Each has a stream, a thread, and the dm_env_rpc package's own client."""

    def __init__(self, address: str, streams: int, size: int) -> None:
        self.worlds = streams * len(FAMILIES)
        self.name = f"{self.worlds} single streams"
        self.way = "in replies"
        self._stop = threading.Event()
        self._problem: Exception | None = None
        self._taken = {family: [0] * streams for family in FAMILIES}
        """Steps of each stream. Its thread alone writes there."""
        self._at_the_end = ExitStack()
        self._threads: list[threading.Thread] = []
        with ExitStack() as if_it_fails:
            if_it_fails.callback(self.close)
            for family in FAMILIES:
                for number in range(streams):
                    env = self._join(address, family, size)
                    args = (env, self._taken[family], number)
                    self._threads.append(threading.Thread(target=self._step, args=args, daemon=True))
            if_it_fails.pop_all()

    def step_until(self, is_over: Callable[[], bool]) -> None:
        """On their threads, while this one waits."""
        for thread in self._threads:
            thread.start()
        while not is_over():
            self._stop.wait(0.02)
            if self._problem is not None:
                raise self._problem

    def steps(self, family: str) -> int:
        """Those of all streams."""
        return sum(self._taken[family])

    def close(self) -> None:
        """End the threads, then the streams."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_JOIN_S)
        self._at_the_end.close()

    def _join(self, address: str, family: str, size: int) -> Any:
        stream = self._at_the_end.enter_context(connected(address))
        env, _ = dm_env_adaptor.create_and_join_world(
            stream,
            {"family": family, **FAMILIES[family]},
            {"width": size, "height": size, "observations": ["eye.rgb", "reward", "discount"]},
        )
        env.reset()  # what its first reply has to compile is not counted
        return env

    def _step(self, env: Any, taken: list[int], number: int) -> None:
        rng = np.random.default_rng(number)
        specs = env.action_spec()
        actions = _Actions(lambda: {name: _sample(spec, rng) for name, spec in specs.items()})
        try:
            while not self._stop.is_set():
                env.step(actions.next())
                taken[number] += 1
        except Exception as error:  # told by the thread that people look at
            self._problem = error


class _Actions:
    """Actions at random, each held for some steps."""

    def __init__(self, sample: Callable[[], dict[str, Any]]) -> None:
        self._sample = sample
        self._left = 0
        self._held: dict[str, Any] = {}

    def next(self) -> dict[str, Any]:
        if not self._left:
            self._held, self._left = self._sample(), _HOLD
        self._left -= 1
        return self._held


def _sample(spec: Any, rng: np.random.Generator) -> np.ndarray:
    low, high = np.broadcast_to(spec.minimum, spec.shape), np.broadcast_to(spec.maximum, spec.shape)
    if spec.dtype.kind in "iu":
        return np.asarray(rng.integers(low, high, endpoint=True), spec.dtype)
    return np.asarray(rng.uniform(low, high), spec.dtype)
