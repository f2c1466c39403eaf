"""The course of episodes: what is noted of lanes when one begins or goes on, whatever their world is.

`lanes` [n] say which rows of the other arrays a call is about. NumPy could do the same; but it takes a microsecond or
more for each of some thirty operations, which is most of what a step of a few lanes costs.
"""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I64, U8
from worldloom.worlds.random import scalar_mix

RUNNING, TERMINATED, INTERRUPTED = 1, 2, 3
"""What a status says of a lane's episode."""
FIRST, MID, LAST = 0, 1, 2
"""What a step type says of a lane's last step."""


@kernel_holding_gil
def first_wrong(lanes: I64, in_use: NDArray[np.bool_], mark: I64) -> int:
    """The place in `lanes` of the first that is not in use, else of the first that is named again; -1 if none is.

    `mark` has a number for each lane, to find those named twice without sorting them.
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
    """How many of the lanes are in the middle of an episode."""
    running = 0
    for k in range(lanes.size):
        running += status[lanes[k]] == RUNNING
    return running


@kernel_holding_gil
def next_seeds(lanes: I64, lane_seed: NDArray[np.uint64], episode: I64, seeds: NDArray[np.uint64]) -> None:
    """On to the next episode of each lane; `seeds` [n] are theirs."""
    for k in range(lanes.size):
        lane = lanes[k]
        episode[lane] += 1
        seeds[k] = scalar_mix(lane_seed[lane], episode[lane])


@kernel_holding_gil
def note_first(lanes: I64, steps: I64, reward: F32 | F64, discount: F32, step_type: U8, status: U8) -> None:
    """An episode has begun in each lane."""
    for k in range(lanes.size):
        lane = lanes[k]
        steps[lane] = 0
        for agent in range(reward.shape[1]):
            reward[lane, agent] = 0.0
        discount[lane] = 1.0
        step_type[lane] = FIRST
        status[lane] = RUNNING


@kernel_holding_gil
def note_step(
    lanes: I64,
    gained: F32 | F64,
    ended: NDArray[np.bool_],
    max_steps: int,
    steps: I64,
    reward: F32 | F64,
    discount: F32,
    step_type: U8,
    status: U8,
) -> None:
    """Each lane has made a step, with `gained` [n, agents] and `ended` [n] for an outcome.

    A natural end counts more than the time limit at the same step.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        steps[lane] += 1
        for agent in range(reward.shape[1]):
            reward[lane, agent] = gained[k, agent]
        discount[lane] = 0.0 if ended[k] else 1.0
        if ended[k]:
            status[lane] = TERMINATED
        else:
            status[lane] = INTERRUPTED if steps[lane] >= max_steps else RUNNING
        step_type[lane] = MID if status[lane] == RUNNING else LAST
