"""The base class of world families, and the types that its methods exchange with a pool.

A family is the rules of a vectorised simulation and the scene that shows it. A family object holds no state of lanes:
that is in arrays with a row for each lane (`State`), which a pool allocates, grows and passes in. The argument `lanes`
of a method lists the rows that a call is about; a method reads and writes no others.

Episodes, the seeds of worlds, time limits and messages are not a family's concern: the pool (`worlds/pool.py`) and the
server deal with them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.kernels.tables import F32, F64, I32, I64, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import LANE_BYTES, ROW_BYTES, Scene
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.randomisation.distractions import Distraction
from worldloom.worlds.settings import Setting, SettingError, Value, parse_settings

Bound: TypeAlias = float | tuple[float, ...] | None
"""Limit of a value: one number for all elements, or a tuple with one for each; an infinite number is no limit."""

_BOOKKEEPING_BYTES = 64
"""Bytes of a lane in the tables of a pool, without rewards."""


@dataclass(frozen=True)
class Spec:
    """Name, type and range of an action or an observation, for one agent in one lane."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    text: str
    minimum: Bound = None
    maximum: Bound = None
    hidden: bool = False
    """True if the frames do not show it: use it to evaluate a learner, not as its input."""
    idle: tuple[float, ...] | None = None
    """Value of an action that is not sent, as a flat tuple; zeros, or the values in range nearest to them, if None."""


@dataclass(frozen=True)
class Camera:
    """Name and description of a camera."""

    name: str
    text: str
    outputs: tuple[str, ...] = OUTPUT_NAMES
    """Names of the outputs that it can be asked for."""
    is_drawn: bool = True
    """False if its frames are pictures that the family supplies (`Family.picture`); outputs are then rgb and gray."""
    focus_m: float = 0.0
    """Distance of the point ahead that it goes around where `vary_camera` moves it; 0: it turns in place."""

    @property
    def output_bits(self) -> int:
        """Bits of its outputs."""
        return output_bits(self.outputs)


class CameraPlacement(NamedTuple):
    """Pose and projection of a camera in n lanes: the camera columns of a view table."""

    pose: F32  # [n, 3, 4], or [3, 4] where all lanes have the same
    half_height: F32 | float  # see worldloom.kernels.tables.ViewTable
    orthographic: bool
    near: float
    far: float


class StepResult(NamedTuple):
    """Rewards and terminations of one step of n lanes."""

    reward: F32 | F64  # [n, agents], of the family's reward_dtype
    terminated: NDArray[np.bool_]  # [n] the episode is over by the rules of the family
    truncated: NDArray[np.bool_] | None = None  # [n] it is interrupted, beside those at the limit of `max_steps`


class ActionError(ValueError):
    """Actions that were rejected; the message says which, what was expected and what came."""


class LaneErrors(Exception):  # noqa: N818  # not an error itself: some lanes have one, the others were stepped
    """Errors in some of the lanes of a step, by index into its `lanes`. The others were stepped, as `result` tells."""

    def __init__(self, result: StepResult, errors: Mapping[int, Exception]) -> None:
        super().__init__(f"{len(errors)} of {len(result.terminated)} lanes failed")
        self.result = result
        self.errors = errors


