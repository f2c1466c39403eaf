"""Light from lamps: worked out for each pixel, eight at a time, from where the pixel is and how its surface lies there.

Lanes without lamps have light that depends on the normal alone, see `runs.py`.
"""

import numpy as np

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.intrinsics import store
from worldloom.kernels.raster.scratch import (
    BACK,
    BLOCK,
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
    plane_at,
)
from worldloom.kernels.simd import (
    Floats,
    bits_of,
    count_from,
    floats,
    floor,
    from_bits,
    greatest,
    least,
    root,
    to_floats,
    to_ints,
    where_from,
)
from worldloom.kernels.tables import (
    F32,
    F64,
    HEAD,
    LAMP_AMBIENT,
    LAMP_CONE,
    LAMP_DIFFUSE,
    LAMP_DIRECTION,
    LAMP_EXPONENT,
    LAMP_FADING,
    LAMP_KIND,
    LAMP_NUMBERS,
    LAMP_POSITION,
    LAMP_SPECULAR,
    SPOT,
    LaneTable,
    ViewTable,
)

_ZERO, _ONE, _TINY = np.float32(0.0), np.float32(1.0), np.float32(1e-30)


@called
def read_lamps(lanes: LaneTable, lane: int, views: ViewTable, view: int, look: F32) -> None:
    """Gather a lane's lamps, and the rays of a view's pixels, into `look`."""
    camera = views.camera
    pixel = np.float32(2.0) * views.half_height[view] / np.float32(views.height[view])
    first_x = np.float32(0.5 - 0.5 * views.width[view]) * pixel
    first_y = np.float32(0.5 * views.height[view] - 0.5) * pixel
    for k in range(3):
        right, up = camera[view, k, 0], camera[view, k, 1]
        look[CORNER + k] = right * first_x + up * first_y
        look[RIGHT + k] = right * pixel
        look[DOWN + k] = -up * pixel
        look[BACK + k] = camera[view, k, 2]
        look[EYE + k] = camera[view, k, 3]
    look[LAMP_COUNT] = lanes.lamp_count[lane]
    for lamp in range(lanes.lamp_count[lane]):
        at = LAMPS + lamp * LAMP_NUMBERS
        for k in range(LAMP_NUMBERS):
            look[at + k] = lanes.lamps[lane, lamp, k]
        length = _ZERO
        for k in range(LAMP_DIRECTION, LAMP_DIRECTION + 3):
            if look[at + LAMP_KIND] == HEAD:
                look[at + k] = -camera[view, k - LAMP_DIRECTION, 2]
            length += look[at + k] * look[at + k]
        scale = _ONE / np.sqrt(length) if length > _ZERO else _ZERO
        for k in range(LAMP_DIRECTION, LAMP_DIRECTION + 3):
            look[at + k] *= scale


@called
def light_run(
    number: int,
    y: int,
    x_from: int,
    x_to: int,
    orthographic: bool,
    far: float,
    scale: float,
    real: F64,
    look: F32,
    rows: F32,
) -> None:
    """Colour times light of the pixels x_from..x_to of row y, held to 1 and times `scale`, into the row buffers."""
    center_y, row = y + 0.5, np.float32(y)
    ax, ay, az = (
        plane_at(real, number, NORMAL, center_y),
        plane_at(real, number, NORMAL + 3, center_y),
        plane_at(real, number, NORMAL + 6, center_y),
    )
    bx, by, bz = (
        np.float32(real[number, NORMAL]),
        np.float32(real[number, NORMAL + 3]),
        np.float32(real[number, NORMAL + 6]),
    )
    key_start, key_slope = plane_at(real, number, KEY, center_y), np.float32(real[number, KEY])
    cx, cy, cz = (
        look[CORNER] + row * look[DOWN],
        look[CORNER + 1] + row * look[DOWN + 1],
        look[CORNER + 2] + row * look[DOWN + 2],
    )
    red, green, blue = (
        np.float32(real[number, COLOR]),
        np.float32(real[number, COLOR + 1]),
        np.float32(real[number, COLOR + 2]),
    )
    glow, mirror, sharp = (
        np.float32(real[number, SHINE]),
        np.float32(real[number, SHINE + 1]),
        np.float32(real[number, SHINE + 2]),
    )
    flat = bx == _ZERO and by == _ZERO and bz == _ZERO
    nx, ny, nz = _unit(floats(ax), floats(ay), floats(az))
    lamps = np.int64(look[LAMP_COUNT])
    for x in range(x_from, x_to, np.uint64(BLOCK)):
        at = count_from(x)
        if not flat:
            nx, ny, nz = _unit(ax + bx * at, ay + by * at, az + bz * at)
        key = key_start + key_slope * at
        rx, ry, rz = cx + look[RIGHT] * at, cy + look[RIGHT + 1] * at, cz + look[RIGHT + 2] * at
        # Where the surface is, and the way from there to the viewer.
        if orthographic:
            depth = far - key
            px, py, pz = (
                rx - depth * look[BACK] + look[EYE],
                ry - depth * look[BACK + 1] + look[EYE + 1],
                rz - depth * look[BACK + 2] + look[EYE + 2],
            )
            vx, vy, vz = floats(look[BACK]), floats(look[BACK + 1]), floats(look[BACK + 2])
        else:
            depth = _ONE / key
            rx, ry, rz = rx - look[BACK], ry - look[BACK + 1], rz - look[BACK + 2]
            px, py, pz = depth * rx + look[EYE], depth * ry + look[EYE + 1], depth * rz + look[EYE + 2]
            vx, vy, vz = _unit(_ZERO - rx, _ZERO - ry, _ZERO - rz)
        viewed = nx * vx + ny * vy + nz * vz
        r, g, b = floats(glow * red), floats(glow * green), floats(glow * blue)
        for lamp in range(lamps):
            first = np.uint64(LAMPS + lamp * LAMP_NUMBERS)
            lx, ly, lz = (
                floats(-look[first + np.uint64(LAMP_DIRECTION)]),
                floats(-look[first + np.uint64(LAMP_DIRECTION + 1)]),
                floats(-look[first + np.uint64(LAMP_DIRECTION + 2)]),
            )
            strength = floats(_ONE)
            if look[first + np.uint64(LAMP_KIND)] == SPOT:
                lx, ly, lz, strength = _from_spot(look, first, px, py, pz)
            reached = nx * lx + ny * ly + nz * lz
            facing = greatest(reached, _ZERO)
            mirrored = floats(_ZERO)
            if mirror > _ZERO:
                # n·(L + V), squared, over |L + V| squared: that of unit vectors is 2 + 2 L·V.
                half = greatest(reached + viewed, _ZERO)
                between = greatest(lx * vx + ly * vy + lz * vz + _ONE, _TINY)
                squared = half * half / (between + between)
                mirrored = where_from(reached, _TINY, mirror * _raised(squared, np.float32(0.5) * sharp), _ZERO)
            for k in range(3):
                channel = red if k == 0 else (green if k == 1 else blue)
                part = channel * (
                    look[first + np.uint64(LAMP_AMBIENT + k)] + look[first + np.uint64(LAMP_DIFFUSE + k)] * facing
                )
                part = strength * (part + look[first + np.uint64(LAMP_SPECULAR + k)] * mirrored)
                if k == 0:
                    r = r + part
                elif k == 1:
                    g = g + part
                else:
                    b = b + part
        store(rows, RED + x, least(r, _ONE) * scale)
        store(rows, GREEN + x, least(g, _ONE) * scale)
        store(rows, BLUE + x, least(b, _ONE) * scale)


