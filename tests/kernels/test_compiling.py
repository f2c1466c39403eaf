"""Kernels are compiled once, people are told, and the cache goes where it can."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from worldloom.kernels import compiling

FIRST_FRAME = """
import numpy as np
from worldloom.kernels.compiling import announce_compiling
from worldloom.worlds.props import any_bare
from worldloom.render.cpu import CPURenderer
CPURenderer().close()
with announce_compiling():
    any_bare(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32))
"""


def start(cache: Path) -> tuple[float, str]:
    """How long the processor works until a process has its first frame, and what it says."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", FIRST_FRAME],
        env={**os.environ, "WORLDLOOM_CACHE_DIR": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stderr


def test_the_first_start_says_how_far_it_is_and_the_second_is_quick(tmp_path: Path) -> None:
    _, said = start(tmp_path)
    lines = said.splitlines()
    assert lines[0].startswith("worldloom: compiling its kernels, once on this machine")
    assert any(line.startswith("worldloom: compiled 8 of ") for line in lines)
    assert [line for line in lines if "compiling" in line] == lines[:1], "said once"
    assert [line for line in lines if line.startswith("worldloom: compiled in ") and str(tmp_path) in line] == lines[
        -2:-1
    ]
    assert lines[-1].startswith("worldloom: compiled 1 more in ")
    took_s, said = start(tmp_path)
    assert said == ""
    # Importing numba takes most of it; 3 s is what a person is promised.
    assert took_s < 3


def test_a_cache_that_cannot_be_written_is_said_and_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setenv("WORLDLOOM_CACHE_DIR", str(blocked))
    with pytest.warns(UserWarning, match=r"cannot be written; using .* instead. Set WORLDLOOM_CACHE_DIR"):
        folder = compiling._cache_folder()
    assert folder.is_dir()


def test_the_cache_follows_the_variable_then_the_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORLDLOOM_CACHE_DIR", str(tmp_path / "mine"))
    assert compiling._cache_folder().parent == tmp_path / "mine"
    monkeypatch.delenv("WORLDLOOM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert compiling._cache_folder().parent == tmp_path / "home" / "worldloom"
