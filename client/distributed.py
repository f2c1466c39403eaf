"""Lanes over several servers, some of which may be lost, drained, replaced or added while the env steps.

Each server has a world with some of the lanes: a stream. A lane has one home at a time: the stream whose results are
its own. Between two steps, lanes change their homes:

    lost      the server of its home is gone: the lane has no home, which is called parked. It is reported as truncated
              and lost with each step until a world was made for it elsewhere, on another thread.
    handed    the server drains, or has more than its share: worlds for its lanes are made elsewhere, and each lane
    over      moves when its episode ends. Until all have moved, both worlds simulate and draw all their lanes.

Results are written into arrays of all lanes, each stream's into its own rows.
"""

import logging
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.rpc import code_pb2

from worldloom.client.errors import CannotConnect, ClientError, LostConnection, ServerError
from worldloom.client.placement import Group, Job, LaneSeeds, Made, Placer
from worldloom.client.replies import Arrays
from worldloom.client.requests import StepWriter
from worldloom.client.results import LAST, LaneResults, Observing
from worldloom.client.servers import ServerDirectory, ServerWatch, State
from worldloom.client.socket_connection import SocketConnection
from worldloom.client.streams import LaneStream, seed_settings
from worldloom.client.vector_world import VectorWorld, check_same_specs

_PARKED_S = 0.1
"""Time between two reports of a parked lane in `recv` with `min_lanes`, which would else return again at once."""
_ALL_PARKED_S = 1.0
"""Time that a step waits for a world if no lane has one."""
_RESET_WAIT_S = 10.0
"""Time that a reset waits for worlds of parked lanes."""
_RETRY_S = 0.25
"""Time between two attempts to place lanes."""
_BALANCE_S = 2.0
"""Time between two attempts to divide lanes anew."""
_FIRST_CHECK_S = 5.0
_MAX_HANDED_OVER = 64
"""Lanes that a step hands over at most with autoreset `same_step`, where a server begins their episodes at once."""
_KEPT_ARRAYS = 4
"""Sets of arrays for results that are used again, once the program has dropped them."""
_log = logging.getLogger("worldloom.client")


class ServerStatus(NamedTuple):
    """A server of an env."""

    address: str
    state: str
    """`up`, `draining` or `lost`."""
    lanes: int
    """Lanes whose home it is."""


