"""What is measured: a case for each choice of family, lanes, size, outputs, renderer and transport.

One case measured: a client steps all lanes for a while, and the engine's stopwatch is read before and after.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from worldloom.client.connections import Credentials
from worldloom.client.vector_env import build_action_space
from worldloom.client.vector_world import VectorWorld
from worldloom.kernels.outputs import OUTPUTS
from worldloom.server.engine.timing import STAGES, Span, Tick

TRANSPORTS = ("local", "shm", "unix", "tcp")
"""An engine in this process; a server in another by shared memory, by a socket of this machine, by TCP."""
MOST_CASES = 2000
MOST_STEP_BYTES = 1 << 30
"""Of all pictures of a step."""
_PIXEL_BYTES = {output.name: output.pixel_bytes for output in OUTPUTS}


@dataclass(frozen=True)
class Case:
    """One configuration."""

    family: str
    lanes: int
    width: int
    height: int
    outputs: tuple[str, ...]
    renderer: str
    transport: str

    @property
    def pixels(self) -> int:
        """Of one lane's picture."""
        return self.width * self.height

    @property
    def size(self) -> str:
        """Of a picture, in words."""
        return f"{self.width}²" if self.width == self.height else f"{self.width}×{self.height}"

    @property
    def shown(self) -> str:
        """Its outputs, in words."""
        return "+".join(self.outputs)

    @property
    def step_bytes(self) -> int:
        """Of all pictures of a step."""
        return self.lanes * self.pixels * sum(_PIXEL_BYTES[output] for output in self.outputs)

    @property
    def name(self) -> str:
        """All of it, in words."""
        return f"{self.family}, {self.lanes} lanes, {self.size} {self.shown}, {self.renderer}, {self.transport}"

    def group(self) -> tuple[str, str, str, str]:
        """What cases have in common whose cost differs by lanes and size alone."""
        return self.family, self.shown, self.renderer, self.transport


def make_cases(
    families: Sequence[str],
    lanes: Sequence[int],
    sizes: Sequence[tuple[int, int]],
    outputs: Sequence[tuple[str, ...]],
    renderers: Sequence[str],
    transports: Sequence[str],
) -> list[Case]:
    """Every combination; ValueError for more, or for larger ones, than can be."""
    count = len(families) * len(lanes) * len(sizes) * len(outputs) * len(renderers) * len(transports)
    if count > MOST_CASES:
        raise ValueError(f"{count} configurations: expected at most {MOST_CASES}; give fewer values of some flag")
    # Lanes innermost: what is compared is measured close together in time, as machines change their pace.
    combined = itertools.product(families, renderers, outputs, transports, sizes, lanes)
    cases = [
        Case(family, lane_count, width, height, shown, renderer, transport)
        for family, renderer, shown, transport, (width, height), lane_count in combined
    ]
    for case in cases:
        if case.step_bytes > MOST_STEP_BYTES:
            raise ValueError(
                f"{case.name}: {case.step_bytes:,} bytes of pictures a step: expected at most {MOST_STEP_BYTES:,}; "
                "give fewer --lanes or a smaller --size"
            )
    return cases


LEAST_STEPS = 3
"""However long they take."""
_WARM_UP_PART = 0.15
"""Of the time that is measured: memory grows and caches fill before."""
_KINDS_OF_ACTIONS = 8
_KEPT = 128
"""Of the ticks and of the client's steps, the last ones, for the timeline."""
_TIMEOUT_S = 120.0
_TRANSPORTS: dict[str, Any] = {"local": "auto", "shm": "shm", "unix": "grpc", "tcp": "grpc"}
"""What the client calls them."""


@dataclass(frozen=True)
class Measured:
    """What one case took."""

    case: Case
    device: str
    """What drew, in words."""
    steps: int
    """Of all lanes together."""
    seconds: float
    """That they took."""
    step_ms: tuple[float, float]
    """What half of the steps, and what nineteen in twenty, did not exceed."""
    wall_s: float
    """Between the two looks at the engine's stopwatch, by the client's clock."""
    stage_s: Mapping[str, float]
    """What the engine's stages took of that."""
    spans: tuple[Span, ...] = field(default=(), repr=False)
    """The engine's last stages."""
    ticks: tuple[Tick, ...] = field(default=(), repr=False)
    client_steps: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    """When the client's last steps began and ended, by the same clock."""

    @property
    def frames_per_s(self) -> float:
        """A frame is one lane's step with all outputs that were asked for."""
        return self.steps * self.case.lanes / self.seconds

    @property
    def frame_us(self) -> float:
        """Microseconds of a frame."""
        return 1e6 / self.frames_per_s

    @property
    def step_s(self) -> float:
        """Seconds of a usual step of all lanes: the median, which a machine that is busy now and then hardly moves."""
        return self.step_ms[0] / 1e3

    @property
    def shares(self) -> dict[str, float]:
        """The part of the time that each stage took."""
        return {stage: seconds / self.wall_s for stage, seconds in self.stage_s.items()}

    @property
    def accounted(self) -> float:
        """The part of the time that the stages are together."""
        return sum(self.stage_s.values()) / self.wall_s


