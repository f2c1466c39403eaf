"""A Gymnasium vector environment: many lanes of one family, behind one connection or several."""

import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from worldloom.client.arguments import MODES, Autoreset, parse_env_id, parse_integer, parse_options, parse_seeds
from worldloom.client.cameras import Camera, read_camera
from worldloom.client.connections import connect_again
from worldloom.client.distributed import DistributedLanes, Lanes, ServerStatus, open_lanes
from worldloom.client.env_arguments import parse_env_arguments
from worldloom.client.episodes import EpisodeStatistics, build_info
from worldloom.client.errors import ClientError
from worldloom.client.frames import Channels, arrange_space, tile_frames
from worldloom.client.results import Actions, LaneResults, Observations, StepResult
from worldloom.client.rollout import MAX_ROLLOUT_STEPS, Rollout, parse_out
from worldloom.client.servers import ServerDirectory
from worldloom.client.spaces import FlatActions, LaneSpaces, build_action_space, build_observation_space
from worldloom.client.vector_world import Transport, check_same_specs, is_frame


class VectorEnv(gymnasium.vector.VectorEnv[Observations, Actions, np.ndarray]):
    """A Gymnasium vector environment of `num_envs` lanes of a family; a lane is one independent simulation.

    Observations are dicts keyed by the full name, actions dicts keyed by the action's name; with `flat`, both are one
    array. Arrays of observations belong to the caller: they are writable, and later steps do not change them. An env
    can be pickled: unpickled, it is a new env with the same arguments.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # as in the base class; each env has a copy of its own
        "autoreset_mode": AutoresetMode.NEXT_STEP,
        "render_modes": ["rgb_array"],
    }

    _last_observations: Mapping[str, np.ndarray] | None
    """Observations of the last step or reset, by name; None if they were received in parts."""
    closed = True
    """False while there is a world. Some versions of Gymnasium close an env that could not be made."""

    def __init__(
        self,
        address: "str | Sequence[str] | ServerDirectory",
        family: str,
        num_envs: int,
        *,
        width: int = 64,
        height: int = 64,
        samples: int = 1,
        shadows: bool = False,
        observations: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | Sequence[int] | None = None,
        first_lane: int | Sequence[int] = 0,
        autoreset: Autoreset | AutoresetMode = "next_step",
        action_repeat: int = 1,
        flat: bool = False,
        channels: Channels | None = None,
        frame_stack: int = 1,
        clip_actions: bool = False,
        episode_statistics: bool = False,
        render_mode: Literal["rgb_array"] | None = None,
        streams: int = 1,
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
            address: `HOST:PORT` or `unix:PATH` of a server, or `local` for an engine in this process. A list
                divides the lanes over servers, some of which may be lost; one with the method `addresses` may change.
            family: The kind of world; `worldloom worlds` lists them.
            num_envs: The number of lanes.
            width, height: Size of frames in pixels.
            samples: Samples per pixel, 1 or 4.
            shadows: True draws the shadows of lights.
            observations: Names of observations; the default is `eye.rgb`.
            settings: Settings of the family; `worldloom describe FAMILY` lists them.
            seed: Seed of all random numbers until `reset` gives another; random unless given. Lanes have seeds that
                follow from it, as `worldloom describe FAMILY` says. Those of `dmc` are `seed`, `seed + 1` and so on:
                seeds of two runs must be `num_envs` apart, or they share lanes. A list has a seed for each lane.
            first_lane: The number of the first lane, or a list with those of all: seeds of lanes follow from it. Two
                envs of 512 lanes equal one of 1,024 if the second has `first_lane=512`.
            autoreset: The beginning of the next episode in a lane: `next_step` with the step after the last, which
                ignores its action; `same_step` within the last step, whose observations are then in `info`; `disabled`
                when `reset` is called with a mask of lanes.
            action_repeat: Times that each step applies its actions. Rewards are added, and an end stops it.
            flat: One observation and all actions as plain arrays, not dicts: the observation is a Box, integer actions
                are Discrete or MultiDiscrete and counted from 0, float actions a Box of one dimension.
            channels: The axis of channels in frames: `last` [height, width, channels], `first` [channels, height,
                width], with one channel where there is none. Default: `last` for flat envs and stacked frames, else
                none for gray, depth and segmentation.
            frame_stack: Frames of so many steps along the axis of channels, oldest first; at first, all the same one.
            clip_actions: Floats beyond the range of their action become the nearest value in it, instead of BadAction.
            episode_statistics: Return, length, seconds of ended episodes in `info`, as RecordEpisodeStatistics does.
            render_mode: `rgb_array` has `render` return an image of each lane; each step draws `eye.rgb` for it.
            streams: Number of streams that the lanes are divided over, for `recv` with `min_lanes`.
            transport: `socket` for a Unix socket without gRPC and frames in shared memory, `shm` for gRPC and frames in
                shared memory, `grpc` for frames in replies; `auto` uses the first of these that it can.
            renderer: The renderer of an engine in this process; servers have their own.
            token: The token that the server was given with --token-file.
            tls_ca: PEM file of the certificates that the server's is signed with. If given, the connection uses TLS.
            tls_cert, tls_key: PEM files of this client's own certificate and its key, for servers with --tls-client-ca.
            timeout_s: The longest time to wait for a reply, in seconds.
        """
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self._arguments = arguments  # to pickle
        checked = parse_env_arguments(arguments)
        self.address = address
        self.num_envs = checked.num_envs
        self._observing = checked.observing
        self._is_flat = flat
        self._checked = checked
        self.render_mode = None if self._observing.rendered_name is None else "rgb_array"
        self.autoreset_mode = MODES[self._observing.autoreset]
        self._statistics = EpisodeStatistics(self.num_envs) if episode_statistics else None
        self._connect()
        try:
            self._build_spaces()
            render_fps = float(self.read_property("world.steps_per_s"))
        except BaseException:
            self.close()
            raise
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode, "render_fps": render_fps}

    @cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]  # an attribute in the base class
        """The space of all lanes. Built on first use: its bounds take several times the memory of the frames."""
        return batch_space(self.single_observation_space, self.num_envs)

    @cached_property
    def flat_actions(self) -> FlatActions:
        """All actions as one array, as flat envs take them; ValueError if they have no such form."""
        return FlatActions(self._streams.first_world.actions, self._streams.first_lanes)

    @property
    def has_episode_statistics(self) -> bool:
        """True if `info` has the statistics of ended episodes."""
        return self._statistics is not None

    @property
    def rendered_frames(self) -> np.ndarray:
        """The frames that `render` shows [num_envs, height, width, 3], as of the last step or reset."""
        if self._observing.rendered_name is None:
            raise ClientError("nothing to render: expected an .rgb name in `observations`, or render_mode='rgb_array'")
        if (frames := self._streams.rendered_frames) is None:
            raise gymnasium.error.ResetNeeded("nothing to render yet: expected env.reset() first")
        return frames

    @property
    def transport(self) -> str:
        """The transport that was chosen: `local`, `socket`, `shm` or `grpc`."""
        return self._streams.first_world.transport

    @property
    def servers(self) -> tuple[ServerStatus, ...]:
        """The servers: address, state (`up`, `draining` or `lost`), and the number of lanes that each has."""
        if isinstance(self._streams, DistributedLanes):
            return self._streams.servers
        return (ServerStatus(str(self.address), "up", self.num_envs),)

    @property
    def has_shared_frames(self) -> bool:
        """True if frames of observations are in shared memory: keeping those of many steps makes steps slower."""
        return self._streams.has_shared_frames

    @property
    def unshared_steps(self) -> int:
        """Steps whose frames came in replies, which is slower: the program keeps all frames that shared memory has."""
        return self._streams.unshared_steps

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start new episodes in all lanes, or in those of `options["reset_mask"]`, which `next_step` does not allow.

        `options["variation"]` has the numbers of the variations that these lanes show from then on: one, or a list with
        one for each lane; -1 for those of their episodes.

        One seed restarts the random numbers of all these lanes. A list has a seed for each lane, or None for a lane
        that goes on with its own.
        """
        mask = self._send_reset(seed, options)
        results = self._streams.receive()
        self._is_reset = True
        self._last_observations = dict(results.observations)
        if self._statistics is not None:
            self._statistics.begin(slice(None) if mask is None else mask)
        info = {} if results.is_lost is None else {"lost": results.is_lost}
        return self._spaces.select(results.observations), info

    def async_reset(self) -> None:
        """Start new episodes in all lanes without waiting; `recv` returns their first observations."""
        self._send_reset(None, None)
        self._is_reset = True

    def step(self, actions: Actions, out: Rollout | Observations | None = None) -> StepResult:
        """Step all lanes. Raises BadAction before anything is sent if an action is not in its space.

        Args:
            actions: A dict of arrays by name, or one array if the env is flat.
            out: Memory for the results, which is returned then: a `rollout`, which also keeps actions, rewards and
                ends; or arrays for the observations, as the env returns them: a dict by name, one array if it is flat.
                An engine in this process draws into any contiguous arrays, a server on this machine into rollouts;
                elsewhere observations are copied.
        """
        valid = self._validate_step(actions)
        outputs = None
        if isinstance(out, Rollout):
            outputs = out.begin_step(self._streams)
        elif out is not None:
            arrays = parse_out(out, self._spaces, self.num_envs)
            outputs = self._streams.make_outputs(arrays)
        self._streams.step(valid, outputs)
        results = self._streams.receive()
        info = self._build_info(results)
        if isinstance(out, Rollout):
            results = out.end_step(actions, results, info)
        elif out is not None:
            results.observations = arrays
        return self._conclude(results, info)

    def replay(self, actions: Iterable[Actions]) -> StepResult:
        """Step all lanes once for each of these actions; return the result of the last step, which alone is drawn."""
        self._checked.check_replay()
        last = None
        for one in actions:
            if last is not None:
                self._streams.step_unobserved(last)
            last = {name: array.copy() for name, array in self._validate_step(one).items()}
        if last is None:
            raise ValueError("no actions to replay: expected those of one step at least")
        self._streams.step(last)
        return self._conclude(results := self._streams.receive(), self._build_info(results))

    def read_property(self, key: str) -> Any:
        """Return a property of the server, or of the world of the first stream."""
        return self._streams.first_world.read_property(key)

    def camera(self, name: str = "eye") -> Camera:
        """Return a camera's projection, and its pose as of the last step or reset, in all lanes."""
        self._check_open()
        self._streams.check_idle(None, "a look at a camera")
        return read_camera(self._streams.read_by_lane, name, self._arguments["width"], self._arguments["height"])

    def rollout(self, steps: int) -> Rollout:
        """Return memory for so many steps of all lanes: arrays [steps, num_envs, ...] that steps are drawn into.

        rollout = env.rollout(128)
        for observations in rollout:  # 128 times; each loop fills it anew
            env.step(policy(observations), out=rollout)
        learn(rollout.observations, rollout.actions, rollout.rewards, rollout.terminated)
        """
        self._check_open()
        self._streams.check_idle(None, "a rollout")
        return Rollout(
            self._streams,
            self._observing,
            self._spaces,
            parse_integer("steps", steps, 1, MAX_ROLLOUT_STEPS),
            self._read_last_observations,
        )

    def send(self, actions: Actions, env_id: Sequence[int] | np.ndarray | None = None) -> None:
        """Send a step without waiting for its result, which `recv` returns.

        With `env_id`, actions are for these lanes, in this order. A stream steps as soon as all its lanes have one.
        """
        lanes = None if env_id is None else parse_env_id(env_id, self.num_envs)
        valid = self._validate_step(actions, lanes)
        if lanes is None:
            # The caller may change its arrays before the result is received.
            self._streams.step({name: array.copy() for name, array in valid.items()})
        else:
            self._streams.send(valid, lanes)

    def recv(self, min_lanes: int | None = None) -> StepResult:
        """Wait for the results of what was sent, and return them with the indices of their lanes, `info["env_id"]`.

        With `min_lanes` they are of the streams that are ready as soon as these have at least so many lanes together;
        arrays then have a row for each of these. Where a stream fails, this raises its error, and those of other
        streams can still be received.
        """
        self._check_open()
        if min_lanes is not None:
            min_lanes = parse_integer("min_lanes", min_lanes, 1, self.num_envs)
        results = self._streams.receive(min_lanes)
        return self._conclude(results, {"env_id": results.lanes.copy(), **self._build_info(results)})

    def render(self) -> Any:
        """Return the frames of all lanes as of the last step or reset, in one image [height, width, 3].

        With `render_mode="rgb_array"` return a tuple with an image of each lane: Gymnasium's wrappers want that.
        """
        frames = self.rendered_frames
        return tuple(frames) if self._arguments["render_mode"] is not None else tile_frames(frames)

    def reconnect(self, wait_s: float = 0.0) -> None:
        """Create a new world with the same settings after a lost connection, within `wait_s`; call `reset` next."""
        before = self._streams.first_world
        self._finalizer()
        connect_again(self._connect, wait_s, self._checked.world_arguments["timeout_s"])
        try:
            check_same_specs(before, self._streams.first_world)
        except ClientError:
            self.close()
            raise

    def close_extras(self, **kwargs: Any) -> None:
        """Destroy the world and close the connection. `close` calls this."""
        self._finalizer()

    def __enter__(self) -> "VectorEnv":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        family = self._checked.world_settings["family"]
        return f"VectorEnv({self.address!r}, {family!r}, num_envs={self.num_envs}, transport={self.transport!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._arguments), (), {"spec": self.spec}

    def _build_spaces(self) -> None:
        world, lanes, names = self._streams.first_world, self._streams.first_lanes, self._observing.names
        by_name = build_action_space(world.actions.values(), lanes)
        self.single_action_space = self.flat_actions.space if self._is_flat else by_name
        found = build_observation_space([world.observations[name] for name in names], lanes)
        for name in filter(is_frame, names):
            found.spaces[name] = arrange_space(found[name], self._observing.channels, self._observing.frame_stack)
        self.single_observation_space = found[names[0]] if self._is_flat else found
        actions = {"": self.single_action_space} if self._is_flat else dict(by_name)
        self._spaces = LaneSpaces(dict(found), actions, self._is_flat)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def _connect(self, first_timeout_s: float | None = None) -> None:
        self._streams: Lanes = open_lanes(self.address, self._checked, first_timeout_s)
        # Runs when the env is garbage collected or the process ends, too.
        self._finalizer = weakref.finalize(self, self._streams.close)
        self.closed = False
        self._is_reset = False
        self._last_observations = None

    def _send_reset(self, seed: Any, options: Mapping[str, Any] | None) -> np.ndarray | None:
        """Send a reset of all lanes, or of some; return the mask of these."""
        seeds = parse_seeds(seed, self.num_envs)
        mask, variation = parse_options(options, self.num_envs, self._observing.autoreset)
        self._check_open()
        if mask is not None:
            if not self._is_reset:
                raise gymnasium.error.ResetNeeded("a reset of some lanes before the first: expected env.reset() first")
            self._streams.check_idle(None, "a reset with a mask")
        super().reset(seed=seeds if isinstance(seeds, int) else None)
        self._is_reset = False
        self._streams.reset(seeds, mask, variation)
        return mask

    def _validate_step(self, actions: Actions, lanes: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return the actions by name, of these lanes or of all; raise an error if they cannot be stepped."""
        self._check_open()
        self._check_reset()
        self._streams.check_idle(lanes)
        count = self.num_envs if lanes is None else len(lanes)
        by_name = self.flat_actions.unflatten(actions, count) if self._is_flat else actions
        return self._streams.writer(count).validate(by_name)

    def _read_last_observations(self) -> Mapping[str, np.ndarray]:
        self._check_open()
        self._check_reset()
        if self._last_observations is None:
            self._last_observations = self._streams.last_observations
        return self._last_observations

    def _check_reset(self) -> None:
        if not self._is_reset:
            raise gymnasium.error.ResetNeeded("a step before the first reset: expected env.reset() first")

    def _build_info(self, results: LaneResults) -> dict[str, Any]:
        return build_info(results, self._statistics, self._observing.names[0] if self._is_flat else None)

    def _conclude(self, results: LaneResults, info: dict[str, Any]) -> StepResult:
        self._last_observations = dict(results.observations) if len(results.lanes) == self.num_envs else None
        return self._spaces.select(results.observations), results.reward, results.terminated, results.truncated, info

    def _check_open(self) -> None:
        if self.closed:
            raise ClientError("this env was closed: expected env.reconnect(), or a new one")
