"""The Ray actor of one server: starts `worldloom serve` as a process of its own, watches it, and ends it.

The actor answers `report` at any time, so the reconciler tells from its silence that node or actor are gone. The server
is started by a thread that lives until the server has ended, since the system kills the server when that thread ends.

Certificate, key and token reach the server as files in memory that only it inherits (memfd): nothing secret is on a
disk or in a command line.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worldloom.fleet.certificates import make_server_certificate
from worldloom.fleet.ray_session import ray, remove_own_placement_group
from worldloom.fleet.spec import FleetSpec
from worldloom.server.launch import LISTENING, LIVE_VIEW, parse_compile_count

ServerState = Literal["idle", "starting", "listening", "ended"]
_LOG_LINES = 200
"""Lines of the server's log that are kept for reports of a failed start."""
_STOP_TIMEOUT_S = 8.0
"""Time for a server to end after SIGTERM before it is killed, when it is not to drain."""
_SECOND_SIGNAL_S = 0.3
"""Time between the signal that begins to drain and the one that ends it: signals that are pending together merge."""
_ABANDONED_S = 180.0
"""Time without a question of the reconciler after which an actor ends its server and itself: the fleet's program has
been killed, or this node is cut off. Longer than Ray takes to restart a reconciler on another node."""
_POLL_S = 0.2


@dataclass(frozen=True)
class ServerReport:
    """An actor's answer to the reconciler."""

    number: int
    generation: int
    spec_version: int
    """Version of the copy of the fleet's wanted state."""
    node_id: str
    node_ip: str
    host: str
    """Identity of the machine, which several nodes of a Ray cluster may share."""
    usable_processors: tuple[int, ...]
    processors: tuple[int, ...]
    """Processors that the server is bound to."""
    actor_pid: int
    pid: int | None
    state: ServerState
    address: str | None
    page: str | None
    """URL of its page on which people watch it, as it tells it."""
    compiled: tuple[int, int] | None
    """Functions compiled so far, and of how many."""
    is_stopped: bool
    """True if the process is stopped by a signal (SIGSTOP) or a debugger."""
    is_draining: bool
    exit_code: int | None
    last_line: str
    """Last line of its log."""


