"""Samples of an engine's counters, which other threads may read: for metrics and for people who watch.

An engine takes one a second, on its own thread, if it was asked to. So whoever reads them, however often, costs the
engine nothing more.
"""

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from worldloom.server.engine.timing import Counters, Histogram

if TYPE_CHECKING:
    from worldloom.server.engine.engine import Engine


@dataclass(frozen=True)
class EngineSample:
    """Counts since the start, and what there is at one moment. Nothing changes it."""

    taken_at_s: float
    """Seconds of the monotonic clock."""
    counters: Counters
    stage_s: dict[str, float]
    """Seconds spent in each stage since the start."""
    tick_s: Histogram | None
    """Seconds of the ticks that answered steps; None if they are not measured."""
    batch: Histogram | None
    """Steps answered by these ticks; None if they are not measured."""
    worlds: int
    lanes: int
    trials_played: int
    """Trials that this server orchestrates."""
    shared_bytes: int
    memory_bytes: int
    """Bytes that --max-memory-bytes limits: worlds by estimate, reply buffers, shared memory."""
    pictures: int
    """Pictures for viewers."""
    tiles: int
    """Frames in these pictures."""
    late_pictures: int
    """Pictures that came later than asked for."""


def take_sample(engine: "Engine") -> EngineSample:
    """Return a sample of an engine, on its thread."""
    counters, directory, watching = engine.counters, engine.directory, engine.watching
    tick_s, batch = engine.timer.histograms or (None, None)
    copy = replace(
        counters,
        refusals_by_code=dict(counters.refusals_by_code),
        frames=dict(counters.frames),
        camera_frames=dict(counters.camera_frames),
    )
    return EngineSample(
        time.monotonic(),
        copy,
        engine.timer.stage_s,
        tick_s,
        batch,
        len(directory.worlds),
        directory.lanes_in_use,
        counters.count_trials_played(),
        directory.shared_bytes,
        directory.memory.held_bytes,
        watching.pictures,
        watching.tiles,
        watching.late,
    )
