"""States in, frames out: MujocoRenderer beside loops over MuJoCo's own renderer, and beside worldloom's renderer alone.

All draw the same 10,000 states of tasks of the dm_control suite, 64×64 rgb. The renderer alone draws states that were
posed before: what is left is the cost of poses, of the steps of an engine, and of a server.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dm_control import suite

from worldloom.bench.bench_mujoco import ROUND_S, MujocoProcesses
from worldloom.bench.load import worldloom_process
from worldloom.bench.measuring import RateFunction, Report
from worldloom.client.state_renderer import MujocoRenderer
from worldloom.kernels.tables import ViewTable
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.family import Mujoco
from worldloom.worlds.mujoco.models.files import offer_model
from worldloom.worlds.pool import Pool

STATES, BATCH = 10_000, 1_000
TARGETS = {"walker": 6.0, "humanoid": 10.0}
"""Frames a second in process, as multiples of the plain renderer of MuJoCo in two processes."""


def random_states(environment: Any, count: int) -> np.ndarray:
    """Return joint positions of a task's first states and of simulations from there with random actions."""
    rng = np.random.default_rng(0)
    spec = environment.action_spec()
    found: list[np.ndarray] = []
    while len(found) < count:
        environment.reset()
        for _ in range(20):
            found.append(environment.physics.data.qpos.copy())
            environment.step(rng.uniform(spec.minimum, spec.maximum))
    return np.array(found[:count])


def play_renderer(draw: MujocoRenderer, states: np.ndarray) -> RateFunction:
    """Return the function that draws all states over and over."""

    def play(seconds: float) -> float:
        began_s = time.perf_counter()
        drawn = 0
        while (elapsed_s := time.perf_counter() - began_s) < seconds:
            drawn += len(next(iter(draw(states).values())))
        return drawn / elapsed_s

    return play


def play_alone(model: Any, states: np.ndarray, renderer: CPURenderer) -> RateFunction:
    """Return the function that draws states which were posed before, in batches, into the same memory."""
    assets = AssetLibrary()
    scene = Scene(assets)
    family = Mujoco({"model": offer_model(model), "drive": "state"}, assets)
    pool = Pool(family, scene)
    lanes = pool.add(np.zeros(len(states), np.uint64))
    actions = {"qpos": states[:, None]}
    pool.step(lanes, actions)
    pool.step(lanes, actions)
    batches: list[ViewTable] = [
        pool.views(lanes[first : first + BATCH], "eye", outputs=1) for first in range(0, len(lanes), BATCH)
    ]
    offsets, size_bytes = lay_out(batches[0])
    arena = allocate_arena(size_bytes)

    def play(seconds: float) -> float:
        began_s = time.perf_counter()
        drawn = 0
        while (elapsed_s := time.perf_counter() - began_s) < seconds:
            for views in batches:
                renderer.draw(scene, views, arena, offsets)
                drawn += BATCH
        return drawn / elapsed_s

    return play


@contextmanager
def contestants(domain: str, task: str, folder: Path) -> Iterator[dict[str, RateFunction]]:
    """Start all contestants; yield the functions that draw, and close them afterwards."""
    environment = suite.load(domain, task, task_kwargs={"random": 0})
    states = random_states(environment, STATES)
    path = folder / "states.npy"
    np.save(path, states)
    with worldloom_process("--allow-uploads") as server, ExitStack() as cleanup:
        runs: dict[str, RateFunction] = {}
        for name, address in (("local", "local"), ("server", server.address)):
            draw = cleanup.enter_context(MujocoRenderer(address, model=(domain, task), cameras=["eye"]))
            runs[name] = play_renderer(draw, states)
        renderer = cleanup.enter_context(CPURenderer())
        runs["alone"] = play_alone(environment.physics.model.ptr, states, renderer)
        for quality, processes in (("default", 1), ("plain", 2)):
            mujoco = MujocoProcesses(domain, task, quality, processes, path)
            cleanup.callback(mujoco.close)
            runs[quality] = mujoco.play
        yield runs


@pytest.mark.parametrize("words", ["walker walk", "humanoid walk"])
def bench_states(report: Report, words: str, tmp_path: Path) -> None:
    domain, task = words.split()
    with contestants(domain, task, tmp_path) as runs:
        rounds = report.in_turn(runs, ROUND_S, compared=("local", "plain"))
    for name, other, beside, least in (
        ("local", "default", "mujoco.Renderer, default", 100.0),
        ("local", "plain", "mujoco.Renderer, plain, two processes", TARGETS[domain]),
        ("local", "alone", "worldloom's renderer alone", 0.85),
        ("server", "local", "local", 0.85),
    ):
        side = "MujocoRenderer" if name == "local" else "at a server on this machine"
        report.ratio_row(
            f"{STATES:,} states of {words}, 64² rgb, {side} against {beside}",
            rounds.ratio(name, other),
            f"{rounds.rate(name):,.0f} against {rounds.rate(other):,.0f} frames/s",
            at_least=least,
            figures={f"states of {words}, {key}": rounds.rate(key) for key in (name, other)},
        )