@inlined
def _from_spot(
    look: F32, first: np.uint64, px: Floats, py: Floats, pz: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """The way from a point to the lamp whose numbers begin at `first`, and how much of its light comes there."""
    lx, ly, lz = (
        look[first + np.uint64(LAMP_POSITION)] - px,
        look[first + np.uint64(LAMP_POSITION + 1)] - py,
        look[first + np.uint64(LAMP_POSITION + 2)] - pz,
    )
    squared = greatest(lx * lx + ly * ly + lz * lz, _TINY)
    length = root(squared)
    inverse = _ONE / length
    lx, ly, lz = lx * inverse, ly * inverse, lz * inverse
    steady, linear, quadratic = (
        look[first + np.uint64(LAMP_FADING)],
        look[first + np.uint64(LAMP_FADING + 1)],
        look[first + np.uint64(LAMP_FADING + 2)],
    )
    strength = floats(_ONE)
    if not (steady == _ONE and linear == _ZERO and quadratic == _ZERO):
        strength = _ONE / (quadratic * squared + linear * length + steady)
    cone = look[first + np.uint64(LAMP_CONE)]
    if cone > -_ONE:
        ahead = _ZERO - (
            lx * look[first + np.uint64(LAMP_DIRECTION)]
            + ly * look[first + np.uint64(LAMP_DIRECTION + 1)]
            + lz * look[first + np.uint64(LAMP_DIRECTION + 2)]
        )
        narrowed = strength * _raised(ahead, look[first + np.uint64(LAMP_EXPONENT)])
        strength = where_from(ahead, max(cone, _TINY), narrowed, _ZERO)
    return lx, ly, lz, strength


@inlined
def _unit(x: Floats, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
    scale = _ONE / root(greatest(x * x + y * y + z * z, _TINY))
    return x * scale, y * scale, z * scale


@inlined
def _raised(base: Floats, exponent: float) -> Floats:
    """0..1 to the power of 0 or more; what is below 0 counts as 0. To a thousandth of itself for exponents up to 128.

    What models mostly have, since it is MuJoCo's default, is quicker. Very small numbers are held back before they get
    so small that processors slow down; the power is 0 for all that can be seen.
    """
    if exponent == np.float32(32.0):
        return _squared(_squared(_squared(_squared(_squared(greatest(base, np.float32(0.1)))))))
    if exponent == np.float32(10.0):
        held = greatest(base, np.float32(0.001))
        square = held * held
        return _squared(square * square * held)
    return _power(base, exponent)


@inlined
def _squared(base: Floats) -> Floats:
    return base * base


@inlined
def _power(base: Floats, exponent: float) -> Floats:
    """The same for any exponent."""
    bits = bits_of(greatest(base, _TINY))
    whole = to_floats((bits >> np.int32(23)) - np.int32(127))
    part = from_bits((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000))
    # The logarithm of 1..2, to 9e-6.
    curve = part * np.float32(-0.03459521) + np.float32(0.31940967)
    curve = (curve * part + np.float32(-1.23507624)) * part + np.float32(2.60402449)
    curve = (curve * part + np.float32(-3.32792526)) * part + np.float32(3.1168458)
    height = greatest((whole + curve * (part - _ONE)) * exponent, np.float32(-126.0))
    # And back again, to 4e-6.
    below = floor(height)
    rest = height - below
    curve = rest * np.float32(0.01368398) + np.float32(0.05171774)
    curve = (curve * rest + np.float32(0.24162132)) * rest + np.float32(0.69296955)
    curve = curve * rest + np.float32(1.0000036)
    return curve * from_bits((to_ints(below) + np.int32(127)) << np.int32(23))
