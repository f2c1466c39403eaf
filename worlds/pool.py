"""Pools: all lanes of one family with the same settings, simulated together, and the bookkeeping of their episodes.

A lane is a row of the family's state. Freed lanes are reused and arrays grow by doubling; neither touches lanes in use.
What is random in a lane depends on its own seed and episode, never on its row or on other lanes.

A pool is used by one thread: the engine's. Its bookkeeping is done by small kernels, at the end of this module. NumPy
could do the same, but takes a microsecond or more for each of some thirty operations, and that would be most of what a
step of a few lanes costs.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worldloom.kernels.compiling import announce_compiling, kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I32, I64, U8, ViewTable
from worldloom.render.scene import Scene
from worldloom.render.views import fill_views, make_views
from worldloom.worlds.family import CameraPlacement, Family, LaneErrors, StepResult
from worldloom.worlds.lanes import FIRST, INTERRUPTED, LAST, MID, RUNNING, TERMINATED, LaneRows
from worldloom.worlds.random import scalar_mix
from worldloom.worlds.randomisation.settings import Randomisation

_EPISODE_COLUMNS = ("status", "step_type", "episode", "steps", "reward", "discount")
"""Names of those that a step changes."""
_ASSUMED_BEGIN_S = 10e-3
"""Time to begin an episode in one lane, until it has been measured."""
_NOTHING = nullcontext()
_I64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)
_NO_LANES: NDArray[np.bool_] = np.zeros(0, np.bool_)


class Pool(LaneRows):
    """Lanes of one family, their episodes, and what they show."""

    def __init__(self, family: Family, scene: Scene, randomisation: Randomisation | None = None) -> None:
        super().__init__(family, scene, randomisation)
        self._called: set[str] = set()
        self._valid_lanes: I64 | None = None
        """Lanes of a world that were found to be in use and listed once: the last that `mark_valid` was called for."""
        self.variation_specs = () if self.randomised is None else self.randomised.specs
        """Observations of what varies, beside those of the family."""
        self._observations = {spec.name: spec for spec in (*family.observations, *self.variation_specs)}
        self.begin_s = _ASSUMED_BEGIN_S
        """Seconds that it took to begin an episode in a lane, the last time."""

    def free(self, lanes: I64) -> None:
        """Free lanes. Raise ValueError, and free none, if one is not in use or is listed twice."""
        super().free(self._checked(lanes))
        self._valid_lanes = None

    def begin(self, lanes: I64, keep_outcome: bool = False) -> None:
        """Begin an episode in each lane. `keep_outcome` leaves reward, discount and step type of the last step."""
        self._begin(self._checked(lanes), keep_outcome)

    def mark_valid(self, lanes: I64) -> None:
        """Promise that this array will not be written to, so that steps of it check it once."""
        self._valid_lanes = self._checked(lanes)

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

    def report_first(self, lanes: I64) -> None:
        """Report lanes, whose episode has begun and was not stepped, as in their first state."""
        record_first_step(lanes, self.steps, self.reward, self.discount, self.step_type, self.status)

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

    def set_next_episode(self, lanes: I64, numbers: I64) -> None:
        """End the episodes of these lanes; the next one of each has this number, as if those before had been played.

        Families whose random numbers go on from one episode to the next begin them anew from lane seed and number.
        """
        self.reseed(lanes, self.state.lane_seed[lanes])
        self.episode[lanes] = numbers - 1

    def ensure_state(self, lanes: I64) -> None:
        """Give lanes that have never begun an episode the first state of theirs, to be observed before it begins."""
        new = lanes[(self.episode[lanes] < 0) & ~self._is_reseeded[lanes]]
        if len(new):
            self.begin(new)
            self.reseed(new, self.state.lane_seed[new])

    def is_untouched(self, lane: int) -> bool:
        """Return whether a lane has never begun an episode, so that there is no state to be seen."""
        return bool(self.episode[lane] < 0 and not self._is_reseeded[lane])

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
        state = (getattr(self.state, name) for name in self.state.fields)
        drawn = () if self.randomised is None else self.randomised.arrays()
        return [*(getattr(self, name) for name in names), *state, *drawn]

    def observe(self, lanes: I64, name: str, agent: int = 0) -> np.ndarray:
        """Return an observation for these lanes, [n, *shape]; ValueError if the family's is not as its spec says."""
        spec = self._observations[name]
        if self.randomised is not None and spec in self.variation_specs:
            return self.randomised.observe(lanes, self.steps, name)
        value = self.family.observe(self.state, lanes, name, agent)
        if value.dtype != spec.dtype or value.shape != (len(lanes), *spec.shape):
            raise ValueError(
                f"observation {name!r} came as {value.dtype} {list(value.shape)}: expected {spec.dtype} "
                f"{[len(lanes), *spec.shape]}, as its spec says"
            )
        return value

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
        shadows: bool | int = False,
    ) -> ViewTable:
        """Update the instance rows of these lanes and return their views through a camera."""
        lanes = _as_kernel_array(lanes, _I64, lanes.shape)
        scene_lanes = self.scene_lane[lanes]
        if not len(lanes):
            return make_views(
                scene_lanes, width=width, height=height, outputs=outputs, samples=samples, shadows=shadows
            )
        with self._compiling_announced("views"):
            has_static_instances = self._has_static_instances[lanes]
            if not has_static_instances.all():
                self.prepare_views(lanes)
            self.write_instances(lanes, scene_lanes)
            placement = self.place_camera(lanes, camera, agent)
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
            shadows,
        )

    def write_instances(self, lanes: I64, scene_lanes: I32) -> None:
        """Write what lanes show, which have their static instances, into these lanes of the scene."""
        if self.randomised is None:
            self.family.write_instances(self.state, lanes, self.scene, scene_lanes)
        else:
            scene, lane = self.family_scene
            self.family.write_instances(self.state, lanes, scene, lane[lanes])
            self.randomised.write(lanes, self.steps, self.scene, scene_lanes)

    def place_camera(self, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return the pose and projection of one agent's camera in these lanes."""
        placement = self.family.place_camera(self.state, lanes, camera, agent)
        if self.randomised is None:
            return placement
        return self.randomised.vary_camera(lanes, self.steps, self.state, camera, placement)

    def prepare_views(self, lanes: I64) -> None:
        """Write the static instances of those of these lanes that have never been drawn."""
        new = lanes[~self._has_static_instances[lanes]]
        if len(new):
            scene, scene_lane = self.family_scene
            self.family.write_static_instances(scene, scene_lane[new])
            self._has_static_instances[new] = True

    def _checked(self, lanes: I64) -> I64:
        """Return the lanes as kernels need them; raise ValueError unless each is in use and listed once."""
        if lanes is self._valid_lanes:
            return lanes
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
            return _NOTHING
        self._called.add(call)
        return announce_compiling()

    def _begin(self, lanes: I64, keep_outcome: bool = False) -> None:
        if self._reseeded_count:
            self._clear_reseeded(lanes)
        began_s = time.perf_counter()
        seeds = np.empty(len(lanes), np.uint64)
        with self._compiling_announced("reset"):
            next_episode_seeds(lanes, self.state.lane_seed, self.episode, seeds)
            if self.randomised is not None:
                self.randomised.begin(lanes, self.state, self.episode)
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
        if self.randomised is not None:
            self.randomised.count_actions(lanes)
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
            reward, terminated, truncated = StepResult(*result)  # a plain pair will do
            record_step(
                lanes,
                _as_kernel_array(reward, self.reward.dtype, (len(lanes), self.family.agents)),
                _as_kernel_array(terminated, _BOOL, (len(lanes),)),
                _NO_LANES if truncated is None else _as_kernel_array(truncated, _BOOL, (len(lanes),)),
                self.family.max_steps,
                adds_reward,
                self.steps,
                self.reward,
                self.discount,
                self.step_type,
                self.status,
            )
        return result


def _as_kernel_array(given: ArrayLike, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return a C-contiguous array of this dtype and shape, as kernels are compiled for; copy only if necessary."""
    if type(given) is np.ndarray and given.dtype == dtype and given.shape == shape and given.flags.carray:
        return given
    fitted = np.empty(shape, dtype)
    fitted[...] = given
    return fitted


# The kernels: `lanes` [n] are the rows of the other arrays that a call is about.


@kernel_holding_gil
def find_invalid_lane(lanes: I64, in_use: NDArray[np.bool_], mark: I64) -> int:
    """Return the index in `lanes` of the first that is not in use, else of the first that is listed again, else -1.

    `mark` is scratch with an element for each lane; it finds lanes listed twice without sorting.
    """
    for k in range(lanes.size):
        if lanes[k] < 0 or lanes[k] >= in_use.size or not in_use[lanes[k]]:
            return k
    for k in range(lanes.size):
        mark[lanes[k]] = k
    for k in range(lanes.size):
        if mark[lanes[k]] != k:
            return k
    return -1


@kernel_holding_gil
def count_running(lanes: I64, status: U8) -> int:
    """Count the lanes whose episode is running."""
    running = 0
    for k in range(lanes.size):
        running += status[lanes[k]] == RUNNING
    return running


@kernel_holding_gil
def next_episode_seeds(lanes: I64, lane_seed: NDArray[np.uint64], episode: I64, seeds: NDArray[np.uint64]) -> None:
    """Advance each lane to its next episode and write that episode's seed into `seeds` [n]."""
    for k in range(lanes.size):
        lane = lanes[k]
        episode[lane] += 1
        seeds[k] = scalar_mix(lane_seed[lane], episode[lane])


@kernel_holding_gil
def record_first_step(lanes: I64, steps: I64, reward: F32 | F64, discount: F32, step_type: U8, status: U8) -> None:
    """Record that an episode has begun in each lane."""
    for k in range(lanes.size):
        lane = lanes[k]
        steps[lane] = 0
        for agent in range(reward.shape[1]):
            reward[lane, agent] = 0.0
        discount[lane] = 1.0
        step_type[lane] = FIRST
        status[lane] = RUNNING


@kernel_holding_gil
def record_step(
    lanes: I64,
    gained: F32 | F64,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    max_steps: int,
    adds_reward: bool,
    steps: I64,
    reward: F32 | F64,
    discount: F32,
    step_type: U8,
    status: U8,
) -> None:
    """Record the result of a step of each lane: rewards `gained` [n, agents], `terminated` and `truncated` [n].

    `truncated` is empty where the family interrupts no episodes. The reward replaces that of the last step, or is added
    to it where an action is repeated. Termination has precedence over interruption where both come at the same step.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        steps[lane] += 1
        for agent in range(reward.shape[1]):
            reward[lane, agent] = reward[lane, agent] + gained[k, agent] if adds_reward else gained[k, agent]
        discount[lane] = 0.0 if terminated[k] else 1.0
        if terminated[k]:
            status[lane] = TERMINATED
        else:
            is_cut = steps[lane] >= max_steps or (truncated.size > 0 and truncated[k])
            status[lane] = INTERRUPTED if is_cut else RUNNING
        step_type[lane] = MID if status[lane] == RUNNING else LAST
