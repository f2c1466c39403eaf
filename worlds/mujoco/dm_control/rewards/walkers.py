"""Judges of the tasks that walk, run and hop."""

from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.dm_control.rewards.base import XX, XZ, ZX, ZY, ZZ, Judge, bell, norm, tolerance
from worldloom.worlds.mujoco.dm_control.suite import suite
from worldloom.worlds.mujoco.simulation.data import Numbers

_ENDLESS = float("inf")


def small_control(lanes: Numbers) -> F64:
    """How little the controls do, from 0 to 1: the mean over the actuators."""
    effort = tolerance(lanes.ctrl, margin=1, value_at_margin=0, sigmoid="quadratic")
    return np.asarray(effort.mean(axis=1))


class Walker(Judge):
    """Stand, walk, run."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._torso = model.body("torso").id
        self._speed = self.sensor("torso_subtreelinvel")[0]
        self.observations |= {
            "orientations": lambda lanes: lanes.xmat[:, 1:, [XX, XZ]].reshape(len(lanes), -1),
            "height": lambda lanes: lanes.xpos[:, self._torso, 2],
        }

    def reward(self, lanes: Numbers) -> F64:
        """High, upright, and fast enough."""
        high = suite.walker._STAND_HEIGHT
        standing = bell(lanes.xpos[:, self._torso, 2], high, _ENDLESS, high / 2)
        upright = (1 + lanes.xmat[:, self._torso, ZZ]) / 2
        stand = (3 * standing + upright) / 4
        speed = self.task._move_speed
        if speed == 0:
            return stand
        moving = tolerance(
            lanes.sensordata[:, self._speed],
            bounds=(speed, _ENDLESS),
            margin=speed / 2,
            value_at_margin=0.5,
            sigmoid="linear",
        )
        return stand * (5 * moving + 1) / 6


class Humanoid(Judge):
    """Stand, walk, run."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._head, self._torso = model.body("head").id, model.body("torso").id
        self._limbs = [model.body(side + limb).id for side in ("left_", "right_") for limb in ("hand", "foot")]
        self._com = self.sensor("torso_subtreelinvel")
        self.observations |= {
            "position": lambda lanes: lanes.qpos,
            "joint_angles": lambda lanes: lanes.qpos[:, 7:],
            "head_height": lambda lanes: lanes.xpos[:, self._head, 2],
            "extremities": self._extremities,
            "torso_vertical": lambda lanes: lanes.xmat[:, self._torso, [ZX, ZY, ZZ]],
            "com_velocity": lambda lanes: lanes.sensordata[:, self._com],
        }

    def reward(self, lanes: Numbers) -> F64:
        """High, upright, with little effort, and fast enough or at rest."""
        high = suite.humanoid._STAND_HEIGHT
        standing = bell(lanes.xpos[:, self._head, 2], high, _ENDLESS, high / 4)
        upright = tolerance(
            lanes.xmat[:, self._torso, ZZ], bounds=(0.9, _ENDLESS), sigmoid="linear", margin=1.9, value_at_margin=0
        )
        stand = standing * upright
        effort = (4 + small_control(lanes)) / 5
        along = lanes.sensordata[:, self._com[:2]]
        speed = self.task._move_speed
        if speed == 0:
            at_rest = tolerance(along, margin=2)
            return np.asarray(effort * stand * at_rest.mean(axis=1))
        moving = tolerance(norm(along), bounds=(speed, _ENDLESS), margin=speed, value_at_margin=0, sigmoid="linear")
        return effort * stand * ((5 * moving + 1) / 6)

    def _extremities(self, lanes: Numbers) -> F64:
        frame = lanes.xmat[:, self._torso].reshape(len(lanes), 3, 3)
        places = lanes.xpos
        away = [np.ascontiguousarray(places[:, limb] - places[:, self._torso]) for limb in self._limbs]
        return np.concatenate([np.matmul(one[:, None], frame)[:, 0] for one in away], axis=1)


class Cheetah(Judge):
    """Run."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._speed = self.sensor("torso_subtreelinvel")[0]
        self.observations["position"] = lambda lanes: lanes.qpos[:, 1:]

    def reward(self, lanes: Numbers) -> F64:
        """Fast."""
        fast = suite.cheetah._RUN_SPEED
        return tolerance(
            lanes.sensordata[:, self._speed],
            bounds=(fast, _ENDLESS),
            margin=fast,
            value_at_margin=0,
            sigmoid="linear",
        )


class Hopper(Judge):
    """Stand, hop."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._torso, self._foot = model.body("torso").id, model.body("foot").id
        self._speed = self.sensor("torso_subtreelinvel")[0]
        self._touch = self.sensor("touch_toe", "touch_heel")
        self.observations |= {
            "position": lambda lanes: lanes.qpos[:, 1:],
            "touch": lambda lanes: np.log1p(lanes.sensordata[:, self._touch]),
        }

    def reward(self, lanes: Numbers) -> F64:
        """High, and fast enough or with little effort."""
        centres = lanes.xipos[:, :, 2]
        standing = tolerance(centres[:, self._torso] - centres[:, self._foot], (suite.hopper._STAND_HEIGHT, 2))
        if not self.task._hopping:
            return standing * ((small_control(lanes) + 4) / 5)
        fast = suite.hopper._HOP_SPEED
        return standing * tolerance(
            lanes.sensordata[:, self._speed],
            bounds=(fast, _ENDLESS),
            margin=fast / 2,
            value_at_margin=0.5,
            sigmoid="linear",
        )


JUDGES: dict[type, type[Judge]] = {
    suite.walker.PlanarWalker: Walker,
    suite.humanoid.Humanoid: Humanoid,
    suite.cheetah.Cheetah: Cheetah,
    suite.hopper.Hopper: Hopper,
}
"""By the class of the task."""
