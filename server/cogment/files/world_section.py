"""Parser of the part of a trial file that configures a world of this server: `trial_params.environment.config`.

The result is an EnvironmentConfig, as another orchestrator would send it. To check it, the world is created and joined
once in a directory of its own, which has no renderer. So the trials of a file that is accepted can start.
"""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worldloom.protos.errors import RequestError
from worldloom.protos.worldloom import trials_pb2 as content
from worldloom.server.cogment.files.yaml_file import Entry
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.tensors import pack
from worldloom.server.engine.directory import WorldDirectory
from worldloom.server.engine.observations import ObservationSpec, ReplyLayoutCache
from worldloom.server.engine.replies import ReplyLayout
from worldloom.server.engine.world import World
from worldloom.server.engine.world_settings import JOIN_SETTINGS, OBSERVATIONS, VECTOR_SETTINGS, WORLD_SETTINGS
from worldloom.worlds.family import Family
from worldloom.worlds.registry import FamilyError, find_family, known_families
from worldloom.worlds.settings import Setting, SettingError, Value

_FIXED_JOIN_SETTINGS = {
    "agent": "an actor's id says which agent it is",
    "shm": "observations of trials go to other machines",
    OBSERVATIONS: "they are a key beside 'join'",
}
"""Settings of JoinWorld that actor classes do not have, and the reason."""
_CONFIDENCES = ("reward_confidence", "zero_reward_confidence")


class ActorClass(NamedTuple):
    """An actor class in the rest of the file."""

    id: str
    actor_count: int
    has_deltas: bool
    """True if its observations have a delta type."""


def parse_world_config(config: Entry, classes: Sequence[ActorClass], actors: Entry, limits: Limits) -> bytes:
    """Return a serialized EnvironmentConfig; `actors` is the file's list of actors, for error messages."""
    parts = config.section(("world", "actor_classes", *_CONFIDENCES), required=("world",))
    directory = WorldDirectory(limits, time.monotonic)
    settings = _parse_settings(parts["world"])
    world = _create_world(directory, parts["world"], settings, sum(one.actor_count for one in classes), actors)
    found = content.EnvironmentConfig()
    for name in _CONFIDENCES:
        if name in parts:
            setattr(found, name, parts[name].weight())
    _pack_settings(found.world_settings, settings)
    given = parts.get("actor_classes")
    sections = {} if given is None else given.section([one.id for one in classes])
    size_bytes = 0
    for one in classes:
        section = sections.get(one.id)
        if section is None:
            found.actor_classes.add(id=one.id, deltas=one.has_deltas)
            if one.actor_count:
                config.fail(
                    f"actor class {one.id!r} has no observations: expected for example actor_classes: "
                    f"{{{one.id}: {{observations: [reward]}}}} in {config.path}"
                )
        else:
            parsed, observation_bytes = _parse_class(section, one, directory, world, limits)
            found.actor_classes.append(parsed)
            size_bytes += one.actor_count * observation_bytes
    if size_bytes > limits.max_reply_bytes:
        config.fail(
            f"the observations of all actors take {size_bytes} bytes: expected {limits.max_reply_bytes} at most; "
            "request fewer or smaller frames, or raise --max-reply-bytes"
        )
    data: bytes = found.SerializeToString(deterministic=True)
    return data


def _parse_settings(section: Entry) -> dict[str, Value]:
    """Parse the settings of a world."""
    given = section.mapping()
    if "family" not in given:
        section.fail(f"key 'family' is missing in {section.path}: expected one of {', '.join(known_families())}")
    kind = _parse_family(given["family"][1])
    for name in VECTOR_SETTINGS:
        if name in given:
            given[name][0].fail(f"key {name!r} in {section.path}: expected none, since a trial is a world of one lane")
    table = {one.name: one for one in (*WORLD_SETTINGS, *kind.settings) if one.name not in VECTOR_SETTINGS}
    return _parse_values(section, table)


def _parse_family(name: Entry) -> type[Family]:
    try:
        return find_family(name.text()[:100])
    except FamilyError as error:
        name.fail(str(error))


