"""Measuring for benchmarks: comparisons within one run, and tables of them in Markdown pages.

Timings of one machine on one day mean little by themselves. Whatever has a target is measured as a ratio: the sides run
in turn, round by round, and medians are compared. Pages hold their tables between two marks, so that the text around
them stays when they are measured again.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from worldloom.profiler.results import processor
from worldloom.render.devices import list_devices, probe

RateFunction: TypeAlias = Callable[[float], float]
"""Steps something for a number of seconds and returns its frames a second."""
ROUNDS = 5
"""Rounds of a comparison, unless it has its own number."""


@dataclass(frozen=True)
class Row:
    """One line of the table of benchmarks."""

    what: str
    measured: str
    target: str = ""
    met: bool = True
    figures: dict[str, float] = field(default_factory=dict)
    """Numbers of the row by name, for pages that quote them."""

    def cells(self) -> tuple[str, str, str]:
        """Return the cells of the row; a missed target is marked."""
        return self.what, self.measured, self.target if self.met else f"{self.target} **missed**"


@dataclass
class Rounds:
    """Rates of several runs that took their turn in every round."""

    rates: dict[str, list[float]]

    def rate(self, name: str) -> float:
        """Return the median rate of a run."""
        return median(self.rates[name])

    def ratio(self, name: str, to: str) -> float:
        """Return the median over all rounds of one run's rate to another's."""
        return median(one / other for one, other in zip(self.rates[name], self.rates[to], strict=True))


def combined_rate(first: float, second: float) -> float:
    """Return the rate of two parts of a step, one after the other: 1 / (1 / first + 1 / second)."""
    return 1 / (1 / first + 1 / second)


class Report:
    """Measures for a benchmark, and adds rows to the table."""

    def __init__(self, benchmark: Any, add_row: Callable[[Row], None], note: Callable[[str], None]) -> None:
        """`benchmark` is the fixture of pytest-benchmark; `note` shows text while the benchmark runs."""
        self._benchmark = benchmark
        self._add_row = add_row
        self.note = note

    def seconds(self, run: Callable[[], object], rounds: int = 9, before: Callable[[], object] | None = None) -> float:
        """Return the median time of `run`; `before` is called ahead of each round and not measured."""
        self._benchmark.pedantic(run, setup=before, rounds=rounds, warmup_rounds=1)
        return float(self._benchmark.stats.stats.median)

    def ratio(self, slow: Callable[[], object], fast: Callable[[], object], rounds: int = 9) -> float:
        """Return how many times as long `slow` takes as `fast`, measured in turn."""
        slow_s: list[float] = []

        def time_slow() -> None:
            began = time.perf_counter()
            slow()
            slow_s.append(time.perf_counter() - began)

        fast_s = self.seconds(fast, rounds, before=time_slow)
        return median(slow_s[1:]) / fast_s

    def in_turn(
        self,
        runs: Mapping[str, RateFunction],
        seconds: float,
        rounds: int = ROUNDS,
        compared: tuple[str, str] | None = None,
    ) -> Rounds:
        """Return the rates of all runs in every round, after a round that does not count.

        The ratio of the two runs that are `compared` is noted after each round.
        """
        found = Rounds({name: [] for name in runs})
        is_warm = False

        def play_round() -> None:
            nonlocal is_warm
            for name, run in runs.items():
                rate = run(seconds)
                if is_warm:
                    found.rates[name].append(rate)
            if is_warm:
                count = len(next(iter(found.rates.values())))
                so_far = f", {found.ratio(*compared):.3g} × so far" if compared else ""
                self.note(f"round {count} of {rounds}{so_far}")
            is_warm = True

        self._benchmark.pedantic(play_round, rounds=rounds, warmup_rounds=1)
        return found

    def row(
        self, what: str, measured: str, target: str = "", met: bool = True, figures: Mapping[str, float] | None = None
    ) -> None:
        """Add a line to the table, with its target and whether that was met, if it has one."""
        self._add_row(Row(what, measured, target, met, dict(figures or {})))

    def ratio_row(
        self,
        what: str,
        value: float,
        note: str = "",
        at_least: float | None = None,
        at_most: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Add a line for a ratio, with a note in brackets and a target if there is one."""
        measured = f"{value:.3g} × ({note})" if note else f"{value:.3g} ×"
        target = f"≥ {at_least:g} ×" if at_least is not None else f"≤ {at_most:g} ×" if at_most is not None else ""
        met = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
        self.row(what, measured, target, met, figures)

    def not_measured(self, what: str, reason: str) -> None:
        """Add a line for something that cannot be measured here."""
        self._benchmark.pedantic(lambda: None, rounds=1)
        self.row(what, f"not measured: {reason}")


