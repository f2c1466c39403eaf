"""Lamp lighting, computed for each pixel from its position and normal, eight pixels at a time.

The light of lanes without lamps depends on the normal only, see `runs.py`.
"""

import math

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import load_floats, store
from worldloom.kernels.raster.scratch import (
    BACK,
    BLUE,
    COLOR,
    CORNER,
    DOWN,
    EYE,
    GREEN,
    KEY,
    LAMP_COUNT,
    LAMPS,
    NORMAL,
    RED,
    RIGHT,
    SHINE,
    STRIDE,
    plane_at,
    row_rays,
)
from worldloom.kernels.simd import (
    SIMD_WIDTH,
    Floats,
    bits_of,
    count_from,
    floats,
    floor,
    from_bits,
    maximum,
    minimum,
    sqrt,
    to_floats,
    to_ints,
    where_at_least,
)
from worldloom.kernels.tables import (
    F32,
    F64,
    HEADLIGHT,
    LAMP_AMBIENT,
    LAMP_ATTENUATION,
    LAMP_CONE,
    LAMP_DIFFUSE,
    LAMP_DIRECTION,
    LAMP_EXPONENT,
    LAMP_KIND,
    LAMP_POSITION,
    LAMP_SHADOW,
    LAMP_SIZE,
    LAMP_SPECULAR,
    SPOT,
    LaneTable,
    ViewTable,
)

_ZERO, _ONE, _TINY = np.float32(0.0), np.float32(1.0), np.float32(1e-30)
NO_SHADOW, ONE_SHADOW = np.float32(0.0), np.float32(1.0)
"""Values of LAMP_SHADOW in the constants of a view with shadows: the lamp casts none; it casts some, but on nothing
that is seen. Greater ones by k + 1: on light map k."""


@inlined
def scale_direction(direction: F32) -> None:
    """Scale a vector so that its largest component is about 1: then squares neither overflow nor become 0.

    The factor is a power of two, so nothing is rounded: vectors of any length keep their bits when they are normalised.
    """
    largest = max(max(abs(direction[0]), abs(direction[1])), abs(direction[2]))
    factor = math.ldexp(1.0, -math.frexp(np.float64(largest))[1])  # float32 does not have all of these
    for k in range(3):
        direction[k] = np.float64(direction[k]) * factor


@device_function
def read_lamps(lanes: LaneTable, lane: int, views: ViewTable, view: int, constants: F32) -> None:
    """Write a lane's lamps, and the camera rays of a view, into `constants`."""
    camera = views.camera
    pixel = np.float32(2.0) * views.half_height[view] / np.float32(views.height[view])
    first_x = np.float32(0.5 - 0.5 * views.width[view]) * pixel
    first_y = np.float32(0.5 * views.height[view] - 0.5) * pixel
    for k in range(3):
        right, up = camera[view, k, 0], camera[view, k, 1]
        constants[CORNER + k] = right * first_x + up * first_y
        constants[RIGHT + k] = right * pixel
        constants[DOWN + k] = -up * pixel
        constants[BACK + k] = camera[view, k, 2]
        constants[EYE + k] = camera[view, k, 3]
    constants[LAMP_COUNT] = lanes.lamp_count[lane]
    for lamp in range(lanes.lamp_count[lane]):
        at = LAMPS + lamp * LAMP_SIZE
        for k in range(LAMP_SIZE):
            constants[at + k] = lanes.lamps[lane, lamp, k]
        if constants[at + LAMP_KIND] == HEADLIGHT:
            for k in range(3):
                constants[at + LAMP_DIRECTION + k] = -camera[view, k, 2]
        scale_direction(constants[at + LAMP_DIRECTION : at + LAMP_DIRECTION + 3])
        length = _ZERO
        for k in range(LAMP_DIRECTION, LAMP_DIRECTION + 3):
            length += constants[at + k] * constants[at + k]
        scale = _ONE / np.sqrt(length) if length > _ZERO else _ZERO
        for k in range(LAMP_DIRECTION, LAMP_DIRECTION + 3):
            constants[at + k] *= scale


