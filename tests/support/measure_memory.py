"""Memory of lanes of a family, estimated and measured: `python -m tests.support.measure_memory FAMILY LANES JSON`.

Run as a process of its own, so that nothing else allocates or frees memory. Prints both numbers in bytes.
"""

import ctypes
import gc
import json
import re
import sys
from pathlib import Path

import numpy as np

from tests.support.determinism import random_actions
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.models.files import allow_model_dirs
from worldloom.worlds.pool import Pool
from worldloom.worlds.registry import find_family

STEPS = 12
MODELS = Path(__file__).parents[2] / "examples/models"


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def run(pool: Pool, lanes: int, renderer: CPURenderer) -> None:
    """Add lanes, step and draw them, some at a time: frames do not count here."""
    family = pool.family
    added = pool.add(family.lane_seeds(lanes, lanes))
    actions = random_actions(family, 1, lanes, seed=0)
    for _ in range(STEPS):
        pool.step(added, {name: values[0] for name, values in actions.items()})
    del actions
    for some in np.array_split(added, -(-lanes // 64)):
        views = pool.views(some, "eye", width=8, height=8)
        offsets, size_bytes = lay_out(views)
        renderer.draw(pool.scene, views, allocate_arena(size_bytes), offsets)


def main(name: str, lanes: str, settings: str) -> None:
    allow_model_dirs([MODELS])
    assets, renderer = AssetLibrary(), CPURenderer()
    pool = Pool(find_family(name)(json.loads(settings), assets), Scene(assets))
    run(pool, 1, renderer)
    before = resident_bytes()
    run(pool, int(lanes), renderer)
    estimated = pool.family.memory_bytes(int(lanes)) - pool.family.memory_bytes(0)
    print(json.dumps([estimated, resident_bytes() - before]))


if __name__ == "__main__":
    main(*sys.argv[1:])
