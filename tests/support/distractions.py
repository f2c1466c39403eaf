"""Tasks with the distractions of published benchmarks, and checks of how what they draw is distributed."""

import functools

import numpy as np
import pytest

from worldloom.kernels.tables import F64, I64
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.mujoco.dm_control.suite import TASKS
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds, mix
from worldloom.worlds.randomisation.distracted_lanes import DistractedLanes, DrawnLanes
from worldloom.worlds.randomisation.distraction_draws import DISTRACTIONS
from worldloom.worlds.randomisation.settings import BUILT_IN

ASSETS = AssetLibrary(texture_size=16)
MANY = 10_000
ROUNDING = 1e-6
"""Values are rounded to float32; those of a scene are of the order of one."""
EXACT = 1e-12
"""Rounding of float64, over some dozens of steps."""
PUBLISHED = {
    "cartpole": ("swingup", (0.0, -4.0, 1.0)),
    "finger": ("spin", (0.0, -1.0, 0.8)),
    "ball_in_cup": ("catch", (0.0, -1.0, 0.8)),
    "reacher": ("easy", (0.0, 0.0, 0.75)),
    "walker": ("walk", None),
    "cheetah": ("run", None),
}
"""Tasks with published distractions, and where their camera stands if it stands in the world."""
SCALES = {"easy": 0.1, "medium": 0.2, "hard": 0.3}
LEVELS = [pytest.param(scale, moves, id=f"{level}-{moves}") for level, scale in SCALES.items() for moves in (0, 1)]


@functools.cache
def family(domain: str, distraction: str, **chosen: str) -> Dmc:
    task = PUBLISHED.get(domain, (TASKS[domain][0], None))[0]
    return Dmc({"domain": domain, "task": task, "distraction": distraction, **chosen}, ASSETS)


def name_of(scale: float, moves: int) -> str:
    level = next(level for level, known in SCALES.items() if known == scale)
    return f"dcs-{level}" + ("-dynamic" if moves else "")


def many(of: Dmc, count: int = MANY) -> tuple[DistractedLanes, DrawnLanes]:
    """Return distracted lanes without simulations, of variation 5."""
    assert of.distraction is not None
    lanes = DistractedLanes(of, of.distraction, BUILT_IN)
    lanes.resize(count)
    every = np.arange(count)
    lanes.begin(every)
    return lanes, DrawnLanes(every, np.zeros(count, np.int64), lane_seeds(3, count), np.full(count, 5, np.int64))


def axis_seeds(drawn: DrawnLanes, axis: int) -> np.ndarray:
    return mix(mix(drawn.drawn_seed, DISTRACTIONS + axis), drawn.number.astype(np.uint64))


def check_uniform(values: F64, low: float, high: float) -> None:
    """Check that values lie within limits, and everywhere alike: Kolmogorov-Smirnov at one of a million."""
    assert values.min() >= low - EXACT
    assert values.max() <= high + EXACT
    parts = (np.sort(values) - low) / (high - low)
    assert np.abs(parts - (np.arange(len(parts)) + 0.5) / len(parts)).max() < 2.7 / np.sqrt(len(parts))


def check_normal(values: F64, deviation: float) -> None:
    """Check mean, deviation and kurtosis of a normal distribution around 0, to five of their own deviations."""
    near = 5 / np.sqrt(values.size)
    assert abs(values.mean()) < near * deviation
    assert abs(values.std() / deviation - 1) < near
    assert abs(((values / values.std()) ** 4).mean() - 3) < near * np.sqrt(24)


def act(pool: Pool, lanes: I64, steps: int, repeat: int = 1) -> None:
    rng = np.random.default_rng(1)
    for _ in range(steps):
        controls = rng.uniform(-1, 1, (len(lanes), 1, *pool.family.actions[0].shape))
        pool.step(lanes, {"control": controls}, repeat)
