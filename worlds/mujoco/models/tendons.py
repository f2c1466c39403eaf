"""Spatial tendons of a MuJoCo model, drawn as tubes with spheres where they bend; slack tendons hang as catenaries.

The instance rows of a tendon are its tubes, then its spheres, as many as it can need. Rows that are not needed get a
pose that is not a number: the renderers draw nothing there.
"""

import math

import mujoco
import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.tables import F32, F64, I32, I64
from worldloom.render.arena import PROCESS_INT32, address_of, float64_index_of
from worldloom.worlds.mujoco.models.appearance import DEFAULT_RGBA
from worldloom.worlds.mujoco.models.contents import list_drawn_tendons

# Columns of the integer table of tendons.
TENDON, FIRST_ROW, TUBES, SPHERES, CATENARY, SHOWS_LIMIT = range(6)
NO_CATENARY, SPRING_CATENARY, LIMIT_CATENARY = 0, 1, 2
"""Values of CATENARY: never hangs; hangs with the length of its spring; hangs where it is shorter than its limit."""
# Columns of the float table of tendons: size, limits, impedance of the limits (solimp), and the two colours it blends.
WIDTH, LENGTH, LOWER, UPPER, MARGIN = 0, 1, 2, 3, 4
MIN_IMPEDANCE, MAX_IMPEDANCE, IMPEDANCE_WIDTH, MIDPOINT, POWER = 5, 6, 7, 8, 9
COLOR, LIMIT_COLOR, FLOAT_COLUMNS = 10, 13, 16

_WRAPPED_WIDTH = 0.5
"""Thickness of a tendon where it lies on a geom, as a share of its width."""
_PULLEY = -2
"""Value of wrap_obj for a pulley."""
_STEEP_RATIO = 100.0
"""A catenary this many times as long as the horizontal distance of its ends is drawn straight down and up again."""
_NEWTON_STEPS = 20
_WRAP = mujoco.mjtWrap
_MAX_CATENARY_POINTS = 100
_IMPEDANCE_RANGE = (0.0001, 0.9999)
"""Range that MuJoCo clips the impedance of a limit to."""


class Tendons:
    """The tendons of a model that are drawn, and their instance rows."""

    def __init__(self, model: mujoco.MjModel, first_row: int) -> None:
        self.ids = list_drawn_tendons(model)
        self._integers = np.zeros((len(self.ids), 6), np.int32)
        self._floats = np.zeros((len(self.ids), FLOAT_COLUMNS))
        self._gravity = np.array(model.opt.gravity, np.float64)
        self.rows = 0
        for k, tendon in enumerate(self.ids):
            catenary = _catenary_kind(model, tendon)
            points = _max_points(model, tendon)
            slices = min(int(model.vis.quality.numslices), _MAX_CATENARY_POINTS - 1) if catenary else 0
            tubes = max(points - 1, slices)
            self._integers[k, [TENDON, FIRST_ROW, TUBES, SPHERES]] = tendon, first_row + self.rows, tubes, points
            self._integers[k, [CATENARY, SHOWS_LIMIT]] = catenary, _shows_limit(model, tendon)
            self._floats[k] = _float_columns(model, tendon, catenary)
            self.rows += tubes + points
        offsets = _array_offsets(model) if self.ids else (0, 0, 0, 0)
        self.tables = np.array(offsets, np.int64), self._integers, self._floats, self._gravity
        """The sources of poses, for kernels: columns of `worldloom.worlds.mujoco.models.poses.PoseTables`."""

    def rows_of(self, k: int) -> tuple[slice, slice]:
        """Return the rows of the k-th drawn tendon: its tubes and its spheres."""
        first, tubes, spheres = (int(number) for number in self._integers[k, [FIRST_ROW, TUBES, SPHERES]])
        return slice(first, first + tubes), slice(first + tubes, first + tubes + spheres)


def _array_offsets(model: mujoco.MjModel) -> tuple[int, int, int, int]:
    """Return offsets from wrap_xpos, in elements: of ten_length, in float64, and of the paths' arrays, in int32.

    All arrays of an MjData lie in one block of memory, at offsets that depend on the model only; but empty ones, as
    qpos may be, lie anywhere. None of these is empty where there is a spatial tendon.
    """
    data = mujoco.MjData(model)
    anchor = address_of(data.wrap_xpos)
    firsts, counts, objects = (
        (address_of(array) - anchor) // PROCESS_INT32.itemsize
        for array in (data.ten_wrapadr, data.ten_wrapnum, data.wrap_obj)
    )
    return float64_index_of(data.ten_length) - float64_index_of(data.wrap_xpos), firsts, counts, objects


