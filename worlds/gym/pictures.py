"""Environments whose frames are their own: what `render()` returns, scaled to the size that was asked for."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from PIL import Image

from worldloom.kernels.tables import I64, U8
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.family import Camera, State
from worldloom.worlds.gym.environments import LaneEnvironment, error_text, log, raise_interrupt
from worldloom.worlds.gym.family import Gym

_RGB_ARRAY = "rgb_array"
_ENVIRONMENT_BYTES = 128 << 10
"""Memory of a lane's environment, without its pictures: mostly Python objects."""
_SURFACE_BYTES = 2 * 4 / 3
"""Memory that an environment draws to, for each byte of its picture: two surfaces of pygame with 4 bytes a pixel."""


class PictureGym(Gym):
    """Environments with pictures of their own. Where `render()` cannot be called, there is no camera."""

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self._picture_bytes = 0
        self.cameras = ()
        modes = self.template.metadata.get("render_modes") or ()
        if _RGB_ARRAY in modes:
            self._render_mode = _RGB_ARRAY
            self._try_picture()
        else:
            self._explain_no_camera(
                f"its render modes are {', '.join(map(str, modes)) or 'none'}, without {_RGB_ARRAY}"
            )

    def _try_picture(self) -> None:
        """Draw one picture: packages that only `render()` needs may be missing."""
        try:
            first = LaneEnvironment(self.make_environment())
            first.env.reset(seed=0)
            picture = _render(first)
        except BaseException as error:
            raise_interrupt(error)
            self._render_mode = None
            reason = f"its render() fails: {error_text(error)}"
            log.warning("%s has no pictures: %s", self.env_id, reason)
            self._explain_no_camera(reason)
            return
        height, width = picture.shape[:2]
        self._picture_bytes = picture.nbytes
        text = f"The picture of the environment's render(), stretched to the frame; its own size is {width} × {height}."
        self.cameras = (Camera("eye", text, outputs=("rgb", "gray"), is_drawn=False),)

    def _explain_no_camera(self, reason: str) -> None:
        names = [spec.name for spec in self._observation_arrays.specs]
        self.no_cameras_text = (
            f"this environment has no pictures, for {reason}; ask for numbers alone, such as observations={names[:4]}"
        )

    def memory_bytes(self, lanes: int) -> int:
        """Estimate the memory of a pool: for each lane an environment, and surfaces, which it has once it is shown."""
        lane_bytes = _ENVIRONMENT_BYTES + int(_SURFACE_BYTES * self._picture_bytes)
        return super().memory_bytes(lanes) + lanes * lane_bytes

    def picture(self, state: State, lanes: I64, camera: str, agent: int, width: int, height: int) -> U8:
        """Return what the environments show, [n, height, width, 3]; black where one cannot be drawn."""
        out = np.zeros((len(lanes), height, width, 3), np.uint8)
        for k, lane in enumerate(lanes.tolist()):
            if state.environment[lane] == 0:
                continue
            try:
                out[k] = _scaled(_render(state.environment[lane]), width, height)
            except BaseException as error:
                raise_interrupt(error)
                self._failures.add("in render(): its frame is black", error)
        return out


def _render(environment: LaneEnvironment) -> U8:
    picture = np.asarray(cast(Any, environment.env.render()))
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or not picture.size:
        raise ValueError(f"render() gave {picture.dtype} {list(picture.shape)}: expected uint8 [height, width, 3]")
    return picture


def _scaled(picture: U8, width: int, height: int) -> U8:
    """Return a picture in another size; the same bytes if it has that size."""
    if picture.shape[:2] == (height, width):
        return picture
    shrinks = picture.shape[0] * picture.shape[1] > width * height
    resampling = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(picture).resize((width, height), resampling))
