"""Pictures of one state by MuJoCo's own renderer and by ours, and how far they are apart."""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.outputs import RGB, SEGMENTATION
from worldloom.kernels.tables import I32, I64, U8
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import fill_views
from worldloom.worlds.mujoco.models.contents import label_of
from worldloom.worlds.mujoco.models.scene import Looks
from worldloom.worlds.mujoco.simulation.data import places_of

_KINDS = {
    int(mujoco.mjtObj.mjOBJ_GEOM): "geom",
    int(mujoco.mjtObj.mjOBJ_SITE): "site",
    int(mujoco.mjtObj.mjOBJ_TENDON): "tendon",
    int(mujoco.mjtObj.mjOBJ_SKIN): "skin",
}
TIMEOUT_S = 120
OTHER = 256
"""The label of what has none with us."""


class Picture(NamedTuple):
    """What a camera sees."""

    rgb: U8
    labels: NDArray[np.int64]


class Verdict(NamedTuple):
    """How far two pictures are apart."""

    labels: float
    """Share of pixels with the same label."""
    color: float
    """Mean difference of red, green and blue, of 255, where labels agree and all neighbours have the same."""


class Ours:
    """Our pictures of simulations of one model, one in each lane."""

    def __init__(self, model: mujoco.MjModel, renderer: Renderer, lanes: int = 1) -> None:
        self.assets = AssetLibrary()
        self.looks = Looks(model, self.assets)
        self.scene = Scene(self.assets)
        self.lanes: I32 = self.scene.add(lanes, self.looks.rows_per_lane, self.looks.static_rows)
        self.looks.furnish(self.scene, self.lanes)
        self._renderer = renderer

    def see(self, simulations: list[mujoco.MjData], camera: str, width: int, height: int) -> list[Picture]:
        """What a camera sees in each of these."""
        places: I64 = np.array([places_of(data) for data in simulations])
        lanes = self.lanes[: len(simulations)]
        self.looks.dress(places, self.scene, lanes)
        pose, half_height, orthographic, near, far = self.looks.look(places, camera)
        outputs = RGB | SEGMENTATION
        views = fill_views(lanes.copy(), pose, orthographic, half_height, near, far, width, height, outputs, 1)
        offsets, size = lay_out(views)
        arena = allocate_arena(size)
        self._renderer.draw(self.scene, views, arena, offsets)
        return [
            Picture(
                get_frame(arena, views, offsets, view, "rgb").copy(),
                get_frame(arena, views, offsets, view, "segmentation").astype(np.int64),
            )
            for view in range(len(simulations))
        ]


class Theirs:
    """MuJoCo's pictures up to a size, without shadows, reflections and multisampling.

    They are drawn on a thread of their own, since a context is current on a thread and other tests have theirs.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int) -> None:
        self._model = model
        self._thread = ThreadPoolExecutor(1)
        self._scene = mujoco.MjvScene(model, maxgeom=2000)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = 0
        self._thread.submit(self._open, width, height).result(TIMEOUT_S)

    def see(self, data: mujoco.MjData, camera: int, looks: Looks, width: int, height: int) -> Picture:
        """What one of the model's cameras sees, or the free one for -1, with our labels."""
        through = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(self._model, through)
        if camera >= 0:
            through.type, through.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera
        every = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, mujoco.MjvOption(), None, through, every, self._scene)
        rgb = self._thread.submit(self._draw, width, height, False).result(TIMEOUT_S)
        coded = self._thread.submit(self._draw, width, height, True).result(TIMEOUT_S)
        return Picture(rgb, self._labels(looks)[coded.astype(np.int64) @ (1, 1 << 8, 1 << 16)])

    def close(self) -> None:
        """Let the context go."""
        self._thread.submit(self._close).result(TIMEOUT_S)
        self._thread.shutdown()

    def _open(self, width: int, height: int) -> None:
        from mujoco import egl  # needs OpenGL as soon as it is imported

        self._gl = egl.GLContext(width, height)
        self._gl.make_current()
        model = self._model
        before = (model.vis.quality.offsamples, model.vis.global_.offwidth, model.vis.global_.offheight)
        model.vis.quality.offsamples, model.vis.global_.offwidth, model.vis.global_.offheight = 0, width, height
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        model.vis.quality.offsamples, model.vis.global_.offwidth, model.vis.global_.offheight = before
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)

    def _close(self) -> None:
        self._context.free()
        self._gl.free()

    def _draw(self, width: int, height: int, is_coded: bool) -> U8:
        """The scene as it is, or each thing in the colour of its number."""
        for flag in (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR):
            self._scene.flags[flag] = is_coded
        viewport = mujoco.MjrRect(0, 0, width, height)
        pixels = np.empty((height, width, 3), np.uint8)
        mujoco.mjr_render(viewport, self._scene, self._context)
        mujoco.mjr_readPixels(pixels, None, viewport, self._context)
        return pixels[::-1].copy()

    def _labels(self, looks: Looks) -> NDArray[np.int64]:
        """Which of our labels the things of the scene have, by what they are coloured with."""
        known = {name: number for number, name in enumerate(looks.labels)}
        labels = np.zeros(self._scene.ngeom + 1, np.int64)
        for geom in self._scene.geoms[: self._scene.ngeom]:
            kind = _KINDS.get(int(geom.objtype))
            name = label_of(self._model, kind, geom.objid) if kind else ""
            labels[geom.segid + 1] = known.get(name, OTHER)
        return labels


def judge(ours: Picture, theirs: Picture) -> Verdict:
    """How far a picture of ours is from theirs."""
    agree = ours.labels == theirs.labels
    inside = agree & _alike(ours.labels) & _alike(theirs.labels)
    apart = np.abs(ours.rgb.astype(np.int64) - theirs.rgb).mean(axis=-1)
    return Verdict(float(agree.mean()), float(apart[inside].mean()) if inside.any() else 0.0)


def _alike(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where all eight neighbours, as far as there are any, have the same label."""
    framed = np.pad(labels, 1, mode="edge")
    across = (framed[:, 1:-1] == framed[:, :-2]) & (framed[:, 1:-1] == framed[:, 2:])
    down = (labels == framed[:-2, 1:-1]) & (labels == framed[2:, 1:-1])
    return np.asarray(down & across[:-2] & across[1:-1] & across[2:])
