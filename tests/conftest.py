"""What holds for all tests: where OpenGL is missing the run fails, unless WORLDLOOM_SKIP_GL=1 says to go without."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

PROBE = Path(__file__).parents[1] / "scripts" / "probe_gl.py"
SKIP_GL = os.environ.get("WORLDLOOM_SKIP_GL") == "1"
HOW_TO_GET_GL = """\
Get it, with or without a graphics card: make setup
which comes to:                          apt-get install libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri
Or run the other tests alone:            WORLDLOOM_SKIP_GL=1 make test"""

# The same examples every time, so that a change is judged by what it changes; WORLDLOOM_EXPLORE=1 tries others.
# The first example of a property may compile kernels, which takes longer than any deadline per example.
EXPLORE = os.environ.get("WORLDLOOM_EXPLORE") == "1"
hypothesis.settings.register_profile("worldloom", deadline=None, derandomize=not EXPLORE)
hypothesis.settings.load_profile("worldloom")


collect_ignore = [] if importlib.util.find_spec("torch") else ["learners"]
"""Learning libraries are in environments of their own: `make learners`."""

SLOW = (
    *("tests/bench", "tests/demo", "tests/examples", "tests/fleet", "tests/profiler", "tests/client", "tests/learners"),
    *("tests/server/test_", "tests/server/commands", "tests/server/transports", "tests/server/cogment"),
    *(
        "tests/server/dm_env_rpc/test_stateful",
        "tests/server/dm_env_rpc/test_shared_memory",
        "tests/server/engine/test_loading",
    ),
    *("tests/worlds/mujoco", "tests/worlds/maze", "tests/worlds/cartpole", "tests/worlds/test_growth"),
    *("tests/worlds/test_every_family", "tests/worlds/test_page", "tests/worlds/test_registry"),
    *(
        "tests/kernels/test_compiling",
        "tests/render/test_reference",
        "tests/render/test_backdrops",
        "tests/render/test_gl",
    ),
    *("tests/render/test_isolation", "tests/render/test_bad_scenes", "tests/render/test_lamps", "tests/support/test_"),
    *("tests/test_docs", "tests/test_first_errors", "tests/test_gl_gate", "tests/test_wheel", "tests/test_front"),
)
"""Beginnings of the paths of tests that start processes, or take seconds: `make test-quick` leaves them out."""


@pytest.fixture(autouse=True)
def _no_exception_is_left() -> Iterator[None]:
    """Check that a test leaves no exception as the current one, which logs and errors of later tests would show."""
    yield
    assert sys.exc_info()[1] is None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):  # one of several workers: what is quick comes last, so that all end together
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if SKIP_GL:
        for item in _gl_tests(items):
            item.add_marker(pytest.mark.skip(reason="WORLDLOOM_SKIP_GL=1"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for OpenGL before the first test, and only if one of those that were selected needs it."""
    waiting = _gl_tests(session.items)
    if SKIP_GL or session.config.option.collectonly or not waiting:
        return
    probe = subprocess.run([sys.executable, PROBE], capture_output=True, text=True, timeout=60)
    if probe.returncode:
        reason = probe.stderr.strip() or f"the probe ended with code {probe.returncode}"
        raise pytest.UsageError(f"{reason}. Tests that need it: {len(waiting)}\n{HOW_TO_GET_GL}")


def _gl_tests(items: list[pytest.Item]) -> list[pytest.Item]:
    return [item for item in items if item.get_closest_marker("gl")]
