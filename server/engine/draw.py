"""Third stage of a tick: one pass over all views of all worlds, painted into the replies."""

import numpy as np

from worldloom.kernels.tables import OUTPUTS
from worldloom.render.memory import MEMORY
from worldloom.render.renderer import Mark, Renderer
from worldloom.render.scene import Scene
from worldloom.server.engine.counters import Counters
from worldloom.server.engine.plan import Group, join_views, refuse
from worldloom.server.logs import Log

log = Log("engine")


class Easel:
    """A renderer, and what it draws."""

    def __init__(self, renderer: Renderer, scene: Scene, counters: Counters, mark: Mark) -> None:
        self.renderer = renderer
        self.scene = scene
        self.counters = counters
        self._mark = mark

    def draw(self, groups: list[Group]) -> list[Group]:
        """Paint what was asked for. Groups that cannot be drawn are refused; the others come back."""
        try:
            self._paint(groups)
        except Exception:
            log.error("drawing failed", groups=len(groups))
            return [group for group in groups if self._can_be_drawn(group)]
        return groups

    def _can_be_drawn(self, group: Group) -> bool:
        try:
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
        self.renderer.draw(self.scene, views, MEMORY, offsets, self._mark)
        self.counters.draws += 1
        self.counters.views += len(views.lane)
        for bit, output in enumerate(OUTPUTS):
            self.counters.frames[output] += int(np.count_nonzero(views.outputs & (1 << bit)))
