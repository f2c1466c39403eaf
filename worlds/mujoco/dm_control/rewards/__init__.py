"""Rewards and observations of dm_control tasks for many lanes at once."""

from worldloom.worlds.mujoco.dm_control.rewards.arms import ARM_REWARDS
from worldloom.worlds.mujoco.dm_control.rewards.base import TaskRewards
from worldloom.worlds.mujoco.dm_control.rewards.walkers import WALKER_REWARDS

REWARDS_BY_TASK: dict[type, type[TaskRewards]] = {**ARM_REWARDS, **WALKER_REWARDS}
"""Vectorised rewards by the class of dm_control's task. Tasks that are missing are computed lane by lane."""
