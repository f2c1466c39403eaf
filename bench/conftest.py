"""Fixtures of all benchmarks: a report to measure with, the renderers, and a table at the end."""

import os
import platform
from collections.abc import Iterator
from typing import Any

import pytest

from worldloom.bench.measuring import ROWS, Report
from worldloom.profiler.results import processor
from worldloom.render.cpu import CPURenderer
from worldloom.render.gl.renderer import GLRenderer


@pytest.fixture
def report(benchmark: Any) -> Iterator[Report]:
    """Report of a benchmark; fails if a target was missed."""
    made = Report(benchmark)
    yield made
    assert not made.missed, "; ".join(made.missed)


@pytest.fixture(scope="session")
def cpu() -> Iterator[CPURenderer]:
    """The cpu renderer with a thread for each core."""
    with CPURenderer() as made:
        yield made


@pytest.fixture(scope="session")
def gl() -> Iterator[GLRenderer]:
    """The gl renderer, on the first device."""
    with GLRenderer() as made:
        yield made


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table as Markdown, to be copied into the docs."""
    if not ROWS:
        return
    write = terminalreporter.write_line
    write("")
    write(f"{processor()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}")
    write("| what | measured | target |")
    write("|---|---|---|")
    for row in ROWS:
        write(f"| {row.what} | {row.measured} | {row.target}{'' if row.met else ' **missed**'} |")
