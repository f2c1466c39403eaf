"""A stream to a server by the dm_env_rpc package's own client, as people write it who know nothing of ours.

What a server counted between two moments, read as anyone can read it: with the properties of dm_env_rpc.

Clients that step as fast as the server lets them: single streams, and a vector world of each family.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_adaptor
from dm_env_rpc.v1.connection import Connection
from dm_env_rpc.v1.extensions.properties import PropertiesExtension

from worldloom.client import VectorEnv

_CONNECT_S = 10.0
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each stream
    ("grpc.enable_http_proxy", 0),  # the server is on this machine
]


@contextmanager
def connected(address: str) -> Iterator[Connection]:
    """A stream for as long as the block lasts."""
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CONNECT_S)
        except grpc.FutureTimeoutError:
            raise RuntimeError(f"no answer from the server at {address} within {_CONNECT_S:g} s") from None
        with Connection(channel) as stream:
            yield stream


_STAGES = "counters.stage_s"


@dataclass(frozen=True)
class Reading:
    """Counters at a moment, or what they gained between two."""

    second: float
    ticks: int
    steps: int
    lane_steps: int
    frames: int
    """Of rgb."""
    stage_s: dict[str, float]

    def since(self, before: "Reading") -> "Reading":
        """What was gained."""
        return Reading(
            self.second - before.second,
            self.ticks - before.ticks,
            self.steps - before.steps,
            self.lane_steps - before.lane_steps,
            self.frames - before.frames,
            {stage: spent_s - before.stage_s[stage] for stage, spent_s in self.stage_s.items()},
        )


class Watch:
    """A stream that joins nothing and only looks."""

    def __init__(self, address: str) -> None:
        self._at_the_end = ExitStack()
        self._properties = PropertiesExtension(self._at_the_end.enter_context(connected(address)))
        stages = self._properties.list(_STAGES)
        self._stages = [spec.key.rpartition(".")[2] for spec in stages]  # whichever the server has

    def text(self, key: str) -> str:
        """A property that is a text."""
        return str(self._properties.read(key))

    def read(self) -> Reading:
        """The counters now."""
        ticks, steps, lane_steps, frames = (
            int(self._properties.read(f"counters.{name}")) for name in ("ticks", "steps", "lane_steps", "frames.rgb")
        )
        spent = {stage: float(self._properties.read(f"{_STAGES}.{stage}")) for stage in self._stages}
        return Reading(perf_counter(), ticks, steps, lane_steps, frames, spent)

    def close(self) -> None:
        """End the stream."""
        self._at_the_end.close()


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
