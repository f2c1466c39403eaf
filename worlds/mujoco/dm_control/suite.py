"""dm_control's suite of tasks, imported such that it touches no graphics library: pictures are drawn by us.

Where dm_control's own code runs: one of its environments, which any lane's simulation can be put into.

A lane has its numbers only. To begin an episode, or for what is not computed from arrays of many lanes, its numbers are
copied into the stage's simulation, dm_control's code does there what it does, and they are copied back: the same code
on the same numbers, at a fraction of what a dm_control environment for each lane would cost to make.
"""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import U8
from worldloom.worlds.mujoco.models.contents import elsewhere
from worldloom.worlds.mujoco.simulation.data import Changes, arrays_of, changed
from worldloom.worlds.settings import SettingError

_CHOICE = "MUJOCO_GL"


@contextmanager
def _without_graphics() -> Iterator[None]:
    """dm_control looks for a way to draw when it is imported, and complains where there is no screen.

    Whoever has chosen a way of drawing keeps it.
    """
    if _CHOICE in os.environ:
        yield
        return
    os.environ[_CHOICE] = "disable"
    try:
        yield
    finally:
        del os.environ[_CHOICE]


try:
    with _without_graphics():
        from dm_control import suite
        from dm_control.rl.control import Environment
        from dm_control.rl.control import Task as BareTask
        from dm_control.suite.base import Task
        from dm_control.utils import rewards
except ModuleNotFoundError as error:
    raise ImportError("dm_control is not installed: pip install 'worldloom[mujoco]'") from error

TASKS: dict[str, tuple[str, ...]] = dict(suite.TASKS_BY_DOMAIN)
"""Domain -> its tasks."""

__all__ = ["TASKS", "BareTask", "Environment", "Task", "rewards", "suite"]


_PROBES = 4
"""Beginnings of episodes that are looked at to learn what in the model they change."""


class Stage:
    """An environment of the suite. `time_limit_s` is the task's own unless given."""

    def __init__(self, domain: str, task: str, time_limit_s: float | None) -> None:
        self._names = domain, task
        self._limit = {} if time_limit_s is None else {"time_limit": time_limit_s}
        random = np.random.RandomState(0)
        self.environment = self._load(random)
        self._draws_model = not _same_chance(random, np.random.RandomState(0))
        """Whether the model itself comes from chance."""
        self.physics = self.environment.physics
        # It would draw pictures of its own when the ground changes.
        self.physics.__class__ = type("Unseen", (type(self.physics),), {"contexts": None})
        self.task: Any = self.environment.task
        self.model: mujoco.MjModel = self.physics.model.ptr
        self.data: mujoco.MjData = self.physics.data.ptr
        self.changes = Changes(self._find_changes(), self.model)
        """What in the model is a lane's own. `restless` are labels of what is elsewhere in each."""
        self._first = self.changes.read(self.model)
        self.ends_by_itself = type(self.task).get_termination is not BareTask.get_termination
        for name in ("before_step", "after_step"):
            if getattr(type(self.task), name) is not getattr(Task, name):
                raise SettingError(
                    f"setting 'task' is {task!r}, which has a {name} of its own in this dm_control: expected a task "
                    "without, since steps of many lanes are made without it"
                )

    def new_lane(self, seed: int) -> tuple[Any, U8]:
        """A task with chance of its own, and a lane's own part of the model, as dm_control makes them from a seed."""
        random = np.random.RandomState(seed)
        if self._draws_model:
            environment = self._load(random)
            return environment.task, self.changes.read(environment.physics.model.ptr)
        task = copy.copy(self.task)
        task._random = random
        return task, self._first

    def begin(self, task: Any, own: U8, data: mujoco.MjData) -> None:
        """Begin an episode in a lane: `own` is its part of the model."""
        self.changes.write(own, self.model)
        with self.physics.reset_context():
            task.initialize_episode(self.physics)
        own[:] = self.changes.read(self.model)
        mujoco.mj_copyData(data, self.model, self.data)

    def enter(self, own: U8, data: mujoco.MjData) -> Any:
        """dm_control's Physics with the numbers of a lane."""
        self.changes.write(own, self.model)
        mujoco.mj_copyData(self.data, self.model, data)
        return self.physics

    def _load(self, random: np.random.RandomState) -> Environment:
        return suite.load(*self._names, task_kwargs={"random": random, **self._limit})

    def _find_changes(self) -> set[str]:
        """The arrays of the model that chance or the beginning of an episode changes; it is as before afterwards."""
        before = arrays_of(self.model)
        found: set[str] = set()
        seen = []
        for seed in range(1, _PROBES + 1):
            if self._draws_model:
                found |= changed(before, arrays_of(self._load(np.random.RandomState(seed)).physics.model.ptr))
            task = copy.copy(self.task)
            task._random = np.random.RandomState(seed)
            with self.physics.reset_context():
                task.initialize_episode(self.physics)
            found |= changed(before, arrays_of(self.model))
            seen.append((self.data.geom_xpos.copy(), self.data.site_xpos.copy()))
        for name in found:
            getattr(self.model, name)[...] = before[name]
        self.restless = elsewhere(self.model, seen, "hfield_data" in found)
        return found


def _same_chance(one: np.random.RandomState, two: np.random.RandomState) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one.get_state(), two.get_state(), strict=True))
