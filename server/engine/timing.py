"""Counters of the engine, and the time that each stage of its ticks takes.

The stage timer runs all the time: each mark attributes the time since the last mark to a stage. So the stages add up to
all the time that has passed, and work between two stages counts with the second.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from operator import sub
from time import perf_counter
from typing import NamedTuple

import numpy as np

from worldloom.kernels.outputs import OUTPUT_NAMES

STAGES = ("wait", "decode", "simulate", "plan", "cull", "draw", "readback", "unpack", "fill", "send")
"""Stages of the engine's thread in the order of a tick. docs/profiling.md describes each. "plan" is write_scene."""


@dataclass
class Counters:
    """Counts since the start, and of open streams and trials. Written by the engine's thread."""

    streams: int = 0
    """Open streams."""
    requests: int = 0
    refusals_by_code: dict[int, int] = field(default_factory=dict)
    """Requests answered with an error, by google.rpc.Code."""
    rejected_streams: int = 0
    """Calls refused before a stream was opened: too many streams, no or a wrong token, the server is shutting down."""
    trials: int = 0
    """Running trials."""
    count_trials_played: Callable[[], int] = lambda: 0
    """Return the number of trials that this server orchestrates, including those that are ending."""
    messages: int = 0
    """Messages sent to environments of trials, which ignore them."""
    ticks: int = 0
    """Ticks in which at least one step was answered."""
    steps: int = 0
    """Answered steps."""
    lane_steps: int = 0
    draws: int = 0
    """Calls of the renderer."""
    views: int = 0
    """Views drawn, each with all its outputs."""
    frames: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTPUT_NAMES, 0))
    """Frames drawn, by output."""
    camera_frames: dict[tuple[str, str], int] = field(default_factory=dict)
    """Frames drawn, by camera and output."""

    def count_steps(self, lanes: Sequence[int]) -> None:
        """Count the answered steps of a tick, each with the number of its lanes."""
        self.ticks += 1
        self.steps += len(lanes)
        self.lane_steps += sum(lanes)

    def count_frames(self, camera: str, outputs: int, count: int) -> None:
        """Count the frames of so many views through a camera; `outputs` are bits."""
        for bit, output in enumerate(OUTPUT_NAMES):
            if outputs >> bit & 1:
                self.frames[output] += count
                key = (camera, output)
                self.camera_frames[key] = self.camera_frames.get(key, 0) + count

    def count_refusal(self, code: int) -> None:
        """Count a request that was answered with an error; `code` is a google.rpc.Code."""
        self.refusals_by_code[code] = self.refusals_by_code.get(code, 0) + 1

    @property
    def refusals(self) -> int:
        """Requests answered with an error."""
        return sum(self.refusals_by_code.values())

    @property
    def mean_batch(self) -> float:
        """Mean number of steps in a tick."""
        return self.steps / self.ticks if self.ticks else 0.0


TICK_S = 0.01
"""Time that one tick spends on adding lanes, and on beginning episodes, where there are many."""


class TickBudget:
    """Time that is left in one tick for work that is divided over ticks."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    def spend(self, work: Callable[[], None]) -> None:
        """Do some work and subtract the time it takes."""
        if self.left_s == inf:
            work()
            return
        began_s = perf_counter()
        try:
            work()
        finally:
            self.left_s -= perf_counter() - began_s


_DECADE = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)
TICK_BOUNDS_S = (*(float(f"{step}e{power}") for power in range(-5, 1) for step in _DECADE), 10.0)
"""Upper bounds of the buckets of tick times, ten in a decade: percentiles are wrong by an eighth at most."""
BATCH_BOUNDS = (*range(1, 8), *(step << power for power in range(1, 11) for step in (4, 5, 6, 7)), 8192)
"""Upper bounds of the buckets of batch sizes, exact up to eight and four for each power of two from there on."""


class Histogram(NamedTuple):
    """Counts of values by bucket: not above its bound and above the one before."""

    bounds: Sequence[float]
    counts: tuple[int, ...]
    """One for each bound, and the values above all."""
    total: float
    """Sum of all values."""


class _HistogramSum:
    """A histogram that values are added to."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._array = np.array(bounds)
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._total = 0.0

    def add(self, values: np.ndarray) -> None:
        self._counts += np.bincount(np.searchsorted(self._array, values), minlength=len(self._counts))
        self._total += float(values.sum())

    def read(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts.tolist()), self._total)


MIN_KEPT_SPANS = 8192
"""Recent spans that are kept at least, of some thousand ticks; at times up to twice as many."""


class Span(NamedTuple):
    """One stage of one tick, in seconds of the monotonic clock of this machine."""

    stage: str
    start_s: float
    end_s: float


class Tick(NamedTuple):
    """One tick that answered steps, from the end of its wait to its last stage."""

    start_s: float
    end_s: float
    steps: int
    lanes: int
    views: int


