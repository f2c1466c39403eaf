"""TorchRL's EnvBase: one batched environment, whose tensors are our arrays.

TorchRL resets lanes that have ended by `_reset`, with a mask. With same-step autoreset their new episodes have begun
already, and their first observations came with the step: such a reset is answered from them, without a request. Lanes
that have not ended, which a transform such as StepCounter cuts short, are reset by the server.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from worldloom.client.adaptors.arguments import make_vector_env
from worldloom.client.episodes import FINAL_LANES, FINAL_STACKED
from worldloom.client.vector_env import VectorEnv
from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.client.adaptors.torchrl", "torchrl"):
    import torch
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, Unbounded
    from torchrl.envs import EnvBase

_DEFAULTS = {"flat": True, "autoreset": "same_step", "clip_actions": True}
_DONE_KEYS = ("done", "terminated", "truncated")


class TorchRLEnv(EnvBase):
    """An EnvBase with the batch size [num_envs]: `num_envs` lanes of a family, or the lanes of a VectorEnv.

    The entries are `observation` (or the names of the observations, with `flat=False`), `action`, `reward`, `done`,
    `terminated` and `truncated`. Tensors of observations share the memory of the arrays; a step that has ended an
    episode copies them once, since the last observations and the first ones of the next episodes are both returned.
    Frames in shared memory with a server are copied, too: rollouts keep those of more steps than it has room for.
    """

    def __init__(
        self,
        address: str | VectorEnv,
        family: str | None = None,
        num_envs: int | None = None,
        *,
        device: "torch.device | str" = "cpu",
        **arguments: Any,
    ) -> None:
        """Create a world, or use that of an env.

        Args:
            address: `HOST:PORT` or `unix:PATH` of a server, `local` for an engine in this process, or a VectorEnv with
                `autoreset="same_step"` or `"disabled"`.
            family: The kind of world.
            num_envs: The number of lanes.
            device: The device of the tensors; only on the CPU they share the memory of the arrays.
            arguments: Other arguments of VectorEnv. The defaults here are `flat=True`, `autoreset="same_step"` and
                `clip_actions=True`. With `flat=False` each observation is an entry; actions are one tensor in any case.
        """
        env = make_vector_env(address, family, num_envs, arguments, _DEFAULTS, ["same_step", "disabled"])
        super().__init__(device=device, batch_size=torch.Size([env.num_envs]))
        self.is_closed = False
        self._env = env
        self._seed: int | None = None
        """The seed for the next reset of all lanes."""
        self._firsts: dict[str, torch.Tensor] = {}
        """Observations of all lanes as they are now, if some have begun an episode that TorchRL has not asked for."""
        self._begun = np.zeros(env.num_envs, bool)
        """These lanes."""
        actions = env.single_action_space
        self._flat_actions = env.flat_actions if isinstance(actions, spaces.Dict) else None
        self._make_specs()

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Destroy the world and close the connection."""
        super().close(raise_if_closed=raise_if_closed)
        self._env.close()

    def maybe_reset(self, tensordict: "TensorDictBase") -> "TensorDictBase":
        """Reset the lanes that have ended. Takes over their first observations as they are, if all of them are here."""
        done = tensordict.get("done")
        if self._begun.any() and np.array_equal(done.cpu().numpy()[:, 0], self._begun):
            tensordict.update(self._firsts)
            tensordict.update(self._no_ends())
            self._forget_firsts()
            return tensordict
        return super().maybe_reset(tensordict)

    def _step(self, tensordict: "TensorDictBase") -> "TensorDictBase":
        actions = tensordict.get("action").detach().cpu().numpy()
        if self._flat_actions is not None:
            actions = self._flat_actions.unflatten(actions, self._env.num_envs)
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        self._forget_firsts()
        if FINAL_LANES in info:
            self._firsts = self._receive(observations)
            self._begun[info[FINAL_LANES]] = True
            tensors = self._tensors(_replace_rows(observations, info[FINAL_LANES], info[FINAL_STACKED]))
        else:
            tensors = self._receive(observations)
        ends = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        ends["reward"] = rewards.astype(np.float32)
        columns = {name: torch.from_numpy(array)[:, None].to(self.device) for name, array in ends.items()}
        return TensorDict({**tensors, **columns}, self.batch_size, device=self.device)

    def _reset(self, tensordict: "TensorDictBase | None", **_: Any) -> "TensorDictBase":
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None or (self._seed is not None and mask.all()):
            observations, _info = self._env.reset(seed=self._seed)
            self._seed = None
            tensors = self._receive(observations)
            self._forget_firsts()
        else:
            tensors = self._reset_some(mask.cpu().numpy().reshape(-1))
        return TensorDict({**tensors, **self._no_ends()}, self.batch_size, device=self.device)

    def _reset_some(self, mask: np.ndarray) -> "dict[str, torch.Tensor]":
        """Return observations of all lanes, in which the lanes of the mask are at the beginning of an episode."""
        running = mask & ~self._begun
        if running.any() or not self._begun.any():
            observations, _info = self._env.reset(options={"reset_mask": running})
            self._firsts = self._receive(observations)
        tensors = self._firsts
        self._begun &= ~mask
        if not self._begun.any():
            self._forget_firsts()
        return tensors

    def _set_seed(self, seed: int | None) -> None:
        self._seed = seed

    def _forget_firsts(self) -> None:
        self._firsts = {}
        self._begun[:] = False

    def _no_ends(self) -> "dict[str, torch.Tensor]":
        return {name: torch.zeros(*self.batch_size, 1, dtype=torch.bool, device=self.device) for name in _DONE_KEYS}

    def _receive(self, observations: "np.ndarray | Mapping[str, np.ndarray]") -> "dict[str, torch.Tensor]":
        """Return tensors of observations that the env has returned."""
        is_on_cpu = self.device is None or self.device.type == "cpu"
        if is_on_cpu and self._env.has_shared_frames:  # other devices copy anyway
            observations = _copy(observations)
        return self._tensors(observations)

    def _tensors(self, observations: "np.ndarray | Mapping[str, np.ndarray]") -> "dict[str, torch.Tensor]":
        named = observations if isinstance(observations, Mapping) else {"observation": observations}
        return {name: torch.from_numpy(array).to(self.device) for name, array in named.items()}

    def _make_specs(self) -> None:
        env, shape = self._env, self.batch_size
        single = env.single_observation_space
        named = single.spaces if isinstance(single, spaces.Dict) else {"observation": single}
        observations = {name: self._box_spec(space) for name, space in named.items()}
        self.observation_spec = Composite(observations, shape=shape, device=self.device)
        actions = env.single_action_space if self._flat_actions is None else self._flat_actions.space
        if isinstance(actions, spaces.Discrete):
            self.action_spec = Categorical(int(actions.n), shape=shape, device=self.device)
        elif isinstance(actions, spaces.MultiDiscrete):
            counts = actions.nvec.tolist()
            self.action_spec = MultiCategorical(counts, shape=(*shape, len(counts)), device=self.device)
        else:
            self.action_spec = self._box_spec(actions)
        self.reward_spec = Unbounded((*shape, 1), device=self.device)
        flags = {name: Categorical(2, shape=(*shape, 1), dtype=torch.bool, device=self.device) for name in _DONE_KEYS}
        self.done_spec = Composite(flags, shape=shape, device=self.device)

    def _box_spec(self, box: Any) -> "Bounded | Unbounded":
        shape, dtype = (*self.batch_size, *box.shape), torch.from_numpy(np.zeros(0, box.dtype)).dtype
        if not box.is_bounded():
            return Unbounded(shape, device=self.device, dtype=dtype)
        low, high = (torch.from_numpy(bound) for bound in (box.low, box.high))
        return Bounded(low.expand(shape), high.expand(shape), shape, device=self.device, dtype=dtype)


def _copy(arrays: Any) -> Any:
    if isinstance(arrays, Mapping):
        return {name: _copy(array) for name, array in arrays.items()}
    return arrays.copy(order="K")  # frames with channels first have their bytes in another order


def _replace_rows(arrays: Any, rows: np.ndarray, by: Any) -> Any:
    """Return copies of arrays with other rows; NumPy does it many times faster than torch, which goes by elements."""
    if isinstance(arrays, Mapping):
        return {name: _replace_rows(array, rows, by[name]) for name, array in arrays.items()}
    if len(rows) == len(arrays):
        return by
    replaced = _copy(arrays)
    replaced[rows] = by
    return replaced
