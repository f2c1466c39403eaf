"""Cost of mazes: steps, new episodes, and writing their instances."""

import time
from statistics import median
from typing import Any

import numpy as np
import pytest

from worldloom.bench.measuring import Report
from worldloom.kernels.tables import I64
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.maze.family import Maze
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds, mix

LANES = 4096
STEPS = 20
VIEWS = 512


class RunningLanes:
    """A pool of mazes in their first episodes, and random actions for some steps."""

    def __init__(self, lanes: int = LANES, **settings: object) -> None:
        assets = AssetLibrary()
        self.pool = Pool(Maze(settings, assets), Scene(assets))
        self.lanes: I64 = self.pool.add(lane_seeds(1, lanes))
        rng = np.random.default_rng(0)
        self.actions = [
            {
                spec.name: rng.uniform(-1, 1, (lanes, self.pool.family.agents, *spec.shape)).astype(np.float32)
                for spec in self.pool.family.actions
            }
            for _ in range(STEPS)
        ]
        self.episodes = 0
        self.step()

    def step(self) -> None:
        """Take some steps with all lanes; episodes end and begin meanwhile."""
        for actions in self.actions:
            self.pool.step(self.lanes, actions)

    def begin(self) -> None:
        """Begin an episode with a new maze in every lane."""
        self.episodes += 1
        self.pool.family.reset(self.pool.state, self.lanes, mix(self.pool.state.lane_seed[self.lanes], self.episodes))

    def write_instances(self) -> None:
        """Write the instances of all lanes."""
        self.pool.family.write_instances(self.pool.state, self.lanes, self.pool.scene, self.pool.scene_lane[self.lanes])


@pytest.mark.parametrize("settings", [{}, {"agents": 8, "goals": 8}, {"size": 31}, {"speed": 10.0}])
def bench_steps(report: Report, settings: dict[str, Any]) -> None:
    # A short time limit, so that episodes end and begin while they are measured.
    running = RunningLanes(max_steps=100, **settings)
    rate = LANES * STEPS / report.seconds(running.step)
    said = "".join(f", {name} {value}" for name, value in settings.items())
    target = "" if settings else "≥ 500,000 lane-steps/s"
    report.row(
        f"maze, {LANES} lanes without frames{said}",
        f"{rate:,.0f} lane-steps/s",
        target,
        rate >= 500_000 or bool(settings),
    )


@pytest.mark.parametrize(("size", "target"), [(9, "< 50 µs"), (31, "")], ids=["small", "large"])
def bench_new_episodes(report: Report, size: int, target: str) -> None:
    running = RunningLanes(1024, size=size)
    each_us = 1e6 * report.seconds(running.begin) / 1024
    report.row(f"maze, a new maze of size {size}", f"{each_us:.1f} µs", target, each_us < 50 or not target)


def bench_writing_instances(report: Report) -> None:
    running = RunningLanes(1024)

    def anew() -> None:
        running.begin()
        running.write_instances()

    ratio = report.ratio(anew, running.write_instances)
    report.row("maze, making a new maze and writing its instances, against one that exists", f"{ratio:.1f} ×")


def bench_painting_in_one_thread(report: Report) -> None:
    """CPU time, so that what else the machine does counts less; views are those of agents that walk at random."""
    running = RunningLanes(VIEWS)
    views = running.pool.views(running.lanes, "eye")
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    taken_us: list[float] = []
    with CPURenderer(threads=1) as one:

        def draw() -> None:
            began_s = time.thread_time()
            one.draw(running.pool.scene, views, arena, offsets)
            taken_us.append(1e6 * (time.thread_time() - began_s) / VIEWS)

        report.seconds(draw, rounds=25)
    view_us = median(taken_us[1:])
    report.row("maze, painting a 64² rgb view in one thread", f"{view_us:.1f} µs", "≤ 22 µs", view_us <= 22)


@pytest.mark.parametrize("camera", ["eye", "map"])
def bench_frames(report: Report, cpu: CPURenderer, camera: str) -> None:
    running = RunningLanes(VIEWS)

    def draw() -> None:
        views = running.pool.views(running.lanes, camera)
        offsets, size_bytes = lay_out(views)
        cpu.draw(running.pool.scene, views, allocate_arena(size_bytes), offsets)

    report.row(
        f"maze, cpu, {VIEWS} frames of 64² by {camera}", f"{VIEWS / report.seconds(draw, rounds=5):,.0f} views/s"
    )