def measure_in_turn(runs: Mapping[str, RateFunction], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return frames a second of each run in each round, after a short warm-up round.

    All runs take their turn in every round, so that other load on the machine affects all of them alike.
    """
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-1, rounds):
        for name, run in runs.items():
            rate = run(seconds if number >= 0 else seconds / 3)
            if number >= 0:
                rates[name].append(rate)
        if number >= 0:
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return rates


def medians(rates: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median rate of each."""
    return {name: median(values) for name, values in rates.items()}


def add_options(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Declare the options --rounds, --seconds and --cores."""
    parser.add_argument("--rounds", type=at_least_one, default=7, help="rounds of each (%(default)s)")
    parser.add_argument("--seconds", type=above_zero, default=seconds, help="length of a round (%(default)s)")
    parser.add_argument("--cores", type=at_least_one, default=2, help="cores for all together (%(default)s)")


def at_least_one(word: str) -> int:
    """Parse an option that is a count."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r}: expected a number, 1 or more")
    return int(word)


def above_zero(word: str) -> float:
    """Parse an option in seconds."""
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{word!r}: expected seconds, more than 0 and less than an hour")
    return value


def graphics() -> str:
    """Return the name of the device that OpenGL draws on."""
    devices = list_devices()
    return (probe(devices[0]).name or "no graphics device that works") if devices else "no graphics device"


def limit_cores(count: int) -> int:
    """Restrict this process, and those it starts, to `count` cores; return how many it had."""
    available = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(available):
        raise ValueError(f"--cores is {count}: expected 1 to {len(available)}, which is what this process has")
    os.sched_setaffinity(0, available[:count])
    return len(available)


def describe_conditions(packages: Iterable[str]) -> str:
    """Return the processor, cores in use, versions of packages and date, in one line."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    count = len(os.sched_getaffinity(0))
    cores = f"{count} core{'' if count == 1 else 's'}"
    today = datetime.now(UTC).date().isoformat()
    return f"{processor()}, {cores} in use; Python {platform.python_version()}, {versions}; {today}"


BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; columns of numbers are aligned right."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    if any(len(row) != len(heads) for row in rows):
        raise ValueError(
            f"rows of {sorted({len(row) for row in rows})} cells: expected {len(heads)}, one for each head"
        )
    rules = ["---:" if all(_is_number(row[k]) for row in rows) else "---" for k in range(len(heads))]
    return [f"| {' | '.join(row)} |" for row in [heads]] + [
        f"|{'|'.join(rules)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def ratio(value: float, to: float | None) -> str:
    """Return the ratio of two values as text: 2.3 ×."""
    if to is None:
        return ""
    times = value / to
    return f"{times:.0f} ×" if times >= 10 else f"{times:.1f} ×" if times >= 2 else f"{times:.2f} ×"


def replace_between_marks(text: str, lines: Sequence[str]) -> str:
    """Return the text with the lines between its marks replaced."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the page has no marks for a table: expected {BEGIN} and after it {END}, each once")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([before + BEGIN, *lines, END + after])


def write_page(page: Path, lines: Sequence[str]) -> None:
    """Replace the lines between the marks of a page."""
    page.write_text(replace_between_marks(page.read_text(), lines))


def _is_number(cell: str) -> bool:
    return not cell.strip("0123456789.,× ")
