"""The commands and programs of docs/collect.md run in the order of the page, in one directory, as they stand."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import RUN_IN_ORDER, blocks

WORLDLOOM = Path(sys.executable).parent / "worldloom"
NEEDS_A_FLEET = re.compile(r"--fleet|worldloom\.fleet")
"""Blocks about a fleet: tests/fleet/test_collection.py collects on one."""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Output of each block, by its code."""
    folder = tmp_path_factory.mktemp("page")
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(folder / "minari"), "OMP_NUM_THREADS": "1"}
    found = {}
    for line, code in sorted([*blocks(RUN_IN_ORDER, "sh"), *blocks(RUN_IN_ORDER, "python")]):
        if NEEDS_A_FLEET.search(code):
            continue
        if code.startswith("worldloom "):
            commands = [shlex.split(one, comments=True) for one in code.replace("\\\n", " ").splitlines()]
            words = [[str(WORLDLOOM), *command[1:]] for command in commands]
        else:
            name = re.match(r"# (\w+\.py)\n", code)
            path = folder / (name[1] if name else f"line_{line}.py")
            path.write_text(code)
            words = [[sys.executable, path.name]]
        found[code] = ""
        for one in words:
            done = subprocess.run(one, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
            assert done.returncode == 0, f"line {line}: {shlex.join(one)}\n{done.stdout}\n{done.stderr}"
            found[code] += done.stdout
    return found


def test_everything_runs(printed: dict[str, str]) -> None:
    assert len(printed) > 4


def test_the_clone_catches(printed: dict[str, str]) -> None:
    [told] = [text for text in printed.values() if "mean return" in text and "episodes\n" in text]
    found = re.search(r"mean return (-?[\d.]+) in (\d+) episodes", told)
    assert found is not None
    assert float(found[1]) >= 0.9
    assert int(found[2]) > 1000
