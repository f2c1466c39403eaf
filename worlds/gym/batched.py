"""Gymnasium's MuJoCo tasks (v5), simulated in parallel: the same numbers as Gymnasium gives, to the last bit.

Lanes have no environment of their own, but a simulation. A step makes the calls of MuJoCo that Gymnasium makes, and
`worlds/gym/tasks.py` computes rewards, ends and observations for all lanes at once. Episodes begin in states that
Gymnasium's own code chooses, with the random generator of the lane.

MuJoCo resets a simulation that diverges, with a warning, and Gymnasium goes on with it; so do lanes. An error inside
MuJoCo, which would raise in Gymnasium, ends the episode of its lane.
"""

from collections.abc import Mapping
from typing import Any, Self

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils.seeding import np_random
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from worldloom.kernels.tables import F32, F64, I64
from worldloom.render.arena import PROCESS_FLOAT64
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.family import State, StepResult
from worldloom.worlds.gym.cameras import rendered_camera
from worldloom.worlds.gym.environments import raise_interrupt, refusal
from worldloom.worlds.gym.family import FAILED, Gym
from worldloom.worlds.gym.tasks import TASKS, Task
from worldloom.worlds.mujoco.simulation import physics
from worldloom.worlds.mujoco.simulation.data import FIELDS, QPOS, QVEL, LaneArrays, ModelOverrides
from worldloom.worlds.mujoco.simulation.family import SimulatedFamily, log
from worldloom.worlds.mujoco.simulation.kernels import MUJOCO_ERROR
from worldloom.worlds.mujoco.simulation.library import free_compiler_memory

_CHECKED_EPISODES = _CHECKED_STEPS = 4
"""Episodes, and steps of each, on which the formulas are compared with Gymnasium's code."""
_NO_FAULT = 0
"""Warnings that abort a step: none, as in Gymnasium."""


class BatchedGym(SimulatedFamily, Gym):
    """Gymnasium's own MuJoCo tasks, with all lanes computed at once."""

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        environment: Any = self.template.unwrapped
        model = environment.model
        self._task = TASKS[type(environment)](environment)
        self._first_states = _FirstStates(environment)
        self._calls = physics.plain_calls(*["mj_step"] * environment.frame_skip, "mj_rnePostConstraint")
        eye = rendered_camera(environment)
        self._set_model(model, ModelOverrides((), model), _NO_FAULT, self.env_id, eye=eye)
        free_compiler_memory()

    @staticmethod
    def supports(template: gymnasium.Env[Any, Any]) -> bool:
        """Return whether an environment is one of these tasks and the formulas have the bits of its own code.

        They are compared on a few episodes and steps: a later Gymnasium or NumPy may compute differently. SettingError:
        the environment itself fails in these steps, so no lane could make one.
        """
        environment = template.unwrapped
        wrapped = template.env if isinstance(template, TimeLimit) else template
        if type(environment) not in TASKS or wrapped is not environment:
            return False
        env_id, kwargs = type(environment).__name__, {}
        if template.spec is not None:
            env_id, kwargs = template.spec.id, template.spec.kwargs
        try:
            trial = _Trial.run(environment)
        except BaseException as error:
            raise_interrupt(error)
            raise refusal(env_id, kwargs, "fails in its first steps", error) from None
        try:
            is_same = trial.has_same_bits(TASKS[type(environment)](environment))
            is_same &= trial.results[0][0].shape == environment.observation_space.shape
        except Exception as error:  # such as attributes that another version of Gymnasium does not have
            is_same, reason = False, f"cannot be computed for all lanes at once ({error})"
        else:
            reason = "differ from Gymnasium's if they are computed for all lanes at once"
        if not is_same:
            log.info(
                "%s: each lane has an environment of its own, which is slower: rewards or observations %s",
                env_id,
                reason,
            )
        return is_same

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the state of a lane: its simulation and its random generator."""
        return {**super().state_fields(), "random": ("object", ())}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Begin episodes as Gymnasium does. Lanes that are new, or whose last episode failed, get a new generator."""
        for lane in lanes[state.data_address[lanes] == 0].tolist():
            self._layout.attach(state, lane)
            state.overrides[lane] = self._default_overrides
        self._begin_physics(state, lanes)
        qpos, qvel = np.empty((len(lanes), self._model.nq)), np.empty((len(lanes), self._model.nv))
        for k, (lane, episode_seed) in enumerate(zip(lanes.tolist(), seeds.tolist(), strict=True)):
            if state.random[lane] == 0 or state.unstable[lane]:
                state.random[lane], _ = np_random(self.first_seed(int(state.lane_seed[lane]), episode_seed))
            qpos[k], qvel[k] = self._first_states.draw(state.random[lane])
        state.unstable[lanes] = False
        self._run(state, lanes, np.empty((len(lanes), 0)), physics.plain_calls("mj_resetData"))
        for field, values in ((QPOS, qpos), (QVEL, qvel)):
            PROCESS_FLOAT64[state.addresses[lanes, field, None] + np.arange(values.shape[1])] = values
        self._run(state, lanes, np.empty((len(lanes), 0)), physics.forward_calls())
        for simulation in state.simulation[lanes]:
            simulation.release_statistics()

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Advance by one step of the environment. Episodes whose first state could not be computed end here."""
        action = np.ascontiguousarray(actions["action"][:, 0])
        arrays = self._arrays(state, lanes)
        before = self._task.position(arrays)
        self._run(state, lanes, action.astype(np.float64), self._calls)
        with np.errstate(all="ignore"):  # a simulation may have diverged, and Gymnasium goes on
            reward, terminated = self._task.outcome(arrays, before, action)
        is_failed = state.unstable[lanes]
        return StepResult(np.where(is_failed, 0.0, reward)[:, None], terminated | is_failed)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Return the observation of the task, or which lanes have failed; the default pose before the first episode."""
        if name == FAILED.name:
            return np.asarray(state.unstable[lanes])
        self._ensure_data(state, lanes)
        with np.errstate(all="ignore"):
            return self._task.observe(self._arrays(state, lanes))

    def _arrays(self, state: State, lanes: I64) -> "_LaneArrays":
        return _LaneArrays(self._model, state, lanes, self._overrides)

    def _run(self, state: State, lanes: I64, controls: F64, calls: I64) -> None:
        """Make the calls; mark lanes with an error as failed, and log the warnings of others."""
        faults = self._stepper.run(state, lanes, controls, calls)
        if faults.bits.any():
            is_aborted = (faults.bits & MUJOCO_ERROR) != 0
            self._abort_lanes(state, lanes, faults, is_aborted)
            for k in np.flatnonzero((faults.bits != 0) & ~is_aborted).tolist():
                self._log_once(faults.describe(k), "went on after a warning of MuJoCo, as Gymnasium does")


