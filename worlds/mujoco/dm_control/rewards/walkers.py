"""Rewards of the tasks with legs: walker, humanoid, cheetah and hopper."""

from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.dm_control.rewards.base import (
    XX,
    XZ,
    ZX,
    ZY,
    ZZ,
    TaskRewards,
    gaussian_tolerance,
    sensor_columns,
    small_control,
    tolerance,
)
from worldloom.worlds.mujoco.dm_control.suite import suite
from worldloom.worlds.mujoco.simulation.arithmetic import norm
from worldloom.worlds.mujoco.simulation.data import Columns, LaneArrays

_INFINITY = float("inf")


class Walker(TaskRewards):
    """Walker: stand, walk, run."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._torso = model.body("torso").id
        speed = sensor_columns(model, "torso_subtreelinvel")[0]
        self._columns = Columns(model, ("xpos", self._torso, 2), ("xmat", self._torso, ZZ), ("sensordata", speed))
        self.observations |= {
            "orientations": lambda lanes: lanes.xmat[:, 1:, [XX, XZ]].reshape(len(lanes), -1),
            "height": lambda lanes: lanes.xpos[:, self._torso, 2],
        }

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a high and upright torso and, if the task has a speed, moving that fast."""
        height, cosine, velocity = lanes.columns(self._columns)
        standing = gaussian_tolerance(height, (suite.walker._STAND_HEIGHT, _INFINITY), suite.walker._STAND_HEIGHT / 2)
        upright = (1 + cosine) / 2
        stand: F64 = (3 * standing + upright) / 4
        speed = self.task._move_speed
        if speed == 0:
            return stand
        moving = tolerance(velocity, (speed, _INFINITY), margin=speed / 2, value_at_margin=0.5, sigmoid="linear")
        return stand * (5 * moving + 1) / 6


class Humanoid(TaskRewards):
    """Humanoid: stand, walk, run."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._head, self._torso = model.body("head").id, model.body("torso").id
        self._limbs = [model.body(side + limb).id for side in ("left_", "right_") for limb in ("hand", "foot")]
        self._com_velocity = sensor_columns(model, "torso_subtreelinvel")
        self._columns = Columns(model, ("xpos", self._head, 2), ("xmat", self._torso, ZZ))
        self.observations |= {
            "position": lambda lanes: lanes.qpos,
            "joint_angles": lambda lanes: lanes.qpos[:, 7:],
            "head_height": lambda lanes: lanes.xpos[:, self._head, 2],
            "extremities": self._extremities,
            "torso_vertical": lambda lanes: lanes.xmat[:, self._torso, [ZX, ZY, ZZ]],
            "com_velocity": lambda lanes: lanes.sensordata[:, self._com_velocity],
        }

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a high head, an upright torso, little control, and the speed of the task or standing still."""
        height, cosine = lanes.columns(self._columns)
        least_height = suite.humanoid._STAND_HEIGHT
        standing = gaussian_tolerance(height, (least_height, _INFINITY), least_height / 4)
        upright = tolerance(cosine, (0.9, _INFINITY), sigmoid="linear", margin=1.9, value_at_margin=0)
        stand = standing * upright
        effort = (4 + small_control(lanes)) / 5
        velocity = lanes.sensordata[:, self._com_velocity[:2]]
        speed = self.task._move_speed
        if speed == 0:
            at_rest = tolerance(velocity, margin=2)
            return np.asarray(effort * stand * at_rest.mean(axis=1))
        moving = tolerance(norm(velocity), bounds=(speed, _INFINITY), margin=speed, value_at_margin=0, sigmoid="linear")
        return effort * stand * ((5 * moving + 1) / 6)

    def _extremities(self, lanes: LaneArrays) -> F64:
        torso_frame = lanes.xmat[:, self._torso].reshape(len(lanes), 3, 3)
        positions = lanes.xpos
        offsets = [np.ascontiguousarray(positions[:, limb] - positions[:, self._torso]) for limb in self._limbs]
        return np.concatenate([np.matmul(offset[:, None], torso_frame)[:, 0] for offset in offsets], axis=1)


class Cheetah(TaskRewards):
    """Cheetah: run."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._columns = Columns(model, ("sensordata", sensor_columns(model, "torso_subtreelinvel")[0]))
        self.observations["position"] = lambda lanes: lanes.qpos[:, 1:]

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward speed."""
        (velocity,), speed = lanes.columns(self._columns), suite.cheetah._RUN_SPEED
        return tolerance(velocity, (speed, _INFINITY), margin=speed, value_at_margin=0, sigmoid="linear")


class Hopper(TaskRewards):
    """Hopper: stand, hop."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        torso, foot = model.body("torso").id, model.body("foot").id
        speed = sensor_columns(model, "torso_subtreelinvel")[0]
        self._columns = Columns(model, ("xipos", torso, 2), ("xipos", foot, 2), ("sensordata", speed))
        self._touch = sensor_columns(model, "touch_toe", "touch_heel")
        self.observations |= {
            "position": lambda lanes: lanes.qpos[:, 1:],
            "touch": lambda lanes: np.log1p(lanes.sensordata[:, self._touch]),
        }

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a high torso, and speed or little control."""
        torso, foot, velocity = lanes.columns(self._columns)
        standing = tolerance(torso - foot, (suite.hopper._STAND_HEIGHT, 2))
        if not self.task._hopping:
            return standing * ((small_control(lanes) + 4) / 5)
        speed = suite.hopper._HOP_SPEED
        moving = tolerance(velocity, (speed, _INFINITY), margin=speed / 2, value_at_margin=0.5, sigmoid="linear")
        return standing * moving


WALKER_REWARDS: dict[type, type[TaskRewards]] = {
    suite.walker.PlanarWalker: Walker,
    suite.humanoid.Humanoid: Humanoid,
    suite.cheetah.Cheetah: Cheetah,
    suite.hopper.Hopper: Hopper,
}
"""Vectorised rewards by the class of dm_control's task."""
