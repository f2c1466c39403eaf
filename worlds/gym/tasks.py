"""Rewards, ends and observations of Gymnasium's MuJoCo tasks (v5) for many lanes at once, with Gymnasium's own bits.

The same operations in the same order on arrays [n, ...] give the same bits as on the arrays of one environment, with
the exceptions that `worlds/mujoco/simulation/arithmetic.py` names. Two things to know about NumPy: a sum over the last
axis adds in the order of a sum over one row, and a Python number times a float32 is a float32, so the cost of an action
is rounded to float32 before it is subtracted from rewards, which are float64.

Gymnasium does not compute positions anew after the last integration of a step, so what is read of bodies and sites is
that of a moment before. The arrays of a lane are those of its simulation, so this is the same here.
"""

from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeAlias

import numpy as np
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.humanoid_v5 import HumanoidEnv
from gymnasium.envs.mujoco.humanoidstandup_v5 import HumanoidStandupEnv
from gymnasium.envs.mujoco.inverted_double_pendulum_v5 import InvertedDoublePendulumEnv
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
from gymnasium.envs.mujoco.pusher_v5 import PusherEnv
from gymnasium.envs.mujoco.reacher_v5 import ReacherEnv
from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv
from gymnasium.envs.mujoco.walker2d_v5 import Walker2dEnv
from numpy.typing import NDArray

from worldloom.kernels.tables import F32, F64
from worldloom.worlds.mujoco.simulation.arithmetic import norm, pow_each

Flags: TypeAlias = NDArray[np.bool_]


class Arrays(Protocol):
    """Arrays of several lanes, named as in an MjData, and `body_mass` of their models."""

    def __len__(self) -> int: ...

    def __getattr__(self, name: str) -> F64: ...


class Task(ABC):
    """Rewards, ends and observations of a task; `environment` is one of Gymnasium's, without wrappers."""

    def __init__(self, environment: Any) -> None:
        self._parameters = environment
        """Its attributes are the weights and ranges of the task."""

    def position(self, lanes: Arrays) -> F64:
        """Return where each lane is, [n], for tasks whose reward depends on the way of a step; else an empty array."""
        return np.empty(0)

    @abstractmethod
    def outcome(self, lanes: Arrays, before: F64, actions: F32) -> tuple[F64, Flags]:
        """Return the rewards of a step and which episodes it ends, [n]; `before` is the position before the step."""

    @abstractmethod
    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""

    def _control_cost(self, actions: F32) -> F32:
        return np.asarray(self._parameters._ctrl_cost_weight * np.square(actions).sum(axis=1))


def _square_sums(arrays: F64) -> F64:
    """Return the sum of the squares of all elements in each lane's array [n, ...]."""
    return np.asarray(np.square(arrays).reshape(len(arrays), -1).sum(axis=1))


def _flat(arrays: F64) -> F64:
    return arrays.reshape(len(arrays), -1)


class _Runner(Task):
    """A task that rewards velocity along x; the observation leaves out `_hidden` positions if the user wants it so."""

    _hidden = 1

    def position(self, lanes: Arrays) -> F64:
        """Return x."""
        return lanes.qpos[:, 0]

    def outcome(self, lanes: Arrays, before: F64, actions: F32) -> tuple[F64, Flags]:
        """Return the rewards of a step and which episodes it ends, [n]."""
        reward = self._forward_reward(lanes, before) - self._control_cost(actions)
        return reward, np.zeros(len(lanes), np.bool_)

    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""
        return np.concatenate([self._shown_positions(lanes), lanes.qvel], axis=1)

    def _forward_reward(self, lanes: Arrays, before: F64) -> F64:
        velocity = (self.position(lanes) - before) / self._parameters.dt
        return np.asarray(self._parameters._forward_reward_weight * velocity)

    def _shown_positions(self, lanes: Arrays) -> F64:
        is_excluded = self._parameters._exclude_current_positions_from_observation
        return lanes.qpos[:, self._hidden if is_excluded else 0 :]


class HalfCheetah(_Runner):
    """HalfCheetah."""


class Swimmer(_Runner):
    """Swimmer."""

    _hidden = 2


class _Walking(_Runner):
    """A task with a reward for being healthy; an episode ends where that is not so, if the user wants it."""

    @abstractmethod
    def _is_healthy(self, lanes: Arrays) -> Flags:
        """Return which lanes are healthy."""

    def _costs(self, lanes: Arrays, actions: F32) -> F32 | F64:
        return self._control_cost(actions)

    def outcome(self, lanes: Arrays, before: F64, actions: F32) -> tuple[F64, Flags]:
        """Return the rewards of a step and which episodes it ends, [n]."""
        is_healthy = self._is_healthy(lanes)
        rewards = self._forward_reward(lanes, before) + is_healthy * self._parameters._healthy_reward
        return rewards - self._costs(lanes, actions), ~is_healthy & bool(self._parameters._terminate_when_unhealthy)


