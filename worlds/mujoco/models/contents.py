"""The contents of a model: which of its elements are drawn, how segmentation labels them, and what is not drawn."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.models.appearance import Material, Shape, material_of, shape_of
from worldloom.worlds.mujoco.models.cameras import has_unusual_intrinsics
from worldloom.worlds.mujoco.models.lights import describe_omitted_lights

DRAWN_GROUPS = 3
"""Geoms, sites, tendons and skins of groups below this are drawn, as MuJoCo does by default."""
MAX_LABELS = 255
"""Most labels besides the sky's: a label is a byte."""


class DrawnObject(NamedTuple):
    """A geom or site that is drawn."""

    kind: str
    """`geom` or `site`."""
    id: int
    is_static: bool
    """True if it never moves."""

    def shape(self, model: mujoco.MjModel) -> Shape:
        """Return its shape in a model."""
        if self.kind == "geom":
            return shape_of(int(model.geom_type[self.id]), model.geom_size[self.id], int(model.geom_dataid[self.id]))
        return shape_of(int(model.site_type[self.id]), model.site_size[self.id], -1)

    def material(self, model: mujoco.MjModel) -> Material:
        """Return its material in a model."""
        if self.kind == "geom":
            return material_of(model, int(model.geom_matid[self.id]), model.geom_rgba[self.id])
        return material_of(model, int(model.site_matid[self.id]), model.site_rgba[self.id])


def list_drawn_objects(model: mujoco.MjModel, task_placed: Collection[str]) -> list[DrawnObject]:
    """Return the geoms, then the sites, that are drawn, by id; those with labels in `task_placed` are not static."""
    objects = []
    for kind, groups, bodies in (
        ("geom", model.geom_group, model.geom_bodyid),
        ("site", model.site_group, model.site_bodyid),
    ):
        for id_ in np.flatnonzero(groups < DRAWN_GROUPS).tolist():
            is_static = _is_static(model, int(bodies[id_])) and label_of(model, kind, id_) not in task_placed
            objects.append(DrawnObject(kind, id_, is_static))
    return [drawn for drawn in objects if drawn.material(model).rgba[3] > 0]


def find_task_placed(
    model: mujoco.MjModel, positions: Sequence[tuple[F64, F64]], height_fields_differ: bool
) -> set[str]:
    """Return the labels of geoms and sites whose position differs between episodes.

    `positions` are those of all geoms and all sites when each of several episodes began. Height fields are included if
    `height_fields_differ`.
    """
    labels = set()
    for kind, of_kind in (("geom", [geoms for geoms, _ in positions]), ("site", [sites for _, sites in positions])):
        has_moved = np.ptp(np.array(of_kind), axis=0).any(axis=1)
        if kind == "geom" and height_fields_differ:
            has_moved |= model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD
        labels |= {label_of(model, kind, id_) for id_ in np.flatnonzero(has_moved).tolist()}
    return labels


def list_drawn_tendons(model: mujoco.MjModel) -> list[int]:
    """Return the ids of the spatial tendons that are drawn."""
    is_spatial = model.wrap_type[model.tendon_adr] != mujoco.mjtWrap.mjWRAP_JOINT
    is_drawn = is_spatial & (model.tendon_group < DRAWN_GROUPS)
    return [
        tendon
        for tendon in np.flatnonzero(is_drawn).tolist()
        if material_of(model, int(model.tendon_matid[tendon]), model.tendon_rgba[tendon]).rgba[3] > 0
    ]


def label_of(model: mujoco.MjModel, kind: str, id_: int) -> str:
    """Return the segmentation label of an element: its kind and its name, or its id if it has no name."""
    name = {"geom": model.geom, "site": model.site, "skin": model.skin, "tendon": model.tendon}[kind](id_).name
    return f"{kind}.{name or id_}"


def assign_labels(names: list[str]) -> tuple[tuple[str, ...], list[int]]:
    """Return all labels, the sky's first, and the label number of each name; beyond MAX_LABELS they share the last."""
    if len(names) <= MAX_LABELS:
        return ("sky", *names), list(range(1, len(names) + 1))
    rest = len(names) - MAX_LABELS
    labels = ("sky", *names[: MAX_LABELS - 1], f"{names[MAX_LABELS - 1]} and {rest} more")
    return labels, [min(number, MAX_LABELS) for number in range(1, len(names) + 1)]


def describe_not_drawn(model: mujoco.MjModel) -> tuple[str, ...]:
    """Describe what a model has that is not drawn, or not as MuJoCo draws it, for a log line."""
    found = []
    if _has_reflections(model):
        found.append("reflections")
    if _has_haze(model):
        found.append("haze")
    if model.nskin:
        found.append("smooth bending of skins")
    if model.nflex:
        found.append("flexes")
    if np.any(model.actuator_trntype == mujoco.mjtTrn.mjTRN_SLIDERCRANK):
        found.append("slider-cranks")
    if np.any(model.sensor_type == mujoco.mjtSensor.mjSENS_RANGEFINDER):
        found.append("rays of rangefinders")
    if has_unusual_intrinsics(model):
        found.append("camera intrinsics: principal points off the centre or pixels that are not square")
    return (*found, *describe_omitted_lights(model))


def _is_static(model: mujoco.MjModel, body: int) -> bool:
    """Return whether a body never moves: it is welded to the world and not part of a mocap body."""
    return bool(model.body_weldid[body] == 0 and model.body_mocapid[model.body_rootid[body]] < 0)


def _has_reflections(model: mujoco.MjModel) -> bool:
    reflecting = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_BOX)
    with_material = np.isin(model.geom_type, reflecting) & (model.geom_matid >= 0) & (model.geom_group < DRAWN_GROUPS)
    return bool((model.mat_reflectance[model.geom_matid[with_material]] > 0).any()) if model.nmat else False


def _has_haze(model: mujoco.MjModel) -> bool:
    """Return whether MuJoCo draws haze: it does where an infinite plane meets a sky box."""
    is_plane = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    return bool((is_plane & (model.geom_size[:, :2] == 0).all(axis=1)).any()) and bool(
        (model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).any()
    )