def _parse_values(section: Entry, table: Mapping[str, Setting]) -> dict[str, Value]:
    """Parse the values of a mapping by a table of settings."""
    values = {}
    for name, value in section.section(table).items():
        try:
            values[name] = table[name].parse(value.scalar(table[name].expected))
        except SettingError as error:
            value.fail(str(error))
    return values


def _create_world(
    directory: WorldDirectory, section: Entry, settings: Mapping[str, Value], actor_count: int, actors: Entry
) -> World:
    """Create the world of a trial; a variable number of agents is set to the number of actors."""
    kind = find_family(str(settings["family"]))
    has_variable_agents = "agents" not in settings and any(one.name == "agents" for one in kind.settings)
    try:
        world = directory.create({**settings, **({"agents": actor_count} if has_variable_agents else {})})
    except RequestError as error:
        (actors if has_variable_agents and "'agents'" in str(error) else section).fail(str(error))
    agents = world.pool.family.agents
    if agents != actor_count:
        actors.fail(
            f"{actors.path} has {actor_count} actors: expected {agents}, as many as agents in this world of {kind.name}"
        )
    return world


def _parse_class(
    section: Entry, actor_class: ActorClass, directory: WorldDirectory, world: World, limits: Limits
) -> tuple[content.ActorClass, int]:
    """Parse an actor class; return it and the size in bytes of the observations of one of its actors."""
    parts = section.section(("join", OBSERVATIONS, "deltas"), required=(OBSERVATIONS,))
    join_settings = _parse_join_settings(parts["join"]) if "join" in parts else {}
    names = parts[OBSERVATIONS].items()
    observation_bytes = _check_join(section, join_settings, names, directory, world, limits)
    deltas = parts["deltas"].flag() if "deltas" in parts else actor_class.has_deltas
    parsed = content.ActorClass(
        id=actor_class.id, deltas=deltas, requested_observations=[name.text() for name in names]
    )
    _pack_settings(parsed.join_settings, join_settings)
    return parsed, observation_bytes


def _parse_join_settings(section: Entry) -> dict[str, Value]:
    for name, (key, _) in section.mapping().items():
        if name in _FIXED_JOIN_SETTINGS:
            key.fail(f"key {name!r} in {section.path}: expected none, since {_FIXED_JOIN_SETTINGS[name]}")
    return _parse_values(section, {one.name: one for one in JOIN_SETTINGS if one.name not in _FIXED_JOIN_SETTINGS})


def _check_join(
    section: Entry,
    join_settings: Mapping[str, Value],
    names: Sequence[Entry],
    directory: WorldDirectory,
    world: World,
    limits: Limits,
) -> int:
    """Check that an agent can join with these observations; return their size in bytes."""
    layout_cache = ReplyLayoutCache(_no_layout, limits, directory.memory)
    try:
        agent = directory.join(world, join_settings, layout_cache)
    except RequestError as error:
        section.fail(str(error))
    offered = {one.name: one for one in agent.specs.observations.values()}
    for index, name in enumerate(names):
        name.choice(offered)
        if any(name.text() == other.text() for other in names[:index]):
            name.raise_expected("each observation once")
    requested = tuple(offered[name.text()] for name in names)
    try:
        layout_cache.check_size(agent.specs, requested, "a tick")
    except RequestError as error:
        section.fail(str(error))
    directory.leave(agent)
    return sum(one.data_bytes for one in requested)


def _no_layout(_: tuple[ObservationSpec, ...]) -> ReplyLayout:
    raise AssertionError("a layout was asked for: expected none, since this directory draws nothing")


def _pack_settings(tensors: "Mapping[str, object]", settings: Mapping[str, Value]) -> None:
    """Write settings into a map of tensors; integers that do not fit into int64 become uint64."""
    for name, value in settings.items():
        dtype = "uint64" if type(value) is int and value >= 2**63 else None
        pack(tensors[name], np.asarray(value, dtype))
