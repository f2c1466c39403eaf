"""Cost of what varies: writing and drawing lanes that vary, against the same lanes without.

Both are drawn without backdrops and through the cameras of those that vary: one that sees more takes longer to draw.
"""

import numpy as np
import pytest

from worldloom.bench.measuring import Report
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.randomisation.settings import (
    BACKGROUND,
    CAMERA,
    COLORS,
    EPISODE,
    LIGHTS,
    SIZES,
    SKY,
    TEXTURES,
    VARIATIONS,
    VISUAL,
    WALK,
    Randomisation,
)
from worldloom.worlds.registry import find_family

LANES = 256
AMOUNT = 0.2
ROUNDS = 21
CASES = {
    "nothing": ((), EPISODE, 1.02),
    "colours": ((COLORS, SKY), EPISODE, 1.1),
    "lights": ((LIGHTS,), EPISODE, 1.1),
    "the camera": ((CAMERA,), EPISODE, 1.1),
    "sizes": ((SIZES,), EPISODE, 1.1),
    "textures": ((TEXTURES,), EPISODE, 1.3),
    "the background": ((BACKGROUND,), EPISODE, 1.3),
    "all of it, by walks": (VISUAL, WALK, 1.5),
}
"""Variations, times and targets."""


class DrawnLanes:
    """Lanes of a family that are written and drawn again and again."""

    def __init__(self, name: str, cpu: CPURenderer, what: tuple[int, ...] = (), when: int = EPISODE) -> None:
        assets = AssetLibrary()
        family = find_family(name)({}, assets)
        family.static_rows = 0  # no backdrops: lanes that vary cannot share one
        amounts = tuple(AMOUNT if one in what else 0.0 for one in range(len(VARIATIONS)))
        randomisation = Randomisation(amounts, (when,) * len(VARIATIONS)) if what else None
        self.pool = Pool(family, Scene(assets), randomisation)
        self.lanes = self.pool.add(lane_seeds(1, LANES))
        actions = {spec.name: np.zeros((LANES, 1, *spec.shape), spec.dtype) for spec in family.actions}
        for _ in range(5):
            self.pool.step(self.lanes, actions)
        self._cpu, self._cameras = cpu, self.pool.views(self.lanes, "eye")
        self._offsets, size_bytes = lay_out(self.pool.views(self.lanes, "eye"))
        self._arena = allocate_arena(size_bytes)

    def look_through(self, other: "DrawnLanes") -> None:
        """Draw with the cameras of other lanes."""
        self._cameras = other._cameras

    def draw(self) -> None:
        """Write the scene and draw a frame of 64² of each lane."""
        views = self.pool.views(self.lanes, "eye")
        views.camera[...], views.near[...] = self._cameras.camera, self._cameras.near
        self._cpu.draw(self.pool.scene, views, self._arena, self._offsets)


@pytest.mark.parametrize("family", ["cartpole", "maze"])
@pytest.mark.parametrize("case", CASES)
def bench_cost_of_randomisation(report: Report, cpu: CPURenderer, case: str, family: str) -> None:
    what, when, target = CASES[case]
    plain, varied = DrawnLanes(family, cpu), DrawnLanes(family, cpu, what, when)
    plain.look_through(varied)
    ratio = report.ratio(varied.draw, plain.draw, ROUNDS)
    report.row(
        f"{family}, {LANES} views of 64² where {case} var{'y' if case.endswith('s') else 'ies'}, against none",
        f"{ratio:.2f} × the time",
        f"≤ {target:g} ×",
        ratio <= target,
    )
