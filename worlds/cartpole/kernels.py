"""Kernels of cartpole: a cart on a rail and a pole that swings on it, integrated by fourth-order Runge-Kutta; poses.

The cart (mass M) is at x. The pole is a uniform rod (mass m, half length l) that turns freely on the cart; its angle is
0 upright and grows towards +x. There is no friction. With force F along the rail, Lagrange's equations are

    (M + m) x'' + m l (cos(angle) angle'' - sin(angle) angle'^2) = F
    cos(angle) x'' + (4/3) l angle'' = g sin(angle)

and the energy is (M + m)/2 x'^2 + m l cos(angle) x' angle' + (2/3) m l^2 angle'^2 + m g l cos(angle).

State arrays: `motion` [L, 4] is x, angle, speed (x') and spin (angle'); `cos_sin` [L, 2] the angle's cosine and sine.
"""

import math

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import inlined, kernel, kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I32, I64
from worldloom.worlds.random import scalar_uniform

CART_KG = 1.0
POLE_KG = 0.1
HALF_LENGTH_M = 0.5
GRAVITY = 9.81
FORCE_N = 10.0
"""Newtons of an action of 1."""
START_X_M, START_ANGLE, START_SPEED = 0.2, 0.1, 0.05
"""Largest deviation from rest at the start of an episode: metres, radians, and metres or radians per second."""
PIVOT_Y_M, PIVOT_Z_M = -0.26, 1.55
"""Position of the pole's pivot across the rail and above the floor."""
POLE_WIDTH_M = 0.12
TO_SUN = (-0.45, -0.75, 1.0)
"""Direction to the sun."""

_SUN_X_PER_Z, _SUN_Y_PER_Z = TO_SUN[0] / TO_SUN[2], TO_SUN[1] / TO_SUN[2]
"""Slope of the sunlight. The shadow of a point at height z is offset by -z times this along x and y."""
_TOTAL_KG = CART_KG + POLE_KG
_POLE_SHARE = POLE_KG / _TOTAL_KG


@inlined
def _accelerations(newtons: float, spin: float, cos: float, sin: float) -> tuple[float, float]:
    """Return x'' and angle'': the two equations of motion solved for them."""
    pushed = newtons / _TOTAL_KG + _POLE_SHARE * HALF_LENGTH_M * spin * spin * sin
    angular = (GRAVITY * sin - cos * pushed) / (HALF_LENGTH_M * (4.0 / 3.0 - _POLE_SHARE * cos * cos))
    return pushed - _POLE_SHARE * HALF_LENGTH_M * angular * cos, angular


@inlined
def _runge_kutta(
    x: float, angle: float, speed: float, spin: float, cos: float, sin: float, newtons: float, step_s: float
) -> tuple[float, float, float, float]:
    """Return x, angle, speed and spin after one step; `cos` and `sin` are those of the angle at its start."""
    half = 0.5 * step_s
    a1, w1 = _accelerations(newtons, spin, cos, sin)
    v2, s2 = speed + half * a1, spin + half * w1
    at = angle + half * spin
    a2, w2 = _accelerations(newtons, s2, math.cos(at), math.sin(at))
    v3, s3 = speed + half * a2, spin + half * w2
    at = angle + half * s2
    a3, w3 = _accelerations(newtons, s3, math.cos(at), math.sin(at))
    v4, s4 = speed + step_s * a3, spin + step_s * w3
    at = angle + step_s * s3
    a4, w4 = _accelerations(newtons, s4, math.cos(at), math.sin(at))
    sixth = step_s / 6.0
    return (
        x + sixth * (speed + 2.0 * (v2 + v3) + v4),
        angle + sixth * (spin + 2.0 * (s2 + s3) + s4),
        speed + sixth * (a1 + 2.0 * (a2 + a3) + a4),
        spin + sixth * (w1 + 2.0 * (w2 + w3) + w4),
    )


