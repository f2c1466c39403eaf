"""Tendons that run through space, as tubes and balls of a lane's rows."""

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, I32, I64
from worldloom.render.arena import PROCESS_FLOAT64, PROCESS_INT32, address_of, float64_index_of
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.models.appearance import PLAIN
from worldloom.worlds.mujoco.models.contents import shown_tendons
from worldloom.worlds.mujoco.models.tendon_kernels import (
    BALLS,
    COLOR,
    FIRST_ROW,
    LENGTH,
    LIMIT_COLOR,
    LIMIT_ROPE,
    LOWER,
    MARGIN,
    NO_ROPE,
    ROPE,
    SOFT,
    SPRING_ROPE,
    TENDON,
    TENDON_NUMBERS,
    TINTED,
    TUBES,
    UPPER,
    WIDTH,
    dress_tendons,
)
from worldloom.worlds.mujoco.simulation.data import QPOS, WRAP_XPOS

_WRAP = mujoco.mjtWrap
_MOST_ROPE_POINTS = 100
_IMPEDANCE = (0.0001, 0.9999)
"""What MuJoCo holds a limit's impedance to."""


class Tendons:
    """The tendons of a model that are shown, and the rows they need."""

    def __init__(self, model: mujoco.MjModel, first_row: int) -> None:
        self.shown = shown_tendons(model)
        self._table = np.zeros((len(self.shown), 6), np.int32)
        self._values = np.zeros((len(self.shown), TENDON_NUMBERS))
        self._gravity = np.array(model.opt.gravity, np.float64)
        self.rows = 0
        for place, tendon in enumerate(self.shown):
            rope = _rope(model, tendon)
            ways = _most_points(model, tendon)
            tubes = max(ways - 1, min(int(model.vis.quality.numslices), _MOST_ROPE_POINTS - 1) if rope else 0)
            self._table[place, [TENDON, FIRST_ROW, TUBES, BALLS]] = tendon, first_row + self.rows, tubes, ways
            self._table[place, [ROPE, TINTED]] = rope, _is_tinted(model, tendon)
            self._values[place] = _values(model, tendon, rope)
            self.rows += tubes + ways
        self._offsets = _offsets(model) if self.shown else (0, 0, 0, 0)

    def rows_of(self, place: int) -> tuple[slice, slice]:
        """The rows of one of those shown: its tubes, its balls."""
        first, tubes, balls = (int(number) for number in self._table[place, [FIRST_ROW, TUBES, BALLS]])
        return slice(first, first + tubes), slice(first + tubes, first + tubes + balls)

    def dress(self, places: I64, scene: Scene, scene_lanes: I32) -> None:
        """Where they run now."""
        if not self.shown:
            return
        lengths, firsts, counts, objects = self._offsets
        dress_tendons(
            PROCESS_FLOAT64,
            PROCESS_INT32,
            places,
            WRAP_XPOS,
            QPOS,
            lengths,
            firsts,
            counts,
            objects,
            self._table,
            self._values,
            self._gravity,
            scene_lanes,
            scene.lanes.first_row,
            scene.instances.pose,
            scene.instances.color,
        )


def _offsets(model: mujoco.MjModel) -> tuple[int, int, int, int]:
    """Where a simulation keeps its tendons' lengths, as numbers from its qpos on, and their ways, as integers.

    All arrays of an MjData lie in one block of memory, at distances that depend on nothing but the model.
    """
    data = mujoco.MjData(model)
    anchor = address_of(data.qpos)
    firsts, counts, objects = (
        (address_of(array) - anchor) // PROCESS_INT32.itemsize
        for array in (data.ten_wrapadr, data.ten_wrapnum, data.wrap_obj)
    )
    return float64_index_of(data.ten_length) - float64_index_of(data.qpos), firsts, counts, objects


def _most_points(model: mujoco.MjModel, tendon: int) -> int:
    """How many points the way of a tendon has at most: two on everything that it may wind around."""
    first, count = int(model.tendon_adr[tendon]), int(model.tendon_num[tendon])
    wraps = model.wrap_type[first : first + count]
    return count + int(np.isin(wraps, (_WRAP.mjWRAP_SPHERE, _WRAP.mjWRAP_CYLINDER)).sum())


def _rope(model: mujoco.MjModel, tendon: int) -> int:
    """Whether MuJoCo lets a tendon hang, and by which of its lengths: it has two ends and nothing else to hold it."""
    gravity_is_off = bool(model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY) or not model.opt.gravity.any()
    is_pulled = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON) & (model.actuator_trnid[:, 0] == tendon)
    damped = model.tendon_damping[tendon] or model.tendon_dampingpoly[tendon].any() or model.tendon_frictionloss[tendon]
    if gravity_is_off or damped or is_pulled.any() or model.tendon_num[tendon] != 2:
        return NO_ROPE
    if model.tendon_stiffness[tendon] or model.tendon_stiffnesspoly[tendon].any():
        shortest, longest = model.tendon_lengthspring[tendon]
        return SPRING_ROPE if shortest == 0 < longest else NO_ROPE
    return LIMIT_ROPE if model.tendon_limited[tendon] and model.tendon_range[tendon, 0] == 0 else NO_ROPE


def _is_tinted(model: mujoco.MjModel, tendon: int) -> bool:
    """Whether its colour shows how hard its limits press: one that nobody has given it."""
    plain = tuple(model.tendon_rgba[tendon].tolist()) == PLAIN
    return bool(model.tendon_limited[tendon]) and plain and bool(model.tendon_matid[tendon] < 0)


def _values(model: mujoco.MjModel, tendon: int, rope: int) -> F64:
    values = np.zeros(TENDON_NUMBERS)
    values[WIDTH], values[MARGIN] = model.tendon_width[tendon], model.tendon_margin[tendon]
    values[LOWER], values[UPPER] = model.tendon_range[tendon]
    values[LENGTH] = model.tendon_lengthspring[tendon, 1] if rope == SPRING_ROPE else values[UPPER]
    values[SOFT : SOFT + 5] = model.tendon_solimp_lim[tendon]
    values[SOFT : SOFT + 2] = np.clip(values[SOFT : SOFT + 2], *_IMPEDANCE)
    values[COLOR : COLOR + 3] = model.tendon_rgba[tendon, :3]
    values[LIMIT_COLOR : LIMIT_COLOR + 3] = model.vis.rgba.constraint[:3]
    return values