class State:
    """The arrays of a family's lanes, with a row for each lane; `state.height` is the array of the field `height`.

    The field `lane_seed` exists in every family: the seed of the lane, which is the same in all its episodes.
    """

    def __init__(self, fields: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        self.fields = {**fields, "lane_seed": ("uint64", ())}
        for name, (dtype, shape) in self.fields.items():
            setattr(self, name, np.zeros((0, *shape), dtype))

    def resize(self, capacity: int) -> None:
        """Replace the arrays by larger or smaller ones with `capacity` rows; rows that remain keep their values."""
        for name in self.fields:
            setattr(self, name, resized(getattr(self, name), capacity))

    def clear(self, lanes: I64) -> None:
        """Set all fields of these lanes but their seeds to 0: a reused row keeps nothing of its previous lane."""
        for name in self.fields:
            if name != "lane_seed":
                getattr(self, name)[lanes] = 0

    def release(self, lanes: I64) -> None:
        """Drop the objects of these lanes, which are not in use any more."""
        for name, (dtype, _) in self.fields.items():
            if dtype == "object":
                getattr(self, name)[lanes] = 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no state field {name!r}: expected one of {', '.join(self.fields)}")


def resized(array: np.ndarray, rows: int) -> np.ndarray:
    """Return a copy of an array with so many rows: its first ones, and zeros where there are more."""
    copied = np.zeros((rows, *array.shape[1:]), array.dtype)
    kept = min(rows, len(array))
    copied[:kept] = array[:kept]
    return copied


class Family(ABC):
    """Rules and scene of one kind of world, for one choice of its settings."""

    name: ClassVar[str]
    """Name that users ask for: lower case letters, digits, `_` and `-`."""
    text: ClassVar[str]
    """Description in one sentence."""
    settings: ClassVar[tuple[Setting, ...]]
    required_settings: ClassVar[tuple[str, ...]] = ()
    """Names of settings whose default cannot be used: users must pass a value. See `missing_settings`."""
    labels: tuple[str, ...]
    """Meaning of each number in a segmentation frame: `labels[k]` describes label k. Label 0 is the sky."""

    reward_dtype: ClassVar[str] = "float32"
    """float32, or float64 where rewards must not be rounded."""

    agents: int = 1
    rows_per_lane: int
    """Number of instance rows reserved for each lane: the most that a lane ever needs."""
    static_rows: int = 0
    """Number of rows, from the first, that look the same in most lanes and at most times: they are drawn once and
    reused. A number that is too high costs time; the frames stay right."""
    sized_labels: Collection[int] | None = None
    """Labels of what has another size with `vary_sizes`; None: everything but static rows."""
    row_groups: Sequence[int] | None = None
    """Number of the group of each instance row of a lane: with `vary_colors` and `vary_textures` a group stays of one
    kind. None: rows with the same label are a group."""
    distraction: Distraction | None = None
    """Published distraction that these settings name, and what it varies."""
    max_steps: int
    """Number of steps after which an episode is interrupted."""
    steps_per_s: float = 30.0
    """Steps in a second of the world's own time, for those who film it."""
    actions: tuple[Spec, ...]
    observations: tuple[Spec, ...]
    cameras: tuple[Camera, ...]
    no_cameras_text: str = ""
    """Reason for having no cameras, and advice, for errors of those who ask for a frame all the same."""

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        self.setting_values: dict[str, Value] = parse_settings(self.settings, settings)
        missing = self.missing_settings(settings)
        for setting in self.settings:
            if setting.name in missing:
                raise SettingError(f"setting {setting.name!r} is missing: expected {setting.expected}. {setting.text}")
        self.assets = assets

    @classmethod
    def missing_settings(cls, given: Collection[str]) -> list[str]:
        """Return the settings that these lack; override it where one setting can replace another."""
        return [name for name in cls.required_settings if name not in given]

    @classmethod
    def allowed_values(cls) -> dict[str, tuple[str, ...]]:
        """Return what the operator allows for settings whose choices depend on that: setting -> values or names."""
        return {}

    seed_text: ClassVar[str] = (
        "Lane k of a world with seed s is the world of one lane with seed (s + k * 0x9E3779B97F4A7C15) mod 2**64; "
        "lane 0 is that with seed s. Worlds with other seeds have other lanes."
    )
    """Relation of the lanes of a world to worlds of one lane, in sentences. It has to be that of `lane_seeds`."""

    @staticmethod
    def lane_seeds(world_seed: int | NDArray[np.uint64], lanes: int | NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the seeds of a world's lanes; override it where lane seeds must follow another rule.

        `lanes` are the numbers of the lanes, or how many there are: then they are counted from 0. `world_seed` is the
        world's, or an array with one for each lane.
        """
        return lane_seeds(world_seed, lanes)

    def memory_bytes(self, lanes: int) -> int:
        """Estimate the memory of a pool with so many lanes, in bytes, so that a server can stay within its budget.

        This counts the state, the pool's bookkeeping and the scene's rows, twice, since tables grow by doubling. Add
        to it where a family or a lane holds more.
        """
        state = sum(np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in self.state_fields().values())
        bookkeeping = _BOOKKEEPING_BYTES + self.agents * np.dtype(self.reward_dtype).itemsize
        return 2 * lanes * (state + bookkeeping + LANE_BYTES + self.rows_per_lane * ROW_BYTES)

    def check_actions(self, actions: Mapping[str, np.ndarray]) -> None:  # noqa: B027  # most families need none
        """Raise ActionError for actions [lanes, *shape] that are in the range of their specs, but not valid.

        It is called with the actions that one agent has sent, before anything changes.
        """

    def physical_counts(self) -> Mapping[str, int]:
        """Return what of the simulation can vary, such as `masses`, and how many numbers are drawn for it."""
        return {}

    def vary_physics(self, amounts: Mapping[str, float]) -> None:
        """Have each lane vary by these amounts. It is called once, before there are lanes.

        The state then needs a field `physics` (float64) with the numbers in 0..1 of each lane, one variation after the
        other. They are written before `reset`, which applies them.
        """
        raise NotImplementedError(f"{self.name} has nothing that could vary: expected the family to override this")

    @abstractmethod
    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the fields of the state, name -> (dtype, shape), for one lane."""

    @abstractmethod
    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Begin an episode in each lane. Everything random in the episode must be derived from `seeds` [n]."""

    @abstractmethod
    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Advance the lanes by one step. `actions[name]` is [n, agents, *shape], within the range of its spec.

        After any error but LaneErrors the step is made again, with fewer lanes, on the state as it was before. A family
        that keeps state elsewhere must raise LaneErrors for an error in some lanes.
        """

    @abstractmethod
    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Return an observation of one agent, [n, *shape]."""

    @abstractmethod
    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return the pose and projection of one agent's camera in these lanes."""

    def find_camera(self, name: str) -> Camera:
        """Return the camera of that name."""
        return next(one for one in self.cameras if one.name == name)

    def focus_distances_m(self, state: State, lanes: I64, camera: str) -> F64:
        """Return how far ahead of a camera of `distraction` the point is that it looks at, [n]."""
        return np.full(len(lanes), self.find_camera(camera).focus_m)

    def picture(self, state: State, lanes: I64, camera: str, agent: int, width: int, height: int) -> U8:
        """Return the pictures of a camera that is not drawn, [n, height, width, 3]. Making them changes nothing."""
        raise NotImplementedError(
            f"camera {camera!r} of {self.name} is not drawn: expected the family to override this"
        )

    def free(self, lanes: I64, scene: Scene, scene_lanes: I32) -> None:  # noqa: B027  # most families need none
        """Free what lanes hold outside of their state and their instance rows; they are not used any more."""

    def write_static_instances(self, scene: Scene, scene_lanes: I32) -> None:  # noqa: B027  # most families need none
        """Write what stays in the rows of lanes, and their light, before the lanes are drawn for the first time."""

    @abstractmethod
    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write the instance rows (`scene.rows(scene_lanes)`) and the light of lanes that are about to be drawn."""
