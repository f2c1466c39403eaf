"""Cost of shadows: views with one light that casts some, against the same views without kept backdrops."""

import numpy as np
import pytest

from worldloom.bench.measuring import Report
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.registry import find_family

VIEWS, STEPS = 512, 10
WORLDS: tuple[tuple[str, dict[str, str]], ...] = (("maze", {}), ("dmc", {"domain": "walker", "task": "walk"}))


@pytest.mark.parametrize(("family", "settings"), WORLDS, ids=["maze", "walker"])
def bench_shadows(report: Report, cpu: CPURenderer, family: str, settings: dict[str, str]) -> None:
    assets = AssetLibrary()
    pool = Pool(find_family(family)(settings, assets), Scene(assets))
    lanes = pool.add(pool.family.lane_seeds(1, VIEWS))
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        shape = (VIEWS, pool.family.agents)
        actions = {spec.name: rng.uniform(-1, 1, (*shape, *spec.shape)) for spec in pool.family.actions}
        pool.step(lanes, {spec.name: actions[spec.name].astype(spec.dtype) for spec in pool.family.actions})
    plain = pool.views(lanes, "eye")
    shadowed = plain._replace(shadows=np.ones(VIEWS, np.uint8))
    pool.scene.lanes.static_rows[:] = 0
    offsets, size_bytes = lay_out(plain)
    arena = allocate_arena(size_bytes)
    ratio = report.ratio(
        lambda: cpu.draw(pool.scene, shadowed, arena, offsets),
        lambda: cpu.draw(pool.scene, plain, arena, offsets),
        rounds=25,
    )
    what = " ".join([family, *settings.values()])
    report.row(
        f"{what}, cpu, {VIEWS} views of 64² with shadows against without", f"{ratio:.2f} ×", "≤ 1.6 ×", ratio <= 1.6
    )
