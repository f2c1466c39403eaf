"""The rows of lanes: the arrays of one family's lanes, which grow, shrink, and are reused.

Lanes in use keep their numbers and their values whatever is added and freed.
"""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F32, F64, I32, I64, U8
from worldloom.render.scene import Scene
from worldloom.worlds.family import Family, Spec, State, resized
from worldloom.worlds.randomisation.lanes import RandomisedLanes
from worldloom.worlds.randomisation.settings import NOTHING, Randomisation, VariationChoice

RUNNING, TERMINATED, INTERRUPTED = 1, 2, 3
"""Values of `Pool.status`, the state of a lane's episode; the numbers are dm_env_rpc's EnvironmentStateType."""
FIRST, MID, LAST = 0, 1, 2
"""Values of `Pool.step_type`, the position of a lane's last step in its episode."""
_COLUMNS = (
    *("scene_lane", "status", "step_type", "episode", "steps", "reward", "discount"),
    *("_in_use", "_has_static_instances", "_is_reseeded", "_mark", "_free"),
)
"""Names of the arrays with a row for each lane."""


class LaneRows:
    """Lanes of one family. Every array has a row for each lane; rows of lanes that are not in use have no meaning."""

    def __init__(self, family: Family, scene: Scene, randomisation: Randomisation | None = None) -> None:
        self.family = family
        self.scene = scene
        if randomisation is None and family.distraction is not None:
            randomisation = NOTHING
        self.randomised = None if randomisation is None else RandomisedLanes(family, randomisation)
        """The variations of the lanes, if anything varies."""
        self.state = State(family.state_fields())
        self.scene_lane: I32 = np.zeros(0, np.int32)
        self.status: U8 = np.zeros(0, np.uint8)
        self.step_type: U8 = np.zeros(0, np.uint8)
        self.episode: I64 = np.zeros(0, np.int64)
        self.steps: I64 = np.zeros(0, np.int64)
        self.reward: F32 | F64 = np.zeros((0, family.agents), family.reward_dtype)
        self.discount: F32 = np.zeros(0, np.float32)
        self._in_use: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._has_static_instances: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._is_reseeded: NDArray[np.bool_] = np.zeros(0, np.bool_)  # its state is that of an earlier seed's episode
        self._reseeded_count = 0
        self._mark: I64 = np.zeros(0, np.int64)  # scratch of find_invalid_lane
        self._free: I64 = np.zeros(0, np.int64)  # a stack of freed lanes, as long as the other arrays
        self._free_count = 0
        self._used = 0
        self._freed_rows = 0

    @property
    def lanes_in_use(self) -> int:
        """Number of lanes that were added and not freed."""
        return self._used - self._free_count

    @property
    def capacity(self) -> int:
        """Number of lanes that the arrays have rows for."""
        return len(self.status)

    def reserve(self, count: int) -> None:
        """Make room for so many lanes more, so that adding them in parts moves those in use once at most."""
        fresh = max(0, count - self._free_count)
        if self._used + fresh > self.capacity:
            self._resize(max(self._used + fresh, 2 * self.capacity))
        self.scene.reserve(count, self.family.rows_per_lane)
        if self.randomised is not None:
            self.randomised.reserve(count)

    def add(self, seeds: NDArray[np.uint64]) -> I64:
        """Add a lane for each seed and return their numbers. The first step of a lane begins its first episode."""
        count = len(seeds)
        reused = min(count, self._free_count)
        fresh = count - reused
        self.reserve(count)
        lanes = np.empty(count, np.int64)
        lanes[:reused] = self._free[self._free_count - reused : self._free_count]
        lanes[reused:] = np.arange(self._used, self._used + fresh)
        self._free_count -= reused
        self._used += fresh
        self._in_use[lanes] = True
        self._has_static_instances[lanes] = False
        self._is_reseeded[lanes] = False
        self.state.clear(lanes[:reused])  # rows that were never used are 0
        self.state.lane_seed[lanes] = seeds
        self.scene_lane[lanes] = self.scene.add(count, self.family.rows_per_lane, self.family.static_rows)
        self.status[lanes] = INTERRUPTED
        self.step_type[lanes] = LAST
        self.episode[lanes] = -1
        self.steps[lanes] = 0
        self.reward[lanes] = 0.0
        self.discount[lanes] = 1.0
        if self.randomised is not None:
            self.randomised.add(lanes, self.state, self.episode)
        return lanes

    def memory_bytes(self, lanes: int) -> int:
        """Estimate the memory with so many lanes, in bytes."""
        varied_bytes = 0 if self.randomised is None else self.randomised.memory_bytes(lanes)
        return self.family.memory_bytes(lanes) + varied_bytes

    @property
    def family_scene(self) -> tuple[Scene, I32]:
        """The scene that the family writes, and the lane of it for each lane."""
        if self.randomised is not None:
            return self.randomised.scene, self.randomised.scene_lane
        return self.scene, self.scene_lane

    def free(self, lanes: I64) -> None:
        """Free lanes. Each is in use, and listed once."""
        scene, scene_lane = self.family_scene
        self.family.free(lanes, scene, scene_lane[lanes])
        self.scene.free(self.scene_lane[lanes])
        if self.randomised is not None:
            self.randomised.free(lanes)
        self._in_use[lanes] = False
        self._reseeded_count -= int(np.count_nonzero(self._is_reseeded[lanes]))
        self._free[self._free_count : self._free_count + len(lanes)] = lanes
        self._free_count += len(lanes)
        self.state.release(lanes)
        self._freed_rows += len(lanes)
        if self._freed_rows > self.capacity // 2:  # looking for the last lane in use costs as much as all rows
            self._shrink()

    def choose_variations(self, lanes: I64, choice: VariationChoice) -> None:
        """Set seed and number of the variations of these lanes, from their next episode on."""
        if self.randomised is not None:
            self.randomised.choose(lanes, choice)
            self.randomised.begin(
                lanes[(self.episode[lanes] < 0) & ~self._is_reseeded[lanes]], self.state, self.episode
            )

    def _resize(self, capacity: int) -> None:
        self.state.resize(capacity)
        for name in _COLUMNS:
            setattr(self, name, resized(getattr(self, name), capacity))
        if self.randomised is not None:
            self.randomised.resize(capacity)

    def _shrink(self) -> None:
        """Release the rows behind the last lane in use, if they are most of all. Lanes keep their numbers."""
        self._freed_rows = 0
        in_use = np.flatnonzero(self._in_use[: self._used])
        used = int(in_use[-1]) + 1 if len(in_use) else 0
        if used <= self.capacity // 4:
            free = self._free[: self._free_count]
            free = free[free < used]
            self._used, self._free_count = used, len(free)
            self._resize(used)
            self._free[: len(free)] = free


def idle_action(spec: Spec, lanes: int) -> np.ndarray:
    """Return [lanes, *shape] of the spec's idle value: zero, or the allowed value nearest to it, unless it has one."""
    if spec.idle is not None:
        given = np.array(spec.idle, spec.dtype).reshape(spec.shape)
        given.flags.writeable = False
        return np.broadcast_to(given, (lanes, *spec.shape))
    low = -np.inf if spec.minimum is None else np.reshape(spec.minimum, spec.shape if np.ndim(spec.minimum) else ())
    high = np.inf if spec.maximum is None else np.reshape(spec.maximum, spec.shape if np.ndim(spec.maximum) else ())
    is_text = np.dtype(spec.dtype).kind == "U"
    idle = np.empty((lanes, *spec.shape), spec.dtype)
    idle[...] = "" if is_text else np.clip(0, low, high)
    idle.flags.writeable = False  # shared by all steps
    return idle
