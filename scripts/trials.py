"""Stress test of many trials, while agents and clients are killed: `python -m scripts.trials`.

Trials with the same seed must give the same bytes, whatever happens to others. Trials whose agents are killed must end
with an error that names the agent. At the end the server must hold nothing of any trial. Prints a table; exits with 1
if a check failed.
"""

import argparse
import asyncio
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
from scripts.trials_services import DOOMED, action_of
from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub

MAX_INACTIVITY_S = 2
SEEDS = 20
WHEN_AGENTS_DIE = {"UNAVAILABLE", "INTERNAL"}
"""Expected statuses: the agent is unreachable, or was started again and does not know the trial."""
ACTORS = 2
"""Number of actors of each trial."""
_TIMEOUT_S = 600.0
_CALL_TIMEOUT_S = 60.0
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
    """Run a module of scripts in a process, wait until it is ready, and kill it at the end."""
    command = [sys.executable, "-m", f"scripts.{module}", *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        kill_timer = threading.Timer(_READY_TIMEOUT_S, started.kill)
        kill_timer.start()
        try:
            assert started.stdout is not None
            if started.stdout.readline() != "ready\n":
                raise RuntimeError(f"{module} did not print ready: its output above says why")
            kill_timer.cancel()
            yield started
        finally:
            kill_timer.cancel()
            started.kill()


def result(client: "subprocess.Popen[str]", input_line: str = "") -> dict[str, Any]:
    """Wait for a process of clients, after sending it a line, and return its results."""
    out, _ = client.communicate(input_line, timeout=_TIMEOUT_S)
    if client.returncode:
        return {
            "finished": [],
            "endings": {},
            "problems": [f"a client ended with exit code {client.returncode}: see above"],
        }
    found: dict[str, Any] = json.loads(out)
    return found


class Killer(threading.Thread):
    """A thread that starts a program again and again, and kills it after a random time."""

    def __init__(self, life_s: float, module: str, *words: object) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self._life_s, self._module, self._words = life_s, module, words
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        """Start and kill, until stopped."""
        rng = random.Random(0)
        while not self._is_over.is_set():
            with process(self._module, *self._words) as started:
                self._is_over.wait(rng.uniform(0.3, 1.0) * self._life_s)
                started.kill()  # SIGKILL
                started.wait(_READY_TIMEOUT_S)
            self.kills += 1

    def wait_for_kills(self, number: int) -> None:
        """Wait until so many more programs have been killed."""
        wanted, deadline_s = self.kills + number, time.monotonic() + _READY_TIMEOUT_S
        while self.kills < wanted and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop after the current program."""
        self._is_over.set()
        self.join(_READY_TIMEOUT_S)


def run(trials: int, at_once: int, ticks: int) -> Report:
    """Run the whole test."""
    report = Report()
    steady, doomed = free_port(), free_port()
    endpoints = f"grpc://127.0.0.1:{steady},grpc://127.0.0.1:{doomed}"
    few = max(1, at_once // 10)
    with ExitStack() as exit_stack:
        folder = Path(exit_stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "trial.yaml").write_text(FILE.format(steady=steady, max_inactivity=MAX_INACTIVITY_S))
        agents = exit_stack.enter_context(process("trials_services", steady, endpoints))
        server = exit_stack.enter_context(serving("--cogment", str(folder / "trial.yaml"), "--log-level", "error"))
        agent_killer = Killer(1.5, "trials_services", doomed, endpoints)
        client_killer = Killer(2.0, "trials_client", "vanishing", server.address, 10**6, few, 10**6, SEEDS)
        began_s = time.monotonic()
        with (
            process("trials_client", "steady", server.address, trials, at_once, ticks, SEEDS) as first,
            process("trials_client", DOOMED, server.address, 10**6, few, ticks, SEEDS) as second,
        ):
            found = result(first)
            took_s = time.monotonic() - began_s
            agent_killer.wait_for_kills(2)  # the first may have died before its first trial
            doomed_result = result(second, "enough\n")
        agent_killer.stop()
        client_killer.stop()
        check_steady(found, trials, report)
        report.row("finished", f"{trials} trials of {ticks} ticks, {at_once} at once, in {took_s:.0f} s")
        check_doomed(doomed_result, report)
        report.row(
            "agents killed",
            f"{agent_killer.kills} times; {sum(doomed_result['endings'].values())} trials ended by that, "
            f"{len(doomed_result['finished'])} finished all the same: {doomed_result['endings']}",
        )
        report.row("clients killed", f"{client_killer.kills} times, with {few} trials each")
        report.expect(agent_killer.kills > 0 and client_killer.kills > 0, "no process was killed")
        advance_in_lockstep(server.address, at_once, ticks, report)
        check_nothing_left(server.address, agents, report)
    return report


def check_steady(found: dict[str, Any], trials: int, report: Report) -> None:
    """Check that undisturbed trials finished, with the same bytes for the same seed."""
    report.problems += found["problems"]
    report.expect(len(found["finished"]) == trials, f"{len(found['finished'])} trials finished: expected {trials}")
    by_seed: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for seed, ticks, digest in found["finished"]:
        by_seed[seed].add((ticks, digest))
    different = [seed for seed, digests in by_seed.items() if len(digests) > 1]
    report.row("deterministic", f"all trials of {len(by_seed) - len(different)} of {len(by_seed)} seeds, to the byte")
    report.expect(not different, f"trials of the seeds {different} differ: expected the same")


def check_doomed(doomed: dict[str, Any], report: Report) -> None:
    """Check that trials whose agents were killed ended with an error that names the agent."""
    unnamed = [text for text in doomed["problems"] if "agent 1 (agent) at grpc://" not in text]
    report.problems += unnamed[:5]
    unexpected = set(doomed["endings"]) - WHEN_AGENTS_DIE
    report.expect(
        not unexpected, f"trials whose agents were killed ended with {unexpected}: expected {WHEN_AGENTS_DIE}"
    )
    report.expect(bool(doomed["endings"]), "no trial ended because its agent was killed")


def check_nothing_left(address: str, agents: "subprocess.Popen[str]", report: Report) -> None:
    """Check that no trial, world, task or actor is left, once trials without a client have timed out."""
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
    report.row("left at the end", ", ".join(f"{count} {name}" for name, count in left.items()))
    report.expect(left == expected, f"left at the end: {left}, expected {expected}")
    actors = count_actors(agents)
    report.expect(actors == "0", f"the agents have {actors} actors left: expected 0")
    report.row("batches", f"{ticks} of {batch:.1f} steps on average; {frames / max(draws, 1):.1f} frames a draw")


def advance_in_lockstep(address: str, trials: int, ticks: int, report: Report) -> None:
    """Advance many trials of the Environment service in lockstep, and check that they are drawn in batches."""
    names = ("ticks", "steps", "draws", "frames.rgb")
    with grpc.insecure_channel(address) as channel:
        properties = PropertiesExtension(Connection(channel))
        before = {name: int(properties[f"counters.{name}"]) for name in names}
        asyncio.run(_advance(address, trials, ticks))
        grown = {name: int(properties[f"counters.{name}"]) - before[name] for name in names}
    batch = grown["steps"] / max(grown["ticks"], 1)
    drawn = grown["frames.rgb"] / max(grown["draws"], 1)
    report.row(f"{trials} advanced at once", f"batches of {batch:.1f} steps on average, {drawn:.1f} frames a draw")
    report.expect(grown["steps"] == ACTORS * trials * (ticks + 1), f"{grown['steps']} steps of trials in lockstep")
    # How many requests wait together depends on the load of the machine: more than one trial is all that is certain.
    report.expect(batch > ACTORS, f"batches of {batch:.1f} steps: expected more than one trial has")


async def _advance(address: str, trials: int, ticks: int) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = EnvironmentStub(channel)
        ids = [f"lockstep-{number}" for number in range(trials)]
        starts = [api.EnvStartRequest(trial_id=one, actor_counts=[1] * ACTORS) for one in ids]
        await asyncio.gather(*(stub.Start(start, timeout=_CALL_TIMEOUT_S) for start in starts))
        for tick in range(ticks):
            actions = api.ActionSet(actions=[action_of(tick)] * ACTORS)
            updates = [api.EnvUpdateRequest(trial_id=one, action_set=actions) for one in ids]
            replies = await asyncio.gather(*(stub.Update(update, timeout=_CALL_TIMEOUT_S) for update in updates))
            assert all(reply.observation_set.tick_id == tick + 1 for reply in replies)
        await asyncio.gather(*(stub.End(api.EnvEndRequest(trial_id=one), timeout=_CALL_TIMEOUT_S) for one in ids))


def count_actors(agents: "subprocess.Popen[str]") -> str:
    """Return the number of actors that a process of agents serves."""
    assert agents.stdin is not None
    assert agents.stdout is not None
    agents.stdin.write("\n")
    agents.stdin.flush()
    return agents.stdout.readline().strip()


def main(given: list[str] | None = None) -> int:
    """Run the test and print its report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1000, help="number of undisturbed trials (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=100, help="maximum of concurrent trials (default: %(default)s)")
    parser.add_argument("--ticks", type=int, default=30, help="ticks of each trial (default: %(default)s)")
    args = parser.parse_args(given)
    return run(args.trials, args.at_once, args.ticks).tell()


if __name__ == "__main__":
    sys.exit(main())
