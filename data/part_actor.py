"""The Ray actor of one collector: starts it as a process of its own beside a server, and tells what it reports.

The process is started by a thread that lives until the process has ended, since the system kills the process when that
thread ends. If nobody asks for a while, as when this node is cut off from the others or their program was stopped, the
actor ends its process and itself: the part may then be continued elsewhere, by one collector at a time.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from worldloom.data.collection import Progress
from worldloom.data.part_process import PartJob

ABANDONED_S = 10.0
"""Time without a question after which an actor ends its process and itself."""
STOP_TIMEOUT_S = 5.0
"""Time for a process to end after SIGTERM before it is killed."""
_SIGNALLED = 128
"""Least exit code of a process that was stopped by a signal in an orderly way."""
_LOG_LINES = 50
_POLL_S = 0.2


@dataclass(frozen=True)
class PartReport:
    """An actor's answer: what the collector has reported so far."""

    pid: int | None = None
    transport: str = ""
    """Transport of the env, as `VectorEnv.transport`; empty until there is one."""
    progress: Progress | None = None
    warnings: tuple[str, ...] = ()
    has_ended: bool = False
    description: str = ""
    """Content of dataset.json, if the job was to describe."""
    index: str | None = None
    """Content of the index, once the part is complete."""
    error: str = ""
    """Error of a process that ended without doing its job."""
    is_temporary: bool = True
    """True if the error may not come again at another server, or later."""
    is_policy: bool = False
    """True if the error is the policy's."""


@dataclass
class PartActor:
    """A collector on the node that the actor is placed on. Methods run concurrently."""

    _report: PartReport = field(default_factory=PartReport)
    _log: deque[str] = field(default_factory=lambda: deque(maxlen=_LOG_LINES))
    _process: "subprocess.Popen[str] | None" = None
    _is_stopping: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._asked_s = time.monotonic()
        threading.Thread(target=self._end_if_abandoned, daemon=True).start()

    def start(self, job: PartJob, python: str | None, current_directory: str) -> None:
        """Start the collector: by another Python if given, in a directory if this node has it."""
        threading.Thread(target=self._run, args=(job, python, current_directory), daemon=True).start()

    def report(self) -> PartReport:
        """Return what the collector has reported so far."""
        self._asked_s = time.monotonic()
        return self._report

    def stop(self) -> None:
        """Stop the collector; what it has completed stays. Kill it if it hangs."""
        with self._lock:
            self._is_stopping = True
            process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _run(self, job: PartJob, python: str | None, current_directory: str) -> None:
        """Start the process and read what it writes until it has ended. This thread must live as long as it."""
        try:
            process = self._start_process(job, python, current_directory)
            reader = threading.Thread(target=self._read_log, args=(process,), daemon=True)
            reader.start()
            assert process.stdout is not None
            for line in process.stdout:
                self._note(json.loads(line))
            process.wait()
            reader.join(STOP_TIMEOUT_S)
            self._conclude(process.returncode)
        except Exception as error:  # the program that asks gets it in the report
            self._report = replace(self._report, error=f"{type(error).__name__}: {error}", is_temporary=False)
        finally:
            self._report = replace(self._report, has_ended=True)

    def _start_process(self, job: PartJob, python: str | None, current_directory: str) -> "subprocess.Popen[str]":
        with self._lock:
            if self._is_stopping:
                raise RuntimeError("stopped before it began")
            self._process = process = subprocess.Popen(
                [python or sys.executable, "-m", "worldloom.data.part_process", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                cwd=current_directory if Path(current_directory).is_dir() else None,  # policies may be in it
                start_new_session=True,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # its exit code tells
            json.dump(asdict(job), process.stdin)
        self._report = replace(self._report, pid=process.pid)
        return process

    def _note(self, told: dict[str, Any]) -> None:
        """Take a line of the collector."""
        kind, report = told.pop("kind"), self._report
        if kind == "progress":
            report = replace(report, progress=Progress(**told["progress"]), transport=told["transport"])
        elif kind == "warning":
            report = replace(report, warnings=(*report.warnings, told["text"]))
        elif kind == "error":
            told["error"] = told.pop("text")
            report = replace(report, **told)
        elif kind == "description":
            report = replace(report, description=told["text"])
        else:
            report = replace(report, index=told["index"])
        self._report = report

    def _conclude(self, code: int) -> None:
        """Find out why a process ended that has told neither a result nor an error."""
        report = self._report
        if report.error or report.description or report.index is not None:
            return
        last = f": {self._log[-1]}" if self._log else ""
        error = f"the collector was ended by signal {-code}" if code < 0 else f"the collector ended with {code}{last}"
        self._report = replace(report, error=error, is_temporary=code < 0 or code >= _SIGNALLED)

    def _read_log(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip():
                self._log.append(line.rstrip())

    def _end_if_abandoned(self) -> None:
        while time.monotonic() - self._asked_s < ABANDONED_S:
            time.sleep(_POLL_S)
        self.stop()
        os._exit(0)


def read_file(path: str) -> bytes:
    """Return the content of a file on the node that runs this; nothing if there is none."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""
