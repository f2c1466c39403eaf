"""Tasks of the dm_control suite: worldloom beside MuJoCo's own renderer, with default and with its fastest settings.

Both simulate the same models; worldloom also computes dm_control's rewards, MuJoCo's renderer gives frames alone.
`default` is one process with all cores and default settings; `plain` is two processes with a core each and without
shadows, reflections and multisampling.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from worldloom.bench.load import worldloom_process
from worldloom.bench.measuring import RateFunction, Report
from worldloom.bench.peers.process import PeerProcess
from worldloom.bench.players import LOCAL, SAME_MACHINE, Player
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.pool import Pool

TASKS = ["cartpole swingup", "walker walk", "humanoid walk"]
FEW, LANES = 64, 1024
_MUJOCO_ENVS = 64
"""Environments of MuJoCo's renderer. They are stepped one after the other, so their number does not matter."""
PLAIN_TARGETS = {"cartpole": (15, 5), "walker": (3.5, 4), "humanoid": (12, 5)}
"""By domain: frames a second of FEW and of LANES lanes in process, as multiples of `plain`."""
ROUND_S = 0.6


class MujocoProcesses:
    """MuJoCo's renderer, in one or several processes."""

    def __init__(self, domain: str, task: str, quality: str, processes: int, states: Path | None = None) -> None:
        options = ["--domain", domain, "--task", task, "--quality", quality, "--envs", str(_MUJOCO_ENVS // processes)]
        options += [] if states is None else ["--states", str(states)]
        cores = [["--core", str(core)] if processes > 1 else [] for core in range(processes)]
        self._workers = [PeerProcess("mujoco_suite", [*options, *core], Path(sys.executable)) for core in cores]
        for worker in self._workers:
            worker.wait_until_ready()

    def play(self, seconds: float) -> float:
        """Step for some seconds and return the frames a second of all together."""
        for worker in self._workers:
            worker.start(seconds)
        return sum(worker.finish(seconds) for worker in self._workers)

    def close(self) -> None:
        """Stop the processes."""
        for worker in self._workers:
            worker.close()


@contextmanager
def contestants(domain: str, task: str) -> Iterator[dict[str, RateFunction]]:
    """Start all contestants; yield the functions that step them, and close them afterwards."""
    settings = {"domain": domain, "task": task}
    with worldloom_process() as server, ExitStack() as cleanup:
        runs: dict[str, RateFunction] = {}
        for name, where, lanes in (
            ("few", LOCAL, FEW),
            ("local", LOCAL, LANES),
            (SAME_MACHINE, (server.address, SAME_MACHINE), LANES),
        ):
            player = Player(where, "dmc", lanes, settings)
            cleanup.callback(player.env.close)
            runs[name] = player.play
        for quality, processes in (("default", 1), ("plain", 2)):
            mujoco = MujocoProcesses(domain, task, quality, processes)
            cleanup.callback(mujoco.close)
            runs[quality] = mujoco.play
        yield runs


@pytest.mark.parametrize("words", TASKS)
def bench_mujoco(report: Report, words: str) -> None:
    domain, task = words.split()
    with contestants(domain, task) as runs:
        rounds = report.in_turn(runs, ROUND_S, compared=("few", "plain"))

    def row(name: str, lanes: int, side: str, other: str, beside: str, least: float | None) -> None:
        report.ratio_row(
            f"dmc {words}, {lanes} lanes, 64² rgb, {side} against {beside}",
            rounds.ratio(name, other),
            f"{rounds.rate(name):,.0f} against {rounds.rate(other):,.0f} frames/s",
            at_least=least,
            figures={f"{words}, {key}": rounds.rate(key) for key in (name, other)},
        )

    few, many = PLAIN_TARGETS[domain]
    row("few", FEW, "local", "default", "mujoco.Renderer, default", None)
    row("few", FEW, "local", "plain", "mujoco.Renderer, plain", few)
    row("local", LANES, "local", "default", "mujoco.Renderer, default", 100)
    row("local", LANES, "local", "plain", "mujoco.Renderer, plain", many)
    row(SAME_MACHINE, LANES, SAME_MACHINE, "local", "local", 0.8)


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
