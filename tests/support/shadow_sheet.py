"""Lanes of several families, without shadows and with them: `python -m tests.support.shadow_sheet docs/shadows.png`."""

import argparse

import numpy as np
from PIL import Image

from worldloom.kernels.tables import U8
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.choose import make_renderer
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.registry import find_family

SIZE, STEPS = 160, 40
WORLDS: tuple[tuple[str, dict[str, str], str, int], ...] = (
    ("maze", {}, "eye", 3),
    ("maze", {}, "map", 2),
    ("cartpole", {}, "eye", 1),
    ("catch", {}, "eye", 3),
    ("dmc", {"domain": "humanoid", "task": "walk"}, "eye", 1),
    ("dmc", {"domain": "quadruped", "task": "walk"}, "eye", 1),
)
"""Families, their settings, cameras and seeds."""


def column(family: str, settings: dict[str, str], camera: str, seed: int, renderer: Renderer) -> U8:
    """Draw a lane without shadows and, below, with them."""
    assets = AssetLibrary()
    pool = Pool(find_family(family)(settings, assets), Scene(assets))
    lanes = pool.add(pool.family.lane_seeds(seed, 1))
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        shape = (1, pool.family.agents)
        pool.step(
            lanes,
            {
                spec.name: rng.integers(0, 2, (*shape, *spec.shape)).astype(spec.dtype)
                if np.issubdtype(spec.dtype, np.integer)
                else rng.uniform(-1, 1, (*shape, *spec.shape)).astype(spec.dtype)
                for spec in pool.family.actions
            },
        )
    frames = []
    for shadows in (False, True):
        views = pool.views(lanes, camera, width=SIZE, height=SIZE, samples=4, shadows=shadows)
        offsets, size_bytes = lay_out(views)
        arena = allocate_arena(size_bytes)
        renderer.draw(pool.scene, views, arena, offsets)
        frames.append(get_frame(arena, views, offsets, 0, "rgb").copy())
    return np.concatenate(frames)


def main() -> None:
    """Draw the sheet and write it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", help="the PNG file to write")
    file = arguments.parse_args().file
    renderer = make_renderer("cpu")
    Image.fromarray(np.concatenate([column(*world, renderer) for world in WORLDS], axis=1)).save(file)
    renderer.close()


if __name__ == "__main__":
    main()
