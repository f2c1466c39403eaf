"""A world simulated and drawn directly by a pool and a renderer, which served worlds are compared with."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.outputs import output_bits
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.registry import find_family


class ReferenceWorld:
    """Some lanes of a family, stepped and drawn without a server."""

    def __init__(self, renderer: Renderer, family: str, seed: int, lanes: int = 1, **settings: Any) -> None:
        assets = AssetLibrary()
        self.renderer = renderer
        self.pool = Pool(find_family(family)(settings, assets), Scene(assets))
        self.lanes = self.pool.add(self.pool.family.lane_seeds(seed, lanes))

    def step(self, **actions: ArrayLike) -> None:
        """Step all lanes with actions [lanes, agents, *shape]; zeros where none is given."""
        shape = (len(self.lanes), self.pool.family.agents)
        self.pool.step(
            self.lanes,
            {
                spec.name: np.array(np.broadcast_to(actions.get(spec.name, 0), (*shape, *spec.shape)), spec.dtype)
                for spec in self.pool.family.actions
            },
        )

    def observe(self, name: str, agent: int = 0) -> np.ndarray:
        """Return an observation other than a frame, [lanes, *shape]."""
        if name == "reward":
            return np.asarray(self.pool.reward[self.lanes, agent])
        if name in ("discount", "step_type"):
            return np.asarray(getattr(self.pool, name)[self.lanes])
        return self.pool.observe(self.lanes, name, agent)

    def draw(
        self,
        name: str,
        agent: int = 0,
        *,
        width: int = 64,
        height: int = 64,
        samples: int = 1,
        shadows: bool = False,
        half_height: float | None = None,
        lighting: Mapping[str, ArrayLike] | None = None,
    ) -> np.ndarray:
        """Return a frame observation [lanes, height, width, ...], with another field of view or light if given."""
        camera, output = name.split(".")
        views = self.pool.views(
            self.lanes,
            camera,
            agent,
            width=width,
            height=height,
            outputs=output_bits([output]),
            samples=samples,
            shadows=shadows,
        )
        if half_height is not None:
            views.half_height[:] = half_height
        for column, value in (lighting or {}).items():
            getattr(self.pool.scene.lanes, column)[self.pool.scene_lane[self.lanes]] = value
        offsets, size_bytes = lay_out(views)
        arena = allocate_arena(size_bytes)
        self.renderer.draw(self.pool.scene, views, arena, offsets)
        return np.stack([get_frame(arena, views, offsets, view, output) for view in range(len(self.lanes))])

    def see(self, name: str, agent: int = 0, **drawing: Any) -> np.ndarray:
        """Return any observation, [lanes, *shape]."""
        return self.draw(name, agent, **drawing) if "." in name else self.observe(name, agent)
