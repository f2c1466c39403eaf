"""Catch: a ball falls from the top of a board, a paddle at the bottom must be under it when it lands.

The rules are those of bsuite's catch. All of it is integers, so NumPy alone steps every lane the same in any company.
The board stands upright in metres, a cell to a metre: x to the right, z up, its middle at the origin.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.textures import checker
from worldloom.render.views import look_at
from worldloom.worlds.chance import integer
from worldloom.worlds.family import Camera, Family, Outcome, Placement, Spec, State
from worldloom.worlds.props import Props, placed, rgb, take_texture
from worldloom.worlds.settings import Setting

_BORDER = 0.35
"""Metres of frame around the board."""
_SHADE = np.array([0.12, 0.0, -0.14])
"""Where a shadow lies, seen from what casts it."""


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

    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Where the ball and the paddle are."""
        return {"ball": ("int32", (2,)), "paddle": ("int32", ())}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """A ball at the top of any column, the paddle in the middle."""
        state.ball[lanes, 0] = 0
        state.ball[lanes, 1] = integer(seeds, 0, self.columns)
        state.paddle[lanes] = self.columns // 2

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> Outcome:
        """The paddle moves, the ball falls; on the last row it is caught or missed."""
        paddle = np.clip(state.paddle[lanes] + actions["paddle"][:, 0], 0, self.columns - 1)
        ball = state.ball[lanes]
        ball[:, 0] += 1
        state.paddle[lanes], state.ball[lanes] = paddle, ball
        ended = ball[:, 0] == self.rows - 1
        reward = np.where(ball[:, 1] == paddle, 1.0, -1.0) * ended
        return Outcome(reward.astype(np.float32)[:, None], ended)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Both observations are state as it is."""
        return np.asarray(getattr(state, name)[lanes])

    def look(self, state: State, lanes: I64, camera: str, agent: int) -> Placement:
        """Straight at the board."""
        pose = np.broadcast_to(look_at((0.0, -10.0, 0.0), (0.0, 0.0, 0.0)), (len(lanes), 3, 4))
        return Placement(pose, max(self.rows, self.columns) / 2 + _BORDER, True, 5.0, 15.0)

    def dress(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """The board as it always is, and the ball and the paddle where they are now."""
        rows = self._props.write(scene, scene_lanes)
        poses, look = scene.instances.pose, scene.lanes
        for thing, row, column in (
            (self._ball, *state.ball[lanes].T),
            (self._paddle, self.rows - 1, state.paddle[lanes]),
        ):
            at = np.stack(
                np.broadcast_arrays(column - (self.columns - 1) / 2, -0.6, (self.rows - 1) / 2 - row), axis=-1
            )
            poses[rows[:, thing], :, 3] = at
            poses[rows[:, thing - 1], :, 3] = at + _SHADE + (0.0, 0.5, 0.0)
        look.light_direction[scene_lanes], look.light_color[scene_lanes] = (0.5, 1.0, -0.9), 0.75
        look.ambient[scene_lanes], look.ambient_ground[scene_lanes] = 0.62, 0.26
        look.sky_horizon[scene_lanes], look.sky_zenith[scene_lanes] = rgb("242b4d"), rgb("3c487c")

    def _make_props(self) -> tuple[Props, tuple[int, int]]:
        """Frame, board, and the paddle and the ball, each after its shadow; and the rows of those two."""
        props = Props(self.assets)
        wide, high = float(self.columns), float(self.rows)
        cells = take_texture(self.assets, "cells", lambda size: checker(size, 2, 255, 228))
        props.add("quad", placed((0, 0, 0), (wide + 2 * _BORDER, 1, high + 2 * _BORDER)), "7284c4", 1)
        props.add("quad", placed((0, -0.05, 0), (wide, 1, high)), "2c3560", 2, cells, (wide / 2, high / 2))
        props.add("quad", placed((0, 0, 0), (0.96, 1, 0.4)), "161c38", 2)
        paddle = props.add("box", placed((0, 0, 0), (0.96, 0.3, 0.4)), "ffd166", 3)
        props.add("ball", placed((0, 0, 0), (0.74, 0.01, 0.74)), "161c38", 2)
        ball = props.add("ball", placed((0, 0, 0), (0.74, 0.74, 0.74)), "ef6f6c", 4)
        return props, (paddle, ball)
