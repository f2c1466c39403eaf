"""Tendons of a MuJoCo model: tubes along their ways, with balls where they bend; slack ropes hang.

A tendon's rows are `tubes` of them, then `balls`. What is not needed at a time has a pose that is not a number: such
rows draw nothing.
"""

import math

import numpy as np

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I32, I64

# Whole numbers of a tendon.
TENDON, FIRST_ROW, TUBES, BALLS, ROPE, TINTED = range(6)
NO_ROPE, SPRING_ROPE, LIMIT_ROPE = 0, 1, 2
"""What ROPE says: never hangs; hangs by the length of its spring; hangs where it is shorter than its limit."""
# Numbers of a tendon: how thick and how long it is, the limits and how hard they are, and the two colours it blends.
WIDTH, LENGTH, LOWER, UPPER, MARGIN = 0, 1, 2, 3, 4
SOFT, HARD, DEPTH, MIDDLE, POWER = 5, 6, 7, 8, 9
COLOR, LIMIT_COLOR, TENDON_NUMBERS = 10, 13, 16

_BETWEEN = 0.5
"""How thick a tendon is where it touches what it winds around, of its width."""
_PULLEY = -2
_STEEP = 100.0
"""A rope so many times as long as its ends are apart sideways hangs straight down and up again."""
_NEWTON_STEPS = 20


@inlined
def lay_tube(pose: F32, row: int, ax: float, ay: float, az: float, bx: float, by: float, bz: float, r: float) -> None:
    """A tube of radius r from a to b, turned as little as possible from upright."""
    x, y, z = bx - ax, by - ay, bz - az
    length = math.sqrt(x * x + y * y + z * z)
    if length > 0:
        x, y, z = x / length, y / length, z / length
    else:
        z = 1.0
    if z > -0.999999:
        k = 1.0 / (1.0 + z)
        pose[row, 0, 0], pose[row, 1, 0], pose[row, 2, 0] = r * (1 - x * x * k), -r * x * y * k, -r * x
        pose[row, 0, 1], pose[row, 1, 1], pose[row, 2, 1] = -r * x * y * k, r * (1 - y * y * k), -r * y
    else:
        pose[row, 0, 0], pose[row, 1, 0], pose[row, 2, 0] = r, 0.0, 0.0
        pose[row, 0, 1], pose[row, 1, 1], pose[row, 2, 1] = 0.0, -r, 0.0
    half = 0.5 * length
    pose[row, 0, 2], pose[row, 1, 2], pose[row, 2, 2] = half * x, half * y, half * z
    pose[row, 0, 3], pose[row, 1, 3], pose[row, 2, 3] = 0.5 * (ax + bx), 0.5 * (ay + by), 0.5 * (az + bz)


@inlined
def put_ball(pose: F32, row: int, x: float, y: float, z: float, r: float) -> None:
    """A ball of radius r."""
    for i in range(3):
        for j in range(3):
            pose[row, i, j] = r if i == j else 0.0
    pose[row, 0, 3], pose[row, 1, 3], pose[row, 2, 3] = x, y, z


@inlined
def flatness(stretch: float) -> float:
    """The x at which sinh(x) / x is `stretch`, more than 1: half the sides' distance, in units of a hanging rope."""
    x = math.sqrt(6.0 * (stretch - 1.0))
    if stretch > 3.0:
        x = math.log(2.0 * stretch) + math.log(math.log(2.0 * stretch))
    for _ in range(_NEWTON_STEPS):
        sinh, cosh = math.sinh(x), math.cosh(x)
        step = (sinh - stretch * x) / (cosh - stretch)
        x -= step
        if abs(step) <= 1e-12 * x:
            break
    return x


@inlined
def impedance(distance: float, tendon: F64) -> float:
    """How hard a limit is at this distance from it, from 0 to 1; 0 beyond its margin."""
    if not distance < tendon[MARGIN]:
        return 0.0
    if tendon[DEPTH] <= 1e-15:
        return 0.5 * (tendon[SOFT] + tendon[HARD])
    x = min(1.0, abs(distance - tendon[MARGIN]) / tendon[DEPTH])
    middle, power = tendon[MIDDLE], tendon[POWER]
    if power <= 1.0:
        y = x
    elif x <= middle:
        y = x**power / middle ** (power - 1.0)
    else:
        y = 1.0 - (1.0 - x) ** power / (1.0 - middle) ** (power - 1.0)
    return tendon[SOFT] + y * (tendon[HARD] - tendon[SOFT])


