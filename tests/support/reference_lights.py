"""Light and sky of the reference renderer: the rules of docs/rendering.md for lamps and sky boxes, in plain NumPy.

As in `reference_renderer.py`, points are relative to the camera along the axes of the world, in float64.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import (
    HEADLIGHT,
    LAMP_AMBIENT,
    LAMP_ATTENUATION,
    LAMP_CONE,
    LAMP_DIFFUSE,
    LAMP_DIRECTION,
    LAMP_EXPONENT,
    LAMP_KIND,
    LAMP_POSITION,
    LAMP_SPECULAR,
    ONE_SKY,
    SCREEN_SKY,
    SPOT,
    AssetTable,
    LaneTable,
)

F64: TypeAlias = NDArray[np.float64]
Int: TypeAlias = NDArray[np.int64]

# By the longest axis of a direction (s, t, r): the axis that runs to the right on the face it meets, the one that runs
# down, and their signs; first where the longest axis is above 0, then where it is below.
FACES = (
    ((2, -1), (1, -1)),
    ((2, 1), (1, -1)),
    ((0, 1), (2, 1)),
    ((0, 1), (2, -1)),
    ((0, 1), (1, -1)),
    ((0, -1), (1, -1)),
)


def daylight(look: LaneTable, normal: F64, lit: F64) -> F64:
    """Return the light on surfaces [n] of a lane without lamps; `lit` [n] is the part of the sun that reaches them."""
    ambient = mix(look.ambient_ground, look.ambient, 0.5 + 0.5 * normal[:, 2:])
    facing = lit * np.maximum(0, -normal @ unit(look.light_direction))
    return np.asarray(ambient + look.light_color * facing[:, None])


def lamplight(
    look: LaneTable,
    eye: F64,
    forward: F64,
    point: F64,
    to_viewer: F64,
    normal: F64,
    color: F64,
    shine: F64,
    lit: dict[int, F64],
) -> F64:
    """Return the colours [n, 3] under a lane's lamps, without a texture.

    `lit` has the part [n] of each lamp that casts shadows, by number, that reaches the surfaces.
    """
    emission, mirror, sharpness = shine.T[:, :, None]
    light, of_casting = emission * color, np.zeros(color.shape)
    for number, lamp in enumerate(look.lamps[: int(look.lamp_count)]):
        direction = forward if lamp[LAMP_KIND] == HEADLIGHT else lamp[LAMP_DIRECTION : LAMP_DIRECTION + 3]
        to_lamp, strength = np.broadcast_to(-unit(direction), point.shape), np.ones((len(point), 1))
        if lamp[LAMP_KIND] == SPOT:
            away = lamp[LAMP_POSITION : LAMP_POSITION + 3] - eye - point
            to_lamp, strength = unit(away), _strength(lamp, away)
        ambient, diffuse, specular = (lamp[first : first + 3] for first in (LAMP_AMBIENT, LAMP_DIFFUSE, LAMP_SPECULAR))
        facing = dot(normal, to_lamp)[:, None]
        glance = np.maximum(0, dot(normal, unit(to_lamp + to_viewer)))[:, None] ** sharpness
        part = strength * (
            ambient * color
            + diffuse * color * np.maximum(0, facing)
            + specular * mirror * np.where(facing > 0, glance, 0)
        )
        if number in lit:
            of_casting = of_casting + lit[number][:, None] * np.where(facing > 0, np.minimum(1, part), 0)
        else:
            light = light + part
    return np.asarray(np.minimum(1, light) + of_casting)


def _strength(lamp: F64, away: F64) -> F64:
    """Return the strength [n, 1] of a lamp at a distance and an angle to its direction."""
    distance = np.linalg.norm(away, axis=1, keepdims=True)
    strength = 1 / (lamp[LAMP_ATTENUATION : LAMP_ATTENUATION + 3] * distance ** np.arange(3)).sum(axis=1, keepdims=True)
    if lamp[LAMP_CONE] > -1:
        along = -dot(unit(away), unit(lamp[LAMP_DIRECTION : LAMP_DIRECTION + 3]))[:, None]
        inside = (along >= lamp[LAMP_CONE]) & (along > 0)
        strength = strength * np.where(inside, np.maximum(0, along) ** lamp[LAMP_EXPONENT], 0)
    return np.asarray(strength)


def sky_box(table: AssetTable, first: int, rays: F64, pixel: float) -> F64:
    """Return the colours [n, 3] of a sky box along these rays; a pixel is `pixel` high at depth 1.

    `first` is the first of its textures, or ONE_SKY or SCREEN_SKY less the only one.
    """
    x, y, z = rays.T
    axes = np.stack([x, z, -y])
    longest = abs(axes).argmax(axis=0)
    face = 2 * longest + (axes[longest, np.arange(len(rays))] < 0)
    smallest = len(table.mip_first_texel) - 1
    level = int(np.clip(np.floor(np.log2(pixel * table.texture_size / 2) + 0.5), 0, smallest))
    side = table.texture_size >> level
    colors = np.zeros((len(rays), 3))
    for number, ((right, right_sign), (down, down_sign)) in enumerate(FACES):
        here = face == number
        across = np.stack([right_sign * axes[right, here], down_sign * axes[down, here]], axis=1)
        uv = 0.5 + 0.5 * across / abs(axes[number // 2, here])[:, None]
        at = np.clip(uv * side, 0.5, side - 0.5)
        texture = first + number if first >= 0 else (SCREEN_SKY if first <= SCREEN_SKY else ONE_SKY) - first
        colors[here] = bilinear(table, np.full(here.sum(), texture), np.full(here.sum(), level), at)
    return colors


def bilinear(table: AssetTable, texture: NDArray[Any], level: Int, at: F64) -> F64:
    """Return the colours [n, 3] of repeating textures at positions [n, 2] in texels of a level."""
    size = table.texture_size >> level
    low = np.floor(at - 0.5).astype(np.int64)
    part = at - 0.5 - low
    color = np.zeros((len(at), 3))
    for du, dv in ((0, 0), (1, 0), (0, 1), (1, 1)):
        u, v = (low[:, 0] + du) % size, (low[:, 1] + dv) % size
        packed = table.texels[texture, table.mip_first_texel[level] + v * size + u]
        share = abs(1 - du - part[:, :1]) * abs(1 - dv - part[:, 1:])
        color += share * (packed[:, None] >> np.array([0, 8, 16], np.uint32) & 255) / 255
    return color


def dot(left: F64, right: F64) -> F64:
    """Return the dot products of rows."""
    return np.asarray((left * right).sum(axis=-1))


def mix(first: NDArray[Any], second: NDArray[Any], part: F64) -> F64:
    """Interpolate: `first` where `part` is 0, `second` where it is 1."""
    return np.asarray(first * (1 - part) + second * part)


def unit(vectors: NDArray[Any]) -> F64:
    """Normalise vectors; a vector of length 0 stays as it is."""
    exact = np.asarray(vectors, np.float64)
    return np.asarray(exact / np.maximum(np.linalg.norm(exact, axis=-1, keepdims=True), 1e-300))
