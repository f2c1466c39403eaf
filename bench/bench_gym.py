"""Gymnasium's MuJoCo tasks from pixels: worldloom beside Gymnasium's AsyncVectorEnv and EnvPool.

The others draw with MuJoCo's own renderer: at its defaults with shadows, reflections and multisampling, `plain` without
them, as worldloom draws. All compute the tasks' rewards.
"""

import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from worldloom.bench.measuring import RateFunction, Report
from worldloom.bench.peers.__main__ import PYTHON
from worldloom.bench.peers.process import PeerError, PeerProcess
from worldloom.bench.players import LOCAL, Player
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.gym.batched import BatchedGym
from worldloom.worlds.gym.simulated import MujocoGym
from worldloom.worlds.pool import Pool

TASKS = ["HalfCheetah-v5", "Ant-v5"]
LANES = 64
ASYNC_ENVS, ENVPOOL_ENVS = 2, 8
"""Environments of the others: a process for each core, and a few for each thread. More would not make them faster."""
ROUND_S, ROUNDS = 1.0, 5
_RESTARTS = 3
LEAST_DEFAULT, LEAST_PLAIN = 50, 3
"""Frames a second, as multiples of the others'."""


class Other:
    """One of the others, in a process of its own, which is started again if it crashes.

    EnvPool does in Mesa's software renderer now and then, as soon as it draws with several threads.
    """

    def __init__(self, library: str, quality: str, task: str, envs: int, python: Path) -> None:
        self._words = ["--task", task, "--library", library, "--quality", quality, "--envs", str(envs)]
        self._python = python
        self._start()

    def play(self, seconds: float) -> float:
        """Let it step for some time, and return its frames a second."""
        for _ in range(_RESTARTS):
            try:
                return self._process.measure_rate(seconds)
            except PeerError:
                self._process.close()
                self._start()
        return self._process.measure_rate(seconds)

    def close(self) -> None:
        """End its process."""
        self._process.close()

    def _start(self) -> None:
        self._process = PeerProcess("gymnasium_mujoco", self._words, self._python)
        self._process.wait_until_ready()


@pytest.mark.parametrize("task", TASKS)
def bench_gym(report: Report, task: str) -> None:
    what = f"gym {task}, {LANES} lanes, 64² rgb, local, against"
    others = {
        f"{ASYNC_ENVS} of AsyncVectorEnv, {quality}": ("gymnasium", quality, ASYNC_ENVS, Path(sys.executable))
        for quality in ("default", "plain")
    }
    if PYTHON.exists():
        others[f"{ENVPOOL_ENVS} of EnvPool, default"] = ("envpool", "default", ENVPOOL_ENVS, PYTHON)
    else:
        report.row(f"{what} EnvPool", "not measured: `make peers` sets the other environments up")
    with ExitStack() as cleanup:
        player = Player(LOCAL, "gym", LANES, {"id": task}, ["eye.rgb"])
        cleanup.callback(player.env.close)
        runs: dict[str, RateFunction] = {"worldloom": player.play}
        for name, (library, quality, envs, python) in others.items():
            other = Other(library, quality, task, envs, python)
            cleanup.callback(other.close)
            runs[name] = other.play
        rounds = report.in_turn(runs, ROUND_S, ROUNDS)
    for name in others:
        report.ratio_row(
            f"{what} {name}",
            rounds.ratio("worldloom", name),
            f"{rounds.rate('worldloom'):,.0f} against {rounds.rate(name):,.0f} frames/s",
            at_least=LEAST_PLAIN if "plain" in name else LEAST_DEFAULT,
            figures={f"{task}, {key}": rounds.rate(key) for key in ("worldloom", name)},
        )


@pytest.mark.parametrize("task", TASKS)
def bench_batches(report: Report, task: str) -> None:
    """Compare steps of lanes with an environment each, one after the other, with steps of a batch, without frames."""
    assets = AssetLibrary()
    pools = {}
    for name, family in (("each", MujocoGym({"id": task}, assets)), ("batch", BatchedGym({"id": task}, assets))):
        pools[name] = Pool(family, Scene(assets))
        pools[name].begin(pools[name].add(family.lane_seeds(0, LANES)))
    (spec,) = pools["batch"].family.actions
    actions = np.random.default_rng(0).uniform(-1, 1, (LANES, 1, *spec.shape)).astype(np.float32)

    def step(name: str) -> None:
        pools[name].step(np.arange(LANES), {"action": actions})

    ratio = report.ratio(lambda: step("each"), lambda: step("batch"))
    report.ratio_row(f"gym {task}, steps of {LANES} lanes, environments one by one against a batch", ratio, at_least=2)
