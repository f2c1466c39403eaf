"""Catch: a ball falls from the top of a board, and a paddle at the bottom must be under it when it lands.

The rules are those of bsuite's catch (`kernels.py`); the scene is in `scene.py`.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import look_at
from worldloom.worlds.catch.kernels import reset_catch, step_catch, write_positions
from worldloom.worlds.catch.scene import BALL, BORDER_M, EYE_M, LIGHT, PADDLE, STATIC_ROWS, build_template
from worldloom.worlds.family import Camera, CameraPlacement, Family, Spec, State, StepResult
from worldloom.worlds.settings import Setting


class Catch(Family):
    """One ball per episode: it lands after rows - 1 steps, and the episode ends with a reward of 1 or -1."""

    name = "catch"
    text = "Catch the falling ball with the paddle."
    settings = (
        Setting("rows", 10, "Height of the board in cells; the ball falls one a step.", 3, 64),
        Setting("columns", 5, "Width of the board in cells.", 2, 64),
        Setting("max_steps", 1000, "Steps after which an episode is interrupted.", 1, 1_000_000),
    )
    labels = ("sky", "frame", "board", "paddle", "ball")
    sized_labels = (PADDLE, BALL)
    cameras = (
        Camera(
            "eye",
            "Orthographic, straight at the board. The view is as high as the board's longer side and its frame: "
            "it shows the whole board if its width is at least its height.",
            focus_m=EYE_M,
        ),
    )

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self.rows, self.columns = int(self.setting_values["rows"]), int(self.setting_values["columns"])
        self.max_steps = int(self.setting_values["max_steps"])
        self.actions = (
            Spec("paddle", "int32", (), "Move of the paddle: -1 left, 0 none, 1 right; it stops at the walls.", -1, 1),
        )
        far = max(self.rows, self.columns) - 1
        self.observations = (
            Spec("ball", "int32", (2,), "Row and column of the ball, from 0 at the top left.", 0, far),
            Spec("paddle", "int32", (), "Column of the paddle, from 0 at the left.", 0, self.columns - 1),
        )
        self._template, self._paddle_row, self._ball_row = build_template(assets, self.rows, self.columns)
        self.rows_per_lane = len(self._template)
        self.static_rows = STATIC_ROWS
        pose = look_at((0.0, -EYE_M, 0.0), (0.0, 0.0, 0.0))
        self._eye = CameraPlacement(pose, max(self.rows, self.columns) / 2 + BORDER_M, True, 5.0, 15.0)

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the ball's row and column, and the paddle's column."""
        return {"ball": ("int32", (2,)), "paddle": ("int32", ())}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Put the ball at the top of a random column and the paddle in the middle."""
        reset_catch(lanes, seeds, self.columns, state.ball, state.paddle)

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Move the paddle and let the ball fall by one row; in the last row it is caught or missed."""
        moves = np.array(actions["paddle"][:, 0], np.int32)
        reward, terminated = np.empty((len(lanes), 1), np.float32), np.empty(len(lanes), np.bool_)
        step_catch(lanes, moves, self.rows, self.columns, state.ball, state.paddle, reward, terminated)
        return StepResult(reward, terminated)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Return a field of the state: both observations are fields."""
        return np.asarray(getattr(state, name)[lanes])

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return the placement of `eye`, which never moves."""
        return self._eye

    def write_static_instances(self, scene: Scene, scene_lanes: I32) -> None:
        """Write all rows and the light."""
        self._template.write(scene, scene_lanes, **LIGHT)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write the positions of the ball and the paddle."""
        write_positions(
            lanes,
            scene_lanes,
            scene.lanes.first_row,
            self.rows,
            self.columns,
            state.ball,
            state.paddle,
            self._ball_row,
            self._paddle_row,
            scene.instances.pose,
        )
