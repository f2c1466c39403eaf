"""Servers in processes of their own, for tests, scripts, the demo, the profiler and the benchmarks.

A `ServerProcess` starts `worldloom serve` or another program that prints `listening on ADDRESS`, waits until it has
printed every address, and ends the process: SIGTERM first, SIGKILL if that does not end it in time. It is in a
session of its own, so that Ctrl-C reaches its owner alone, who ends its clients first and the server after them.

Two threads read the server's pipes for as long as it runs, so that it never blocks on a full one. They end with the
process and are joined by `stop` and `kill`.
"""

import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from worldloom.terminal import show_progress

SERVE = (sys.executable, "-c", "import sys; from worldloom.server.cli import main; sys.exit(main())", "serve")
"""Command of `worldloom serve`, run by this Python."""
START_TIMEOUT_S = 300.0
"""Time that a server may take to start. On its first start on a machine it compiles kernels for a minute or more."""
STOP_TIMEOUT_S = 30.0
"""Time that a server may take to end after SIGTERM: more than it gives its own clients."""
LISTENING = "listening on "
"""Beginning of the lines in which a server tells its addresses, on stdout."""
LIVE_VIEW = "live view at "
"""Beginning of the line in which a server with --web tells the URL of its page, before those of its addresses."""
_COMPILING = "worldloom: compil"
_COUNT = re.compile(r"compiled (\d+) of (\d+) functions")
_POLL_S = 0.2


class ServerStartError(RuntimeError):
    """A server that ended, or took too long, before it listened."""

    def __init__(self, text: str, exit_code: int | None, output: str, log: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.output = output
        """Text that it wrote to stdout."""
        self.log = log
        """Text that it wrote to stderr."""


class ServerProcess:
    """A server that listens, in a process of its own. Ends with its `with` block, however that ends."""

    def __init__(
        self,
        *arguments: str,
        program: Sequence[str] = SERVE,
        folder: Path | None = None,
        show_stderr: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Start a server and wait until it listens; ServerStartError if it does not.

        Args:
            arguments: Arguments of the program. It is expected to listen on as many addresses as there are `--listen`
                among them, on one if there are none.
            program: Command to run.
            folder: Working directory of the process.
            show_stderr: Pass the server's stderr on to this process's, with a progress bar while kernels are compiled.
                It is collected in `log` in either case.
            start_timeout_s: Seconds to wait at most.
        """
        self.addresses: list[str] = []
        self.page = ""
        """URL of its page, with --web."""
        self._output: list[str] = []
        self._log: list[str] = []
        self._events: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        """Lines of stdout, lines of stderr about compiling, and None at the end of stdout."""
        self.process = subprocess.Popen(
            [*program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_log, args=(show_stderr,), daemon=True),
        ]
        try:
            for reader in self._readers:
                reader.start()
            self._wait_until_listening(max(1, arguments.count("--listen")), start_timeout_s, show_stderr)
        except BaseException:
            self.kill()
            raise

    @property
    def address(self) -> str:
        """First address that it listens on."""
        return self.addresses[0]

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def log(self) -> str:
        """Text that it has written to stderr so far."""
        return "".join(self._log)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until it has ended by itself, and return its exit code."""
        code = self.process.wait(timeout_s)
        self._close_pipes()
        return code

    def stop(self) -> int:
        """End it as service managers do, and return its exit code: below 0 if it had to be killed."""
        try:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT_S)
        finally:  # also if Ctrl-C comes while it is waited for
            self.kill()
        return self.process.returncode

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)
        self._close_pipes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _close_pipes(self) -> None:
        for reader, pipe in zip(self._readers, (self.process.stdout, self.process.stderr), strict=True):
            assert pipe is not None
            if reader.ident is not None:
                reader.join(STOP_TIMEOUT_S)
            if not reader.is_alive():  # a process of the server's may still hold the other end
                pipe.close()

    def _wait_until_listening(self, count: int, timeout_s: float, show_stderr: bool) -> None:
        deadline_s = time.monotonic() + timeout_s
        with CompileProgress() as compiling:
            while len(self.addresses) < count:
                if time.monotonic() >= deadline_s:
                    raise self._start_error(f"did not start within {timeout_s:g} s", show_stderr)
                line: str | None = ""
                with suppress(queue.Empty):
                    line = self._events.get(timeout=_POLL_S)
                if line is None:
                    code = self.process.wait(STOP_TIMEOUT_S)
                    raise self._start_error(f"did not start (exit code {code})", show_stderr)
                if line.startswith(LISTENING):
                    self.addresses.append(line.removeprefix(LISTENING).strip())
                elif line.startswith(LIVE_VIEW):
                    self.page = line.removeprefix(LIVE_VIEW).strip()
                else:
                    compiling.update(line)
            compiling.finish()

    def _start_error(self, text: str, show_stderr: bool) -> ServerStartError:
        self.kill()  # its last lines are then in the log, and were shown before ours
        reason = "see above for why" if show_stderr else self.log.strip() or "it wrote no reason"
        return ServerStartError(
            f"the server {text}: {reason}", self.process.returncode, "".join(self._output), self.log
        )

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._output.append(line)
            self._events.put(line)
        self._events.put(None)

    def _read_log(self, show: bool) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._log.append(line)
            if show and line.startswith(_COMPILING):
                self._events.put(line)
            elif show:
                sys.stderr.write(line)
                sys.stderr.flush()


def parse_compile_count(line: str) -> tuple[int, int] | None:
    """Return the functions that are compiled, and of how many, if a line of a server's stderr tells it."""
    found = _COUNT.search(line)
    return None if found is None else (int(found[1]), int(found[2]))


class CompileProgress:
    """Progress bar of a server that compiles its kernels, from the lines that it writes about it."""

    def __init__(self) -> None:
        self._cleanup = ExitStack()
        self._update: Callable[[float, str], None] | None = None
        self._fraction = 0.0
        self._began_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def update(self, line: str) -> None:
        """Take a line of the server's, or an empty one to show the time that has passed."""
        if self._update is None and line.startswith(_COMPILING):
            self._began_s = time.monotonic()
            title = "compiling kernels, once on this machine: about a minute"
            self._update = self._cleanup.enter_context(show_progress(title))
        if (count := parse_compile_count(line)) is not None:
            self._fraction = max(self._fraction, count[0] / count[1])  # the total may grow meanwhile
        if self._update is not None:
            self._update(self._fraction, f"{time.monotonic() - self._began_s:.0f} s")

    def finish(self) -> None:
        """Close the bar and write how long it took, if anything was compiled."""
        self._cleanup.close()
        if self._update is not None:
            print(f"compiled the kernels in {time.monotonic() - self._began_s:.0f} s", file=sys.stderr, flush=True)
