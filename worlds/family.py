"""What a world family is: the rules of a vectorised simulation, and how its worlds look.

A family object holds rules and no state. All state is in arrays with a row for each lane (`State`), which a pool
makes, grows and hands in; `lanes` says which rows a call is about. Nothing here knows of episodes, seeds of worlds,
time limits or the wire: the pool (`worlds/pool.py`) sees to those.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F32, F64, I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.settings import Setting, SettingError, Value, take_settings

Bound: TypeAlias = float | tuple[float, ...] | None
"""One for all elements, or one for each in order, where an infinite one limits nothing."""


@dataclass(frozen=True)
class Spec:
    """An action or an observation of one agent in one lane."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    text: str
    minimum: Bound = None
    maximum: Bound = None
    hidden: bool = False
    """Not to be seen in the pictures: for judging a learner, not for feeding it."""


@dataclass(frozen=True)
class Camera:
    """A place that pictures are taken from."""

    name: str
    text: str


class Placement(NamedTuple):
    """Where the cameras of some lanes stand: the camera columns of a view table."""

    pose: F32  # [n, 3, 4], or [3, 4] for all of them
    half_height: F32 | float  # see worldloom.kernels.tables.ViewTable
    orthographic: bool
    near: float
    far: float


class Outcome(NamedTuple):
    """What a step brought."""

    reward: F32 | F64  # [n, agents], of the family's reward_dtype
    ended: NDArray[np.bool_]  # [n] the episode is over by its own rules


class State:
    """A family's arrays, a row for each lane; `state.name` is the array of the field of that name.

    `state.lane_seed` is there always: the lane's own seed, the same in all its episodes.
    """

    def __init__(self, fields: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        self.fields = {**fields, "lane_seed": ("uint64", ())}
        for name, (dtype, shape) in self.fields.items():
            setattr(self, name, np.zeros((0, *shape), dtype))

    def grow(self, capacity: int) -> None:
        """Room for that many lanes; what is there stays."""
        for name in self.fields:
            array = getattr(self, name)
            grown = np.zeros((capacity, *array.shape[1:]), array.dtype)
            grown[: len(array)] = array
            setattr(self, name, grown)

    def begin(self, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Lanes that are taken: nothing is left of whoever had them before."""
        for name in self.fields:
            getattr(self, name)[lanes] = 0
        self.lane_seed[lanes] = seeds

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no state field {name!r}: expected one of {', '.join(self.fields)}")


class Family(ABC):
    """The rules and looks of one kind of world, for one choice of its settings."""

    name: ClassVar[str]
    text: ClassVar[str]
    settings: ClassVar[tuple[Setting, ...]]
    required: ClassVar[tuple[str, ...]] = ()
    """Settings that have no default to speak of, and must be given."""
    labels: tuple[str, ...]
    """What segmentation shows: `labels[k]` is what k stands for. Label 0 is the sky's."""

    reward_dtype: ClassVar[str] = "float32"
    """float64 where rewards must not be rounded."""

    agents: int = 1
    rows_per_lane: int
    """Instance rows that a lane needs at most."""
    still_rows: int = 0
    """How many of the first look the same in every lane, at most times: they are drawn once for all. Where they do not,
    that costs time, and nothing else."""
    max_steps: int
    """Steps after which an episode is interrupted."""
    actions: tuple[Spec, ...]
    observations: tuple[Spec, ...]
    cameras: tuple[Camera, ...]

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        self.given: dict[str, Value] = take_settings(self.settings, given)
        missing = [setting for setting in self.settings if setting.name in self.required and setting.name not in given]
        if missing:
            raise SettingError(
                f"setting {missing[0].name!r} is missing: expected {missing[0].expected}. {missing[0].text}"
            )
        self.assets = assets

    @staticmethod
    def lane_seeds(world_seed: int, lanes: int) -> NDArray[np.uint64]:
        """The seeds of a world's lanes: by lot, unless a family has a rule of its own."""
        return lane_seeds(world_seed, lanes)

    @abstractmethod
    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The state of a lane: name -> (dtype, shape)."""

    @abstractmethod
    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Begin an episode in each lane. All chance in it must come from the lane's seed."""

    @abstractmethod
    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> Outcome:
        """Advance the lanes by one step. `actions[name]` is [n, agents, *shape], inside the spec's range."""

    @abstractmethod
    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """An observation of one agent, [n, *shape]."""

    @abstractmethod
    def look(self, state: State, lanes: I64, camera: str, agent: int) -> Placement:
        """Where a camera stands."""

    @abstractmethod
    def dress(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write the instance rows (`scene.rows(scene_lanes)`) and the lights of lanes that are about to be drawn."""
