"""A thousand trials, a hundred at once, while agents and clients are killed: `python -m scripts.trials`.

Trials of one seed must all go alike, to the byte, whatever happens to the others; those whose agents are killed must
end and say why; and in the end nothing is left of any of them. Prints a table; exits with 1 if anything was not as it
should be.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
from dm_env_rpc.v1.connection import Connection
from dm_env_rpc.v1.extensions.properties import PropertiesExtension

from scripts.report import Report
from scripts.support.server_process import serving
from scripts.support.stream_client import free_port
from scripts.trials_services import DOOMED
from scripts.trials_together import advance_together

MAX_INACTIVITY_S = 2
SEEDS = 20
WHEN_AGENTS_DIE = {"UNAVAILABLE", "INTERNAL", "FAILED_PRECONDITION"}
"""What clients are told: that the agent is gone, that it knows nothing of the trial, that the trial is over by now."""
_TIMEOUT_S = 600.0
_READY_TIMEOUT_S = 60.0
FILE = """\
actor_classes: [{{id: player}}, {{id: agent}}]
trial: {{pre_hooks: ["grpc://127.0.0.1:{steady}"]}}
trial_params:
  max_inactivity: {max_inactivity}
  environment:
    config:
      world: {{family: maze, size: 9, goals: 16}}
      actor_classes:
        player: {{observations: [eye.rgb, reward]}}
        agent: {{observations: [eye.rgb], deltas: true}}
  actors:
    - {{actor_class: player, endpoint: human}}
    - {{actor_class: agent, endpoint: "grpc://127.0.0.1:{steady}"}}
