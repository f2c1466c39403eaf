"""Catch: the ball falls, the paddle moves, and both are shown. All of it is integers until it is drawn."""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F32, I32, I64
from worldloom.worlds.random import scalar_integer

_BEFORE_BOARD = -0.6
"""Metres along y."""
_SHADE_X, _SHADE_Y, _SHADE_Z = 0.12, 0.5, -0.14
"""Where a shadow lies, seen from what casts it."""


@kernel_holding_gil
def start_catch(lanes: I64, seeds: NDArray[np.uint64], columns: int, ball: I32, paddle: I32) -> None:
    """A ball at the top of any column, the paddle in the middle."""
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
    ended: NDArray[np.bool_],
) -> None:
    """The paddle moves by `moves` [n], the ball falls; on the last row it is caught or missed.

    `reward` [n, 1] and `ended` [n] are outputs.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        paddle[lane] = min(max(paddle[lane] + moves[k], 0), columns - 1)
        ball[lane, 0] += 1
        ended[k] = ball[lane, 0] == rows - 1
        caught = ball[lane, 1] == paddle[lane]
        reward[k, 0] = (1.0 if caught else -1.0) if ended[k] else 0.0


@kernel_holding_gil
def dress_catch(
    lanes: I64,
    scene_lanes: I32,
    first_row: I32,
    rows: int,
    columns: int,
    ball: I32,
    paddle: I32,
    ball_at: int,
    paddle_at: int,
    pose: F32,
) -> None:
    """The ball and the paddle where they are; `ball_at` and `paddle_at` are their places in a lane's rows.

    Each comes right after its shadow.
    """
    for k in range(lanes.size):
        lane, first = lanes[k], first_row[scene_lanes[k]]
        _put(pose, first + ball_at, rows, columns, ball[lane, 0], ball[lane, 1])
        _put(pose, first + paddle_at, rows, columns, rows - 1, paddle[lane])


@inlined
def _put(pose: F32, row: int, rows: int, columns: int, at_row: int, at_column: int) -> None:
    x, z = at_column - (columns - 1) / 2, (rows - 1) / 2 - at_row
    pose[row, 0, 3], pose[row, 1, 3], pose[row, 2, 3] = x, _BEFORE_BOARD, z
    shadow = row - 1
    pose[shadow, 0, 3], pose[shadow, 1, 3], pose[shadow, 2, 3] = x + _SHADE_X, _BEFORE_BOARD + _SHADE_Y, z + _SHADE_Z
