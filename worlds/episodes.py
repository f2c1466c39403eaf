"""The states of episodes, and the kernels that record steps in the arrays of a pool.

NumPy could do the same, but takes a microsecond or more for each of some thirty operations, and that would be most of
what a step of a few lanes costs. In all kernels `lanes` [n] are the rows of the other arrays that a call is about.
"""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I64, U8
from worldloom.worlds.random import scalar_mix

RUNNING, TERMINATED, INTERRUPTED = 1, 2, 3
"""Values of `Pool.status`, the state of a lane's episode; the numbers are dm_env_rpc's EnvironmentStateType."""
FIRST, MID, LAST = 0, 1, 2
"""Values of `Pool.step_type`, the position of a lane's last step in its episode."""


@kernel_holding_gil
def find_invalid_lane(lanes: I64, in_use: NDArray[np.bool_], mark: I64) -> int:
    """Return the index in `lanes` of the first that is not in use, else of the first that is listed again, else -1.

    `mark` is scratch with an element for each lane; it finds lanes listed twice without sorting.
    """
    for k in range(lanes.size):
        if lanes[k] < 0 or lanes[k] >= in_use.size or not in_use[lanes[k]]:
            return k
    for k in range(lanes.size):
        mark[lanes[k]] = k
    for k in range(lanes.size):
        if mark[lanes[k]] != k:
            return k
    return -1


@kernel_holding_gil
def count_running(lanes: I64, status: U8) -> int:
    """Count the lanes whose episode is running."""
    running = 0
    for k in range(lanes.size):
        running += status[lanes[k]] == RUNNING
    return running


@kernel_holding_gil
def next_episode_seeds(lanes: I64, lane_seed: NDArray[np.uint64], episode: I64, seeds: NDArray[np.uint64]) -> None:
    """Advance each lane to its next episode and write that episode's seed into `seeds` [n]."""
    for k in range(lanes.size):
        lane = lanes[k]
        episode[lane] += 1
        seeds[k] = scalar_mix(lane_seed[lane], episode[lane])


@kernel_holding_gil
def record_first_step(lanes: I64, steps: I64, reward: F32 | F64, discount: F32, step_type: U8, status: U8) -> None:
    """Record that an episode has begun in each lane."""
    for k in range(lanes.size):
        lane = lanes[k]
        steps[lane] = 0
        for agent in range(reward.shape[1]):
            reward[lane, agent] = 0.0
        discount[lane] = 1.0
        step_type[lane] = FIRST
        status[lane] = RUNNING


@kernel_holding_gil
def record_step(
    lanes: I64,
    gained: F32 | F64,
    terminated: NDArray[np.bool_],
    max_steps: int,
    adds_reward: bool,
    steps: I64,
    reward: F32 | F64,
    discount: F32,
    step_type: U8,
    status: U8,
) -> None:
    """Record the result of a step of each lane: rewards `gained` [n, agents] and `terminated` [n].

    The reward replaces that of the last step, or is added to it where an action is repeated. Termination has precedence
    over the time limit where both come at the same step.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        steps[lane] += 1
        for agent in range(reward.shape[1]):
            reward[lane, agent] = reward[lane, agent] + gained[k, agent] if adds_reward else gained[k, agent]
        discount[lane] = 0.0 if terminated[k] else 1.0
        if terminated[k]:
            status[lane] = TERMINATED
        else:
            status[lane] = INTERRUPTED if steps[lane] >= max_steps else RUNNING
        step_type[lane] = MID if status[lane] == RUNNING else LAST
