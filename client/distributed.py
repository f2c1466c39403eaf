"""The lanes of an env over several servers, stepped and received: the interface of LaneStreams, by way of `homes`."""

import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from worldloom.client.env_arguments import EnvArguments
from worldloom.client.errors import ClientError, LostConnection
from worldloom.client.homes import RETRY_S, Homes
from worldloom.client.lane_table import PlacedStream
from worldloom.client.placement import LaneSeeds, Placer
from worldloom.client.replies import Arrays
from worldloom.client.requests import Seeds, StepWriter, reset_settings
from worldloom.client.results import LaneResults, Observing
from worldloom.client.servers import ServerDirectory, ServerWatch
from worldloom.client.socket_connection import SocketConnection
from worldloom.client.streams import LaneStreams, StreamOutput
from worldloom.client.vector_world import StepTarget, VectorWorld, create_vector_world

_PARKED_S = 0.1
"""Time between two reports of a parked lane in `recv` with `min_lanes`, which would else return again at once."""
_ALL_PARKED_S = 1.0
"""Time that a step waits for a world if no lane has one."""
_RESET_WAIT_S = 10.0
"""Time that a reset waits for worlds of parked lanes."""
_NO_TARGET = StepTarget({}, None, None, None)


class ServerStatus(NamedTuple):
    """A server of an env."""

    address: str
    state: str
    """`up`, `draining` or `lost`."""
    lanes: int
    """Lanes whose home it is."""


class _Reset(NamedTuple):
    """A reset that is under way."""

    seeds: Seeds
    mask: np.ndarray | None
    variation: int | np.ndarray | None
    asked: np.ndarray
    """Mask of the lanes that are reset."""
    streams: set[int]
    """Numbers of the streams that were told."""
    until_s: float
    """Time until which lanes are waited for that have no home."""


