"""The tasks of dm_control's suite: the same numbers as dm_control gives for the same seed and actions, to the last bit.

Lane k of a world with seed s is dm_control's environment with the seed (s + k) modulo 2³². Its chance goes on from
episode to episode as dm_control's does. Only the first step of an episode differs in form: its reward is 0 and its
discount 1, where dm_control has none.
"""

import math
from collections.abc import Mapping

import mujoco
import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F64, I64
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.family import Spec, State, StepResult
from worldloom.worlds.mujoco.dm_control.rewards import arms as judges_of_arms
from worldloom.worlds.mujoco.dm_control.rewards import walkers as judges_of_walkers
from worldloom.worlds.mujoco.dm_control.rewards.base import Judge
from worldloom.worlds.mujoco.dm_control.suite import TASKS, Stage
from worldloom.worlds.mujoco.simulation import physics
from worldloom.worlds.mujoco.simulation.data import Numbers
from worldloom.worlds.mujoco.simulation.family import Simulated, control_spec, log
from worldloom.worlds.settings import Setting, SettingError

_NEVER = 1 << 62
"""Steps of an episode that has no limit."""
_JUDGES = {**judges_of_arms.JUDGES, **judges_of_walkers.JUDGES}
_TRIED = 4
"""Lanes and steps that a judge is tried on."""


