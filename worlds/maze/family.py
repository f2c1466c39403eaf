"""Maze: corridors that are new in each episode, seen in first person, with goals to collect and other agents.

The rules are in `kernels.py`, the scene in `scene.py`. Lengths are in metres and a block of the maze is one metre; its
south-west corner is the origin, x points east and y north.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import Camera, CameraPlacement, Family, Spec, State, StepResult
from worldloom.worlds.maze.kernels import MazeTable, reset_mazes, step_mazes
from worldloom.worlds.maze.scene import EYE_HEIGHT, GOAL, GOAL_COLORS, WALL_HEIGHT, build_style, place_eyes, write_mazes
from worldloom.worlds.settings import Setting

_FIELD_OF_VIEW_DEGREES = 75.0
_NEAR = 0.03
"""Near plane of the eye in metres: nearer than any wall gets, in the corners of wide frames too."""
_MAP_ABOVE = 2.0
"""Metres from the tops of the walls to the map's camera: near enough to have no fog."""


class Maze(Family):
    """One to eight agents collect goals; an episode ends when all are collected."""

    name = "maze"
    text = "Find the coloured goals in a maze that is new each episode."
    settings = (
        Setting(
            "size",
            9,
            "Side of the maze in blocks of a metre, outer walls included. An even number counts as the next odd one.",
            5,
            31,
        ),
        Setting("agents", 1, "Agents in the maze; they see and block each other.", 1, 8),
        Setting("goals", 3, "Goals to collect.", 1, 16),
        Setting("max_steps", 1000, "Steps after which an episode is interrupted.", 1, 1_000_000),
        Setting("speed", 0.15, "Metres that an agent moves in a step at most.", 0.001, 10.0),
        Setting("turn_speed", 15.0, "Degrees that an agent turns in a step at most.", 0.001, 180.0),
        Setting(
            "textures",
            "fixed",
            "Walls and floor: always the same, or random for each world.",
            choices=("fixed", "random"),
        ),
        Setting(
            "lighting",
            "fixed",
            "Sun, sky and fog: always the same, or random for each world.",
            choices=("fixed", "random"),
        ),
    )
    labels = ("sky", "floor", "wall", "goal", "agent")
    sized_labels = (GOAL,)
    cameras = (
        Camera(
            "eye",
            f"First person, {100 * EYE_HEIGHT:g} cm above the floor: {_FIELD_OF_VIEW_DEGREES:g} degrees from "
            "bottom to top.",
        ),
        Camera(
            "map",
            "Orthographic, from above, north up. All of the maze if its width is at least its height.",
            focus_m=WALL_HEIGHT + _MAP_ABOVE,
        ),
    )
    actions = (
        Spec(
            "move",
            "float32",
            (2,),
            "Speed forward and to the right; a vector longer than 1 is scaled to length 1.",
            -1,
            1,
        ),
        Spec("turn", "float32", (), "Speed of turning; left is positive. An agent turns before it moves.", -1, 1),
    )

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self.size = int(self.setting_values["size"]) | 1
        self.agents, self.goals = int(self.setting_values["agents"]), int(self.setting_values["goals"])
        self.max_steps = int(self.setting_values["max_steps"])
        self.observations = (
            Spec(
                "position",
                "float32",
                (2,),
                "Metres east and north of the maze's south-west corner.",
                0,
                self.size,
                True,
            ),
            Spec("heading", "float32", (2,), "Unit vector that the agent faces along: east, north.", -1, 1, True),
            Spec("goals_left", "int32", (), "Goals that are not collected yet.", 0, self.goals),
        )
        cells = (self.size // 2) ** 2
        self._loops = cells // 8
        self.rows_per_lane = 1 + self._max_wall_rectangles() + 2 * self.goals + 3 * self.agents
        self._speed = float(self.setting_values["speed"])
        self._turn_speed = np.radians(float(self.setting_values["turn_speed"]))
        self._random_lighting = self.setting_values["lighting"] == "random"
        self._half_height = float(np.tan(np.radians(_FIELD_OF_VIEW_DEGREES) / 2))
        self._map = self._place_map()
        self._style = build_style(assets, self.setting_values["textures"] == "random", self._random_lighting)

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the fields of `MazeTable`."""
        return {
            "walls": ("uint8", (self.size, self.size)),
            "position": ("float64", (self.agents, 2)),
            "heading": ("float64", (self.agents,)),
            "facing": ("float64", (self.agents, 2)),
            "goal_position": ("float64", (self.goals, 2)),
            "goal_color": ("uint8", (self.goals,)),
            "goal_collected": ("uint8", (self.goals,)),
            "goals_left": ("int32", ()),
            "style_seed": ("uint64", ()),
            "walls_written": ("uint8", ()),
        }

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Build a new maze with agents and goals at random positions."""
        scratch = np.empty(self.size * self.size, np.int32)
        reset_mazes(_table(state), lanes, seeds, state.lane_seed[lanes], self._loops, len(GOAL_COLORS), scratch)

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Turn, then move each agent. The reward of an agent is the number of goals that it collected."""
        reward = np.empty((len(lanes), self.agents), np.float32)
        terminated = np.empty(len(lanes), np.bool_)
        move, turn = (np.ascontiguousarray(actions[name], np.float32) for name in ("move", "turn"))
        step_mazes(_table(state), lanes, move, turn, self._speed, self._turn_speed, reward, terminated)
        return StepResult(reward, terminated)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Return a field of the state, as float32 unless it is an integer."""
        if name == "goals_left":
            return np.asarray(state.goals_left[lanes])
        values = state.position if name == "position" else state.facing
        return np.asarray(values[lanes, agent], np.float32)

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return the placement of `eye`, in the agent's head, or of `map`, above the middle of the maze."""
        if camera == "map":
            return self._map
        pose = np.empty((len(lanes), 3, 4), np.float32)
        place_eyes(lanes, agent, state.position, state.facing, pose)
        return CameraPlacement(pose, self._half_height, False, _NEAR, 1.5 * self.size)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write goals and agents, and the floor, walls and light where the maze is new."""
        write_mazes(
            _table(state),
            lanes,
            scene_lanes,
            self._style,
            self._random_lighting,
            scene.instances,
            scene.lanes,
        )

    def _place_map(self) -> CameraPlacement:
        above = WALL_HEIGHT + _MAP_ABOVE
        pose = np.eye(3, 4, dtype=np.float32)
        pose[:, 3] = (self.size / 2, self.size / 2, above)
        return CameraPlacement(pose, self.size / 2, True, 0.1, above + 1.0)

    def _max_wall_rectangles(self) -> int:
        """Return the most sides and tops of walls that any maze of this size can have, counting each run once.

        Sides: each of a cell's four is closed, or a passage leaves there that has two sides of its own and shares them
        with another cell: that is the length of four blocks for each cell. Where a side continues straight from the
        cell into the passage the two are one run, so a straight cell adds no run, one with four exits adds four, and
        any other adds two. A tree has two dead ends for each cell with four exits, so at most a third of the cells are
        such, and none at the border; a loop saves two dead ends. Tops: a run for each line of posts, and another for
        each passage that crosses one.
        """
        side = self.size // 2
        cells, loops = side * side, self._loops
        crossings = min((side - 2) ** 2, (cells - 2 + 2 * loops) // 3)
        return 2 * cells + 2 * crossings + 2 * (side + 1) + cells - 1 + loops


def _table(state: State) -> MazeTable:
    return MazeTable(*[getattr(state, name) for name in MazeTable._fields])
