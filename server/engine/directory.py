"""The worlds of a server by name, their pools and agents, and the limits on all of them. Engine thread only."""

import errno
import secrets
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from worldloom.protos.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.server.config import Limits
from worldloom.server.engine.joining import take_joining
from worldloom.server.engine.loading import make_family
from worldloom.server.engine.observations import Offer, Wardrobe
from worldloom.server.engine.shared_memory import Segment, segment_bytes
from worldloom.server.engine.world import Agent, World
from worldloom.worlds.family import Family
from worldloom.worlds.pool import Pool
from worldloom.worlds.registry import FamilyError, find_family, is_loaded, known_families, needs_extra
from worldloom.worlds.settings import Setting, SettingError, Value, take_settings

WORLD_SETTINGS = (
    Setting("family", "", "Which kind of world; `worldloom worlds` lists them. Required."),
    Setting("seed", 0, "What chance in the world comes from; drawn by lot unless given.", -(2**63), 2**64 - 1),
    Setting("lanes", 1, "Lanes of a vector world: every tensor gets a leading dimension of that size.", 1),
)
"""Settings of CreateWorld that are not the family's own."""
_EMPTY_POOLS_KEPT = 8
"""Pools without lanes that are kept for the next world of their kind."""
WAS_DESTROYED = "it was destroyed"
_WAYS_TO_MEMORY = dict.fromkeys(
    (errno.EMFILE, errno.ENFILE), "raise the server's limit of open files (ulimit -n, LimitNOFILE= of systemd)"
)
"""What helps when shared memory cannot be had, by error."""

PoolKey: TypeAlias = tuple[type[Family], tuple[tuple[str, Value], ...]]
Prepared: TypeAlias = tuple[PoolKey, Family]
"""A family for a pool to be."""