class Walker2d(_Walking):
    """Walker2d."""

    def _is_healthy(self, lanes: Arrays) -> Flags:
        z, angle = lanes.qpos[:, 1], lanes.qpos[:, 2]
        low_z, high_z = self._parameters._healthy_z_range
        low_angle, high_angle = self._parameters._healthy_angle_range
        return np.asarray((low_z < z) & (z < high_z) & (low_angle < angle) & (angle < high_angle))

    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""
        return np.concatenate([self._shown_positions(lanes), np.clip(lanes.qvel, -10, 10)], axis=1)


class Hopper(Walker2d):
    """Hopper."""

    def _is_healthy(self, lanes: Arrays) -> Flags:
        low, high = self._parameters._healthy_state_range
        state = np.concatenate([lanes.qpos, lanes.qvel], axis=1)[:, 2:]
        return np.asarray(super()._is_healthy(lanes) & ((low < state) & (state < high)).all(axis=1))


class Ant(_Walking):
    """Ant."""

    _hidden = 2

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self._body = environment.data.body(environment._main_body).id

    def position(self, lanes: Arrays) -> F64:
        """Return x."""
        return lanes.xpos[:, self._body, 0]

    def _is_healthy(self, lanes: Arrays) -> Flags:
        qpos = lanes.qpos
        low, high = self._parameters._healthy_z_range
        is_finite = np.isfinite(qpos).all(axis=1) & np.isfinite(lanes.qvel).all(axis=1)
        return np.asarray(is_finite & (low <= qpos[:, 2]) & (qpos[:, 2] <= high))

    def _costs(self, lanes: Arrays, actions: F32) -> F64:
        contact_cost = self._parameters._contact_cost_weight * _square_sums(self._contact_forces(lanes))
        return np.asarray(self._control_cost(actions) + contact_cost)

    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""
        parts = [self._shown_positions(lanes), lanes.qvel]
        if self._parameters._include_cfrc_ext_in_observation:
            parts.append(_flat(self._contact_forces(lanes)[:, 1:]))
        return np.concatenate(parts, axis=1)

    def _contact_forces(self, lanes: Arrays) -> F64:
        return np.asarray(np.clip(lanes.cfrc_ext, *self._parameters._contact_force_range))


class _HumanoidBody:
    """Observations and control costs of both humanoids, which are computed from the controls of the simulation."""

    _parameters: Any

    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""
        parameters = self._parameters
        first = 2 if parameters._exclude_current_positions_from_observation else 0
        parts = [lanes.qpos[:, first:], lanes.qvel]
        # Gymnasium compares with True: a number in its place leaves the part out.
        if parameters._include_cinert_in_observation is True:
            parts.append(_flat(lanes.cinert[:, 1:]))
        if parameters._include_cvel_in_observation is True:
            parts.append(_flat(lanes.cvel[:, 1:]))
        if parameters._include_qfrc_actuator_in_observation is True:
            parts.append(lanes.qfrc_actuator[:, 6:])
        if parameters._include_cfrc_ext_in_observation is True:
            parts.append(_flat(lanes.cfrc_ext[:, 1:]))
        return np.concatenate(parts, axis=1)

    def _applied_control_cost(self, lanes: Arrays) -> F64:
        return np.asarray(self._parameters._ctrl_cost_weight * _square_sums(lanes.ctrl))


class Humanoid(_HumanoidBody, _Walking):
    """Humanoid."""

    def position(self, lanes: Arrays) -> F64:
        """Return x of the centre of mass."""
        masses = lanes.body_mass
        # Gymnasium's einsum adds body after body. A sum would add in another order where there is a single lane.
        moments = np.add.accumulate(masses * lanes.xipos[:, :, 0], axis=1)[:, -1]
        return np.asarray(moments / masses.sum(axis=1))

    def _is_healthy(self, lanes: Arrays) -> Flags:
        z = lanes.qpos[:, 2]
        low, high = self._parameters._healthy_z_range
        return np.asarray((low < z) & (z < high))

    def _costs(self, lanes: Arrays, actions: F32) -> F64:
        contact_cost = self._parameters._contact_cost_weight * _square_sums(lanes.cfrc_ext)
        return np.asarray(
            self._applied_control_cost(lanes) + np.clip(contact_cost, *self._parameters._contact_cost_range)
        )


class HumanoidStandup(_HumanoidBody, Task):
    """HumanoidStandup."""

    def outcome(self, lanes: Arrays, before: F64, actions: F32) -> tuple[F64, Flags]:
        """Return the rewards of a step and which episodes it ends, [n]."""
        parameters = self._parameters
        height = lanes.qpos[:, 2] / parameters.model.opt.timestep
        impact_cost = np.clip(
            parameters._impact_cost_weight * _square_sums(lanes.cfrc_ext), *parameters._impact_cost_range
        )
        return height - self._applied_control_cost(lanes) - impact_cost + 1, np.zeros(len(lanes), np.bool_)


