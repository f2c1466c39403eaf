"""A Gymnasium vector environment: many lanes of one family, behind one connection."""

import math
import operator
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias, get_args

import gymnasium
import numpy as np
from google.rpc import code_pb2
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from worldloom.client.connections import Credentials
from worldloom.client.errors import ClientError, LostConnection, ServerError
from worldloom.client.frames import Channels, arrange_channels, arrange_space
from worldloom.client.replies import Arrays
from worldloom.client.spaces import FlatActions, build_action_space, build_observation_space
from worldloom.client.specs import dtypes_and_shapes
from worldloom.client.vector_world import Transport, VectorWorld, is_frame, split_outcome
from worldloom.client.world import check_settings

_RETRY_INTERVAL_S = 0.1
_FIRST_REPLY_S = 5.0
"""Time for the first reply of a server to `reconnect`, before it tries again. Servers give it in milliseconds; this is
for one that is so busy with many clients that it takes seconds."""

Observations: TypeAlias = Any
"""A dict of arrays by name, or one array if the env is flat. Each user knows which, and a checker does not."""
Actions: TypeAlias = Any
"""In the same form."""
StepResult: TypeAlias = tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class VectorEnv(gymnasium.vector.VectorEnv[Observations, Actions, np.ndarray]):
    """A Gymnasium vector environment of `num_envs` lanes of a family; a lane is one independent simulation.

    Observations are dicts keyed by the full name, actions dicts keyed by the action's name; with `flat`, both are one
    array. A lane whose episode has ended starts the next one with the following step, which ignores its action and has
    a reward of 0 (NEXT_STEP). Arrays of observations belong to the caller: they are writable, and later steps do not
    change them. An env can be pickled: unpickled, it is a new env with the same arguments.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # as in the base class; each env has a copy of its own
        "autoreset_mode": AutoresetMode.NEXT_STEP,
        "render_modes": ["rgb_array"],
    }

    closed = True
    """False while there is a world. Some versions of Gymnasium close an env that could not be made."""

    def __init__(
        self,
        address: str,
        family: str,
        num_envs: int,
        *,
        width: int = 64,
        height: int = 64,
        samples: int = 1,
        observations: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        flat: bool = False,
        channels: Channels | None = None,
        clip_actions: bool = False,
        transport: Transport = "auto",
        renderer: Literal["auto", "gl", "cpu"] = "auto",
        token: str | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Create a world and join it.

        Args:
            address: `HOST:PORT` or `unix:PATH` of a server, or `local` for an engine in this process.
            family: The kind of world; `worldloom worlds` lists them.
            num_envs: The number of lanes.
            width: Width of frames in pixels.
            height: Height of frames in pixels.
            samples: Samples per pixel, 1 or 4.
            observations: Names of observations; the default is `eye.rgb`.
            settings: Settings of the family; `worldloom describe FAMILY` lists them.
            seed: Seed of all random numbers until `reset` gives another; random unless given. Lanes have seeds that are
                derived from it; `worldloom describe FAMILY` says how. Those of `dmc` are `seed`, `seed + 1` and so on,
                as users of dm_control number their environments: seeds of two runs must be `num_envs` apart, or
                they share lanes.
            render_mode: `rgb_array` draws `eye.rgb` with each step for `render`, if `observations` has no `.rgb`.
            flat: One observation and all actions as plain arrays instead of dicts: the observation is a Box; integer
                actions are Discrete or MultiDiscrete and counted from 0, float actions a Box of one dimension.
            channels: The axis of channels in frames: `last` [height, width, channels], `first` [channels, height,
                width], with one channel where there is none. The default is `last` for flat envs; else gray, depth and
                segmentation have no channel axis.
            clip_actions: Floats beyond the range of their action become the nearest value in it, instead of BadAction.
            transport: `shm` for frames in shared memory, `grpc` for frames in replies; `auto` uses `shm` where it can.
            renderer: The renderer of an engine in this process; servers have their own.
            token: The token that the server was given with --token-file.
            tls_ca: PEM file of the certificates that the server's is signed with. If given, the connection uses TLS.
            tls_cert: PEM file with this client's own certificate, for servers with --tls-client-ca.
            tls_key: PEM file with the key of that certificate.
            timeout_s: The longest time to wait for a reply, in seconds.
        """
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self._arguments = arguments  # to pickle
        check_settings(settings, {"family": "family", "lanes": "num_envs", "seed": "seed"})
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}: expected 'rgb_array' or None")
        if isinstance(observations, str):
            raise TypeError(f"observations is {observations!r}: expected a list of names, such as [{observations!r}]")
        names = tuple(dict.fromkeys(("eye.rgb",) if observations is None else observations))
        if flat and len(names) != 1:
            raise ValueError(f"flat=True with the observations {names}: expected exactly one, or flat=False")
        if channels not in (None, *get_args(Channels)):
            raise ValueError(f"channels is {channels!r}: expected 'last', 'first' or None")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}: expected seconds, more than 0")
        self.address = address
        self.num_envs = _parse_integer("num_envs", num_envs, 1, 2**31 - 1)
        self.autoreset_mode = AutoresetMode.NEXT_STEP
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self._names = names
        self._is_flat = flat
        self._channels: Channels | None = "last" if channels is None and flat else channels
        self._seed = None if seed is None else _parse_integer("seed", seed, 0, 2**64 - 1)
        self._rendered_frames: np.ndarray | None = None
        """The frames of the last step or reset, for `render`."""
        self._rendered_name = next((name for name in names if name.endswith(".rgb")), None)
        if self._rendered_name is None and render_mode is not None:
            self._rendered_name = "eye.rgb"
        self.render_mode = None if self._rendered_name is None else "rgb_array"
        self._world_arguments: dict[str, Any] = {
            "names": names if self._rendered_name is None else (*names, self._rendered_name),
            "world_settings": {"family": family, "lanes": self.num_envs, **(settings or {})},
            "join_settings": {"width": width, "height": height, "samples": samples},
            "clip_actions": clip_actions,
            "transport": transport,
            "credentials": Credentials(token, tls_ca, tls_cert, tls_key),
            "renderer": renderer,
            "timeout_s": timeout_s,
        }
        self._connect()
        try:
            self._flat_actions = FlatActions(self._world.actions, self.num_envs) if flat else None
            self.single_action_space = self._build_action_space()
            self.single_observation_space = self._build_observation_space()
        except BaseException:
            self.close()
            raise
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]  # an attribute in the base class
        """The space of all lanes. Built on first use: its bounds take several times the memory of the frames."""
        return batch_space(self.single_observation_space, self.num_envs)

    @cached_property
    def flat_actions(self) -> FlatActions:
        """All actions as one array, as flat envs take them; ValueError if they have no such form."""
        return FlatActions(self._world.actions, self.num_envs)

    @property
    def transport(self) -> str:
        """The transport that was chosen: `local`, `shm` or `grpc`."""
        return self._world.transport

    @property
    def unshared_steps(self) -> int:
        """Steps and resets with the transport `shm` whose frames came in the replies, since the env was connected.

        These are slower. It happens while the program keeps the frames of as many steps as shared memory has room for.
        """
        return self._world.unshared_steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start new episodes in all lanes. A seed restarts the random numbers of all of them."""
        if options:
            raise ValueError(f"options are {options!r}: expected none; all lanes are reset together, or by themselves")
        checked_seed = None if seed is None else _parse_integer("seed", seed, 0, 2**64 - 1)
        super().reset(seed=checked_seed)
        self._check_open()
        self._is_reset = self._is_stepping = False
        self._world.send_reset(checked_seed)
        observations = self._receive()
        self._is_reset = True
        return self._select(observations), {}

    def step(self, actions: Actions) -> StepResult:
        """Step all lanes. Raises BadAction before anything is sent if an action is not in its space."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Actions) -> None:
        """Send a step without waiting for its result, which `recv` returns."""
        self._check_open()
        if not self._is_reset:
            raise gymnasium.error.ResetNeeded("a step before the first reset: expected env.reset() first")
        if self._is_stepping:
            raise ClientError("a step while another is under way: expected env.recv() first")
        self._world.send(
            actions if self._flat_actions is None else self._flat_actions.unflatten(actions, self.num_envs)
        )
        self._is_stepping = True

    def recv(self) -> StepResult:
        """Wait for the result of the step that `send` has sent."""
        self._check_open()
        if not self._is_stepping:
            raise ClientError("nothing to receive: expected env.send(actions) first")
        try:
            observations = self._receive()
        except ClientError:
            self._is_stepping = False
            raise
        self._is_stepping = False  # not after KeyboardInterrupt: then the result can still be received
        return self._select(observations), *split_outcome(observations), {}

    def render(self) -> np.ndarray:  # type: ignore[override]  # one image instead of a tuple
        """Return one image [height, width, 3] with the frames of all lanes, as of the last step or reset."""
        if self._rendered_name is None:
            raise ClientError("nothing to render: expected an .rgb name in `observations`, or render_mode='rgb_array'")
        if self._rendered_frames is None:
            raise gymnasium.error.ResetNeeded("nothing to render yet: expected env.reset() first")
        return _tile(self._rendered_frames)

    def reconnect(self, wait_s: float = 0.0) -> None:
        """Create a new world with the same settings after a lost connection; call `reset` next.

        Tries again for up to `wait_s` seconds while there is no server, or one that is stopping or does not answer.
        """
        before = self._world
        self._finalizer()
        until_s = time.monotonic() + wait_s
        while not self._try_to_connect(is_last_try=time.monotonic() + _RETRY_INTERVAL_S > until_s):
            time.sleep(_RETRY_INTERVAL_S)
        for kind in ("actions", "observations"):
            old, new = (dtypes_and_shapes(getattr(world, kind)) for world in (before, self._world))
            if old != new:
                self.close()
                raise ClientError(f"the server at {self.address} now has {kind} {new}: expected {old}; make a new env")

    def close_extras(self, **kwargs: Any) -> None:
        """Destroy the world and close the connection. `close` calls this."""
        self._rendered_frames = None
        self._finalizer()

    def __enter__(self) -> "VectorEnv":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        family = self._world_arguments["world_settings"]["family"]
        return f"VectorEnv({self.address!r}, {family!r}, num_envs={self.num_envs}, transport={self.transport!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._arguments), (), {"spec": self.spec}

    def _build_action_space(self) -> gymnasium.Space[Any]:
        if self._flat_actions is not None:
            return self._flat_actions.space
        return build_action_space(self._world.actions.values(), self.num_envs)

    def _build_observation_space(self) -> gymnasium.Space[Any]:
        specs = [self._world.observations[name] for name in self._names]
        found = build_observation_space(specs, self.num_envs)
        for name in filter(is_frame, self._names):
            found.spaces[name] = arrange_space(found[name], self._channels)
        return found[self._names[0]] if self._is_flat else found

    def _connect(self, first_timeout_s: float | None = None) -> None:
        arguments = {**self._world_arguments, "first_timeout_s": first_timeout_s}
        if self._seed is not None:
            arguments["world_settings"] = {**arguments["world_settings"], "seed": self._seed}
        self._world = VectorWorld(self.address, **arguments)
        # Runs when the env is garbage collected or the process ends, too.
        self._finalizer = weakref.finalize(self, self._world.close)
        self.closed = False
        self._is_reset = False
        self._is_stepping = False
        self._rendered_frames = None

    def _try_to_connect(self, is_last_try: bool) -> bool:
        timeout_s = self._world_arguments["timeout_s"]
        try:
            self._connect(timeout_s if is_last_try else min(timeout_s, _FIRST_REPLY_S))
        except (LostConnection, ServerError) as error:
            if is_last_try or (isinstance(error, ServerError) and error.code != code_pb2.UNAVAILABLE):
                raise
            return False
        return True

    def _receive(self) -> Arrays:
        observations = self._world.receive()
        if self._rendered_name is not None:
            self._rendered_frames = observations[self._rendered_name]
        return observations

    def _select(self, observations: Arrays) -> Observations:
        chosen = {
            name: arrange_channels(observations[name], self._channels) if is_frame(name) else observations[name]
            for name in self._names
        }
        return chosen[self._names[0]] if self._is_flat else chosen

    def _check_open(self) -> None:
        if self.closed:
            raise ClientError("this env was closed: expected env.reconnect(), or a new one")


def _tile(frames_nhwc: np.ndarray) -> np.ndarray:
    """Arrange frames in rows, as close to a square as possible; the rest is black."""
    count, height, width, channels = frames_nhwc.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    padded = np.zeros((rows * columns, height, width, channels), frames_nhwc.dtype)
    padded[:count] = frames_nhwc
    by_rows = padded.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return by_rows.reshape(rows * height, columns * width, channels)


def _parse_integer(name: str, given: Any, least: int, greatest: int) -> int:
    try:
        if isinstance(given, bool | np.bool_):
            raise TypeError
        value = operator.index(given)
    except TypeError:
        hint = ", from which the seeds of the lanes are derived" if name == "seed" else ""
        raise TypeError(f"{name} is {given!r}: expected one integer{hint}") from None
    if not least <= value <= greatest:
        raise ValueError(f"{name} is {value}: expected an integer from {least} to {greatest}")
    return value