class Directory:
    """All worlds. `clock` counts seconds."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.clock = clock
        self.assets = AssetLibrary()
        self.scene = Scene(self.assets)
        self.worlds: dict[str, World] = {}
        self.lanes_in_use = 0
        self.shared_bytes = 0
        self._pools: dict[PoolKey, Pool] = {}
        self._lanes_of: dict[Pool, int] = {}

    def create(self, given: Mapping[str, object]) -> World:
        """Make a world with these settings of CreateWorld."""
        common, own = _split(given)
        count = int(common["lanes"])
        self._check_room(count)
        pool = self._pool(_family_of(given), own)
        seed = int(common["seed"]) % 2**64 if "seed" in given else secrets.randbits(64)
        world = World(
            name=f"{pool.family.name}-{secrets.token_hex(16)}",
            settings=own,
            seed=seed,
            pool=pool,
            lanes=self._take_lanes(pool, seed, count),
        )
        world.is_vector = "lanes" in given
        world.used_at_s = self.clock()
        self.worlds[world.name] = world
        return world

    def preparation(self, given: Mapping[str, object]) -> Callable[[], Prepared] | None:
        """What takes long of `create` with these settings, for another thread to do; None if it is done, or is little.

        Families that need an extra import large packages, and read and compile models.
        """
        name = given.get("family")
        if not isinstance(name, str) or not needs_extra(name):
            return None
        if is_loaded(name) and self._key(given) in self._pools:
            return None
        return lambda: self._prepare(given)

    def take_in(self, prepared: Prepared) -> None:
        """Make a pool of a family that was prepared, unless there is one by now."""
        key, family = prepared
        if key not in self._pools:
            self._add_pool(key, family)

    def find(self, name: str) -> World:
        """The world of that name."""
        world = self.worlds.get(name)
        if world is None:
            raise NotFound(
                f"there is no world {name[:100]!r}: expected a name that CreateWorld gave; it may have been destroyed, "
                "or nobody was in it for --idle-world-s seconds"
            )
        world.used_at_s = self.clock()
        return world

    def join(self, world: World, given: Mapping[str, object], wardrobe: Wardrobe) -> Agent:
        """Put an agent into a world, with these settings of JoinWorld; `wardrobe` knows how its replies are made."""
        joining = take_joining(given, self.limits)
        slots = world.pool.family.agents
        if joining.agent is not None and joining.agent >= slots:
            raise InvalidArgument(
                f"setting 'agent' is {joining.agent}: expected one from 0 to {slots - 1}, the agents of {world.name}"
            )
        free = [slot for slot in range(slots) if slot not in world.agents]
        slot = joining.agent if joining.agent is not None else next(iter(free), None)
        if slot is None:
            raise FailedPrecondition(
                f"all {slots} agents of {world.name} are taken: wait until one leaves, or create another world"
            )
        if slot in world.agents:
            raise FailedPrecondition(
                f"agent {slot} of {world.name} is taken: expected one of {', '.join(map(str, free)) or 'none'}"
            )
        agent = Agent(world, slot, self._offer(world, slot, given, wardrobe))
        self._share(agent, agent.offer)
        world.agents[slot] = agent
        return agent

    def rejoin(self, agent: Agent, given: Mapping[str, object]) -> None:
        """Change what an agent asked for when it joined; settings that are not given stay."""
        if "agent" in given and take_joining(given, self.limits).agent != agent.slot:
            raise InvalidArgument(
                f"setting 'agent' is {given['agent']!r}: expected {agent.slot}, which this stream is; "
                "leave and join again to be another"
            )
        given = {**agent.offer.joining.given, **given}
        offer = self._offer(agent.world, agent.slot, given, agent.offer.wardrobe)
        if offer.shared_bytes != agent.offer.shared_bytes:
            self._share(agent, offer)
        agent.offer = offer

    def leave(self, agent: Agent) -> None:
        """Take an agent out of its world; the step it waits with is forgotten."""
        agent.step = None
        self.unshare(agent)
        if not agent.world.is_gone:
            agent.world.agents.pop(agent.slot)
            agent.world.used_at_s = self.clock()

    def unshare(self, agent: Agent) -> None:
        """Let go of the memory that is shared with an agent's client."""
        if agent.segment is not None:
            self.shared_bytes -= agent.segment.size_bytes
            agent.segment.close()
            agent.segment = None

    def destroy(self, world: World, why: str = WAS_DESTROYED) -> None:
        """Take a world out and give its lanes back. Its agents share memory no more, also while they do not leave."""
        del self.worlds[world.name]
        world.is_gone = True
        for agent in world.agents.values():
            self.unshare(agent)
        self._give_back(world.pool, world.lanes)
        world.when_gone(why)

    def check_restart(self, world: World, given: Mapping[str, object]) -> None:
        """Check these settings of ResetWorld."""
        self._take_restart(world, given)

    def restart(self, world: World, given: Mapping[str, object]) -> None:
        """Apply settings of ResetWorld. They are checked again: while the reset waited, others may have come."""
        pool, own, seed = self._take_restart(world, given)
        world.settings = own
        world.seed = world.seed if seed is None else seed
        if pool is not world.pool:
            before = world.pool, world.lanes
            world.move(pool, self._take_lanes(pool, world.seed, len(world.lanes)))
            self._give_back(*before)
            for agent in world.agents.values():
                agent.take_offer(_moved(agent, pool))
        elif seed is not None:
            pool.reseed(world.lanes, pool.family.lane_seeds(seed, len(world.lanes)))

    def _take_restart(self, world: World, given: Mapping[str, object]) -> tuple[Pool, dict[str, object], int | None]:
        """The pool, the family's own settings and the seed, if there is a new one."""
        fixed = [name for name in ("family", "lanes") if name in given]
        if fixed:
            raise InvalidArgument(f"setting {fixed[0]!r} cannot change: create another world instead")
        kind = type(world.pool.family)
        common, own = _split({"family": kind.name, **given})
        own = {**world.settings, **own}
        pool = self._pool(kind, own)
        changed = next((agent for agent in world.agents.values() if not _fits(agent, pool)), None)
        if changed is not None:
            raise FailedPrecondition(
                f"these settings change what agent {changed.slot} of {world.name} can do or see, or if it can be: "
                "expected settings that do not while someone is in it; leave it first, or create another world"
            )
        return pool, own, int(common["seed"]) % 2**64 if "seed" in given else None

    def reap(self) -> list[World]:
        """Destroy the worlds that nobody was in, or called for, for too long."""
        idle_s = self.limits.idle_world_s
        last = self.clock() - idle_s
        idle = [world for world in self.worlds.values() if not world.is_attended and world.used_at_s < last]
        for world in idle:
            self.destroy(world, f"nobody asked for it for {idle_s:g} s, which is what --idle-world-s allows")
        return idle

    def _share(self, agent: Agent, offer: Offer) -> None:
        """Give an agent the shared memory that its offer asks for."""
        wanted = offer.shared_bytes
        segment = None
        if wanted:
            held = 0 if agent.segment is None else agent.segment.size_bytes
            new_bytes = segment_bytes(wanted)
            if self.shared_bytes - held + new_bytes > self.limits.max_shared_bytes:
                raise ResourceExhausted(
                    f"{new_bytes} bytes of shared memory more than the {self.shared_bytes - held} in use: expected "
                    f"{self.limits.max_shared_bytes} at most in all; name fewer in the join setting 'observations', go "
                    "without 'shm', or raise --max-shared-bytes"
                )
            try:
                segment = Segment(wanted)
            except OSError as error:
                raise ResourceExhausted(
                    f"{new_bytes} bytes of shared memory cannot be had on the server's machine: {error.strerror}; go "
                    f"without 'shm', or {_WAYS_TO_MEMORY.get(error.errno or 0, 'give the server more memory')}"
                ) from error
        self.unshare(agent)
        agent.segment = segment
        self.shared_bytes += 0 if segment is None else segment.size_bytes

    def _check_room(self, lanes: int) -> None:
        limits = self.limits
        if len(self.worlds) >= limits.max_worlds:
            raise ResourceExhausted(
                f"there are {len(self.worlds)} worlds, as many as this server holds: destroy some, "
                "or raise --max-worlds"
            )
        if self.lanes_in_use + lanes > limits.max_lanes:
            raise ResourceExhausted(
                f"{lanes} lanes more than the {self.lanes_in_use} in use: expected {limits.max_lanes} at most in all; "
                "destroy some worlds, or raise --max-lanes"
            )

    def _offer(self, world: World, slot: int, given: Mapping[str, object], wardrobe: Wardrobe) -> Offer:
        joining = take_joining(given, self.limits)
        return Offer(world.pool, slot, len(world.lanes) if world.is_vector else None, joining, wardrobe)

    def _pool(self, kind: type[Family], own: Mapping[str, object]) -> Pool:
        try:
            key = _key_of(kind, own)
            if key not in self._pools:
                self._add_pool(key, kind(own, self.assets))
        except SettingError as error:
            raise InvalidArgument(str(error)) from error
        return self._pools[key]

    def _key(self, given: Mapping[str, object]) -> PoolKey:
        _, own = _split(given)
        return _key_of(_family_of(given), own)

    def _prepare(self, given: Mapping[str, object]) -> Prepared:
        """On another thread: touches nothing here but the assets."""
        key = self._key(given)
        _, own = _split(given)
        try:
            return key, make_family(key[0], own, self.assets)
        except SettingError as error:
            raise InvalidArgument(str(error)) from error

    def _add_pool(self, key: PoolKey, family: Family) -> None:
        self._drop_empty_pools(_EMPTY_POOLS_KEPT - 1)
        self._pools[key] = Pool(family, self.scene)
        self._lanes_of[self._pools[key]] = 0

    def _take_lanes(self, pool: Pool, seed: int, count: int) -> np.ndarray:
        lanes = pool.add(pool.family.lane_seeds(seed, count))
        self._lanes_of[pool] = self._lanes_of.get(pool, 0) + count
        self.lanes_in_use += count
        return lanes

    def _give_back(self, pool: Pool, lanes: np.ndarray) -> None:
        pool.free(lanes)
        self._lanes_of[pool] -= len(lanes)
        self.lanes_in_use -= len(lanes)
        if not self._lanes_of[pool] and pool not in self._pools.values():
            del self._lanes_of[pool]

    def _drop_empty_pools(self, keep: int) -> None:
        """Forget the oldest of the pools without lanes, all but so many."""
        empty = [key for key, pool in self._pools.items() if not self._lanes_of[pool]]
        for key in empty[: max(0, len(empty) - keep)]:
            del self._lanes_of[self._pools.pop(key)]


