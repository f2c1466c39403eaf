"""The worlds of a server by name, their pools and agents, and the limits on them. Used by the engine's thread only."""

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from worldloom.kernels.raster.scratch import MAX_WIDTH
from worldloom.protos.errors import FailedPrecondition, InvalidArgument, NotFound, RequestError, ResourceExhausted
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.server.config import Limits
from worldloom.server.engine.loading import make_family
from worldloom.server.engine.memory import MemoryBudget
from worldloom.server.engine.observations import AgentSpecs, ReplyLayoutCache
from worldloom.server.engine.pools import PoolKey, PoolTable
from worldloom.server.engine.shared_memory import RING_SIZE, Segment, segment_bytes
from worldloom.server.engine.slices import LaneAddition, WorldCreation
from worldloom.server.engine.world import FAILURES, Agent, Autoreset, World
from worldloom.server.engine.world_settings import (
    WORLD_SETTINGS,
    JoinSettings,
    ResetSettings,
    own_settings,
    parse_join_settings,
    parse_reset_settings,
    parse_world_settings,
    refusal,
)
from worldloom.worlds.family import Family
from worldloom.worlds.pool import Pool
from worldloom.worlds.randomisation.distracted_lanes import load_films
from worldloom.worlds.randomisation.pictures import has_sets, load_sets
from worldloom.worlds.randomisation.settings import PICTURE_SETTINGS, VARIATION, Randomisation
from worldloom.worlds.registry import is_built_in, is_loaded, known_families
from worldloom.worlds.settings import SettingError, parse_settings

WAS_DESTROYED = "it was destroyed"
_MEMORY_ADVICE = dict.fromkeys(
    (errno.EMFILE, errno.ENFILE), "raise the server's limit of open files (ulimit -n, LimitNOFILE= of systemd)"
)
"""Advice when shared memory cannot be allocated, by errno."""

PreparedFamily: TypeAlias = tuple[PoolKey, Family]
"""A family that was built for a pool, and the key of the pool."""


