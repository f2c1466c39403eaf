"""Tasks give the bits of dm_control for the same seed and actions.

There are no tolerances in this file: observations, rewards, discounts and step types are compared for equality.
"""

import numpy as np
import pytest

from tests.support.dm_control_lanes import make_environment, make_pool, random_controls, step_both, without_drawing  # noqa: F401
from worldloom.worlds.mujoco.dm_control.suite import suite

pytestmark = pytest.mark.usefixtures("without_drawing")
STEPS = 200
SEED = 7


@pytest.mark.parametrize(("domain", "task"), suite.ALL_TASKS)
def test_every_task_is_the_same(domain: str, task: str) -> None:
    """Compare the second of two lanes; the first is stepped now and then."""
    pool = make_pool(domain, task)
    lanes = pool.add(pool.family.lane_seeds(SEED, 2))
    environment = make_environment(domain, task, SEED + 1)
    rng = np.random.default_rng(1)
    for step in range(STEPS + 1):
        stepped = lanes[::-1] if step % 20 == 0 else lanes[1:]
        step_both(pool, stepped, [environment], random_controls(environment, rng, len(stepped)))
