"""Cost of stepping the small families, and of writing the instances of a lane before it is drawn."""

import numpy as np
import pytest

from worldloom.bench.measuring import Report
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.cartpole.family import Cartpole
from worldloom.worlds.catch.family import Catch
from worldloom.worlds.family import Family
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds

LANES = 4096
STEPS = 64


class RunningLanes:
    """A pool whose lanes are all in an episode, and random actions for some steps."""

    def __init__(self, family: type[Family], lanes: int = LANES) -> None:
        assets = AssetLibrary()
        made = family({}, assets)
        self.pool = Pool(made, Scene(assets))
        self.lanes = self.pool.add(lane_seeds(1, lanes))
        rng = np.random.default_rng(1)
        self.actions: list[dict[str, np.ndarray]] = [
            {
                spec.name: np.asarray(
                    rng.integers(-1, 2, (lanes, 1)) if spec.dtype == "int32" else rng.uniform(-1, 1, (lanes, 1)),
                    spec.dtype,
                )
                for spec in made.actions
            }
            for _ in range(STEPS)
        ]

    def step(self) -> None:
        """Step every lane once with each of the actions; episodes end and begin meanwhile."""
        for actions in self.actions:
            self.pool.step(self.lanes, actions)


@pytest.mark.parametrize(("family", "target"), [(Cartpole, 2e6), (Catch, 0.0)])
def bench_lane_steps_per_second(report: Report, family: type[Family], target: float) -> None:
    running = RunningLanes(family)
    rate = LANES * STEPS / report.seconds(running.step, rounds=15)
    report.row(
        f"{family.name}, steps of {LANES} lanes without frames",
        f"{rate / 1e6:.1f} million lane-steps/s",
        f"≥ {target / 1e6:g} million" if target else "",
        rate >= target,
    )


@pytest.mark.parametrize("family", [Cartpole, Catch])
def bench_writing_instances_against_drawing(report: Report, cpu: CPURenderer, family: type[Family]) -> None:
    running = RunningLanes(family, 1024)
    running.step()
    views = running.pool.views(running.lanes, "eye")
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    ratio = report.ratio(
        lambda: cpu.draw(running.pool.scene, views, arena, offsets), lambda: running.pool.views(running.lanes, "eye")
    )
    report.row(f"{family.name}, drawing 1024 views of 64² against writing their instances", f"{ratio:.0f} ×")


@pytest.mark.parametrize("family", [Cartpole, Catch])
def bench_frames_per_second(report: Report, cpu: CPURenderer, family: type[Family]) -> None:
    running = RunningLanes(family, 1024)
    running.step()
    offsets, size_bytes = lay_out(running.pool.views(running.lanes, "eye"))
    arena = allocate_arena(size_bytes)

    def step_and_draw() -> None:
        running.pool.step(running.lanes, running.actions[0])
        cpu.draw(running.pool.scene, running.pool.views(running.lanes, "eye"), arena, offsets)

    rate = 1024 / report.seconds(step_and_draw, rounds=5)
    report.row(f"{family.name}, 1024 lanes stepped and drawn at 64², rgb", f"{rate:,.0f} lane-steps/s")
