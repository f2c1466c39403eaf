"""Stable-Baselines3's VecEnv, for its algorithms and wrappers.

SB3 wants the first observation of the next episode together with the end of the last one, whose own observation it
looks for in the infos: this is same-step autoreset.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from worldloom.client.adaptors.arguments import make_vector_env
from worldloom.client.episodes import FINAL_LANES, FINAL_STACKED
from worldloom.client.errors import ClientError
from worldloom.client.vector_env import VectorEnv
from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.client.adaptors.sb3", "sb3"):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

_DEFAULTS = {
    "flat": True,
    "channels": "first",  # what its networks take: VecTransposeImage is not needed
    "autoreset": "same_step",
    "clip_actions": True,
    "episode_statistics": True,
}


class SB3VecEnv(VecEnv):
    """A VecEnv of `num_envs` lanes of a family, or of the lanes of a VectorEnv.

    Infos of lanes whose episode has ended have `terminal_observation`, `TimeLimit.truncated`, and `episode` with its
    return `r`, its length `l` and its time `t`, as Monitor writes them. Infos of other lanes are empty.
    """

    def __init__(
        self, address: str | VectorEnv, family: str | None = None, num_envs: int | None = None, **arguments: Any
    ) -> None:
        """Create a world, or use that of an env.

        Args:
            address: `HOST:PORT` or `unix:PATH` of a server, `local` for an engine in this process, or a VectorEnv with
                `autoreset="same_step"`.
            family: The kind of world.
            num_envs: The number of lanes.
            arguments: Other arguments of VectorEnv. The defaults here are `flat=True`, `channels="first"`,
                `autoreset="same_step"`, `clip_actions=True` and `episode_statistics=True`. With `flat=False`
                observations are a dict with the names `eye_rgb` and so on, for SB3's MultiInputPolicy; actions are one
                array in any case.
        """
        env = make_vector_env(address, family, num_envs, arguments, _DEFAULTS, ["same_step"])
        self.env = env
        actions = env.single_action_space
        self._flat_actions = env.flat_actions if isinstance(actions, spaces.Dict) else None
        if self._flat_actions is not None:
            actions = self._flat_actions.space
        observations = env.single_observation_space
        if isinstance(observations, spaces.Dict):
            observations = spaces.Dict(_rename(observations.spaces))
        super().__init__(env.num_envs, observations, actions)
        self.metadata |= {"render_fps": env.metadata["render_fps"]}

    def reset(self) -> VecEnvObs:
        """Start new episodes in all lanes, with the seeds that `seed` has set."""
        if any(self._options):
            raise ValueError(f"options are {self._options!r}: expected none")
        seeds = self._seeds
        observations, _ = self.env.reset(seed=None if all(seed is None for seed in seeds) else seeds)
        self._reset_seeds()
        return _rename(observations)

    def step_async(self, actions: np.ndarray) -> None:
        """Send a step, whose result `step_wait` returns."""
        self.env.send(actions if self._flat_actions is None else self._flat_actions.unflatten(actions, self.num_envs))

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the result of the step."""
        observations, rewards, terminated, truncated, info = self.env.recv()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if FINAL_LANES in info:
            _write_ends(infos, info, truncated)
        return _rename(observations), rewards.astype(np.float32), terminated | truncated, infos

    def close(self) -> None:
        """Destroy the world and close the connection."""
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray]:
        """Return the picture of each lane as of the last step or reset."""
        return list(self.env.rendered_frames)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of the VectorEnv, which all lanes share, for each of these lanes."""
        value = getattr(self.env, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the VectorEnv, which all lanes share."""
        self._check_all(indices, f"the attribute {attr_name!r}")
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the VectorEnv, which all lanes share, once; return its result for each lane."""
        self._check_all(indices, f"the method {method_name!r}")
        result = getattr(self.env, method_name)(*method_args, **method_kwargs)
        return [result for _ in range(self.num_envs)]

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Return for each lane whether it does what the wrapper does: Monitor, if there are episode statistics."""
        is_wrapped = issubclass(Monitor, wrapper_class) and self.env.has_episode_statistics
        return [is_wrapped for _ in self._get_indices(indices)]

    def _check_all(self, indices: VecEnvIndices, what: str) -> None:
        chosen = set(self._get_indices(indices))
        if chosen != set(range(self.num_envs)):
            raise ClientError(
                f"{what} for the lanes {sorted(chosen)}: expected all lanes (indices=None), which share it"
            )


def _rename(observations: Any) -> Any:
    """Replace dots in the names of observations: networks of PyTorch, which SB3 names after them, have none."""
    if not isinstance(observations, Mapping):
        return observations
    return {name.replace(".", "_"): value for name, value in observations.items()}


def _write_ends(infos: list[dict[str, Any]], info: dict[str, Any], truncated: np.ndarray) -> None:
    """Write the infos of lanes whose episode has ended."""
    final, episode = _rename(info[FINAL_STACKED]), info.get("episode")
    for row, lane in enumerate(info[FINAL_LANES].tolist()):
        last = {name: array[row] for name, array in final.items()} if isinstance(final, dict) else final[row]
        infos[lane] = {"terminal_observation": last, "TimeLimit.truncated": bool(truncated[lane])}
        if "lost" in info:
            infos[lane]["lost"] = bool(info["lost"][lane])
        if episode is not None and info["_episode"][lane]:
            infos[lane]["episode"] = {key: episode[key][lane].item() for key in ("r", "l", "t")}