@inlined
def hang_rope(points: F64, gravity: F64, length: float, tubes: int, row: int, r: float, pose: F32) -> None:
    """A rope of this length between two points [6], in at most so many tubes."""
    apart = 0.0
    down = math.sqrt(gravity[0] ** 2 + gravity[1] ** 2 + gravity[2] ** 2)
    rise = 0.0
    for i in range(3):
        apart += (points[3 + i] - points[i]) ** 2
        rise -= (points[3 + i] - points[i]) * gravity[i] / down
    if apart > length * length:
        lay_tube(pose, row, points[0], points[1], points[2], points[3], points[4], points[5], r)
        return
    sideways = math.sqrt(max(0.0, apart - rise * rise))
    ux, uy, uz = -gravity[0] / down, -gravity[1] / down, -gravity[2] / down
    sx, sy, sz = 0.0, 0.0, 0.0
    if sideways > 1e-12:
        sx = (points[3] - points[0] - rise * ux) / sideways
        sy = (points[4] - points[1] - rise * uy) / sideways
        sz = (points[5] - points[2] - rise * uz) / sideways
    is_steep = length > _STEEP * sideways
    a, from_lowest, count = 1.0, 0.0, 2
    if not is_steep:
        count = tubes
        a = 0.5 * sideways / flatness(max(1.0 + 1e-9, math.sqrt(length * length - rise * rise) / sideways))
        from_lowest = 0.5 * sideways - a * math.atanh(rise / length)
    bx, by, bz = points[0], points[1], points[2]
    for k in range(count):
        ax, ay, az = bx, by, bz
        if k == count - 1:
            bx, by, bz = points[3], points[4], points[5]
        else:
            if is_steep:
                up = -0.5 * (math.sqrt(length * length - sideways * sideways) - rise)
                along = sideways * up / (2.0 * up - rise) if up < 0 else 0.0
            else:
                along = (k + 1) * sideways / (count + 1)
                up = a * (math.cosh((along - from_lowest) / a) - math.cosh(from_lowest / a))
            bx = points[0] + along * sx + up * ux
            by = points[1] + along * sy + up * uy
            bz = points[2] + along * sz + up * uz
        lay_tube(pose, row + k, ax, ay, az, bx, by, bz, r)


@kernel_holding_gil
def dress_tendons(
    numbers: F64,
    integers: I32,
    places: I64,
    wrap_column: int,
    anchor_column: int,
    lengths: int,
    firsts: int,
    counts: int,
    objects: int,
    tendons: I32,
    values: F64,
    gravity: F64,
    scene_lanes: I32,
    first_row: I32,
    pose: F32,
    color: F32,
) -> None:
    """Poses of all tubes and balls, and colours of tendons that show how hard their limits press.

    `lengths` is where the tendons' lengths are, counted from what is in the places' `anchor_column`; `firsts`, `counts`
    and `objects` are where their ways are described, in whole numbers of four bytes.
    """
    for k in range(scene_lanes.size):
        anchor = places[k, anchor_column]
        for t in range(tendons.shape[0]):
            tendon, value = tendons[t], values[t]
            row = first_row[scene_lanes[k]] + tendon[FIRST_ROW]
            tubes, balls = tendon[TUBES], tendon[BALLS]
            for unused in range(row, row + tubes + balls):
                pose[unused, 0, 0] = np.nan
            first = integers[2 * anchor + firsts + tendon[TENDON]]
            count = integers[2 * anchor + counts + tendon[TENDON]]
            length = numbers[anchor + lengths + tendon[TENDON]]
            way = numbers[places[k, wrap_column] + 3 * first : places[k, wrap_column] + 3 * (first + count)]
            hangs = tendon[ROPE] == SPRING_ROPE or (tendon[ROPE] == LIMIT_ROPE and length < value[UPPER])
            if hangs and count == 2:
                hang_rope(way, gravity, value[LENGTH], tubes, row, value[WIDTH], pose)
                for end in range(2):
                    put_ball(pose, row + tubes + end, way[3 * end], way[3 * end + 1], way[3 * end + 2], value[WIDTH])
            else:
                last = 0.0
                for j in range(min(count - 1, tubes)):
                    touched = 2 * anchor + objects + first + j
                    if integers[touched] == _PULLEY or integers[touched + 1] == _PULLEY:
                        last = 0.0
                        continue
                    is_between = integers[touched] >= 0 and integers[touched + 1] >= 0
                    r = value[WIDTH] * (_BETWEEN if is_between else 1.0)
                    p = 3 * j
                    lay_tube(pose, row + j, way[p], way[p + 1], way[p + 2], way[p + 3], way[p + 4], way[p + 5], r)
                    put_ball(pose, row + tubes + j, way[p], way[p + 1], way[p + 2], max(r, last))
                    put_ball(pose, row + tubes + j + 1, way[p + 3], way[p + 4], way[p + 5], r)
                    last = r
            if tendon[TINTED] != 0:
                press = max(impedance(length - value[LOWER], value), impedance(value[UPPER] - length, value))
                for painted in range(row, row + tubes + balls):
                    for i in range(3):
                        own, limit = value[COLOR + i], value[LIMIT_COLOR + i]
                        color[painted, i] = own + press * (limit - own)
