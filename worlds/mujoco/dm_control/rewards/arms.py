"""Judges of the tasks with poles, arms, a finger, a ball or a point."""

from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.dm_control.rewards.base import XZ, ZZ, Judge, bell, norm, tolerance
from worldloom.worlds.mujoco.dm_control.rewards.walkers import small_control
from worldloom.worlds.mujoco.dm_control.suite import suite
from worldloom.worlds.mujoco.simulation.data import Numbers


class Cartpole(Judge):
    """Balance or swing up one pole or several."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._cart = model.joint("slider").qposadr[0]
        self.observations["position"] = self._position

    def reward(self, lanes: Numbers) -> F64:
        """Upright; unless sparse also in the middle, with little effort, and at rest."""
        cart, cosines = lanes.qpos[:, self._cart], lanes.xmat[:, 2:, ZZ]
        if self.task._sparse:
            inside = tolerance(cosines, self.task._ANGLE_COSINE_RANGE)
            in_middle = tolerance(cart, self.task._CART_RANGE)
            return np.asarray(in_middle * inside.prod(axis=1))
        upright = (cosines + 1) / 2
        centred = (1 + bell(cart, 0.0, 0.0, 2)) / 2
        effort = (4 + tolerance(lanes.ctrl, margin=1, value_at_margin=0, sigmoid="quadratic")[:, 0]) / 5
        at_rest = tolerance(lanes.qvel[:, 1:], margin=5)
        slow = (1 + at_rest.min(axis=1)) / 2
        return np.asarray(upright.mean(axis=1) * effort * slow * centred)

    def _position(self, lanes: Numbers) -> F64:
        turned = lanes.xmat[:, 2:, [ZZ, XZ]].reshape(len(lanes), -1)
        return np.concatenate([lanes.qpos[:, self._cart, None], turned], axis=1)


class Acrobot(Judge):
    """Swing up."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._arms = [model.body(name).id for name in ("upper_arm", "lower_arm")]
        self._target, self._tip = model.site("target").id, model.site("tip").id
        self._radius = model.site("target").size[0]
        self.observations["orientations"] = lambda lanes: np.concatenate(
            [lanes.xmat[:, self._arms, XZ], lanes.xmat[:, self._arms, ZZ]], axis=1
        )

    def reward(self, lanes: Numbers) -> F64:
        """The tip at the target."""
        away = norm(lanes.site_xpos[:, self._target] - lanes.site_xpos[:, self._tip])
        if self.task._sparse:
            return tolerance(away, bounds=(0, self._radius), margin=0)
        return bell(away, 0, self._radius, 1)


class Pendulum(Judge):
    """Swing up."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._pole = model.body("pole").id
        self.observations["orientation"] = lambda lanes: lanes.xmat[:, self._pole, [ZZ, XZ]]

    def reward(self, lanes: Numbers) -> F64:
        """Upright."""
        return tolerance(lanes.xmat[:, self._pole, ZZ], (suite.pendulum._COSINE_BOUND, 1))


class BallInCup(Judge):
    """Catch the ball."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._target, self._ball = model.site("target").id, model.body("ball").id
        self._room = model.site("target").size[[0, 2]] - model.geom("ball").size[0]
        self.observations["position"] = lambda lanes: lanes.qpos

    def reward(self, lanes: Numbers) -> F64:
        """The ball in the cup."""
        away = lanes.site_xpos[:, self._target][:, [0, 2]] - lanes.xpos[:, self._ball][:, [0, 2]]
        return np.asarray((abs(away) < self._room).all(axis=1), np.float64)


class Reacher(Judge):
    """Reach the target."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._target, self._finger = model.geom("target").id, model.geom("finger").id
        self._near = np.array([task._target_size, model.geom("finger").size[0]]).sum()
        self.observations |= {"position": lambda lanes: lanes.qpos, "to_target": self._to_target}

    def reward(self, lanes: Numbers) -> F64:
        """The finger at the target."""
        return tolerance(norm(self._to_target(lanes)), (0, self._near))

    def _to_target(self, lanes: Numbers) -> F64:
        places = lanes.geom_xpos[:, :, :2]
        return places[:, self._target] - places[:, self._finger]


class PointMass(Judge):
    """Reach the target, in the middle."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._target, self._mass = model.geom("target").id, model.geom("pointmass").id
        self._size = model.geom("target").size[0]
        self.observations["position"] = lambda lanes: lanes.qpos

    def reward(self, lanes: Numbers) -> F64:
        """At the target, with little effort."""
        away = norm(lanes.geom_xpos[:, self._target] - lanes.geom_xpos[:, self._mass])
        return bell(away, 0, self._size, self._size) * ((small_control(lanes) + 4) / 5)


class Finger(Judge):
    """What both tasks of the finger observe."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._joints = self.sensor("proximal", "distal")
        self._tip, self._hinge = self.sensor("tip"), self.sensor("spinner")
        self._speeds = self.sensor("proximal_velocity", "distal_velocity", "hinge_velocity")
        self._touch = self.sensor("touchtop", "touchbottom")
        self.observations |= {
            "position": lambda lanes: np.concatenate(
                [lanes.sensordata[:, self._joints], self._from_hinge(lanes, self._tip)], axis=1
            ),
            "velocity": lambda lanes: lanes.sensordata[:, self._speeds],
            "touch": lambda lanes: np.log1p(lanes.sensordata[:, self._touch]),
        }

    def _from_hinge(self, lanes: Numbers, sensor: list[int]) -> F64:
        read = lanes.sensordata
        return read[:, [sensor[0], sensor[2]]] - read[:, [self._hinge[0], self._hinge[2]]]


class Spin(Finger):
    """Spin the body."""

    def reward(self, lanes: Numbers) -> F64:
        """Fast enough."""
        return np.asarray(lanes.sensordata[:, self._speeds[2]] <= -suite.finger._SPIN_VELOCITY, np.float64)


class Turn(Finger):
    """Turn the body to a target."""

    def __init__(self, task: Any, model: mujoco.MjModel) -> None:
        super().__init__(task, model)
        self._target = self.sensor("target")
        self.observations |= {
            "target_position": lambda lanes: self._from_hinge(lanes, self._target),
            "dist_to_target": self._away,
        }

    def reward(self, lanes: Numbers) -> F64:
        """The tip in the target."""
        return np.asarray(self._away(lanes) <= 0, np.float64)

    def _away(self, lanes: Numbers) -> F64:
        to_target = self._from_hinge(lanes, self._target) - self._from_hinge(lanes, self._tip)
        return np.asarray(norm(to_target) - self.task._target_radius)


JUDGES: dict[type, type[Judge]] = {
    suite.cartpole.Balance: Cartpole,
    suite.acrobot.Balance: Acrobot,
    suite.pendulum.SwingUp: Pendulum,
    suite.ball_in_cup.BallInCup: BallInCup,
    suite.reacher.Reacher: Reacher,
    suite.point_mass.PointMass: PointMass,
    suite.finger.Spin: Spin,
    suite.finger.Turn: Turn,
}
"""By the class of the task."""
