"""Plugin of pytest for benchmarks: their fixtures, and what they find, told to the process that runs them.

Events are lines of JSON: `{"row": …}` for a line of the table, `{"note": …}` for progress. `worldloom.bench.__main__`
starts a process of pytest with this plugin for each benchmark and reads them.
"""

import dataclasses
import json
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from worldloom.bench.measuring import Report, Row

if TYPE_CHECKING:
    from worldloom.render.cpu import CPURenderer
    from worldloom.render.gl.renderer import GLRenderer

_STDOUT = 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option for the file descriptor that events are written to."""
    parser.addoption("--events-fd", type=int, default=_STDOUT, help="where to write events, as lines of JSON (stdout)")


def pytest_configure() -> None:
    """Take SIGTERM for an interrupt, so that servers which a benchmark has started end with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture
def report(benchmark: Any, request: pytest.FixtureRequest) -> Report:
    """Report of a benchmark, whose rows and notes become events."""
    events_fd: int = request.config.getoption("--events-fd")

    def write(**event: object) -> None:
        os.write(events_fd, (json.dumps(event) + "\n").encode())

    def add_row(row: Row) -> None:
        write(row=dataclasses.asdict(row))

    return Report(benchmark, add_row, lambda text: write(note=text))


@pytest.fixture(scope="session")
def cpu() -> "Iterator[CPURenderer]":
    """The cpu renderer with a thread for each core."""
    from worldloom.render.cpu import CPURenderer  # here, as below: not every benchmark draws

    with CPURenderer() as made:
        yield made


@pytest.fixture(scope="session")
def gl() -> "Iterator[GLRenderer]":
    """The gl renderer, on the first device."""
    from worldloom.render.gl.renderer import GLRenderer

    with GLRenderer() as made:
        yield made
