"""Soak test: many streams for a while, others that come, go and crash, every reply checked: `python -m scripts.soak`.

The streams are in other processes (soak_client.py). Some of them are then repeated on a pool without a server, with the
same seeds and actions: the replies must have been the same to the byte. Prints a table; exits with 1 if a check fails.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1.connection import Connection
from dm_env_rpc.v1.extensions.properties import PropertiesExtension

from scripts.report import Report
from scripts.soak_course import KINDS, SIDE, Step, course, digest, kind_of, world_seed
from scripts.support.reference_world import ReferenceWorld
from scripts.support.server_process import ServerProcess, serving
from worldloom.render.cpu import CPURenderer

IDLE_WORLD_S = 2.0
LEAST_SHARE = 0.5
"""Steps of the slowest stream over the median's."""
MOST_GROWTH_MIB = 16.0
"""Of the server's memory between warm-up and end, as a straight line has it. A leak of one world in a hundred, or of
one reply in a thousand, would pass it within a minute."""
_WARM_UP = 0.4
"""Part of the time after which memory must be constant: by then every kind of reply has its buffers."""
_CLIENTS, _CHURNING, _DOOMED = 2, 8, 8
"""Processes of steady streams; streams of the process that comes and goes; streams of a process that is killed."""
_TIMEOUT_S = 120.0


