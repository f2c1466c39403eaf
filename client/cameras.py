"""Cameras as clients know them: their projection and place, and the points that depth frames show.

Coordinates are those of docs/rendering.md: in camera space x is to the right, y up, and z backward, so that what a
camera sees has a negative z.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Camera:
    """Projection and place of a camera, in one lane or, with a leading dimension, in all lanes of an env."""

    width: int
    """Width of its frames in pixels."""
    height: int
    half_height: Any
    """Half the frame's height in metres, at depth 1 or, if it is orthographic, at any depth. float32, [lanes] or []."""
    is_orthographic: bool
    near: float
    """Metres along the view axis; what is nearer is not seen."""
    far: float
    """Metres along the view axis: depth in the background."""
    pose: Any = None
    """Camera to world: right, up, backward, position. float32, [lanes, 3, 4] or [3, 4]; None if it is not known."""

    @property
    def field_of_view(self) -> Any:
        """Vertical field of view in degrees; of an orthographic camera 0."""
        return np.degrees(2 * np.arctan(np.asarray(0.0 if self.is_orthographic else self.half_height, np.float64)))

    def select(self, lanes: Any) -> "Camera":
        """Return the camera in one lane, or in some: `lanes` is an index, a slice, or an array as NumPy takes them."""
        pose = None if self.pose is None else np.asarray(self.pose)[lanes]
        return Camera(
            self.width,
            self.height,
            np.asarray(self.half_height)[lanes],
            self.is_orthographic,
            self.near,
            self.far,
            pose,
        )

    def to_world(self, points: ArrayLike) -> np.ndarray:
        """Return points [..., height, width, 3] of camera space in world space."""
        if self.pose is None:
            raise ValueError("the camera's pose is None: expected one, such as that of VectorEnv.camera")
        pose = np.asarray(self.pose, np.float32)
        turned = np.asarray(points, np.float32) @ np.swapaxes(pose[..., :3], -1, -2)[..., None, :, :]
        moved: np.ndarray = turned + pose[..., None, None, :, 3]
        return moved


def points_of(depth: ArrayLike, camera: Camera) -> np.ndarray:
    """Return the points that a depth frame shows, in camera space: float32 [..., height, width, 3], NaN for background.

    The dimensions before height and width end with the camera's lanes, if it has some: [lanes, height, width], or
    [steps, lanes, height, width]. A point is the surface's at the pixel's centre, also where frames have four samples.
    """
    depth_m = np.asarray(depth)
    lanes = np.shape(camera.half_height)
    expected = (*lanes, camera.height, camera.width)
    if depth_m.dtype != np.float32 or depth_m.shape[-len(expected) :] != expected:
        shape = ", ".join(map(str, expected))
        raise ValueError(
            f"depth is {depth_m.dtype} {list(depth_m.shape)}: expected float32 [..., {shape}], as the camera's frames "
            "are; `camera.select` returns that of some lanes, and a dimension of channels has to go"
        )
    half_height = np.asarray(camera.half_height, np.float64)[..., None, None]
    down, right = np.arange(camera.height) + 0.5, np.arange(camera.width) + 0.5
    aspect = camera.width / camera.height
    x = half_height * (aspect * (2 * right / camera.width - 1))
    y = half_height * (1 - 2 * down / camera.height)[:, None]
    points = np.empty((*depth_m.shape, 3), np.float32)
    scale = np.float32(1) if camera.is_orthographic else depth_m
    points[..., 0] = x.astype(np.float32) * scale
    points[..., 1] = y.astype(np.float32) * scale
    points[..., 2] = -depth_m
    points[depth_m >= np.float32(camera.far)] = np.nan
    return points


def read_camera(read: Callable[[str], np.ndarray], name: str, width: int, height: int) -> Camera:
    """Return a camera from its properties; `read` returns one of them for all lanes, NaN for lanes without a server."""
    half_height, pose = read(f"camera.{name}.half_height"), read(f"camera.{name}.pose")
    is_orthographic = bool(read(f"camera.{name}.is_orthographic").any())
    near, far = (float(np.nanmax(read(f"camera.{name}.{plane}"))) for plane in ("near", "far"))
    return Camera(width, height, half_height, is_orthographic, near, far, pose)
