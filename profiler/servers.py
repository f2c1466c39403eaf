"""Servers in processes of their own, one for each renderer, started when they are first needed."""

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from worldloom.profiler.measure import Case

START_TIMEOUT_S = 300.0
"""Kernels that were never compiled on this machine take most of a minute."""
STOP_TIMEOUT_S = 15.0
_COMMAND = "import sys; from worldloom.server.cli import main; sys.exit(main())"
_PREFIX = "listening on "


class Servers:
    """The servers of a sweep. They end with it."""

    def __init__(self, cases: Sequence[Case], places: Sequence[str] = ()) -> None:
        """`places` are families to add, as MODULE:CLASS."""
        self._flags = _room_for(cases)
        self._flags += [word for place in places for word in ("--family", place)]
        self._running: dict[str, tuple[subprocess.Popen[bytes], dict[str, str]]] = {}
        self._at_the_end = contextlib.ExitStack()

    def address(self, renderer: str, transport: str) -> str:
        """Where the server with that renderer listens, for that transport."""
        if renderer not in self._running:
            self._running[renderer] = self._start(renderer)
        _, addresses = self._running[renderer]
        return addresses["unix" if transport == "unix" else "tcp"]

    def close(self) -> None:
        """End all of them."""
        for process, _ in self._running.values():
            process.terminate()
        for process, _ in self._running.values():
            _end(process)
        self._running.clear()
        self._at_the_end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, renderer: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
        folder = self._at_the_end.enter_context(tempfile.TemporaryDirectory(prefix="worldloom-"))
        words = ["serve", "--listen", "127.0.0.1:0", "--listen", f"unix:{Path(folder) / 'socket'}"]
        words += ["--renderer", renderer, "--log-level", "error", *self._flags]
        # A session of its own: Ctrl-C is for us, who then end it in good order.
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *words], stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            tcp, unix = _read_addresses(process, 2)
        except BaseException:
            _end(process)
            raise
        return process, {"tcp": tcp, "unix": unix}


def _room_for(cases: Sequence[Case]) -> list[str]:
    """Flags for limits that the cases would meet."""
    wanted = {
        "--max-lanes": max(case.lanes for case in cases),
        "--max-view-pixels": max(case.pixels for case in cases),
        "--max-reply-bytes": max(case.step_bytes for case in cases) + (64 << 20),
        "--max-shared-bytes": 8 * max(case.step_bytes for case in cases) + (1 << 30),
    }
    return [word for flag, value in wanted.items() for word in (flag, str(value))]


def _read_addresses(process: "subprocess.Popen[bytes]", count: int) -> list[str]:
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    told = b""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while told.count(b"\n") < count:
            if not selector.select(deadline_s - time.monotonic()):
                raise RuntimeError(f"a server did not start within {START_TIMEOUT_S:.0f} s: try `worldloom serve`")
            part = os.read(pipe, 4096)
            if not part:
                raise RuntimeError("a server did not start: it said why above")
            told += part
    return [line.removeprefix(_PREFIX) for line in told.decode().splitlines() if line.startswith(_PREFIX)]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
