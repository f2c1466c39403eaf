"""Fixed costs of a batch of one: all that a single client waits for beside simulating and drawing."""

from typing import Any

import numpy as np
import pytest

from worldloom.bench.measuring import Report
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.check import check_draw
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.cartpole.family import Cartpole
from worldloom.worlds.catch.family import Catch
from worldloom.worlds.family import Family
from worldloom.worlds.maze.family import Maze
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds

TIMES = 200
"""Calls in a round: a single one is too short to be timed."""
FAMILIES = [Catch, Cartpole, Maze]


class RunningLanes:
    """Lanes of a family in an episode, with constant actions."""

    def __init__(self, family: type[Family], lanes: int = 1, **settings: object) -> None:
        assets = AssetLibrary()
        self.pool = Pool(family(settings, assets), Scene(assets))
        self.lanes = self.pool.add(lane_seeds(1, lanes))
        self.actions: dict[str, np.ndarray] = {
            spec.name: np.zeros((lanes, self.pool.family.agents, *spec.shape), spec.dtype)
            for spec in self.pool.family.actions
        }
        self.step()
        self.views = self.pool.views(self.lanes, "eye")
        self.offsets, size_bytes = lay_out(self.views)
        self.arena = allocate_arena(size_bytes)

    def step(self) -> None:
        """Step all lanes by the pool."""
        self.pool.step(self.lanes, self.actions)

    def step_family(self) -> None:
        """Step all lanes by the family alone."""
        self.pool.family.step(self.pool.state, self.lanes, self.actions)

    def show(self, cpu: CPURenderer) -> None:
        """Draw a frame of each lane, from the state to the arena."""
        views = self.pool.views(self.lanes, "eye")
        offsets, _ = lay_out(views)
        cpu.draw(self.pool.scene, views, self.arena, offsets)

    def make_drawer(self, cpu: CPURenderer) -> Any:
        """Return a function that only checks and draws: everything before is done already."""
        cpu.draw(self.pool.scene, self.views, self.arena, self.offsets)
        return lambda: cpu.draw(self.pool.scene, self.views, self.arena, self.offsets)


def repeat(call: Any) -> Any:
    """Return a function that makes the call many times."""

    def calls() -> None:
        for _ in range(TIMES):
            call()

    return calls


@pytest.mark.parametrize("family", FAMILIES)
def bench_a_step_of_one_lane(report: Report, family: type[Family]) -> None:
    running = RunningLanes(family, max_steps=1_000_000)
    taken_us = 1e6 * report.seconds(repeat(running.step), rounds=25) / TIMES
    report.row(f"{family.name}, a step of one lane without frames", f"{taken_us:.0f} µs")


@pytest.mark.parametrize("family", FAMILIES)
def bench_a_step_of_one_lane_against_the_simulation(report: Report, family: type[Family]) -> None:
    running = RunningLanes(family, max_steps=1_000_000)
    ratio = report.ratio(repeat(running.step), repeat(running.step_family), rounds=25)
    report.row(
        f"{family.name}, a step of one lane by the pool, against the family's part of it",
        f"{ratio:.1f} ×",
        "≤ 5 ×",
        ratio <= 5,
    )


@pytest.mark.parametrize("family", FAMILIES)
def bench_a_frame_of_one_lane_against_drawing_it(report: Report, family: type[Family]) -> None:
    running = RunningLanes(family)
    with CPURenderer(threads=1) as cpu, CPURenderer(threads=1) as other:
        draw = running.make_drawer(other)
        ratio = report.ratio(repeat(lambda: running.show(cpu)), repeat(draw), rounds=25)
    report.row(
        f"{family.name}, one 64² frame from the state to the arena, against drawing it",
        f"{ratio:.2f} ×",
        "≤ 2 ×",
        ratio <= 2,
    )


@pytest.mark.parametrize("family", FAMILIES)
def bench_the_course_of_episodes_against_the_simulation(report: Report, family: type[Family]) -> None:
    running = RunningLanes(family, 4096, max_steps=1_000_000)
    ratio = report.ratio(running.step, running.step_family, rounds=41)
    report.row(f"{family.name}, a step of 4096 lanes by the pool, against the family's part of it", f"{ratio:.2f} ×")


def bench_a_frame_of_one_lane_among_many(report: Report) -> None:
    alone, among = RunningLanes(Maze), RunningLanes(Maze, 65_536)
    among.lanes = among.lanes[:1]
    with CPURenderer(threads=1) as cpu:
        ratio = report.ratio(repeat(lambda: among.show(cpu)), repeat(lambda: alone.show(cpu)), rounds=25)
    report.row(
        "maze, a frame of one lane with 65,536 there against one there", f"{ratio:.2f} ×", "≤ 1.5 ×", ratio < 1.5
    )


def bench_checking_a_draw(report: Report) -> None:
    running = RunningLanes(Maze, 4096)
    taken_us = 1e6 * report.seconds(
        lambda: check_draw(running.pool.scene, running.views, running.arena, running.offsets), 25
    )
    report.row("maze, checking a draw of 4096 views", f"{taken_us:,.0f} µs")
