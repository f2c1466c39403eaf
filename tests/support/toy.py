"""A family whose results are easy to predict: it counts its steps, and its seed determines when it ends."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import look_at
from worldloom.worlds.family import Camera, CameraPlacement, Family, Spec, State, StepResult
from worldloom.worlds.random import integers
from worldloom.worlds.settings import Setting


class Toy(Family):
    """Terminates at a step that depends on the seed, from 1 to `longest`."""

    name = "toy"
    text = "Counts its steps."
    settings = (
        Setting("agents", 1, "How many count.", 1, 4),
        Setting("longest", 6, "Steps of the longest episode.", 1, 1000),
        Setting("max_steps", 4, "Steps after which an episode is interrupted.", 1, 1_000_000),
        Setting("pace", 1.0, "Metres a step.", minimum=0.0),
        Setting("color", "red", "Of the box.", choices=("red", "blue")),
    )
    labels = ("sky", "box")
    cameras = (Camera("eye", "Straight at the box."), Camera("top", "From above."))
    rows_per_lane = 2

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self.agents = int(self.setting_values["agents"])
        self.longest = int(self.setting_values["longest"])
        self.max_steps = int(self.setting_values["max_steps"])
        self.actions = (Spec("push", "float32", (2,), "Added up to the reward.", -1.0, 1.0),)
        self.observations = (
            Spec("count", "int64", (), "Steps so far.", minimum=0),
            Spec("end", "int64", (), "The step at which it ends.", 1, self.longest, hidden=True),
        )
        self.calls: list[tuple[str, int]] = []
        """The calls of reset and step, with the number of lanes of each."""

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {"count": ("int64", ()), "end": ("int64", ()), "seed": ("uint64", ()), "pushed": ("float64", (4, 2))}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        self.calls.append(("reset", len(lanes)))
        state.count[lanes] = 0
        state.end[lanes] = 1 + integers(seeds, 0, self.longest)
        state.seed[lanes] = seeds
        state.pushed[lanes] = 0.0

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        self.calls.append(("step", len(lanes)))
        state.count[lanes] += 1
        state.pushed[lanes, : self.agents] += actions["push"]
        return StepResult(actions["push"].sum(axis=2).astype(np.float32), state.count[lanes] >= state.end[lanes])

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        return np.asarray(getattr(state, name)[lanes])

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        pose = look_at((0, -4, 0) if camera == "eye" else (0, 0, 4), (0, 0, 0))
        return CameraPlacement(np.broadcast_to(pose, (len(lanes), 3, 4)), 1.0, camera == "top", 0.1, 10.0)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        row = scene.rows(scene_lanes)[:, 0]
        scene.instances.mesh[row], scene.instances.label[row] = self.assets.mesh("box"), 1
        scene.instances.pose[row, 0, 3] = state.count[lanes]


class Unfinished(Toy):
    """A family that lacks a method."""

    name = "unfinished"
    step = Family.step  # abstract


class Nameless(Family):
    """A family that lacks all class attributes and methods."""


class Loud(Toy):
    """A family with an invalid name."""

    name = "Loud Toy"


class SameName(Toy):
    """A family with the name of another."""


NOT_A_CLASS = 3


class NamedToy(Toy):
    """A family that is derived from another, and cannot be built without a setting."""

    name = "named_toy"
    required_settings = ("color",)
