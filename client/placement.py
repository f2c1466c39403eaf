"""Placing lanes on servers: how many each gets, their seeds, and the worlds that are made for them.

Worlds are made on a thread of their own, so that the lanes that can step do not wait for those that cannot. A world may
have any set of lane numbers, so a lane's seed does not depend on where it is.
"""

import logging
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from google.rpc import code_pb2

from worldloom.client.connections import Connection
from worldloom.client.errors import ClientError, LostConnection, ServerError
from worldloom.client.requests import variation_settings
from worldloom.client.servers import Capacity, PolledEvent, Server, ServerWatch, State, read_capacity
from worldloom.client.shared_memory import SharedPart
from worldloom.client.vector_world import VectorWorld, connection_transport
from worldloom.client.world import World, destroy_world

_FULL_S = 2.0
"""Time for which no lanes are placed on a server that had no room for some."""
_log = logging.getLogger("worldloom.client")


def share_lanes(lanes: int, capacities: Sequence[Capacity], held: Sequence[int]) -> list[int]:
    """Divide lanes over servers that hold some already; return the number of lanes that each gets.

    In the end each should hold a share of all lanes by its rate, if all have one, or else by its processors. Nobody
    gets more than it has room for; what nobody has room for is left out.
    """
    processors = np.array([max(1, one.processors) for one in capacities], float)
    rates = np.array([one.rate for one in capacities]) / processors
    if (rates > 0).all():
        # Rates of different families can differ a lot, and are no reason to leave a server idle.
        processors *= np.clip(rates / np.median(rates), 0.5, 2.0)
    room = np.array([max(0, one.free_lanes) for one in capacities], np.int64)
    given = np.zeros(len(capacities), np.int64)
    holds = np.array(held, np.int64)
    left = min(lanes, int(room.sum()))
    while left > 0:
        is_open = given < room
        total = int((holds + given)[is_open].sum()) + left
        ideal = np.where(is_open, processors / processors[is_open].sum() * total, 0)
        missing = np.where(is_open, np.maximum(ideal - holds - given, 0), 0)
        portion = np.minimum(np.floor(missing / missing.sum() * left).astype(np.int64), room - given)
        if not portion.any():  # the rest, one by one, to those that miss most
            best = int(np.argmax(np.where(is_open, missing, -1)))
            portion[best] = 1
        given += portion
        left -= int(portion.sum())
    return [int(count) for count in given]


