"""Any model of MuJoCo's, from a file in a directory that the operator allows.

An episode begins in the model's first keyframe, or in its default pose if it has none, with some noise if that is asked
for. Simulations that become unstable end their episode.
"""

import os
from collections.abc import Mapping

import mujoco
import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F64, I64
from worldloom.render.arena import PROCESS_FLOAT64
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.family import Spec, State, StepResult
from worldloom.worlds.mujoco.models.files import load_model
from worldloom.worlds.mujoco.rewards import reward_of
from worldloom.worlds.mujoco.simulation import physics
from worldloom.worlds.mujoco.simulation.data import QPOS, QVEL, SENSORDATA, Changes, Numbers
from worldloom.worlds.mujoco.simulation.family import Simulated, control_spec
from worldloom.worlds.mujoco.simulation.kernels import FAILED, gather
from worldloom.worlds.random import normal
from worldloom.worlds.settings import Setting


class Mujoco(Simulated):
    """Reward a step: 0, unless the operator has registered a reward for the model."""

    name = "mujoco"
    text = "Any MuJoCo model, from a file in a directory that the server allows."
    settings = (
        Setting("model", "", "Which model: an .xml file, named from a directory of --model-dir on."),
        Setting("control_steps", 1, "Steps of the simulation that a step takes, under one control.", 1, 10_000),
        Setting("max_steps", 1000, "Steps after which an episode is interrupted.", 1, 1_000_000_000),
        Setting("noise", 0.0, "Standard deviation of the noise in the first positions and velocities.", 0, 1000),
    )

    required_settings = ("model",)

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        name = str(self.setting_values["model"])
        model = load_model(name)
        self.max_steps = int(self.setting_values["max_steps"])
        self.actions = (control_spec(model),) if model.nu else ()
        self._reward = reward_of(os.path.normpath(name))
        self._noise = float(self.setting_values["noise"])
        self._calls = physics.calls_of_step(model, int(self.setting_values["control_steps"]))
        self._places = _places(model)
        self.observations = (
            Spec("qpos", "float64", (model.nq,), "The positions of the joints."),
            Spec("qvel", "float64", (model.nv,), "The velocities of the joints."),
            Spec("unstable", "bool", (), "Whether the last step was given up, which ends the episode."),
            *(
                Spec(name, "float64", (len(picks),), "What the sensor reads.")
                for name, (field, picks) in self._places.items()
                if field == SENSORDATA
            ),
        )
        self._take_model(model, Changes((), model), physics.BAD, name)

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """The first keyframe, or the default pose; and noise."""
        model = self._model
        for lane in lanes[state.data[lanes] == 0].tolist():
            physics.take(state, lane, mujoco.MjData(model))
        noise = normal(seeds[:, None], np.arange(2 * model.nv)) * self._noise if self._noise else None
        for k, lane in enumerate(lanes.tolist()):
            data = state.simulation[lane]
            if model.nkey:
                mujoco.mj_resetDataKeyframe(model, data, 0)
            else:
                mujoco.mj_resetData(model, data)
            if noise is not None:
                mujoco.mj_integratePos(model, data.qpos, noise[k, : model.nv], 1.0)
                data.qvel += noise[k, model.nv :]
        state.unstable[lanes] = False
        self._run(state, lanes, np.empty((len(lanes), 0)), physics.calls_of_start())

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Some steps of the simulation. One that could not even begin ends here."""
        controls = np.empty((len(lanes), 0))
        if self.actions:
            controls = np.ascontiguousarray(actions["control"][:, 0], np.float64)
        self._run(state, lanes, controls, self._calls)
        gone = state.unstable[lanes]
        reward, ended = np.zeros(len(lanes)), gone.copy()
        if self._reward is not None and not gone.all():
            judged = self._reward(Numbers(self._model, state, lanes[~gone]))
            if isinstance(judged, tuple):
                judged, ended[~gone] = judged
            reward[~gone] = judged
        return StepResult(reward[:, None], ended)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Positions, velocities, or what a sensor reads."""
        if name == "unstable":
            return np.asarray(state.unstable[lanes])
        self._make_sure(state, lanes)
        field, picks = self._places[name]
        out = np.empty((len(lanes), len(picks)))
        gather(lanes, state.places, field, picks, PROCESS_FLOAT64, out)
        return out

    def _run(self, state: State, lanes: I64, controls: F64, calls: I64) -> None:
        """Make the calls; lanes that they are too much for are given up."""
        alarms = self._stepper.run(state, lanes, controls, calls)
        if alarms.bits.any():
            grave = (alarms.bits & (physics.BAD | FAILED)) != 0
            self._give_up(state, lanes, alarms, grave)
            for k in np.flatnonzero((alarms.bits != 0) & ~grave).tolist():
                self._say(alarms.words(k), "is not as exact as it should be")


def _places(model: mujoco.MjModel) -> dict[str, tuple[int, I64]]:
    """Where each observation is: the field of an MjData, and the numbers of it."""
    found = {"qpos": (QPOS, np.arange(model.nq)), "qvel": (QVEL, np.arange(model.nv))}
    for k in range(model.nsensor):
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_SENSOR, k) or str(k)
        found[f"sensor.{name}"] = (SENSORDATA, model.sensor_adr[k] + np.arange(model.sensor_dim[k]))
    return found