def measure(case: Case, address: str, settings: Mapping[str, Any], seconds: float) -> Measured:
    """Step a world of this case for so long. `address` is `local` or a server's."""
    world = VectorWorld(
        address,
        [f"eye.{output}" for output in case.outputs],
        world_settings={"family": case.family, "lanes": case.lanes, "seed": 0, **settings},
        join_settings={"width": case.width, "height": case.height},
        transport=_TRANSPORTS[case.transport],
        credentials=Credentials(),
        renderer=case.renderer,
        timeout_s=_TIMEOUT_S,
    )
    with closing(world):
        world.send_reset(None)
        world.receive()
        actions = _some_actions(world, case.lanes)
        _play(world, actions, seconds * _WARM_UP_PART)
        _stage_s(world)  # the first question takes longer than others
        # The stopwatch is read at the beginning of the tick that takes the question.
        from_s, before = time.perf_counter(), _stage_s(world)
        steps = _play(world, actions, seconds)
        until_s, after = time.perf_counter(), _stage_s(world)
        took_ms = [1e3 * (end - begin) for begin, end in steps]
        cuts = quantiles(took_ms, n=20, method="inclusive")
        spans, ticks = _timeline(world, from_s, until_s)
        return Measured(
            case=case,
            device=str(world.read_property("server.device")),
            steps=len(steps),
            seconds=steps[-1][1] - steps[0][0],
            step_ms=(cuts[9], cuts[18]),
            wall_s=until_s - from_s,
            stage_s=dict(zip(STAGES, (after - before).tolist(), strict=True)),
            spans=spans,
            ticks=ticks,
            client_steps=tuple(steps[-_KEPT:]),
        )


def _some_actions(world: VectorWorld, lanes: int) -> list[dict[str, np.ndarray]]:
    """Taken by lot beforehand, so that no time is spent on it; always the same ones."""
    space: Any = batch_space(build_action_space(world.actions.values(), lanes), lanes)
    space.seed(0)
    return [space.sample() for _ in range(_KINDS_OF_ACTIONS)]


def _play(world: VectorWorld, actions: list[dict[str, np.ndarray]], seconds: float) -> list[tuple[float, float]]:
    """Step for so long; when each step began and ended."""
    now = time.perf_counter
    steps: list[tuple[float, float]] = []
    began_s = begin_s = now()
    while begin_s - began_s < seconds or len(steps) < LEAST_STEPS:
        world.send(actions[len(steps) % _KINDS_OF_ACTIONS])
        world.receive()
        end_s = now()
        steps.append((begin_s, end_s))
        begin_s = end_s
    return steps


def _stage_s(world: VectorWorld) -> np.ndarray:
    return np.asarray(world.read_property("timers.stage_s"))


def _timeline(world: VectorWorld, from_s: float, until_s: float) -> tuple[tuple[Span, ...], tuple[Tick, ...]]:
    """The engine's last stages and ticks within that time: all clocks of a machine are one."""
    spans = read_spans(world.read_property("timers.spans"))
    ticks = read_ticks(world.read_property("timers.ticks"))
    kept = [tick for tick in ticks if from_s <= tick.start_s and tick.end_s <= until_s][-_KEPT:]
    begin_s = kept[0].start_s if kept else until_s
    return tuple(span for span in spans if begin_s <= span.start_s and span.end_s <= until_s), tuple(kept)


def read_spans(rows: np.ndarray) -> list[Span]:
    """The property `timers.spans`."""
    return [Span(STAGES[int(stage)], start_s, end_s) for stage, start_s, end_s in rows.tolist()]


def read_ticks(rows: np.ndarray) -> list[Tick]:
    """The property `timers.ticks`."""
    return [Tick(start_s, end_s, *map(int, sizes)) for start_s, end_s, *sizes in rows.tolist()]
