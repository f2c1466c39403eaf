"""Comparisons within one run, and a table of them.

Timings of one machine on one day mean little by themselves. So whatever has a target is measured as a ratio: the two
sides run in turn, round by round, and the medians are compared.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    measured: str
    target: str
    met: bool


ROWS: list[Row] = []


class Report:
    """Measures, and puts what it measured into the table."""

    def __init__(self, benchmark: Any) -> None:
        self._benchmark = benchmark
        self.missed: list[str] = []
        """What was not as it should be."""

    def seconds(self, run: Callable[[], object], rounds: int = 9, before: Callable[[], object] | None = None) -> float:
        """Median time of `run`; `before` is called ahead of each round and not counted."""
        self._benchmark.pedantic(run, setup=before, rounds=rounds, warmup_rounds=1)
        return float(self._benchmark.stats.stats.median)

    def ratio(self, slow: Callable[[], object], fast: Callable[[], object], rounds: int = 9) -> float:
        """How many times as long `slow` takes as `fast`, the two in turn."""
        slow_s: list[float] = []

        def time_slow() -> None:
            began = time.perf_counter()
            slow()
            slow_s.append(time.perf_counter() - began)

        fast_s = self.seconds(fast, rounds, before=time_slow)
        return median(slow_s[1:]) / fast_s

    def row(self, what: str, measured: str, target: str = "", met: bool = True) -> None:
        """A line of the table; the benchmark fails in the end if its target was not met."""
        ROWS.append(Row(what, measured, target, met))
        if not met:
            self.missed.append(f"{what}: {measured}, expected {target}")
