"""View tables and cameras: which views to draw, from where, at which size, with which outputs.

A view table is plain arrays (see `worldloom.kernels.tables.ViewTable`); the functions here build them without a Python
loop over views. Cameras look along their own -z with +y up.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldloom.kernels.outputs import OUTPUT_COUNT, PIXEL_BYTES, RGB
from worldloom.kernels.tables import F32, I32, I64, PreviousTable, ViewTable, map_columns

DEFAULT_SIZE = 64
DEFAULT_FOV_DEGREES, DEFAULT_NEAR, DEFAULT_FAR = 60.0, 0.05, 100.0
NO_PREVIOUS = PreviousTable(
    np.empty(0, np.int32),
    np.empty((0, 3, 4), np.float32),
    np.empty(0, np.float32),
    np.empty(0, np.int32),
    np.empty((0, 3, 4), np.float32),
)
"""Stands for no step before: flow is 0 in all views."""
_F32, _I32, _U8 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.uint8)


def make_views(
    lanes: ArrayLike,
    *,
    camera: ArrayLike | None = None,
    fov_degrees: ArrayLike = DEFAULT_FOV_DEGREES,
    orthographic_height: ArrayLike | None = None,
    near: ArrayLike = DEFAULT_NEAR,
    far: ArrayLike = DEFAULT_FAR,
    width: ArrayLike = DEFAULT_SIZE,
    height: ArrayLike = DEFAULT_SIZE,
    outputs: ArrayLike = RGB,
    samples: ArrayLike = 1,
    shadows: ArrayLike = False,
) -> ViewTable:
    """Return a view table with a row for each entry of `lanes`; other arguments are one value for all rows or one each.

    `fov_degrees` is the vertical field of view of a perspective camera. `orthographic_height`, the frame's height in
    metres, makes the cameras orthographic where it is not NaN.
    """
    lane = np.atleast_1d(np.asarray(lanes, np.int32)).copy()
    half_height = np.empty(lane.size, np.float32)
    half_height[...] = np.tan(np.radians(np.asarray(fov_degrees, np.float64)) / 2)
    orthographic = np.zeros(lane.size, np.uint8)
    if orthographic_height is not None:
        metres = np.broadcast_to(np.asarray(orthographic_height, np.float32), (lane.size,))
        orthographic[...] = ~np.isnan(metres)
        half_height[...] = np.where(orthographic, metres / 2, half_height)
    pose = np.eye(3, 4, dtype=np.float32) if camera is None else np.asarray(camera, np.float32)
    return fill_views(lane, pose, orthographic, half_height, near, far, width, height, outputs, samples, shadows)


def fill_views(
    lane: I32,
    camera: ArrayLike,
    orthographic: ArrayLike,
    half_height: ArrayLike,
    near: ArrayLike,
    far: ArrayLike,
    width: ArrayLike,
    height: ArrayLike,
    outputs: ArrayLike,
    samples: ArrayLike,
    shadows: ArrayLike = False,
) -> ViewTable:
    """Return a view table of these columns, each one value for all views or one each; `lane` is not copied."""
    count = lane.size

    def column(value: ArrayLike, dtype: np.dtype[Any]) -> np.ndarray:
        filled = np.empty(count, dtype)
        filled[...] = value
        return filled

    poses = np.empty((count, 3, 4), _F32)
    poses[...] = camera
    return ViewTable(
        lane,
        poses,
        column(orthographic, _U8),
        column(half_height, _F32),
        column(near, _F32),
        column(far, _F32),
        column(width, _I32),
        column(height, _I32),
        column(outputs, _U8),
        column(samples, _U8),
        column(shadows, _U8),
    )


def select_views(views: ViewTable, rows: "Sequence[int] | NDArray[np.integer[Any]]") -> ViewTable:
    """Return a table of these rows, in this order."""
    return map_columns(views, lambda column: column[rows])


def look_at(eye: ArrayLike, target: ArrayLike, up: ArrayLike = (0.0, 0.0, 1.0)) -> F32:
    """Return camera poses [..., 3, 4] at `eye` that look at `target`, for any number of cameras at once."""
    eye = np.asarray(eye, np.float64)
    target = np.asarray(target, np.float64)
    eye, target, up = np.broadcast_arrays(eye, target, _scale(np.asarray(up, np.float64)))
    backward = _unit(eye - target)
    right = np.cross(up, backward)
    looking_along_up = np.linalg.norm(right, axis=-1, keepdims=True) < 1e-9
    spare_up = np.where(np.abs(backward[..., :1]) < 0.9, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    right = _unit(np.where(looking_along_up, np.cross(spare_up, backward), right))
    pose = np.stack([right, np.cross(backward, right), backward, eye], axis=-1)
    return pose.astype(np.float32)


def frame_bytes(views: ViewTable) -> I64:
    """Return the bytes [V, outputs] that each output of each view takes, 0 where it was not asked for."""
    pixels = views.width.astype(np.int64) * views.height
    asked = (views.outputs[:, None] >> np.arange(OUTPUT_COUNT)) & 1
    return pixels[:, None] * np.asarray(PIXEL_BYTES, np.int64) * asked


def _unit(vectors: np.ndarray) -> np.ndarray:
    scaled = _scale(vectors)
    length = np.linalg.norm(scaled, axis=-1, keepdims=True)
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


def _scale(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors by powers of two, which rounds nothing, so that the largest component of each is about 1."""
    _, exponents = np.frexp(np.max(np.abs(vectors), axis=-1, keepdims=True))
    return np.asarray(np.ldexp(vectors, -exponents))
