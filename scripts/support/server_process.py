"""A `worldloom serve` in another process, as users run it."""

import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

START_TIMEOUT_S = 240.0
"""Kernels that were never compiled on this machine take most of a minute; the others a second."""
STOP_TIMEOUT_S = 30.0
WORLDLOOM = Path(sys.executable).parent / "worldloom"


class ServerProcess:
    """A server that listens. What it prints is collected all the while, so that it never waits for a reader."""

    def __init__(self, *flags: str) -> None:
        command = [str(WORLDLOOM), "serve", "--listen", "127.0.0.1:0", "--renderer", "cpu", *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._log: list[str] = []
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=_pass_lines, args=(self._process.stdout, self._lines), daemon=True),
            threading.Thread(target=_keep_lines, args=(self._process.stderr, self._log), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.address = self._wait_until_it_listens()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written to stderr."""
        return "".join(self._log)

    @property
    def resident_bytes(self) -> int:
        """Memory it has, its kernels and libraries included, but not what it shares with clients."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = dict(re.findall(r"^(VmRSS|RssShmem):\s+(\d+) kB$", status, re.MULTILINE))
        assert len(found) == 2, status
        return (int(found["VmRSS"]) - int(found["RssShmem"])) * 1024

    def wait_until_idle(self) -> None:
        """Wait until there is nothing left for it to do: all its threads sleep, also those that were not let run."""
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        quiet = 0
        while quiet < 40:
            assert time.monotonic() < deadline_s, "the server is busy for too long"
            tasks = Path(f"/proc/{self.pid}/task").glob("*/stat")
            quiet = quiet + 1 if all(_state(task) == "S" for task in tasks) else 0
            time.sleep(0.005)

    def stop(self) -> None:
        """Ask it to end, as service managers do. It does, with exit code 0 and without a word of an error."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()
        assert code == 0, f"exit code {code}: expected 0\n{self.log}"
        assert " ERROR " not in self.log, self.log
        assert "Traceback" not in self.log, self.log

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        for reader in self._readers:
            reader.join(STOP_TIMEOUT_S)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _wait_until_it_listens(self) -> str:
        try:
            while (line := self._lines.get(timeout=START_TIMEOUT_S)) is not None:
                if line.startswith("listening on "):
                    return line.removeprefix("listening on ").strip()
        except queue.Empty:
            pass
        self.kill()
        raise AssertionError(f"the server did not start\n{self.log}")


@contextmanager
def serving(*flags: str) -> Iterator[ServerProcess]:
    """A server with these flags, which ends well when the block does."""
    server = ServerProcess(*flags)
    try:
        yield server
    except BaseException:
        server.kill()
        sys.stderr.write(server.log[-4000:])
        raise
    server.stop()


def _state(stat: Path) -> str:
    """What a thread does: R for running, S for sleeping."""
    try:
        return stat.read_text().rpartition(") ")[2][0]
    except OSError:  # it has just ended
        return "S"


def _pass_lines(pipe: IO[str], lines: "queue.SimpleQueue[str | None]") -> None:
    for line in pipe:
        lines.put(line)
    lines.put(None)


def _keep_lines(pipe: IO[str], kept: list[str]) -> None:
    for line in pipe:
        kept.append(line)
