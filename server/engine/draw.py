"""Third stage of a tick: one pass over all views of all worlds."""

import numpy as np

from worldloom.kernels.tables import OUTPUTS, U8
from worldloom.render.arena import make_arena
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.server.engine.counters import Counters
from worldloom.server.engine.plan import Plan, lay_out_groups, refuse
from worldloom.server.serving.logs import Log

log = Log("engine")


class Easel:
    """A renderer and the arena it paints into, which grows to what the largest tick needs."""

    def __init__(self, renderer: Renderer, scene: Scene, counters: Counters) -> None:
        self.renderer = renderer
        self.scene = scene
        self.counters = counters
        self.arena: U8 = make_arena(1 << 20)

    def draw(self, plan: Plan) -> Plan:
        """Paint what was asked for. A group that cannot be drawn is refused; the plan without it comes back."""
        if plan.views is None:
            return plan
        try:
            self._paint(plan)
        except Exception:
            log.error("drawing failed", views=len(plan.views.lane), groups=len(plan.groups))
            plan = lay_out_groups([group for group in plan.groups if self._can_be_drawn(lay_out_groups([group]))])
            self._paint(plan)
        return plan

    def _can_be_drawn(self, alone: Plan) -> bool:
        try:
            self._paint(alone)
        except Exception as error:
            name = alone.groups[0].pool.family.name
            refuse(alone.groups[0].steps, f"pictures of family {name!r} cannot be drawn: {error}")
            return False
        return True

    def _paint(self, plan: Plan) -> None:
        if plan.views is None:
            return
        if plan.size_bytes > len(self.arena):
            self.arena = make_arena(max(plan.size_bytes, 2 * len(self.arena)))
        self.renderer.draw(self.scene, plan.views, self.arena, plan.offsets)
        self.counters.draws += 1
        for bit, output in enumerate(OUTPUTS):
            self.counters.frames[output] += int(np.count_nonzero(plan.views.outputs & (1 << bit)))
