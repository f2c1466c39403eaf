"""The part of a trial file that is about a world of this server: `trial_params.environment.config`.

It becomes the EnvironmentConfig that any other orchestrator would send. What is in it is tried on a directory of worlds
of its own, which draws nothing: a file that is taken can be played.
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
from worldloom.server.engine.directory import WORLD_SETTINGS, WorldDirectory
from worldloom.server.engine.observations import (
    JOIN_SETTINGS,
    OBSERVATIONS,
    ObservationSpec,
    ReplyLayout,
    ReplyLayoutCache,
)
from worldloom.server.engine.world import World
from worldloom.worlds.family import Family
from worldloom.worlds.registry import FamilyError, find_family, known_families
from worldloom.worlds.settings import Setting, SettingError, Value

_NOT_OF_ACTORS = {
    "agent": "an actor is the agent that its place among the actors says",
    "shm": "observations of a trial are sent",
    OBSERVATIONS: "they stand beside 'join'",
}
"""Settings of JoinWorld that actors do not have, and why."""


class ActorClass(NamedTuple):
    """What the rest of the file says about a class."""

    id: str
    actors: int
    has_deltas: bool
    """Whether its observations have a type for deltas."""


def read_world_config(config: Entry, classes: Sequence[ActorClass], actors: Entry, limits: Limits) -> bytes:
    """The content of an EnvironmentConfig; `actors` is where the file counts them."""
    parts = config.section(("world", "actor_classes"), required=("world",))
    directory = WorldDirectory(limits, time.monotonic)
    settings = _read_settings(parts["world"])
    world = _make_world(directory, parts["world"], settings, sum(one.actors for one in classes), actors)
    found = content.EnvironmentConfig()
    _put(found.world_settings, settings)
    sections = _sections(parts.get("actor_classes"), classes)
    size_bytes = 0
    for one in classes:
        section = sections.get(one.id)
        if section is None:
            found.actor_classes.add(id=one.id, deltas=one.has_deltas)
            if one.actors:
                config.fail(
                    f"actor class {one.id!r} sees nothing: expected such as actor_classes: "
                    f"{{{one.id}: {{observations: [reward]}}}} in {config.called}"
                )
        else:
            read, seen_bytes = _read_class(section, one, directory, world, limits)
            found.actor_classes.append(read)
            size_bytes += one.actors * seen_bytes
    if size_bytes > limits.max_reply_bytes:
        config.fail(
            f"the observations of all actors take {size_bytes} bytes: expected {limits.max_reply_bytes} at most; take "
            "fewer or smaller pictures, or raise --max-reply-bytes"
        )
    data: bytes = found.SerializeToString(deterministic=True)
    return data


def _read_settings(section: Entry) -> dict[str, Value]:
    """The settings of a world, checked one by one."""
    given = section.mapping()
    if "family" not in given:
        section.fail(f"key 'family' is missing in {section.called}: expected one of {', '.join(known_families())}")
    kind = _read_family(given["family"][1])
    if "lanes" in given:
        given["lanes"][0].fail(f"key 'lanes' in {section.called}: expected none, since a trial is a single world")
    table = {one.name: one for one in (*WORLD_SETTINGS, *kind.settings) if one.name != "lanes"}
    return _take(section, table)


def _read_family(name: Entry) -> type[Family]:
    try:
        return find_family(name.text()[:100])
    except FamilyError as error:
        name.fail(str(error))


def _take(section: Entry, table: Mapping[str, Setting]) -> dict[str, Value]:
    taken = {}
    for name, value in section.section(table).items():
        try:
            taken[name] = table[name].parse(value.scalar(table[name].expected))
        except SettingError as error:
            value.fail(str(error))
    return taken


def _make_world(
    directory: WorldDirectory, section: Entry, settings: Mapping[str, Value], count: int, actors: Entry
) -> World:
    """A world as the trial will have it, with as many agents as there are actors."""
    kind = find_family(str(settings["family"]))
    can_fit = "agents" not in settings and any(one.name == "agents" for one in kind.settings)
    try:
        world = directory.create({**settings, **({"agents": count} if can_fit else {})})
    except RequestError as refusal:
        (actors if can_fit and "'agents'" in str(refusal) else section).fail(str(refusal))
    agents = world.pool.family.agents
    if agents != count:
        actors.fail(
            f"{actors.called} has {count} actors: expected {agents}, as many as agents in this world of {kind.name}"
        )
    return world


def _sections(given: Entry | None, classes: Sequence[ActorClass]) -> dict[str, Entry]:
    return {} if given is None else given.section([one.id for one in classes])


def _read_class(
    section: Entry, about: ActorClass, directory: WorldDirectory, world: World, limits: Limits
) -> tuple[content.ActorClass, int]:
    """A class, and how many bytes each of its actors sees."""
    parts = section.section(("join", OBSERVATIONS, "deltas"), required=(OBSERVATIONS,))
    join = _read_join(parts["join"]) if "join" in parts else {}
    names = parts[OBSERVATIONS].items()
    seen_bytes = _try_to_join(section, join, names, directory, world, limits)
    deltas = parts["deltas"].flag() if "deltas" in parts else about.has_deltas
    found = content.ActorClass(id=about.id, deltas=deltas, requested_observations=[name.text() for name in names])
    _put(found.join_settings, join)
    return found, seen_bytes


def _read_join(section: Entry) -> dict[str, Value]:
    for name, (key, _) in section.mapping().items():
        if name in _NOT_OF_ACTORS:
            key.fail(f"key {name!r} in {section.called}: expected none, since {_NOT_OF_ACTORS[name]}")
    return _take(section, {one.name: one for one in JOIN_SETTINGS if one.name not in _NOT_OF_ACTORS})


def _try_to_join(
    section: Entry,
    join: Mapping[str, Value],
    names: Sequence[Entry],
    directory: WorldDirectory,
    world: World,
    limits: Limits,
) -> int:
    """See whether an agent that joins so is offered these observations. How many bytes they take comes back."""
    layout_cache = ReplyLayoutCache(_lay_nothing_out, limits)
    try:
        agent = directory.join(world, join, layout_cache)
    except RequestError as refusal:
        section.fail(str(refusal))
    offered = {one.name: one for one in agent.specs.observations.values()}
    for number, name in enumerate(names):
        name.choice(offered)
        if any(name.text() == other.text() for other in names[:number]):
            name.refuse("each observation once")
    wanted = tuple(offered[name.text()] for name in names)
    try:
        layout_cache.check_size(agent.specs, wanted, "a tick")
    except RequestError as refusal:
        section.fail(str(refusal))
    directory.leave(agent)
    return sum(one.data_bytes for one in wanted)


def _lay_nothing_out(_: tuple[ObservationSpec, ...]) -> ReplyLayout:
    raise AssertionError("nothing is drawn here")


def _put(tensors: "Mapping[str, object]", settings: Mapping[str, Value]) -> None:
    """Settings as tensors; whole numbers above those of 64 bits with a sign have none."""
    for name, value in settings.items():
        dtype = "uint64" if type(value) is int and value >= 2**63 else None
        pack(tensors[name], np.asarray(value, dtype))