def _key_of(kind: type[Family], own: Mapping[str, object]) -> PoolKey:
    return kind, tuple(sorted(take_settings(kind.settings, own).items()))


def _split(given: Mapping[str, object]) -> tuple[dict[str, Value], dict[str, object]]:
    """The settings that every world has, and the family's own as they were given."""
    kind = _family_of(given)
    try:
        taken = take_settings((*WORLD_SETTINGS, *kind.settings), given)
    except SettingError as error:
        raise InvalidArgument(str(error)) from error
    common = {setting.name for setting in WORLD_SETTINGS}
    return taken, {name: value for name, value in given.items() if name not in common}


def _family_of(given: Mapping[str, object]) -> type[Family]:
    name = given.get("family")
    if not isinstance(name, str):
        came = "is missing" if name is None else f"is {str(name)[:100]}"
        raise InvalidArgument(f"setting 'family' {came}: expected one of {', '.join(known_families())}")
    try:
        return find_family(name[:100])
    except FamilyError as error:
        raise InvalidArgument(f"setting 'family': {error}") from error


def _fits(agent: Agent, pool: Pool) -> bool:
    """Whether an agent can do and see the same if its world moves to another pool."""
    if agent.slot >= pool.family.agents:
        return False
    offer, moved = agent.offer, _moved(agent, pool)
    return offer.actions == moved.actions and offer.observations == moved.observations


def _moved(agent: Agent, pool: Pool) -> Offer:
    """What an agent is offered if its world moves to another pool."""
    offer = agent.offer
    return Offer(pool, agent.slot, offer.lanes, offer.joining, offer.wardrobe)
