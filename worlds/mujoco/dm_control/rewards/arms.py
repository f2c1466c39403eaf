"""Rewards of the tasks without legs: cartpole, acrobot, pendulum, ball in cup, reacher, point mass and finger."""

from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.dm_control.rewards.base import (
    XZ,
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


class Cartpole(TaskRewards):
    """Cartpole: balance or swing up one pole or several."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._cart = model.joint("slider").qposadr[0]
        self._columns = Columns(
            model,
            *(("qpos", self._cart), ("ctrl", 0)),
            *(("xmat", body, ZZ) for body in range(2, model.nbody)),
            *(("qvel", joint) for joint in range(1, model.nv)),
        )
        self._poles = model.nbody - 2
        self.observations["position"] = self._position

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward upright poles and a centred cart; unless the reward is sparse, also little control and low speed."""
        cart, control, *_ = columns = lanes.columns(self._columns)
        cosines, speeds = columns[2 : 2 + self._poles], columns[2 + self._poles :]
        if self.task._sparse:
            upright = tolerance(cosines, self.task._ANGLE_COSINE_RANGE)
            centred = tolerance(cart, self.task._CART_RANGE)
            return np.asarray(centred * upright.prod(axis=0))
        upright = (cosines + 1) / 2
        centred = (1 + gaussian_tolerance(cart, (0.0, 0.0), 2)) / 2
        effort = (4 + tolerance(control, margin=1, value_at_margin=0, sigmoid="quadratic")) / 5
        slow = (1 + tolerance(speeds, margin=5).min(axis=0)) / 2
        return np.asarray(upright.mean(axis=0) * effort * slow * centred)

    def _position(self, lanes: LaneArrays) -> F64:
        orientations = lanes.xmat[:, 2:, [ZZ, XZ]].reshape(len(lanes), -1)
        return np.concatenate([lanes.qpos[:, self._cart, None], orientations], axis=1)


class Acrobot(TaskRewards):
    """Acrobot: swing up."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._arms = [model.body(name).id for name in ("upper_arm", "lower_arm")]
        self._target, self._tip = model.site("target").id, model.site("tip").id
        self._radius = model.site("target").size[0]
        self.observations["orientations"] = lambda lanes: np.concatenate(
            [lanes.xmat[:, self._arms, XZ], lanes.xmat[:, self._arms, ZZ]], axis=1
        )

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a tip near the target."""
        distance = norm(lanes.site_xpos[:, self._target] - lanes.site_xpos[:, self._tip])
        if self.task._sparse:
            return tolerance(distance, bounds=(0, self._radius), margin=0)
        return gaussian_tolerance(distance, (0, self._radius), 1)


class Pendulum(TaskRewards):
    """Pendulum: swing up."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._pole = model.body("pole").id
        self.observations["orientation"] = lambda lanes: lanes.xmat[:, self._pole, [ZZ, XZ]]

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward an upright pole."""
        return tolerance(lanes.xmat[:, self._pole, ZZ], (suite.pendulum._COSINE_BOUND, 1))


class BallInCup(TaskRewards):
    """Ball in cup: catch the ball."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._target, self._ball = model.site("target").id, model.body("ball").id
        self._half_space = model.site("target").size[[0, 2]] - model.geom("ball").size[0]
        self.observations["position"] = lambda lanes: lanes.qpos

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a ball inside the cup."""
        offset = lanes.site_xpos[:, self._target][:, [0, 2]] - lanes.xpos[:, self._ball][:, [0, 2]]
        return np.asarray((abs(offset) < self._half_space).all(axis=1), np.float64)


class Reacher(TaskRewards):
    """Reacher: reach the target."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._target, self._finger = model.geom("target").id, model.geom("finger").id
        self._reach = np.array([task._target_size, model.geom("finger").size[0]]).sum()
        self.observations |= {"position": lambda lanes: lanes.qpos, "to_target": self._to_target}

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a finger at the target."""
        return tolerance(norm(self._to_target(lanes)), (0, self._reach))

    def _to_target(self, lanes: LaneArrays) -> F64:
        positions = lanes.geom_xpos[:, :, :2]
        return positions[:, self._target] - positions[:, self._finger]


class PointMass(TaskRewards):
    """Point mass: reach the target in the centre."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._target, self._mass = model.geom("target").id, model.geom("pointmass").id
        self._size = model.geom("target").size[0]
        self.observations["position"] = lambda lanes: lanes.qpos

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a mass near the target, with little control."""
        distance = norm(lanes.geom_xpos[:, self._target] - lanes.geom_xpos[:, self._mass])
        return gaussian_tolerance(distance, (0, self._size), self._size) * ((small_control(lanes) + 4) / 5)


class Finger(TaskRewards):
    """Finger: observations of both tasks."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._joints = sensor_columns(model, "proximal", "distal")
        self._tip, self._hinge = sensor_columns(model, "tip"), sensor_columns(model, "spinner")
        self._speeds = sensor_columns(model, "proximal_velocity", "distal_velocity", "hinge_velocity")
        self._touch = sensor_columns(model, "touchtop", "touchbottom")
        self.observations |= {
            "position": lambda lanes: np.concatenate(
                [lanes.sensordata[:, self._joints], self._from_hinge(lanes, self._tip)], axis=1
            ),
            "velocity": lambda lanes: lanes.sensordata[:, self._speeds],
            "touch": lambda lanes: np.log1p(lanes.sensordata[:, self._touch]),
        }

    def _from_hinge(self, lanes: LaneArrays, sensor: list[int]) -> F64:
        readings = lanes.sensordata
        return readings[:, [sensor[0], sensor[2]]] - readings[:, [self._hinge[0], self._hinge[2]]]


class Spin(Finger):
    """Finger: spin the body."""

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a body that spins fast enough."""
        return np.asarray(lanes.sensordata[:, self._speeds[2]] <= -suite.finger._SPIN_VELOCITY, np.float64)


class Turn(Finger):
    """Finger: turn the body to a target."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._target = sensor_columns(model, "target")
        self.observations |= {
            "target_position": lambda lanes: self._from_hinge(lanes, self._target),
            "dist_to_target": self._distance_to_target,
        }

    def reward(self, lanes: LaneArrays) -> F64:
        """Reward a tip inside the target."""
        return np.asarray(self._distance_to_target(lanes) <= 0, np.float64)

    def _distance_to_target(self, lanes: LaneArrays) -> F64:
        to_target = self._from_hinge(lanes, self._target) - self._from_hinge(lanes, self._tip)
        return np.asarray(norm(to_target) - self.task._target_radius)


ARM_REWARDS: dict[type, type[TaskRewards]] = {
    suite.cartpole.Balance: Cartpole,
    suite.acrobot.Balance: Acrobot,
    suite.pendulum.SwingUp: Pendulum,
    suite.ball_in_cup.BallInCup: BallInCup,
    suite.reacher.Reacher: Reacher,
    suite.point_mass.PointMass: PointMass,
    suite.finger.Spin: Spin,
    suite.finger.Turn: Turn,
}
"""Vectorised rewards by the class of dm_control's task."""
