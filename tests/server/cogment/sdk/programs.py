"""Programs of the Cogment SDK in processes of their own, run by the Python that has it."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from scripts.support.stream_client import free_port

FOLDER = Path(__file__).parent
PYTHON = Path(__file__).parents[4] / ".venv-cogment" / "bin" / "python"
TIMEOUT_S = 60.0


class Program:
    """A program, one of those here unless it has a path. What it prints is collected all the while, so that it never
    waits for a reader."""

    def __init__(self, name: str | Path, *words: str) -> None:
        if not PYTHON.exists():
            raise FileNotFoundError(f"there is no {PYTHON}: expected the Cogment SDK there; make cogment-sdk gets it")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
        command = [str(PYTHON), "-u", str(FOLDER / name), *words]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.printed: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def next_fact(self) -> dict[str, Any]:
        """The next line of JSON that it prints."""
        while (line := self._next_line()) is not None:
            if line.startswith("{"):
                fact: dict[str, Any] = json.loads(line)
                return fact
        raise AssertionError(f"it ended, and printed\n{''.join(self.printed)}")

    def facts_until(self, **wanted: object) -> list[dict[str, Any]]:
        """The lines of JSON up to the first that says this."""
        facts = [self.next_fact()]
        while not wanted.items() <= facts[-1].items():
            facts.append(self.next_fact())
        return facts

    def wait_for(self, text: str) -> str:
        """Wait for a line that has this in it."""
        while (line := self._next_line()) is not None:
            if text in line:
                return line
        raise AssertionError(f"it ended, and printed\n{''.join(self.printed)}")

    def say(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def terminate(self) -> None:
        """Ask it to end, with SIGTERM."""
        self._process.terminate()

    def finish(self) -> None:
        """Wait for its end, which is a good one."""
        code = self._process.wait(TIMEOUT_S)
        assert code == 0, "".join(self.printed)

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _next_line(self) -> str | None:
        try:
            return self._lines.get(timeout=TIMEOUT_S)
        except queue.Empty:
            raise AssertionError(f"it printed nothing for {TIMEOUT_S:g} s, before\n{''.join(self.printed)}") from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed.append(line)
            self._lines.put(line)
        self._lines.put(None)


@contextmanager
def program(name: str, *words: str) -> Iterator[Program]:
    """A program that is ended when the block is left."""
    started = Program(name, *words)
    try:
        yield started
    except BaseException:
        sys.stderr.write("".join(started.printed)[-4000:])
        raise
    finally:
        started.close()


@contextmanager
def service(kind: str) -> Iterator[tuple[Program, str]]:
    """A service that listens, and its endpoint."""
    with services(kind) as (started, endpoints):
        yield started[0], endpoints[0]


@contextmanager
def services(*kinds: str) -> Iterator[tuple[list[Program], list[str]]]:
    """Services that listen, and their endpoints."""
    ports = [free_port() for _ in kinds]
    with ExitStack() as at_the_end:
        started = [
            at_the_end.enter_context(program("services.py", kind, str(port)))
            for kind, port in zip(kinds, ports, strict=True)
        ]
        for one, port in zip(started, ports, strict=True):
            one.wait_for(f"listening on port {port}")
        yield started, [f"grpc://127.0.0.1:{port}" for port in ports]
