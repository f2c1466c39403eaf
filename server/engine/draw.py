"""Third stage of a tick: one pass over all views of all worlds, painted into the replies."""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import NO_MESH, NO_TEXTURE, OUTPUTS
from worldloom.render.check import wrong_rows
from worldloom.render.memory import MEMORY
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.server.engine.counters import Counters
from worldloom.server.engine.plan import Group, join_views, refuse
from worldloom.server.logs import Log

log = Log("engine")


class Easel:
    """A renderer, and what it draws."""

    def __init__(self, renderer: Renderer, scene: Scene, counters: Counters) -> None:
        self.renderer = renderer
        self.scene = scene
        self.counters = counters

    def draw(self, groups: list[Group]) -> list[Group]:
        """Paint what was asked for. Groups that cannot be drawn are refused; the others come back."""
        try:
            self._paint(groups)
        except Exception:
            log.error("drawing failed", groups=len(groups))
            wrong = self._hide_wrong_rows()
            return [group for group in groups if self._can_be_drawn(group, wrong)]
        return groups

    def _hide_wrong_rows(self) -> NDArray[np.bool_]:
        """Take rows out of the scene that nothing can be drawn with, whoever asks; which they are."""
        instances = self.scene.instances
        wrong = wrong_rows(self.scene)
        instances.mesh[wrong], instances.texture[wrong] = NO_MESH, NO_TEXTURE
        return wrong

    def _can_be_drawn(self, group: Group, wrong: NDArray[np.bool_]) -> bool:
        try:
            if group.views and wrong[self.scene.rows(group.pool.scene_lane[group.lanes])].any():
                raise ValueError("some of what is in its worlds has a mesh or a texture that is not there")
            self._paint([group])
        except Exception as error:
            refuse(group.steps, f"pictures of family {group.pool.family.name!r} cannot be drawn: {error}")
            return False
        return True

    def _paint(self, groups: list[Group]) -> None:
        joined = join_views(groups)
        if joined is None:
            return
        views, offsets = joined
        self.renderer.draw(self.scene, views, MEMORY, offsets)
        self.counters.draws += 1
        for bit, output in enumerate(OUTPUTS):
            self.counters.frames[output] += int(np.count_nonzero(views.outputs & (1 << bit)))