class WorldDirectory:
    """All worlds of a server. `clock` returns seconds."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.clock = clock
        self.assets = AssetLibrary()
        self.scene = Scene(self.assets)
        self.worlds: dict[str, World] = {}
        self.changes = 0
        """Number of changes of the worlds, of their settings and of their agents, for those who list them."""
        self.lanes_in_use = 0
        """Lanes of all worlds, including those in creation."""
        self.worlds_in_creation = 0
        """Worlds that are not in `worlds` yet, because not all their lanes have been added."""
        self.shared_bytes = 0
        self.max_side_pixels = MAX_WIDTH
        """Largest width and height of frames that the renderer draws."""
        self.memory = MemoryBudget(limits.max_memory_bytes)
        self.pools = PoolTable(self.scene, self.memory)
        self.memory.count(lambda: self.pools.size_bytes + self.shared_bytes + self.assets.memory_bytes)

    def create(self, given: Mapping[str, object]) -> World:
        """Create a world with these settings of CreateWorld."""
        creation = self.begin_create(given)
        try:
            creation.addition.add_all()
        except FAILURES:
            creation.addition.abandon()
            creation.abandon()
            raise
        return creation.finish()

    def begin_create(self, given: Mapping[str, object]) -> WorldCreation:
        """Check the settings of CreateWorld, and reserve the lanes of the world, which are then added in parts."""
        settings = parse_world_settings(given)
        self._check_limits(settings.lanes)
        pool = self._pool(settings.family, settings.own, settings.variations.randomisation)
        settings = replace(settings, own=_values_of(pool, settings.own))
        self.pools.check_memory(pool, settings.lanes)
        return WorldCreation(self, settings, LaneAddition(self, pool, settings.seeds.in_family(pool.family)))

    def preparation(self, given: Mapping[str, object]) -> Callable[[], PreparedFamily] | None:
        """Return the slow part of `create` for another thread to run; None if it was done before, or is quick.

        Families that need an extra import large packages, and read and compile models; those of others may do anything.
        Sets of pictures are made by code, or read from files.
        """
        name = given.get("family")
        if not isinstance(name, str) or name not in known_families():
            return None
        if is_built_in(name) and given.keys().isdisjoint(PICTURE_SETTINGS):
            return None
        if is_loaded(name):
            key = self._key(given)
            if key in self.pools.by_key or (is_built_in(name) and has_sets(self.assets, key[2])):
                return None
        self._limit_pictures()
        return lambda: self._prepare(given)

    def add_prepared(self, prepared: Callable[[], PreparedFamily]) -> None:
        """Create the pool of a prepared family, unless it exists by now; raise what `prepared` raises."""
        key, family = prepared()
        if key not in self.pools.by_key:
            self._add_pool(key, family)

    def find(self, name: str) -> World:
        """Return the world of that name."""
        world = self.worlds.get(name)
        if world is None:
            raise NotFound(
                f"there is no world {name[:100]!r}: expected a name that CreateWorld gave; it may have been destroyed, "
                "or no agent was in it for --idle-world-s seconds, --lost-world-s if its stream broke off"
            )
        world.used_at_s = self.clock()
        world.is_lost = False
        return world

    def join(self, world: World, given: Mapping[str, object], layout_cache: ReplyLayoutCache) -> Agent:
        """Add an agent to a world, with these settings of JoinWorld; `layout_cache` is that of its protocol."""
        join = self._parse_join_settings(world, given)
        count = world.pool.family.agents
        if join.agent is not None and join.agent >= count:
            raise InvalidArgument(
                f"setting 'agent' is {join.agent}: expected one from 0 to {count - 1}, the agents of {world.name}"
            )
        free = [index for index in range(count) if index not in world.agents]
        index = join.agent if join.agent is not None else next(iter(free), None)
        if index is None:
            raise FailedPrecondition(
                f"all {count} agents of {world.name} are taken: wait until one leaves, or create another world"
            )
        if index in world.agents:
            raise FailedPrecondition(
                f"agent {index} of {world.name} is taken: "
                + (f"expected one of {', '.join(map(str, free))}" if free else "wait until it leaves")
            )
        agent = Agent(world, index, self._make_specs(world, index, given, layout_cache))
        self._share(agent, agent.specs)
        world.agents[index] = agent
        self.changes += 1
        return agent

    def rejoin(self, agent: Agent, given: Mapping[str, object]) -> None:
        """Change the join settings of an agent; those that are not given stay."""
        if "agent" in given and self._parse_join_settings(agent.world, given).agent != agent.index:
            raise InvalidArgument(
                f"setting 'agent' is {given['agent']!r}: expected {agent.index}, which this stream is; "
                "leave and join again to be another"
            )
        given = {**agent.specs.join_settings.given, **given}
        specs = self._make_specs(agent.world, agent.index, given, agent.specs.layout_cache)
        if specs.shared_bytes != agent.specs.shared_bytes:
            self._share(agent, specs)
        agent.specs = specs
        self.changes += 1

    def leave(self, agent: Agent) -> None:
        """Remove an agent from its world, with its waiting step."""
        agent.step = agent.last_request = agent.prepared = None
        agent.world.interrupted_agents.discard(agent)
        self.release_segment(agent)
        self.changes += 1
        if not agent.world.is_gone:
            agent.world.agents.pop(agent.index)
            agent.world.used_at_s = self.clock()
            if not agent.world.agents:
                agent.world.reset_all()

    def release_segment(self, agent: Agent) -> None:
        """Release the memory that is shared with an agent's client."""
        if agent.segment is not None:
            self.shared_bytes -= agent.segment.size_bytes
            agent.segment.close()
            agent.segment = None

    def destroy(self, world: World, why: str = WAS_DESTROYED) -> None:
        """Remove a world and free its lanes and the shared memory of its agents, which may leave later."""
        del self.worlds[world.name]
        self.changes += 1
        world.is_gone = True
        for agent in world.agents.values():
            agent.last_request = agent.prepared = None
            self.release_segment(agent)
        self._free_lanes(world.pool, world.lanes)
        self.lanes_in_use -= len(world.lanes)
        world.when_gone(why)

    def settings_after_reset(self, world: World, given: Mapping[str, object]) -> dict[str, object]:
        """Check settings of ResetWorld; return the family that the world then has, as settings of CreateWorld."""
        settings = parse_reset_settings(world, given)
        varied = {name: value for name, value in settings.variations.given.items() if name != VARIATION}
        return {**settings.own, **varied, "family": world.pool.family.name}

    def begin_restart(self, world: World, given: Mapping[str, object]) -> LaneAddition | None:
        """Check settings of ResetWorld; return the lanes that the world will have, which are then added, if others."""
        settings, pool = self._parse_restart(world, given)
        if pool is world.pool:
            return None
        self.pools.check_memory(pool, len(world.lanes))
        return LaneAddition(self, pool, (settings.seeds or world.seeds).in_family(pool.family))

    def restart(self, world: World, given: Mapping[str, object], addition: LaneAddition | None = None) -> None:
        """Apply settings of ResetWorld; `addition` is what `begin_restart` returned, with all lanes.

        The settings are checked again, since agents may have joined and the world may have changed while the reset
        waited.
        """
        try:
            settings, pool = self._parse_restart(world, given)
            if pool is not world.pool and (addition is None or addition.pool is not pool):
                self.pools.check_memory(pool, len(world.lanes))
        except RequestError:
            if addition is not None:
                addition.abandon()
            raise
        self.changes += 1
        world.settings = _values_of(pool, settings.own)
        world.variations = settings.variations
        world.seeds = settings.seeds or world.seeds
        lane_seeds = world.seeds.in_family(pool.family)
        if addition is not None and (addition.pool is not pool or pool is world.pool):
            addition.abandon()
            addition = None
        if pool is not world.pool:
            if addition is None:
                addition = LaneAddition(self, pool, lane_seeds)
                addition.add_all()
            before = world.pool, world.lanes
            world.move(pool, addition.lanes)
            pool.reseed(world.lanes, lane_seeds)
            self._free_lanes(*before)
            for agent in world.agents.values():
                agent.replace_specs(_specs_in_pool(agent, pool))
        elif settings.seeds is not None:
            where = slice(None) if settings.is_reseeded is None else settings.is_reseeded
            pool.reseed(world.lanes[where], lane_seeds[where])
        pool.choose_variations(world.lanes, world.variations.choice)
        if settings.is_reset is None:
            world.reset_all()
        else:
            world.reset_some(settings.is_reset)

    def _parse_restart(self, world: World, given: Mapping[str, object]) -> tuple[ResetSettings, Pool]:
        """Return the settings, and the pool that the world then belongs to."""
        settings = parse_reset_settings(world, given)
        pool = self._pool(self.pools.family_of(world.pool), settings.own, settings.variations.randomisation)
        changed = next((agent for agent in world.agents.values() if not _fits(agent, pool)), None)
        if changed is not None:
            raise FailedPrecondition(
                f"these settings change the specs of agent {changed.index} of {world.name}, or remove it: expected "
                "settings that do not while agents are in the world; leave it first, or create another world"
            )
        return settings, pool

    def reap(self) -> list[World]:
        """Destroy the worlds that have been unused for too long, and return them."""
        limits, now_s = self.limits, self.clock()
        reaped = []
        for world in [world for world in self.worlds.values() if not world.is_attended]:
            limit_s, option = limits.idle_world_s, "--idle-world-s"
            if world.is_lost and limits.lost_world_s < limit_s:
                limit_s, option = limits.lost_world_s, "--lost-world-s"
            if world.used_at_s < now_s - limit_s:
                self.destroy(world, f"it was not used for {limit_s:g} s, the limit set by {option}")
                reaped.append(world)
        return reaped

    def share_again(self, agent: Agent, ring_size: int) -> None:
        """Replace the shared memory of an agent by memory for another number of sets of frames."""
        self._share(agent, agent.specs, ring_size)

    def _share(self, agent: Agent, specs: AgentSpecs, ring_size: int | None = None) -> None:
        """Allocate the shared memory of an agent's specs."""
        frame_bytes = specs.shared_bytes
        segment = None
        if frame_bytes:
            held = 0 if agent.segment is None else agent.segment.size_bytes
            new_bytes = segment_bytes(frame_bytes, ring_size or RING_SIZE)
            instead = "name fewer in the join setting 'observations', go without 'shm'"
            if ring_size is not None:
                instead = f"write a smaller number than {ring_size} to the property 'shm.slots', {instead}"
            if self.shared_bytes - held + new_bytes > self.limits.max_shared_bytes:
                raise ResourceExhausted(
                    f"{new_bytes} bytes of shared memory more than the {self.shared_bytes - held} in use: expected "
                    f"{self.limits.max_shared_bytes} at most in all; {instead}, or raise --max-shared-bytes"
                )
            self.memory.check(new_bytes - held, "shared memory of this agent", instead)
            try:
                segment = Segment(frame_bytes, ring_size)
            except OSError as error:
                raise ResourceExhausted(
                    f"{new_bytes} bytes of shared memory cannot be had on the server's machine: {error.strerror}; go "
                    f"without 'shm', or {_MEMORY_ADVICE.get(error.errno or 0, 'give the server more memory')}"
                ) from error
        self.release_segment(agent)
        agent.segment = segment
        self.shared_bytes += 0 if segment is None else segment.size_bytes

    def _check_limits(self, lanes: int) -> None:
        limits, worlds = self.limits, len(self.worlds) + self.worlds_in_creation
        if worlds >= limits.max_worlds:
            raise ResourceExhausted(
                f"there are {worlds} worlds, as many as this server holds: destroy some, or raise --max-worlds"
            )
        if self.lanes_in_use + lanes > limits.max_lanes:
            raise ResourceExhausted(
                f"{lanes} lanes more than the {self.lanes_in_use} in use: expected {limits.max_lanes} at most in all; "
                "destroy some worlds, or raise --max-lanes"
            )

    def _make_specs(
        self, world: World, index: int, given: Mapping[str, object], layout_cache: ReplyLayoutCache
    ) -> AgentSpecs:
        lanes = len(world.lanes) if world.is_vector else None
        join = self._parse_join_settings(world, given)
        for name, pixels in (("width", join.width), ("height", join.height)):
            if pixels > self.max_side_pixels:
                raise InvalidArgument(
                    f"setting {name!r} is {pixels}: expected 1 to {self.max_side_pixels}, which is what this server's "
                    "renderer draws"
                )
        return AgentSpecs(world.pool, index, lanes, join, layout_cache, world.autoreset is Autoreset.SAME_STEP)

    def _parse_join_settings(self, world: World, given: Mapping[str, object]) -> JoinSettings:
        names = [setting.name for setting in (*WORLD_SETTINGS, *world.pool.family.settings)]
        return parse_join_settings(given, self.limits, dict.fromkeys(names, "CreateWorld"))

    def _pool(self, kind: type[Family], own: Mapping[str, object], randomisation: Randomisation | None) -> Pool:
        try:
            key = _key_of(kind, own, randomisation)
            if key not in self.pools.by_key:
                self._limit_pictures()
                self._add_pool(key, kind(own, self.assets))
        except SettingError as error:
            raise refusal(error) from error
        return self.pools.by_key[key]

    def _limit_pictures(self) -> None:
        """Limit pictures to what is left of the memory budget, and to half of it with all assets, as they stay."""
        self.assets.max_bytes = min(self.assets.memory_bytes + self.memory.left_bytes, self.memory.max_bytes // 2)

    def _add_pool(self, key: PoolKey, family: Family) -> None:
        try:
            self.pools.add(key, family)
        except SettingError as error:
            raise refusal(error) from error

    def _key(self, given: Mapping[str, object]) -> PoolKey:
        settings = parse_world_settings(given)
        return _key_of(settings.family, settings.own, settings.variations.randomisation)

    def _prepare(self, given: Mapping[str, object]) -> PreparedFamily:
        """Build a family. Runs on another thread, and uses nothing of this object but the assets."""
        key = self._key(given)
        try:
            if key[2] is not None:
                load_sets(self.assets, key[2])
            family = make_family(key[0], own_settings(given), self.assets)
            if family.distraction is not None and key[2] is not None:
                load_films(self.assets, family.distraction, key[2].background_set)
            return key, family
        except SettingError as error:
            raise refusal(error) from error

    def _free_lanes(self, pool: Pool, lanes: np.ndarray) -> None:
        pool.free(lanes)
        self.pools.count_lanes(pool, -len(lanes))


def _key_of(kind: type[Family], own: Mapping[str, object], randomisation: Randomisation | None) -> PoolKey:
    return kind, tuple(sorted(parse_settings(kind.settings, own).items())), randomisation


def _values_of(pool: Pool, own: Mapping[str, object]) -> dict[str, object]:
    """Return the values that a pool has of these settings: they may be megabytes, and all its worlds share them."""
    return {name: pool.family.setting_values[name] for name in own}


def _fits(agent: Agent, pool: Pool) -> bool:
    """Return whether an agent keeps its actions and observations if its world moves to another pool."""
    if agent.index >= pool.family.agents:
        return False
    specs, moved = agent.specs, _specs_in_pool(agent, pool)
    return specs.actions == moved.actions and specs.observations == moved.observations


def _specs_in_pool(agent: Agent, pool: Pool) -> AgentSpecs:
    """Return the specs of an agent if its world moves to another pool."""
    specs = agent.specs
    return AgentSpecs(pool, agent.index, specs.lanes, specs.join_settings, specs.layout_cache, specs.has_final)