def mix(seeds: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """Return element `counter` of the splitmix64 sequence of `seed`, for each pair of unsigned integers."""
    with np.errstate(over="ignore"):
        z = seeds + (counters + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: np.ndarray = z ^ (z >> np.uint64(31))
        return mixed


@dataclass
class LaneSeeds:
    """Seeds of all lanes of an env, and how often the server of each was lost since it got its seed.

    A lane that was never lost has the seed that it would have in one world of all lanes. The seed of a lane that was
    lost k times is element k of the splitmix64 sequence of its own seed, which is the one that was given for it, or
    else element `number` of the sequence of the seed for all.
    """

    numbers: np.ndarray
    """Numbers of the lanes."""
    seeds: np.ndarray
    """The seed that was given for all lanes, or for each."""
    is_own: np.ndarray
    """Lanes whose seed was given for them alone."""
    losses: np.ndarray
    version: int = 0
    """Number of times that seeds were given."""
    variations: np.ndarray | None = None
    """Numbers of the variations of the lanes; None if they choose them themselves."""

    @classmethod
    def make(cls, seed: int | Sequence[int], first_lane: int | Sequence[int], lanes: int) -> "LaneSeeds":
        """Return the seeds of an env's arguments."""
        numbers = (
            np.arange(first_lane, first_lane + lanes, dtype=np.uint64)
            if isinstance(first_lane, int)
            else np.array(first_lane, np.uint64)
        )
        seeds = np.broadcast_to(np.array(seed, np.uint64), lanes).copy()
        return cls(numbers, seeds, np.full(lanes, not isinstance(seed, int)), np.zeros(lanes, np.uint64))

    def give(self, seeds: int | Sequence[int | None], mask: np.ndarray | None) -> None:
        """Note the seeds of a reset of all lanes, or of those of a mask: one for all, or one or None for each."""
        is_given = np.ones(len(self.seeds), bool) if mask is None else mask.copy()
        if isinstance(seeds, int):
            values = np.full(len(self.seeds), seeds, np.uint64)
        else:
            is_given &= np.array([seed is not None for seed in seeds])
            values = np.array([seed or 0 for seed in seeds], np.uint64)
        self.seeds[is_given] = values[is_given]
        self.is_own[is_given] = not isinstance(seeds, int)
        self.losses[is_given] = 0
        self.version += 1

    def choose(self, variation: int | np.ndarray, mask: np.ndarray | None) -> None:
        """Note the numbers of the variations of all lanes, or of those of a mask."""
        before = np.full(len(self.seeds), -1, np.int64) if self.variations is None else self.variations
        self.variations = np.where(True if mask is None else mask, variation, before)
        self.version += 1

    def copy(self) -> "LaneSeeds":
        """Return a copy, for another thread."""
        variations = None if self.variations is None else self.variations.copy()
        return LaneSeeds(
            self.numbers, self.seeds.copy(), self.is_own.copy(), self.losses.copy(), self.version, variations
        )

    def settings(self, lanes: np.ndarray) -> list[tuple[np.ndarray, dict[str, Any]]]:
        """Return settings of CreateWorld for lanes; as several worlds, if one cannot have all their seeds."""
        is_plain = ~self.is_own[lanes] & (self.losses[lanes] == 0)
        found: list[tuple[np.ndarray, dict[str, Any]]] = []
        for seed in np.unique(self.seeds[lanes[is_plain]]):
            some = lanes[is_plain & (self.seeds[lanes] == seed)]
            found.append((some, {"seed": int(seed)}))
        if not is_plain.all():
            some = lanes[~is_plain]
            own = np.where(self.is_own[some], self.seeds[some], mix(self.seeds[some], self.numbers[some]))
            found.append((some, {"seed": np.where(self.losses[some] > 0, mix(own, self.losses[some]), own)}))
        return [
            (
                some,
                {
                    "lanes": len(some),
                    "first_lane": self.numbers[some],
                    **variation_settings(self.variations, some),
                    **settings,
                },
            )
            for some, settings in found
        ]


class Job(NamedTuple):
    """Lanes to place."""

    parked: np.ndarray
    """Lanes without a home."""
    moving: np.ndarray
    """Lanes that stay where they are until the ends of their episodes."""
    held: Mapping[str, int]
    """The number of other lanes on each server, by its address."""
    seeds: LaneSeeds
    before: Mapping[str, int] | None = None
    """The number of lanes on each server now: if they should be the same afterwards, nothing is done."""


class Made(NamedTuple):
    """A world that was made for lanes of a group."""

    server: Server
    lanes: np.ndarray
    is_move: bool
    """They have a home, and move at the ends of their episodes."""
    seed_version: int
    world: VectorWorld
    shared_parts: dict[str, SharedPart] | None
    """Its frames in shared memory, if they come in any."""


class Placer:
    """Makes worlds on the servers of an env, on a thread of its own if asked to."""

    def __init__(
        self, watch: ServerWatch, world_settings: Mapping[str, Any], world_arguments: Mapping[str, Any]
    ) -> None:
        self.made: deque[Made] = deque()
        """Worlds that nobody has taken yet."""
        self.arrival = PolledEvent()
        """Set when a reply has come over gRPC, and when a job is done."""
        self.is_busy = False
        """A job is under way on the thread."""
        self.has_placed = True
        """The last job has placed some lanes."""
        self.problem: ClientError | None = None
        """The last error that kept a lane from being placed."""
        self._warned: weakref.WeakKeyDictionary[Server, str] = weakref.WeakKeyDictionary()
        """The last warning about each server, which is not repeated."""
        self._watch = watch
        self._settings = dict(world_settings)
        self._arguments = dict(world_arguments)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self, job: Job) -> None:
        """Place lanes on the thread; `made` has their worlds when `is_busy` is false again."""
        self.is_busy = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="worldloom-placement", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def place(self, job: Job) -> None:
        """Make worlds for as many lanes as there is room for, on all servers at the same time."""
        self.has_placed = False
        now_s = time.monotonic()
        servers = [one for one in self._watch.servers if one.state is State.UP and one.full_until_s <= now_s]
        connected: dict[Server, tuple[Connection, Capacity]] = {}
        _run_in_parallel([partial(self._connect, server, connected) for server in servers])
        chosen = [server for server in servers if server in connected]
        held = [job.held.get(server.address, 0) for server in chosen]
        capacities = [connected[server][1] for server in chosen]
        counts = share_lanes(len(job.parked) + len(job.moving), capacities, held) if chosen else []
        if job.before is not None and counts == [job.before.get(server.address, 0) for server in chosen]:
            counts = [0] * len(chosen)
        ends = np.cumsum([0, *counts])
        parts = [slice(begin, end) for begin, end in pairwise(ends.tolist())]
        works = [
            partial(self._fill, server, connected[server][0], job, part)
            for server, part in zip(chosen, parts, strict=True)
        ]
        _run_in_parallel(works)

    def close(self) -> None:
        """End the thread, and close the worlds that nobody has taken."""
        self._is_closed = True
        self._jobs.put(None)
        self._close_made()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self.place(job)
            except Exception as error:  # a bug here must not end the thread: the lanes are tried again
                _log.exception("lanes cannot be placed: %s", error)
            self.is_busy = False
            if self._is_closed:
                self._close_made()
            self.arrival.set()

    def _close_made(self) -> None:
        with suppress(IndexError):
            while True:
                self.made.popleft().world.close()

    def _connect(self, server: Server, connected: dict[Server, tuple[Connection, Capacity]]) -> None:
        arguments = self._arguments
        try:
            by = connection_transport(arguments["transport"])
            connection = server.connect(arguments["timeout_s"], by, self.arrival)
            try:
                while server.lost_worlds:  # it was frozen, or cut off: they take the room of others
                    destroy_world(connection, server.lost_worlds.pop())
                connected[server] = connection, read_capacity(connection)
            except BaseException:
                connection.close()
                raise
        except ClientError as error:
            self._note(server, error)

    def _fill(self, server: Server, connection: Connection, job: Job, part: slice) -> None:
        """Make the worlds of a server; the connection is for the first of them."""
        free: list[Connection] = [connection]
        parked = len(job.parked)
        moving = slice(max(0, part.start - parked), max(0, part.stop - parked))
        try:
            for is_move, chosen in ((False, job.parked[part]), (True, job.moving[moving])):
                for lanes, settings in job.seeds.settings(np.sort(chosen)):
                    opened = free.pop() if free else connection.open_sibling()
                    server.adopt(opened)
                    world = self._make(opened, settings)
                    self.has_placed = True
                    self.made.append(Made(server, lanes, is_move, job.seeds.version, world, world.shared_parts()))
        except ClientError as error:
            self._note(server, error)
        finally:
            for unused in free:
                unused.close()

    def _make(self, connection: Connection, lane_settings: Mapping[str, Any]) -> VectorWorld:
        arguments = self._arguments
        world = World(connection, {**self._settings, **lane_settings})
        return VectorWorld(
            world,
            arguments["names"],
            join_settings=arguments["join_settings"],
            transport=arguments["transport"],
            clip_actions=arguments["clip_actions"],
        )

    def _note(self, server: Server, error: ClientError) -> None:
        """Note why lanes could not be placed on a server, and place none there for a while."""
        self.problem = error
        is_stopping = isinstance(error, ServerError) and error.code == code_pb2.UNAVAILABLE
        text = f"the server at {server.address} takes no lanes: {error}"
        if isinstance(error, LostConnection):
            server.mark_lost(str(error))
        elif self.is_busy and not is_stopping and self._warned.get(server) != text:
            self._warned[server] = text
            _log.warning("%s", text)
        server.full_until_s = time.monotonic() + _FULL_S


def _run_in_parallel(calls: Sequence[Callable[[], None]]) -> None:
    """Make some calls, each on a thread of its own but the first, and wait for all."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls[1:]]
    for thread in threads:
        thread.start()
    for call in calls[:1]:
        call()
    for thread in threads:
        thread.join()
