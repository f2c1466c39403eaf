"""The lights of a model as lamps of a lane."""

import math

import mujoco
import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import (
    DIRECTIONAL,
    F32,
    HEADLIGHT,
    I32,
    LAMP_AMBIENT,
    LAMP_ATTENUATION,
    LAMP_CONE,
    LAMP_DIFFUSE,
    LAMP_EXPONENT,
    LAMP_KIND,
    LAMP_SIZE,
    LAMP_SPECULAR,
    MAX_LAMPS,
    SPOT,
)

_LIGHT = mujoco.mjtLightType
_ALONE = 0.3
"""How bright it is everywhere in a model without any light."""
_NO_LIGHT = -1
"""The number of the model's light that a lamp is, if it is none of them."""


def lamps_of(model: mujoco.MjModel) -> tuple[F32, I32]:
    """The lamps [n, LAMP_SIZE] but for where they are, and which of the model's lights each is, or -1."""
    rows, lights = [], []
    head = model.vis.headlight
    if head.active:
        rows.append(_row(HEADLIGHT, head.ambient, head.diffuse, head.specular))
        lights.append(_NO_LIGHT)
    # Lights that OpenGL cannot show take up one of its eight places all the same.
    active = np.flatnonzero(model.light_active)[: MAX_LAMPS - len(rows)].tolist()
    for light in active:
        colors = model.light_ambient[light], model.light_diffuse[light], model.light_specular[light]
        if model.light_type[light] == _LIGHT.mjLIGHT_DIRECTIONAL:
            rows.append(_row(DIRECTIONAL, *colors))
        elif model.light_type[light] == _LIGHT.mjLIGHT_SPOT:
            row = _row(SPOT, *colors)
            cutoff = float(model.light_cutoff[light])
            row[LAMP_ATTENUATION : LAMP_ATTENUATION + 3] = model.light_attenuation[light]
            row[LAMP_CONE] = math.cos(math.radians(cutoff)) if cutoff <= 90 else -1.0
            row[LAMP_EXPONENT] = model.light_exponent[light]
            rows.append(row)
        else:
            continue
        lights.append(light)
    if not rows:
        rows.append(_row(DIRECTIONAL, (_ALONE, _ALONE, _ALONE), (0, 0, 0), (0, 0, 0)))
        lights.append(_NO_LIGHT)
    return np.array(rows, np.float32), np.array(lights, np.int32)


def left_out(model: mujoco.MjModel) -> list[str]:
    """In words, the lights that are not among the lamps."""
    words = []
    active = np.flatnonzero(model.light_active)
    if len(active) + bool(model.vis.headlight.active) > MAX_LAMPS:
        words.append(f"lights beyond the first {MAX_LAMPS}")
    if not np.isin(model.light_type[active], (_LIGHT.mjLIGHT_DIRECTIONAL, _LIGHT.mjLIGHT_SPOT)).all():
        words.append("point and image lights")
    return words


def _row(kind: int, ambient: ArrayLike, diffuse: ArrayLike, specular: ArrayLike) -> F32:
    row = np.zeros(LAMP_SIZE, np.float32)
    row[LAMP_KIND] = kind
    for first, color in ((LAMP_AMBIENT, ambient), (LAMP_DIFFUSE, diffuse), (LAMP_SPECULAR, specular)):
        row[first : first + 3] = np.asarray(color)
    row[LAMP_ATTENUATION], row[LAMP_CONE] = 1.0, -1.0
    return row
