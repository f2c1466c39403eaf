"""The reconciler's view of servers over the network: the probe's process, and what it has found out."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

INTERVAL_S = 0.5
"""Time between two health checks of a server."""
_FAILURES = 3
"""Checks in a row without an answer, after which a server may count as frozen."""
_SMOOTHING = 0.5
"""Weight of the last reading in rates, which are read twice a second."""
_END_TIMEOUT_S = 5.0


@dataclass
class ServerHealth:
    """Health and counters of a server. Times are of the machine's monotonic clock."""

    began_s: float
    """Time since which it is watched."""
    answered_s: float | None = None
    """Time of its last answer."""
    failures: int = 0
    """Checks without an answer since then."""
    is_serving: bool = False
    lanes: int = 0
    lane_steps: int = 0
    frames: int = 0
    counted_s: float | None = None
    """Time of the last reading of its counters."""
    lane_steps_per_s: float = 0.0
    frames_per_s: float = 0.0

    def count(self, now_s: float, lanes: int, lane_steps: int, frames: int) -> None:
        """Take a reading of its counters."""
        if self.counted_s is not None and now_s > self.counted_s:
            passed_s = now_s - self.counted_s
            for name, count in (("lane_steps", lane_steps), ("frames", frames)):
                rate = (count - getattr(self, name)) / passed_s
                before = getattr(self, f"{name}_per_s")
                setattr(self, f"{name}_per_s", before + _SMOOTHING * (rate - before))
        self.lanes, self.lane_steps, self.frames, self.counted_s = lanes, lane_steps, frames, now_s

    def silent_s(self, now_s: float) -> float:
        """Return the time without an answer; 0 until several checks in a row have failed."""
        return 0.0 if self.failures < _FAILURES else now_s - (self.answered_s or self.began_s)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, for JSON."""
        return asdict(self)


class HealthProbe:
    """The process that watches servers. One that has ended is started again by the next `watch`."""

    def __init__(self, token: str, tls_ca: str) -> None:
        self._secrets = json.dumps({"token": token, "tls_ca": tls_ca})
        self._process: subprocess.Popen[str] | None = None
        self._sent: dict[str, str] | None = None
        self._health: dict[str, ServerHealth] = {}
        self._lock = threading.Lock()

    def watch(self, servers: Mapping[str, str]) -> None:
        """Watch these servers: addresses by name. Called by one thread, which must live as long as the probe."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        if dict(servers) != self._sent:
            try:
                self._process.stdin.write(json.dumps(dict(servers)) + "\n")
                self._process.stdin.flush()
            except OSError:  # it has just ended: the next call starts another
                return
            self._sent = dict(servers)

    def health_of(self, server: str) -> ServerHealth | None:
        """Return what is known of a server; None if it has not been watched yet."""
        with self._lock:
            return self._health.get(server)

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worldloom.fleet.probe", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with self._lock:
            self._health = {}
        self._sent = None
        assert self._process.stdin is not None
        self._process.stdin.write(self._secrets + "\n")
        self._process.stdin.flush()
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            health = {name: ServerHealth(**fields) for name, fields in json.loads(line).items()}
            with self._lock:
                self._health = health
