"""Tasks of the dm_control suite: ours beside MuJoCo's own renderer, at its defaults and at its plainest.

Both simulate the same models; ours gives dm_control's rewards, too, MuJoCo's renderer pictures alone. `default` is one
process with all cores, as one gets it without asking; `plain` is two processes with a core each.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from worldloom.bench.bench_tiers import Player
from worldloom.bench.load import worldloom_process
from worldloom.bench.peers.worker import Worker
from worldloom.bench.reporting import Report

TASKS = ["cartpole swingup", "walker walk", "humanoid walk"]
LANES = 256
_THEIR_ENVS = 64
"""They step one after the other: more would change nothing."""
ROUNDS, ROUND_S = 5, 0.6
_TO_DEFAULT, _TO_PLAIN, _TO_LOCAL = 100, 5, 0.8


class Theirs:
    """MuJoCo's renderer, in so many processes."""

    def __init__(self, domain: str, task: str, quality: str, processes: int) -> None:
        self.rates: list[float] = []
        words = ["--domain", domain, "--task", task, "--quality", quality, "--envs", str(_THEIR_ENVS // processes)]
        cores = [["--core", str(core)] if processes > 1 else [] for core in range(processes)]
        self._workers = [Worker("mujoco_suite", [*words, *core], Path(sys.executable)) for core in cores]
        for worker in self._workers:
            worker.wait_until_ready()

    def play(self, seconds: float) -> None:
        """Step for so long, and note the frames a second."""
        for worker in self._workers:
            worker.start(seconds)
        self.rates.append(sum(worker.finish(seconds) for worker in self._workers))

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()


@contextmanager
def sides(domain: str, task: str) -> Iterator[dict[str, Player | Theirs]]:
    """Ours and theirs, ready."""
    settings = {"domain": domain, "task": task}
    with worldloom_process() as address:
        ours = {
            "local": Player(("local", "auto"), "dmc", LANES, settings),
            "shm": Player((address, "shm"), "dmc", LANES, settings),
        }
        theirs = {"default": Theirs(domain, task, "default", 1), "plain": Theirs(domain, task, "plain", 2)}
        yield {**ours, **theirs}
        for player in ours.values():
            player.env.close()
        for side in theirs.values():
            side.close()


@pytest.mark.parametrize("words", TASKS)
def bench_mujoco(report: Report, words: str) -> None:
    domain, task = words.split()
    with sides(domain, task) as players:
        for _ in range(ROUNDS):
            for player in players.values():
                player.play(ROUND_S)
        report.seconds(lambda: players["local"].play(0.01), rounds=1)
        rates = {name: median(player.rates) for name, player in players.items()}
    what = f"dmc {words}, {LANES} lanes, 64² rgb"
    for name, others, least in (
        ("local", "default", _TO_DEFAULT),
        ("local", "plain", _TO_PLAIN),
        ("shm", "local", _TO_LOCAL),
    ):
        ratio = rates[name] / rates[others]
        beside = f"mujoco.Renderer, {others}" if name == "local" else "in process"
        side = "in process" if name == "local" else "shared memory"
        report.row(
            f"{what}, {side} against {beside}",
            f"{ratio:.3g} × ({rates[name]:,.0f} against {rates[others]:,.0f} frames/s)",
            f"≥ {least} ×",
            ratio >= least,
        )