class Dmc(Simulated):
    """Reward, discount and observations are the task's own."""

    name = "dmc"
    text = "The tasks of dm_control's suite, simulated by MuJoCo, with the same numbers as dm_control gives."
    settings = (
        Setting("domain", "cartpole", f"Which domain of the suite: {', '.join(TASKS)}.", choices=tuple(TASKS)),
        Setting("task", "swingup", "Which task of the domain; an error names those there are."),
        Setting(
            "time_limit", 0.0, "Simulated seconds after which an episode is interrupted; 0: as the task says.", 0, 1e6
        ),
    )

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        domain, task = str(self.setting_values["domain"]), str(self.setting_values["task"])
        if task not in TASKS[domain]:
            raise SettingError(
                f"setting 'task' is {task[:100]!r}: expected one of {', '.join(TASKS[domain])}, the tasks of {domain!r}"
            )
        self._stage = Stage(domain, task, float(self.setting_values["time_limit"]) or None)
        environment = self._stage.environment
        limit = environment._step_limit
        self.max_steps = _NEVER if math.isinf(limit) else math.ceil(limit)
        self.actions = (control_spec(self._stage.model),)
        self.observations = tuple(
            Spec(name, spec.dtype.name, spec.shape, "As dm_control gives it.")
            for name, spec in environment.observation_spec().items()
        )
        self._calls = physics.calls_of_step(self._stage.model, environment._n_sub_steps)
        stage = self._stage
        self._take_model(stage.model, stage.changes, physics.ANY, f"{domain}-{task}", stage.restless)
        self._judge: Judge | None = None
        self._judge = self._tried_judge()

    @staticmethod
    def lane_seeds(world_seed: int, lanes: int) -> NDArray[np.uint64]:
        """As dm_control's users number them: one after the other."""
        return (np.arange(lanes, dtype=np.uint64) + np.uint64(world_seed % 2**32)) % np.uint64(2**32)

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The simulation, the task with its chance, steps of the episode, and what was observed since the last."""
        return {**super().state_fields(), "task": ("object", ()), "steps": ("int64", ()), "seen": ("object", ())}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Begin an episode as dm_control does; a lane's chance is that of its own seed, and goes on."""
        for lane in lanes.tolist():
            if state.task[lane] == 0:
                state.task[lane], state.own[lane] = self._stage.new_lane(int(state.lane_seed[lane]))
                physics.take(state, lane, mujoco.MjData(self._model))
            state.unstable[lane] = False
            try:
                self._stage.begin(state.task[lane], state.own[lane], state.simulation[lane])
            except (
                RuntimeError,
                mujoco.FatalError,
            ) as error:  # it found no way to begin: this lane's next step ends it
                state.unstable[lane] = True
                self._rest(state.simulation[lane])
                self._say(str(error))
        state.steps[lanes] = 0
        state.seen[lanes] = 0
        if self._changes.size_bytes:
            state.furnished[lanes] = False

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """One control step."""
        controls = np.ascontiguousarray(actions["control"][:, 0], np.float64)
        alarms = self._stepper.run(state, lanes, controls, self._calls)
        state.steps[lanes] += 1
        state.seen[lanes] = 0
        if alarms.bits.any():
            self._give_up(state, lanes, alarms, alarms.bits != 0)
        gone = state.unstable[lanes]
        if not gone.any():
            reward, ended = self._outcome(state, lanes)
        else:
            reward, ended = np.zeros(len(lanes)), np.zeros(len(lanes), np.bool_)
            reward[~gone], ended[~gone] = self._outcome(state, lanes[~gone])
        ended &= state.steps[lanes] < self.max_steps
        return StepResult(reward[:, None], ended | gone)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """What dm_control observes; nothing but zeros before the first episode."""
        spec = next(spec for spec in self.observations if spec.name == name)
        begun = state.data[lanes] != 0
        if self._judge is not None and begun.all():
            return self._judge.observations[name](Numbers(self._model, state, lanes))
        return self._observe_each(state, lanes, spec)

    def _tried_judge(self) -> Judge | None:
        """The judge of the task, if there is one that agrees with dm_control's own code on some lanes, bit for bit."""
        kind = _JUDGES.get(type(self._stage.task))
        if kind is None or self._stage.ends_by_itself:
            return None
        judge = kind(self._stage.task, self._model)
        state = State(self.state_fields())
        state.grow(_TRIED)
        lanes = np.arange(_TRIED)
        state.clear(lanes, self.lane_seeds(0, _TRIED))
        self.reset(state, lanes, state.lane_seed)
        rng = np.random.default_rng(0)
        for _ in range(_TRIED):
            outcome = self.step(state, lanes, {"control": rng.uniform(-1, 1, (_TRIED, 1, self._model.nu))})
            numbers = Numbers(self._model, state, lanes)
            agree = np.array_equal(judge.reward(numbers), outcome.reward[:, 0]) and all(
                np.array_equal(judge.observations[spec.name](numbers), self._observe_each(state, lanes, spec))
                for spec in self.observations
            )
            if not agree and not outcome.terminated.any():
                log.info("%s is judged lane by lane: arrays would give other bits", self._what)
                return None
        return judge

    def _observe_each(self, state: State, lanes: I64, spec: Spec) -> np.ndarray:
        """What dm_control's own code observes, lane by lane."""
        out = np.empty((len(lanes), *spec.shape), spec.dtype)
        for k, lane in enumerate(lanes.tolist()):
            if state.task[lane] == 0:
                out[k] = 0
                continue
            if state.seen[lane] == 0:
                observed = state.task[lane].get_observation(self._stage.enter(state.own[lane], state.simulation[lane]))
                state.seen[lane] = {key: np.array(value) for key, value in observed.items()}  # the stage is used again
            out[k] = state.seen[lane][spec.name]
        return out

    def _outcome(self, state: State, lanes: I64) -> tuple[F64, NDArray[np.bool_]]:
        """Rewards, and which episodes the task ends."""
        reward, ended = np.empty(len(lanes)), np.zeros(len(lanes), np.bool_)
        if self._judge is not None and len(lanes):
            return self._judge.reward(Numbers(self._model, state, lanes)), ended
        for k, lane in enumerate(lanes.tolist()):
            stage = self._stage.enter(state.own[lane], state.simulation[lane])
            reward[k] = state.task[lane].get_reward(stage)
            ended[k] = self._stage.ends_by_itself and state.task[lane].get_termination(stage) is not None
        return reward, ended
