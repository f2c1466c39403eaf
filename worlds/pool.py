"""Pools: all lanes of one family with the same settings, simulated together, and the bookkeeping of their episodes.

A lane is a row of the family's state. Freed lanes are reused and arrays grow by doubling; neither touches lanes in use.
What is random in a lane depends on its own seed and episode, never on its row or on other lanes.

A pool is used by one thread: the engine's. Its bookkeeping is done by the kernels of worldloom.worlds.episodes.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldloom.kernels.compiling import announce_compiling
from worldloom.kernels.tables import F32, F64, I32, I64, U8, ViewTable
from worldloom.render.scene import Scene
from worldloom.render.views import fill_views, make_views
from worldloom.worlds.episodes import (
    INTERRUPTED,
    LAST,
    RUNNING,
    count_running,
    find_invalid_lane,
    next_episode_seeds,
    record_first_step,
    record_step,
)
from worldloom.worlds.family import Family, LaneErrors, State, StepResult, resized

_COLUMNS = (
    *("scene_lane", "status", "step_type", "episode", "steps", "reward", "discount"),
    *("_in_use", "_has_static_instances", "_is_reseeded", "_mark", "_free"),
)
"""Names of the arrays with a row for each lane."""
_EPISODE_COLUMNS = ("status", "step_type", "episode", "steps", "reward", "discount")
"""Names of those that a step changes."""
_ASSUMED_BEGIN_S = 10e-3
"""Time to begin an episode in one lane, until it has been measured."""
_I64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


class Pool:
    """Lanes of one family. Every array has a row for each lane; rows of lanes that are not in use have no meaning."""

    def __init__(self, family: Family, scene: Scene) -> None:
        self.family = family
        self.scene = scene
        self.state = State(family.state_fields())
        self._called: set[str] = set()
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
        self.begin_s = _ASSUMED_BEGIN_S
        """Seconds that it took to begin an episode in a lane, the last time."""

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
        return lanes

    def free(self, lanes: I64) -> None:
        """Free lanes. Raise ValueError, and free none, if one is not in use or is listed twice."""
        lanes = self._checked(lanes)
        self.family.free(lanes, self.scene, self.scene_lane[lanes])
        self.scene.free(self.scene_lane[lanes])
        self._in_use[lanes] = False
        self._reseeded_count -= int(np.count_nonzero(self._is_reseeded[lanes]))
        self._free[self._free_count : self._free_count + len(lanes)] = lanes
        self._free_count += len(lanes)
        self.state.release(lanes)
        self._freed_rows += len(lanes)
        if self._freed_rows > self.capacity // 2:  # looking for the last lane in use costs as much as all rows
            self._shrink()

    def begin(self, lanes: I64, keep_outcome: bool = False) -> None:
        """Begin an episode in each lane. `keep_outcome` leaves reward, discount and step type of the last step."""
        self._begin(self._checked(lanes), keep_outcome)

    def step(self, lanes: I64, actions: Mapping[str, np.ndarray], repeat: int = 1) -> None:
        """Step each lane once: advance it if its episode is running, else begin an episode and ignore its action.

        `actions[name]` is [n, agents, *shape]. With `repeat` an action is applied so many times, until the episode
        ends, and rewards are added up. The results are in `reward`, `discount`, `step_type` and `status`. If LaneErrors
        is raised they are valid for the lanes that it does not name; its keys are lanes here.
        """
        lanes = self._checked(lanes)
        with self._compiling_announced("count"):
            running = count_running(lanes, self.status)
        if running == len(lanes):
            if running:
                self._advance(lanes, actions, repeat)
        elif running == 0:
            self._begin(lanes)
        else:
            is_running = self.status[lanes] == RUNNING
            self._begin(lanes[~is_running])
            indices = np.flatnonzero(is_running)
            self._advance(lanes[indices], {name: action[indices] for name, action in actions.items()}, repeat)

    def hold(self, lanes: I64) -> None:
        """Leave lanes as they are in a step of their world: they gain no reward."""
        self.reward[lanes] = 0.0

    def interrupt(self, lanes: I64) -> None:
        """End the episodes of these lanes; their next step begins another."""
        self.status[self._checked(lanes)] = INTERRUPTED

    def reseed(self, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """End the episodes of these lanes and start over with other seeds, as if the lanes were new.

        Their state stays until then, and can be observed.
        """
        self.interrupt(lanes)
        self.state.lane_seed[lanes] = seeds
        used = lanes[self.episode[lanes] >= 0]
        self.episode[used] = -1
        self._is_reseeded[used] = True
        self._reseeded_count += len(used)

    def ensure_state(self, lanes: I64) -> None:
        """Give lanes that have never begun an episode the first state of theirs, to be observed before it begins."""
        new = lanes[(self.episode[lanes] < 0) & ~self._is_reseeded[lanes]]
        if len(new):
            self.begin(new)
            self.reseed(new, self.state.lane_seed[new])

    def save(self, lanes: I64) -> list[np.ndarray]:
        """Return a copy of all that a step of these lanes changes in the arrays of this pool."""
        return [array[lanes] for array in self._arrays()]

    def restore(self, lanes: I64, saved: list[np.ndarray]) -> None:
        """Restore what `save` returned for the same lanes."""
        for array, rows in zip(self._arrays(), saved, strict=True):
            array[lanes] = rows
        self._reseeded_count = int(np.count_nonzero(self._is_reseeded & self._in_use))

    def _arrays(self) -> list[np.ndarray]:
        names = (*_EPISODE_COLUMNS, "_is_reseeded")
        return [*(getattr(self, name) for name in names), *(getattr(self.state, name) for name in self.state.fields)]

    def observe(self, lanes: I64, name: str, agent: int = 0) -> np.ndarray:
        """Return one of the family's observations for these lanes, [n, *shape]."""
        return self.family.observe(self.state, lanes, name, agent)

    def views(
        self,
        lanes: I64,
        camera: str,
        agent: int = 0,
        *,
        width: int = 64,
        height: int = 64,
        outputs: int = 1,
        samples: int = 1,
    ) -> ViewTable:
        """Update the instance rows of these lanes and return their views through a camera."""
        lanes = _as_kernel_array(lanes, _I64, lanes.shape)
        scene_lanes = self.scene_lane[lanes]
        if not len(lanes):
            return make_views(scene_lanes, width=width, height=height, outputs=outputs, samples=samples)
        with self._compiling_announced("views"):
            has_static_instances = self._has_static_instances[lanes]
            if not has_static_instances.all():
                self.prepare_views(lanes)
            self.family.write_instances(self.state, lanes, self.scene, scene_lanes)
            placement = self.family.place_camera(self.state, lanes, camera, agent)
        return fill_views(
            scene_lanes,
            placement.pose,
            placement.orthographic,
            placement.half_height,
            placement.near,
            placement.far,
            width,
            height,
            outputs,
            samples,
        )

    def prepare_views(self, lanes: I64) -> None:
        """Write the static instances of those of these lanes that have never been drawn."""
        new = lanes[~self._has_static_instances[lanes]]
        if len(new):
            self.family.write_static_instances(self.scene, self.scene_lane[new])
            self._has_static_instances[new] = True

    def _checked(self, lanes: I64) -> I64:
        """Return the lanes as kernels need them; raise ValueError unless each is in use and listed once."""
        lanes = _as_kernel_array(lanes, _I64, lanes.shape)
        with self._compiling_announced("check"):
            index = find_invalid_lane(lanes, self._in_use, self._mark)
        if index >= 0:
            lane = lanes[index]
            if not 0 <= lane < self.capacity or not self._in_use[lane]:
                raise ValueError(f"lane {lane} of {self.family.name}: expected a lane that is in use")
            raise ValueError(f"lane {lane} of {self.family.name} is listed twice: expected it once")
        return lanes

    def _compiling_announced(self, call: str) -> AbstractContextManager[None]:
        """Return a context that announces compilation, for the first call of each kind: only that one may compile."""
        if call in self._called:
            return nullcontext()
        self._called.add(call)
        return announce_compiling()

    def _begin(self, lanes: I64, keep_outcome: bool = False) -> None:
        if self._reseeded_count:
            self._clear_reseeded(lanes)
        began_s = time.perf_counter()
        seeds = np.empty(len(lanes), np.uint64)
        with self._compiling_announced("reset"):
            next_episode_seeds(lanes, self.state.lane_seed, self.episode, seeds)
            self.family.reset(self.state, lanes, seeds)
            if keep_outcome:
                self.steps[lanes] = 0
                self.status[lanes] = RUNNING
            else:
                record_first_step(lanes, self.steps, self.reward, self.discount, self.step_type, self.status)
        self.begin_s = (time.perf_counter() - began_s) / max(1, len(lanes))

    def _clear_reseeded(self, lanes: I64) -> None:
        reseeded = lanes[self._is_reseeded[lanes]]
        self.state.clear(reseeded)
        self._is_reseeded[reseeded] = False
        self._reseeded_count -= len(reseeded)

    def _advance(self, lanes: I64, actions: Mapping[str, np.ndarray], repeat: int) -> None:
        errors: dict[int, Exception] = {}
        result = self._advance_once(lanes, actions, False, errors)
        for _ in range(repeat - 1):
            is_running = self.status[lanes] == RUNNING
            if errors:
                is_running &= ~np.isin(lanes, list(errors))
            if not is_running.all():
                indices = np.flatnonzero(is_running)
                lanes, actions = lanes[indices], {name: action[indices] for name, action in actions.items()}
            if not len(lanes):
                break
            self._advance_once(lanes, actions, True, errors)
        if errors:
            raise LaneErrors(result, errors)

    def _advance_once(
        self, lanes: I64, actions: Mapping[str, np.ndarray], adds_reward: bool, errors: dict[int, Exception]
    ) -> StepResult:
        """Advance lanes by one step of the family; add what fails in single lanes to `errors`, by lane."""
        with self._compiling_announced("step"):
            try:
                result = self.family.step(self.state, lanes, actions)
            except LaneErrors as failed:
                errors.update((int(lanes[index]), error) for index, error in failed.errors.items())
                result = failed.result
            reward, terminated = result
            record_step(
                lanes,
                _as_kernel_array(reward, self.reward.dtype, (len(lanes), self.family.agents)),
                _as_kernel_array(terminated, _BOOL, (len(lanes),)),
                self.family.max_steps,
                adds_reward,
                self.steps,
                self.reward,
                self.discount,
                self.step_type,
                self.status,
            )
        return result

    def _resize(self, capacity: int) -> None:
        self.state.resize(capacity)
        for name in _COLUMNS:
            setattr(self, name, resized(getattr(self, name), capacity))

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


def _as_kernel_array(given: ArrayLike, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return a C-contiguous array of this dtype and shape, as kernels are compiled for; copy only if necessary."""
    if type(given) is np.ndarray and given.dtype == dtype and given.shape == shape and given.flags.carray:
        return given
    fitted = np.empty(shape, dtype)
    fitted[...] = given
    return fitted