@contextmanager
def client(role: str, address: str, streams: range, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process of clients, killed at the end if it is still there."""
    command = [sys.executable, "-m", "scripts.soak_client", role, address]
    command += [str(streams.start), str(len(streams)), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """All its streams have joined."""
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError("a client did not get ready: see above")


def begin(process: subprocess.Popen[str]) -> None:
    """Let it go."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def result(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """What clients found, who had so long."""
    out, _ = process.communicate(timeout=seconds + _TIMEOUT_S)
    if process.returncode:
        return {"problems": [f"a client ended with exit code {process.returncode}: see above"]}
    found: dict[str, Any] = json.loads(out)
    return found


class Killer(threading.Thread):
    """Starts clients and kills them in the middle of what they do."""

    def __init__(self, address: str, first: int) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self._address, self._first = address, first
        self._is_over = threading.Event()
        self.start()

    def stop(self) -> None:
        """No more."""
        self._is_over.set()
        self.join(_TIMEOUT_S)

    def run(self) -> None:
        """One after the other."""
        rng = random.Random(0)
        while not self._is_over.is_set():
            streams = range(self._first, self._first + _DOOMED)
            with client("doomed", self._address, streams, _TIMEOUT_S) as process:
                wait_until_ready(process)
                begin(process)
                self._is_over.wait(rng.uniform(0.2, 1.0))
                process.kill()  # SIGKILL
                process.wait(_TIMEOUT_S)
            self.kills += 1
            self._is_over.wait(0.5)


class Scale(threading.Thread):
    """Weighs the server twice a second."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.weights: list[tuple[float, float]] = []
        self._server = server
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        """Seconds, MiB."""
        begun_s = time.monotonic()
        while not self._is_over.wait(0.5):
            self.weights.append((time.monotonic() - begun_s, self._server.resident_bytes / 2**20))

    def stop(self, report: Report) -> None:
        """Add the results to the report."""
        self._is_over.set()
        self.join()
        times_s, mib = np.array(self.weights).T
        warm = times_s > _WARM_UP * times_s[-1]
        slope = np.polyfit(times_s[warm], mib[warm], 1)[0]
        growth = slope * (times_s[-1] - times_s[warm][0])
        report.row("memory", f"{mib[0]:.0f} MiB at first, {mib[warm][0]:.0f} when warm, {mib[-1]:.0f} in the end")
        report.row("its growth when warm", f"{growth:+.1f} MiB, {60 * slope:+.1f} a minute")
        report.expect(growth < MOST_GROWTH_MIB, f"memory grew by {growth:.1f} MiB: expected {MOST_GROWTH_MIB} at most")


def replay(stream: int, received: list[int], renderer: CPURenderer) -> int | None:
    """Repeat a stream without a server; return the first step whose reply was different, if any."""
    kind = kind_of(stream)
    partner = stream + 1 if kind.agents > 1 else None
    direct = ReferenceWorld(renderer, kind.family, world_seed(stream), kind.lanes or 1, **kind.settings)
    deeds = [_deeds(stream), *([] if partner is None else [_deeds(partner)])]
    for number, came in enumerate(received):
        together = [next(one) for one in deeds]
        deed = together[0]
        if not isinstance(deed, Step):
            direct.pool.interrupt(direct.lanes)
            continue
        actions = {name: _of_all(kind.lanes, together, name) for name in {n for d in together for n in _names(d)}}
        direct.step(**actions)
        state = 1 if kind.lanes is not None else int(direct.pool.status[direct.lanes[0]])
        seen = {name: direct.see(name, **({"width": SIDE, "height": SIDE} if "." in name else {})) for name in deed.see}
        if digest(state, {name: value if kind.lanes else value[0] for name, value in seen.items()}) != came:
            return number
    return None


def _deeds(stream: int) -> Iterator[Step | str]:
    """Without those that are refused, which change nothing."""
    return (deed for deed in course(stream) if deed != "bad")


def _names(deed: Step | str) -> list[str]:
    return list(deed.actions) if isinstance(deed, Step) else []


def _of_all(lanes: int | None, deeds: list[Step | str], name: str) -> np.ndarray:
    """[lanes, agents, *shape] of an action; zeros of those who do not send it."""
    sent = [deed.actions.get(name) if isinstance(deed, Step) else None for deed in deeds]
    like = next(value for value in sent if value is not None)
    each = [np.zeros_like(like) if value is None else value for value in sent]
    return np.stack([value if lanes is not None else value[None] for value in each], axis=1)


def compare(digests: dict[int, list[int]], count: int, report: Report) -> None:
    """Run some streams of every kind again."""
    rng = random.Random(1)
    leaders = [n for n in digests if kind_of(n).agents == 1 or n % len(KINDS) == len(KINDS) - 2]
    sample = sorted(rng.sample(leaders, len(leaders)), key=lambda n: leaders.index(n) // len(KINDS))
    chosen: list[int] = []
    for kind in range(len(KINDS) - 1):
        chosen += [n for n in sample if n % len(KINDS) == kind][: max(1, count // (len(KINDS) - 1))]
    steps = 0
    with CPURenderer() as renderer:
        for stream in chosen:
            received = digests[stream]
            if kind_of(stream).agents > 1:
                received = received[: len(digests[stream + 1])]  # then its partner was gone
            wrong = replay(stream, received, renderer)
            steps += len(received)
            report.expect(wrong is None, f"stream {stream} ({kind_of(stream).name}) had another reply at step {wrong}")
    report.row("run again directly", f"{len(chosen)} streams of all kinds, {steps} steps, to the byte")


def check_nothing_left(address: str, report: Report) -> None:
    """All worlds are gone when their time has passed, and all streams but our own."""
    expected = {"worlds": 0, "lanes": 0, "streams": 1}
    with grpc.insecure_channel(address) as channel:
        properties = PropertiesExtension(Connection(channel))
        deadline_s = time.monotonic() + IDLE_WORLD_S + 10.0
        while True:
            left = {name: int(properties[f"counters.{name}"]) for name in expected}
            if left == expected or time.monotonic() > deadline_s:
                break
            time.sleep(0.1)
        counters = {name: properties[f"counters.{name}"] for name in ("steps", "ticks", "mean_batch", "frames.rgb")}
    report.row("left in the end", ", ".join(f"{count} {name}" for name, count in left.items()))
    report.row("ticks", f"{counters['ticks']}, of {counters['mean_batch']:.1f} steps each on average")
    report.expect(left == expected, f"left in the end: {left}, expected {expected}")


def soak(streams: int, seconds: float, compared: int) -> Report:
    """All of it."""
    report = Report()
    each = -(-streams // (_CLIENTS * len(KINDS))) * len(KINDS)
    parts = [range(first, min(first + each, streams)) for first in range(0, streams, each)]
    with serving("--idle-world-s", str(IDLE_WORLD_S), "--log-level", "warning") as server:
        with ExitStack() as processes:
            roles = [("churn", range(10_000, 10_000 + _CHURNING)), *(("steady", part) for part in parts)]
            churn, *steady = [
                processes.enter_context(client(role, server.address, numbers, seconds)) for role, numbers in roles
            ]
            for process in (*steady, churn):
                wait_until_ready(process)
            for process in (*steady, churn):
                begin(process)
            scale, killer = Scale(server), Killer(server.address, 20_000)
            found = [result(process, seconds) for process in steady]
            scale.stop(report)
            killer.stop()
            lives = result(churn, seconds)
        check_nothing_left(server.address, report)
    for one in (*found, lives):
        report.problems += one["problems"]
    steps = {int(n): count for one in found for n, count in one.get("steps", {}).items()}
    judge_shares(steps, streams, seconds, report)
    report.row(
        "came and went", f"{lives.get('lives', 0)} streams; {killer.kills} processes killed, {_DOOMED} streams each"
    )
    report.row("refused, as they should be", str(sum(one.get("refusals", 0) for one in found)))
    report.expect(killer.kills > 0, "no client was killed")
    compare({int(n): received for one in found for n, received in one.get("digests", {}).items()}, compared, report)
    return report


def judge_shares(steps: dict[int, int], streams: int, seconds: float, report: Report) -> None:
    """Check that all streams made about the same progress."""
    report.expect(len(steps) == streams, f"{len(steps)} streams reported their steps: expected {streams}")
    if not steps:
        return
    median, slowest = statistics.median(steps.values()), min(steps, key=lambda n: steps[n])
    total = sum(steps.values())
    report.row("steady streams", f"{len(steps)} for {seconds:g} s: {total} steps, {total / seconds:.0f} a second")
    report.row(
        "steps of a stream",
        f"{steps[slowest]} at least ({kind_of(slowest).name}), {median:g} median, {max(steps.values())} at most",
    )
    share = steps[slowest] / median if median else 0.0
    report.row("the slowest one's share", f"{share:.2f} of the median's steps")
    report.expect(share >= LEAST_SHARE, f"stream {slowest} made {share:.2f} of the median's steps")


def main(given: list[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=256, help="steady ones (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they step (default: %(default)s)")
    parser.add_argument("--compare", type=int, default=14, help="streams to run again (default: %(default)s)")
    args = parser.parse_args(given)
    return soak(args.streams, args.seconds, args.compare).tell()


if __name__ == "__main__":
    sys.exit(main())
