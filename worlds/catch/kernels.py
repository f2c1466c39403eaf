"""Kernels of catch: the ball falls, the paddle moves, and both are placed before the board.

`lanes` [n] are the rows of the state arrays to work on.
"""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F32, I32, I64
from worldloom.worlds.random import scalar_integer

_BEFORE_BOARD_M = -0.6
"""Position of the ball and the paddle along y."""
_SHADOW_X_M, _SHADOW_Y_M, _SHADOW_Z_M = 0.12, 0.5, -0.14
"""Offset of a shadow from what casts it."""


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


@kernel_holding_gil
def write_positions(
    lanes: I64,
    scene_lanes: I32,
    first_row: I32,
    rows: int,
    columns: int,
    ball: I32,
    paddle: I32,
    ball_row: int,
    paddle_row: int,
    pose: F32,
) -> None:
    """Write the positions of the ball and the paddle, and of their shadows, into the poses of the instance table.

    `ball_row` and `paddle_row` are their indices among a lane's rows; each follows its shadow.
    """
    for k in range(lanes.size):
        lane, first = lanes[k], first_row[scene_lanes[k]]
        _write_position(pose, first + ball_row, rows, columns, ball[lane, 0], ball[lane, 1])
        _write_position(pose, first + paddle_row, rows, columns, rows - 1, paddle[lane])


@inlined
def _write_position(pose: F32, row: int, rows: int, columns: int, board_row: int, board_column: int) -> None:
    x, z = board_column - (columns - 1) / 2, (rows - 1) / 2 - board_row
    pose[row, 0, 3], pose[row, 1, 3], pose[row, 2, 3] = x, _BEFORE_BOARD_M, z
    shadow = row - 1
    pose[shadow, 0, 3] = x + _SHADOW_X_M
    pose[shadow, 1, 3] = _BEFORE_BOARD_M + _SHADOW_Y_M
    pose[shadow, 2, 3] = z + _SHADOW_Z_M
