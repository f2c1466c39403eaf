"""How a cart and its pole look: the poses of what moves, and of the shadows it throws on the floor.

A lane's rows come from a list of things that is put into it once; only numbers that change are written here.
"""

import numpy as np

from worldloom.kernels.cartpole import HALF_LENGTH_M
from worldloom.kernels.compiling import brief
from worldloom.kernels.tables import F32, F64, I32, I64

PIVOT_Y_M, PIVOT_Z_M = -0.26, 1.55
"""Where the pole turns, beside and above the cart's place on the rail."""
POLE_WIDE_M = 0.12
SUN_AT = (-0.45, -0.75, 1.0)
"""The way to the light."""
_EAST, _NORTH = SUN_AT[0] / SUN_AT[2], SUN_AT[1] / SUN_AT[2]
"""How far towards the light one goes along x and y for a metre up; a shadow lies as far the other way."""


@brief
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