class NoTimer:
    """A timer that measures nothing and never reads the clock."""

    is_on = False

    @property
    def stage_s(self) -> dict[str, float]:
        """Seconds spent in each stage since the start."""
        return dict.fromkeys(STAGES, 0.0)

    @property
    def histograms(self) -> tuple[Histogram, Histogram] | None:
        """Seconds and steps of the ticks that answered steps, without the current one; None if not measured."""
        return None

    def restart(self) -> None:
        """Ignore the time since the last mark."""

    def begin(self) -> None:
        """Begin a tick."""

    def mark(self, stage: str) -> None:
        """End a stage."""

    def spans(self) -> list[Span]:
        """Return the recent spans in order."""
        return []

    def ticks(self) -> list[Tick]:
        """Return the recent ticks, without the current one."""
        return []


class StageTimer(NoTimer):
    """A timer that adds up the seconds of each stage and keeps the recent ticks.

    A mark only records the time, since it is part of what is measured. Everything else is computed when it is asked
    for, or after some thousand ticks. The records are plain lists of strings and numbers, which the garbage collector
    does not traverse.
    """

    is_on = True

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._added_s = dict.fromkeys(STAGES, 0.0)
        self._stages: list[str] = []
        self._ends: list[float] = []
        """End of each of these stages; it began at the end of the one before."""
        self._added = 0
        """Number of stages that are included in the sums."""
        self._added_waits = 0
        """Number of waits whose tick is included in the histograms."""
        self._last_s = 0.0
        """End of the last included stage."""
        self._waits: list[int] = []
        """Place of each of the waits among the stages."""
        self._counts: tuple[list[int], list[int], list[int]] = ([], [], [])
        """Steps, lanes and views counted before each of the waits."""
        self._tick_s, self._batch = _HistogramSum(TICK_BOUNDS_S), _HistogramSum(BATCH_BOUNDS)
        self.mark = self._make_mark()  # type: ignore[assignment,method-assign]  # faster than a method
        self.restart()

    def _make_mark(self) -> Callable[[str], None]:
        add_stage, add_end, now_s = self._stages.append, self._ends.append, perf_counter

        def mark(stage: str) -> None:
            add_stage(stage)
            add_end(now_s())

        return mark

    @property
    def stage_s(self) -> dict[str, float]:
        """Seconds spent in each stage since the start."""
        self._add_up()
        return dict(self._added_s)

    @property
    def histograms(self) -> tuple[Histogram, Histogram]:
        """Seconds and steps of the ticks that answered steps, without the current one."""
        self._add_up()
        return self._tick_s.read(), self._batch.read()

    def restart(self) -> None:
        """Ignore the time since the last mark, and forget all spans."""
        self._add_up()
        self._forget(len(self._stages))
        self._first_s = self._last_s = perf_counter()

    def begin(self) -> None:
        """Begin a tick: the time since the last mark was spent waiting."""
        self._waits.append(len(self._ends))
        self.mark("wait")
        counters = self._counters
        steps, lanes, views = self._counts
        steps.append(counters.steps)
        lanes.append(counters.lane_steps)
        views.append(counters.views)
        if len(self._stages) > 2 * MIN_KEPT_SPANS:
            self._add_up()
            self._forget(len(self._stages) - MIN_KEPT_SPANS)

    def spans(self) -> list[Span]:
        """Return the recent spans in order."""
        begins = [self._first_s, *self._ends]
        return [Span(*span) for span in zip(self._stages, begins, self._ends, strict=False)]

    def ticks(self) -> list[Tick]:
        """Return the recent ticks, without the current one."""
        found = []
        for number, (wait, next_wait) in enumerate(pairwise(self._waits)):
            steps, lanes, views = (count[number + 1] - count[number] for count in self._counts)
            if steps:
                found.append(Tick(self._ends[wait], self._ends[next_wait - 1], steps, lanes, views))
        return found

    def _add_up(self) -> None:
        """Include what was recorded since the last call in the sums and histograms."""
        first, ends = self._added, self._ends
        if first == len(ends):
            return
        begins = [self._last_s, *ends[first:-1]]
        added_s = self._added_s
        for stage, seconds in zip(self._stages[first:], map(sub, ends[first:], begins), strict=True):
            added_s[stage] += seconds
        self._last_s, self._added = ends[-1], len(ends)
        self._add_ticks()

    def _add_ticks(self) -> None:
        """Include the ticks that have ended since the last call in the histograms."""
        waits, ends = self._waits[self._added_waits :], self._ends
        if len(waits) < 2:
            return
        steps = np.diff(np.array(self._counts[0][self._added_waits :]))
        seconds = np.array([ends[wait - 1] for wait in waits[1:]]) - np.array([ends[wait] for wait in waits[:-1]])
        self._tick_s.add(seconds[steps > 0])
        self._batch.add(steps[steps > 0])
        self._added_waits = len(self._waits) - 1

    def _forget(self, count: int) -> None:
        """Forget the oldest stages, which are included in the sums."""
        if count:
            waits = bisect_left(self._waits, count)
            self._first_s = self._ends[count - 1]
            for recorded in (self._stages, self._ends):
                del recorded[:count]
            for counted in self._counts:
                del counted[:waits]
            self._waits = [place - count for place in self._waits[waits:]]
            self._added_waits = max(0, self._added_waits - waits)
        self._added = len(self._stages)
