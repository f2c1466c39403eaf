"""`worldloom serve` as a process of its own, as users run it."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

COMMAND = [sys.executable, "-c", "from worldloom.server.cli import main; raise SystemExit(main())", "serve"]
START_TIMEOUT_S = 240.0
"""Its kernels may have to be compiled first."""
END_TIMEOUT_S = 20.0


class ServeProcess:
    """A running server."""

    def __init__(self, process: "subprocess.Popen[str]", addresses: list[str], log: IO[str]) -> None:
        self.process = process
        self.addresses = addresses
        """As it announced them."""
        self._log = log

    @property
    def address(self) -> str:
        (address,) = self.addresses
        return address

    @property
    def log(self) -> str:
        """What it wrote to stderr so far."""
        self._log.seek(0)
        return self._log.read()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(END_TIMEOUT_S)

    def stop(self) -> int:
        """Ask it to end."""
        self.process.terminate()
        return self.wait()


@contextlib.contextmanager
def serve_process(*words: str, folder: Path | None = None, listeners: int = 1) -> Iterator[ServeProcess]:
    """A server, from the moment it can serve; killed at the end if it is still there."""
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder) as process,
    ):
        impatience = threading.Timer(START_TIMEOUT_S, process.kill)
        impatience.start()
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(listeners)]
            impatience.cancel()
            server = ServeProcess(process, [line.removeprefix("listening on ").strip() for line in lines], log)
            assert all(line.startswith("listening on ") for line in lines), (lines, server.log)
            yield server
        finally:
            impatience.cancel()
            process.kill()


def failed_start(*words: str, folder: Path | None = None) -> str:
    """The line in which a server says why it cannot start."""
    ended = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=START_TIMEOUT_S, cwd=folder, env=os.environ
    )
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert "Traceback" not in ended.stderr
    assert lines[-1].startswith("worldloom serve: ")
    assert all(" INFO " in line for line in lines[:-1])
    return lines[-1].removeprefix("worldloom serve: ")
