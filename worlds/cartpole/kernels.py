"""A cart on a rail and a pole that swings on it: the true equations of motion, by fourth-order Runge-Kutta.

The cart (mass M) is at x. The pole is a uniform rod (mass m, half length l) that turns freely on the cart; its angle is
0 upright and grows towards +x. Nothing rubs. With force F along the rail, Lagrange's equations are

    (M + m) x'' + m l (cos(angle) angle'' - sin(angle) angle'^2) = F
    cos(angle) x'' + (4/3) l angle'' = g sin(angle)

and the energy is (M + m)/2 x'^2 + m l cos(angle) x' angle' + (2/3) m l^2 angle'^2 + m g l cos(angle).

How a cart and its pole look: the poses of what moves, and of the shadows it throws on the floor.

A lane's rows come from a list of things that is put into it once; only numbers that change are written here.
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
"""What a force of 1 stands for."""
START_X_M, START_ANGLE, START_SPEED = 0.2, 0.1, 0.05
"""How far from rest, hanging in the middle, an episode may begin: metres, radians, and either per second."""

_TOTAL_KG = CART_KG + POLE_KG
_POLE_SHARE = POLE_KG / _TOTAL_KG


@inlined
def _accelerations(newtons: float, spin: float, cos: float, sin: float) -> tuple[float, float]:
    """Of the cart and of the angle: the two equations solved for x'' and angle''."""
    pushed = newtons / _TOTAL_KG + _POLE_SHARE * HALF_LENGTH_M * spin * spin * sin
    angular = (GRAVITY * sin - cos * pushed) / (HALF_LENGTH_M * (4.0 / 3.0 - _POLE_SHARE * cos * cos))
    return pushed - _POLE_SHARE * HALF_LENGTH_M * angular * cos, angular


@inlined
def _runge_kutta(
    x: float, angle: float, speed: float, spin: float, cos: float, sin: float, newtons: float, step_s: float
) -> tuple[float, float, float, float]:
    """One step; `cos` and `sin` are those of the angle it starts from."""
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
def step_cartpole(
    lanes: I64,
    force: F32,
    half_rail_m: float,
    step_s: float,
    substeps: int,
    motion: F64,
    aim: F64,
    reward: F32,
    ended: NDArray[np.bool_],
) -> None:
    """Advance lanes by `substeps` steps of `step_s` seconds each under one force [n] in -1..1.

    `motion` [L, 4] is x, angle and how fast each changes, `aim` [L, 2] the angle's cosine and sine. A cart that reaches
    the end of the rail stays there, and its episode has ended.
    """
    for i in range(len(lanes)):
        lane = lanes[i]
        push = float(force[i])
        x, angle, speed, spin = motion[lane, 0], motion[lane, 1], motion[lane, 2], motion[lane, 3]
        cos, sin = aim[lane, 0], aim[lane, 1]
        hit = False
        for _ in range(substeps):
            x, angle, speed, spin = _runge_kutta(x, angle, speed, spin, cos, sin, FORCE_N * push, step_s)
            cos, sin = math.cos(angle), math.sin(angle)
            if abs(x) >= half_rail_m:
                x = math.copysign(half_rail_m, x)
                hit = True
                break
        motion[lane, 0], motion[lane, 1], motion[lane, 2], motion[lane, 3] = x, angle, speed, spin
        aim[lane, 0], aim[lane, 1] = cos, sin
        aside = x / half_rail_m
        reward[i] = (0.5 + 0.5 * cos) * (1.0 - 0.5 * aside * aside) * (1.0 - 0.2 * push * push)
        ended[i] = hit


@kernel
def start_cartpole(lanes: I64, seeds: NDArray[np.uint64], motion: F64, aim: F64) -> None:
    """Near rest, hanging down near the middle of the rail: how near, each lane's seed says."""
    for i in range(len(lanes)):
        lane = lanes[i]
        motion[lane, 0] = START_X_M * (2.0 * scalar_uniform(seeds[i], 0) - 1.0)
        motion[lane, 1] = math.pi + START_ANGLE * (2.0 * scalar_uniform(seeds[i], 1) - 1.0)
        motion[lane, 2] = START_SPEED * (2.0 * scalar_uniform(seeds[i], 2) - 1.0)
        motion[lane, 3] = START_SPEED * (2.0 * scalar_uniform(seeds[i], 3) - 1.0)
        aim[lane, 0], aim[lane, 1] = math.cos(motion[lane, 1]), math.sin(motion[lane, 1])


PIVOT_Y_M, PIVOT_Z_M = -0.26, 1.55
"""Where the pole turns, beside and above the cart's place on the rail."""
POLE_WIDE_M = 0.12
SUN_AT = (-0.45, -0.75, 1.0)
"""The way to the light."""
_EAST, _NORTH = SUN_AT[0] / SUN_AT[2], SUN_AT[1] / SUN_AT[2]
"""How far towards the light one goes along x and y for a metre up; a shadow lies as far the other way."""


@kernel_holding_gil
def dress_cartpoles(
    lanes: I64,
    scene_lanes: I32,
    first_row: I32,
    motion: F64,
    aim: F64,
    carried_x: F32,
    carried_at: int,
    pole_at: int,
    pose: F32,
) -> None:
    """The cart and the pole where they are now.

    What goes with the cart is at `carried_x` [m] when the cart is in the middle, from place `carried_at` of a lane's
    rows on. From `pole_at` on: the pole, its shadow, the knob at its tip, the knob's shadow.
    """
    for k in range(lanes.size):
        lane, first = lanes[k], first_row[scene_lanes[k]]
        x, cos, sin = motion[lane, 0], aim[lane, 0], aim[lane, 1]
        for thing in range(carried_x.size):
            pose[first + carried_at + thing, 0, 3] = carried_x[thing] + np.float32(x)
        pole = pose[first + pole_at]
        wide_x, wide_z = POLE_WIDE_M * cos, -POLE_WIDE_M * sin
        long_x, long_z = 2 * HALF_LENGTH_M * sin, 2 * HALF_LENGTH_M * cos
        middle_x, middle_z = 0.5 * long_x + x, PIVOT_Z_M + 0.5 * long_z
        pole[0, 0], pole[2, 0] = wide_x, wide_z
        pole[0, 2], pole[2, 2] = long_x, long_z
        pole[0, 3], pole[1, 3], pole[2, 3] = middle_x, PIVOT_Y_M, middle_z
        shadow = pose[first + pole_at + 1]
        shadow[0, 0], shadow[1, 0] = wide_x - wide_z * _EAST, -wide_z * _NORTH
        shadow[0, 2], shadow[1, 2] = long_x - long_z * _EAST, -long_z * _NORTH
        shadow[0, 3], shadow[1, 3] = middle_x - middle_z * _EAST, PIVOT_Y_M - middle_z * _NORTH
        knob = pose[first + pole_at + 2]
        tip_x, tip_z = long_x + x, PIVOT_Z_M + long_z
        knob[0, 3], knob[1, 3], knob[2, 3] = tip_x, PIVOT_Y_M, tip_z
        shadow = pose[first + pole_at + 3]
        shadow[0, 3], shadow[1, 3] = tip_x - tip_z * _EAST, PIVOT_Y_M - tip_z * _NORTH
