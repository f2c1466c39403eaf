"""Clients and servers that are killed at any moment, and what is left of them: `python -m scripts.kills`.

Each round a process of clients (kills_client.py) is killed at some stage of what it does, and the server must have
nothing left of it: no stream, agent, shared memory, and before long no world. Then servers are killed under clients who
step: those must notice within a second, and keep their frames. Prints a table; exits with 1 if anything was
not as it should be.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from scripts.kills_client import STAGES
from scripts.report import Report
from scripts.support.background_client import BackgroundClient
from scripts.support.server_process import ServerProcess, serving
from scripts.support.shared_memory import segment_files, segment_mappings
from scripts.support.stream_client import StreamClient

IDLE_WORLD_S = 1.0
MOST_S = 1.0
"""Until clients know that their server is gone."""
MOST_GROWTH_MIB = 48.0
"""Of the server's memory from the tenth round to the last."""
_AT_ONCE_S = 5.0
"""Until the server has nothing left of a client, but for worlds, which have their time."""
_ROUNDS_EACH = 10
"""Rounds until a new witness comes, and worlds are counted."""
_SERVER_KILLS = 10
"""One for so many rounds."""
_TIMEOUT_S = 60.0
_LIFETIME_S = 3600.0


@contextmanager
def client(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of clients that waits for a line, killed at the end if it is still there."""
    command = [sys.executable, "-m", "scripts.kills_client", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def expect_line(process: subprocess.Popen[str], line: str) -> None:
    """What it says next."""
    assert process.stdout is not None
    came = process.stdout.readline()
    if came != f"{line}\n":
        raise RuntimeError(f"a client said {came!r}: expected {line!r}; see above")


def begin(process: subprocess.Popen[str]) -> None:
    """Let it go."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def wait_for(what: Callable[[], dict[str, Any]], expected: dict[str, Any], timeout_s: float) -> tuple[Any, float]:
    """What it comes to: what was expected, unless that takes too long. And how long it took."""
    begun_s = time.monotonic()
    while True:
        found, taken_s = what(), time.monotonic() - begun_s
        if found == expected or taken_s > timeout_s:
            return found, taken_s
        time.sleep(0.01)


def files_in_shared_directory() -> set[str]:
    """Those that named shared memory would leave behind."""
    return set(os.listdir("/dev/shm"))


class ClientKills:
    """A server, and clients that are killed one after the other."""

    def __init__(self, server: ServerProcess, report: Report) -> None:
        self._server, self._report = server, report
        self._rng = random.Random(0)
        self._stages: Counter[str] = Counter()
        self._longest_s = self._longest_reap_s = 0.0
        self._partner = StreamClient(server.address, _LIFETIME_S)
        self._world = self._partner.create("maze", agents=2)
        self._partner.join(self._world)
        self._at_first = self._in_the_end = self._rest()

    def run(self, rounds: int) -> None:
        """All rounds."""
        weights_mib = []
        for first in range(0, rounds, _ROUNDS_EACH):
            witness = BackgroundClient(self._server.address)
            numbers = range(first, min(first + _ROUNDS_EACH, rounds))
            with ExitStack() as started:
                coming = started.enter_context(self._client(numbers[0]))
                for number in numbers:
                    process = coming
                    if number + 1 in numbers:  # takes a second to start
                        coming = started.enter_context(self._client(number + 1))
                    self._round(number, process)
            witness.stop()
            self._check_rest(first)
            weights_mib.append(self._server.resident_bytes / 2**20)
        self._partner.close()
        report = self._report
        report.row("clients killed", f"{rounds}, of three streams each, beside one who never noticed")
        report.row("while", ", ".join(f"{stage} {count}" for stage, count in sorted(self._stages.items())))
        report.row(
            "until they were gone", f"{self._longest_s:.2f} s at most; their worlds {self._longest_reap_s:.1f} s"
        )
        report.row("there in the end", ", ".join(f"{count} {name}" for name, count in self._in_the_end.items()))
        growth_mib = weights_mib[-1] - weights_mib[0]
        report.row("memory", f"{weights_mib[0]:.0f} MiB after ten rounds, {weights_mib[-1]:.0f} after all")
        report.expect(growth_mib < MOST_GROWTH_MIB, f"memory grew by {growth_mib:.0f} MiB")

    def _client(self, number: int) -> AbstractContextManager[subprocess.Popen[str]]:
        return client("doomed", self._server.address, str(number), STAGES[number % len(STAGES)], self._world)

    def _round(self, number: int, process: subprocess.Popen[str]) -> None:
        stage = STAGES[number % len(STAGES)]
        expect_line(process, "ready")
        begin(process)
        if stage == "any":
            time.sleep(self._rng.uniform(0.0, 0.5))
        else:
            expect_line(process, stage)
            time.sleep(self._rng.choice([0.0, self._rng.uniform(0.0, 0.01)]))
        process.kill()
        process.wait(_TIMEOUT_S)
        self._stages[stage] += 1
        expected = {"streams": 3, "shared bytes": 0, "agents": 1, "segments open": 0, "segments mapped": 0}
        found, taken_s = wait_for(self._left_at_once, expected, _AT_ONCE_S)
        self._longest_s = max(self._longest_s, taken_s)
        self._report.expect(found == expected, f"round {number} ({stage}) left {found}, expected {expected}")

    def _left_at_once(self) -> dict[str, Any]:
        with StreamClient(self._server.address) as watcher:
            return {
                "streams": int(watcher.property("counters.streams")),
                "shared bytes": int(watcher.property("counters.shared_bytes")),
                "agents": int(self._partner.property("world.agents_joined")),
                "segments open": len(segment_files(self._server.pid)),
                "segments mapped": len(segment_mappings(self._server.pid)),
            }

    def _rest(self) -> dict[str, Any]:
        names = ("worlds", "lanes", "streams", "reply_slots")
        return {name.replace("_", " "): int(self._partner.property(f"counters.{name}")) for name in names}

    def _check_rest(self, first: int) -> None:
        """Check that unused worlds are destroyed in time, with their lanes and reply buffers."""
        found, taken_s = wait_for(self._rest, self._at_first, IDLE_WORLD_S + _AT_ONCE_S)
        self._in_the_end = found
        self._longest_reap_s = max(self._longest_reap_s, taken_s)
        self._report.expect(found == self._at_first, f"after round {first}: {found}, expected {self._at_first}")


def kill_servers(rounds: int, report: Report) -> None:
    """Kill servers under clients who step."""
    rng = random.Random(1)
    taken: list[float] = []
    errors: Counter[str] = Counter()
    files = files_in_shared_directory()
    for number in range(rounds):
        server = ServerProcess("--log-level", "warning")
        try:
            with client("survivor", server.address, str(number)) as process:
                expect_line(process, "ready")
                begin(process)
                time.sleep(rng.uniform(0.0, 0.4))
                killed_s = time.monotonic()
                server.kill()
                out, _ = process.communicate(timeout=_TIMEOUT_S)
        finally:
            server.kill()
        found = json.loads(out)
        report.expect(len(found) == 4, f"{len(found)} streams noticed the end of the server: expected 4")
        for name, one in found.items():
            taken.append(one["at_s"] - killed_s)
            errors[one["error"]] += 1
            report.expect(taken[-1] < MOST_S, f"{name} noticed after {taken[-1]:.2f} s: expected {MOST_S:g} at most")
            report.expect(one["intact"], f"{name}: its frame changed when the server was killed")
    report.row("servers killed", f"{rounds}, under 4 streams each, which keep their frames")
    report.row(
        "until clients knew", f"{max(taken):.3f} s at most; {', '.join(f'{n} {name}' for name, n in errors.items())}"
    )
    left = files_in_shared_directory() - files
    report.row("files left in /dev/shm", str(len(left)))
    report.expect(not left, f"left in /dev/shm: {sorted(left)}")


def kills(rounds: int) -> Report:
    """All of it."""
    report = Report()
    with serving("--idle-world-s", str(IDLE_WORLD_S), "--log-level", "warning") as server:
        ClientKills(server, report).run(rounds)
    kill_servers(max(1, rounds // _SERVER_KILLS), report)
    return report


def main(given: list[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200, help="clients to kill (default: %(default)s)")
    return kills(parser.parse_args(given).rounds).tell()


if __name__ == "__main__":
    sys.exit(main())
