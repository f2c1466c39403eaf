"""The dm_control suite: imported without graphics, and one environment per task that any lane's state is loaded into.

dm_control looks for a graphics library when it is imported. worldloom draws the frames itself, so the import is made
with graphics disabled, and everything else imports dm_control from here.

A lane has nothing but its state: an MjData, a task object with its random generator, and its model bytes. To begin an
episode, and to compute what `rewards` does not compute from arrays of many lanes, the state is copied into the
environment's physics, dm_control's own code runs on it, and the result is copied back. This gives the bits of
dm_control without the cost of one dm_control environment per lane.
"""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import I32, U8
from worldloom.worlds.mujoco.models.contents import find_task_placed
from worldloom.worlds.mujoco.simulation.data import ModelOverrides, copy_model_arrays, differing_arrays
from worldloom.worlds.mujoco.simulation.library import Simulation, free_compiler_memory
from worldloom.worlds.settings import SettingError, abbreviate

_BACKEND_VARIABLE = "MUJOCO_GL"


@contextmanager
def _without_graphics() -> Iterator[None]:
    """Keep dm_control from loading a graphics library while it is imported, unless the user has chosen one."""
    if _BACKEND_VARIABLE in os.environ:
        yield
        return
    os.environ[_BACKEND_VARIABLE] = "disable"
    try:
        yield
    finally:
        del os.environ[_BACKEND_VARIABLE]


try:
    with _without_graphics():
        from dm_control import suite
        from dm_control.mujoco.wrapper import core
        from dm_control.rl.control import Environment
        from dm_control.rl.control import Task as ControlTask
        from dm_control.suite.base import Task
        from dm_control.suite.utils import randomizers
except ModuleNotFoundError as error:
    raise ImportError("dm_control is not installed: pip install 'worldloom[mujoco]'") from error

TASKS: dict[str, tuple[str, ...]] = dict(suite.TASKS_BY_DOMAIN)
"""Names of the tasks of each domain."""

__all__ = [
    "TASKS",
    "ControlTask",
    "Environment",
    "JointRandomizer",
    "Task",
    "TaskEnvironment",
    "core",
    "load_task_model",
    "randomizers",
    "suite",
]


_PROBED_EPISODES = 4
"""First states of episodes that are compared to find out which model arrays a task changes."""


def load_task_model(name: str) -> mujoco.MjModel:
    """Return the model of a task by its name DOMAIN/TASK; SettingError if there is none.

    Models that the suite builds with random numbers are those of the seed 0.
    """
    domain, _, task = name.partition("/")
    if task not in TASKS.get(domain, ()):
        known = [f"{domain}/{one}" for one in TASKS.get(domain, ())] or [f"{one}/…" for one in TASKS]
        raise SettingError(
            f"setting 'model' is {abbreviate(name)}: expected the path of an .xml file, or a task of dm_control's "
            f"suite, one of {', '.join(known)}"
        )
    model: mujoco.MjModel = _load_environment((domain, task), random=np.random.RandomState(0)).physics.model.ptr
    return model


def _load_environment(names: tuple[str, str], **arguments: Any) -> Environment:
    try:
        return suite.load(*names, task_kwargs=arguments)
    finally:
        core._LAST_PARSED_MODEL_PTR = None  # dm_control would keep the last model for as long as the process lives
        free_compiler_memory()