"""


@contextmanager
def process(module: str, *words: object) -> Iterator["subprocess.Popen[str]"]:
    """Another program, ready; killed at the end if it is still there."""
    command = [sys.executable, "-m", f"scripts.{module}", *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        impatience = threading.Timer(_READY_TIMEOUT_S, started.kill)
        impatience.start()
        try:
            assert started.stdout is not None
            if started.stdout.readline() != "ready\n":
                raise RuntimeError(f"{module} did not get ready: see above")
            impatience.cancel()
            yield started
        finally:
            impatience.cancel()
            started.kill()


def result(client: "subprocess.Popen[str]", word: str = "") -> dict[str, Any]:
    """What clients found, who may be told a last word."""
    out, _ = client.communicate(word, timeout=_TIMEOUT_S)
    if client.returncode:
        return {
            "told": [],
            "endings": {},
            "problems": [f"a client ended with exit code {client.returncode}: see above"],
        }
    found: dict[str, Any] = json.loads(out)
    return found


class Killer(threading.Thread):
    """Starts programs over and over, and kills them in the middle of what they do."""

    def __init__(self, life_s: float, module: str, *words: object) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self._life_s, self._module, self._words = life_s, module, words
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        """One after the other."""
        rng = random.Random(0)
        while not self._is_over.is_set():
            with process(self._module, *self._words) as started:
                self._is_over.wait(rng.uniform(0.3, 1.0) * self._life_s)
                started.kill()  # SIGKILL
                started.wait(_READY_TIMEOUT_S)
            self.kills += 1

    def stop(self) -> None:
        """No more."""
        self._is_over.set()
        self.join(_READY_TIMEOUT_S)


def run(trials: int, at_once: int, ticks: int) -> Report:
    """All of it."""
    report = Report()
    steady, doomed = free_port(), free_port()
    endpoints = f"grpc://127.0.0.1:{steady},grpc://127.0.0.1:{doomed}"
    few = max(1, at_once // 10)
    with ExitStack() as at_the_end:
        folder = Path(at_the_end.enter_context(tempfile.TemporaryDirectory()))
        (folder / "trial.yaml").write_text(FILE.format(steady=steady, max_inactivity=MAX_INACTIVITY_S))
        agents = at_the_end.enter_context(process("trials_services", steady, endpoints))
        server = at_the_end.enter_context(serving("--cogment", str(folder / "trial.yaml"), "--log-level", "error"))
        agent_killer = Killer(1.5, "trials_services", doomed, endpoints)
        client_killer = Killer(2.0, "trials_client", "vanishing", server.address, 10**6, few, 10**6, SEEDS)
        began_s = time.monotonic()
        with (
            process("trials_client", "steady", server.address, trials, at_once, ticks, SEEDS) as first,
            process("trials_client", DOOMED, server.address, 10**6, few, ticks, SEEDS) as second,
        ):
            found = result(first)
            took_s = time.monotonic() - began_s
            unlucky = result(second, "enough\n")
        agent_killer.stop()
        client_killer.stop()
        judge(found, trials, report)
        report.row("played", f"{trials} trials of {ticks} ticks, {at_once} at once, in {took_s:.0f} s")
        judge_unlucky(unlucky, report)
        report.row(
            "agents killed",
            f"{agent_killer.kills} times; {sum(unlucky['endings'].values())} trials ended by it, "
            f"{len(unlucky['told'])} did not notice: {unlucky['endings']}",
        )
        report.row("clients killed", f"{client_killer.kills} times, with {few} trials each")
        report.expect(agent_killer.kills > 0 and client_killer.kills > 0, "nobody was killed")
        advance_together(server.address, at_once, ticks, report)
        check_nothing_left(server.address, agents, report)
    return report


def judge(found: dict[str, Any], trials: int, report: Report) -> None:
    """Those who were left alone noticed nothing, and saw the same if their seed was the same."""
    report.problems += found["problems"]
    report.expect(len(found["told"]) == trials, f"{len(found['told'])} trials went well: expected {trials}")
    alike: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for seed, ticks, digest in found["told"]:
        alike[seed].add((ticks, digest))
    different = [seed for seed, ways in alike.items() if len(ways) > 1]
    report.row("went alike", f"all trials of {len(alike) - len(different)} of {len(alike)} seeds, to the byte")
    report.expect(not different, f"trials of the seeds {different} went differently: expected the same")


def judge_unlucky(unlucky: dict[str, Any], report: Report) -> None:
    """Those whose agents were killed were told so."""
    unnamed = [text for text in unlucky["problems"] if "agent 1 (agent) at grpc://" not in text]
    report.problems += unnamed[:5]
    strange = set(unlucky["endings"]) - WHEN_AGENTS_DIE
    report.expect(not strange, f"trials whose agents were killed ended with {strange}: expected {WHEN_AGENTS_DIE}")
    report.expect(bool(unlucky["endings"]), "no trial noticed that its agent was killed")


def check_nothing_left(address: str, agents: "subprocess.Popen[str]", report: Report) -> None:
    """No trial, world, task or actor is left, when the time of those is up whose clients are gone."""
    expected = {"trials": 0, "trials_played": 0, "worlds": 0, "lanes": 0, "streams": 1}
    deadline_s = time.monotonic() + MAX_INACTIVITY_S + 20.0
    with grpc.insecure_channel(address) as channel:
        properties = PropertiesExtension(Connection(channel))
        while True:
            left = {name: int(properties[f"counters.{name}"]) for name in expected}
            if left == expected or time.monotonic() > deadline_s:
                break
            time.sleep(0.1)
        ticks, batch, draws, frames = (
            properties[f"counters.{name}"] for name in ("ticks", "mean_batch", "draws", "frames.rgb")
        )
    report.row("left in the end", ", ".join(f"{count} {name}" for name, count in left.items()))
    report.expect(left == expected, f"left in the end: {left}, expected {expected}")
    actors = ask(agents)
    report.expect(actors == "0", f"the agents have {actors} actors left: expected 0")
    report.row("batches", f"{ticks} of {batch:.1f} steps on average; {frames / max(draws, 1):.1f} pictures a draw")


def ask(agents: "subprocess.Popen[str]") -> str:
    """How many actors a process of agents serves."""
    assert agents.stdin is not None
    assert agents.stdout is not None
    agents.stdin.write("\n")
    agents.stdin.flush()
    return agents.stdout.readline().strip()


def main(given: list[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1000, help="left alone (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=100, help="of them at a time (default: %(default)s)")
    parser.add_argument("--ticks", type=int, default=30, help="of each (default: %(default)s)")
    args = parser.parse_args(given)
    return run(args.trials, args.at_once, args.ticks).tell()


if __name__ == "__main__":
    sys.exit(main())
