"""Cartpole: a pole hangs from a cart on a rail; push the cart to swing the pole up and hold it there.

The motion is that of `kernels.py`: cart 1 kg, pole 0.1 kg and 1 m long, a uniform rod, gravity 9.81 m/s², no
friction, a push of at most 10 N. A step is 0.02 s: two Runge-Kutta steps of 0.01 s under one force.

Without a push the energy should stay as it is. It is 0.98 J more with the pole up than with the pole down; over 10,000
steps (200 s) it drifts by less than 10⁻⁶ J when the pole is let go from rest anywhere, and by less than 2·10⁻³ J when
it starts at 20 rad/s. The tests hold it to that.

In the pictures x is along the rail, y away from the camera, z up.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldloom.kernels.tables import F32, I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.textures import checker
from worldloom.render.views import look_at
from worldloom.worlds.cartpole.kernels import (
    HALF_LENGTH_M,
    PIVOT_Z_M,
    POLE_WIDE_M,
    SUN_AT,
    dress_cartpoles,
    start_cartpole,
    step_cartpole,
)
from worldloom.worlds.family import Camera, Family, Outcome, Placement, Spec, State
from worldloom.worlds.props import Props, lying, placed, pressed, rgb, take_texture
from worldloom.worlds.settings import Setting

SUBSTEPS, SUBSTEP_S = 2, 0.01

_CART_M = 0.7
"""Length of the cart."""
_SUN_AT = np.array(SUN_AT)
_ACROSS_SUN = np.array(look_at(_SUN_AT, (0.0, 0.0, 0.0))[:, :3], np.float64)
"""Two directions across the light, and the way to it."""
_KNOB_WIDE_M = 0.27
_HALF_HEIGHT = 0.3
"""Of the picture, one metre ahead of the camera."""
_FLOOR = "d9d4cc"
_SHADOW = "a19e9f"


class Cartpole(Family):
    """Reward a step: (1 + cos(angle)) / 2, times 1 - (x / half the rail)² / 2, times 1 - force² / 5; from 0 to 1."""

    name = "cartpole"
    text = "Swing the pole up and balance it, by pushing the cart along its rail."
    settings = (
        Setting("rail", 3.0, "Metres that the cart can travel from stop to stop; hitting one ends the episode.", 2, 10),
        Setting("max_steps", 500, "Steps after which an episode is interrupted, 0.02 s each.", 1, 1_000_000),
    )
    labels = ("sky", "floor", "rail", "stop", "cart", "pole")
    actions = (Spec("force", "float32", (), "Push on the cart: 1 is 10 N to the right, -1 to the left.", -1.0, 1.0),)
    cameras = (
        Camera(
            "eye",
            "From the side, in perspective, at rest. The picture is as high as the rail and two poles are long: "
            "the cart and the pole never leave it if it is square or wider.",
        ),
    )

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(given, assets)
        self.half_rail_m = float(self.given["rail"]) / 2
        self.max_steps = int(self.given["max_steps"])
        end = float(np.float32(self.half_rail_m))
        self.observations = (
            Spec("pose", "float32", (3,), "The cart's place in metres, the pole's cosine and sine.", -end, end),
            Spec("velocity", "float32", (2,), "How fast the cart moves (m/s) and the pole turns (rad/s)."),
        )
        self._props = _furnish(Props(assets), self.half_rail_m)
        self._carried_at, self._carried_x = _add_cart(self._props)
        self._pole_at = _add_pole(self._props)
        away_m = (self.half_rail_m + 2 * HALF_LENGTH_M + 0.6 * _KNOB_WIDE_M) / _HALF_HEIGHT
        pose = look_at((0.0, -away_m, 1.3 + 0.22 * away_m), (0.0, 0.0, 1.3))
        self._eye = Placement(pose, _HALF_HEIGHT, False, 0.3 * away_m, 20 * away_m)
        self._light: dict[str, ArrayLike] = {
            "light_direction": -_SUN_AT,
            "light_color": rgb("a69e90"),
            "ambient": rgb("7c818c"),
            "ambient_ground": rgb("4a4645"),
            "sky_horizon": rgb("e6ebf0"),
            "sky_zenith": rgb("9db8d4"),
            "fog_color": rgb("e6ebf0"),
            "fog_range": (away_m, 4 * away_m),
        }
        self.rows_per_lane = len(self._props)
        self.still_rows = self._carried_at

    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """How the cart and the pole move, and the angle's cosine and sine: computed once a step, for all who ask."""
        return {"motion": ("float64", (4,)), "aim": ("float64", (2,))}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """The pole hangs down, nearly at rest."""
        start_cartpole(lanes, seeds, state.motion, state.aim)

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> Outcome:
        """0.02 seconds."""
        force = np.array(actions["force"][:, 0], np.float32)
        reward, ended = np.empty((len(lanes), 1), np.float32), np.empty(len(lanes), np.bool_)
        step_cartpole(lanes, force, self.half_rail_m, SUBSTEP_S, SUBSTEPS, state.motion, state.aim, reward[:, 0], ended)
        return Outcome(reward, ended)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """`pose` or `velocity`."""
        if name == "velocity":
            return np.asarray(state.motion[lanes, 2:], np.float32)
        return np.concatenate(
            [state.motion[lanes, :1], state.aim[lanes]], axis=1, dtype=np.float32, casting="same_kind"
        )

    def look(self, state: State, lanes: I64, camera: str, agent: int) -> Placement:
        """From the side, far enough for the whole rail."""
        return self._eye

    def dress(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """The room as it always is, the cart and the pole where they are now."""
        self._props.furnish(scene, scene_lanes, **self._light)
        dress_cartpoles(
            lanes,
            scene_lanes,
            scene.lanes.first_row,
            state.motion,
            state.aim,
            self._carried_x,
            self._carried_at,
            self._pole_at,
            scene.instances.pose,
        )


def _furnish(props: Props, half_rail_m: float) -> Props:
    """What never moves: the floor, the rail on its legs with a stop at each end, and their shadows."""
    tiles = take_texture(props.assets, "tiles", lambda size: checker(size, 2, 255, 238))
    props.add("plane", placed((0, 0, 0), (400, 400, 1)), _FLOOR, 1, tiles, (160, 160))
    end = half_rail_m + _CART_M / 2
    for x in (-end - 0.06, end + 0.06):
        props.add("box", placed((x, 0, 1.43), (0.12, 0.4, 0.34)), "f2b04c", 3)
    parts = [("box", placed((0, 0, 1.25), (2 * end + 0.24, 0.18, 0.1)), "7d879b")]
    for x in (-end + 0.1, end - 0.1):
        parts.append(("box", placed((x, 0, 0.6), (0.12, 0.14, 1.2)), "8d97aa"))
        parts.append(("box", placed((x, 0, 0.02), (0.3, 0.7, 0.04)), "6d7689"))
    for mesh, pose, color in parts:
        props.add(mesh, pose, color, 2)
        props.add(mesh, pressed(pose, _SUN_AT), _SHADOW, 1)
    return props


def _add_cart(props: Props) -> tuple[int, F32]:
    """What goes with the cart, its shadow included: the place of the first, and where each is along the rail."""
    first = len(props)
    body = placed((0, 0, 1.56), (_CART_M, 0.36, 0.26))
    props.add("box", body, "4067c0", 4)
    props.add("box", pressed(body, _SUN_AT), _SHADOW, 1)
    props.add("box", placed((0, 0, 1.71), (_CART_M - 0.1, 0.3, 0.04)), "6f92e0", 4)
    for x in (-0.21, 0.21):
        for y in (-0.135, 0.135):
            props.add("drum", lying((x, y, 1.41), 0.22, 0.1), "262b3d", 4)
        props.add("drum", lying((x, -0.19, 1.41), 0.1, 0.02), "c9d0dc", 4)
    props.add("drum", lying((0, -0.25, PIVOT_Z_M), 0.18, 0.16), "e9edf4", 4)
    return first, np.array([pose[0, 3] for pose in props.pose[first:]], np.float32)


def _add_pole(props: Props) -> int:
    """The pole and its shadow, the knob at its tip and its shadow; the place of the first.

    Here they have the numbers that stay. The knob shades the floor as a disc across the light does.
    """
    pole, ball, disc = np.zeros((3, 3, 4))
    pole[1, 1] = POLE_WIDE_M
    ball[:, :3] = _KNOB_WIDE_M * np.eye(3)
    disc[:, :3] = _KNOB_WIDE_M * _ACROSS_SUN
    first = props.add("drum", pole.astype(np.float32), "f0674a", 5)
    props.add("box", pressed(pole, _SUN_AT).astype(np.float32), _SHADOW, 1)
    props.add("ball", ball.astype(np.float32), "ffd25e", 5)
    props.add("disc", pressed(disc, _SUN_AT).astype(np.float32), _SHADOW, 1)
    return first