class TaskEnvironment:
    """A dm_control environment that any lane's state is loaded into. `time_limit_s` is the task's own if None."""

    def __init__(self, domain: str, task: str, time_limit_s: float | None) -> None:
        self._names = domain, task
        self._time_limit = {} if time_limit_s is None else {"time_limit": time_limit_s}
        random = np.random.RandomState(0)
        self.environment = self._load(random)
        self._is_model_random = not _same_state(random, np.random.RandomState(0))
        """True if dm_control builds the model itself with random numbers."""
        self.physics = self.environment.physics
        # Some tasks upload changed ground to dm_control's own renderers, which would create them.
        self.physics.__class__ = type("PhysicsWithoutRenderer", (type(self.physics),), {"contexts": None})
        self.task: Any = self.environment.task
        self.model: mujoco.MjModel = self.physics.model.ptr
        self.data: mujoco.MjData = self.physics.data.ptr
        self._joint_randomizer = JointRandomizer(self.model)
        self.task_placed: set[str]
        """Labels of geoms and sites that each episode has at another position."""
        names, self.task_placed = self._probe_episodes()
        self.overrides: ModelOverrides
        """The model arrays that each lane has its own values of."""
        self.use_overrides(ModelOverrides(names, self.model))
        self.can_terminate = type(self.task).get_termination is not ControlTask.get_termination
        """True if the task may end an episode before the time limit."""
        for name in ("before_step", "after_step"):
            if getattr(type(self.task), name) is not getattr(Task, name):
                raise SettingError(
                    f"setting 'task' is {task!r}, which has its own {name} in this version of dm_control: expected a "
                    "task without, since lanes are stepped in a batch that does not call it; choose another task"
                )

    def use_overrides(self, overrides: ModelOverrides) -> None:
        """Keep these arrays by lane; the model has its first values."""
        self.overrides = overrides
        self._default_overrides = overrides.read(self.model)

    def create_lane(self, seed: int) -> tuple[Any, U8]:
        """Return a task object with its own random generator and a lane's model bytes, as dm_control's for a seed."""
        random = np.random.RandomState(seed)
        if self._is_model_random:
            environment = self._load(random)
            return environment.task, self.overrides.read(environment.physics.model.ptr)
        task = copy.copy(self.task)
        task._random = random
        return task, self._default_overrides

    def begin_episode(self, task: Any, overrides: U8, simulation: Simulation) -> None:
        """Begin an episode in a lane: write its first state to `simulation` and its model bytes to `overrides`."""
        self.overrides.write(overrides, self.model)
        with self._joint_randomizer.in_use(), self.physics.reset_context():
            task.initialize_episode(self.physics)
        overrides[:] = self.overrides.read(self.model)
        simulation.copy_from(self.data._address)

    def load_lane(self, overrides: U8, simulation: Simulation) -> Any:
        """Load a lane's state into dm_control's Physics and return that, valid until the next call."""
        self.overrides.write(overrides, self.model)
        simulation.copy_to(self.data._address)
        return self.physics

    def _load(self, random: np.random.RandomState) -> Environment:
        return _load_environment(self._names, random=random, **self._time_limit)

    def _probe_episodes(self) -> tuple[set[str], set[str]]:
        """Begin some episodes; return the model arrays that they change and the labels of what they place elsewhere.

        The model has its first values again afterwards.
        """
        before = copy_model_arrays(self.model)
        changed: set[str] = set()
        positions = []
        for seed in range(1, _PROBED_EPISODES + 1):
            if self._is_model_random:
                model = self._load(np.random.RandomState(seed)).physics.model.ptr
                changed |= differing_arrays(before, copy_model_arrays(model))
            task = copy.copy(self.task)
            task._random = np.random.RandomState(seed)
            with self.physics.reset_context():
                task.initialize_episode(self.physics)
            changed |= differing_arrays(before, copy_model_arrays(self.model))
            positions.append((self.data.geom_xpos.copy(), self.data.site_xpos.copy()))
        for name in changed:
            getattr(self.model, name)[...] = before[name]
        return changed, find_task_placed(self.model, positions, "hfield_data" in changed)


class JointRandomizer:
    """Random joint positions as dm_control's `randomize_limited_and_rotational_joints` gives them, to the last bit.

    That function looks up each joint by its name, for 56 joints of a humanoid a millisecond, and some tasks call it
    until no bodies touch. A generator gives the same numbers for an array of ranges as for one after the other.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self._model = model
        kinds = mujoco.mjtJoint
        hinge, slide, free = int(kinds.mjJNT_HINGE), int(kinds.mjJNT_SLIDE), int(kinds.mjJNT_FREE)
        is_limited = model.jnt_limited.astype(bool)
        self._free = model.jnt_qposadr[(model.jnt_type == free) & ~is_limited] + 3
        is_single = (model.jnt_type == hinge) | (model.jnt_type == slide) & is_limited
        self._single: I32 = model.jnt_qposadr[is_single]
        self._low = np.where(is_limited, model.jnt_range[:, 0], -np.pi)[is_single]
        self._high = np.where(is_limited, model.jnt_range[:, 1], np.pi)[is_single]
        is_known = np.isin(model.jnt_type, [hinge, slide, free])
        # Rotations of free joints come before all else, as where one body is free and carries the others.
        order = np.flatnonzero(is_single | (model.jnt_type == free))
        self.is_applicable = bool(is_known.all()) and not is_single[order[: len(self._free)]].any()
        """True if the model has only joints of such kinds, in such an order."""

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Have dm_control use this for the model, where it applies."""
        theirs = randomizers.randomize_limited_and_rotational_joints
        if self.is_applicable:
            randomizers.randomize_limited_and_rotational_joints = self.randomize
        try:
            yield
        finally:
            randomizers.randomize_limited_and_rotational_joints = theirs

    def randomize(self, physics: Any, random: np.random.RandomState) -> None:
        """Set the joint positions of a Physics with this model."""
        qpos = physics.data.qpos
        for first in self._free.tolist():
            rotation = random.rand(4)
            rotation /= np.linalg.norm(rotation)
            qpos[first : first + 4] = rotation
        qpos[self._single] = random.uniform(self._low, self._high)


def _same_state(one: np.random.RandomState, other: np.random.RandomState) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one.get_state(), other.get_state(), strict=True))
