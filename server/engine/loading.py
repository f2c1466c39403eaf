"""Families that take long to make, made beside the engine: others go on stepping while a model is read and compiled."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.server.engine.warm_up import try_lane
from worldloom.worlds.family import Family

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
