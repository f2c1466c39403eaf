"""The commands and programs of pages that follow on each other run in the order of the page, as they stand.

Those of a page run in one directory.
"""

import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.support.server_process import serving
from tests.test_docs import ADDRESS, RUN_IN_ORDER, blocks

WORLDLOOM = Path(sys.executable).parent / "worldloom"
NEEDS_A_FLEET = re.compile(r"--fleet|worldloom\.fleet")
"""Blocks about a fleet: tests/fleet/test_collection.py collects on one."""


def run_page(page: Path, folder: Path) -> dict[str, str]:
    """Return the output of each block, by its code. A server that is started runs until the end."""
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(folder / "minari"), "OMP_NUM_THREADS": "1"}
    found = {}
    address = ADDRESS
    with ExitStack() as servers:
        for line, code in sorted([*blocks(page, "sh"), *blocks(page, "python")]):
            if NEEDS_A_FLEET.search(code):
                continue
            if code.startswith("worldloom "):
                commands = [shlex.split(one, comments=True) for one in code.replace("\\\n", " ").splitlines()]
                if commands[0][1] == "serve":
                    flags = [word for word in commands[0][2:] if word not in ("--listen", ADDRESS)]
                    address = servers.enter_context(serving("--listen", "127.0.0.1:0", *flags)).address
                    continue
                words = [[str(WORLDLOOM), *command[1:]] for command in commands]
            else:
                name = re.match(r"# (\w+\.py)\n", code)
                path = folder / (name[1] if name else f"line_{line}.py")
                path.write_text(code.replace(ADDRESS, address))
                words = [[sys.executable, path.name]]
            found[code] = ""
            for one in words:
                done = subprocess.run(one, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
                assert done.returncode == 0, f"line {line}: {shlex.join(one)}\n{done.stdout}\n{done.stderr}"
                found[code] += done.stdout
    return found


@pytest.fixture(scope="module")
def collect_page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run_page(RUN_IN_ORDER[0], tmp_path_factory.mktemp("page"))


def test_the_page_about_datasets_runs(collect_page: dict[str, str]) -> None:
    assert len(collect_page) > 4


def test_the_clone_catches(collect_page: dict[str, str]) -> None:
    [told] = [text for text in collect_page.values() if "mean return" in text and "episodes\n" in text]
    found = re.search(r"mean return (-?[\d.]+) in (\d+) episodes", told)
    assert found is not None
    assert float(found[1]) >= 0.9
    assert int(found[2]) > 1000


def test_the_page_about_states_runs_and_draws_its_pictures(tmp_path: Path) -> None:
    from PIL import Image

    page = RUN_IN_ORDER[1]
    assert len(run_page(page, tmp_path)) > 4
    shown = re.findall(r"!\[.*?\]\((states/\w+\.png)\)", page.read_text())
    assert len(shown) == 5
    for picture in shown:
        with Image.open(page.parent / picture) as ours, Image.open(tmp_path / Path(picture).name) as drawn:
            assert ours.size == drawn.size
            colors = drawn.getcolors(1 << 20)
            assert colors is not None
            assert len(colors) > 20
