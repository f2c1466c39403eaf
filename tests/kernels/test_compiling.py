"""Kernels are compiled once, progress is announced, and the cache depends on every source that kernels use."""

import ast
import importlib
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

from worldloom.kernels import compiling

ROOT = Path(__file__).parents[2]

FIRST_FRAME = """
import numpy as np
from worldloom.kernels.compiling import announce_compiling
from worldloom.worlds.pool import count_running
from worldloom.render.cpu import CPURenderer
CPURenderer().close()
with announce_compiling():
    count_running(np.zeros(1, np.int64), np.zeros(1, np.uint8))
"""
ONE_SMALL_KERNEL = """
import numpy as np
from worldloom.kernels import compiling
from worldloom.worlds.pool import count_running
compiling._ANNOUNCE_AFTER_S = {after_s}
with compiling.announce_compiling():
    count_running(np.zeros(1, np.int64), np.zeros(1, np.uint8))
assert count_running.stats.cache_misses, "it is compiled, not loaded"
"""


def start(cache: Path, program: str = FIRST_FRAME) -> tuple[float, str]:
    """Return the CPU time of a process, which has drawn a frame, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program],
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
    assert sum(bool(re.fullmatch(r"worldloom: compiled \d+ of \d+ functions", line)) for line in lines) > 3
    assert [line for line in lines if "compiling" in line] == lines[:1], "said once"
    done = [line for line in lines if line.startswith("worldloom: compiled in ")]
    assert len(done) == 1
    assert done[0].endswith(f"kept in {tmp_path / 'kernels'}")
    took_s, said = start(tmp_path)
    assert said == ""
    # Importing numba takes most of it; 3 s is what a person is promised.
    assert took_s < 3


@pytest.mark.parametrize(("after_s", "count"), [("0.0", 2), ("float('inf')", 0)])
def test_what_is_compiled_in_a_moment_is_not_announced(tmp_path: Path, after_s: str, count: int) -> None:
    """A start with a warm cache but for a few functions says nothing; how long they take is set, not measured."""
    lines = start(tmp_path, ONE_SMALL_KERNEL.format(after_s=after_s))[1].splitlines()
    assert len(lines) == count
    assert [line.startswith("worldloom: compil") for line in lines] == [True] * count


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


DECORATED = "from worldloom.kernels.compiling import kernel\n\n@kernel\ndef run(): ...\n"
THEIRS = ("pool.base", "pool.kernels", "pool.other", "far.kernels")
OURS = ("worldloom.kernels.raster.views", "worldloom.kernels.wire", "worldloom.worlds.catch.kernels")


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Sources by module that replace those of files."""
    texts = {
        "pool.rules": "LIMIT = 3\n",
        "pool.text": "def describe(): ...\n",
        "pool.base": "from .rules import LIMIT\n" + DECORATED,
        "pool.kernels": "from pool.base import (\n    run,\n)\nfrom pool.text import describe\n" + DECORATED,
        "pool.other": "import numpy as np\nfrom worldloom.kernels.tables import F32\n" + DECORATED,
        "far.kernels": "from pool.kernels import run\nfrom pool.text import describe\n" + DECORATED,
    }
    read_source, find_file = compiling._source, compiling._file
    monkeypatch.setattr(compiling, "_source", lambda name: texts[name] if name in texts else read_source(name))
    monkeypatch.setattr(compiling, "_file", lambda name: f"{name}.py" if name in texts else find_file(name))
    yield texts
    forget()


def forget() -> None:
    compiling.fingerprint.cache_clear()
    compiling._imported_for_kernels.cache_clear()


@pytest.mark.parametrize(
    ("edited", "affected"),
    [
        ("pool.rules", {"pool.base", "pool.kernels", "far.kernels"}),
        ("pool.base", {"pool.base", "pool.kernels", "far.kernels"}),
        ("pool.kernels", {"pool.kernels", "far.kernels"}),
        ("pool.other", {"pool.other"}),
        ("pool.text", set()),
        ("worldloom.kernels.tables", {"pool.other", *OURS}),
        ("worldloom.kernels.raster.cull", {"worldloom.kernels.raster.views"}),
        ("worldloom.kernels.outputs", {"worldloom.kernels.raster.views"}),
        ("worldloom.worlds.random", {"worldloom.worlds.catch.kernels"}),
        ("worldloom.worlds.family", set()),
    ],
)
def test_a_change_affects_the_modules_that_depend_on_it_and_no_others(
    sources: dict[str, str], edited: str, affected: set[str]
) -> None:
    def fingerprints() -> dict[str, str]:
        forget()
        return {
            module: compiling.fingerprint(module)
            for module in ("pool.base", "pool.kernels", "pool.other", "far.kernels", *OURS)
        }

    before = fingerprints()
    sources[edited] = compiling._source(edited) + "# edited\n"
    after = fingerprints()
    assert {module for module in before if before[module] != after[module]} == affected


def test_a_script_without_a_file_has_a_fingerprint() -> None:
    assert compiling.fingerprint("no.such.module") != compiling.fingerprint("worldloom.kernels.wire")


MODULES = [
    "worldloom." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("kernels", "render", "worlds", "server", "client", "demo", "profiler", "bench")
    for path in sorted((ROOT / package).rglob("*.py"))
    if "_pb2" not in path.name and compiling._DECORATED.search(path.read_text())
]
"""Every module of the tree that holds kernels."""


def test_the_tree_has_kernels() -> None:
    assert {"worldloom.kernels.raster.views", "worldloom.worlds.maze.scene", "worldloom.kernels.simd"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_whatever_kernels_use_is_covered_by_their_fingerprint(name: str) -> None:
    module = importlib.import_module(name)
    covered = compiling.kernel_modules(name)
    origins = imported_from(Path(str(module.__file__)).read_text())
    for function in vars(module).values():
        if isinstance(function, CPUDispatcher) and function.py_func.__module__ == name:
            for used, value in globals_of(function.py_func):
                if isinstance(value, CPUDispatcher):
                    assert value.py_func.__module__ in covered, used
                elif isinstance(value, int | float | tuple | np.generic) or type(value).__name__ == "_Intrinsic":
                    assert used not in origins or origins[used] in covered, used


def globals_of(function: Any) -> Iterator[tuple[str, Any]]:
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]


def imported_from(source: str) -> dict[str, str]:
    """Return the module that each imported name comes from."""
    return {
        alias.asname or alias.name: str(node.module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
