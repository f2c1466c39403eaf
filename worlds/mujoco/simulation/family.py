"""Base class of the families of MuJoCo worlds: one simulation per lane, and how it is drawn."""

import logging
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TypeAlias

import mujoco
import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import F64, I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import Bound, CameraPlacement, Family, LaneErrors, Spec, State, StepResult
from worldloom.worlds.mujoco.models.scene import ModelScene
from worldloom.worlds.mujoco.simulation.data import ModelOverrides
from worldloom.worlds.mujoco.simulation.kernels import MUJOCO_ERROR
from worldloom.worlds.mujoco.simulation.library import STATE, DataLayout, Simulation
from worldloom.worlds.mujoco.simulation.physics import LaneStepper, StepFaults
from worldloom.worlds.mujoco.simulation.variation import PhysicsVariation, physical_counts

log = logging.getLogger("worldloom.worlds")

Outcome: TypeAlias = tuple[ArrayLike, ArrayLike]
"""Rewards of lanes, and which of their episodes are over."""

_MAX_LOGGED = 32
"""Most reasons, and most models, that the log mentions; further ones are not logged."""
_logged_models: set[str] = set()
"""Models whose elements that are not drawn have been logged."""

_CONSTRAINTS_PER_GEOM, _JACOBIANS = 4, 2
"""Expected contents of a simulation's arena: constraints for each geom, and copies of their Jacobian."""
_LANE_BYTES = 40 << 10
"""All else of a lane: pages that are not full, the struct of its simulation, the task and its random generator."""
_MODEL_COPIES, _FAMILY_BYTES = 1.25, 16 << 20
"""Memory of a family without lanes: its model and what is made of it, and Python objects."""