class _LaneArrays(LaneArrays):
    """Arrays of simulations, and the masses of their own models."""

    def __init__(self, model: mujoco.MjModel, state: State, lanes: I64, overrides: ModelOverrides) -> None:
        super().__init__(model, state, lanes)
        self._overrides = overrides

    @property
    def body_mass(self) -> F64:
        """Masses of the bodies, [n, nbody]."""
        return self._overrides.of_lanes("body_mass", self._state.overrides[self._lanes], self.model)


class _FirstStates:
    """First states of episodes, by an environment's own `reset_model`, which simulates nothing from then on."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._kept: list[tuple[F64, F64]] = []
        kept = self._kept  # the functions must not refer back to the environment, or it would outlive the family
        environment.set_state = lambda qpos, qvel: kept.append((qpos, qvel))
        environment._get_obs = lambda: None

    def draw(self, random: np.random.Generator) -> tuple[F64, F64]:
        """Return positions and velocities, valid until the next call."""
        self._environment.np_random = random
        self._environment.reset_model()
        return self._kept.pop()


class _StackedArrays:
    """Arrays of one simulation at several moments, as those of as many lanes."""

    def __init__(self, moments: list[dict[str, F64]]) -> None:
        self._moments = moments

    def __len__(self) -> int:
        return len(self._moments)

    def __getattr__(self, name: str) -> F64:
        return np.stack([moment[name] for moment in self._moments])


class _Trial:
    """A few steps of an environment by its own code, with the arrays of its simulation before and after each."""

    def __init__(self) -> None:
        self.before: list[dict[str, F64]] = []
        self.after: list[dict[str, F64]] = []
        self.actions: list[F32] = []
        self.results: list[tuple[Any, ...]] = []

    @classmethod
    def run(cls, environment: Any) -> Self:
        """Step an environment in several episodes, and reset it; raise what its code raises."""
        trial, rng, space = cls(), np.random.default_rng(0), environment.action_space
        for episode in range(_CHECKED_EPISODES):
            environment.reset(seed=episode)
            for _ in range(_CHECKED_STEPS):
                trial.before.append(_copy_arrays(environment))
                trial.actions.append(rng.uniform(space.low, space.high).astype(space.dtype))
                trial.results.append(environment.step(trial.actions[-1]))
                trial.after.append(_copy_arrays(environment))
        environment.reset(seed=0)
        return trial

    def has_same_bits(self, task: Task) -> bool:
        """Compare a task's formulas with what the environment returned."""
        theirs = [np.stack([step[k] for step in self.results]) for k in range(3)]
        # Of one lane alone, too: NumPy adds in another order where an axis has one element.
        for chosen in (slice(None), *(slice(k, k + 1) for k in range(len(self.results)))):
            arrays = _StackedArrays(self.after[chosen])
            with np.errstate(all="ignore"):
                observation = task.observe(arrays)
                start = task.position(_StackedArrays(self.before[chosen]))
                reward, terminated = task.outcome(arrays, start, np.stack(self.actions[chosen]))
            for ours, other in zip((observation, reward, terminated), theirs, strict=True):
                if not np.array_equal(ours, other[chosen], equal_nan=ours.dtype.kind == "f"):
                    return False
        return True


def _copy_arrays(environment: Any) -> dict[str, F64]:
    found = {name: getattr(environment.data, name).copy() for name in FIELDS}
    return {**found, "body_mass": environment.model.body_mass.copy()}
