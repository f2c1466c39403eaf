"""dm_control's suite of tasks, imported such that it touches no graphics library: pictures are drawn by us."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

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