@kernel
def step_cartpoles(
    lanes: I64,
    force: F32,
    half_rail_m: float,
    step_s: float,
    substeps: int,
    motion: F64,
    cos_sin: F64,
    reward: F32,
    terminated: NDArray[np.bool_],
) -> None:
    """Advance lanes by `substeps` steps of `step_s` seconds under one force [n] in -1..1.

    A cart that reaches the end of the rail stays there, and its episode is over. `reward` [n] and `terminated` [n] are
    outputs.
    """
    for i in range(len(lanes)):
        lane = lanes[i]
        push = float(force[i])
        x, angle, speed, spin = motion[lane, 0], motion[lane, 1], motion[lane, 2], motion[lane, 3]
        cos, sin = cos_sin[lane, 0], cos_sin[lane, 1]
        hit = False
        for _ in range(substeps):
            x, angle, speed, spin = _runge_kutta(x, angle, speed, spin, cos, sin, FORCE_N * push, step_s)
            cos, sin = math.cos(angle), math.sin(angle)
            if abs(x) >= half_rail_m:
                x = math.copysign(half_rail_m, x)
                hit = True
                break
        motion[lane, 0], motion[lane, 1], motion[lane, 2], motion[lane, 3] = x, angle, speed, spin
        cos_sin[lane, 0], cos_sin[lane, 1] = cos, sin
        offset = x / half_rail_m
        reward[i] = (0.5 + 0.5 * cos) * (1.0 - 0.5 * offset * offset) * (1.0 - 0.2 * push * push)
        terminated[i] = hit


@kernel
def reset_cartpoles(lanes: I64, seeds: NDArray[np.uint64], motion: F64, cos_sin: F64) -> None:
    """Set the pole hanging down near the middle of the rail, almost at rest; the deviations are random."""
    for i in range(len(lanes)):
        lane = lanes[i]
        motion[lane, 0] = START_X_M * (2.0 * scalar_uniform(seeds[i], 0) - 1.0)
        motion[lane, 1] = math.pi + START_ANGLE * (2.0 * scalar_uniform(seeds[i], 1) - 1.0)
        motion[lane, 2] = START_SPEED * (2.0 * scalar_uniform(seeds[i], 2) - 1.0)
        motion[lane, 3] = START_SPEED * (2.0 * scalar_uniform(seeds[i], 3) - 1.0)
        cos_sin[lane, 0], cos_sin[lane, 1] = math.cos(motion[lane, 1]), math.sin(motion[lane, 1])


@kernel_holding_gil
def write_poses(
    lanes: I64,
    scene_lanes: I32,
    first_row: I32,
    motion: F64,
    cos_sin: F64,
    cart_x: F32,
    cart_row: int,
    pole_row: int,
    pose: F32,
) -> None:
    """Write the poses of the cart, the pole and their shadows into the poses of the instance table.

    `cart_x`, `cart_row` and `pole_row` are those of `CartpoleRows`.
    """
    for k in range(lanes.size):
        lane, first = lanes[k], first_row[scene_lanes[k]]
        x, cos, sin = motion[lane, 0], cos_sin[lane, 0], cos_sin[lane, 1]
        for part in range(cart_x.size):
            pose[first + cart_row + part, 0, 3] = cart_x[part] + np.float32(x)
        pole = pose[first + pole_row]
        wide_x, wide_z = POLE_WIDTH_M * cos, -POLE_WIDTH_M * sin
        long_x, long_z = 2 * HALF_LENGTH_M * sin, 2 * HALF_LENGTH_M * cos
        middle_x, middle_z = 0.5 * long_x + x, PIVOT_Z_M + 0.5 * long_z
        pole[0, 0], pole[2, 0] = wide_x, wide_z
        pole[0, 2], pole[2, 2] = long_x, long_z
        pole[0, 3], pole[1, 3], pole[2, 3] = middle_x, PIVOT_Y_M, middle_z
        shadow = pose[first + pole_row + 1]
        shadow[0, 0], shadow[1, 0] = wide_x - wide_z * _SUN_X_PER_Z, -wide_z * _SUN_Y_PER_Z
        shadow[0, 2], shadow[1, 2] = long_x - long_z * _SUN_X_PER_Z, -long_z * _SUN_Y_PER_Z
        shadow[0, 3], shadow[1, 3] = middle_x - middle_z * _SUN_X_PER_Z, PIVOT_Y_M - middle_z * _SUN_Y_PER_Z
        knob = pose[first + pole_row + 2]
        tip_x, tip_z = long_x + x, PIVOT_Z_M + long_z
        knob[0, 3], knob[1, 3], knob[2, 3] = tip_x, PIVOT_Y_M, tip_z
        shadow = pose[first + pole_row + 3]
        shadow[0, 3], shadow[1, 3] = tip_x - tip_z * _SUN_X_PER_Z, PIVOT_Y_M - tip_z * _SUN_Y_PER_Z
