"""Before the first client comes: every family steps and is seen once, so that nobody waits for kernels to compile.

Families that need an extra are left out: what they import takes longer than all the rest, and most servers never use
them.
"""

from collections.abc import Iterator

import numpy as np

from worldloom.kernels.tables import OUTPUTS, ViewTable
from worldloom.render.arena import lay_out, make_arena
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import output_bits
from worldloom.server.logs import Log
from worldloom.worlds.family import Family
from worldloom.worlds.pool import Pool
from worldloom.worlds.registry import find_family, known_families, needs_extra

log = Log("engine")


def warm_up(renderer: Renderer) -> None:
    """Step and draw a world of each family, apart from all others. One that fails is told of and left alone."""
    for name in known_families():
        if needs_extra(name):
            continue
        try:
            _try_family(name, renderer)
        except Exception as error:
            log.warning("family cannot be used", family=name, reason=f"{type(error).__name__}: {error}")


def _try_family(name: str, renderer: Renderer) -> None:
    assets = AssetLibrary()
    scene = Scene(assets)
    for views in try_lane(find_family(name)({}, assets), scene):
        offsets, size_bytes = lay_out(views)
        renderer.draw(scene, views, make_arena(size_bytes), offsets)


def try_lane(family: Family, scene: Scene) -> Iterator[ViewTable]:
    """Step a lane of a family, in a scene of its own, and look through each camera."""
    pool = Pool(family, scene)
    lanes = pool.add(np.zeros(1, np.uint64))
    actions = {spec.name: np.zeros((1, family.agents, *spec.shape), spec.dtype) for spec in family.actions}
    pool.step(lanes, actions)
    pool.step(lanes, actions)
    for camera in family.cameras:
        yield pool.views(lanes, camera.name, width=8, height=8, outputs=output_bits(OUTPUTS))
