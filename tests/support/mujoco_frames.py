"""Frames of one state by MuJoCo's own renderer and by worldloom, and the difference between them."""

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
from worldloom.worlds.mujoco.models.scene import ModelScene
from worldloom.worlds.mujoco.simulation.data import field_addresses

_KINDS = {
    int(mujoco.mjtObj.mjOBJ_GEOM): "geom",
    int(mujoco.mjtObj.mjOBJ_SITE): "site",
    int(mujoco.mjtObj.mjOBJ_TENDON): "tendon",
    int(mujoco.mjtObj.mjOBJ_SKIN): "skin",
}
TIMEOUT_S = 120
OTHER = 256
"""Label of elements that worldloom has no label for."""


class Frame(NamedTuple):
    """Colours and labels of one frame."""

    rgb: U8
    labels: NDArray[np.int64]


class FrameDifference(NamedTuple):
    """Difference between two frames."""

    labels: float
    """Share of pixels with the same label."""
    color: float
    """Mean difference of red, green and blue, of 255, where labels agree and all neighbours have the same."""


class WorldloomFrames:
    """Frames drawn by worldloom of simulations of one model, one in each lane."""

    def __init__(self, model: mujoco.MjModel, renderer: Renderer, lanes: int = 1) -> None:
        self.assets = AssetLibrary()
        self.model_scene = ModelScene(model, self.assets)
        self.scene = Scene(self.assets)
        self.lanes: I32 = self.scene.add(lanes, self.model_scene.rows_per_lane, self.model_scene.static_rows)
        self.scales = np.ones((lanes, self.model_scene.rows_per_lane, 3), np.float32)
        self.write_static(np.arange(lanes))
        self._renderer = renderer

    def write_static(self, lanes: I64, model: mujoco.MjModel | None = None) -> None:
        """Write what does not move into some of the lanes; `model` is their own if they have one."""
        self.model_scene.write_static(self.scales, lanes, self.scene, self.lanes[lanes], model)

    def see(
        self, simulations: list[mujoco.MjData], camera: str, width: int, height: int, shadows: bool = False
    ) -> list[Frame]:
        """Draw the frame of a camera in each of these simulations."""
        addresses: I64 = np.array([field_addresses(data) for data in simulations])
        lanes = self.lanes[: len(simulations)]
        self.model_scene.write_poses(addresses, self.scales, np.arange(len(lanes)), self.scene, lanes)
        pose, half_height, orthographic, near, far = self.model_scene.place_camera(addresses, camera)
        outputs = RGB | SEGMENTATION
        views = fill_views(lanes.copy(), pose, orthographic, half_height, near, far, width, height, outputs, 1, shadows)
        offsets, size = lay_out(views)
        arena = allocate_arena(size)
        self._renderer.draw(self.scene, views, arena, offsets)
        return [
            Frame(
                get_frame(arena, views, offsets, view, "rgb").copy(),
                get_frame(arena, views, offsets, view, "segmentation").astype(np.int64),
            )
            for view in range(len(simulations))
        ]


class MujocoFrames:
    """Frames drawn by MuJoCo up to a size, without reflections and multisampling, and without shadows unless asked for.

    They are drawn on a separate thread: an OpenGL context is current on one thread, and other tests have their own.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int, shadows: bool = False) -> None:
        self._model = model
        self._thread = ThreadPoolExecutor(1)
        self._scene = mujoco.MjvScene(model, maxgeom=2000)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        self._thread.submit(self._open, width, height).result(TIMEOUT_S)

    def see(self, data: mujoco.MjData, camera: int, model_scene: ModelScene, width: int, height: int) -> Frame:
        """Draw the frame of one of the model's cameras, or of the free one for -1, with worldloom's labels."""
        through = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(self._model, through)
        if camera >= 0:
            through.type, through.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera
        every = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, mujoco.MjvOption(), None, through, every, self._scene)
        rgb = self._thread.submit(self._draw, width, height, False).result(TIMEOUT_S)
        encoded = self._thread.submit(self._draw, width, height, True).result(TIMEOUT_S)
        labels = labels_by_id(self._model, self._scene, model_scene.labels)
        return Frame(rgb, labels[encoded.astype(np.int64) @ (1, 1 << 8, 1 << 16)])

    def close(self) -> None:
        """Free the context."""
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

    def _draw(self, width: int, height: int, is_encoded: bool) -> U8:
        """Draw the scene, or each object in the colour that encodes its id."""
        for flag in (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR):
            self._scene.flags[flag] = is_encoded
        viewport = mujoco.MjrRect(0, 0, width, height)
        pixels = np.empty((height, width, 3), np.uint8)
        mujoco.mjr_render(viewport, self._scene, self._context)
        mujoco.mjr_readPixels(pixels, None, viewport, self._context)
        return pixels[::-1].copy()


def labels_by_id(model: mujoco.MjModel, scene: mujoco.MjvScene, labels: tuple[str, ...]) -> NDArray[np.int64]:
    """Return worldloom's labels of the objects of a scene, by the ids that their colours encode."""
    known = {name: number for number, name in enumerate(labels)}
    found = np.zeros(scene.ngeom + 1, np.int64)
    for geom in scene.geoms[: scene.ngeom]:
        kind = _KINDS.get(int(geom.objtype))
        name = label_of(model, kind, geom.objid) if kind else ""
        found[geom.segid + 1] = known.get(name, OTHER)
    return found


def compare_frames(ours: Frame, theirs: Frame) -> FrameDifference:
    """Compare a frame of worldloom with one of MuJoCo."""
    agree = ours.labels == theirs.labels
    inside = agree & find_interior(ours.labels) & find_interior(theirs.labels)
    apart = np.abs(ours.rgb.astype(np.int64) - theirs.rgb).mean(axis=-1)
    return FrameDifference(float(agree.mean()), float(apart[inside].mean()) if inside.any() else 0.0)


def find_interior(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the pixels whose neighbours, up to eight, all have the same label."""
    framed = np.pad(labels, 1, mode="edge")
    across = (framed[:, 1:-1] == framed[:, :-2]) & (framed[:, 1:-1] == framed[:, 2:])
    down = (labels == framed[:-2, 1:-1]) & (labels == framed[2:, 1:-1])
    return np.asarray(down & across[:-2] & across[1:-1] & across[2:])
