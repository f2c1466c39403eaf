"""The family `dmc`: tasks of the dm_control suite, with the same numbers as dm_control, to the last bit.

Lane k of a world with seed s is dm_control's environment with the seed (s + k) modulo 2**32. Its random generator goes
on from episode to episode, as dm_control's does. Only the first step of an episode differs in form: it has reward 0 and
discount 1, where dm_control has None.
"""

import math
from collections.abc import Mapping
from functools import partial

import mujoco
import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F64, I64
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.family import Spec, State, StepResult
from worldloom.worlds.mujoco.dm_control.distractions import choose_preset, describe_distraction, focus_distances_m
from worldloom.worlds.mujoco.dm_control.rewards import REWARDS_BY_TASK
from worldloom.worlds.mujoco.dm_control.rewards.base import TaskRewards
from worldloom.worlds.mujoco.dm_control.suite import TASKS, TaskEnvironment
from worldloom.worlds.mujoco.simulation import physics
from worldloom.worlds.mujoco.simulation.data import Columns, LaneArrays, ModelOverrides
from worldloom.worlds.mujoco.simulation.family import SimulatedFamily, control_spec, log
from worldloom.worlds.random import mix
from worldloom.worlds.randomisation.presets import DISTRACTION, DISTRACTION_AXES, DISTRACTION_SETTINGS
from worldloom.worlds.settings import Setting, SettingError

_NO_STEP_LIMIT = 1 << 62
"""`max_steps` of a task without a time limit."""
_CHECKED_LANES = _CHECKED_STEPS = 4
"""Lanes and steps on which vectorised rewards are compared with dm_control's."""


