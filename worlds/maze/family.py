"""Maze: corridors made anew each episode, seen in first person, with goals to find and others in the way.

The rules are in `worlds/maze/kernels.py` and `worlds/maze/kernels.py`, the looks in `worlds/maze/scene.py` and
`worlds/maze/scene.py`. Lengths are in metres and a block of the maze is one; its south-west corner is the origin, x
goes east and y north.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import Camera, Family, Outcome, Placement, Spec, State
from worldloom.worlds.maze.kernels import MazeTable, begin_mazes, step_mazes
from worldloom.worlds.maze.scene import EYE_HEIGHT, GOAL_COLORS, WALL_HEIGHT, dress_mazes, make_looks, place_eyes
from worldloom.worlds.settings import Setting

_FIELD_OF_VIEW_DEGREES = 75.0
_NEAR = 0.03
"""Of the eye: nearer than any wall comes to it, also in the corners of wide pictures."""
_MAP_ABOVE = 2.0
"""Metres from the walls' tops to the map's camera: too near for fog."""


class Maze(Family):
    """One to eight agents collect goals; an episode ends when all are taken."""

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
        Setting("speed", 0.15, "Metres an agent goes in a step at most.", 0.001, 10.0),
        Setting("turn_speed", 15.0, "Degrees an agent turns in a step at most.", 0.001, 180.0),
        Setting(
            "textures",
            "fixed",
            "Walls and floor: the same always, or by chance for each world.",
            choices=("fixed", "random"),
        ),
        Setting(
            "lighting",
            "fixed",
            "Sun, sky and fog: the same always, or by chance for each world.",
            choices=("fixed", "random"),
        ),
    )
    labels = ("sky", "floor", "wall", "goal", "agent")
    cameras = (
        Camera(
            "eye",
            f"What the agent sees, {100 * EYE_HEIGHT:g} cm above the floor: {_FIELD_OF_VIEW_DEGREES:g} degrees from "
            "bottom to top.",
        ),
        Camera("map", "Orthographic, from above, north up. The whole maze if the picture is square or wider."),
    )
    actions = (
        Spec(
            "move",
            "float32",
            (2,),
            "How fast to go forward, and to the right; a longer vector than 1 is shortened to it.",
            -1,
            1,
        ),
        Spec("turn", "float32", (), "How fast to turn; left is positive. An agent turns before it goes.", -1, 1),
    )

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(given, assets)
        self.size = int(self.given["size"]) | 1
        self.agents, self.goals = int(self.given["agents"]), int(self.given["goals"])
        self.max_steps = int(self.given["max_steps"])
        self.observations = (
            Spec(
                "position",
                "float32",
                (2,),
                "East and north of the maze's south-west corner, metres.",
                0,
                self.size,
                True,
            ),
            Spec("heading", "float32", (2,), "The way the agent looks, of unit length: east, north.", -1, 1, True),
            Spec("goals_left", "int32", (), "Goals nobody has taken yet.", 0, self.goals),
        )
        cells = (self.size // 2) ** 2
        self._loops = cells // 8
        self.rows_per_lane = 1 + self._most_rectangles() + 2 * self.goals + 3 * self.agents
        self._speed = float(self.given["speed"])
        self._turn_speed = np.radians(float(self.given["turn_speed"]))
        self._random_lighting = self.given["lighting"] == "random"
        self._half_height = float(np.tan(np.radians(_FIELD_OF_VIEW_DEGREES) / 2))
        self._map = self._place_map()
        self._looks = make_looks(assets, self.given["textures"] == "random", self._random_lighting)

    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """See `MazeTable`."""
        return {
            "walls": ("uint8", (self.size, self.size)),
            "position": ("float64", (self.agents, 2)),
            "heading": ("float64", (self.agents,)),
            "facing": ("float64", (self.agents, 2)),
            "goal_position": ("float64", (self.goals, 2)),
            "goal_color": ("uint8", (self.goals,)),
            "goal_taken": ("uint8", (self.goals,)),
            "goals_left": ("int32", ()),
            "look": ("uint64", ()),
            "dressed": ("uint8", ()),
        }

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Another maze, agents and goals anywhere in it."""
        scratch = np.empty(self.size * self.size, np.int32)
        begin_mazes(_table(state), lanes, seeds, state.lane_seed[lanes], self._loops, len(GOAL_COLORS), scratch)

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> Outcome:
        """Each agent turns, then goes; a goal is worth 1 to whoever takes it."""
        reward = np.empty((len(lanes), self.agents), np.float32)
        ended = np.empty(len(lanes), np.bool_)
        move, turn = (np.ascontiguousarray(actions[name], np.float32) for name in ("move", "turn"))
        step_mazes(_table(state), lanes, move, turn, self._speed, self._turn_speed, reward, ended)
        return Outcome(reward, ended)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """State as it is, rounded."""
        if name == "goals_left":
            return np.asarray(state.goals_left[lanes])
        values = state.position if name == "position" else state.facing
        return np.asarray(values[lanes, agent], np.float32)

    def look(self, state: State, lanes: I64, camera: str, agent: int) -> Placement:
        """The eye in the agent's head, or the map's camera over the middle."""
        if camera == "map":
            return self._map
        pose = np.empty((len(lanes), 3, 4), np.float32)
        place_eyes(lanes, agent, state.position, state.facing, pose)
        return Placement(pose, self._half_height, False, _NEAR, 1.5 * self.size)

    def dress(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Goals and agents where they are; floor, walls and light if the maze is new."""
        dress_mazes(
            _table(state),
            lanes,
            scene_lanes,
            self._looks,
            self._random_lighting,
            scene.instances,
            scene.lanes,
        )

    def _place_map(self) -> Placement:
        above = WALL_HEIGHT + _MAP_ABOVE
        pose = np.eye(3, 4, dtype=np.float32)
        pose[:, 3] = (self.size / 2, self.size / 2, above)
        return Placement(pose, self.size / 2, True, 0.1, above + 1.0)

    def _most_rectangles(self) -> int:
        """How many sides and tops of walls any maze of this size can have, runs of them counted once.

        Sides: each of a cell's four is closed, or a passage leaves there that has two sides of its own and shares them
        with another cell: four blocks' length for each cell. Where one of these goes on straight from the cell to the
        passage they are one run, so a straight cell adds none, one with four ways out adds four, and any other two. A
        tree has two dead ends for each cell with four ways out, so at most a third of the cells are such, and none at
        the border; a loop saves two dead ends. Tops: a run for each line of posts, and another for each passage that
        crosses one.
        """
        side = self.size // 2
        cells, loops = side * side, self._loops
        crossings = min((side - 2) ** 2, (cells - 2 + 2 * loops) // 3)
        return 2 * cells + 2 * crossings + 2 * (side + 1) + cells - 1 + loops


def _table(state: State) -> MazeTable:
    return MazeTable(*[getattr(state, name) for name in MazeTable._fields])
