"""The servers of an env with several, the streams there, and the lanes that change their homes between two steps.

lost       The server is gone. Its lanes are parked, and reported as truncated and lost with each step, until worlds
           were made for them elsewhere, on another thread (`placement`).
handed     The server drains, or has more than its share. Worlds for its lanes are made elsewhere, and each lane
over       moves when its episode ends; until all have moved, both worlds simulate and draw all their lanes.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from google.rpc import code_pb2

from worldloom.client.errors import CannotConnect, ClientError, LostConnection, ServerError
from worldloom.client.lane_table import LaneTable, PlacedStream
from worldloom.client.placement import Job, LaneSeeds, Made, Placer
from worldloom.client.results import LaneResults, Observing
from worldloom.client.servers import ServerWatch, State
from worldloom.client.streams import LaneStream
from worldloom.client.vector_world import VectorWorld, check_same_specs

RETRY_S = 0.25
"""Time between two attempts to place lanes."""
_NO_ROOM_S = 1.0
"""The same after an attempt that found no room."""
_BALANCE_S = 2.0
"""Time between two looks whether the lanes should be divided anew."""
_MAX_BALANCE_S = 60.0
"""The same if dividing them has not helped."""
_NOBODY = np.zeros(0, np.int64)
_FIRST_CHECK_S = 5.0
"""Time that servers have to answer when the env is made."""
_REFUSED_S = 60.0
"""Time for which no lanes are placed on a server whose worlds are of another kind."""
_MAX_HANDED_OVER = 64
"""Lanes that a step hands over at most with autoreset `same_step`, where a server begins their episodes at once."""
_log = logging.getLogger("worldloom.client")


class Homes:
    """Streams on several servers, and which of them is the home of each lane."""

    def __init__(self, watch: ServerWatch, placer: Placer, seeds: LaneSeeds, observing: Observing) -> None:
        """Take servers that are not checked on yet, and lanes without homes: call `place_first` next."""
        self.watch = watch
        self.placer = placer
        self.seeds = seeds
        self.table = LaneTable(len(seeds.numbers), observing)
        self.streams: dict[int, PlacedStream] = {}
        """Streams by their numbers."""
        self.results: dict[LaneStream, LaneResults] = {}
        """Results that were received and not taken."""
        self.template: VectorWorld
        """The world that was made first, and may be closed. Others have the same actions and observations."""
        self.template_lanes = 0
        """The number of its lanes."""
        self._observing = observing
        self._stream_count = 0
        self._retry_s = self._balanced_s = 0.0
        self._balance_pause_s = _BALANCE_S

    @property
    def lanes(self) -> int:
        """The number of all lanes."""
        return len(self.table.home)

    def close(self) -> None:
        """Destroy all worlds. Closing twice does nothing."""
        self.placer.close()
        self.watch.close()
        for stream in self.streams.values():
            stream.rendered_frames, stream.observations = None, {}
            stream.world.close()

    def attempt(self, stream: PlacedStream, work: Callable[[], object]) -> bool:
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

    def place_first(self, timeout_s: float) -> None:
        """Place all lanes, on the servers that answer within a time; raise an error if that is not possible."""
        self.watch.start(min(timeout_s, _FIRST_CHECK_S))
        servers = self.watch.servers
        listed = ", ".join(server.address for server in servers)
        if all(server.state is State.LOST for server in servers):
            raise CannotConnect(
                f"no server answers at {listed}: start them with `worldloom serve --listen ADDRESS`; if they use TLS, "
                "give tls_ca=FILE"
            )
        for server in servers:
            if server.state is not State.UP:
                _log.warning("the server at %s is %s: going on without it", server.address, server.state.value)
        self.placer.place(Job(np.arange(self.lanes), _NOBODY, {}, self.seeds))
        made = list(self.placer.made)
        placed = sum(len(one.lanes) for one in made)
        if placed < self.lanes:
            raise self.placer.problem or ServerError(
                code_pb2.RESOURCE_EXHAUSTED,
                f"{self.lanes} lanes on {len(servers)} servers with room for {placed}: expected no more; ask for "
                "fewer, add servers, or start them with a larger --max-lanes",
            )
        self.template, self.template_lanes = made[0].world, len(made[0].lanes)
        self.table.use_specs(self.template.observations)
        self.take_made()
        for stream in self.streams.values():
            stream.is_return = False

    def held_lanes(self) -> dict[str, int]:
        """Return the number of lanes that have their home at each server, by its address."""
        held: dict[str, int] = {}
        for stream in self.streams.values():
            held[stream.server.address] = held.get(stream.server.address, 0) + stream.home_count
        return held

    def tend(self, asked: np.ndarray | None = None) -> None:
        """Notice lost servers, take worlds that were made, hand lanes over, and have more worlds made.

        `asked` is a mask of lanes that are about to be reset.
        """
        if self.watch.changed.is_set():
            self.watch.changed.clear()
            self._balance_pause_s = _BALANCE_S
            for stream in list(self.streams.values()):
                if stream.server.state is State.LOST and not stream.is_under_way:
                    self._lose(stream, f"lost the server at {stream.server.address}")
        self.take_made()
        if asked is None and self._observing.autoreset != "disabled":
            for stream in list(self.streams.values()):
                if stream.targets:
                    lanes = stream.home_lanes
                    self.hand_over(stream, lanes[self.table.is_over[lanes]])
        now_s = time.monotonic()
        if now_s >= self._retry_s and not self.placer.is_busy and not self.placer.made:
            pause_s = RETRY_S if self.placer.has_placed else _NO_ROOM_S
            self._retry_s = now_s + pause_s
            self._order(now_s, asked)

    def _order(self, now_s: float, asked: np.ndarray | None) -> None:
        """Have worlds made for lanes that need another home."""
        is_parked = self.table.is_parked
        if asked is not None:
            is_parked &= asked
        elif self._observing.autoreset == "disabled":
            is_parked[:] = False  # a reset has their worlds made, and begins their episodes
        parked = np.flatnonzero(is_parked)
        joining = {target for stream in self.streams.values() for target in stream.targets}
        sources = [
            stream
            for stream in self.streams.values()
            if not stream.targets
            and stream not in joining
            and stream.home_count
            and (stream.server.state is State.DRAINING or not stream.is_home.all())
        ]
        before = None
        if not sources and not len(parked) and not joining and now_s >= self._balanced_s and self._is_uneven(now_s):
            sources, before = list(self.streams.values()), self.held_lanes()
        moving = np.sort(np.concatenate([_NOBODY, *(stream.home_lanes for stream in sources)]))
        if len(parked) or len(moving):
            held = self.held_lanes()
            for stream in sources:
                held[stream.server.address] -= stream.home_count
            self.placer.start(Job(parked, moving, held, self.seeds.copy(), before))

    def _is_uneven(self, now_s: float) -> bool:
        """Return whether a server has less than half of an equal share of the lanes, which should be divided anew.

        Asked for again and again, it is true less and less often: the server may have no room, or be slow.
        """
        servers = [one for one in self.watch.servers if one.state is State.UP and one.full_until_s <= now_s]
        held = self.held_lanes()
        is_uneven = any(2 * held.get(one.address, 0) < self.lanes // len(servers) for one in servers)
        self._balanced_s = now_s + self._balance_pause_s
        self._balance_pause_s = min(2 * self._balance_pause_s, _MAX_BALANCE_S) if is_uneven else _BALANCE_S
        return is_uneven

    def take_made(self) -> None:
        """Take the worlds that were made: as homes of parked lanes, or as targets of streams."""
        while self.placer.made:
            made = self.placer.made.popleft()
            try:
                check_same_specs(self.template, made.world)
                self._adopt(made)
            except ClientError as error:
                _log.warning("lanes cannot go to the server at %s: %s", made.server.address, error)
                made.server.full_until_s = time.monotonic() + _REFUSED_S
                _close_later(made.world)

    def _adopt(self, made: Made) -> None:
        self._stream_count += 1
        stream = PlacedStream(self._stream_count, made, self._observing, self.results)
        homes = self.table.home[made.lanes]
        lanes = made.lanes[(homes >= 0) == made.is_move]
        if not len(lanes) or made.seed_version != self.seeds.version:
            _close_later(made.world)  # its lanes have found or lost their home meanwhile, or got other seeds
            return
        if made.is_move:
            for number in np.unique(homes[homes >= 0]).tolist():
                self.streams[number].targets.append(stream)
        else:
            stream.is_return = True
            self.table.move(lanes, stream)
        self.streams[stream.number] = stream

    def _lose(self, stream: PlacedStream, reason: str) -> None:
        """Park the lanes of a stream whose server is gone. They lose their episodes."""
        lanes = stream.home_lanes
        if len(lanes):
            _log.warning("%s; %d lanes lose their episode", reason, len(lanes))
            self.table.park(stream)
            self.seeds.losses[lanes] += np.uint64(1)
        stream.server.lost_worlds.append(stream.world.name)
        self._drop(stream)
        stream.server.mark_lost(reason)
        self._retry_s = 0.0

    def _drop(self, stream: PlacedStream) -> None:
        """Forget a stream that is the home of no lane any more, and its targets if they are not either."""
        del self.streams[stream.number]
        self.results.pop(stream, None)
        for other in self.streams.values():
            if stream in other.targets:
                other.targets.remove(stream)
        _close_later(stream.world)
        joining = {target for other in self.streams.values() for target in other.targets}
        for target in stream.targets:
            if target.number in self.streams and not target.home_count and target not in joining:
                self._drop(target)

    def hand_over(self, source: PlacedStream, lanes: np.ndarray, is_reset: bool = False) -> None:
        """Have lanes between two episodes, or those about to be reset, go on at the targets of their stream."""
        is_same_step = self._observing.autoreset == "same_step"
        if is_same_step and not is_reset:
            lanes = lanes[:_MAX_HANDED_OVER]
        for target in list(source.targets):
            mine = lanes[np.isin(lanes, target.lanes)]
            if not len(mine) or not (source.is_idle and target.is_idle):
                continue
            try:
                numbers = np.asarray(source.world.read_property("world.episode"))[source.indices(mine)]
            except LostConnection as error:
                self._lose(source, str(error))
                return
            if not is_same_step:
                numbers = numbers + 1
            elif is_reset:  # which begins another, but where an episode has just begun
                numbers = numbers - self.table.is_over[mine]
            if self.attempt(target, partial(self._begin_episodes, target, mine, numbers, source)):
                self.table.move(mine, target, source)
                if not np.isin(target.lanes, source.home_lanes).any():
                    source.targets.remove(target)  # it has got all
        if not source.home_count:
            self._drop(source)

    def _begin_episodes(
        self, target: PlacedStream, lanes: np.ndarray, episodes: np.ndarray, source: PlacedStream
    ) -> None:
        """Have a target go on with episodes of these numbers; with `same_step` they have begun already."""
        is_same_step = self._observing.autoreset == "same_step"
        if is_same_step and not target.home_count:
            # Its first step begins an episode in every lane, and would not step one that has begun already.
            target.world.send_reset()
            target.receive()
            self.results.pop(target, None)
        numbers = np.full(len(target.lanes), -1, np.int64)
        numbers[target.indices(lanes)] = episodes
        target.world.write_property("world.next_episode", numbers)
        if is_same_step:
            target.take_stacks(lanes, source)


def _close_later(world: VectorWorld) -> None:
    """Close a world on another thread: its server may be gone, and not answer."""
    threading.Thread(target=world.close, name="worldloom-closing", daemon=True).start()
