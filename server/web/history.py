"""The last minutes of a server, a row a second, from the samples that its engine takes."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from worldloom.server.engine.sampling import EngineSample
from worldloom.server.engine.timing import Histogram
from worldloom.server.web.watched_server import CODE_NAMES, WatchedServer

Row: TypeAlias = dict[str, Any]
_KEPT_ROWS = 300
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class History:
    """Rows of the last five minutes, oldest first. Used on one thread only."""

    def __init__(self, server: WatchedServer) -> None:
        self._server = server
        self._last: EngineSample | None = None
        self.rows: deque[tuple[int, Row]] = deque(maxlen=_KEPT_ROWS)
        """Rows with their numbers."""
        self._count = 0

    def update(self) -> None:
        """Add a row if the engine has taken another sample."""
        sample = self._server.sample
        if sample is None or sample is self._last:
            return
        if self._last is not None:
            self._count += 1
            self.rows.append((self._count, self._row(self._last, sample)))
        self._last = sample

    def since(self, number: int) -> tuple[int, list[Row]]:
        """Return the rows after the one of this number, and the number of the last."""
        return self._count, [row for count, row in self.rows if count > number]

    def _row(self, before: EngineSample, now: EngineSample) -> Row:
        server, counters, earlier = self._server, now.counters, before.counters
        ticks = counters.ticks - earlier.ticks
        return {
            "time": time.time(),
            "seconds": now.taken_at_s - before.taken_at_s,
            "steps": counters.steps - earlier.steps,
            "lane_steps": counters.lane_steps - earlier.lane_steps,
            "frames": _difference(earlier.frames, counters.frames),
            "ticks": ticks,
            "mean_batch": (counters.steps - earlier.steps) / ticks if ticks else 0.0,
            "tick_ms": _percentiles(before.tick_s, now.tick_s),
            "stages": _difference(before.stage_s, now.stage_s),
            "waiting": server.count_waiting(),
            "streams": counters.streams,
            "worlds": now.worlds,
            "lanes": now.lanes,
            "trials": counters.trials,
            "memory_bytes": now.memory_bytes,
            "max_memory_bytes": server.engine.limits.max_memory_bytes,
            "shared_bytes": now.shared_bytes,
            "process_bytes": server.process_bytes,
            "refusals": {
                CODE_NAMES.get(code, str(code)): count
                for code, count in _difference(earlier.refusals_by_code, counters.refusals_by_code).items()
                if count
            },
            "pictures": now.pictures - before.pictures,
            "tiles": now.tiles - before.tiles,
            "late_pictures": now.late_pictures - before.late_pictures,
            "viewers": server.viewers,
        }


def _difference(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: count - before.get(name, 0) for name, count in now.items()}


def _percentiles(before: Histogram | None, now: Histogram | None) -> dict[str, float] | None:
    """Return percentiles of the tick times between two samples, in milliseconds; None if there were no ticks."""
    if before is None or now is None:
        return None
    counts = [later - earlier for earlier, later in zip(before.counts, now.counts, strict=True)]
    if not any(counts):
        return None
    return {name: 1000 * _quantile(now.bounds, counts, share) for name, share in _PERCENTILES.items()}


def _quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Return the upper bound of the bucket that has the value which this share of all values does not exceed."""
    wanted, passed = share * sum(counts), 0
    for bound, count in zip(bounds, counts, strict=False):
        passed += count
        if passed >= wanted:
            return bound
    return bounds[-1]
