"""As many steps as the machine gives, for a while, and a server that does not grow: `python -m scripts.endurance`.

Vector worlds of all families step over shared memory and over TCP, some plain streams beside them, and all of them are
made anew now and then (endurance_client.py). The server's memory must be flat after a while, and in the end nothing may
be left: no world, segment, reply buffer or open file. Prints a table; exits with 1 if anything was not as it should
be.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from scripts.kills import wait_for
from scripts.report import Report
from scripts.soak import Scale, begin, result, wait_until_ready
from scripts.support.server_process import ServerProcess, serving
from scripts.support.shared_memory import segment_files, segment_mappings
from scripts.support.stream_client import StreamClient

ROLES = ("shm", "grpc", "plain")
IDLE_WORLD_S = 1.0
MAX_REPLY_BUFFERS = 64
"""Replies that the server may keep memory for. A step asks for one of some ten sets of observations, and replies to
few are under way at a time."""
_FILES_MORE = 4
"""Open files that the server may have more in the end than at first: gRPC keeps some for its own work."""
_EVERY_S = 1.0
_LEFT_WITHIN_S = 10.0
_LONGEST_S = 7200.0


@contextmanager
def client(role: str, address: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process of clients that waits for a line, killed at the end if it is still there."""
    command = [sys.executable, "-m", "scripts.endurance_client", role, address, str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


class Gauge(threading.Thread):
    """Looks once a second how much the server has open, and how many replies it keeps memory for."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.reply_buffers: list[int] = []
        self.files: list[int] = []
        self.segments: list[int] = []
        self._server = server
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        """Until it is stopped."""
        with StreamClient(self._server.address, _LONGEST_S) as wire:
            while not self._is_over.wait(_EVERY_S):
                self.reply_buffers.append(int(wire.property("counters.reply_slots")))
                self.files.append(open_files(self._server.pid))
                self.segments.append(len(segment_mappings(self._server.pid)))

    def stop(self, report: Report) -> None:
        """Add the results to the report."""
        self._is_over.set()
        self.join()
        report.row("reply buffers", f"{min(self.reply_buffers)} to {max(self.reply_buffers)}")
        report.row("segments, open files", f"{max(self.segments)} and {max(self.files)} at most")
        report.expect(
            max(self.reply_buffers) <= MAX_REPLY_BUFFERS,
            f"{max(self.reply_buffers)} reply buffers: expected {MAX_REPLY_BUFFERS}",
        )
        report.expect(max(self.segments) > 0, "no client had shared memory")


def open_files(pid: int) -> int:
    """Files and sockets that a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def left(server: ServerProcess) -> dict[str, int]:
    """What a server has of its clients."""
    with StreamClient(server.address) as wire:
        names = ("streams", "worlds", "lanes", "shared_bytes", "reply_slots")
        found = {name.replace("_", " "): int(wire.property(f"counters.{name}")) for name in names}
    return {**found, "segments": len(segment_files(server.pid)) + len(segment_mappings(server.pid))}


def counted(server: ServerProcess) -> int:
    """Steps of lanes that the server has made."""
    with StreamClient(server.address) as wire:
        return int(wire.property("counters.lane_steps"))


def endure(seconds: float) -> Report:
    """All of it."""
    report = Report()
    with serving("--idle-world-s", str(IDLE_WORLD_S), "--log-level", "warning") as server:
        at_first = left(server)
        files = open_files(server.pid)
        with ExitStack() as processes:
            clients = [processes.enter_context(client(role, server.address, seconds)) for role in ROLES]
            for process in clients:
                wait_until_ready(process)
            before = counted(server)
            scale, gauge = Scale(server), Gauge(server)
            begun_s = time.monotonic()
            for process in clients:
                begin(process)
            found = {role: result(process, seconds) for role, process in zip(ROLES, clients, strict=True)}
            taken_s = time.monotonic() - begun_s
            scale.stop(report)
            gauge.stop(report)
        lane_steps = counted(server) - before
        in_the_end, _ = wait_for(lambda: left(server), at_first, IDLE_WORLD_S + _LEFT_WITHIN_S)
        server.wait_until_idle()
        more = open_files(server.pid) - files
    report.expect(in_the_end == at_first, f"left in the end: {in_the_end}, expected {at_first}")
    report.expect(more <= _FILES_MORE, f"{more} open files more than at first: expected {_FILES_MORE} at most")
    report.row("left in the end", ", ".join(f"{count} {name}" for name, count in in_the_end.items()))
    report.row("open files", f"{files} at first, {files + more} in the end")
    report.row("lane-steps", f"{lane_steps} in {taken_s:.0f} s: {60 * lane_steps / taken_s / 1e6:.2f} million a minute")
    for role, one in found.items():
        report.problems += one["problems"]
        made, lives = one.get("lane_steps", 0), one.get("lives", 0)
        report.row(f"of these {role}", f"{made}, in {lives} worlds")
        report.expect(made > 0, f"{role} made no step")
    return report


def main(given: list[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: %(default)s)")
    return endure(60 * parser.parse_args(given).minutes).tell()


if __name__ == "__main__":
    sys.exit(main())
