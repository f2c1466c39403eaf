"""PPO learns to catch over a fleet of three servers, of which one is killed every ten seconds, and without that.

    .venv-learners/bin/python -m scripts.fleet_learning

The learner is examples/ppo.py. Both runs have the same seed, network and schedule. The fleet has to reach a mean return
of 0.9 within twice the steps of the undisturbed run; steps of lanes that were lost or parked count.
"""

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import torch
from torch.distributions import Distribution

from ppo import TASKS, Network, Player, Task, env_arguments, make_env, measure_random_agent, train
from scripts.report import Report
from worldloom.client import VectorEnv
from worldloom.fleet import Fleet

GOAL = 0.9
SERVERS = 3


def learn(task: Task, seed: int, make: Callable[[], VectorEnv]) -> list[tuple[int, float, float]]:
    """Train on an env; return steps, seconds and mean returns."""
    torch.manual_seed(seed)
    with make() as env:
        _, mean_frame, deviation = measure_random_agent(env, task, seed)
        network = Network(env, task, mean_frame, deviation)
        return train(Player(env, task, seed, "cpu"), network, task.steps, max_s=1800)


def steps_to_goal(curve: Sequence[tuple[int, float, float]]) -> int | None:
    """Return the steps after which the goal was reached; None if it was not."""
    return next((steps for steps, _, mean_return in curve if mean_return >= GOAL), None)


def kill_servers(fleet: Fleet, every_s: float, stop: threading.Event, killed: list[str], seed: int) -> None:
    """Kill a server of a fleet again and again, on a thread of its own."""
    rng = random.Random(seed)
    while not stop.wait(every_s):
        ready = [server for server in fleet.status().servers if server.state == "ready" and server.pid is not None]
        if ready:
            chosen = rng.choice(ready)
            assert chosen.pid is not None
            os.kill(chosen.pid, signal.SIGKILL)
            killed.append(chosen.server)
            print(f"killed {chosen.server}, {chosen.lanes} lanes", flush=True)


def main(words: Sequence[str]) -> int:
    """Train twice, and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of both runs (%(default)s)")
    parser.add_argument("--steps", type=int, default=400_000, help="steps of each run (%(default)s)")
    parser.add_argument("--kill-every-s", type=float, default=10.0, help="seconds from one kill to the next")
    args = parser.parse_args(words)
    Distribution.set_default_validate_args(False)
    task = replace(TASKS["catch"], steps=args.steps)
    report = Report()
    undisturbed = steps_to_goal(learn(task, args.seed, lambda: make_env(task, "local", task.lanes)))
    print(f"undisturbed: {GOAL} after {undisturbed} steps", flush=True)
    stop, killed = threading.Event(), list[str]()
    with Fleet(SERVERS) as fleet:
        killer = threading.Thread(target=kill_servers, args=(fleet, args.kill_every_s, stop, killed, args.seed))
        killer.start()
        began_s = time.monotonic()
        try:
            curve = learn(task, args.seed, lambda: fleet.vector_env(task.family, task.lanes, **env_arguments(task)))
        finally:
            stop.set()
            killer.join()
        took_s = time.monotonic() - began_s
    disturbed = steps_to_goal(curve)
    report.row(f"undisturbed, in process: steps to a mean return of {GOAL}", str(undisturbed))
    report.row(f"fleet of {SERVERS}, {len(killed)} servers killed in {took_s:.0f} s", str(disturbed))
    report.expect(undisturbed is not None, "the undisturbed run did not reach the goal")
    if undisturbed is not None:
        is_reached = disturbed is not None and disturbed <= 2 * undisturbed
        report.expect(is_reached, f"the goal was not reached within {2 * undisturbed} steps")
    report.expect(len(killed) > 0, "no server was killed: take more --steps")
    return report.tell()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
