"""Cartpole: a pole hangs from a cart on a rail; push the cart to swing the pole up and balance it.

The equations of motion are in `kernels.py`: cart 1 kg, pole 0.1 kg and 1 m long, a uniform rod, gravity 9.81 m/s², no
friction, a push of at most 10 N. A step is 0.02 s: two Runge-Kutta steps of 0.01 s under one force. The scene is in
`scene.py`.

Without a push the energy should be constant. It is 0.98 J higher with the pole up than with the pole down; over 10,000
steps (200 s) it drifts by less than 10⁻⁶ J when the pole starts from rest at any angle, and by less than 2·10⁻³ J when
it starts at 20 rad/s. The tests check these limits.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.cartpole.kernels import reset_cartpoles, step_cartpoles, write_poses
from worldloom.worlds.cartpole.scene import CART, POLE, build_rows, lane_light, place_eye
from worldloom.worlds.family import Camera, CameraPlacement, Family, Spec, State, StepResult
from worldloom.worlds.settings import Setting

SUBSTEPS, SUBSTEP_S = 2, 0.01


class Cartpole(Family):
    """Reward of a step: (1 + cos(angle)) / 2, times 1 - (x / half the rail)² / 2, times 1 - force² / 5; from 0 to 1."""

    name = "cartpole"
    text = "Swing the pole up and balance it, by pushing the cart along its rail."
    settings = (
        Setting("rail", 3.0, "Metres that the cart can travel from stop to stop; hitting one ends the episode.", 2, 10),
        Setting("max_steps", 500, "Steps after which an episode is interrupted, 0.02 s each.", 1, 1_000_000),
    )
    labels = ("sky", "floor", "rail", "stop", "cart", "pole")
    sized_labels = (CART, POLE)
    steps_per_s = 1 / (SUBSTEPS * SUBSTEP_S)
    actions = (Spec("force", "float32", (), "Push on the cart: 1 is 10 N to the right, -1 to the left.", -1.0, 1.0),)
    cameras = (
        Camera(
            "eye",
            "From the side, in perspective; it never moves. The view is as high as the rail and two poles are long: "
            "the cart and the pole never leave it if its width is at least its height.",
        ),
    )

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self.half_rail_m = float(self.setting_values["rail"]) / 2
        self.max_steps = int(self.setting_values["max_steps"])
        end = float(np.float32(self.half_rail_m))
        self.observations = (
            Spec("pose", "float32", (3,), "Position of the cart in metres, cosine and sine of the pole.", -end, end),
            Spec("velocity", "float32", (2,), "Speed of the cart (m/s) and of the pole's rotation (rad/s)."),
        )
        self._rows = build_rows(assets, self.half_rail_m)
        self._eye, focus_m = place_eye(self.half_rail_m)
        self.cameras = (replace(self.cameras[0], focus_m=focus_m),)
        self._light = lane_light(self.half_rail_m)
        self.rows_per_lane = len(self._rows.template)
        self.static_rows = self._rows.cart_row

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the motion, and the angle's cosine and sine: these are computed once a step and used several times."""
        return {"motion": ("float64", (4,)), "cos_sin": ("float64", (2,))}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Set the pole hanging down, almost at rest."""
        reset_cartpoles(lanes, seeds, state.motion, state.cos_sin)

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Advance the lanes by 0.02 seconds."""
        force = np.array(actions["force"][:, 0], np.float32)
        reward, terminated = np.empty((len(lanes), 1), np.float32), np.empty(len(lanes), np.bool_)
        step_cartpoles(
            lanes,
            force,
            self.half_rail_m,
            SUBSTEP_S,
            SUBSTEPS,
            state.motion,
            state.cos_sin,
            reward[:, 0],
            terminated,
        )
        return StepResult(reward, terminated)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Return `pose` or `velocity`."""
        if name == "velocity":
            return np.asarray(state.motion[lanes, 2:], np.float32)
        return np.concatenate(
            [state.motion[lanes, :1], state.cos_sin[lanes]], axis=1, dtype=np.float32, casting="same_kind"
        )

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return the placement of `eye`, which never moves."""
        return self._eye

    def write_static_instances(self, scene: Scene, scene_lanes: I32) -> None:
        """Write all rows and the light."""
        self._rows.template.write(scene, scene_lanes, **self._light)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write the poses of the cart and the pole."""
        write_poses(
            lanes,
            scene_lanes,
            scene.lanes.first_row,
            state.motion,
            state.cos_sin,
            self._rows.cart_x,
            self._rows.cart_row,
            self._rows.pole_row,
            scene.instances.pose,
        )
