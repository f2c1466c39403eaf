"""Estimates of a family's memory: they bound what lanes take, and not by far."""

import json
import subprocess
import sys
from typing import Any

import pytest

MOST_ABOVE = 3.0
"""Times the memory that was measured. Tables grow by doubling and count twice; simulations use little of their arenas
until they have many contacts."""

CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("catch", 20_000, {}),
    ("cartpole", 20_000, {}),
    ("maze", 2_000, {}),
    ("dmc", 128, {"domain": "humanoid", "task": "walk"}),
    ("dmc", 8, {"domain": "quadruped", "task": "escape"}),
    ("gym", 64, {"id": "Hopper-v4"}),
    ("mujoco", 256, {"model": "arm.xml"}),
]


@pytest.mark.parametrize(("family", "lanes", "settings"), CASES)
def test_the_estimate_bounds_the_memory_of_lanes(family: str, lanes: int, settings: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "tests.support.measure_memory", family, str(lanes), json.dumps(settings)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    estimated, measured = json.loads(out)
    assert measured <= estimated, f"{measured / lanes:.0f} bytes a lane, estimated {estimated / lanes:.0f}"
    assert estimated <= MOST_ABOVE * measured, f"{measured / lanes:.0f} bytes a lane, estimated {estimated / lanes:.0f}"
