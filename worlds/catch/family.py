"""Catch: a ball falls from the top of a board, a paddle at the bottom must be under it when it lands.

The rules are those of bsuite's catch and in `kernels.py`. The board stands upright in metres, a cell to a metre:
x to the right, z up, its middle at the origin.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.textures import checker
from worldloom.render.views import look_at
from worldloom.worlds.catch.kernels import dress_catch, start_catch, step_catch
from worldloom.worlds.family import Camera, Family, Outcome, Placement, Spec, State
from worldloom.worlds.props import Props, lying, placed, rgb, take_texture
from worldloom.worlds.settings import Setting

_BORDER = 0.35
"""Metres of frame around the board."""
_LIGHT: dict[str, ArrayLike] = {
    "light_direction": (0.5, 1.0, -0.9),
    "light_color": 0.75,
    "ambient": 0.62,
    "ambient_ground": 0.26,
    "sky_horizon": rgb("242b4d"),
    "sky_zenith": rgb("3c487c"),
}


class Catch(Family):
    """One ball an episode: it lands after rows - 1 steps, and the episode ends with a reward of 1 or -1."""

    name = "catch"
    text = "Catch the falling ball with the paddle."
    settings = (
        Setting("rows", 10, "Height of the board in cells; the ball falls one a step.", 3, 64),
        Setting("columns", 5, "Width of the board in cells.", 2, 64),
        Setting("max_steps", 1000, "Steps after which an episode is interrupted.", 1, 1_000_000),
    )
    labels = ("sky", "frame", "board", "paddle", "ball")
    cameras = (
        Camera(
            "eye",
            "Orthographic, straight at the board. The picture is as high as the board's longer side and its frame: "
            "all of the board is in it if the picture is square or wider.",
        ),
    )

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(given, assets)
        self.rows, self.columns = int(self.given["rows"]), int(self.given["columns"])
        self.max_steps = int(self.given["max_steps"])
        self.actions = (
            Spec("paddle", "int32", (), "Where the paddle goes: -1 left, 0 nowhere, 1 right; walls hold it.", -1, 1),
        )
        far = max(self.rows, self.columns) - 1
        self.observations = (
            Spec("ball", "int32", (2,), "Row and column of the ball, from 0 at the top left.", 0, far),
            Spec("paddle", "int32", (), "Column of the paddle, from 0 at the left.", 0, self.columns - 1),
        )
        self._props, (self._paddle, self._ball) = self._make_props()
        self.rows_per_lane = len(self._props)
        self.still_rows = 2  # the frame and the board
        pose = look_at((0.0, -10.0, 0.0), (0.0, 0.0, 0.0))
        self._eye = Placement(pose, max(self.rows, self.columns) / 2 + _BORDER, True, 5.0, 15.0)

    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Where the ball and the paddle are."""
        return {"ball": ("int32", (2,)), "paddle": ("int32", ())}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """A ball at the top of any column, the paddle in the middle."""
        start_catch(lanes, seeds, self.columns, state.ball, state.paddle)

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> Outcome:
        """The paddle moves, the ball falls; on the last row it is caught or missed."""
        moves = np.array(actions["paddle"][:, 0], np.int32)
        reward, ended = np.empty((len(lanes), 1), np.float32), np.empty(len(lanes), np.bool_)
        step_catch(lanes, moves, self.rows, self.columns, state.ball, state.paddle, reward, ended)
        return Outcome(reward, ended)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Both observations are state as it is."""
        return np.asarray(getattr(state, name)[lanes])

    def look(self, state: State, lanes: I64, camera: str, agent: int) -> Placement:
        """Straight at the board."""
        return self._eye

    def dress(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """The board as it always is, and the ball and the paddle where they are now."""
        self._props.furnish(scene, scene_lanes, **_LIGHT)
        dress_catch(
            lanes,
            scene_lanes,
            scene.lanes.first_row,
            self.rows,
            self.columns,
            state.ball,
            state.paddle,
            self._ball,
            self._paddle,
            scene.instances.pose,
        )

    def _make_props(self) -> tuple[Props, tuple[int, int]]:
        """Frame, board, and the paddle and the ball, each after its shadow; and the rows of those two."""
        props = Props(self.assets)
        wide, high = float(self.columns), float(self.rows)
        cells = take_texture(self.assets, "cells", lambda size: checker(size, 2, 255, 228))
        props.add("quad", placed((0, 0, 0), (wide + 2 * _BORDER, 1, high + 2 * _BORDER)), "7284c4", 1)
        props.add("quad", placed((0, -0.05, 0), (wide, 1, high)), "2c3560", 2, cells, (wide / 2, high / 2))
        props.add("quad", placed((0, 0, 0), (0.96, 1, 0.4)), "161c38", 2)
        paddle = props.add("box", placed((0, 0, 0), (0.96, 0.3, 0.4)), "ffd166", 3)
        props.add("disc", lying((0, 0, 0), 0.74, 1), "161c38", 2)
        ball = props.add("ball", placed((0, 0, 0), (0.74, 0.74, 0.74)), "ef6f6c", 4)
        return props, (paddle, ball)
