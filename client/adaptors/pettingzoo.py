"""PettingZoo's ParallelEnv: one world with several agents, who all act in each step.

Each agent has joined the world through a stream of its own: to one server, or to one engine in this process. The steps
of all agents are sent before the first reply is awaited, so the world advances once and all views are drawn in one
batch.
"""

import os
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import gymnasium
import numpy as np

from worldloom.client.adaptors import explain_missing
from worldloom.client.connections import Credentials
from worldloom.client.errors import BadAction, ClientError
from worldloom.client.frames import Channels, arrange_channels, arrange_space
from worldloom.client.replies import Arrays
from worldloom.client.spaces import FlatActions, build_action_space, build_observation_space
from worldloom.client.vector_world import Transport, VectorWorld, create_vector_world, is_frame
from worldloom.client.world import check_settings

with explain_missing("pettingzoo"):
    from pettingzoo import ParallelEnv

_MAX_AGENTS = 8
_LAST = 2
"""The step_type of an episode's last step."""
_LANES = 1
"""The world has one lane, so that arrays have the form that the client's other modules work with."""


class PettingZooEnv(ParallelEnv):
    """A world with several agents, named `agent_0`, `agent_1` and so on.

    The agents share one episode: it ends for all of them together, after which `agents` is empty until `reset`.
    An env can be pickled: unpickled, it is a new env with the same arguments.
    """

    def __init__(
        self,
        address: str = "local",
        family: str = "maze",
        agents: int = 2,
        *,
        width: int = 64,
        height: int = 64,
        samples: int = 1,
        observations: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        flat: bool = True,
        channels: Channels | None = None,
        clip_actions: bool = True,
        action_repeat: int = 1,
        transport: Transport = "auto",
        renderer: Literal["auto", "gl", "cpu"] = "auto",
        token: str | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Create a world and have all its agents join it.

        The other arguments are those of VectorEnv.

        Args:
            address: `HOST:PORT` or `unix:PATH` of a server, or `local` for an engine in this process.
            family: A kind of world with the setting `agents`, such as `maze`.
            agents: The number of agents.
        """
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self._arguments = arguments  # to pickle
        check_settings(settings, {"family": "family", "agents": "agents", "seed": "seed"})
        if not 1 <= agents <= _MAX_AGENTS:
            raise ValueError(f"agents is {agents}: expected 1 to {_MAX_AGENTS}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}: expected 'rgb_array' or None")
        if channels not in (None, *get_args(Channels)):
            raise ValueError(f"channels is {channels!r}: expected 'last', 'first' or None")
        if isinstance(observations, str):
            raise TypeError(f"observations is {observations!r}: expected a list of names, such as [{observations!r}]")
        self._names = tuple(dict.fromkeys(("eye.rgb",) if observations is None else observations))
        if flat and len(self._names) != 1:
            raise ValueError(f"flat=True with the observations {self._names}: expected exactly one, or flat=False")
        self._is_flat = flat
        self._channels: Channels | None = "last" if channels is None and flat else channels
        self._rendered_name = next((name for name in self._names if name.endswith(".rgb")), None)
        if self._rendered_name is None and render_mode is not None:
            self._rendered_name = "eye.rgb"
        self.render_mode = None if self._rendered_name is None else "rgb_array"
        self._rendered_frames: list[np.ndarray] = []
        """The frames of all agents as of the last step or reset, for `render`."""
        world_settings = {"family": family, "agents": agents, "lanes": _LANES, "action_repeat": action_repeat}
        world_settings |= {**(settings or {}), **({} if seed is None else {"seed": seed})}
        names = self._names if self._rendered_name is None else (*self._names, self._rendered_name)
        join_settings = {"width": width, "height": height, "samples": samples}
        self._members: dict[str, VectorWorld] = {}
        """The world as each agent has joined it."""
        # Runs when the env is garbage collected or the process ends, too.
        self._finalizer = weakref.finalize(self, _close, self._members)
        first = self._members["agent_0"] = create_vector_world(
            address,
            names,
            world_settings=world_settings,
            join_settings={**join_settings, "agent": 0},
            transport=transport,
            credentials=Credentials(token, tls_ca, tls_cert, tls_key),
            renderer=renderer,
            timeout_s=timeout_s,
            clip_actions=clip_actions,
        )
        try:
            for index in range(1, agents):
                self._members[f"agent_{index}"] = first.join_again(
                    names,
                    join_settings={**join_settings, "agent": index},
                    transport=transport,
                    clip_actions=clip_actions,
                )
            self._build_spaces()
            self.metadata: dict[str, Any] = {
                "name": f"worldloom_{family}",
                "render_modes": ["rgb_array"],
                "render_fps": float(first.read_property("world.steps_per_s")),
                "is_parallelizable": True,
            }
        except BaseException:
            self.close()
            raise
        self.possible_agents = list(self._members)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the action space of an agent."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start a new episode. A seed restarts the random numbers; options are ignored."""
        self._check_open()
        self.agents = []
        # A reset with a seed waits until no agent is in the middle of an episode, so that of the first comes last.
        for agent, world in reversed(self._members.items()):
            world.send_reset({} if seed is None or agent != self.possible_agents[0] else {"seed": seed})
        received = self._receive()
        self.agents = list(self.possible_agents)
        return self._select(received), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Step all agents. Raises BadAction before anything is sent if an action is not in its space."""
        self._check_open()
        if not self.agents:
            raise gymnasium.error.ResetNeeded("a step without an episode: expected env.reset() first")
        if actions.keys() != set(self.agents):
            raise BadAction(f"actions of {', '.join(actions) or 'nobody'}: expected those of {', '.join(self.agents)}")
        valid = {agent: self._validate(agent, actions[agent]) for agent in self.agents}
        stepping, self.agents = self.agents, []  # after an error the episode is lost
        for agent, arrays in valid.items():
            self._members[agent].send_valid(arrays)
        received = self._receive()
        rewards = {agent: float(arrays["reward"][0]) for agent, arrays in received.items()}
        is_last = {agent: bool(arrays["step_type"][0] == _LAST) for agent, arrays in received.items()}
        terminated = {agent: is_last[agent] and not received[agent]["discount"].any() for agent in stepping}
        truncated = {agent: is_last[agent] and not terminated[agent] for agent in stepping}
        self.agents = [agent for agent in stepping if not is_last[agent]]
        return self._select(received), rewards, terminated, truncated, {agent: {} for agent in stepping}

    def render(self) -> np.ndarray:
        """Return one image [height, width, 3] with the frames of all agents beside each other."""
        if self._rendered_name is None:
            raise ClientError("nothing to render: expected an .rgb name in `observations`, or render_mode='rgb_array'")
        if not self._rendered_frames:
            raise gymnasium.error.ResetNeeded("nothing to render yet: expected env.reset() first")
        return np.concatenate(self._rendered_frames, axis=1)

    def close(self) -> None:
        """Destroy the world and close all streams. Closing twice does nothing."""
        self._rendered_frames = []
        self.agents = []
        self._finalizer()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._arguments), ()

    def _build_spaces(self) -> None:
        self._flat_actions: FlatActions | None = None
        self.observation_spaces: dict[str, gymnasium.Space[Any]] = {}
        self.action_spaces: dict[str, gymnasium.Space[Any]] = {}
        for agent, member in self._members.items():  # each has its own, whose samples are seeded
            found = build_observation_space([member.observations[name] for name in self._names], _LANES)
            for name in filter(is_frame, self._names):
                found.spaces[name] = arrange_space(found[name], self._channels, stack=1)
            self.observation_spaces[agent] = found[self._names[0]] if self._is_flat else found
            self._flat_actions = FlatActions(member.actions, _LANES) if self._is_flat else None
            self.action_spaces[agent] = (
                build_action_space(member.actions.values(), _LANES)
                if self._flat_actions is None
                else self._flat_actions.space
            )

    def _validate(self, agent: str, action: Any) -> dict[str, np.ndarray]:
        """Return the action of an agent as arrays of one lane."""
        try:
            if self._flat_actions is not None:
                by_name = self._flat_actions.unflatten(np.asarray(action)[None], _LANES)
            else:
                by_name = {name: np.asarray(value)[None] for name, value in action.items()}
            return self._members[agent].validate(by_name)
        except BadAction as error:
            raise BadAction(f"{agent}: {error}") from error

    def _receive(self) -> dict[str, Arrays]:
        received = {agent: member.receive() for agent, member in self._members.items()}
        if self._rendered_name is not None:
            self._rendered_frames = [arrays[self._rendered_name][0] for arrays in received.values()]
        return received

    def _select(self, received: Mapping[str, Arrays]) -> dict[str, Any]:
        return {agent: self._select_one(arrays) for agent, arrays in received.items()}

    def _select_one(self, arrays: Arrays) -> Any:
        chosen = {
            name: (arrange_channels(arrays[name], self._channels) if is_frame(name) else arrays[name])[0]
            for name in self._names
        }
        return chosen[self._names[0]] if self._is_flat else chosen

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClientError("this env was closed: expected a new one")


def _close(members: Mapping[str, VectorWorld]) -> None:
    """Leave with all agents; the first one created the world, and destroys it at the end."""
    for world in reversed(list(members.values())):
        world.close()
