"""Memory of a long run, and time of a fresh start."""

import subprocess
import sys
from pathlib import Path

import pytest

from worldloom.bench.measuring import Report
from worldloom.bench.workloads import block_yard
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.renderer import Renderer

_BATCHES = 10_000
_FIRST_FRAME = """
import numpy as np
from worldloom.bench.workloads import block_yard
from worldloom.render.arena import lay_out, allocate_arena
from worldloom.render.choose import make_renderer
scene, views = block_yard(1)
offsets, size_bytes = lay_out(views)
make_renderer("cpu").draw(scene, views, allocate_arena(size_bytes), offsets)
"""


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize("name", ["cpu", "gl"])
def bench_memory_over_many_batches(report: Report, name: str, request: pytest.FixtureRequest) -> None:
    renderer: Renderer = request.getfixturevalue(name)
    # Batches of changing size and shape, as a server sees them.
    batches = []
    for views_count, side, samples in ((1, 32, 1), (7, 16, 1), (3, 24, 4), (12, 16, 1)):
        scene, views = block_yard(views_count, width=side, height=side, samples=samples, outputs=15)
        offsets, size_bytes = lay_out(views)
        batches.append((scene, views, allocate_arena(size_bytes), offsets))

    def draw(count: int) -> None:
        for k in range(count):
            renderer.draw(*batches[k % len(batches)])

    draw(_BATCHES // 10)
    before = _resident_kib()
    report.seconds(lambda: draw(_BATCHES // 2), rounds=1)
    grown = _resident_kib() - before
    # Half a mebibyte is what the allocator moves by itself; one byte a batch more would not be seen, 100 would.
    report.row(f"{name}, memory growth over {_BATCHES:,} batches", f"{grown} KiB", "≤ 512 KiB", grown <= 512)


def bench_second_start(report: Report) -> None:
    def start() -> None:
        subprocess.run([sys.executable, "-c", _FIRST_FRAME], check=True)

    start()
    seconds = report.seconds(start, rounds=5)
    report.row("second start to first frame, in a process of its own", f"{seconds:.2f} s", "≤ 3 s", seconds <= 3)