class SimulatedFamily(Family):
    """A family whose lanes are simulations of one model, or of copies of it that differ in values of some arrays."""

    _stepper: LaneStepper
    labels: tuple[str, ...] = ("sky",)
    reward_dtype = "float64"

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self._logged_reasons: set[str] = set()
        self._variation: PhysicsVariation | None = None

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the state of a lane: its simulation, its model bytes, the scales of its instance rows, and two flags.

        `unstable`: the simulation was aborted in this episode. `is_static_written`: the lane's instance rows in the
        scene hold everything that does not move.
        """
        varied: dict[str, tuple[str, tuple[int, ...]]] = {}
        if self._variation is not None:
            base = ("uint8", (self._overrides.size_bytes,))
            varied = {"physics": ("float64", (self._variation.length,)), "base": base, "has_base": ("bool", ())}
        return {
            **varied,
            **STATE,
            "overrides": ("uint8", (self._overrides.size_bytes,)),
            "scales": ("float32", (self.rows_per_lane, 3)),
            "unstable": ("bool", ()),
            "is_static_written": ("bool", ()),
        }

    def memory_bytes(self, lanes: int) -> int:
        """Estimate the memory of a pool: the model, and for each lane its simulation and its own meshes."""
        layout, model = self._layout, self._model
        # Constraints and their Jacobians take most of what is used of an arena: some contacts for each geom.
        constraints = _CONSTRAINTS_PER_GEOM * model.ngeom + model.nv
        arena_bytes = min(int(model.narena), _JACOBIANS * constraints * model.nv * 8)
        lane_bytes = layout.buffer_bytes + arena_bytes + _LANE_BYTES
        return int(super().memory_bytes(lanes) + self._family_bytes() + lanes * (lane_bytes + self._mesh_bytes))

    def physical_counts(self) -> dict[str, int]:
        """Return what can vary in the model."""
        return physical_counts(self._model)

    def vary_physics(self, amounts: Mapping[str, float]) -> None:
        """Have the model's parameters vary between lanes, by arrays that each lane has its own values of."""
        self._variation = PhysicsVariation(self._model, amounts)
        names = {*self._overrides.names, *self._variation.names}
        self.use_overrides(ModelOverrides(names, self._model))

    def use_overrides(self, overrides: ModelOverrides) -> None:
        """Keep these arrays of the model by lane."""
        self._overrides = overrides
        self._default_overrides = overrides.read(self._model)
        self._stepper = LaneStepper(self._model, overrides, self._stepper.fatal)

    def _begin_physics(self, state: State, lanes: I64) -> None:
        """Apply what was drawn for lanes whose episode begins; the bytes of new ones are those of their model."""
        if self._variation is None:
            return
        for lane in lanes.tolist():
            if not state.has_base[lane]:
                state.base[lane], state.has_base[lane] = state.overrides[lane], True
            state.overrides[lane] = self._variation.vary(
                self._overrides, state.overrides[lane], state.base[lane], state.physics[lane]
            )

    def _family_bytes(self) -> float:
        """Estimate the memory of a family without lanes."""
        return _MODEL_COPIES * int(self._model.nbuffer) + _FAMILY_BYTES

    @cached_property
    def _mesh_bytes(self) -> int:
        """Memory of the meshes that each lane has for itself."""
        return self._scene.memory_bytes(self._overrides.has_height_fields)

    def free(self, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Free the meshes of height fields of these lanes."""
        self._scene.free(scene, scene_lanes)

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return the current pose and projection of one of the model's cameras."""
        self._ensure_data(state, lanes)
        return self._scene.place_camera(state.addresses[lanes], camera)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write what does not move into rows that lack it, then the poses of what moves."""
        self._ensure_data(state, lanes)
        is_new = ~state.is_static_written[lanes]
        if is_new.any():
            self._write_static(state, lanes[is_new], scene, scene_lanes[is_new])
            state.is_static_written[lanes] = True
        self._scene.write_poses(state.addresses[lanes], state.scales, lanes, scene, scene_lanes)

    def _outcomes(self, state: State, lanes: I64, compute: Callable[[I64], Outcome]) -> StepResult:
        """Return the result of a step whose physics has run; `compute` returns the outcome of lanes.

        Aborted lanes get reward 0 and end. The physics cannot be run again: if `compute` fails, it is called for each
        lane alone, and LaneErrors tells for which ones it fails.
        """
        is_aborted = state.unstable[lanes]
        reward, terminated = np.zeros(len(lanes)), is_aborted.copy()
        errors: dict[int, Exception] = {}

        def write(chosen: I64) -> None:
            reward[chosen], terminated[chosen] = compute(lanes[chosen])

        chosen = np.flatnonzero(~is_aborted)
        try:
            if len(chosen):
                write(chosen)
        except Exception:
            for index in chosen.tolist():
                try:
                    write(np.array([index]))
                except Exception as error:
                    errors[index] = error
        result = StepResult(reward[:, None], terminated)
        if errors:
            raise LaneErrors(result, errors)
        return result

    def _set_model(
        self,
        model: mujoco.MjModel,
        overrides: ModelOverrides,
        fatal: int,
        model_name: str,
        task_placed: Collection[str] = (),
        eye: mujoco.MjvCamera | None = None,
    ) -> None:
        """Import the model of all lanes; `fatal` are the fault bits that abort a step.

        `task_placed`: labels of geoms and sites that do not move in an episode, but have another position in the next.
        `eye` defines the camera of that name.
        """
        self._overrides = overrides
        self._default_overrides = overrides.read(model)
        self._layout = DataLayout(model)
        self._stepper = LaneStepper(model, overrides, fatal)
        self._set_scene(model, ModelScene(model, self.assets, task_placed, eye), model_name)

    def _set_scene(self, model: mujoco.MjModel, scene: ModelScene, model_name: str) -> None:
        """Draw lanes with this scene of their model."""
        self._model, self._scene, self._model_name = model, scene, model_name
        self.rows_per_lane = self._scene.rows_per_lane
        self.static_rows = self._scene.static_rows
        self.labels = self._scene.labels
        self.row_groups = self._scene.row_groups
        self.cameras = self._scene.cameras
        if self._scene.not_drawn and model_name not in _logged_models and len(_logged_models) < _MAX_LOGGED:
            _logged_models.add(model_name)
            log.info("model %s: not drawn: %s", model_name, ", ".join(self._scene.not_drawn))

    def _write_static(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        if not self._overrides.size_bytes:
            self._scene.write_static(state.scales, lanes, scene, scene_lanes)
            return
        for k, lane in enumerate(lanes.tolist()):
            self._overrides.write(state.overrides[lane], self._model)
            one = slice(k, k + 1)
            self._scene.write_static(state.scales, lanes[one], scene, scene_lanes[one], self._model)
        self._overrides.write(self._default_overrides, self._model)  # which rewards of other lanes may read

    def _ensure_data(self, state: State, lanes: I64) -> None:
        """Give lanes without a first episode an MjData in the default pose, so that they can be drawn and observed."""
        for lane in lanes[state.data_address[lanes] == 0]:
            self._reset_to_default(self._layout.attach(state, lane))
            state.overrides[lane] = self._default_overrides

    def _reset_to_default(self, simulation: Simulation) -> None:
        """Reset a simulation to the default pose and compute all positions."""
        for name in ("mj_resetData", "mj_kinematics", "mj_camlight"):
            simulation.call(name)
        simulation.release_statistics()

    def _abort_lanes(self, state: State, lanes: I64, faults: StepFaults, is_aborted: np.ndarray) -> None:
        """Mark lanes as unstable, make their simulations fit to be drawn, and log the reasons."""
        state.unstable[lanes[is_aborted]] = True
        for k in np.flatnonzero(is_aborted).tolist():
            if faults.bits[k] & MUJOCO_ERROR:
                self._reset_to_default(state.simulation[lanes[k]])
            self._log_once(faults.describe(k))

    def _log_once(self, reason: str, consequence: str = "was aborted, which ends its episode") -> None:
        """Log what happened to a simulation, once for each reason."""
        if reason not in self._logged_reasons and len(self._logged_reasons) < _MAX_LOGGED:
            self._logged_reasons.add(reason)
            log.warning("a simulation of %s %s: %s", self._model_name, consequence, reason)


def control_spec(model: mujoco.MjModel) -> Spec:
    """Return the action of a model: a number for each actuator, in the actuator's range if it has one."""
    names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, k) or f"#{k}" for k in range(model.nu)]
    is_limited = model.actuator_ctrllimited.astype(bool)
    low = np.where(is_limited, model.actuator_ctrlrange[:, 0], -np.inf)
    high = np.where(is_limited, model.actuator_ctrlrange[:, 1], np.inf)
    text = f"A number for each actuator: {', '.join(names)}." if names else "There are no actuators."
    return Spec("control", "float64", (model.nu,), text, _bound(low), _bound(high))


def _bound(values: F64) -> Bound:
    """Return a bound as Spec has it: one number if all elements agree, None if no element is limited."""
    if not len(values) or np.isinf(values).all():
        return None
    return float(values[0]) if (values == values[0]).all() else tuple(values.tolist())
