"""What the engine counts, for those who watch it."""

from collections.abc import Callable
from dataclasses import dataclass, field

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