def _max_points(model: mujoco.MjModel, tendon: int) -> int:
    """Return the most points that the path of a tendon can have: two on each geom that it may wrap around."""
    first, count = int(model.tendon_adr[tendon]), int(model.tendon_num[tendon])
    wraps = model.wrap_type[first : first + count]
    return count + int(np.isin(wraps, (_WRAP.mjWRAP_SPHERE, _WRAP.mjWRAP_CYLINDER)).sum())


def _catenary_kind(model: mujoco.MjModel, tendon: int) -> int:
    """Return whether MuJoCo draws a tendon as a catenary when it is slack, and with which of its lengths.

    It does so for tendons between two sites that have no damping, friction or actuator.
    """
    has_no_gravity = bool(model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY) or not model.opt.gravity.any()
    is_actuated = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON) & (model.actuator_trnid[:, 0] == tendon)
    is_damped = (
        model.tendon_damping[tendon] or model.tendon_dampingpoly[tendon].any() or model.tendon_frictionloss[tendon]
    )
    if has_no_gravity or is_damped or is_actuated.any() or model.tendon_num[tendon] != 2:
        return NO_CATENARY
    if model.tendon_stiffness[tendon] or model.tendon_stiffnesspoly[tendon].any():
        shortest, longest = model.tendon_lengthspring[tendon]
        return SPRING_CATENARY if shortest == 0 < longest else NO_CATENARY
    return LIMIT_CATENARY if model.tendon_limited[tendon] and model.tendon_range[tendon, 0] == 0 else NO_CATENARY


def _shows_limit(model: mujoco.MjModel, tendon: int) -> bool:
    """Return whether a tendon's colour shows how active its limits are: it has limits, no colour and no material."""
    has_default_color = tuple(model.tendon_rgba[tendon].tolist()) == DEFAULT_RGBA
    return bool(model.tendon_limited[tendon]) and has_default_color and bool(model.tendon_matid[tendon] < 0)


def _float_columns(model: mujoco.MjModel, tendon: int, catenary: int) -> F64:
    values = np.zeros(FLOAT_COLUMNS)
    values[WIDTH], values[MARGIN] = model.tendon_width[tendon], model.tendon_margin[tendon]
    values[LOWER], values[UPPER] = model.tendon_range[tendon]
    values[LENGTH] = model.tendon_lengthspring[tendon, 1] if catenary == SPRING_CATENARY else values[UPPER]
    values[MIN_IMPEDANCE : MIN_IMPEDANCE + 5] = model.tendon_solimp_lim[tendon]
    impedances = slice(MIN_IMPEDANCE, MAX_IMPEDANCE + 1)
    values[impedances] = np.clip(values[impedances], *_IMPEDANCE_RANGE)
    values[COLOR : COLOR + 3] = model.tendon_rgba[tendon, :3]
    values[LIMIT_COLOR : LIMIT_COLOR + 3] = model.vis.rgba.constraint[:3]
    return values


@inlined
def write_tube_pose(
    pose: F32, row: int, ax: float, ay: float, az: float, bx: float, by: float, bz: float, r: float
) -> None:
    """Write the pose of a tube of radius r from a to b, by the smallest rotation from upright."""
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
def write_sphere_pose(pose: F32, row: int, x: float, y: float, z: float, r: float) -> None:
    """Write the pose of a sphere of radius r."""
    for i in range(3):
        for j in range(3):
            pose[row, i, j] = r if i == j else 0.0
    pose[row, 0, 3], pose[row, 1, 3], pose[row, 2, 3] = x, y, z


@inlined
def solve_catenary(stretch: float) -> float:
    """Return the x at which sinh(x) / x is `stretch` > 1: half the span over the catenary's parameter."""
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
    """Return MuJoCo's impedance of a limit at this distance from it, from 0 to 1; 0 beyond its margin."""
    if not distance < tendon[MARGIN]:
        return 0.0
    if tendon[IMPEDANCE_WIDTH] <= 1e-15:
        return 0.5 * (tendon[MIN_IMPEDANCE] + tendon[MAX_IMPEDANCE])  # type: ignore[no-any-return]
    x = min(1.0, abs(distance - tendon[MARGIN]) / tendon[IMPEDANCE_WIDTH])
    midpoint, power = tendon[MIDPOINT], tendon[POWER]
    if power <= 1.0:
        y = x
    elif x <= midpoint:
        y = x**power / midpoint ** (power - 1.0)
    else:
        y = 1.0 - (1.0 - x) ** power / (1.0 - midpoint) ** (power - 1.0)
    return tendon[MIN_IMPEDANCE] + y * (tendon[MAX_IMPEDANCE] - tendon[MIN_IMPEDANCE])  # type: ignore[no-any-return]


