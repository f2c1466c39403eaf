"""Tasks of the dm_control suite: ours beside MuJoCo's own renderer, at its defaults and at its plainest.

Both simulate the same models; ours gives dm_control's rewards, too, MuJoCo's renderer pictures alone. `default` is one
process with all cores, as one gets it without asking; `plain` is two processes with a core each.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from worldloom.bench.bench_tiers import Player
from worldloom.bench.load import worldloom_process
from worldloom.bench.measuring import Report
from worldloom.bench.peers.process import PeerProcess
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.pool import Pool

TASKS = ["cartpole swingup", "walker walk", "humanoid walk"]
FEW, LANES = 64, 1024
_THEIR_ENVS = 64
"""They step one after the other: more would change nothing."""
ROUNDS, ROUND_S = 5, 0.6


class Theirs:
    """MuJoCo's renderer, in so many processes."""

    def __init__(self, domain: str, task: str, quality: str, processes: int) -> None:
        self.rates: list[float] = []
        words = ["--domain", domain, "--task", task, "--quality", quality, "--envs", str(_THEIR_ENVS // processes)]
        cores = [["--core", str(core)] if processes > 1 else [] for core in range(processes)]
        self._workers = [PeerProcess("mujoco_suite", [*words, *core], Path(sys.executable)) for core in cores]
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
    with worldloom_process() as server:
        ours = {
            "few": Player(("local", "auto"), "dmc", FEW, settings),
            "local": Player(("local", "auto"), "dmc", LANES, settings),
            "shm": Player((server.address, "shm"), "dmc", LANES, settings),
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

    def row(name: str, lanes: int, side: str, other: str, beside: str, least: float) -> None:
        ratio = rates[name] / rates[other]
        target = (f"≥ {least:g} ×", ratio >= least) if lanes == LANES else ()
        value = f"{ratio:.3g} × ({rates[name]:,.0f} against {rates[other]:,.0f} frames/s)"
        report.row(f"dmc {words}, {lanes} lanes, 64² rgb, {side} against {beside}", value, *target)

    for name, lanes in (("few", FEW), ("local", LANES)):
        for other, least in (("default", 100), ("plain", 5)):
            row(name, lanes, "in process", other, f"mujoco.Renderer, {other}", least)
    row("shm", LANES, "shared memory", "local", "in process", 0.8)


@pytest.mark.parametrize("words", TASKS)
def bench_judges(report: Report, words: str) -> None:
    """What dm_control's Python would take of a step, were its rewards not computed for all lanes at once."""
    domain, task = words.split()
    assets = AssetLibrary()
    family = Dmc({"domain": domain, "task": task}, assets)
    pool = Pool(family, Scene(assets))
    lanes = pool.add(family.lane_seeds(0, FEW))
    rng = np.random.default_rng(0)
    for _ in range(3):
        pool.step(lanes, {"control": rng.uniform(-1, 1, (FEW, 1, *family.actions[0].shape))})
    judge = family._judge

    def lane_by_lane() -> None:
        family._judge = None
        family._outcome(pool.state, lanes)
        family._judge = judge

    ratio = report.ratio(lane_by_lane, lambda: family._outcome(pool.state, lanes))
    report.row(f"dmc {words}, rewards of {FEW} lanes, dm_control's own code against arrays", f"{ratio:.3g} ×")
