"""Building families: warming up those that need no extra, and building slow ones on a thread beside the engine.

When a server starts, every family steps and draws once, so that no client waits for kernels to compile. Families that
need an extra are left out: what they import takes longer than all the rest, and most servers never use them. They are
built when they are first asked for, on the loader's thread: importing packages, reading and compiling models takes a
second or two, and other worlds go on meanwhile.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from worldloom.kernels.tables import ViewTable
from worldloom.protos.errors import ResourceExhausted
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.server.logs import Log
from worldloom.worlds.describe import Description, describe
from worldloom.worlds.family import Family
from worldloom.worlds.lanes import idle_action
from worldloom.worlds.pool import Pool
from worldloom.worlds.randomisation.settings import VARIATIONS, VISUAL, WALK, Randomisation
from worldloom.worlds.registry import FamilyError, find_family, known_families, needs_extra
from worldloom.worlds.uploads import end_compilers

log = Log("engine")

_WARM_UP_TEXTURE_SIZE = 8
_EVERYTHING_VARIES = Randomisation(
    tuple(0.5 if what in VISUAL else 0.0 for what in range(len(VARIATIONS))), (WALK,) * len(VARIATIONS)
)


def warm_up(renderer: Renderer) -> None:
    """Step and draw a lane of each family that needs no extra and no setting, in a scene of its own; log failures."""
    for name in known_families():
        if needs_extra(name):
            continue
        try:
            _warm_up_family(name, renderer)
        except Exception as error:
            log.warning("family cannot be used", family=name, reason=f"{type(error).__name__}: {error}")
    # Kernels of what varies are the same for all families. The textures are small, for they are made anew.
    assets = AssetLibrary(texture_size=_WARM_UP_TEXTURE_SIZE)
    family = find_family("catch")({}, assets)
    for _ in run_one_lane(family, Scene(assets), _EVERYTHING_VARIES):
        pass


def _warm_up_family(name: str, renderer: Renderer) -> None:
    kind = find_family(name)
    if kind.required_settings:
        return  # it cannot be built without, and its kernels are compiled with its first world
    assets = AssetLibrary()
    scene = Scene(assets)
    for views in run_one_lane(kind({}, assets), scene):
        offsets, size_bytes = lay_out(views)
        renderer.draw(scene, views, allocate_arena(size_bytes), offsets)


def run_one_lane(family: Family, scene: Scene, randomisation: Randomisation | None = None) -> Iterator[ViewTable]:
    """Step one lane of a family in this scene, and yield the views of each camera."""
    pool = Pool(family, scene, randomisation)
    lanes = pool.add(np.zeros(1, np.uint64))
    actions = {spec.name: np.stack([idle_action(spec, 1)] * family.agents, axis=1) for spec in family.actions}
    pool.step(lanes, actions)
    pool.step(lanes, actions)
    for camera in family.cameras:
        if camera.is_drawn:
            yield pool.views(lanes, camera.name, width=8, height=8, outputs=camera.output_bits)


Result = TypeVar("Result")

_MAX_UPLOADS, _MAX_UPLOADS_BYTES = 32, 256 << 20
"""Uploads that are compiled or wait for it: their number, and the bytes of all, if there are several."""


class Loader:
    """A thread that builds families, and one for families with uploads, which others then need not wait for.

    `post` has the engine make a call.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._executors: dict[str, ThreadPoolExecutor] = {}
        self._uploads_bytes: list[int] = []
        """Sizes of the uploads that are built or wait for it."""

    def load(
        self, build: Callable[[], Result], then: Callable[[Callable[[], Result]], None], upload_bytes: int = 0
    ) -> None:
        """Call `build` on the thread, then `then` on the engine's with a function that returns its result or raises.

        `upload_bytes`: size of the upload that it is built from, 0 for none. ResourceExhausted: too many uploads wait.
        """
        if upload_bytes:
            self._check_uploads(upload_bytes)
            self._uploads_bytes.append(upload_bytes)
        name = "worldloom-uploads" if upload_bytes else "worldloom-loading"
        if name not in self._executors:
            self._executors[name] = ThreadPoolExecutor(1, thread_name_prefix=name)

        def finish(done: "Future[Result]") -> None:
            if upload_bytes:
                self._uploads_bytes.remove(upload_bytes)
            then(done.result)

        future = self._executors[name].submit(build)
        future.add_done_callback(lambda done: None if done.cancelled() else self._post(lambda: finish(done)))

    def _check_uploads(self, more_bytes: int) -> None:
        count, size_bytes = len(self._uploads_bytes), sum(self._uploads_bytes)
        if count and (count >= _MAX_UPLOADS or size_bytes + more_bytes > _MAX_UPLOADS_BYTES):
            raise ResourceExhausted(
                f"{count} uploaded models of {size_bytes} bytes are or wait to be compiled: expected {_MAX_UPLOADS} "
                f"and {_MAX_UPLOADS_BYTES} bytes at most; try again in a while"
            )

    def close(self) -> None:
        """Cancel what has not begun, and end the processes that compile uploads."""
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)
        if self._uploads_bytes:
            end_compilers()


class FamilyDescriptions:
    """Descriptions of families with their default settings, each made when it is first requested.

    Making one builds the family, on the loader's thread. An engine without a thread of its own (`has_thread` returns
    False) serves nobody else meanwhile, and makes it at once.
    """

    def __init__(self, loader: Loader, has_thread: Callable[[], bool]) -> None:
        self._loader = loader
        self._has_thread = has_thread
        self._made: dict[str, Description] = {}

    def find(self, name: str) -> Description | None:
        """Return the description of a family, or None if it has not been made."""
        return self._made.get(name)

    def request(self, name: str, then: Callable[[], None]) -> None:
        """Make the description of a family unless it is there; call `then` when it is, at once or in a later tick."""

        def finish(made: Callable[[], Description]) -> None:
            self._made[name] = made()
            then()

        if "problem" not in self._made.get(name, {"problem": ""}):
            then()
        elif self._has_thread():
            self._loader.load(lambda: _describe(name), finish)
        else:
            finish(lambda: _describe(name))


def _describe(name: str) -> Description:
    """Describe a family. If it cannot be built, the description has only its name and the `problem`."""
    try:
        return describe(find_family(name))
    except FamilyError as error:
        return {"family": name, "problem": str(error)}
    except Exception as error:  # a family's own code may raise anything
        return {"family": name, "problem": f"{type(error).__name__}: {error}"}


_compiled: set[type[Family]] = set()
"""Families whose kernels are compiled."""
_compile_lock = threading.Lock()


def make_family(kind: type[Family], own: dict[str, object], assets: AssetLibrary) -> Family:
    """Build a family. The first of its kind steps one lane in a scene of its own, so that its kernels are compiled."""
    with assets.loading():
        family = kind(own, assets)
        with _compile_lock:
            if type(family) not in _compiled:  # building a family may choose a subclass
                list(run_one_lane(family, Scene(assets)))
                _compiled.add(type(family))
    return family
