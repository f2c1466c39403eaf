"""A pool: all lanes of one family with the same settings, and the course of their episodes.

A lane is a row of the family's state. Freed lanes are used again, tables grow by doubling, and neither touches the
lanes in use. What chance brings to a lane depends on its own seed and episode, never on its place in the pool.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldloom.kernels.compiling import announce_compiling
from worldloom.kernels.tables import F32, F64, I32, I64, U8, ViewTable
from worldloom.render.scene import Scene
from worldloom.render.views import fill_views, make_views
from worldloom.worlds import episodes
from worldloom.worlds.family import Family, State

RUNNING, TERMINATED, INTERRUPTED = episodes.RUNNING, episodes.TERMINATED, episodes.INTERRUPTED
"""What `status` says of a lane's episode; the numbers are those of dm_env_rpc's EnvironmentStateType."""
FIRST, MID, LAST = episodes.FIRST, episodes.MID, episodes.LAST
"""What `step_type` says of a lane's last step."""

_COLUMNS = (
    *("scene_lane", "status", "step_type", "episode", "steps", "reward", "discount"),
    *("_in_use", "_mark", "_free"),
)
"""Arrays with a row for each lane."""
_I64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


class Pool:
    """Lanes of one family. Every array has a row for each lane; rows of lanes that are not in use mean nothing."""

    def __init__(self, family: Family, scene: Scene) -> None:
        self.family = family
        self.scene = scene
        self.state = State(family.fields())
        self._called: set[str] = set()
        self.scene_lane: I32 = np.zeros(0, np.int32)
        self.status: U8 = np.zeros(0, np.uint8)
        self.step_type: U8 = np.zeros(0, np.uint8)
        self.episode: I64 = np.zeros(0, np.int64)
        self.steps: I64 = np.zeros(0, np.int64)
        self.reward: F32 | F64 = np.zeros((0, family.agents), family.reward_dtype)
        self.discount: F32 = np.zeros(0, np.float32)
        self._in_use: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._mark: I64 = np.zeros(0, np.int64)  # to find lanes named twice, without sorting them
        self._free: I64 = np.zeros(0, np.int64)  # a stack of freed lanes, as long as there is room for lanes
        self._free_count = 0
        self._used = 0

    @property
    def capacity(self) -> int:
        """Lanes there is room for."""
        return len(self.status)

    def add(self, seeds: NDArray[np.uint64]) -> I64:
        """Take a lane for each seed. Their first step begins their first episode."""
        count = len(seeds)
        reused = min(count, self._free_count)
        fresh = count - reused
        if self._used + fresh > self.capacity:
            self._grow(max(self._used + fresh, 2 * self.capacity))
        lanes = np.empty(count, np.int64)
        lanes[:reused] = self._free[self._free_count - reused : self._free_count]
        lanes[reused:] = np.arange(self._used, self._used + fresh)
        self._free_count -= reused
        self._used += fresh
        self._in_use[lanes] = True
        self.state.begin(lanes, seeds)
        self.scene_lane[lanes] = self.scene.add(count, self.family.rows_per_lane, self.family.still_rows)
        self.status[lanes] = INTERRUPTED
        self.step_type[lanes] = LAST
        self.episode[lanes] = -1
        self.steps[lanes] = 0
        self.reward[lanes] = 0.0
        self.discount[lanes] = 1.0
        return lanes

    def free(self, lanes: I64) -> None:
        """Give lanes back. Lanes that are not in use, or named twice, are refused before anything is freed."""
        lanes = self._checked(lanes)
        self.scene.free(self.scene_lane[lanes])
        self._in_use[lanes] = False
        self._free[self._free_count : self._free_count + len(lanes)] = lanes
        self._free_count += len(lanes)

    def step(self, lanes: I64, actions: Mapping[str, np.ndarray]) -> None:
        """One step of each lane: those whose episode is running advance, the others begin one and ignore their action.

        `actions[name]` is [n, agents, *shape]. Reward, discount, step_type and status are there afterwards.
        """
        lanes = self._checked(lanes)
        with self._first("count"):
            running = episodes.count_running(lanes, self.status)
        if running == len(lanes):
            if running:
                self._advance(lanes, actions)
        elif running == 0:
            self._begin(lanes)
        else:
            is_running = self.status[lanes] == RUNNING
            self._begin(lanes[~is_running])
            places = np.flatnonzero(is_running)
            self._advance(lanes[places], {name: action[places] for name, action in actions.items()})

    def interrupt(self, lanes: I64) -> None:
        """End the episodes of these lanes; their next step begins another."""
        self.status[self._checked(lanes)] = INTERRUPTED

    def reseed(self, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """End the episodes of these lanes and start over with other seeds, as if the lanes were new."""
        self.interrupt(lanes)
        self.state.begin(lanes, seeds)
        self.episode[lanes] = -1

    def observe(self, lanes: I64, name: str, agent: int = 0) -> np.ndarray:
        """A family's observation [n, *shape]."""
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
        """Views of these lanes through a camera, and their instance rows brought up to date."""
        lanes = _fitted(lanes, _I64, lanes.shape)
        scene_lanes = self.scene_lane[lanes]
        if not len(lanes):
            return make_views(scene_lanes, width=width, height=height, outputs=outputs, samples=samples)
        with self._first("show"):
            self.family.dress(self.state, lanes, self.scene, scene_lanes)
            place = self.family.look(self.state, lanes, camera, agent)
        return fill_views(
            scene_lanes,
            place.pose,
            place.orthographic,
            place.half_height,
            place.near,
            place.far,
            width,
            height,
            outputs,
            samples,
        )

    def _checked(self, lanes: I64) -> I64:
        """The lanes, as kernels want them; ValueError unless every one is in use and named once."""
        lanes = _fitted(lanes, _I64, lanes.shape)
        with self._first("check"):
            place = episodes.first_wrong(lanes, self._in_use, self._mark)
        if place >= 0:
            lane = lanes[place]
            if not 0 <= lane < self.capacity or not self._in_use[lane]:
                raise ValueError(f"lane {lane} of {self.family.name}: expected a lane that is in use")
            raise ValueError(f"lane {lane} of {self.family.name} is named twice: expected it once")
        return lanes

    def _first(self, what: str) -> AbstractContextManager[None]:
        """Around a call of the family or a kernel: the first may have to compile, and whoever waits is told."""
        if what in self._called:
            return nullcontext()
        self._called.add(what)
        return announce_compiling()

    def _begin(self, lanes: I64) -> None:
        seeds = np.empty(len(lanes), np.uint64)
        with self._first("reset"):
            episodes.next_seeds(lanes, self.state.lane_seed, self.episode, seeds)
            self.family.reset(self.state, lanes, seeds)
            episodes.note_first(lanes, self.steps, self.reward, self.discount, self.step_type, self.status)

    def _advance(self, lanes: I64, actions: Mapping[str, np.ndarray]) -> None:
        with self._first("step"):
            reward, ended = self.family.step(self.state, lanes, actions)
            episodes.note_step(
                lanes,
                _fitted(reward, self.reward.dtype, (len(lanes), self.family.agents)),
                _fitted(ended, _BOOL, (len(lanes),)),
                self.family.max_steps,
                self.steps,
                self.reward,
                self.discount,
                self.step_type,
                self.status,
            )

    def _grow(self, capacity: int) -> None:
        self.state.grow(capacity)
        for name in _COLUMNS:
            array = getattr(self, name)
            grown = np.zeros((capacity, *array.shape[1:]), array.dtype)
            grown[: len(array)] = array
            setattr(self, name, grown)


def _fitted(given: ArrayLike, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """An array as kernels were compiled for, of this type and shape: the given one, unless a copy has to be made."""
    if type(given) is np.ndarray and given.dtype == dtype and given.shape == shape and given.flags.carray:
        return given
    fitted = np.empty(shape, dtype)
    fitted[...] = given
    return fitted
