"""Random faults of a fleet under an env that steps: what is lost, how long it takes, and whether all else is the same.

    python -m scripts.fleet_faults --faults 100

A Ray cluster of three nodes on this machine has a fleet of three servers. The env reaches them through proxies, over
gRPC, so that the network can be cut. Each fault comes in the middle of a course with a seed of its own; an engine in
this process takes the same steps. Lanes that were not lost must have the same bytes, whatever happened to the others;
no step may take longer than a lost server takes to be noticed, and after some seconds all lanes must step again. At the
end the fleet goes down, and nothing may be left of it. With the same seed the faults are the same.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scripts.report import Report
from scripts.support.proxy import Proxy
from scripts.support.ray_cluster import RayCluster
from worldloom.client import VectorEnv
from worldloom.fleet import Fleet

LANES = 24
SERVERS = 3
GIVEN: dict[str, Any] = {"width": 16, "height": 16, "settings": {"rail": 2.0, "max_steps": 40}}
STEP_S = 2.0 + 1.0
"""Time that a step may take: a lost server is noticed within two seconds. The rest is for a busy machine."""
BACK_S = 15.0
"""Time after which all lanes step again, wherever they are."""
SETTLED_S = 90.0
"""Time after which the fleet has all its servers again."""
_PROGRAMS = (b"worldloom.fleet.serve_process", b"worldloom.fleet.probe")


@dataclass
class Outcome:
    """Effects of the faults of one kind."""

    lost_lanes: list[int] = field(default_factory=list)
    longest_steps_s: list[float] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)
    """Times from the fault until no lane was lost any more."""
    settled_s: list[float] = field(default_factory=list)
    """Times from the fault until the fleet had all its servers."""
    steps: int = 0


class ProxiedFleet:
    """The servers of a fleet, each behind a proxy on the same host."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._proxies: dict[str, Proxy] = {}

    def addresses(self) -> list[str]:
        """Return the addresses of the proxies of the servers that there are."""
        listed = self._fleet.addresses()
        for address in listed:
            if address not in self._proxies:
                self._proxies[address] = Proxy(address, address.rpartition(":")[0])
        return [self._proxies[address].address for address in listed]

    def cut(self, address: str, is_cut: bool) -> None:
        """Pass nothing on to a server, or again what comes."""
        proxy = self._proxies[address]
        (proxy.stop_forwarding if is_cut else proxy.start_forwarding)()

    def close_all(self) -> None:
        """Close all proxies."""
        for proxy in self._proxies.values():
            proxy.close()