@inlined
def _light_run(
    record: int,
    y: int,
    x_from: int,
    x_to: int,
    orthographic: bool,
    far: float,
    scale: float,
    record_floats: F64,
    constants: F32,
    rows: F32,
    lit: F32,
    has_shadows: bool,
) -> None:
    """Write colour times light of the pixels x_from..x_to of row y into `rows`: the body of the two `light_run`.

    `has_shadows` is known when this is compiled, so the one without shadows has no code for them.
    """
    center_y, row = y + 0.5, np.float32(y)
    ax, ay, az = (
        plane_at(record_floats, record, NORMAL, center_y),
        plane_at(record_floats, record, NORMAL + 3, center_y),
        plane_at(record_floats, record, NORMAL + 6, center_y),
    )
    bx, by, bz = (
        np.float32(record_floats[record, NORMAL]),
        np.float32(record_floats[record, NORMAL + 3]),
        np.float32(record_floats[record, NORMAL + 6]),
    )
    key_start, key_slope = plane_at(record_floats, record, KEY, center_y), np.float32(record_floats[record, KEY])
    cx, cy, cz = row_rays(constants, row)
    red, green, blue = (
        np.float32(record_floats[record, COLOR]),
        np.float32(record_floats[record, COLOR + 1]),
        np.float32(record_floats[record, COLOR + 2]),
    )
    glow, mirror, sharp = (
        np.float32(record_floats[record, SHINE]),
        np.float32(record_floats[record, SHINE + 1]),
        np.float32(record_floats[record, SHINE + 2]),
    )
    flat = bx == _ZERO and by == _ZERO and bz == _ZERO
    nx, ny, nz = _unit(floats(ax), floats(ay), floats(az))
    lamps = np.int64(constants[LAMP_COUNT])
    for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
        at = count_from(x)
        if not flat:
            nx, ny, nz = _unit(ax + bx * at, ay + by * at, az + bz * at)
        key = key_start + key_slope * at
        rx, ry, rz = cx + constants[RIGHT] * at, cy + constants[RIGHT + 1] * at, cz + constants[RIGHT + 2] * at
        # Position of the surface, and direction from there to the camera.
        if orthographic:
            depth = far - key
            px, py, pz = (
                rx - depth * constants[BACK] + constants[EYE],
                ry - depth * constants[BACK + 1] + constants[EYE + 1],
                rz - depth * constants[BACK + 2] + constants[EYE + 2],
            )
            vx, vy, vz = floats(constants[BACK]), floats(constants[BACK + 1]), floats(constants[BACK + 2])
        else:
            depth = _ONE / key
            rx, ry, rz = rx - constants[BACK], ry - constants[BACK + 1], rz - constants[BACK + 2]
            px, py, pz = depth * rx + constants[EYE], depth * ry + constants[EYE + 1], depth * rz + constants[EYE + 2]
            vx, vy, vz = _unit(_ZERO - rx, _ZERO - ry, _ZERO - rz)
        viewed = nx * vx + ny * vy + nz * vz
        r, g, b = floats(glow * red), floats(glow * green), floats(glow * blue)
        more_r, more_g, more_b = floats(_ZERO), floats(_ZERO), floats(_ZERO)  # of lamps that cast shadows
        for lamp in range(lamps):
            first = np.uint64(LAMPS + lamp * LAMP_SIZE)
            lx, ly, lz = (
                floats(-constants[first + np.uint64(LAMP_DIRECTION)]),
                floats(-constants[first + np.uint64(LAMP_DIRECTION + 1)]),
                floats(-constants[first + np.uint64(LAMP_DIRECTION + 2)]),
            )
            strength = floats(_ONE)
            if constants[first + np.uint64(LAMP_KIND)] == SPOT:
                lx, ly, lz, strength = _from_spot(constants, first, px, py, pz)
            reached = nx * lx + ny * ly + nz * lz
            facing = maximum(reached, _ZERO)
            mirrored = floats(_ZERO)
            if mirror > _ZERO:
                # (n·(L + V))² / |L + V|²; for unit vectors the divisor is 2 + 2 L·V.
                half = maximum(reached + viewed, _ZERO)
                between = maximum(lx * vx + ly * vy + lz * vz + _ONE, _TINY)
                squared = half * half / (between + between)
                mirrored = where_at_least(reached, _TINY, mirror * _power_of(squared, np.float32(0.5) * sharp), _ZERO)
            shadow = constants[first + np.uint64(LAMP_SHADOW)] if has_shadows else NO_SHADOW
            reaching = floats(_ONE)
            if has_shadows and shadow > ONE_SHADOW:
                reaching = load_floats(lit, np.uint64(shadow - ONE_SHADOW - _ONE) * np.uint64(STRIDE) + x)
            for k in range(3):
                channel = red if k == 0 else (green if k == 1 else blue)
                part = channel * (
                    constants[first + np.uint64(LAMP_AMBIENT + k)]
                    + constants[first + np.uint64(LAMP_DIFFUSE + k)] * facing
                )
                part = strength * (part + constants[first + np.uint64(LAMP_SPECULAR + k)] * mirrored)
                if has_shadows and shadow != NO_SHADOW:
                    part = where_at_least(reached, _TINY, reaching * minimum(part, _ONE), _ZERO)
                    if k == 0:
                        more_r = more_r + part
                    elif k == 1:
                        more_g = more_g + part
                    else:
                        more_b = more_b + part
                elif k == 0:
                    r = r + part
                elif k == 1:
                    g = g + part
                else:
                    b = b + part
        r, g, b = minimum(r, _ONE), minimum(g, _ONE), minimum(b, _ONE)
        if has_shadows:
            r, g, b = r + more_r, g + more_g, b + more_b
        store(rows, RED + x, r * scale)
        store(rows, GREEN + x, g * scale)
        store(rows, BLUE + x, b * scale)


