"""A real Ray cluster of three nodes on this machine, in a folder of its own."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.support.ray_cluster import ENVIRONMENT, RayCluster

TIMEOUT_S = 90.0
"""Bound of each wait. Starting a server takes some 3 s on an idle machine."""


@pytest.fixture(scope="module")
def ray_folder() -> Iterator[Path]:
    """A folder for Ray's own files; short, as the path of a socket has 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="wlray"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("RAY_TMPDIR", str(folder))
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[RayCluster]:
    with RayCluster(3) as cluster:
        yield cluster


def wait_until(condition: Callable[[], Any], what: str = "it") -> float:
    """Wait until a condition holds; return how long that took."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < TIMEOUT_S, f"{what} took more than {TIMEOUT_S:g} s"
        time.sleep(0.05)
    return time.monotonic() - began_s


def is_running(pid: int | None) -> bool:
    """True if there is a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def find_processes(word: str) -> set[int]:
    """Return the processes of this test's Ray that have a word in their command line; others may have theirs."""
    mine = f"RAY_TMPDIR={os.environ['RAY_TMPDIR']}".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() not in path.read_bytes() or not is_running(int(path.parent.name)):
                continue
            if mine in (path.parent / "environ").read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def kill(pid: int | None, number: signal.Signals = signal.SIGKILL) -> None:
    assert pid is not None
    os.kill(pid, number)
