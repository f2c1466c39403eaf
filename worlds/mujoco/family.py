"""The family `mujoco`: any MuJoCo model, of dm_control's suite, from a directory that the operator allows, or uploaded.

An episode begins in the model's first keyframe, or in its default pose if it has none, with noise if the settings ask
for it. A simulation that becomes unstable ends its episode.

Rewards come from the operator's own code, as functions of many lanes at once:

    from worldloom.worlds.mujoco.family import Mujoco, register_reward
    from worldloom.worlds.mujoco.simulation.data import LaneArrays

    def upright(lanes: LaneArrays) -> np.ndarray:
        return lanes.xmat[:, lanes.model.body("torso").id, 8]

    register_reward("robot.xml", upright)

The server loads a module with this code by the option `--family my_rewards:Mujoco`.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeAlias

import mujoco
import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F64, I64
from worldloom.render.arena import PROCESS_FLOAT64
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.family import Spec, State, StepResult
from worldloom.worlds.mujoco.models.files import load_model
from worldloom.worlds.mujoco.models.uploads import load_uploaded_model
from worldloom.worlds.mujoco.simulation import physics
from worldloom.worlds.mujoco.simulation.data import QPOS, QVEL, SENSORDATA, LaneArrays, ModelOverrides
from worldloom.worlds.mujoco.simulation.family import Outcome, SimulatedFamily, control_spec
from worldloom.worlds.mujoco.simulation.kernels import MUJOCO_ERROR, gather
from worldloom.worlds.random import normal
from worldloom.worlds.settings import Setting, SettingError

Reward: TypeAlias = Callable[[LaneArrays], "np.ndarray | tuple[np.ndarray, np.ndarray]"]
"""Function of lanes after a step that returns their rewards [n], or rewards and whether each episode is over [n]."""

_TASK_NAME = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")
"""Names of the form DOMAIN/TASK, which no model file has."""
_rewards: dict[str, Reward] = {}


def register_reward(model: str, function: Reward) -> None:
    """Set the reward function of a model, named as in the setting `model`, in place of an earlier one."""
    _rewards[model] = function


class Mujoco(SimulatedFamily):
    """Any MuJoCo model. The reward is 0, unless the operator has registered a reward function for the model."""

    name = "mujoco"
    text = "Any MuJoCo model: of a task of dm_control, from a file in a directory that the server allows, or uploaded."
    settings = (
        Setting(
            "model",
            "",
            "The model: an .xml file by its path from --model-dir, or a task of dm_control, such as walker/walk.",
        ),
        Setting("xml", "", "Instead of `model`: the text of the model, MJCF or URDF, if the server takes uploads."),
        Setting("files", b"", "With `xml`: a ZIP archive of the files that the model refers to, by relative paths."),
        Setting("control_steps", 1, "MuJoCo steps in one step, all with the same control.", 1, 10_000),
        Setting("max_steps", 1000, "Steps after which an episode is interrupted.", 1, 1_000_000_000),
        Setting("noise", 0.0, "Standard deviation of the noise in the first positions and velocities.", 0, 1000),
        Setting(
            "drive",
            "control",
            "Meaning of the actions: `control` simulates with them as controls; with `state` they are the state itself "
            "(`qpos`, `mocap_pos`, `mocap_quat`), which is drawn and not simulated.",
            choices=("control", "state"),
        ),
        Setting("colors", False, "With drive `state`: whether the colours of geoms are an action, too (`geom_rgba`)."),
    )

    required_settings = ("model",)

    def __new__(cls, settings: Mapping[str, object], assets: AssetLibrary) -> "Mujoco":
        """Return a family that simulates, or one whose states are set by its actions, as `drive` says."""
        if cls is Mujoco and settings.get("drive") == "state":
            from worldloom.worlds.mujoco.states import StateDrivenMujoco  # a subclass: its module imports this one

            return super().__new__(StateDrivenMujoco)
        return super().__new__(cls)

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        if self.setting_values["colors"] and self.setting_values["drive"] != "state":
            raise SettingError("setting 'colors' is true with the drive 'control': expected it with drive 'state' only")
        name = str(self.setting_values["model"])
        self._use_model(self._load(settings, name), name)

    def _use_model(self, model: mujoco.MjModel, name: str) -> None:
        """Prepare to simulate a model."""
        self.max_steps = int(self.setting_values["max_steps"])
        control_steps = int(self.setting_values["control_steps"])
        self.steps_per_s = 1.0 / (model.opt.timestep * control_steps)
        self.actions = (control_spec(model),) if model.nu else ()
        self._reward = _rewards.get(os.path.normpath(name))
        self._noise = float(self.setting_values["noise"])
        self._calls = physics.step_calls(model, control_steps)
        self._sources = _observation_sources(model)
        self.observations = (
            Spec("qpos", "float64", (model.nq,), "Joint positions."),
            Spec("qvel", "float64", (model.nv,), "Joint velocities."),
            Spec("unstable", "bool", (), "Whether the last step was aborted, which ends the episode."),
            *(
                Spec(name, "float64", (len(elements),), "Sensor reading.")
                for name, (field, elements) in self._sources.items()
                if field == SENSORDATA
            ),
        )
        self._set_model(model, ModelOverrides((), model), physics.DIVERGED, name or "uploaded")

    @classmethod
    def missing_settings(cls, given: Collection[str]) -> list[str]:
        """Return `model` unless it is given, or the text of a model."""
        return [] if "xml" in given else super().missing_settings(given)

    def memory_bytes(self, lanes: int) -> int:
        """Estimate the memory of a pool, with the uploaded model, which is kept for resets with other settings."""
        uploaded = (self.setting_values["xml"], self.setting_values["files"])
        return super().memory_bytes(lanes) + sum(len(value) for value in uploaded if isinstance(value, str | bytes))

    def _load(self, given: Collection[str], name: str) -> mujoco.MjModel:
        """Return the model: that of the setting `model`, or the uploaded one."""
        if "model" in given and ("xml" in given or "files" in given):
            other = "xml" if "xml" in given else "files"
            raise SettingError(
                f"settings 'model' and {other!r} are both given: expected a model of the server or yours"
            )
        if "xml" not in given:
            return _load_task_model(name) if _TASK_NAME.fullmatch(name) else load_model(name)
        xml, files = self.setting_values["xml"], self.setting_values["files"]
        assert isinstance(files, bytes)
        return load_uploaded_model(str(xml), files, self.assets.memory_bytes)

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Begin episodes in the first keyframe, or in the default pose, with noise."""
        model = self._model
        for lane in lanes[state.data_address[lanes] == 0].tolist():
            self._layout.attach(state, lane)
            state.overrides[lane] = self._default_overrides
        self._begin_physics(state, lanes)
        noise = normal(seeds[:, None], np.arange(2 * model.nv)) * self._noise if self._noise else None
        for k, lane in enumerate(lanes.tolist()):
            simulation = state.simulation[lane]
            if model.nkey:
                simulation.call("mj_resetDataKeyframe", 0)
            else:
                simulation.call("mj_resetData")
            simulation.release_statistics()
            if noise is not None:
                mujoco.mj_integratePos(model, simulation.qpos, noise[k, : model.nv], 1.0)
                qvel = simulation.qvel
                qvel += noise[k, model.nv :]
        state.unstable[lanes] = False
        self._run(state, lanes, np.empty((len(lanes), 0)), physics.forward_calls())

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Advance by `control_steps` MuJoCo steps. Episodes whose first state was already unstable end here."""
        controls = np.empty((len(lanes), 0))
        if self.actions:
            controls = np.ascontiguousarray(actions["control"][:, 0], np.float64)
        self._run(state, lanes, controls, self._calls)
        return self._outcomes(state, lanes, partial(self._compute_rewards, state))

    def _compute_rewards(self, state: State, lanes: I64) -> Outcome:
        if self._reward is None:
            return 0.0, False
        result = self._reward(LaneArrays(self._model, state, lanes))
        return result if isinstance(result, tuple) else (result, False)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Return positions, velocities, readings of a sensor, or which lanes are unstable."""
        if name == "unstable":
            return np.asarray(state.unstable[lanes])
        self._ensure_data(state, lanes)
        field, elements = self._sources[name]
        out = np.empty((len(lanes), len(elements)))
        gather(lanes, state.addresses, field, elements, PROCESS_FLOAT64, out)
        return out

    def _run(self, state: State, lanes: I64, controls: F64, calls: I64) -> None:
        """Make the calls, abort the lanes that diverge or fail, and log the warnings of others."""
        faults = self._stepper.run(state, lanes, controls, calls)
        if faults.bits.any():
            is_aborted = (faults.bits & (physics.DIVERGED | MUJOCO_ERROR)) != 0
            self._abort_lanes(state, lanes, faults, is_aborted)
            for k in np.flatnonzero((faults.bits != 0) & ~is_aborted).tolist():
                self._log_once(faults.describe(k), "is less exact than it should be")


def _load_task_model(name: str) -> mujoco.MjModel:
    try:
        from worldloom.worlds.mujoco.dm_control.suite import load_task_model  # takes a second to import
    except ImportError as error:
        raise SettingError(f"setting 'model' is {name!r}, a task of dm_control's suite: {error}") from None
    return load_task_model(name)


def _observation_sources(model: mujoco.MjModel) -> dict[str, tuple[int, I64]]:
    """Return for each observation the field of an MjData that it is read from, and the elements of that."""
    sources = {"qpos": (QPOS, np.arange(model.nq)), "qvel": (QVEL, np.arange(model.nv))}
    for k in range(model.nsensor):
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_SENSOR, k) or str(k)
        sources[f"sensor.{name}"] = (SENSORDATA, model.sensor_adr[k] + np.arange(model.sensor_dim[k]))
    return sources