@device_function
def light_run(
    record: int,
    y: int,
    x_from: int,
    x_to: int,
    orthographic: bool,
    far: float,
    scale: float,
    record_floats: F64,
    constants: F32,
    rows: F32,
) -> None:
    """Write colour times light of the pixels x_from..x_to of row y, clamped to 1 and times `scale`, into `rows`."""
    _light_run(
        record, y, x_from, x_to, orthographic, far, scale, record_floats, constants, rows, rows, has_shadows=False
    )


@device_function
def light_run_with_shadows(
    record: int,
    y: int,
    x_from: int,
    x_to: int,
    orthographic: bool,
    far: float,
    scale: float,
    record_floats: F64,
    constants: F32,
    rows: F32,
    lit: F32,
) -> None:
    """Write colour times light of the pixels x_from..x_to of row y in a view with shadows, times `scale`, into `rows`.

    Lamps that cast shadows are clamped to 1 each by itself, the others together. `lit` [maps * STRIDE] is the part of
    their light that reaches the pixels.
    """
    _light_run(record, y, x_from, x_to, orthographic, far, scale, record_floats, constants, rows, lit, has_shadows=True)


@inlined
def _from_spot(
    constants: F32, first: np.uint64, px: Floats, py: Floats, pz: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the direction from a point to the spot whose numbers begin at `first`, and its strength there."""
    lx, ly, lz = (
        constants[first + np.uint64(LAMP_POSITION)] - px,
        constants[first + np.uint64(LAMP_POSITION + 1)] - py,
        constants[first + np.uint64(LAMP_POSITION + 2)] - pz,
    )
    squared = maximum(lx * lx + ly * ly + lz * lz, _TINY)
    length = sqrt(squared)
    inverse = _ONE / length
    lx, ly, lz = lx * inverse, ly * inverse, lz * inverse
    steady, linear, quadratic = (
        constants[first + np.uint64(LAMP_ATTENUATION)],
        constants[first + np.uint64(LAMP_ATTENUATION + 1)],
        constants[first + np.uint64(LAMP_ATTENUATION + 2)],
    )
    strength = floats(_ONE)
    if not (steady == _ONE and linear == _ZERO and quadratic == _ZERO):
        strength = _ONE / (quadratic * squared + linear * length + steady)
    cone = constants[first + np.uint64(LAMP_CONE)]
    if cone > -_ONE:
        ahead = _ZERO - (
            lx * constants[first + np.uint64(LAMP_DIRECTION)]
            + ly * constants[first + np.uint64(LAMP_DIRECTION + 1)]
            + lz * constants[first + np.uint64(LAMP_DIRECTION + 2)]
        )
        narrowed = strength * _power_of(ahead, constants[first + np.uint64(LAMP_EXPONENT)])
        strength = where_at_least(ahead, max(cone, _TINY), narrowed, _ZERO)
    return lx, ly, lz, strength


@inlined
def _unit(x: Floats, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
    scale = _ONE / sqrt(maximum(x * x + y * y + z * z, _TINY))
    return x * scale, y * scale, z * scale


@inlined
def _power_of(base: Floats, exponent: float) -> Floats:
    """Raise 0..1 to a power of 0 or more, to a relative error of 0.001 for exponents up to 128; a negative base is 0.

    32 and 10, to which MuJoCo's defaults lead, are faster than others. Bases are clamped from below, so that results
    stay out of the denormal range, where processors are slow; they are still 0 in 8 bits.
    """
    if exponent == np.float32(32.0):
        return _squared(_squared(_squared(_squared(_squared(maximum(base, np.float32(0.1)))))))
    if exponent == np.float32(10.0):
        held = maximum(base, np.float32(0.001))
        square = held * held
        return _squared(square * square * held)
    return _general_power(base, exponent)


@inlined
def _squared(base: Floats) -> Floats:
    return base * base


@inlined
def _general_power(base: Floats, exponent: float) -> Floats:
    """Raise to any power, by a logarithm and an exponential of base 2."""
    bits = bits_of(maximum(base, _TINY))
    integer_part = to_floats((bits >> np.int32(23)) - np.int32(127))
    part = from_bits((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000))
    # The binary logarithm of 1..2, divided by part - 1: absolute error 9e-6.
    curve = part * np.float32(-0.03459521) + np.float32(0.31940967)
    curve = (curve * part + np.float32(-1.23507624)) * part + np.float32(2.60402449)
    curve = (curve * part + np.float32(-3.32792526)) * part + np.float32(3.1168458)
    height = maximum((integer_part + curve * (part - _ONE)) * exponent, np.float32(-126.0))
    # The exponential of base 2: error 4e-6.
    below = floor(height)
    rest = height - below
    curve = rest * np.float32(0.01368398) + np.float32(0.05171774)
    curve = (curve * rest + np.float32(0.24162132)) * rest + np.float32(0.69296955)
    curve = curve * rest + np.float32(1.0000036)
    return curve * from_bits((to_ints(below) + np.int32(127)) << np.int32(23))
