"""The numbers of dm_control's tasks are dm_control's: the same seed and actions give the same bits.

There are no tolerances in this file: observations, rewards, discounts and step types are compared for equality.
"""

import numpy as np
import pytest

from tests.support.dm_control_lanes import any_controls, make_environment, make_pool, step_both, unseen  # noqa: F401
from worldloom.worlds.mujoco.dm_control.suite import suite

pytestmark = pytest.mark.usefixtures("unseen")
STEPS = 200
SEED = 7


@pytest.mark.parametrize(("domain", "task"), suite.ALL_TASKS)
def test_every_task_is_the_same(domain: str, task: str) -> None:
    """The second of two lanes: others may step at other times."""
    pool = make_pool(domain, task)
    lanes = pool.add(pool.family.lane_seeds(SEED, 2))
    environment = make_environment(domain, task, SEED + 1)
    rng = np.random.default_rng(1)
    for step in range(STEPS + 1):
        stepped = lanes[::-1] if step % 20 == 0 else lanes[1:]
        step_both(pool, stepped, [environment], any_controls(environment, rng, len(stepped)))