@inlined
def write_catenary_poses(points: F64, gravity: F64, length: float, tubes: int, row: int, r: float, pose: F32) -> None:
    """Write the poses of at most `tubes` tubes along a catenary of this length between two points [6]."""
    apart = 0.0
    down = math.sqrt(gravity[0] ** 2 + gravity[1] ** 2 + gravity[2] ** 2)
    rise = 0.0
    for i in range(3):
        apart += (points[3 + i] - points[i]) ** 2
        rise -= (points[3 + i] - points[i]) * gravity[i] / down
    if apart > length * length:
        write_tube_pose(pose, row, points[0], points[1], points[2], points[3], points[4], points[5], r)
        return
    sideways = math.sqrt(max(0.0, apart - rise * rise))
    ux, uy, uz = -gravity[0] / down, -gravity[1] / down, -gravity[2] / down
    sx, sy, sz = 0.0, 0.0, 0.0
    if sideways > 1e-12:
        sx = (points[3] - points[0] - rise * ux) / sideways
        sy = (points[4] - points[1] - rise * uy) / sideways
        sz = (points[5] - points[2] - rise * uz) / sideways
    is_steep = length > _STEEP_RATIO * sideways
    a, from_lowest, count = 1.0, 0.0, 2
    if not is_steep:
        count = tubes
        a = 0.5 * sideways / solve_catenary(max(1.0 + 1e-9, math.sqrt(length * length - rise * rise) / sideways))
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
        write_tube_pose(pose, row + k, ax, ay, az, bx, by, bz, r)


@device_function
def write_tendon_poses(
    numbers: F64,
    integers: I32,
    addresses: I64,
    wrap_field: int,
    offsets: I64,
    tendons: I32,
    values: F64,
    gravity: F64,
    scene_lanes: I32,
    first_row: I32,
    pose: F32,
    color: F32,
) -> None:
    """Write the poses of all tubes and spheres, and the colours of tendons that show their limits.

    `addresses` [n, fields] are those of the lanes' arrays in `numbers`, the memory of the process as float64;
    `integers` is the same memory as int32. `offsets` [4] from the array of `wrap_field`, wrap_xpos: that of ten_length,
    in float64, and those of ten_wrapadr, ten_wrapnum and wrap_obj, in int32.
    """
    lengths, firsts, counts, objects = offsets[0], offsets[1], offsets[2], offsets[3]
    for k in range(scene_lanes.size):
        anchor = addresses[k, wrap_field]
        for t in range(tendons.shape[0]):
            tendon, value = tendons[t], values[t]
            row = first_row[scene_lanes[k]] + tendon[FIRST_ROW]
            tubes, spheres = tendon[TUBES], tendon[SPHERES]
            for unused in range(row, row + tubes + spheres):
                pose[unused, 0, 0] = np.nan
            first = integers[2 * anchor + firsts + tendon[TENDON]]
            count = integers[2 * anchor + counts + tendon[TENDON]]
            length = numbers[anchor + lengths + tendon[TENDON]]
            path = numbers[anchor + 3 * first : anchor + 3 * (first + count)]
            is_slack = tendon[CATENARY] == SPRING_CATENARY or (
                tendon[CATENARY] == LIMIT_CATENARY and length < value[UPPER]
            )
            if is_slack and count == 2:
                write_catenary_poses(path, gravity, value[LENGTH], tubes, row, value[WIDTH], pose)
                for end in range(2):
                    write_sphere_pose(
                        pose, row + tubes + end, path[3 * end], path[3 * end + 1], path[3 * end + 2], value[WIDTH]
                    )
            else:
                last = 0.0
                for j in range(min(count - 1, tubes)):
                    wrapped = 2 * anchor + objects + first + j
                    if integers[wrapped] == _PULLEY or integers[wrapped + 1] == _PULLEY:
                        last = 0.0
                        continue
                    is_on_geom = integers[wrapped] >= 0 and integers[wrapped + 1] >= 0
                    r = value[WIDTH] * (_WRAPPED_WIDTH if is_on_geom else 1.0)
                    p = 3 * j
                    write_tube_pose(
                        pose, row + j, path[p], path[p + 1], path[p + 2], path[p + 3], path[p + 4], path[p + 5], r
                    )
                    write_sphere_pose(pose, row + tubes + j, path[p], path[p + 1], path[p + 2], max(r, last))
                    write_sphere_pose(pose, row + tubes + j + 1, path[p + 3], path[p + 4], path[p + 5], r)
                    last = r
            if tendon[SHOWS_LIMIT] != 0:
                activity = max(impedance(length - value[LOWER], value), impedance(value[UPPER] - length, value))
                for colored in range(row, row + tubes + spheres):
                    for i in range(3):
                        own, limit = value[COLOR + i], value[LIMIT_COLOR + i]
                        color[colored, i] = own + activity * (limit - own)