class DistributedLanes:
    """All lanes of an env, over the streams of several servers. It has the methods of LaneStreams."""

    def __init__(
        self,
        directory: ServerDirectory,
        world_settings: Mapping[str, Any],
        world_arguments: Mapping[str, Any],
        observing: Observing,
        *,
        lanes: int,
        first_lane: int | list[int],
        seed: int | list[int] | None,
    ) -> None:
        """Place all lanes; raise an error, and leave nothing behind, if that is not possible."""
        self.lanes = lanes
        self._timeout_s: float = world_arguments["timeout_s"]
        self._out: Arrays | None = None
        """Arrays of the caller's for the step under way."""
        self._reset: _Reset | None = None
        """The reset under way."""
        self._had_home_s = time.monotonic()
        """The last time that a lane had a home."""
        seeds = LaneSeeds.make(secrets.randbits(64) if seed is None else seed, first_lane, lanes)
        if "variation" in world_settings:
            seeds.choose(world_settings["variation"], None)
        watch = ServerWatch(directory, world_arguments["credentials"])
        self._homes = Homes(watch, Placer(watch, world_settings, world_arguments), seeds, observing)
        self._table = self._homes.table
        try:
            self._homes.place_first(self._timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def servers(self) -> tuple[ServerStatus, ...]:
        """The servers, with their lanes."""
        held = self._homes.held_lanes()
        return tuple(
            ServerStatus(one.address, one.state.value, held.get(one.address, 0)) for one in self._homes.watch.servers
        )

    @property
    def first_world(self) -> VectorWorld:
        """The world that was made first, and may be closed. Others have the same actions and observations."""
        return self._homes.template

    @property
    def first_lanes(self) -> int:
        """The number of its lanes."""
        return self._homes.template_lanes

    @property
    def has_shared_frames(self) -> bool:
        """Servers draw into the arrays of all lanes, as soon as there was a step."""
        return self._table.has_shared_frames

    @property
    def unshared_steps(self) -> int:
        """Steps of all streams whose frames came in the replies because no shared memory was free."""
        return sum(stream.world.unshared_steps for stream in self._homes.streams.values())

    @property
    def rendered_frames(self) -> np.ndarray | None:
        """The frames of all lanes to render, black for lanes that are parked; None if there are none yet."""
        frames: np.ndarray | None = None
        for stream in self._homes.streams.values():
            if stream.rendered_frames is not None:
                if frames is None:
                    frames = np.zeros((self.lanes, *stream.rendered_frames.shape[1:]), stream.rendered_frames.dtype)
                frames[stream.home_lanes] = stream.rendered_frames[stream.is_home]
        return frames

    @property
    def last_observations(self) -> Arrays:
        """Observations of all lanes, as they were last received."""
        return self._table.last_observations(list(self._homes.streams.values()))

    def reset(self, seeds: Seeds, mask: np.ndarray | None, variation: int | np.ndarray | None = None) -> None:
        """Reset lanes and ask for their first observations. Seeds, mask and variations are of all lanes."""
        self._homes.results.clear()
        self._table.drop_owed()
        self._table.forget_outputs()
        self._out = None
        if seeds is not None:
            self._homes.seeds.give(seeds, mask)
        if variation is not None:
            self._homes.seeds.choose(variation, mask)
        asked = np.ones(self.lanes, bool) if mask is None else mask
        self._homes.take_made()
        for stream in list(self._homes.streams.values()):
            stream.world.drop_step()
            if stream.targets:
                lanes = stream.home_lanes
                self._homes.hand_over(stream, lanes[asked[lanes]], is_reset=True)
        self._reset = _Reset(
            seeds, mask, variation, asked, set(), time.monotonic() + min(self._timeout_s, _RESET_WAIT_S)
        )
        self._send_resets(self._reset)
        self._table.is_over[asked] = False

    def _send_resets(self, reset: "_Reset") -> None:
        """Reset the streams that were not yet, those included that are made for lanes without a home in time."""
        while True:
            self._wait_for_homes(reset)
            for stream in list(self._homes.streams.values()):
                if stream.home_count and stream.number not in reset.streams:
                    reset.streams.add(stream.number)
                    stream.is_return = False
                    settings = reset_settings(reset.seeds, reset.variation, stream.lanes)
                    own_mask = None if reset.mask is None else reset.mask[stream.lanes]
                    self._homes.attempt(stream, partial(stream.send_reset, settings, own_mask))
            self._table.owe(slice(None))
            if not self._has_lost(reset):
                return

    def _has_lost(self, reset: "_Reset") -> bool:
        """Return whether lanes that are reset have lost their server meanwhile, and there is time to place them."""
        lost = reset.asked & self._table.is_parked
        if not lost.any() or time.monotonic() > reset.until_s:
            return False
        if reset.seeds is not None:  # they begin with the seed that they were given
            self._homes.seeds.give(reset.seeds, lost)
        return True

    def check_idle(self, lanes: np.ndarray | None, what: str = "a step") -> None:
        """Raise ClientError if one of these lanes, or of all, is under way or has an action already."""
        if not self._table.is_owed.any():
            return
        self._forget_unsent()
        chosen = np.arange(self.lanes) if lanes is None else lanes
        under_way = chosen[self._table.is_owed[chosen]]
        if not len(under_way):
            return
        lane = under_way[0]
        stream = self._homes.streams.get(int(self._table.home[lane]))
        if stream is not None and stream.has_some_actions and not stream.is_under_way:
            raise ClientError(f"an action for lane {lane}, which has one: expected those of its neighbours first")
        raise ClientError(f"{what} of lane {lane} while another is under way: expected env.recv() first")

    def writer(self, lanes: int) -> StepWriter:
        """Return the encoder of actions of so many lanes."""
        return self.first_world.writer.with_lanes(lanes)

    def read_by_lane(self, key: str) -> np.ndarray:
        """Return a property that has a value for each lane, of all lanes; NaN for those that are parked."""
        found: np.ndarray | None = None
        for stream in self._homes.streams.values():
            values = np.asarray(stream.world.read_property(key))
            if found is None:
                found = np.full(
                    (self.lanes, *values.shape[1:]), np.nan if values.dtype.kind == "f" else 0, values.dtype
                )
            found[stream.home_lanes] = values[stream.is_home]
        if found is None:
            raise ClientError(f"no server to read {key!r} from: expected env.reset() first")
        return found

    def step_unobserved(self, actions: Mapping[str, np.ndarray]) -> None:
        """Raise ClientError: servers may change within a replay."""
        raise ClientError("a step without observations over several servers: expected one server")

    def allocate_frames(self, sets: int) -> Arrays:
        """Return nothing: rollouts over several servers are in this process, and steps are copied into them."""
        return {}

    def make_outputs(self, arrays: Arrays, ring_index: int | None = None) -> list[StreamOutput]:
        """Return arrays of all lanes, as the caller gets them, for `step`."""
        return [StreamOutput(arrays, _NO_TARGET)]

    def step(self, actions: Mapping[str, np.ndarray], outputs: Sequence[StreamOutput] | None = None) -> None:
        """Step all lanes with valid actions. The arrays must not be changed until the results were received."""
        self._reset = None
        self._homes.tend()
        self._out = None if outputs is None else outputs[0].arrays
        self._table.owe(slice(None))
        streams = [stream for stream in self._homes.streams.values() if stream.home_count]
        parts = self._table.make_outputs(streams, self._out)
        for stream in streams:
            self._homes.attempt(stream, partial(stream.step, actions, parts.get(stream)))

    def send(self, actions: Mapping[str, np.ndarray], lanes: np.ndarray) -> None:
        """Give actions, which are valid, to these lanes; step the streams whose lanes all have one."""
        self._reset = None
        self._homes.tend()
        self._out = None
        self._table.forget_outputs()
        self._table.owe(lanes)
        for stream in list(self._homes.streams.values()):
            rows = np.flatnonzero(np.isin(lanes, stream.lanes))
            if len(rows) and stream.home_count:
                self._homes.attempt(stream, partial(stream.put, actions, rows, stream.indices(lanes[rows])))

    def receive(self, min_lanes: int | None = None) -> LaneResults:
        """Wait for the results of lanes under way: of all, or of some with so many lanes at least."""
        table = self._table
        self._forget_unsent()
        if not table.is_owed.any():
            raise ClientError("nothing to receive: expected env.send(actions) first")
        chosen = [stream for stream in self._homes.streams.values() if stream.is_under_way and stream.home_count]
        if min_lanes is not None:
            chosen = self._wait(chosen, min_lanes)
        elif not chosen:
            self._wait_for_a_home()
        self._receive_all(chosen)
        reset, self._reset = self._reset, None
        while reset is not None and self._has_lost(reset):
            self._send_resets(reset)
            chosen = [stream for stream in self._homes.streams.values() if stream.is_under_way and stream.home_count]
            self._receive_all(chosen)
        done = [stream for stream in chosen if stream in self._homes.results]
        if done:
            self._had_home_s = time.monotonic()
        return table.merge(done, self._homes.results, self._out)

    def _receive_all(self, streams: Sequence[PlacedStream]) -> None:
        for stream in streams:
            try:
                self._homes.attempt(stream, stream.receive)
            except ClientError:
                self._table.is_owed[stream.home_lanes] = False
                raise

    def _forget_unsent(self) -> None:
        """Expect no results of lanes whose step was not sent: an interrupt came before."""
        for stream in self._homes.streams.values():
            if stream.is_idle:
                lanes = stream.home_lanes
                self._table.is_owed[lanes] = self._table.is_owed_loss[lanes]

    def close(self) -> None:
        """Destroy all worlds. Closing twice does nothing."""
        self._homes.close()

    def _wait(self, streams: list[PlacedStream], min_lanes: int) -> list[PlacedStream]:
        """Wait until so many lanes are ready, parked ones among them; return the streams that are."""
        sent = sum(stream.home_count for stream in streams) + int(np.count_nonzero(self._table.is_owed_loss))
        if min_lanes > sent:
            raise ClientError(f"min_lanes is {min_lanes} with {sent} lanes under way: expected no more than these")
        until_s = time.monotonic() + self._timeout_s
        arrival = self._homes.placer.arrival
        while True:
            arrival.clear()
            ready = [stream for stream in streams if stream.is_ready]
            due = self._table.count_due(_PARKED_S)
            if sum(stream.home_count for stream in ready) + due >= min_lanes:
                return ready
            if time.monotonic() > until_s:
                raise LostConnection(f"no answer from {len(streams)} servers within {self._timeout_s:g} s (timeout_s)")
            connections = [stream.world.connection for stream in streams if stream not in ready]
            files = [one.fileno() for one in connections if isinstance(one, SocketConnection)]
            arrival.wait_with([file for file in files if file >= 0], _PARKED_S)

    def _wait_for_homes(self, reset: "_Reset") -> None:
        """Place the parked lanes of a reset, and wait for that."""
        arrival = self._homes.placer.arrival
        while True:
            arrival.clear()
            self._homes.tend(reset.asked)
            if not (reset.asked & self._table.is_parked).any() or time.monotonic() > reset.until_s:
                return
            arrival.wait(RETRY_S)

    def _wait_for_a_home(self) -> None:
        """Wait a moment if all lanes are parked; LostConnection if they have been for too long."""
        until_s = time.monotonic() + _ALL_PARKED_S
        arrival = self._homes.placer.arrival
        while time.monotonic() < until_s:
            arrival.clear()
            self._homes.tend()
            if not self._table.is_parked.all():
                return
            arrival.wait(RETRY_S)
        if time.monotonic() - self._had_home_s > self._timeout_s:
            listed = ", ".join(server.address for server in self._homes.watch.servers)
            problem = "" if self._homes.placer.problem is None else f" ({self._homes.placer.problem})"
            raise LostConnection(
                f"no server of {listed} has taken a lane for {self._timeout_s:g} s (timeout_s){problem}: start one, "
                "and call env.reset()"
            )


Lanes: TypeAlias = LaneStreams | DistributedLanes
"""The lanes of an env: at one address, or at several."""


def open_lanes(address: Any, arguments: EnvArguments, first_timeout_s: float | None = None) -> Lanes:
    """Create the worlds of an env; `first_timeout_s` is for the first reply of a server, if there is only one."""
    if arguments.servers is not None:
        lanes = {name: value for name, value in arguments.stream_arguments.items() if name != "streams"}
        settings = (arguments.world_settings, arguments.world_arguments)
        return DistributedLanes(arguments.servers, *settings, arguments.observing, **lanes)
    create = partial(create_vector_world, address, first_timeout_s=first_timeout_s, **arguments.world_arguments)
    return LaneStreams(create, arguments.world_settings, arguments.observing, **arguments.stream_arguments)
