"""Tasks of the dm_control suite: worldloom beside MuJoCo's own renderer, with default and with its fastest settings.

Both simulate the same models; worldloom also computes dm_control's rewards, MuJoCo's renderer gives frames alone.
`default` is one process with all cores and default settings; `plain` is two processes with a core each and without
shadows, reflections and multisampling.
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
_MUJOCO_ENVS = 64
"""Environments of MuJoCo's renderer. They are stepped one after the other, so their number does not matter."""
ROUNDS, ROUND_S = 5, 0.6


class MujocoProcesses:
    """MuJoCo's renderer, in one or several processes."""

    def __init__(self, domain: str, task: str, quality: str, processes: int) -> None:
        self.rates: list[float] = []
        options = ["--domain", domain, "--task", task, "--quality", quality, "--envs", str(_MUJOCO_ENVS // processes)]
        cores = [["--core", str(core)] if processes > 1 else [] for core in range(processes)]
        self._workers = [PeerProcess("mujoco_suite", [*options, *core], Path(sys.executable)) for core in cores]
        for worker in self._workers:
            worker.wait_until_ready()

    def play(self, seconds: float) -> None:
        """Step for some seconds and note the frames per second."""
        for worker in self._workers:
            worker.start(seconds)
        self.rates.append(sum(worker.finish(seconds) for worker in self._workers))

    def close(self) -> None:
        """Stop the processes."""
        for worker in self._workers:
            worker.close()


@contextmanager
def sides(domain: str, task: str) -> Iterator[dict[str, Player | MujocoProcesses]]:
    """Start all contestants, by name, and close them afterwards."""
    settings = {"domain": domain, "task": task}
    with worldloom_process() as server:
        ours = {
            "few": Player(("local", "auto"), "dmc", FEW, settings),
            "local": Player(("local", "auto"), "dmc", LANES, settings),
            "shm": Player((server.address, "shm"), "dmc", LANES, settings),
        }
        theirs = {
            "default": MujocoProcesses(domain, task, "default", 1),
            "plain": MujocoProcesses(domain, task, "plain", 2),
        }
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
def bench_rewards(report: Report, words: str) -> None:
    """Compare rewards computed lane by lane by dm_control's own code with rewards computed for all lanes at once."""
    domain, task = words.split()
    assets = AssetLibrary()
    family = Dmc({"domain": domain, "task": task}, assets)
    pool = Pool(family, Scene(assets))
    lanes = pool.add(family.lane_seeds(0, FEW))
    rng = np.random.default_rng(0)
    for _ in range(3):
        pool.step(lanes, {"control": rng.uniform(-1, 1, (FEW, 1, *family.actions[0].shape))})
    rewards = family._rewards

    def lane_by_lane() -> None:
        family._rewards = None
        family._outcome(pool.state, lanes)
        family._rewards = rewards

    ratio = report.ratio(lane_by_lane, lambda: family._outcome(pool.state, lanes))
    report.row(f"dmc {words}, rewards of {FEW} lanes, dm_control's own code against arrays", f"{ratio:.3g} ×")
