"""Kernels of catch: the ball falls, the paddle moves. `lanes` [n] are the rows of the state arrays to work on."""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F32, I32, I64
from worldloom.worlds.random import scalar_integer


@kernel_holding_gil
def reset_catch(lanes: I64, seeds: NDArray[np.uint64], columns: int, ball: I32, paddle: I32) -> None:
    """Put the ball at the top of a random column and the paddle in the middle."""
    for k in range(lanes.size):
        lane = lanes[k]
        ball[lane, 0] = 0
        ball[lane, 1] = scalar_integer(seeds[k], 0, columns)
        paddle[lane] = columns // 2


@kernel_holding_gil
def step_catch(
    lanes: I64,
    moves: I32,
    rows: int,
    columns: int,
    ball: I32,
    paddle: I32,
    reward: F32,
    terminated: NDArray[np.bool_],
) -> None:
    """Move the paddle by `moves` [n] and let the ball fall by one row; in the last row it is caught or missed.

    `reward` [n, 1] and `terminated` [n] are outputs.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        paddle[lane] = min(max(paddle[lane] + moves[k], 0), columns - 1)
        ball[lane, 0] += 1
        terminated[k] = ball[lane, 0] == rows - 1
        caught = ball[lane, 1] == paddle[lane]
        reward[k, 0] = (1.0 if caught else -1.0) if terminated[k] else 0.0
