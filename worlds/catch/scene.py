"""Scene of catch: a board in its border, the paddle and the ball, each with a shadow on the board.

The board stands upright with its middle at the origin, a cell to a metre: x to the right, y away from the camera, z up.
"""

from numpy.typing import ArrayLike

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F32, I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.textures import checker
from worldloom.worlds.instance_template import (
    InstanceTemplate,
    find_or_add_texture,
    parse_color,
    upright_pose,
    wheel_pose,
)

BORDER_M = 0.35
"""Width of the border around the board."""
STATIC_ROWS = 2
"""The border and the board."""
LIGHT: dict[str, ArrayLike] = {
    "light_direction": (0.5, 1.0, -0.9),
    "light_color": 0.75,
    "ambient": 0.62,
    "ambient_ground": 0.26,
    "sky_horizon": parse_color("242b4d"),
    "sky_zenith": parse_color("3c487c"),
}
"""Columns of `scene.lanes`."""

_FRAME, _BOARD, _PADDLE, _BALL = 1, 2, 3, 4
"""Labels."""
_BEFORE_BOARD_M = -0.6
"""Position of the ball and the paddle along y."""
_SHADOW_X_M, _SHADOW_Y_M, _SHADOW_Z_M = 0.12, 0.5, -0.14
"""Offset of a shadow from what casts it."""


def build_template(assets: AssetLibrary, rows: int, columns: int) -> tuple[InstanceTemplate, int, int]:
    """Return the instance rows of a lane, and the indices of the paddle's and the ball's; each follows its shadow."""
    template = InstanceTemplate(assets)
    width, height = float(columns), float(rows)
    cells = find_or_add_texture(assets, "cells", lambda size: checker(size, 2, 255, 228))
    template.add("quad", upright_pose((0, 0, 0), (width + 2 * BORDER_M, 1, height + 2 * BORDER_M)), "7284c4", _FRAME)
    template.add(
        "quad", upright_pose((0, -0.05, 0), (width, 1, height)), "2c3560", _BOARD, cells, (width / 2, height / 2)
    )
    template.add("quad", upright_pose((0, 0, 0), (0.96, 1, 0.4)), "161c38", _BOARD)
    paddle = template.add("box", upright_pose((0, 0, 0), (0.96, 0.3, 0.4)), "ffd166", _PADDLE)
    template.add("disc", wheel_pose((0, 0, 0), 0.74, 1), "161c38", _BOARD)
    ball = template.add("coarse sphere", upright_pose((0, 0, 0), (0.74, 0.74, 0.74)), "ef6f6c", _BALL)
    return template, paddle, ball


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
