"""Kernel that moves cameras around what they look at."""

import math

import numpy as np

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F32, F64

ORBIT = math.pi / 2
"""Angle by which a camera turns aside, up or down, and rolls, for amount 1."""
NEARER, FARTHER = 0.5, 1.5
"""Parts of a camera's distance by which it comes nearer and goes farther away, for amount 1."""
_STEEPEST = math.radians(89.0)
"""Largest elevation of a camera that goes up or down. One that looks down from above that turns either way."""


@kernel_holding_gil
def vary_cameras(
    amount: float,
    first: int,
    numbers: F64,
    focus_m: float,
    orthographic: bool,
    poses: F32,
    half_heights: F32,
) -> None:
    """Move cameras [n, 3, 4] around the point so far ahead of each, in place; those of focus 0 turn in place.

    An orthographic camera sees more or less instead of going nearer or farther away.
    """
    limit = amount * ORBIT
    for k in range(poses.shape[0]):
        pose = poses[k]
        around, rise, roll, away = (
            numbers[k, first],
            numbers[k, first + 1],
            numbers[k, first + 2],
            numbers[k, first + 3],
        )
        bx, by, bz = np.float64(pose[0, 2]), np.float64(pose[1, 2]), np.float64(pose[2, 2])
        elevation = math.asin(min(max(bz, -1.0), 1.0))
        low, high = elevation - limit, elevation + limit
        if focus_m > 0.0 and 0.0 <= elevation < _STEEPEST:
            low, high = max(low, 0.0), min(high, _STEEPEST)
        tilt = low + rise * (high - low) - elevation
        bearing, angle = (2.0 * around - 1.0) * limit, (2.0 * roll - 1.0) * limit
        factor = 1.0 - NEARER * amount + away * (NEARER + FARTHER) * amount
        # The axis of the tilt lies across the camera's direction and is level, or is the camera's own.
        hx, hy, hz = -by, bx, 0.0
        level = math.sqrt(hx * hx + hy * hy)
        if elevation < _STEEPEST and level > 1e-6:
            hx, hy = hx / level, hy / level
        else:
            hx, hy, hz = np.float64(pose[0, 0]), np.float64(pose[1, 0]), np.float64(pose[2, 0])
        px = np.float64(pose[0, 3]) - focus_m * bx
        py = np.float64(pose[1, 3]) - focus_m * by
        pz = np.float64(pose[2, 3]) - focus_m * bz
        rx, ry, rz = _moved(pose, 0, hx, hy, hz, tilt, bearing)
        ux, uy, uz = _moved(pose, 1, hx, hy, hz, tilt, bearing)
        bx, by, bz = _moved(pose, 2, hx, hy, hz, tilt, bearing)
        c, s = math.cos(angle), math.sin(angle)
        distance = focus_m if orthographic else focus_m * factor
        pose[0, 0], pose[1, 0], pose[2, 0] = c * rx + s * ux, c * ry + s * uy, c * rz + s * uz
        pose[0, 1], pose[1, 1], pose[2, 1] = c * ux - s * rx, c * uy - s * ry, c * uz - s * rz
        pose[0, 2], pose[1, 2], pose[2, 2] = bx, by, bz
        pose[0, 3], pose[1, 3], pose[2, 3] = px + distance * bx, py + distance * by, pz + distance * bz
        if orthographic:
            half_heights[k] *= factor


@inlined
def _moved(
    pose: F32, axis: int, hx: float, hy: float, hz: float, tilt: float, bearing: float
) -> tuple[float, float, float]:
    """Return an axis of a camera, tilted up about (hx, hy, hz), then turned about the vertical."""
    x, y, z = np.float64(pose[0, axis]), np.float64(pose[1, axis]), np.float64(pose[2, axis])
    c, s = math.cos(tilt), -math.sin(tilt)
    along = (hx * x + hy * y + hz * z) * (1.0 - c)
    tx = c * x + s * (hy * z - hz * y) + along * hx
    ty = c * y + s * (hz * x - hx * z) + along * hy
    tz = c * z + s * (hx * y - hy * x) + along * hz
    c, s = math.cos(bearing), math.sin(bearing)
    return c * tx - s * ty, s * tx + c * ty, tz
