"""A `worldloom serve` in another process, for as long as a block lasts."""

import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, NamedTuple

from worldloom.demo.progress import progress

_SERVE = "import sys; from worldloom.server.cli import main; sys.exit(main(['serve', *sys.argv[1:]]))"
_LISTENING = "listening on "
_COMPILING = "worldloom: compil"
_COUNT = re.compile(r"compiled (\d+) of (\d+) functions")
_START_S = 300.0
"""Kernels that were never compiled on this machine take a minute, on a slow one more."""
_STOP_S = 15.0
"""What a server that is told to stop takes at most, and a little more."""
_TICK_S = 0.2


class OwnServer(NamedTuple):
    """A server that listens."""

    pid: int
    address: str


@contextmanager
def own_server(*flags: str) -> Iterator[OwnServer]:
    """Start it on a free port of this machine; it ends with the block, however that ends.

    While it compiles its kernels people are told how far that is. Whatever else it writes to stderr goes to ours.
    """
    command = [sys.executable, "-c", _SERVE, "--listen", "127.0.0.1:0", "--log-level", "warning", *flags]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with process.stdout, process.stderr:
        errors = _in_a_thread(_pass_errors, process.stderr, said.put)
        lines = _in_a_thread(_pass_lines, process.stdout, said.put)
        try:
            address = _wait_until_it_listens(said)
            if address is None:
                _stop(process)
                errors.join(_STOP_S)  # so that its reason stands before ours
                raise RuntimeError(f"the server did not start (exit code {process.returncode}): see above for why")
            yield OwnServer(process.pid, address)
        finally:
            _stop(process)
            for reader in (errors, lines):
                reader.join(_STOP_S)


def _wait_until_it_listens(said: "queue.SimpleQueue[str | None]") -> str | None:
    """The server's address; None if it ended, or took too long."""
    until_s = time.monotonic() + _START_S
    with Compiling() as compiling:
        while time.monotonic() < until_s:
            line: str | None = ""
            with suppress(queue.Empty):
                line = said.get(timeout=_TICK_S)
            if line is None:
                return None
            if line.startswith(_LISTENING):
                compiling.finish()
                return line.removeprefix(_LISTENING).strip()
            compiling.hear(line)
    return None


class Compiling:
    """Shows how far kernels are, from the first word of them on."""

    def __init__(self) -> None:
        self._at_the_end = ExitStack()
        self._show: Callable[[float, str], None] | None = None
        self._part = 0.0
        self._began_s = 0.0

    def __enter__(self) -> "Compiling":
        return self

    def __exit__(self, *_: object) -> None:
        self._at_the_end.close()

    def finish(self) -> None:
        """The last word, if there was a first."""
        self._at_the_end.close()
        if self._show is not None:
            print(f"compiled the kernels in {time.monotonic() - self._began_s:.0f} s", file=sys.stderr, flush=True)

    def hear(self, line: str) -> None:
        """Take a line of the server's, or an empty one to let time pass."""
        if self._show is None and line.startswith(_COMPILING):
            self._began_s = time.monotonic()
            what = "compiling kernels, once on this machine: about a minute"
            self._show = self._at_the_end.enter_context(progress(what))
        if found := _COUNT.search(line):
            self._part = max(self._part, int(found[1]) / int(found[2]))  # more functions may turn up on the way
        if self._show is not None:
            self._show(self._part, f"{time.monotonic() - self._began_s:.0f} s")


def _in_a_thread(work: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


def _pass_lines(pipe: IO[str], put: Callable[[str | None], None]) -> None:
    for line in pipe:
        put(line)
    put(None)


def _pass_errors(pipe: IO[str], put: Callable[[str | None], None]) -> None:
    for line in pipe:
        if line.startswith(_COMPILING):
            put(line)
        else:
            sys.stderr.write(line)
            sys.stderr.flush()


def _stop(process: "subprocess.Popen[str]") -> None:
    try:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
    finally:  # also if someone presses Ctrl-C again
        process.kill()
        process.wait(_STOP_S)


def flags_of(options: Sequence[tuple[str, object]]) -> list[str]:
    """Options as words of a command line, without those that are None."""
    return [word for name, value in options if value is not None for word in (f"--{name}", str(value))]