class Course:
    """An env over a fleet, the same in this process, and faults."""

    def __init__(self, cluster: RayCluster, fleet: Fleet, rng: random.Random, report: Report) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._rng = rng
        self._report = report
        self._proxied = ProxiedFleet(fleet)
        self._after: Callable[[], None] = lambda: None
        """Undoes a fault, once its effect was seen."""
        self.env = VectorEnv(
            self._proxied, "cartpole", LANES, token=fleet.token, tls_ca=fleet.tls_ca, transport="grpc", **GIVEN
        )
        self._gone: int | None = None
        """Process of the server that the fleet has to replace."""
        self._local = VectorEnv("local", "cartpole", LANES, renderer="cpu", **GIVEN)
        self.outcomes: dict[str, Outcome] = {}

    def close(self) -> None:
        """Close both envs."""
        self.env.close()
        self._local.close()
        self._proxied.close_all()

    def run(self, number: int, kind: str) -> None:
        """Play a course with one fault."""
        outcome = self.outcomes.setdefault(kind, Outcome())
        what = f"fault {number}, {kind}"
        self._report.expect(self._spread(), f"{what}: before it, not every server had lanes after {SETTLED_S:g} s")
        self._gone = None
        seed = self._rng.randrange(2**32)
        first, _ = self.env.reset(seed=seed)
        expected, _ = self._local.reset(seed=seed)
        self._report.expect(np.array_equal(first["eye.rgb"], expected["eye.rgb"]), f"{what}: a reset differs")
        ever_lost = np.zeros(LANES, bool)
        actions = np.random.default_rng(seed)
        is_done, fault_s, back_s, longest_s = False, 0.0, None, 0.0
        fault_at = self._rng.randrange(5, 40)
        settled_s: float | None = None
        steps = after = 0
        while not is_done:
            if steps == fault_at:
                fault_s = time.monotonic()
                _FAULTS[kind](self)
            chosen = {"force": actions.uniform(-1, 1, LANES).astype(np.float32)}
            began_s = time.monotonic()
            found, *outcome_found, info = self.env.step(chosen)
            now_s = time.monotonic()
            theirs, *outcome_expected, _ = self._local.step(chosen)
            ever_lost |= info["lost"]
            rest = ~ever_lost
            is_same = np.array_equal(found["eye.rgb"][rest], theirs["eye.rgb"][rest]) and all(
                np.array_equal(mine[rest], other[rest])
                for mine, other in zip(outcome_found, outcome_expected, strict=True)
            )
            self._report.expect(is_same, f"{what}: step {steps} differs in a lane that was not lost")
            steps += 1
            if steps <= fault_at:
                continue
            longest_s = max(longest_s, now_s - began_s)
            if info["lost"].any():
                back_s = None
                self._after()
                self._after = lambda: None
            elif back_s is None:
                back_s = now_s - fault_s
            if settled_s is None and now_s - fault_s > 0.5 and steps % 16 == 0 and self._is_settled():
                settled_s = now_s - fault_s
                self._after()
                self._after = lambda: None
            after = after + 1 if settled_s is not None and back_s is not None else 0
            is_done = after > 50 or now_s - fault_s > SETTLED_S
            time.sleep(0.002)
        outcome.steps += steps
        outcome.lost_lanes.append(int(ever_lost.sum()))
        outcome.longest_steps_s.append(longest_s)
        outcome.back_s.append(back_s if back_s is not None else SETTLED_S)
        outcome.settled_s.append(settled_s if settled_s is not None else SETTLED_S)
        self._report.expect(is_same and longest_s < STEP_S, f"{what}: a step took {longest_s:.1f} s")
        self._report.expect(outcome.back_s[-1] < BACK_S, f"{what}: lanes were lost for {outcome.back_s[-1]:.1f} s")
        self._report.expect(settled_s is not None, f"{what}: the fleet had not all its servers after {SETTLED_S:g} s")
        if kind in _HARMLESS:
            self._report.expect(not ever_lost.any(), f"{what}: {ever_lost.sum()} lanes were lost")

    def _spread(self) -> bool:
        """Step until every server of the fleet has lanes; return whether that has come to be."""
        until_s = time.monotonic() + SETTLED_S
        self.env.reset()
        while time.monotonic() < until_s:
            self.env.step({"force": np.zeros(LANES, np.float32)})
            held = [one.lanes for one in self.env.servers if one.state == "up"]
            if len(held) == SERVERS and min(held) and self._is_settled():
                return True
            time.sleep(0.002)
        return False

    def _is_settled(self) -> bool:
        """The fleet has all its servers, and not the one that was to go."""
        status = self._fleet.status()
        return status.is_settled and self._gone not in [one.pid for one in status.servers]

    # Faults

    def _pick(self, is_replaced: bool = True) -> Any:
        chosen = self._rng.choice([one for one in self._fleet.status().servers if one.state == "ready"])
        self._gone = chosen.pid if is_replaced else None
        return chosen

    def kill_server(self) -> None:
        """Kill a server's process."""
        os.kill(self._pick().pid, signal.SIGKILL)

    def freeze_server(self) -> None:
        """Stop a server's process for good; the fleet has to end it."""
        os.kill(self._pick().pid, signal.SIGSTOP)

    def pause_server(self) -> None:
        """Stop a server's process for a moment, which is not to be taken for a loss."""
        pid = self._pick(is_replaced=False).pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(pid, signal.SIGCONT)

    def cut_network(self) -> None:
        """Pass nothing on between the env and a server, until its lanes are lost."""
        address = self._pick(is_replaced=False).address
        self._proxied.cut(address, True)
        self._after = lambda: self._proxied.cut(address, False)

    def kill_node(self) -> None:
        """Kill a node, and add another."""
        self._cluster.kill_node(self._rng.choice(self._cluster.workers))
        self._cluster.workers.append(self._cluster.add_node())

    def kill_reconciler(self) -> None:
        """Kill the process of the reconciler."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_ours = str(self._cluster.folder).encode() in (folder / "environ").read_bytes()
                if is_ours and (folder / "cmdline").read_bytes().startswith(b"ray::Reconciler"):
                    os.kill(int(folder.name), signal.SIGKILL)

    def drain_server(self) -> None:
        """Have a server hand its lanes over."""
        self._fleet.drain(self._pick().server)


_FAULTS: dict[str, Callable[[Course], None]] = {
    "server killed": Course.kill_server,
    "server frozen": Course.freeze_server,
    "server paused": Course.pause_server,
    "network cut": Course.cut_network,
    "node killed": Course.kill_node,
    "reconciler killed": Course.kill_reconciler,
    "server drained": Course.drain_server,
}
_HARMLESS = ("server paused", "reconciler killed", "server drained")
"""Faults that cost no lane its episode."""


def find_left(mark: Path, ports: Sequence[int]) -> list[str]:
    """Return what is left of a fleet: processes whose environment has a mark, shared memory, listening ports."""
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            is_ours = str(mark).encode() in (folder / "environ").read_bytes()
            if is_ours and any(program in command for program in _PROGRAMS):
                left.append(f"process {folder.name}: {command.decode(errors='replace')}")
    if "worldloom-frames" in Path("/proc/self/maps").read_text():
        left.append("shared memory")
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == "0A" and int(local.rpartition(":")[2], 16) in ports:
            left.append(f"a listening port: {local}")
    return left


def main(words: Sequence[str]) -> int:
    """Cause faults, and print what they did; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100, help="number of faults (%(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=list(_FAULTS), default=list(_FAULTS), help="kinds of faults")
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults (%(default)s)")
    args = parser.parse_args(words)
    rng = random.Random(args.seed)
    report = Report()
    kinds = [args.kinds[number % len(args.kinds)] for number in range(args.faults)]
    rng.shuffle(kinds)
    ports: list[int] = []
    with RayCluster(SERVERS) as cluster:
        with Fleet(SERVERS, 1, name="faults", drain_s=60) as fleet:
            course = Course(cluster, fleet, rng, report)
            try:
                for number, kind in enumerate(kinds, 1):
                    ports += [int(address.rpartition(":")[2]) for address in fleet.addresses()]
                    course.run(number, kind)
                    outcome = course.outcomes[kind]
                    print(
                        f"{number} of {args.faults}: {kind}, {outcome.lost_lanes[-1]} lanes lost, back after "
                        f"{outcome.back_s[-1]:.1f} s, longest step {outcome.longest_steps_s[-1]:.2f} s, fleet settled "
                        f"after {outcome.settled_s[-1]:.1f} s",
                        flush=True,
                    )
            finally:
                course.close()
        left = find_left(cluster.folder, ports)
    report.expect(not left, f"left after the fleet went down: {'; '.join(left)}")
    for kind, outcome in course.outcomes.items():
        report.row(
            f"{kind} × {len(outcome.lost_lanes)}",
            f"lanes lost {min(outcome.lost_lanes)} to {max(outcome.lost_lanes)}, longest step "
            f"{max(outcome.longest_steps_s):.2f} s, back after {_spread(outcome.back_s)}, settled after "
            f"{_spread(outcome.settled_s)}, {outcome.steps} steps compared",
        )
    return report.tell()


def _spread(times_s: Sequence[float]) -> str:
    return f"{np.median(times_s):.1f} s (median; longest {max(times_s):.1f} s)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