class Dmc(SimulatedFamily):
    """Tasks of the dm_control suite, with their own rewards, discounts and observations."""

    name = "dmc"
    text = "The tasks of dm_control's suite, simulated by MuJoCo, with the same numbers as dm_control gives."
    settings = (
        Setting("domain", "cartpole", f"The domain of the suite: {', '.join(TASKS)}.", choices=tuple(TASKS)),
        Setting("task", "swingup", "The task of the domain; an error lists the tasks there are."),
        Setting(
            "time_limit", 0.0, "Simulated seconds after which an episode is interrupted; 0: as the task says.", 0, 1e6
        ),
        *DISTRACTION_SETTINGS,
    )

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        domain, task = str(self.setting_values["domain"]), str(self.setting_values["task"])
        if task not in TASKS[domain]:
            raise SettingError(
                f"setting 'task' is {task[:100]!r}: expected one of {', '.join(TASKS[domain])}, the tasks of {domain!r}"
            )
        preset = choose_preset(*(str(self.setting_values[name]) for name in (DISTRACTION, DISTRACTION_AXES)))
        self._task_environment = TaskEnvironment(domain, task, float(self.setting_values["time_limit"]) or None)
        environment, model = self._task_environment.environment, self._task_environment.model
        limit = environment._step_limit
        self.max_steps = _NO_STEP_LIMIT if math.isinf(limit) else math.ceil(limit)
        self.steps_per_s = 1.0 / environment.control_timestep()
        self.actions = (control_spec(model),)
        self.observations = tuple(
            Spec(name, spec.dtype.name, spec.shape, "As dm_control gives it.")
            for name, spec in environment.observation_spec().items()
        )
        self._calls = physics.step_calls(model, environment._n_sub_steps)
        overrides, task_placed = self._task_environment.overrides, self._task_environment.task_placed
        self._set_model(model, overrides, physics.ANY_FAULT, f"{domain}-{task}", task_placed)
        if preset is not None:
            self.distraction = describe_distraction(model, self._scene, assets, preset, domain)
            self._first_com = Columns(model, *(("subtree_com", min(1, model.nbody - 1), axis) for axis in range(3)))
        self._rewards: TaskRewards | None = None
        """Rewards and observations computed from arrays; dm_control's own code is used if None."""
        self._rewards = self._build_rewards()

    seed_text = (
        "Lane k of a world with seed s is the world of one lane with seed (s + k) mod 2**32, and dm_control's "
        "environment with that seed. So worlds whose seeds are near share lanes: of 1,024 lanes, seeds 0 and 1 have "
        "1,023 in common. Choose seeds that are at least as far apart as there are lanes."
    )

    @staticmethod
    def lane_seeds(world_seed: int | NDArray[np.uint64], lanes: int | NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return consecutive seeds, as users of dm_control number their environments."""
        numbers = np.arange(lanes, dtype=np.uint64) if isinstance(lanes, int) else lanes
        first = world_seed % 2**32  # in range, so that the sum is too
        return np.asarray((numbers % np.uint64(2**32) + np.asarray(first, np.uint64)) % np.uint64(2**32), np.uint64)

    def use_overrides(self, overrides: ModelOverrides) -> None:
        """Keep these arrays of the model by lane, in dm_control's environment too."""
        super().use_overrides(overrides)
        self._task_environment.use_overrides(overrides)

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the state of a lane: the simulation, dm_control's task object, steps of the episode.

        `observed` caches the observations that dm_control's own code computed since the last step. `first_com` is the
        centre of mass of the first body when the episode began, which a distraction aims cameras at.
        """
        own = {"task": ("object", ()), "steps": ("int64", ()), "observed": ("object", ())}
        first_com = {} if self.distraction is None else {"first_com": ("float64", (3,))}
        return {**super().state_fields(), **own, **first_com}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Begin episodes as dm_control does; a lane's random numbers come from its own seed and go on.

        A lane whose first episode here is not its first has played the others elsewhere: its numbers come from the seed
        of this episode.
        """
        for lane, episode_seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            if state.task[lane] == 0:
                lane_seed = state.lane_seed[lane]
                seed = int(lane_seed) if episode_seed == int(mix(lane_seed, 0)) else episode_seed % 2**32
                state.task[lane], state.overrides[lane] = self._task_environment.create_lane(seed)
                self._layout.attach(state, lane)
            self._begin_physics(state, np.array([lane]))
            state.unstable[lane] = False
            try:
                self._task_environment.begin_episode(state.task[lane], state.overrides[lane], state.simulation[lane])
            except (
                RuntimeError,
                mujoco.FatalError,
            ) as error:  # no first state was found: the next step ends the episode
                state.unstable[lane] = True
                self._reset_to_default(state.simulation[lane])
                self._log_once(str(error))
        state.steps[lanes] = 0
        state.observed[lanes] = 0
        if self.distraction is not None and len(lanes):
            state.first_com[lanes] = LaneArrays(self._model, state, lanes).columns(self._first_com).T
        if self._overrides.size_bytes:
            state.is_static_written[lanes] = False

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Advance by one control step."""
        controls = np.ascontiguousarray(actions["control"][:, 0], np.float64)
        faults = self._stepper.run(state, lanes, controls, self._calls)
        state.steps[lanes] += 1
        state.observed[lanes] = 0
        if faults.bits.any():
            self._abort_lanes(state, lanes, faults, faults.bits != 0)
        return self._outcomes(state, lanes, partial(self._outcome, state))

    def focus_distances_m(self, state: State, lanes: I64, camera: str) -> F64:
        """Return how far ahead the point is that a camera of `distraction` looks at, [n]."""
        assert self.distraction is not None
        cameras = self.distraction.cameras
        return focus_distances_m(self._model, self._scene, cameras, camera, state.first_com[lanes])

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Return an observation of the task; zeros before the first episode."""
        spec = next(spec for spec in self.observations if spec.name == name)
        has_begun = state.data_address[lanes] != 0
        if self._rewards is not None and has_begun.all():
            return self._rewards.observations[name](LaneArrays(self._model, state, lanes))
        return self._observe_each(state, lanes, spec)

    def _build_rewards(self) -> TaskRewards | None:
        """Return the vectorised rewards of the task, or None unless they have the bits of dm_control's own code.

        They are compared on a few lanes and steps: a later dm_control or NumPy may compute differently.
        """
        rewards_class = REWARDS_BY_TASK.get(type(self._task_environment.task))
        if rewards_class is None or self._task_environment.can_terminate:
            return None
        rewards = rewards_class(self._task_environment.task, self._model)
        state = State(self.state_fields())
        state.resize(_CHECKED_LANES)
        lanes = np.arange(_CHECKED_LANES)
        state.lane_seed[lanes] = self.lane_seeds(0, _CHECKED_LANES)
        self.reset(state, lanes, mix(state.lane_seed, 0))
        rng = np.random.default_rng(0)
        for _ in range(_CHECKED_STEPS):
            result = self.step(state, lanes, {"control": rng.uniform(-1, 1, (_CHECKED_LANES, 1, self._model.nu))})
            arrays = LaneArrays(self._model, state, lanes)
            is_same = np.array_equal(rewards.reward(arrays), result.reward[:, 0]) and all(
                np.array_equal(rewards.observations[spec.name](arrays), self._observe_each(state, lanes, spec))
                for spec in self.observations
            )
            if not is_same and not result.terminated.any():
                log.info(
                    "%s: rewards are computed lane by lane with dm_control's own code, which is slower: computed for "
                    "all lanes at once they differ from it",
                    self._model_name,
                )
                return None
        return rewards

    def _observe_each(self, state: State, lanes: I64, spec: Spec) -> np.ndarray:
        """Compute an observation with dm_control's own code, lane by lane."""
        out = np.empty((len(lanes), *spec.shape), spec.dtype)
        for k, lane in enumerate(lanes.tolist()):
            if state.task[lane] == 0:
                out[k] = 0
                continue
            if state.observed[lane] == 0:
                loaded = self._task_environment.load_lane(state.overrides[lane], state.simulation[lane])
                observed = state.task[lane].get_observation(loaded)
                # Copies: they may be views of the environment's memory, which the next lane is loaded into.
                state.observed[lane] = {key: np.array(value) for key, value in observed.items()}
            out[k] = state.observed[lane][spec.name]
        return out

    def _outcome(self, state: State, lanes: I64) -> tuple[F64, NDArray[np.bool_]]:
        """Return rewards, and which episodes the task ends."""
        reward, terminated = np.empty(len(lanes)), np.zeros(len(lanes), np.bool_)
        if self._rewards is not None and len(lanes):
            return self._rewards.reward(LaneArrays(self._model, state, lanes)), terminated
        can_terminate = self._task_environment.can_terminate
        for k, lane in enumerate(lanes.tolist()):
            loaded = self._task_environment.load_lane(state.overrides[lane], state.simulation[lane])
            reward[k] = state.task[lane].get_reward(loaded)
            terminated[k] = can_terminate and state.task[lane].get_termination(loaded) is not None
        return reward, terminated & (state.steps[lanes] < self.max_steps)
