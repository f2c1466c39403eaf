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

from worldloom.client.arguments import (
    MAX_ACTION_REPEAT,
    MAX_FRAME_STACK,
    MAX_SEED,
    check_names,
    parse_integer,
    parse_timeout,
)
from worldloom.client.connections import Credentials, connect_again
from worldloom.client.errors import BadAction, ClientError
from worldloom.client.frames import Channels, FrameStack, arrange_channels, arrange_space
from worldloom.client.replies import Arrays
from worldloom.client.spaces import FlatActions, build_action_space, build_observation_space
from worldloom.client.vector_world import Transport, VectorWorld, check_same_specs, create_vector_world, is_frame
from worldloom.client.world import check_settings, frame_settings
from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.client.adaptors.pettingzoo", "pettingzoo"):
    from pettingzoo import ParallelEnv

_MAX_AGENTS = 8
_LAST = 2
"""The step_type of an episode's last step."""
_LANES = 1
"""The world has one lane, so that arrays have the form that the client's other modules work with."""

_NO_LANES = np.zeros(_LANES, bool)


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
        shadows: bool = False,
        observations: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        flat: bool = True,
        channels: Channels | None = None,
        frame_stack: int = 1,
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
        agents = parse_integer("agents", agents, 1, _MAX_AGENTS)
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}: expected 'rgb_array' or None")
        if channels not in (None, *get_args(Channels)):
            raise ValueError(f"channels is {channels!r}: expected 'last', 'first' or None")
        if isinstance(observations, str):
            raise TypeError(f"observations is {observations!r}: expected a list of names, such as [{observations!r}]")
        self._names = tuple(dict.fromkeys(("eye.rgb",) if observations is None else observations))
        check_names(self._names)
        if flat and len(self._names) != 1:
            raise ValueError(f"flat=True with the observations {self._names}: expected exactly one, or flat=False")
        self._is_flat = flat
        self._frame_stack = parse_integer("frame_stack", frame_stack, 1, MAX_FRAME_STACK)
        self._channels = "last" if channels is None and (flat or self._frame_stack > 1) else channels
        self._rendered_name = next((name for name in self._names if name.endswith(".rgb")), None)
        if self._rendered_name is None and render_mode is not None:
            self._rendered_name = "eye.rgb"
        self.render_mode = None if self._rendered_name is None else "rgb_array"
        self._stacks: dict[tuple[str, str], FrameStack] = {}
        """The last frames of the episode, by agent and name."""
        self._rendered_frames: list[np.ndarray] = []
        """The frames of all agents as of the last step or reset, for `render`."""
        world_settings = {"family": family, "agents": agents, "lanes": _LANES, **(settings or {})}
        world_settings["action_repeat"] = parse_integer("action_repeat", action_repeat, 1, MAX_ACTION_REPEAT)
        if seed is not None:
            world_settings["seed"] = parse_integer("seed", seed, 0, MAX_SEED)
        self._world_arguments: dict[str, Any] = {
            "address": address,
            "world_settings": world_settings,
            "credentials": Credentials(token, tls_ca, tls_cert, tls_key),
            "renderer": renderer,
            "timeout_s": parse_timeout(timeout_s),
        }
        self._join_arguments: dict[str, Any] = {
            "names": self._names if self._rendered_name is None else (*self._names, self._rendered_name),
            "transport": transport,
            "clip_actions": clip_actions,
        }
        self._join_settings = frame_settings(width, height, samples, shadows)
        self.possible_agents = [f"agent_{index}" for index in range(agents)]
        self.agents: list[str] = []
        self._connect()
        try:
            self._build_spaces()
            render_fps = float(self._members["agent_0"].read_property("world.steps_per_s"))
        except BaseException:
            self.close()
            raise
        self.metadata: dict[str, Any] = {
            "name": f"worldloom_{family}",
            "render_modes": ["rgb_array"],
            "render_fps": render_fps,
            "is_parallelizable": True,
        }

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
        settings = {} if seed is None else {"seed": parse_integer("seed", seed, 0, MAX_SEED)}
        self.agents = []
        # A reset with a seed waits until no agent is in the middle of an episode, so that of the first comes last.
        for agent, world in reversed(self._members.items()):
            world.send_reset(settings if agent == self.possible_agents[0] else {})
        received = self._receive(is_reset=True)
        self.agents = list(self.possible_agents)
        return self._select(received), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Step all agents. Raises BadAction before anything is sent if an action is not in its space."""
        self._check_open()
        if not self.agents:
            raise gymnasium.error.ResetNeeded("a step without an episode: expected env.reset() first")
        expected = ", ".join(self.agents)
        if not isinstance(actions, Mapping):
            raise BadAction(
                f"actions are {type(actions).__name__}: expected a dict with the action of each agent, {expected}"
            )
        if actions.keys() != set(self.agents):
            raise BadAction(f"actions of {', '.join(map(str, actions)) or 'nobody'}: expected those of {expected}")
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

    def reconnect(self, wait_s: float = 0.0) -> None:
        """Create a new world with the same settings after a lost connection; call `reset` next.

        Tries again for up to `wait_s` seconds while there is no server, or one that is stopping or does not answer.
        """
        before = self._members["agent_0"]
        self.close()
        connect_again(self._connect, wait_s, self._world_arguments["timeout_s"])
        try:
            check_same_specs(before, self._members["agent_0"])
        except ClientError:
            self.close()
            raise

    def close(self) -> None:
        """Destroy the world and close all streams. Closing twice does nothing."""
        self._rendered_frames = []
        self.agents = []
        self._finalizer()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._arguments), ()

    def _connect(self, first_timeout_s: float | None = None) -> None:
        """Create the world, and have all agents join it."""
        members: dict[str, VectorWorld] = {}
        try:
            for index, agent in enumerate(self.possible_agents):
                arguments = {**self._join_arguments, "join_settings": {**self._join_settings, "agent": index}}
                members[agent] = (
                    members["agent_0"].join_again(**arguments)
                    if members
                    else create_vector_world(**self._world_arguments, **arguments, first_timeout_s=first_timeout_s)
                )
        except BaseException:
            _close(members)
            raise
        self._members = members
        """The world as each agent has joined it."""
        # Runs when the env is garbage collected or the process ends, too.
        self._finalizer = weakref.finalize(self, _close, members)

    def _build_spaces(self) -> None:
        self._flat_actions: FlatActions | None = None
        self.observation_spaces: dict[str, gymnasium.Space[Any]] = {}
        self.action_spaces: dict[str, gymnasium.Space[Any]] = {}
        for agent, member in self._members.items():  # each has its own, whose samples are seeded
            found = build_observation_space([member.observations[name] for name in self._names], _LANES)
            for name in filter(is_frame, self._names):
                found.spaces[name] = arrange_space(found[name], self._channels, self._frame_stack)
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
                by_name: Any = self._flat_actions.unflatten(_add_lanes(action), _LANES)
            else:
                is_dict = isinstance(action, Mapping)
                by_name = {name: _add_lanes(value) for name, value in action.items()} if is_dict else action
            return self._members[agent].validate(by_name)
        except BadAction as error:
            raise BadAction(f"{agent}: {error}") from error

    def _receive(self, is_reset: bool = False) -> dict[str, Arrays]:
        """Return the arrays of each agent, with frames arranged and stacked."""
        received = {agent: member.receive() for agent, member in self._members.items()}
        if self._rendered_name is not None:
            self._rendered_frames = [arrays[self._rendered_name][0] for arrays in received.values()]
        for agent, arrays in received.items():
            for name in filter(is_frame, self._names):
                arrays[name] = self._arrange(agent, name, arrays[name], is_reset)
        return received

    def _arrange(self, agent: str, name: str, frames: np.ndarray, is_reset: bool) -> np.ndarray:
        if self._channels is None or self._frame_stack == 1:
            return arrange_channels(frames, self._channels)
        if is_reset:
            stack = self._stacks[agent, name] = FrameStack(self._frame_stack, self._channels)
            return stack.begin(frames)
        return self._stacks[agent, name].push(frames, _NO_LANES, None)

    def _select(self, received: Mapping[str, Arrays]) -> dict[str, Any]:
        return {agent: self._select_one(arrays) for agent, arrays in received.items()}

    def _select_one(self, arrays: Arrays) -> Any:
        chosen = {name: arrays[name][0] for name in self._names}
        return chosen[self._names[0]] if self._is_flat else chosen

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClientError("this env was closed: expected env.reconnect(), or a new one")


def _add_lanes(action: Any) -> Any:
    """Return an action as that of one lane."""
    # Lists may be no array, which is refused where their shape is known.
    return [action] if isinstance(action, list | tuple) else np.asarray(action)[None]


def _close(members: Mapping[str, VectorWorld]) -> None:
    """Leave with all agents; the first one created the world, and destroys it at the end."""
    for world in reversed(list(members.values())):
        world.close()
