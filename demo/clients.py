"""Clients of a server under load: single streams, a vector world of each family, and a reader of its counters.

Single streams use the dm_env_rpc package's own client, as programs do that know nothing of worldloom. Counters are read
as properties of dm_env_rpc, which any client can read.
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
def open_stream(address: str) -> Iterator[Connection]:
    """Open a stream of dm_env_rpc for the block; RuntimeError if no server answers."""
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CONNECT_S)
        except grpc.FutureTimeoutError:
            raise RuntimeError(f"no answer from the server at {address} within {_CONNECT_S:g} s") from None
        with Connection(channel) as stream:
            yield stream


_STAGES = "counters.stage_s"


@dataclass(frozen=True)
class Counters:
    """Counters of a server at a moment, or their increase between two."""

    time_s: float
    ticks: int
    steps: int
    lane_steps: int
    frames: int
    """Frames of rgb."""
    stage_s: dict[str, float]

    def since(self, before: "Counters") -> "Counters":
        """Return the increase since an earlier reading."""
        return Counters(
            self.time_s - before.time_s,
            self.ticks - before.ticks,
            self.steps - before.steps,
            self.lane_steps - before.lane_steps,
            self.frames - before.frames,
            {stage: spent_s - before.stage_s[stage] for stage, spent_s in self.stage_s.items()},
        )


class CounterReader:
    """A stream that joins no world and only reads properties."""

    def __init__(self, address: str) -> None:
        self._cleanup = ExitStack()
        self._properties = PropertiesExtension(self._cleanup.enter_context(open_stream(address)))
        stages = self._properties.list(_STAGES)
        self._stages = [spec.key.rpartition(".")[2] for spec in stages]  # a server with --no-timers has none

    def text(self, key: str) -> str:
        """Return a property that is a string."""
        return str(self._properties.read(key))

    def read(self) -> Counters:
        """Return the counters as they are now."""
        ticks, steps, lane_steps, frames = (
            int(self._properties.read(f"counters.{name}")) for name in ("ticks", "steps", "lane_steps", "frames.rgb")
        )
        spent = {stage: float(self._properties.read(f"{_STAGES}.{stage}")) for stage in self._stages}
        return Counters(perf_counter(), ticks, steps, lane_steps, frames, spent)

    def close(self) -> None:
        """End the stream."""
        self._cleanup.close()


FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "catch": {"columns": 10},
    "cartpole": {},
    "maze": {"goals": 6, "textures": "random", "lighting": "random"},
}
"""Families to run, with their settings."""
_HOLD_STEPS = 8
"""Steps that an action is repeated for: random actions at every step hardly move an agent."""
_JOIN_S = 10.0


class ClientGroup(Protocol):
    """Connected clients that are measured together."""

    name: str
    frames_come: str
    """How frames come: `in replies` or `in shared memory`."""
    worlds: int

    def step_until(self, is_over: Callable[[], bool]) -> None:
        """Step all clients until `is_over()`, which is called now and then."""

    def steps(self, family: str) -> int:
        """Return the steps that worlds of a family have taken."""

    def close(self) -> None:
        """End all steps and connections."""


class VectorWorlds:
    """A vector world of each family; all have a step under way at the same time."""

    def __init__(self, address: str, lanes: int, size: int) -> None:
        self.worlds = lanes * len(FAMILIES)
        self.name = f"{len(FAMILIES)} vector worlds"
        self._step_count = 0
        self._lanes = lanes
        self._cleanup = ExitStack()
        self._envs: list[tuple[VectorEnv, _RepeatedActions]] = []
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            for family, settings in FAMILIES.items():
                env = VectorEnv(address, family, lanes, width=size, height=size, settings=settings, seed=1)
                self._cleanup.callback(env.close)
                env.reset()
                self._envs.append((env, _RepeatedActions(env.action_space.sample)))
            on_failure.pop_all()
        self.frames_come = "in shared memory" if self._envs[0][0].has_shared_frames else "in replies"

    def step_until(self, is_over: Callable[[], bool]) -> None:
        """Step on the calling thread."""
        while not is_over():
            for env, actions in self._envs:
                env.send(actions.next())
            for env, _ in self._envs:
                env.recv()
            self._step_count += 1

    def steps(self, family: str) -> int:
        """Return the steps of all lanes: the same for every family."""
        return self._step_count * self._lanes

    def close(self) -> None:
        """Destroy the worlds."""
        self._cleanup.close()


class SingleStreams:
    """Worlds of one lane, each with a stream, a thread and a client of the dm_env_rpc package."""

    def __init__(self, address: str, streams: int, size: int) -> None:
        self.worlds = streams * len(FAMILIES)
        self.name = f"{self.worlds} single streams"
        self.frames_come = "in replies"
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._step_counts = {family: [0] * streams for family in FAMILIES}
        """Steps of each stream by family; only the stream's own thread writes its element."""
        self._cleanup = ExitStack()
        self._threads: list[threading.Thread] = []
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            for family in FAMILIES:
                for number in range(streams):
                    env = self._join(address, family, size)
                    args = (env, self._step_counts[family], number)
                    self._threads.append(threading.Thread(target=self._step, args=args, daemon=True))
            on_failure.pop_all()

    def step_until(self, is_over: Callable[[], bool]) -> None:
        """Step on the streams' threads while the calling thread waits; raise what failed there."""
        for thread in self._threads:
            thread.start()
        while not is_over():
            self._stop.wait(0.02)
            if self._error is not None:
                raise self._error

    def steps(self, family: str) -> int:
        """Return the steps of all streams of a family."""
        return sum(self._step_counts[family])

    def close(self) -> None:
        """End the threads, then the streams."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_JOIN_S)
        self._cleanup.close()

    def _join(self, address: str, family: str, size: int) -> Any:
        stream = self._cleanup.enter_context(open_stream(address))
        env, _ = dm_env_adaptor.create_and_join_world(
            stream,
            {"family": family, **FAMILIES[family]},
            {"width": size, "height": size, "observations": ["eye.rgb", "reward", "discount"]},
        )
        env.reset()  # may compile kernels, which is not to be measured
        return env

    def _step(self, env: Any, step_counts: list[int], number: int) -> None:
        rng = np.random.default_rng(number)
        specs = env.action_spec()
        actions = _RepeatedActions(lambda: {name: _sample(spec, rng) for name, spec in specs.items()})
        try:
            while not self._stop.is_set():
                env.step(actions.next())
                step_counts[number] += 1
        except Exception as error:  # raised by step_until
            self._error = error


class _RepeatedActions:
    """Random actions, each repeated for some steps."""

    def __init__(self, sample: Callable[[], dict[str, Any]]) -> None:
        self._sample = sample
        self._steps_left = 0
        self._action: dict[str, Any] = {}

    def next(self) -> dict[str, Any]:
        if not self._steps_left:
            self._action, self._steps_left = self._sample(), _HOLD_STEPS
        self._steps_left -= 1
        return self._action


def _sample(spec: Any, rng: np.random.Generator) -> np.ndarray:
    low, high = np.broadcast_to(spec.minimum, spec.shape), np.broadcast_to(spec.maximum, spec.shape)
    if spec.dtype.kind in "iu":
        return np.asarray(rng.integers(low, high, endpoint=True), spec.dtype)
    return np.asarray(rng.uniform(low, high), spec.dtype)