class InvertedPendulum(Task):
    """InvertedPendulum."""

    def outcome(self, lanes: Arrays, before: F64, actions: F32) -> tuple[F64, Flags]:
        """Return the rewards of a step and which episodes it ends, [n]."""
        observation = self.observe(lanes)
        terminated = ~np.isfinite(observation).all(axis=1) | (np.abs(observation[:, 1]) > 0.2)
        return (~terminated).astype(np.float64), terminated

    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""
        return np.concatenate([lanes.qpos, lanes.qvel], axis=1)


class InvertedDoublePendulum(Task):
    """InvertedDoublePendulum. Gymnasium squares single numbers here, hence `_squares`."""

    def outcome(self, lanes: Arrays, before: F64, actions: F32) -> tuple[F64, Flags]:
        """Return the rewards of a step and which episodes it ends, [n]."""
        tip, velocity = lanes.site_xpos[:, 0], lanes.qvel
        x, y = tip[:, 0], tip[:, 2]
        terminated = y <= 1
        distance_penalty = 0.01 * _squares(x) + _squares(y - 2)
        velocity_penalty = 1e-3 * _squares(velocity[:, 1]) + 5e-3 * _squares(velocity[:, 2])
        bonus = self._parameters._healthy_reward * (~terminated).astype(np.int64)
        return bonus - distance_penalty - velocity_penalty, terminated

    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""
        qpos = lanes.qpos
        angles = np.ascontiguousarray(qpos[:, 1:])
        parts = [qpos[:, :1], np.sin(angles), np.cos(angles)]
        parts += [np.clip(array, -10, 10) for array in (lanes.qvel, lanes.qfrc_constraint[:, :1])]
        return np.concatenate(parts, axis=1)


def _squares(numbers: F64) -> F64:
    out = np.empty(len(numbers))
    pow_each(np.ascontiguousarray(numbers), 2.0, out)
    return out


class _Arm(Task):
    """An arm: negative distances as rewards, less the cost of control."""

    _bodies: tuple[str, ...]

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self._ids = [environment.model.body(name).id for name in self._bodies]

    def _control_reward(self, actions: F32) -> F32:
        return np.asarray(-np.square(actions).sum(axis=1) * self._parameters._reward_control_weight)


class Reacher(_Arm):
    """Reacher."""

    _bodies = "fingertip", "target"

    def outcome(self, lanes: Arrays, before: F64, actions: F32) -> tuple[F64, Flags]:
        """Return the rewards of a step and which episodes it ends, [n]."""
        distance_reward = -norm(self._offset(lanes)) * self._parameters._reward_dist_weight
        return distance_reward + self._control_reward(actions), np.zeros(len(lanes), np.bool_)

    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""
        qpos = lanes.qpos
        angles = np.ascontiguousarray(qpos[:, :2])
        parts = [np.cos(angles), np.sin(angles), qpos[:, 2:], lanes.qvel[:, :2], self._offset(lanes)[:, :2]]
        return np.concatenate(parts, axis=1)

    def _offset(self, lanes: Arrays) -> F64:
        fingertip, target = (lanes.xpos[:, body] for body in self._ids)
        return fingertip - target


class Pusher(_Arm):
    """Pusher."""

    _bodies = "tips_arm", "object", "goal"

    def outcome(self, lanes: Arrays, before: F64, actions: F32) -> tuple[F64, Flags]:
        """Return the rewards of a step and which episodes it ends, [n]."""
        positions = lanes.xpos
        tip, pushed, goal = (positions[:, body] for body in self._ids)
        near_reward = -norm(pushed - tip) * self._parameters._reward_near_weight
        distance_reward = -norm(pushed - goal) * self._parameters._reward_dist_weight
        reward = distance_reward + self._control_reward(actions) + near_reward
        return reward, np.zeros(len(lanes), np.bool_)

    def observe(self, lanes: Arrays) -> F64:
        """Return the observations, [n, m]."""
        positions = lanes.xpos
        parts = [lanes.qpos[:, :7], lanes.qvel[:, :7], *(positions[:, body] for body in self._ids)]
        return np.concatenate(parts, axis=1)


TASKS: dict[type, type[Task]] = {
    AntEnv: Ant,
    HalfCheetahEnv: HalfCheetah,
    HopperEnv: Hopper,
    HumanoidEnv: Humanoid,
    HumanoidStandupEnv: HumanoidStandup,
    InvertedDoublePendulumEnv: InvertedDoublePendulum,
    InvertedPendulumEnv: InvertedPendulum,
    PusherEnv: Pusher,
    ReacherEnv: Reacher,
    SwimmerEnv: Swimmer,
    Walker2dEnv: Walker2d,
}
"""Tasks by the class of Gymnasium's environment."""
