"""Tests that need OpenGL never go missing in silence."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

ROOT = Path(__file__).parents[1]
NO_GL = {"__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent"}  # EGL loads, and finds no driver


class RunPytest(Protocol):
    """Pytest's options by position, environment variables by name."""

    def __call__(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def run_gl_test(tmp_path: Path) -> RunPytest:
    """Run pytest, under the rules of tests/conftest.py, over one passing test that is marked gl and one that is not."""
    sample = tmp_path / "test_sample.py"
    sample.write_text(
        "import pytest\n\n\n@pytest.mark.gl\ndef test_drawn():\n    pass\n\n\ndef test_plain():\n    pass\n"
    )

    def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "WORLDLOOM_SKIP_GL"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "tests.conftest", *options, sample],
            cwd=ROOT,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_without_gl_the_run_fails_and_says_how_to_get_it(run_gl_test: RunPytest) -> None:
    result = run_gl_test(**NO_GL)
    assert result.returncode != 0
    packages = re.search('PACKAGES="(.+)"', (ROOT / "scripts" / "setup-gl.sh").read_text())
    assert packages
    assert "Tests that need it: 1" in result.stderr
    assert f"apt-get install {packages[1]}\n" in result.stderr
    assert "WORLDLOOM_SKIP_GL=1" in result.stderr
    assert "passed" not in result.stdout


def test_skipping_is_possible_and_spoken(run_gl_test: RunPytest) -> None:
    result = run_gl_test(**NO_GL, WORLDLOOM_SKIP_GL="1")
    assert result.returncode == 0
    assert "1 passed, 1 skipped" in result.stdout
    assert "WORLDLOOM_SKIP_GL=1" in result.stdout


def test_nobody_asks_for_gl_when_nothing_selected_needs_it(run_gl_test: RunPytest) -> None:
    result = run_gl_test("-m", "not gl", **NO_GL)
    assert result.returncode == 0
    assert "1 passed, 1 deselected" in result.stdout
