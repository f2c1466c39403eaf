"""Before the first client comes: every family steps and is seen once, so that nobody waits for kernels to compile.

Families that need an extra are left out: what they import takes longer than all the rest, and most servers never use
them.

Families that take long to make, made beside the engine: others go on stepping while a model is read and compiled.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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


Result = TypeVar("Result")


class Loader:
    """One thread that makes things; `post` has the engine make a call."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._crew: ThreadPoolExecutor | None = None

    def load(self, make: Callable[[], Result], then: Callable[[Callable[[], Result]], None]) -> None:
        """Make something there, then call `then` on the engine's thread with what gives the result or raises."""
        if self._crew is None:
            self._crew = ThreadPoolExecutor(1, thread_name_prefix="worldloom-loading")
        future = self._crew.submit(make)
        future.add_done_callback(lambda done: None if done.cancelled() else self._post(lambda: then(done.result)))

    def close(self) -> None:
        """What has not begun is not made any more."""
        if self._crew is not None:
            self._crew.shutdown(wait=False, cancel_futures=True)


_tried: set[type[Family]] = set()
_one_at_a_time = threading.Lock()


def make_family(kind: type[Family], own: dict[str, object], assets: AssetLibrary) -> Family:
    """A family; the first of its kind steps and is dressed once, apart from all others, so that its kernels compile."""
    family = kind(own, assets)
    with _one_at_a_time:
        if kind not in _tried:
            list(try_lane(family, Scene(assets)))
            _tried.add(kind)
    return family
