"""What the families of MuJoCo worlds share: lanes that have a simulation each, and how these are seen."""

import logging
from collections.abc import Collection, Mapping

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import Bound, CameraPlacement, Family, Spec, State
from worldloom.worlds.mujoco.models.scene import Looks
from worldloom.worlds.mujoco.simulation import physics
from worldloom.worlds.mujoco.simulation.data import Changes
from worldloom.worlds.mujoco.simulation.kernels import FAILED
from worldloom.worlds.mujoco.simulation.physics import Alarms, Stepper

log = logging.getLogger("worldloom.worlds")


class Simulated(Family):
    """A family whose lanes are simulations of one model, or of copies of it that differ in numbers only."""

    labels: tuple[str, ...] = ("sky",)
    reward_dtype = "float64"

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self._told: set[str] = set()

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """A lane's simulation, and its own part of the model; whether it was given up in this episode; and whether its
        scene's rows say all that does not move."""
        own = ("uint8", (self._changes.size_bytes,))
        return {**physics.STATE, "own": own, "unstable": ("bool", ()), "furnished": ("bool", ())}

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Where a camera of the model is now."""
        self._make_sure(state, lanes)
        return self._looks.look(state.places[lanes], camera)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """What does not move where that is new, then what moves."""
        self._make_sure(state, lanes)
        bare = ~state.furnished[lanes]
        if bare.any():
            self._furnish(state, lanes[bare], scene, scene_lanes[bare])
            state.furnished[lanes] = True
        self._looks.dress(state.places[lanes], scene, scene_lanes)

    def _take_model(
        self, model: mujoco.MjModel, changes: Changes, grave: int, what: str, restless: Collection[str] = ()
    ) -> None:
        """Take in a model, what of it is a lane's own, and the alarms that end an episode; `what` is its name.

        `restless` are labels of what does not move in an episode and is elsewhere in the next.
        """
        self._model, self._changes, self._what = model, changes, what
        self._first = changes.read(model)
        self._stepper = Stepper(model, changes, grave)
        self._looks = Looks(model, self.assets, restless)
        self.rows_per_lane = self._looks.rows_per_lane
        self.static_rows = self._looks.static_rows
        self.labels = self._looks.labels
        self.cameras = self._looks.cameras
        if self._looks.not_drawn and what not in _told_of and len(_told_of) < _MOST_TOLD:
            _told_of.add(what)
            log.info("%s has what is not drawn: %s", what, ", ".join(self._looks.not_drawn))

    def _furnish(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        if not self._changes.size_bytes:
            self._looks.furnish(scene, scene_lanes)
            return
        for lane, scene_lane in zip(lanes.tolist(), scene_lanes.tolist(), strict=True):
            self._changes.write(state.own[lane], self._model)
            self._looks.furnish(scene, np.array([scene_lane], np.int32), self._model)

    def _make_sure(self, state: State, lanes: I64) -> None:
        """Lanes that have not begun yet can be seen, too: as the model stands when nothing has happened."""
        for lane in lanes[state.data[lanes] == 0]:
            data = mujoco.MjData(self._model)
            self._rest(data)
            physics.take(state, lane, data)
            state.own[lane] = self._first

    def _rest(self, data: mujoco.MjData) -> None:
        """A simulation as it stands when nothing has happened, and where everything is then."""
        mujoco.mj_resetData(self._model, data)
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_camlight(self._model, data)

    def _give_up(self, state: State, lanes: I64, alarms: Alarms, gone: np.ndarray) -> None:
        """Episodes of some lanes end: their simulations are made fit to be looked at, and the log says why."""
        state.unstable[lanes[gone]] = True
        for k in np.flatnonzero(gone).tolist():
            if alarms.bits[k] & FAILED:
                self._rest(state.simulation[lanes[k]])
            self._say(alarms.words(k))

    def _say(self, why: str, what: str = "was given up, which ends its episode") -> None:
        """Tell the log what happened to a simulation; once for each reason."""
        if why not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(why)
            log.warning("a simulation of %s %s: %s", self._what, what, why)


_MOST_TOLD = 32
"""Reasons, and models, that the log says something of; whatever comes then is left out."""
_told_of: set[str] = set()
"""Models of which it was said what is not drawn."""


def control_spec(model: mujoco.MjModel) -> Spec:
    """The action of a model: a number for each actuator, in its range if it has one."""
    names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, k) or f"#{k}" for k in range(model.nu)]
    limited = model.actuator_ctrllimited.astype(bool)
    low = np.where(limited, model.actuator_ctrlrange[:, 0], -np.inf)
    high = np.where(limited, model.actuator_ctrlrange[:, 1], np.inf)
    text = f"A number for each actuator: {', '.join(names)}." if names else "There are no actuators."
    return Spec("control", "float64", (model.nu,), text, _bound(low), _bound(high))


def _bound(values: F64) -> Bound:
    """A bound as specs have it: one for all elements where they agree, none where none limits."""
    if not len(values) or np.isinf(values).all():
        return None
    return float(values[0]) if (values == values[0]).all() else tuple(values.tolist())
