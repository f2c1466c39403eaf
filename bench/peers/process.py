"""Processes that run a program of this folder: started, told to step for a while, asked for their rate."""

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
_LOG_LINES = 5
"""Last lines of its log that an error shows."""
_READ_BYTES = 1 << 16


class PeerError(Exception):
    """A program that failed; the text has the last lines of its log."""


class PeerProcess:
    """One process, started at once and ready after `wait_until_ready`."""

    def __init__(
        self, program: str, arguments: Sequence[str], python: Path | None, import_from: Path | None = None
    ) -> None:
        """Start it with `python`, the interpreter that has the peer, or for worldloom with this one (None).

        `import_from` is the folder of another version of worldloom to use instead of this one.
        """
        self.program = program
        self.about: dict[str, str] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._folder = tempfile.TemporaryDirectory()  # some write files into the working directory
        self._read = b""
        module = f"worldloom.bench.peers.{program}" if python is None else f"peers.{program}"
        path = import_from if python is None else FOLDER.parent
        command = [sys.executable if python is None else str(python.absolute()), "-m", module, *arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            cwd=self._folder.name,
            env={**os.environ, "PYTHONPATH": str(path)} if path is not None else None,
        )

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait for its first line, which names its versions."""
        self.about = self._read_line(timeout_s)

    def start(self, seconds: float) -> None:
        """Let it step for `seconds`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n".encode())
        except BrokenPipeError:
            raise self._error("ended") from None

    def finish(self, seconds: float) -> float:
        """Return its frames a second."""
        result = self._read_line(seconds + READY_TIMEOUT_S)
        return float(result["frames"] / result["seconds"])

    def measure_rate(self, seconds: float) -> float:
        """Let it step for `seconds` and return its frames a second."""
        self.start(seconds)
        return self.finish(seconds)

    def close(self) -> None:
        """End the process."""
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

    def _read_line(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        until_s = time.monotonic() + timeout_s
        while b"\n" not in self._read:
            is_readable = select.select([self._process.stdout], [], [], max(0.0, until_s - time.monotonic()))[0]
            if not is_readable:
                raise self._error(f"wrote nothing for {timeout_s:g} s")
            part = os.read(self._process.stdout.fileno(), _READ_BYTES)
            if not part:
                raise self._error("ended")
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        result: dict[str, Any] = json.loads(line)
        return result

    def _error(self, what: str) -> PeerError:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-_LOG_LINES:]
        log = "\n".join(["", *lines]) if lines else " empty"
        return PeerError(f"{self.program} {what}: expected frames; the end of its log is{log}")
