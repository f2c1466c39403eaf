"""The family `gym`: environments of Gymnasium by their ids, with the same numbers as Gymnasium gives.

Lane k of a world with seed s is the environment whose first episode begins with `reset(seed=s + k)`, as in a vector
environment of Gymnasium; later episodes begin with `reset()`. There are three ways to run the lanes, each a subclass:

- `BatchedGym`: Gymnasium's own MuJoCo tasks, simulated in parallel, with rewards computed for all lanes at once.
- `MujocoGym`: other environments with a MuJoCo model. Each lane has an environment, which is drawn like other worlds.
- `PictureGym`: all others. Each lane has an environment, and its frames are those of its own `render()`.
"""

from collections.abc import Mapping
from typing import Any, Self, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import CameraPlacement, Family, Spec, State, StepResult
from worldloom.worlds.gym.environments import (
    FailureLog,
    LaneEnvironment,
    make_environment,
    make_or_refuse,
    raise_interrupt,
)
from worldloom.worlds.gym.permissions import allowed_arguments, allowed_ids, find_spec, parse_kwargs
from worldloom.worlds.gym.spaces import SpaceArrays
from worldloom.worlds.random import mix
from worldloom.worlds.settings import Setting, parse_settings

_NO_STEP_LIMIT = 1 << 62
"""`max_steps` of an environment without a time limit."""
FAILED = Spec("failed", "bool", (), "True if the environment raised an error, which ends the episode.")
"""Observation of all environments."""


