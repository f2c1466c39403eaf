"""The lights of a model, as lamps of a lane."""

import math

import mujoco
import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.compiling import inlined
from worldloom.kernels.tables import (
    DIRECTIONAL,
    F32,
    F64,
    HEADLIGHT,
    I32,
    I64,
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
    MAX_LAMPS,
    SPOT,
)

_LIGHT = mujoco.mjtLightType
_DEFAULT_AMBIENT = 0.3
"""Ambient light of a model without any lights."""
_WIDEST_DEGREES = 160.0
"""Widest field of view of a spot's shadows in MuJoCo's renderer."""
_NO_LIGHT = -1
"""Light id of a lamp that is none of the model's lights."""


def read_lamps(model: mujoco.MjModel) -> tuple[F32, I32]:
    """Return the lamps [n, LAMP_SIZE] without positions and directions, and the light id of each lamp, or -1."""
    rows, light_ids = [], []
    head = model.vis.headlight
    if head.active:
        rows.append(_row(HEADLIGHT, head.ambient, head.diffuse, head.specular))
        light_ids.append(_NO_LIGHT)
    # Lights that MuJoCo's renderer does not show count towards its limit of eight all the same.
    active = np.flatnonzero(model.light_active)[: MAX_LAMPS - len(rows)].tolist()
    casts = (model.light_castshadow != 0) & (model.vis.quality.shadowsize > 0)
    for light in active:
        colors = model.light_ambient[light], model.light_diffuse[light], model.light_specular[light]
        if model.light_type[light] == _LIGHT.mjLIGHT_DIRECTIONAL:
            row = _row(DIRECTIONAL, *colors)
            row[LAMP_SHADOW] = model.stat.extent * model.vis.map.shadowclip if casts[light] else 0.0
            rows.append(row)
        elif model.light_type[light] == _LIGHT.mjLIGHT_SPOT:
            row = _row(SPOT, *colors)
            cutoff = float(model.light_cutoff[light])
            row[LAMP_ATTENUATION : LAMP_ATTENUATION + 3] = model.light_attenuation[light]
            row[LAMP_CONE] = math.cos(math.radians(cutoff)) if cutoff <= 90 else -1.0
            row[LAMP_EXPONENT] = model.light_exponent[light]
            # The widest angle at which MuJoCo's shadow maps see something.
            widest = min(2.0 * cutoff * model.vis.map.shadowscale, _WIDEST_DEGREES) / 2.0
            row[LAMP_SHADOW] = math.tan(math.radians(widest)) if casts[light] else 0.0
            rows.append(row)
        else:
            continue
        light_ids.append(light)
    if not rows:
        rows.append(_row(DIRECTIONAL, (_DEFAULT_AMBIENT, _DEFAULT_AMBIENT, _DEFAULT_AMBIENT), (0, 0, 0), (0, 0, 0)))
        light_ids.append(_NO_LIGHT)
    return np.array(rows, np.float32), np.array(light_ids, np.int32)


def describe_omitted_lights(model: mujoco.MjModel) -> list[str]:
    """Describe the lights that have no lamp, for a log line."""
    omitted = []
    active = np.flatnonzero(model.light_active)
    if len(active) + bool(model.vis.headlight.active) > MAX_LAMPS:
        omitted.append(f"lights beyond the first {MAX_LAMPS}")
    if not np.isin(model.light_type[active], (_LIGHT.mjLIGHT_DIRECTIONAL, _LIGHT.mjLIGHT_SPOT)).all():
        omitted.append("point and image lights")
    return omitted


def _row(kind: int, ambient: ArrayLike, diffuse: ArrayLike, specular: ArrayLike) -> F32:
    row = np.zeros(LAMP_SIZE, np.float32)
    row[LAMP_KIND] = kind
    for first, color in ((LAMP_AMBIENT, ambient), (LAMP_DIFFUSE, diffuse), (LAMP_SPECULAR, specular)):
        row[first : first + 3] = np.asarray(color)
    row[LAMP_ATTENUATION], row[LAMP_CONE] = 1.0, -1.0
    return row


@inlined
def write_lamp_poses(
    numbers: F64,
    addresses: I64,
    position_field: int,
    direction_field: int,
    light_ids: I32,
    scene_lanes: I32,
    lamps: F32,
) -> None:
    """Write positions and directions of lamps; `light_ids` is the model's light of each lamp, or -1.

    `addresses` [n, fields] are those of the lanes' arrays in `numbers`, the memory of the process as float64.
    """
    for k in range(scene_lanes.size):
        for lamp in range(light_ids.size):
            if light_ids[lamp] < 0:
                continue
            position = addresses[k, position_field] + 3 * light_ids[lamp]
            direction = addresses[k, direction_field] + 3 * light_ids[lamp]
            for i in range(3):
                lamps[scene_lanes[k], lamp, LAMP_POSITION + i] = numbers[position + i]
                lamps[scene_lanes[k], lamp, LAMP_DIRECTION + i] = numbers[direction + i]
