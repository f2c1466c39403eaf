"""Comparisons within one run, and a table of them.

Timings of one machine on one day mean little by themselves. So whatever has a target is measured as a ratio: the two
sides run in turn, round by round, and the medians are compared.

Rounds in turn: everything that is compared is there at once, and each plays for a moment, again and again.

What else the machine does in the meantime then falls on all of them alike.

What a measurement was taken on, in one line.

Puts what was measured into a page: between two marks, so that the words around it stay.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from worldloom.profiler.results import processor
from worldloom.render.devices import list_devices, probe


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


Play: TypeAlias = Callable[[float], float]
"""Plays for so many seconds; its frames a second."""


def play_in_turn(plays: Mapping[str, Play], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Frames a second of each in each round, after a short one that does not count."""
    rates: dict[str, list[float]] = {name: [] for name in plays}
    for number in range(-1, rounds):
        for name, play in plays.items():
            rate = play(seconds if number >= 0 else seconds / 3)
            if number >= 0:
                rates[name].append(rate)
        if number >= 0:
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return rates


def medians(rates: Mapping[str, list[float]]) -> dict[str, float]:
    """The middle of each."""
    return {name: median(values) for name, values in rates.items()}


def add_options(parser: argparse.ArgumentParser, seconds: float) -> None:
    """How long, how often, and on what."""
    parser.add_argument("--rounds", type=at_least_one, default=7, help="rounds of each (%(default)s)")
    parser.add_argument("--seconds", type=above_zero, default=seconds, help="length of a round (%(default)s)")
    parser.add_argument("--cores", type=at_least_one, default=2, help="cores for all together (%(default)s)")


def at_least_one(word: str) -> int:
    """An option that counts something."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r}: expected a number, 1 or more")
    return int(word)


def above_zero(word: str) -> float:
    """An option in seconds."""
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{word!r}: expected seconds, more than 0 and less than an hour")
    return value


def graphics() -> str:
    """The device that OpenGL draws on, as its driver names it."""
    devices = list_devices()
    return (probe(devices[0]).name or "no graphics device that works") if devices else "no graphics device"


def take_cores(count: int) -> int:
    """Let this process, and those it starts from now on, have so many cores; how many there were."""
    available = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(available):
        raise ValueError(f"--cores is {count}: expected 1 to {len(available)}, which is what this process has")
    os.sched_setaffinity(0, available[:count])
    return len(available)


def circumstances(packages: Iterable[str]) -> str:
    """Processor, cores in use, versions and date."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    count = len(os.sched_getaffinity(0))
    cores = f"{count} core{'' if count == 1 else 's'}"
    today = datetime.now(UTC).date().isoformat()
    return f"{processor()}, {cores} in use; Python {platform.python_version()}, {versions}; {today}"


BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; columns that hold numbers only are set to the right."""
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
    """How many times as much, in words as tables have it."""
    if to is None:
        return ""
    times = value / to
    return f"{times:.0f} ×" if times >= 10 else f"{times:.1f} ×" if times >= 2 else f"{times:.2f} ×"


def put_between(text: str, lines: Sequence[str]) -> str:
    """The text with these lines between its marks, in place of those that were there."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the page has no place for a table: expected {BEGIN} and after it {END}, each once")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([before + BEGIN, *lines, END + after])


def write_page(page: Path, lines: Sequence[str]) -> None:
    """Put these lines into a file."""
    page.write_text(put_between(page.read_text(), lines))


def _is_number(cell: str) -> bool:
    return not cell.strip("0123456789.,× ")
