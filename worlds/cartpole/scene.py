"""Scene of cartpole: the floor, the rail on its legs, the cart, the pole and their shadows.

x is along the rail, y away from the camera, z up. The rows of a lane are, in this order: what never moves; the parts of
the cart and the cart's shadow, which move along x; the pole, its shadow, the knob at its tip, the knob's shadow. They
are copied into a lane once; `write_poses` then writes only the numbers that change.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import CASTS_NOTHING, F32, STANDS_FOR_SHADOW
from worldloom.render.assets import AssetLibrary
from worldloom.render.textures import checker
from worldloom.render.views import look_at
from worldloom.worlds.cartpole.kernels import HALF_LENGTH_M, PIVOT_Z_M, POLE_WIDTH_M, TO_SUN
from worldloom.worlds.family import CameraPlacement
from worldloom.worlds.instance_template import (
    InstanceTemplate,
    find_or_add_texture,
    parse_color,
    shadow_pose,
    upright_pose,
    wheel_pose,
)

_FLOOR, _RAIL, _STOP, CART, POLE = 1, 2, 3, 4, 5
"""Labels."""
_CART_LENGTH_M = 0.7
_KNOB_WIDTH_M = 0.27
_HALF_HEIGHT = 0.3
"""Half of the height that the camera sees, one metre ahead of it."""
_FLOOR_COLOR = "d9d4cc"
_SHADOW_COLOR = "a19e9f"
_TO_SUN = np.array(TO_SUN)
_ACROSS_SUN = np.array(look_at(_TO_SUN, (0.0, 0.0, 0.0))[:, :3], np.float64)
"""Two directions across the light, and the direction to the sun."""


class CartpoleRows(NamedTuple):
    """Instance rows of a lane, and the indices of those that move."""

    template: InstanceTemplate
    cart_row: int  # the first that moves with the cart
    cart_x: F32  # [n] x of each row that moves with the cart, for a cart in the middle
    pole_row: int  # the pole; its shadow, the knob and the knob's shadow follow


def build_rows(assets: AssetLibrary, half_rail_m: float) -> CartpoleRows:
    """Build the instance rows for a rail of this length."""
    template = InstanceTemplate(assets)
    _add_surroundings(template, half_rail_m)
    cart_row, cart_x = _add_cart(template)
    return CartpoleRows(template, cart_row, cart_x, _add_pole(template))


def place_eye(half_rail_m: float) -> tuple[CameraPlacement, float]:
    """Place the camera at the side of the rail, far enough away to see all of it and the pole at either end.

    Return also its distance from what it looks at.
    """
    away_m = _camera_distance_m(half_rail_m)
    pose = look_at((0.0, -away_m, 1.3 + 0.22 * away_m), (0.0, 0.0, 1.3))
    return CameraPlacement(pose, _HALF_HEIGHT, False, 0.3 * away_m, 20 * away_m), math.hypot(away_m, 0.22 * away_m)


def lane_light(half_rail_m: float) -> dict[str, ArrayLike]:
    """Return the light, sky and fog of a lane: columns of `scene.lanes`."""
    away_m = _camera_distance_m(half_rail_m)
    return {
        "light_direction": -_TO_SUN,
        "light_color": parse_color("a69e90"),
        "ambient": parse_color("7c818c"),
        "ambient_ground": parse_color("4a4645"),
        "sky_horizon": parse_color("e6ebf0"),
        "sky_zenith": parse_color("9db8d4"),
        "fog_color": parse_color("e6ebf0"),
        "fog_range": (away_m, 4 * away_m),
    }


def _camera_distance_m(half_rail_m: float) -> float:
    return (half_rail_m + 2 * HALF_LENGTH_M + 0.6 * _KNOB_WIDTH_M) / _HALF_HEIGHT


def _add_surroundings(template: InstanceTemplate, half_rail_m: float) -> None:
    """Add what never moves: the floor, the rail on its legs with a stop at each end, and their shadows."""
    tiles = find_or_add_texture(template.assets, "tiles", lambda size: checker(size, 2, 255, 238))
    template.add(
        "plane", upright_pose((0, 0, 0), (400, 400, 1)), _FLOOR_COLOR, _FLOOR, tiles, (160, 160), CASTS_NOTHING
    )
    end = half_rail_m + _CART_LENGTH_M / 2
    for x in (-end - 0.06, end + 0.06):
        template.add("box", upright_pose((x, 0, 1.43), (0.12, 0.4, 0.34)), "f2b04c", _STOP)
    parts = [("box", upright_pose((0, 0, 1.25), (2 * end + 0.24, 0.18, 0.1)), "7d879b")]
    for x in (-end + 0.1, end - 0.1):
        parts.append(("box", upright_pose((x, 0, 0.6), (0.12, 0.14, 1.2)), "8d97aa"))
        parts.append(("box", upright_pose((x, 0, 0.02), (0.3, 0.7, 0.04)), "6d7689"))
    for mesh, pose, color in parts:
        template.add(mesh, pose, color, _RAIL)
        template.add(mesh, shadow_pose(pose, _TO_SUN), _SHADOW_COLOR, _FLOOR, shadow=STANDS_FOR_SHADOW)


def _add_cart(template: InstanceTemplate) -> tuple[int, F32]:
    """Add the parts of the cart and its shadow; return the index of the first, and the x of each."""
    first = len(template)
    body = upright_pose((0, 0, 1.56), (_CART_LENGTH_M, 0.36, 0.26))
    template.add("box", body, "4067c0", CART)
    template.add("box", shadow_pose(body, _TO_SUN), _SHADOW_COLOR, _FLOOR, shadow=STANDS_FOR_SHADOW)
    template.add("box", upright_pose((0, 0, 1.71), (_CART_LENGTH_M - 0.1, 0.3, 0.04)), "6f92e0", CART)
    for x in (-0.21, 0.21):
        for y in (-0.135, 0.135):
            template.add("coarse cylinder", wheel_pose((x, y, 1.41), 0.22, 0.1), "262b3d", CART)
        template.add("coarse cylinder", wheel_pose((x, -0.19, 1.41), 0.1, 0.02), "c9d0dc", CART)
    template.add("coarse cylinder", wheel_pose((0, -0.25, PIVOT_Z_M), 0.18, 0.16), "e9edf4", CART)
    return first, np.array([pose[0, 3] for pose in template.pose[first:]], np.float32)


def _add_pole(template: InstanceTemplate) -> int:
    """Add the pole, its shadow, the knob and the knob's shadow; return the index of the first.

    Only the numbers that never change are set here. The knob's shadow is that of a disc across the light.
    """
    pole, knob, disc = np.zeros((3, 3, 4))
    pole[1, 1] = POLE_WIDTH_M
    knob[:, :3] = _KNOB_WIDTH_M * np.eye(3)
    disc[:, :3] = _KNOB_WIDTH_M * _ACROSS_SUN
    first = template.add("coarse cylinder", pole.astype(np.float32), "f0674a", POLE)
    flat = shadow_pose(pole, _TO_SUN).astype(np.float32)
    template.add("box", flat, _SHADOW_COLOR, _FLOOR, shadow=STANDS_FOR_SHADOW)
    template.add("coarse sphere", knob.astype(np.float32), "ffd25e", POLE)
    flat = shadow_pose(disc, _TO_SUN).astype(np.float32)
    template.add("disc", flat, _SHADOW_COLOR, _FLOOR, shadow=STANDS_FOR_SHADOW)
    return first
