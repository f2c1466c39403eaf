"""What a model has that is not drawn, or not as MuJoCo would, in words for a log line."""

import mujoco
import numpy as np

from worldloom.worlds.mujoco.models import lamps
from worldloom.worlds.mujoco.models.cameras import off_centre
from worldloom.worlds.mujoco.models.contents import SHOWN_GROUPS, Thing

SOLID_ALPHA = 0.5
"""What is less opaque is not drawn; what is more, is drawn as if it were solid."""
_OPAQUE = 0.995
"""From here on MuJoCo takes things for opaque."""


def not_drawn(model: mujoco.MjModel, things: list[Thing]) -> tuple[str, ...]:
    """What is left out of the pictures of this model."""
    finishes = [thing.finish(model) for thing in things]
    faint = sum(finish.rgba[3] < SOLID_ALPHA for finish in finishes)
    glassy = sum(SOLID_ALPHA <= finish.rgba[3] < _OPAQUE for finish in finishes)
    words = []
    if faint:
        words.append(f"{faint} thing{'s' if faint > 1 else ''} less than half opaque")
    if glassy:
        words.append(f"that {glassy} thing{'s' if glassy > 1 else ''} can be seen through")
    if _reflects(model):
        words.append("reflections")
    if np.any(model.light_castshadow[model.light_active.astype(bool)]):
        words.append("shadows")
    if _has_endless_plane(model):
        words.append("haze")
    if model.nskin:
        words.append("the bending of skins")
    if model.nflex:
        words.append("flexes")
    if np.any(model.actuator_trntype == mujoco.mjtTrn.mjTRN_SLIDERCRANK):
        words.append("slider-cranks")
    if np.any(model.sensor_type == mujoco.mjtSensor.mjSENS_RANGEFINDER):
        words.append("rays of rangefinders")
    if off_centre(model):
        words.append("that cameras have lenses off their centre")
    return (*words, *lamps.left_out(model))


def _reflects(model: mujoco.MjModel) -> bool:
    mirrors = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_BOX)
    with_material = np.isin(model.geom_type, mirrors) & (model.geom_matid >= 0) & (model.geom_group < SHOWN_GROUPS)
    return bool((model.mat_reflectance[model.geom_matid[with_material]] > 0).any()) if model.nmat else False


def _has_endless_plane(model: mujoco.MjModel) -> bool:
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    return bool((planes & (model.geom_size[:, :2] == 0).all(axis=1)).any()) and bool(
        (model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).any()
    )
