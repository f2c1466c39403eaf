"""What a server counted between two moments, read as anyone can read it: with the properties of dm_env_rpc."""

from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter

from dm_env_rpc.v1.extensions.properties import PropertiesExtension

from worldloom.demo.connecting import connected

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
