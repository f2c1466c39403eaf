"""What the engine counts, for those who watch it.

How long each stage of a tick takes, and what the last ticks were like.

A stopwatch never stands still: each mark gives the time since the last one to a stage. So the stages add up to all the
time that has passed, and what is not a stage by itself counts with the next one that is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import NamedTuple

from worldloom.kernels.tables import OUTPUTS

STAGES = ("wait", "decode", "simulate", "plan", "cull", "draw", "readback", "unpack", "fill", "send")
"""Where the time of the engine's thread goes, in the order of a tick. docs/profiling.md says what is in each."""


@dataclass
class Counters:
    """Numbers that only grow, but for `streams` and `trials`. Written on the engine's thread."""

    streams: int = 0
    """Open now."""
    requests: int = 0
    refusals: int = 0
    trials: int = 0
    """Under way now."""
    played: Callable[[], int] = lambda: 0
    """Asks how many trials this server itself plays, those included that it is ending."""
    messages: int = 0
    """Sent to the worlds of trials, which have no use for them."""
    ticks: int = 0
    """Rounds of the engine in which at least one step was answered."""
    steps: int = 0
    """Steps of agents that were answered."""
    lane_steps: int = 0
    draws: int = 0
    """Calls of the renderer."""
    views: int = 0
    """Drawn in these, each in all outputs that were asked of it."""
    frames: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTPUTS, 0))
    """Pictures drawn, by output."""

    @property
    def mean_batch(self) -> float:
        """Steps in a tick, on average."""
        return self.steps / self.ticks if self.ticks else 0.0


MOST_SPANS = 8192
"""Recent stages that are remembered at least, some thousand ticks; at times it is twice as many."""


class Span(NamedTuple):
    """A stage of some tick, in seconds of this machine's monotonic clock."""

    stage: str
    start_s: float
    end_s: float


class Tick(NamedTuple):
    """A tick that answered steps, from the end of its wait to its last stage."""

    start_s: float
    end_s: float
    steps: int
    lanes: int
    views: int


class NoStopwatch:
    """Measures nothing, and never asks for the time."""

    is_on = False

    @property
    def stage_s(self) -> dict[str, float]:
        """Seconds spent in each stage since the beginning."""
        return dict.fromkeys(STAGES, 0.0)

    def restart(self) -> None:
        """What has passed was no tick."""

    def begin(self) -> None:
        """A tick begins."""

    def mark(self, stage: str) -> None:
        """A stage ends."""

    def spans(self) -> list[Span]:
        """The last stages, one after the other."""
        return []

    def ticks(self) -> list[Tick]:
        """The last ticks, but for the one under way."""
        return []


class Stopwatch(NoStopwatch):
    """Adds up the seconds of each stage, and remembers the last ticks.

    A mark notes the time and nothing else: it is part of what is measured. All the rest waits until someone asks, or
    until a thousand ticks have come together. Notes are plain lists of texts and numbers, which the garbage collector
    has no work with.
    """

    is_on = True

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._added_s = dict.fromkeys(STAGES, 0.0)
        self._stages: list[str] = []
        self._ends: list[float] = []
        """When each of these stages ended; it began when the one before did."""
        self._added = 0
        """How many of them were added up."""
        self._last_s = 0.0
        """When the last one of these ended."""
        self._counts: tuple[list[int], list[int], list[int]] = ([], [], [])
        """Steps, lanes and views until each of the waits among the stages, since the beginning."""
        self.mark = self._make_mark()  # type: ignore[assignment,method-assign]  # quicker than a method
        self.restart()

    def _make_mark(self) -> Callable[[str], None]:
        note_stage, note_end, now_s = self._stages.append, self._ends.append, perf_counter

        def mark(stage: str) -> None:
            note_stage(stage)
            note_end(now_s())

        return mark

    @property
    def stage_s(self) -> dict[str, float]:
        """Seconds spent in each stage since the beginning."""
        self._add_up()
        return dict(self._added_s)

    def restart(self) -> None:
        """Forget what has passed: it was no tick."""
        self._add_up()
        self._forget(len(self._stages))
        self._first_s = self._last_s = perf_counter()

    def begin(self) -> None:
        """A tick begins: what has passed since the last one was waiting."""
        self.mark("wait")
        counters = self._counters
        steps, lanes, views = self._counts
        steps.append(counters.steps)
        lanes.append(counters.lane_steps)
        views.append(counters.views)
        if len(self._stages) > 2 * MOST_SPANS:
            self._add_up()
            self._forget(len(self._stages) - MOST_SPANS)

    def spans(self) -> list[Span]:
        """The last stages, one after the other."""
        begins = [self._first_s, *self._ends]
        return [Span(*span) for span in zip(self._stages, begins, self._ends, strict=False)]

    def ticks(self) -> list[Tick]:
        """The last ticks, but for the one under way."""
        waits = [place for place, stage in enumerate(self._stages) if stage == "wait"]
        found = []
        for number, (wait, next_wait) in enumerate(pairwise(waits)):
            steps, lanes, views = (count[number + 1] - count[number] for count in self._counts)
            if steps:
                found.append(Tick(self._ends[wait], self._ends[next_wait - 1], steps, lanes, views))
        return found

    def _add_up(self) -> None:
        """Add what was noted since the last time."""
        since_s = self._last_s
        for stage, end_s in zip(self._stages[self._added :], self._ends[self._added :], strict=True):
            self._added_s[stage] += end_s - since_s
            since_s = end_s
        self._last_s, self._added = since_s, len(self._stages)

    def _forget(self, count: int) -> None:
        """Forget the oldest stages, which were added up."""
        if count:
            waits = self._stages[:count].count("wait")
            self._first_s = self._ends[count - 1]
            for noted in (self._stages, self._ends):
                del noted[:count]
            for counted in self._counts:
                del counted[:waits]
        self._added = len(self._stages)
