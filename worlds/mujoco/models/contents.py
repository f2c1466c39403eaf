"""What of a model is shown, and what segmentation calls it."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.models.appearance import Finish, Form, finish_of, form_of

SHOWN_GROUPS = 3
"""Of geoms, sites and tendons: those of the groups below are shown, as MuJoCo does by default."""
MOST_LABELS = 255
"""Besides the sky's: a label is a byte."""


class Thing(NamedTuple):
    """A geom or a site."""

    kind: str
    """`geom` or `site`."""
    number: int
    is_still: bool

    def form(self, model: mujoco.MjModel) -> Form:
        """What it is shaped like."""
        if self.kind == "geom":
            n = self.number
            return form_of(int(model.geom_type[n]), model.geom_size[n], int(model.geom_dataid[n]))
        return form_of(int(model.site_type[self.number]), model.site_size[self.number], -1)

    def finish(self, model: mujoco.MjModel) -> Finish:
        """What its surface is like."""
        if self.kind == "geom":
            return finish_of(model, int(model.geom_matid[self.number]), model.geom_rgba[self.number])
        return finish_of(model, int(model.site_matid[self.number]), model.site_rgba[self.number])


def shown_things(model: mujoco.MjModel, restless: Collection[str]) -> list[Thing]:
    """Geoms and sites that are shown, in the order of their numbers; `restless` are labels of what is never still."""
    things = []
    for kind, groups, bodies in (
        ("geom", model.geom_group, model.geom_bodyid),
        ("site", model.site_group, model.site_bodyid),
    ):
        for number in np.flatnonzero(groups < SHOWN_GROUPS).tolist():
            is_still = _is_still(model, int(bodies[number])) and label_of(model, kind, number) not in restless
            things.append(Thing(kind, number, is_still))
    return [thing for thing in things if thing.finish(model).rgba[3] > 0]


def elsewhere(model: mujoco.MjModel, seen: Sequence[tuple[F64, F64]], fields_differ: bool) -> set[str]:
    """Labels of geoms and sites that are not in the same place each time; `seen` are positions of both, several times.

    Height fields are among them where they are not the same each time.
    """
    labels = set()
    for kind, places in (("geom", [geoms for geoms, _ in seen]), ("site", [sites for _, sites in seen])):
        moved = np.ptp(np.array(places), axis=0).any(axis=1)
        if kind == "geom" and fields_differ:
            moved |= model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD
        labels |= {label_of(model, kind, number) for number in np.flatnonzero(moved).tolist()}
    return labels


def shown_tendons(model: mujoco.MjModel) -> list[int]:
    """Tendons that run through space and are shown."""
    spatial = model.wrap_type[model.tendon_adr] != mujoco.mjtWrap.mjWRAP_JOINT
    shown = spatial & (model.tendon_group < SHOWN_GROUPS)
    return [
        tendon
        for tendon in np.flatnonzero(shown).tolist()
        if finish_of(model, int(model.tendon_matid[tendon]), model.tendon_rgba[tendon]).rgba[3] > 0
    ]


def label_of(model: mujoco.MjModel, kind: str, number: int) -> str:
    """What segmentation calls a thing: its kind and its name, or its number if it has none."""
    name = {"geom": model.geom, "site": model.site, "skin": model.skin, "tendon": model.tendon}[kind](number).name
    return f"{kind}.{name or number}"


def share_labels(names: list[str]) -> tuple[tuple[str, ...], list[int]]:
    """The labels, the sky's first, and which of them each of these things gets: the last is shared if need be."""
    if len(names) <= MOST_LABELS:
        return ("sky", *names), list(range(1, len(names) + 1))
    rest = len(names) - MOST_LABELS
    labels = ("sky", *names[: MOST_LABELS - 1], f"{names[MOST_LABELS - 1]} and {rest} more")
    return labels, [min(place, MOST_LABELS) for place in range(1, len(names) + 1)]


def _is_still(model: mujoco.MjModel, body: int) -> bool:
    """Whether a body never moves: it hangs on the world and nobody carries it."""
    return bool(model.body_weldid[body] == 0 and model.body_mocapid[model.body_rootid[body]] < 0)