class Gym(Family):
    """An environment of Gymnasium; building one chooses the subclass that runs it.

    The methods here run lanes that have an environment object each, stepped one after the other.
    """

    name = "gym"
    text = "Environments of Gymnasium, by their ids, with the same numbers as Gymnasium gives."
    settings = (
        Setting("id", "", "The environment: an id that the server allows, such as CartPole-v1."),
        Setting("kwargs", "", "Keyword arguments of the environment: a JSON object as a text, or nothing."),
        Setting("max_steps", 0, "Steps after which an episode is interrupted; 0: as registered.", 0, 1_000_000_000),
    )
    required_settings = ("id",)
    labels: tuple[str, ...] = ("sky",)
    reward_dtype = "float64"
    rows_per_lane = 0
    _render_mode: str | None = None
    """Render mode that lanes' environments are made with."""

    template: gymnasium.Env[Any, Any]
    """An environment with these settings, of no lane: what can be learned from it holds for all lanes."""

    def __new__(cls, settings: Mapping[str, object], assets: AssetLibrary) -> Self:
        """Make an environment, and choose the class that runs environments like it."""
        if "id" not in settings:
            return super().__new__(cls)  # its __init__ says what is missing
        values = parse_settings(cls.settings, settings)
        spec, kwargs = find_spec(str(values["id"])), parse_kwargs(str(values["kwargs"]))
        template = make_or_refuse(spec, kwargs, int(values["max_steps"]))
        made = super().__new__(cast(type[Self], _choose(template)) if cls is Gym else cls)
        made.template = template
        return made

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self.env_id = str(self.setting_values["id"])
        self.env_kwargs: dict[str, object] = {**parse_kwargs(str(self.setting_values["kwargs"]))}
        self._env_spec = find_spec(self.env_id)
        self._given_steps = int(self.setting_values["max_steps"])
        self.max_steps = self._given_steps or self._env_spec.max_episode_steps or _NO_STEP_LIMIT
        self.steps_per_s = float(self.template.metadata.get("render_fps") or 30.0)
        self._action_arrays = SpaceArrays("action", self.template.action_space, "As Gymnasium has it.")
        self._observation_arrays = SpaceArrays("observation", self.template.observation_space, "As Gymnasium gives it.")
        self.actions = self._action_arrays.specs
        self.observations = (*self._observation_arrays.specs, FAILED)
        self._fields = {spec.name: f"value_{k}" for k, spec in enumerate(self._observation_arrays.specs)}
        """State field of each observation."""
        self._failures = FailureLog(self.env_id)

    def make_environment(self) -> gymnasium.Env[Any, Any]:
        """Make another environment with these settings."""
        return make_environment(self._env_spec, self.env_kwargs, self._given_steps, self._render_mode)

    @classmethod
    def allowed_values(cls) -> dict[str, tuple[str, ...]]:
        """Return the ids of environments, and the names of keyword arguments, that the operator allows."""
        return {"id": allowed_ids(), "kwargs": allowed_arguments()}

    seed_text = (
        "Lane k of a world with seed s is the world of one lane with seed (s + k) mod 2**64, and Gymnasium's "
        "environment whose first reset has that seed. So worlds whose seeds are near share lanes: of 1,024 lanes, "
        "seeds 0 and 1 have 1,023 in common. Choose seeds that are at least as far apart as there are lanes."
    )

    @staticmethod
    def lane_seeds(world_seed: int | NDArray[np.uint64], lanes: int | NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return consecutive seeds, as vector environments of Gymnasium have them."""
        numbers = np.arange(lanes, dtype=np.uint64) if isinstance(lanes, int) else lanes
        return np.asarray(numbers + np.asarray(world_seed, np.uint64), np.uint64)

    @staticmethod
    def first_seed(lane_seed: int, episode_seed: int) -> int:
        """Return the seed of a lane's first reset here.

        A lane whose first episode here is not its first has played the others elsewhere: its numbers come from the seed
        of this episode.
        """
        return lane_seed if episode_seed == int(mix(np.array(lane_seed, np.uint64), 0)) else episode_seed

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the state of a lane: its environment, whether that failed in this episode, and its observations."""
        arrays = {self._fields[spec.name]: (spec.dtype, spec.shape) for spec in self._observation_arrays.specs}
        return {"environment": ("object", ()), "failed": ("bool", ()), **arrays}

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Begin episodes. Lanes without an environment, or with one that failed, get a new one."""
        for lane, episode_seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            seed = None
            try:
                if state.environment[lane] == 0 or state.failed[lane]:
                    seed = self.first_seed(int(state.lane_seed[lane]), episode_seed)
                    self._replace_environment(state, lane, LaneEnvironment(self.make_environment()))
                observation, _ = state.environment[lane].env.reset(seed=seed)
                self._keep(state, lane, observation)
                state.failed[lane] = False
            except BaseException as error:
                raise_interrupt(error)
                state.failed[lane] = True
                self._failures.add("when an episode began, which ends with its first step", error)

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Step the environments, one after the other. One that raises an error ends its episode with reward 0."""
        reward = np.zeros((len(lanes), 1))
        terminated, truncated = np.zeros(len(lanes), np.bool_), np.zeros(len(lanes), np.bool_)
        columns = [actions[spec.name][:, 0] for spec in self.actions]
        for k, lane in enumerate(lanes.tolist()):
            if state.failed[lane]:
                terminated[k] = True
                continue
            try:
                action = self._action_arrays.read([column[k] for column in columns])
                observation, gained, has_ended, is_cut, _ = state.environment[lane].env.step(action)
                self._keep(state, lane, observation)
                reward[k, 0], terminated[k], truncated[k] = _as_number(gained), has_ended, is_cut
            except BaseException as error:
                raise_interrupt(error)
                state.failed[lane] = True
                reward[k, 0], terminated[k], truncated[k] = 0.0, True, False
                self._failures.add("in a step, which ends its episode", error)
        return StepResult(reward, terminated, truncated)

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Return what the environments gave last; zeros before the first episode."""
        found: np.ndarray = getattr(state, self._fields.get(name, "failed"))[lanes]
        return found

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return a camera at the origin: the renderer draws nothing of these environments."""
        return CameraPlacement(np.eye(3, 4, dtype=np.float32), 1.0, False, 0.1, 10.0)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write nothing: the renderer draws nothing of these environments."""

    def _replace_environment(self, state: State, lane: int, environment: LaneEnvironment) -> None:
        state.environment[lane] = environment

    def _keep(self, state: State, lane: int, observation: object) -> None:
        """Copy an observation into the state; raise ValueError or TypeError if it is not as the space says."""
        rows = [getattr(state, field)[lane, ...] for field in self._fields.values()]
        self._observation_arrays.write(observation, rows)


def _as_number(reward: Any) -> float:
    """Return a reward; raise TypeError if it is no number, such as None, which NumPy would take for NaN."""
    if not hasattr(reward, "__float__"):
        raise TypeError(f"the reward is {type(reward).__name__}: expected a number")
    return float(reward)


def _choose(template: gymnasium.Env[Any, Any]) -> type[Gym]:
    """Return the class that runs environments like this one."""
    # Imported here, for they derive from Gym, and mujoco need not be installed for the others.
    if not _has_simulation(template):
        from worldloom.worlds.gym.pictures import PictureGym

        return PictureGym
    from worldloom.worlds.gym.batched import BatchedGym
    from worldloom.worlds.gym.simulated import MujocoGym

    return BatchedGym if BatchedGym.supports(template) else MujocoGym


def _has_simulation(template: gymnasium.Env[Any, Any]) -> bool:
    """Return whether an environment is a simulation of MuJoCo."""
    found = [type(getattr(template.unwrapped, name, None)) for name in ("model", "data")]
    return [(one.__module__.partition(".")[0], one.__name__) for one in found] == [
        ("mujoco", "MjModel"),
        ("mujoco", "MjData"),
    ]
