"""Scene of catch: a board in its border, the paddle and the ball, each with a shadow on the board.

The board stands upright with its middle at the origin, a cell to a metre: x to the right, y away from the camera, z up.
"""

from numpy.typing import ArrayLike

from worldloom.kernels.tables import CASTS_NOTHING, STANDS_FOR_SHADOW
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
EYE_M = 10.0
"""Distance of the camera from the board."""
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

_FRAME, _BOARD, PADDLE, BALL = 1, 2, 3, 4
"""Labels."""


def build_template(assets: AssetLibrary, rows: int, columns: int) -> tuple[InstanceTemplate, int, int]:
    """Return the instance rows of a lane, and the indices of the paddle's and the ball's; each follows its shadow."""
    template = InstanceTemplate(assets)
    width, height = float(columns), float(rows)
    cells = find_or_add_texture(assets, "cells", lambda size: checker(size, 2, 255, 228))
    frame = upright_pose((0, 0, 0), (width + 2 * BORDER_M, 1, height + 2 * BORDER_M))
    template.add("quad", frame, "7284c4", _FRAME, shadow=CASTS_NOTHING)
    board = upright_pose((0, -0.05, 0), (width, 1, height))
    template.add("quad", board, "2c3560", _BOARD, cells, (width / 2, height / 2), CASTS_NOTHING)
    template.add("quad", upright_pose((0, 0, 0), (0.96, 1, 0.4)), "161c38", _BOARD, shadow=STANDS_FOR_SHADOW)
    paddle = template.add("box", upright_pose((0, 0, 0), (0.96, 0.3, 0.4)), "ffd166", PADDLE)
    template.add("disc", wheel_pose((0, 0, 0), 0.74, 1), "161c38", _BOARD, shadow=STANDS_FOR_SHADOW)
    ball = template.add("coarse sphere", upright_pose((0, 0, 0), (0.74, 0.74, 0.74)), "ef6f6c", BALL)
    return template, paddle, ball
