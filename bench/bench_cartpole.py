"""What stepping the small families costs, and what it adds to a picture to dress a lane for it."""

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


class Crowd:
    """A pool with all its lanes under way, and random actions for some steps."""

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
        """Every lane, once for each of the actions; episodes end and begin among them."""
        for actions in self.actions:
            self.pool.step(self.lanes, actions)


@pytest.mark.parametrize(("family", "target"), [(Cartpole, 2e6), (Catch, 0.0)])
def bench_lane_steps_per_second(report: Report, family: type[Family], target: float) -> None:
    crowd = Crowd(family)
    rate = LANES * STEPS / report.seconds(crowd.step, rounds=15)
    report.row(
        f"{family.name}, steps of {LANES} lanes without pictures",
        f"{rate / 1e6:.1f} million lane-steps/s",
        f"≥ {target / 1e6:g} million" if target else "",
        rate >= target,
    )


@pytest.mark.parametrize("family", [Cartpole, Catch])
def bench_dressing_against_drawing(report: Report, cpu: CPURenderer, family: type[Family]) -> None:
    crowd = Crowd(family, 1024)
    crowd.step()
    views = crowd.pool.views(crowd.lanes, "eye")
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    ratio = report.ratio(
        lambda: cpu.draw(crowd.pool.scene, views, arena, offsets), lambda: crowd.pool.views(crowd.lanes, "eye")
    )
    report.row(f"{family.name}, drawing 1024 views of 64² against dressing their lanes", f"{ratio:.0f} ×")


@pytest.mark.parametrize("family", [Cartpole, Catch])
def bench_pictures_per_second(report: Report, cpu: CPURenderer, family: type[Family]) -> None:
    crowd = Crowd(family, 1024)
    crowd.step()
    offsets, size_bytes = lay_out(crowd.pool.views(crowd.lanes, "eye"))
    arena = allocate_arena(size_bytes)

    def step_and_draw() -> None:
        crowd.pool.step(crowd.lanes, crowd.actions[0])
        cpu.draw(crowd.pool.scene, crowd.pool.views(crowd.lanes, "eye"), arena, offsets)

    rate = 1024 / report.seconds(step_and_draw, rounds=5)
    report.row(f"{family.name}, 1024 lanes stepped and drawn at 64², rgb", f"{rate:,.0f} lane-steps/s")
