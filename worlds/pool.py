"""A pool: all lanes of one family with the same settings, and the course of their episodes.

A lane is a row of the family's state. Freed lanes are used again, tables grow by doubling, and neither touches the
lanes in use. What chance brings to a lane depends on its own seed and episode, never on its place in the pool.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import announce_compiling
from worldloom.kernels.tables import F32, I32, I64, U8, ViewTable
from worldloom.render.scene import Scene
from worldloom.render.views import make_views
from worldloom.worlds.chance import mix
from worldloom.worlds.family import Family, State

RUNNING, TERMINATED, INTERRUPTED = 1, 2, 3
"""What `status` says of a lane's episode; the numbers are those of dm_env_rpc's EnvironmentStateType."""
FIRST, MID, LAST = 0, 1, 2
"""What `step_type` says of a lane's last step."""

_COLUMNS = (
    *("scene_lane", "status", "step_type", "episode", "steps", "reward", "discount"),
    *("_in_use", "_mark", "_free"),
)
"""Arrays with a row for each lane."""


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
        self.reward: F32 = np.zeros((0, family.agents), np.float32)
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
        self.scene_lane[lanes] = self.scene.add(count, self.family.rows_per_lane)
        self.status[lanes] = INTERRUPTED
        self.step_type[lanes] = LAST
        self.episode[lanes] = -1
        self.steps[lanes] = 0
        self.reward[lanes] = 0.0
        self.discount[lanes] = 1.0
        return lanes

    def free(self, lanes: I64) -> None:
        """Give lanes back. Lanes that are not in use, or named twice, are refused before anything is freed."""
        self._check(lanes)
        self.scene.free(self.scene_lane[lanes])
        self._in_use[lanes] = False
        self._free[self._free_count : self._free_count + len(lanes)] = lanes
        self._free_count += len(lanes)

    def step(self, lanes: I64, actions: Mapping[str, np.ndarray]) -> None:
        """One step of each lane: those whose episode is running advance, the others begin one and ignore their action.

        `actions[name]` is [n, agents, *shape]. Reward, discount, step_type and status are there afterwards.
        """
        self._check(lanes)
        running = self.status[lanes] == RUNNING
        if not running.all():
            self._begin(lanes[~running])
        if running.any():
            everyone = bool(running.all())
            self._advance(
                lanes if everyone else lanes[running],
                actions if everyone else {name: action[running] for name, action in actions.items()},
            )

    def interrupt(self, lanes: I64) -> None:
        """End the episodes of these lanes; their next step begins another."""
        self._check(lanes)
        self.status[lanes] = INTERRUPTED

    def reseed(self, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """End the episodes of these lanes and start over with other seeds, as if the lanes were new."""
        self.interrupt(lanes)
        self.state.lane_seed[lanes] = seeds
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
        scene_lanes = self.scene_lane[lanes]
        views = make_views(scene_lanes, width=width, height=height, outputs=outputs, samples=samples)
        if not len(lanes):
            return views
        with self._first("dress"):
            self.family.dress(self.state, lanes, self.scene, scene_lanes)
        place = self.family.look(self.state, lanes, camera, agent)
        views.camera[:] = place.pose
        views.near[:], views.far[:] = place.near, place.far
        views.half_height[:] = place.half_height
        views.orthographic[:] = place.orthographic
        return views

    def _check(self, lanes: I64) -> None:
        """Raise ValueError unless every lane is in use and named once; some 25 µs for 4096 of them."""
        if not len(lanes):
            return
        if lanes.min() < 0 or lanes.max() >= self.capacity or not self._in_use[lanes].all():
            wrong = next(lane for lane in lanes.tolist() if not 0 <= lane < self.capacity or not self._in_use[lane])
            raise ValueError(f"lane {wrong} of {self.family.name}: expected a lane that is in use")
        places = np.arange(len(lanes))
        self._mark[lanes] = places
        twice = self._mark[lanes] != places
        if twice.any():
            raise ValueError(f"lane {lanes[np.argmax(twice)]} of {self.family.name} is named twice: expected it once")

    def _first(self, what: str) -> AbstractContextManager[None]:
        """Around a call of the family: the first of its kind may compile kernels, and whoever waits is told."""
        if what in self._called:
            return nullcontext()
        self._called.add(what)
        return announce_compiling()

    def _begin(self, lanes: I64) -> None:
        self.episode[lanes] += 1
        seeds = mix(self.state.lane_seed[lanes], self.episode[lanes].astype(np.uint64))
        with self._first("reset"):
            self.family.reset(self.state, lanes, seeds)
        self.steps[lanes] = 0
        self.reward[lanes] = 0.0
        self.discount[lanes] = 1.0
        self.step_type[lanes] = FIRST
        self.status[lanes] = RUNNING

    def _advance(self, lanes: I64, actions: Mapping[str, np.ndarray]) -> None:
        with self._first("step"):
            reward, ended = self.family.step(self.state, lanes, actions)
        self.steps[lanes] += 1
        late = ~ended & (self.steps[lanes] >= self.family.max_steps)
        self.reward[lanes] = reward
        self.discount[lanes] = np.where(ended, 0.0, 1.0)
        self.step_type[lanes] = np.where(ended | late, LAST, MID)
        self.status[lanes] = np.select([ended, late], [TERMINATED, INTERRUPTED], RUNNING)

    def _grow(self, capacity: int) -> None:
        self.state.grow(capacity)
        for name in _COLUMNS:
            array = getattr(self, name)
            grown = np.zeros((capacity, *array.shape[1:]), array.dtype)
            grown[: len(array)] = array
            setattr(self, name, grown)
