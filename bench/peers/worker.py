"""A program of this folder in processes of their own, as seen by whoever compares them."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
READY_TIMEOUT_S = 600.0
"""Some peers take a second for each environment."""
_LAST_WORDS = 5
_MOST_BYTES = 1 << 16


class PeerError(Exception):
    """A program that did not do what it should; the text has its last words."""


class Worker:
    """One process. It is there when it is made, and ready when `about` is."""

    def __init__(self, program: str, words: Sequence[str], python: Path | None) -> None:
        """`python` is the interpreter that has a peer; None: ours is measured, by this one."""
        self.program = program
        self.about: dict[str, str] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the worker
        self._folder = tempfile.TemporaryDirectory()  # some leave files wherever they are
        self._read = b""
        module = f"worldloom.bench.peers.{program}" if python is None else f"peers.{program}"
        command = [str(python or sys.executable), "-m", module, *words]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            cwd=self._folder.name,
            env=os.environ if python is None else {**os.environ, "PYTHONPATH": str(FOLDER.parent)},
        )

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Take what it says of itself."""
        self.about = self._line(timeout_s)

    def start(self, seconds: float) -> None:
        """Have it step for so long."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n".encode())
        except BrokenPipeError:
            raise self._problem("ended") from None

    def finish(self, seconds: float) -> float:
        """Its frames a second."""
        result = self._line(seconds + READY_TIMEOUT_S)
        return float(result["frames"] / result["seconds"])

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def _line(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        until_s = time.monotonic() + timeout_s
        while b"\n" not in self._read:
            is_there = select.select([self._process.stdout], [], [], max(0.0, until_s - time.monotonic()))[0]
            if not is_there:
                raise self._problem(f"said nothing for {timeout_s:g} s")
            came = os.read(self._process.stdout.fileno(), _MOST_BYTES)
            if not came:
                raise self._problem("ended")
            self._read += came
        line, _, self._read = self._read.partition(b"\n")
        result: dict[str, Any] = json.loads(line)
        return result

    def _problem(self, what: str) -> PeerError:
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()[-_LAST_WORDS:]
        words = "\n".join(["", *said]) if said else " nothing"
        return PeerError(f"{self.program} {what}: expected frames; its last words were{words}")
