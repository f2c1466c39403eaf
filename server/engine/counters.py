"""What the engine counts, for those who watch it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from worldloom.kernels.tables import OUTPUTS

STAGES = ("take", "simulate", "plan", "draw", "fill", "send")
"""Where the time of a tick goes. `take` reads the requests, `send` hands the replies over."""


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
    frames: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTPUTS, 0))
    """Pictures drawn, by output."""
    stage_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    """Seconds spent in each stage of a tick."""

    @property
    def mean_batch(self) -> float:
        """Steps in a tick, on average."""
        return self.steps / self.ticks if self.ticks else 0.0


class Stopwatch:
    """Adds the time since its last mark to a stage."""

    def __init__(self, stage_s: dict[str, float]) -> None:
        self._stage_s = stage_s
        self._since_s = perf_counter()

    def restart(self) -> None:
        """Forget what has passed."""
        self._since_s = perf_counter()

    def mark(self, stage: str) -> None:
        """This stage ends now."""
        now_s = perf_counter()
        self._stage_s[stage] += now_s - self._since_s
        self._since_s = now_s