class PlacedStream(LaneStream):
    """A stream on one of several servers."""

    def __init__(self, number: int, made: Made, observing: Observing, results: dict[LaneStream, LaneResults]) -> None:
        super().__init__(made.world, made.lanes, observing, results)
        self.number = number
        self.server = made.server
        self.is_needed = np.zeros(len(made.lanes), bool)
        """Lanes whose home this is."""
        self.targets: list[PlacedStream] = []
        """Streams that its lanes are handed over to."""
        self.is_return = False
        """Its first step brings back lanes that were parked."""

    @property
    def home_lanes(self) -> np.ndarray:
        """Lanes whose home this is."""
        return self.lanes[self.is_needed]

    def indices(self, lanes: np.ndarray) -> np.ndarray:
        """Return the positions of some of its lanes."""
        return np.searchsorted(self.lanes, lanes)

    def take_stacks(self, lanes: np.ndarray, source: "PlacedStream") -> None:
        """Go on with the stacked frames of lanes of another stream."""
        for name, stack in self._stacks.items():
            stack.take_over(self.indices(lanes), source._stacks[name], source.indices(lanes))


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
        clip_actions: bool,
    ) -> None:
        """Place all lanes; raise an error, and leave nothing behind, if that is not possible."""
        self.lanes = lanes
        self._observing = observing
        self._clip_actions = clip_actions
        self._timeout_s: float = world_arguments["timeout_s"]
        self._writers: dict[int, StepWriter] = {}
        self._streams: dict[int, PlacedStream] = {}
        self._results: dict[LaneStream, LaneResults] = {}
        self._count = 0
        self._seeds = LaneSeeds.make(secrets.randbits(64) if seed is None else seed, first_lane, lanes)
        self._home = np.full(lanes, -1)
        """The number of the stream that is each lane's home; -1 if it is parked."""
        self._is_owed = np.zeros(lanes, bool)
        """Lanes with a step under way."""
        self._is_owed_loss = np.zeros(lanes, bool)
        """Those of them that are reported as lost."""
        self._is_new_loss = np.zeros(lanes, bool)
        """Lanes that were lost and not reported yet."""
        self._is_over = np.zeros(lanes, bool)
        """Lanes whose episode ended with the last step."""
        self._reported_s = np.zeros(lanes)
        """Times of the last results, by lane."""
        self._parked_observations: Arrays = {}
        """Last observations of lanes that were lost, in arrays of all lanes."""
        self._free = _FreeArrays()
        self._out: Arrays | None = None
        """Arrays of the caller's for the step under way."""
        self._has_home_s = time.monotonic()
        """The last time that a lane had a home."""
        self._retry_s = self._balanced_s = 0.0
        self._may_be_uneven = False
        """Servers have come or gone since the lanes were last divided."""
        self._watch = ServerWatch(directory, world_arguments["credentials"])
        self._placer = Placer(self._watch, world_settings, world_arguments)
        try:
            self._watch.start(min(self._timeout_s, _FIRST_CHECK_S))
            self._place_first()
        except BaseException:
            self.close()
            raise

    @property
    def servers(self) -> tuple[ServerStatus, ...]:
        """The servers, with their lanes."""
        held = self._held_lanes()
        return tuple(
            ServerStatus(server.address, server.state.value, held.get(server.address, 0))
            for server in self._watch.servers
        )

    @property
    def first_world(self) -> VectorWorld:
        """The world that was made first. Others have the same actions and observations for each lane."""
        return self._template

    @property
    def first_lanes(self) -> int:
        """The number of its lanes."""
        return self._template_lanes

    has_shared_frames = False
    """Frames are copied into the arrays of all lanes."""

    @property
    def unshared_steps(self) -> int:
        """Steps of all streams whose frames came in the replies because no shared memory was free."""
        return sum(stream.world.unshared_steps for stream in self._streams.values())

    @property
    def rendered_frames(self) -> np.ndarray | None:
        """The frames of all lanes to render, black for lanes that are parked; None if there are none yet."""
        frames: np.ndarray | None = None
        for stream in self._streams.values():
            if stream.rendered_frames is not None and stream.is_needed.any():
                if frames is None:
                    frames = np.zeros((self.lanes, *stream.rendered_frames.shape[1:]), stream.rendered_frames.dtype)
                frames[stream.home_lanes] = stream.rendered_frames[stream.is_needed]
        return frames

    @property
    def last_observations(self) -> Arrays:
        """Observations of all lanes, as they were last received."""
        arrays = self._make_arrays(self.lanes)
        for stream in self._streams.values():
            if stream.observations:
                for name, array in arrays.items():
                    array[stream.home_lanes] = stream.observations[name][stream.is_needed]
        self._fill_parked(arrays, np.flatnonzero(self._home < 0), np.flatnonzero(self._home < 0))
        return arrays

    def reset(self, seeds: int | list[int | None] | None, mask: np.ndarray | None) -> None:
        """Reset lanes and ask for their first observations. Seeds and mask are of all lanes."""
        self._results.clear()
        self._is_owed[:] = self._is_owed_loss[:] = False
        self._out = None
        self._tend(only=np.zeros(self.lanes, bool))
        if seeds is not None:
            self._seeds.give(seeds, mask)
        asked = np.ones(self.lanes, bool) if mask is None else mask
        for stream in list(self._streams.values()):
            if stream.targets:
                lanes = stream.home_lanes
                self._hand_over(stream, lanes[asked[lanes]])
        self._wait_for_homes(asked)
        for stream in list(self._streams.values()):
            if stream.is_needed.any():
                each = seeds if seeds is None or isinstance(seeds, int) else [seeds[lane] for lane in stream.lanes]
                self._try(
                    stream, lambda: stream.send_reset(seed_settings(each), None if mask is None else mask[stream.lanes])
                )
        self._is_owed[:] = True
        self._is_owed_loss |= self._home < 0
        self._is_over[asked] = False

    def check_idle(self, lanes: np.ndarray | None, what: str = "a step") -> None:
        """Raise ClientError if one of these lanes, or of all, is under way or has an action already."""
        chosen = np.arange(self.lanes) if lanes is None else lanes
        under_way = chosen[self._is_owed[chosen]]
        if not len(under_way):
            return
        lane = under_way[0]
        stream = self._streams.get(int(self._home[lane]))
        if stream is not None and stream.has_some_actions and not stream.is_under_way:
            raise ClientError(f"an action for lane {lane}, which has one: expected those of its neighbours first")
        raise ClientError(f"{what} of lane {lane} while another is under way: expected env.recv() first")

    def writer(self, lanes: int) -> StepWriter:
        """Return the encoder of actions of so many lanes."""
        if lanes not in self._writers:
            specs = {name: spec.with_lanes(lanes) for name, spec in self.first_world.actions.items()}
            self._writers[lanes] = StepWriter(specs, self._clip_actions)
        return self._writers[lanes]

    def allocate_frames(self, sets: int) -> Arrays:
        """Return nothing: no memory is shared with several servers at once."""
        return {}

    def make_outputs(self, arrays: Arrays, ring_index: int | None = None) -> list[Arrays]:
        """Return arrays of all lanes, as the caller gets them, as outputs of `step`."""
        return [arrays]

    def step(self, actions: Mapping[str, np.ndarray], outputs: Sequence[Arrays] | None = None) -> None:
        """Step all lanes with valid actions. The arrays must not be changed until the results were received."""
        self._tend()
        self._out = None if outputs is None else outputs[0]
        self._is_owed[:] = True
        self._is_owed_loss[:] = self._home < 0
        for stream in list(self._streams.values()):
            if stream.is_needed.any():
                self._try(stream, lambda: stream.step(actions, None))

    def send(self, actions: Mapping[str, np.ndarray], lanes: np.ndarray) -> None:
        """Give actions, which are valid, to these lanes; step the streams whose lanes all have one."""
        self._tend()
        self._out = None
        self._is_owed[lanes] = True
        self._is_owed_loss[lanes] = self._home[lanes] < 0
        for stream in list(self._streams.values()):
            rows = np.flatnonzero(np.isin(lanes, stream.lanes))
            if len(rows):
                self._try(stream, lambda: stream.put(actions, rows, stream.indices(lanes[rows])))

    def receive(self, min_lanes: int | None = None) -> LaneResults:
        """Wait for the results of lanes under way: of all, or of some with so many lanes at least.

        Lanes are ready when their stream is; parked ones are.
        """
        if not self._is_owed.any():
            raise ClientError("nothing to receive: expected env.send(actions) first")
        chosen = [stream for stream in self._streams.values() if stream.is_under_way]
        if min_lanes is not None:
            chosen = self._wait(chosen, min_lanes)
        elif self._is_owed_loss.all():
            self._wait_for_a_home()
        for stream in chosen:
            try:
                if not self._try(stream, stream.receive):
                    self._results.pop(stream, None)
            except ClientError:
                self._is_owed[stream.home_lanes] = False
                raise
        return self._merge([stream for stream in chosen if stream in self._results])

    def close(self) -> None:
        """Destroy all worlds. Closing twice does nothing."""
        self._placer.close()
        self._watch.close()
        for stream in self._streams.values():
            stream.rendered_frames, stream.observations = None, {}
            stream.world.close()

    def _try(self, stream: PlacedStream, work: Any) -> bool:
        """Do some work with a stream; return False if its server turns out to be lost."""
        try:
            work()
        except LostConnection as error:
            self._lose(stream, str(error))
        except ServerError as error:
            if error.code != code_pb2.UNAVAILABLE:
                raise
            self._lose(stream, str(error))
        else:
            return True
        return False

    # Homes of lanes.

    def _place_first(self) -> None:
        if all(server.state is State.LOST for server in self._watch.servers):
            listed = ", ".join(server.address for server in self._watch.servers)
            raise CannotConnect(
                f"no server answers at {listed}: start them with `worldloom serve --listen ADDRESS`, and give token and "
                "tls_ca if they need these"
            )
        for server in self._watch.servers:
            if server.state is not State.UP:
                _log.warning("the server at %s is %s: going on without", server.address, server.state.value)
        self._placer.place(Job([Group(np.arange(self.lanes), None)], {}, self._seeds))
        made = list(self._placer.made)
        placed = sum(len(one.lanes) for one in made)
        if placed < self.lanes:
            problem = self._placer.problem
            if problem is not None:
                raise problem
            raise ServerError(
                code_pb2.RESOURCE_EXHAUSTED,
                f"{self.lanes} lanes on {len(self._watch.servers)} servers with room for {placed}: expected no more; "
                "ask for fewer, add servers, or start them with a larger --max-lanes",
            )
        self._template, self._template_lanes = made[0].world, len(made[0].lanes)
        while self._placer.made:
            self._adopt(self._placer.made.popleft())
        for stream in self._streams.values():
            stream.is_return = False

    def _held_lanes(self) -> dict[str, int]:
        held: dict[str, int] = {}
        for stream in self._streams.values():
            held[stream.server.address] = held.get(stream.server.address, 0) + int(stream.is_needed.sum())
        return held

    def _tend(self, only: np.ndarray | None = None) -> None:
        """Notice servers that were lost, take worlds that were made, and have others made, for lanes of a mask."""
        if self._watch.changed.is_set():
            self._watch.changed.clear()
            self._may_be_uneven = True
            for stream in list(self._streams.values()):
                if stream.server.state is State.LOST and not stream.is_under_way:
                    self._lose(stream, f"lost the server at {stream.server.address}")
        while self._placer.made:
            self._adopt(self._placer.made.popleft())
        if any(stream.targets for stream in self._streams.values()) and self._observing.autoreset != "disabled":
            for stream in list(self._streams.values()):
                if stream.targets:
                    lanes = stream.home_lanes
                    self._hand_over(stream, lanes[self._is_over[lanes]])
        now_s = time.monotonic()
        if now_s >= self._retry_s and not self._placer.is_busy:
            self._order(now_s, only)

    def _order(self, now_s: float, only: np.ndarray | None) -> None:
        """Have worlds made for lanes that need another home."""
        is_parked = self._home < 0
        if only is not None:
            is_parked &= only
        elif self._observing.autoreset == "disabled":
            is_parked[:] = False  # a reset makes their worlds, and begins their episodes
        groups = [Group(np.flatnonzero(is_parked), None)] if is_parked.any() else []
        sources = [
            stream
            for stream in self._streams.values()
            if not stream.targets
            and stream.is_needed.any()
            and (stream.server.state is State.DRAINING or not stream.is_needed.all())
            and not any(stream in other.targets for other in self._streams.values())
        ]
        if not sources and not groups and now_s >= self._balanced_s:
            sources = self._find_surplus(now_s)
        groups += [Group(stream.home_lanes, stream.number) for stream in sources]
        self._retry_s = now_s + _RETRY_S
        if groups:
            held = self._held_lanes()
            for stream in sources:
                held[stream.server.address] -= int(stream.is_needed.sum())
            self._placer.start(Job(groups, held, self._seeds.copy()))

    def _find_surplus(self, now_s: float) -> list[PlacedStream]:
        """Return the streams whose lanes should be divided anew, since servers have come that have too few lanes."""
        if not self._may_be_uneven or any(stream.targets for stream in self._streams.values()):
            return []
        self._may_be_uneven = False
        self._balanced_s = now_s + _BALANCE_S
        servers = [server.address for server in self._watch.servers if server.state is State.UP]
        held = self._held_lanes()
        is_uneven = any(2 * held.get(address, 0) < self.lanes // len(servers) for address in servers)
        return list(self._streams.values()) if is_uneven else []

    def _adopt(self, made: Made) -> None:
        """Take a world that was made: as the home of parked lanes, or as the target of a stream."""
        try:
            check_same_specs(self._template, made.world)
        except ClientError as error:
            _log.warning("lanes cannot go to the server at %s: %s", made.server.address, error)
            made.server.full_until_s = time.monotonic() + _ALL_PARKED_S
            _close_later(made.world)
            return
        self._count += 1
        stream = PlacedStream(self._count, made, self._observing, self._results)
        if made.source is None:
            is_mine = self._home[made.lanes] < 0
            stream.is_return = True
            stream.is_needed[:] = is_mine
            self._home[made.lanes[is_mine]] = stream.number
        else:
            source = self._streams.get(made.source)
            is_mine = self._home[made.lanes] == made.source
            if source is not None and is_mine.any():
                source.targets.append(stream)
        if not is_mine.any():
            _close_later(made.world)
            return
        self._streams[stream.number] = stream

    def _lose(self, stream: PlacedStream, reason: str) -> None:
        """Park the lanes of a stream whose server is gone. They lose their episodes."""
        lanes = stream.home_lanes
        if len(lanes):
            _log.warning("%s; %d lanes begin a new episode elsewhere", reason, len(lanes))
        if not self._parked_observations and stream.observations:
            self._parked_observations = {
                name: np.zeros((self.lanes, *array.shape[1:]), array.dtype)
                for name, array in stream.observations.items()
            }
        for name, array in stream.observations.items():
            self._parked_observations[name][lanes] = array[stream.is_needed]
        self._home[lanes] = -1
        self._seeds.losses[lanes] += np.uint64(1)
        self._is_new_loss[lanes] = True
        self._is_owed_loss[lanes] = self._is_owed[lanes]
        self._drop(stream)
        stream.server.mark_lost(reason)
        self._retry_s = 0.0

    def _drop(self, stream: PlacedStream) -> None:
        """Forget a stream that is the home of no lane any more."""
        del self._streams[stream.number]
        self._results.pop(stream, None)
        for other in self._streams.values():
            if stream in other.targets:
                other.targets.remove(stream)
        _close_later(stream.world)
        for target in stream.targets:
            if not target.is_needed.any() and target.number in self._streams:
                self._drop(target)

    def _hand_over(self, source: PlacedStream, lanes: np.ndarray) -> None:
        """Have lanes between two episodes go on at the targets of their stream."""
        is_same_step = self._observing.autoreset == "same_step"
        if is_same_step:
            lanes = lanes[:_MAX_HANDED_OVER]
        for target in list(source.targets):
            mine = lanes[np.isin(lanes, target.lanes)]
            if not len(mine) or source.is_under_way or target.is_under_way or source.has_some_actions:
                continue
            if not self._try(target, lambda: self._begin_at(target, source, mine)):
                continue
            source.is_needed[source.indices(mine)] = False
            target.is_needed[target.indices(mine)] = True
            self._home[mine] = target.number
        if not source.is_needed.any():
            self._drop(source)

    def _begin_at(self, target: PlacedStream, source: PlacedStream, lanes: np.ndarray) -> None:
        is_same_step = self._observing.autoreset == "same_step"
        if is_same_step and not target.is_needed.any():
            # Its first step begins an episode in every lane: one that began already could not be stepped by it.
            target.world.send_reset()
            target.receive()
            self._results.pop(target, None)
        played = np.asarray(source.world.read_property("world.episode"))[source.indices(lanes)]
        numbers = np.full(len(target.lanes), -1, np.int64)
        numbers[target.indices(lanes)] = played if is_same_step else played + 1
        target.world.write_property("world.next_episode", numbers)
        if is_same_step:
            target.take_stacks(lanes, source)

    def _wait_for_homes(self, asked: np.ndarray) -> None:
        """Place the parked lanes of a mask, for a reset; wait for that as long as servers answer."""
        until_s = time.monotonic() + min(self._timeout_s, _RESET_WAIT_S)
        while (asked & (self._home < 0)).any() and time.monotonic() < until_s:
            self._tend(only=asked)
            self._placer.arrival.clear()
            if self._placer.is_busy or not self._placer.made:
                self._placer.arrival.wait(_RETRY_S)

    def _wait_for_a_home(self) -> None:
        """Wait a moment if all lanes are parked; LostConnection if they have been for too long."""
        until_s = time.monotonic() + _ALL_PARKED_S
        while time.monotonic() < until_s and not self._placer.made:
            self._placer.arrival.clear()
            self._placer.arrival.wait(_RETRY_S)
            self._tend()
            if (self._home >= 0).any():
                self._has_home_s = time.monotonic()
                return
        if time.monotonic() - self._has_home_s > self._timeout_s:
            listed = ", ".join(server.address for server in self._watch.servers)
            raise LostConnection(
                f"no server of {listed} has taken a lane for {self._timeout_s:g} s (timeout_s): {self._placer.problem}; "
                "start one, and call env.reset()"
            )

    def _wait(self, streams: list[PlacedStream], min_lanes: int) -> list[PlacedStream]:
        """Wait until so many lanes are ready; return the streams that are."""
        sent = sum(int(stream.is_needed.sum()) for stream in streams) + int(self._is_owed_loss.sum())
        if min_lanes > sent:
            raise ClientError(f"min_lanes is {min_lanes} with {sent} lanes under way: expected no more than these")
        until_s = time.monotonic() + self._timeout_s
        arrival = self._placer.arrival
        while True:
            arrival.clear()
            ready = [stream for stream in streams if stream.is_ready]
            count = sum(int(stream.is_needed.sum()) for stream in ready)
            now_s = time.monotonic()
            is_due = self._is_owed_loss & (self._is_new_loss | (self._reported_s + _PARKED_S <= now_s))
            if count + int(is_due.sum()) >= min_lanes or (not ready and len(streams) == 0 and is_due.any()):
                return ready
            if now_s > until_s:
                raise LostConnection(f"no answer from {len(streams)} servers within {self._timeout_s:g} s (timeout_s)")
            connections = [stream.world.connection for stream in streams if not stream.is_ready]
            files = [one.fileno() for one in connections if isinstance(one, SocketConnection)]
            arrival.wait_with([file for file in files if file >= 0], _PARKED_S)

    # Results of streams, written into arrays of all lanes.

    def _merge(self, done: list[PlacedStream]) -> LaneResults:
        """Return the results of streams and of parked lanes as one."""
        is_row = self._is_owed_loss.copy()
        for stream in done:
            is_row[stream.home_lanes] = True
        lanes = np.flatnonzero(is_row)
        rows_of = np.cumsum(is_row) - 1
        arrays = self._make_arrays(len(lanes)) if self._out is None else self._out
        merged = LaneResults(
            lanes=lanes,
            observations=arrays,
            reward=np.zeros(len(lanes)),
            terminated=np.zeros(len(lanes), bool),
            truncated=np.zeros(len(lanes), bool),
            step_type=np.full(len(lanes), LAST, np.uint8),
            is_held=None,
            final_rows=np.zeros(0, np.int64),
            final={},
            is_lost=np.zeros(len(lanes), bool),
        )
        is_held = np.zeros(len(lanes), bool)
        finals: list[tuple[np.ndarray, Arrays]] = []
        for stream in done:
            finals.append(self._merge_stream(stream, self._results[stream], merged, is_held, rows_of))
        finals.append(self._merge_lost(merged, is_held, rows_of))
        finals = [(rows, values) for rows, values in finals if len(rows)]
        if finals:
            order = np.argsort(np.concatenate([rows for rows, _ in finals]))
            merged.final_rows = np.concatenate([rows for rows, _ in finals])[order]
            names = finals[0][1]
            merged.final = {name: np.concatenate([values[name] for _, values in finals])[order] for name in names}
        if is_held.any():
            merged.is_held = is_held
        for stream in done:
            self._results.pop(stream, None)
        self._is_over[lanes] = merged.terminated | merged.truncated
        self._is_owed[lanes] = self._is_owed_loss[lanes] = self._is_new_loss[lanes] = False
        self._reported_s[lanes] = time.monotonic()
        return merged

    def _merge_stream(
        self, stream: PlacedStream, part: LaneResults, merged: LaneResults, is_held: np.ndarray, rows_of: np.ndarray
    ) -> tuple[np.ndarray, Arrays]:
        """Write the results of a stream into its rows; return the rows of final observations, and these."""
        needed = stream.is_needed
        rows: Any = rows_of[stream.home_lanes]
        if rows[-1] - rows[0] == len(rows) - 1:  # without gaps: copied at once
            rows = slice(int(rows[0]), int(rows[-1]) + 1)
        own: Any = slice(None) if needed.all() else needed
        for name, array in merged.observations.items():
            array[rows] = part.observations[name][own]
        for name in ("reward", "terminated", "truncated", "step_type"):
            getattr(merged, name)[rows] = getattr(part, name)[own]
        if part.is_held is not None:
            is_held[rows] = part.is_held[own]
        if stream.is_return and self._observing.autoreset == "same_step":
            # The parked episode ends only now, where the next one begins.
            stream.is_return = False
            assert merged.is_lost is not None
            merged.truncated[rows] = merged.is_lost[rows] = is_held[rows] = True
            merged.step_type[rows] = LAST
            where = rows_of[stream.home_lanes]
            return where, self._read_parked(stream.home_lanes, stream.observations)
        stream.is_return = False
        if not len(part.final_rows):
            return part.final_rows, {}
        is_mine = needed[part.final_rows]
        where = rows_of[stream.lanes[part.final_rows[is_mine]]]
        return where, {name: array[is_mine] for name, array in part.final.items()}

    def _merge_lost(self, merged: LaneResults, is_held: np.ndarray, rows_of: np.ndarray) -> tuple[np.ndarray, Arrays]:
        """Report lanes that are parked: truncated, without reward, as they were last observed."""
        lost = np.flatnonzero(self._is_owed_loss)
        rows = rows_of[lost]
        if not len(lost):
            return rows, {}
        assert merged.is_lost is not None
        merged.truncated[rows] = merged.is_lost[rows] = True
        is_held[rows] = ~self._is_new_loss[lost] | self._is_over[lost]
        self._fill_parked(merged.observations, rows, lost)
        if self._observing.autoreset != "same_step":
            return rows[:0], {}
        return rows, {name: array[rows] for name, array in merged.observations.items()}

    def _fill_parked(self, arrays: Arrays, rows: np.ndarray, lanes: np.ndarray) -> None:
        for name, array in arrays.items():
            array[rows] = self._parked_observations[name][lanes] if name in self._parked_observations else 0

    def _read_parked(self, lanes: np.ndarray, like: Arrays) -> Arrays:
        found = {name: np.zeros((len(lanes), *array.shape[1:]), array.dtype) for name, array in like.items()}
        self._fill_parked(found, np.arange(len(lanes)), lanes)
        return found

    def _make_arrays(self, rows: int) -> Arrays:
        """Return arrays for the observations of so many lanes, as the caller gets them."""
        shapes = {}
        for name in self._observing.names:
            shape, dtype = self._template.observations[name].shape[1:], self._template.observations[name].wire_dtype
            shapes[name] = (self._observing.arranged_shape(name, shape), dtype)
        if rows == self.lanes:
            return self._free.take(rows, shapes)
        return {name: np.empty((rows, *shape), dtype) for name, (shape, dtype) in shapes.items()}


class _FreeArrays:
    """Arrays of all lanes that are used again when nothing else refers to them: new memory costs time for each page."""

    def __init__(self) -> None:
        self._ring: deque[Arrays] = deque(maxlen=_KEPT_ARRAYS)

    def take(self, rows: int, shapes: Mapping[str, tuple[tuple[int, ...], Any]]) -> Arrays:
        """Return arrays that nobody else has: some of before, or new ones."""
        for arrays in self._ring:
            if all(sys.getrefcount(array) <= _FREE_REFERENCES for array in arrays.values()):
                return dict(arrays)
        arrays = {name: np.empty((rows, *shape), dtype) for name, (shape, dtype) in shapes.items()}
        self._ring.append(arrays)
        return dict(arrays)


def _count_references() -> int:
    """Return the references to an array that only a dict has, as `_FreeArrays.take` counts them."""
    arrays = {"": np.empty(1)}
    return max(sys.getrefcount(array) for array in arrays.values())


_FREE_REFERENCES = _count_references()


def _close_later(world: VectorWorld) -> None:
    """Close a world on another thread: its server may be gone, and not answer."""
    threading.Thread(target=world.close, name="worldloom-closing", daemon=True).start()