class ServerActor:
    """A server on the node that Ray has chosen. Methods run concurrently."""

    def __init__(self, number: int, generation: int) -> None:
        self._number = number
        self._generation = generation
        self._spec: FleetSpec | None = None
        self._context = ray.get_runtime_context()
        self._lock = threading.Lock()
        self._processors: tuple[int, ...] = ()
        self._process: subprocess.Popen[str] | None = None
        self._state: ServerState = "idle"
        self._address: str | None = None
        self._page: str | None = None
        self._compiled: tuple[int, int] | None = None
        self._is_draining = False
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._asked_s = time.monotonic()
        threading.Thread(target=self._end_if_abandoned, daemon=True).start()

    def keep(self, spec: FleetSpec) -> None:
        """Keep a copy of the fleet's wanted state, if it is newer."""
        with self._lock:
            if self._spec is None or spec.version > self._spec.version:
                self._spec = spec

    def kept(self) -> FleetSpec | None:
        """Return the copy of the fleet's wanted state."""
        return self._spec

    def start(self, spec: FleetSpec, processors: tuple[int, ...]) -> None:
        """Start the server on these processors, unless it has been started."""
        self.keep(spec)
        with self._lock:
            if self._state != "idle":
                return
            self._state = "starting"
            self._processors = processors
        threading.Thread(target=self._run, args=(spec,), name="worldloom-server", daemon=True).start()

    def report(self) -> ServerReport:
        """Return the state of the server."""
        self._asked_s = time.monotonic()
        process = self._process
        return ServerReport(
            number=self._number,
            generation=self._generation,
            spec_version=0 if self._spec is None else self._spec.version,
            node_id=self._context.get_node_id(),
            node_ip=ray.util.get_node_ip_address(),
            host=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            usable_processors=tuple(sorted(os.sched_getaffinity(0))),
            processors=self._processors,
            actor_pid=os.getpid(),
            pid=None if process is None else process.pid,
            state=self._state,
            address=self._address,
            page=self._page,
            compiled=self._compiled,
            is_stopped=process is not None and _is_stopped(process.pid),
            is_draining=self._is_draining,
            exit_code=None if process is None else process.returncode,
            last_line=self._log[-1] if self._log else "",
        )

    def drain(self) -> None:
        """Have the server hand its lanes over and end."""
        with self._lock:
            if self._is_draining:
                return
            self._is_draining = True
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the server: its streams get their replies, but it does not wait for them to end. Kill it if it hangs."""
        self._is_draining = True
        until_s = time.monotonic() + _STOP_TIMEOUT_S
        self._signal(signal.SIGTERM)
        if not self._has_ended_by(time.monotonic() + _SECOND_SIGNAL_S):
            self._signal(signal.SIGTERM)
        if not self._has_ended_by(until_s):
            self.kill()

    def kill(self) -> None:
        """End the server at once, also one that is stopped."""
        self._signal(signal.SIGKILL)
        self._has_ended_by(time.monotonic() + _STOP_TIMEOUT_S)

    def log(self) -> list[str]:
        """Return the last lines of the server's log."""
        return list(self._log)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    def _has_ended_by(self, deadline_s: float) -> bool:
        while self._process is not None and self._state != "ended" and time.monotonic() < deadline_s:
            time.sleep(_POLL_S / 4)
        return self._process is None or self._state == "ended"

    def _run(self, spec: FleetSpec) -> None:
        """Start the server and read what it writes until it has ended. This thread must live as long as the server."""
        try:
            with ExitStack() as files:
                process = self._start_process(spec, files)
            reader = threading.Thread(target=self._read_log, args=(process,), daemon=True)
            reader.start()
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(LIVE_VIEW):
                    self._page = line.removeprefix(LIVE_VIEW).strip()
                if line.startswith(LISTENING):
                    self._address = line.removeprefix(LISTENING).strip()
                    self._state = "listening"
            process.wait()
            reader.join(_STOP_TIMEOUT_S)
        except Exception as error:  # the reconciler reads it in the report, and starts another
            self._log.append(f"{type(error).__name__}: {error}")
        finally:
            self._state = "ended"

    def _start_process(self, spec: FleetSpec, files: ExitStack) -> subprocess.Popen[str]:
        ip = ray.util.get_node_ip_address()
        certificate = make_server_certificate(spec.secrets.authority, ip)
        paths, descriptors = {}, []
        for option, text in (
            ("--tls-cert", certificate.certificate_pem),
            ("--tls-key", certificate.key_pem),
            ("--token-file", spec.secrets.token),
        ):
            descriptor = os.memfd_create(option)
            files.callback(os.close, descriptor)
            os.write(descriptor, text.encode())
            paths[option] = f"/proc/self/fd/{descriptor}"
            descriptors.append(descriptor)
        processors = self._processors
        arguments = [word for option, path in paths.items() for word in (option, path)]
        environment = dict(os.environ)
        if spec.cache_dir is not None:
            environment["WORLDLOOM_CACHE_DIR"] = spec.cache_dir
        host = f"[{ip}]" if ":" in ip else ip
        process = subprocess.Popen(
            [
                *(spec.python or sys.executable, "-m", "worldloom.fleet.serve_process"),
                *(str(os.getpid()), ",".join(map(str, processors))),
                *("--listen", f"{host}:0", "--drain-s", f"{spec.drain_s:g}", *arguments, *self._device_arguments(spec)),
                *spec.serve_arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            pass_fds=descriptors,
            start_new_session=True,
        )
        with self._lock:
            self._process = process
            is_draining = self._is_draining
        if is_draining:  # it was told to stop before there was a process
            process.terminate()
        return process

    def _device_arguments(self, spec: FleetSpec) -> tuple[str, ...]:
        """Return the option for the graphics device that Ray has given to this actor, unless one is chosen already."""
        numbers = ray.get_gpu_ids()
        if not numbers or not str(numbers[0]).isdigit() or "--device" in spec.serve_arguments:
            return ()
        return ("--device", str(numbers[0]))

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._log.append(line.rstrip())
            self._compiled = parse_compile_count(line) or self._compiled

    def _end_if_abandoned(self) -> None:
        while time.monotonic() - self._asked_s < _ABANDONED_S:
            time.sleep(_POLL_S)
        self.stop()
        remove_own_placement_group()
        os._exit(0)


def _is_stopped(pid: int) -> bool:
    """True if a process is stopped by a signal or a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "Tt"
    except OSError:
        return False
