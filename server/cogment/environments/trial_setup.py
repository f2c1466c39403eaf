"""Creation of a trial's world from Environment.Start: parse and check its configuration, create the world, join actors.

The configuration is a `worldloom.trials.EnvironmentConfig`, from the request or else from the file of `--cogment`; a
`worldloom.trials.TrialConfig` replaces single settings of the world. Engine thread only.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from worldloom.protos.cogment.api.environment_pb2 import EnvStartRequest
from worldloom.protos.errors import InvalidArgument, RequestError, ResourceExhausted
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.trial_world import (
    RewardConfidence,
    TrialWorld,
    WorldActor,
    observation_layout,
    parse_content,
)
from worldloom.server.dm_env_rpc.tensors import settings_from, shown
from worldloom.server.engine.directory import WorldDirectory
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.observations import ReplyLayoutCache
from worldloom.server.engine.world import World
from worldloom.server.engine.world_settings import OBSERVATIONS, VECTOR_SETTINGS
from worldloom.worlds.registry import FamilyError, find_family
from worldloom.worlds.settings import SettingError

_AGENTS = "agents"
"""Setting of families whose worlds have a variable number of agents."""
_REQUESTED = "requested_observations"
"""Field of an actor class that corresponds to the join setting 'observations'."""
_FIXED_JOIN_SETTINGS = {
    "agent": "an actor's id says which agent it is",
    "shm": "observations of trials go to other machines",
    OBSERVATIONS: "requested_observations says it",
}
"""Settings of JoinWorld that actor classes do not have, and the reason."""


@dataclass(frozen=True)
class ActorClass:
    """Settings of the actors of one class."""

    id: str
    actor_count: int
    join_settings: Mapping[str, object]
    """Settings of JoinWorld, except for the agent's index."""
    takes_deltas: bool


@dataclass(frozen=True)
class TrialStart:
    """A parsed Environment.Start request."""

    trial_id: str
    world_settings: Mapping[str, object]
    """Settings of CreateWorld."""
    classes: tuple[ActorClass, ...]
    actor_order: tuple[str, ...]
    """Class of each actor, by actor id; if empty, actors are in the order of their classes."""
    confidence: RewardConfidence

    @property
    def actor_count(self) -> int:
        """Number of actors of all classes."""
        return sum(one.actor_count for one in self.classes)

    @property
    def actors(self) -> list[ActorClass]:
        """Class of each actor, by actor id."""
        if not self.actor_order:
            return [one for one in self.classes for _ in range(one.actor_count)]
        by_id = {one.id: one for one in self.classes}
        return [by_id[name] for name in self.actor_order]


def create_trial_world(engine: Engine, start: TrialStart, when_over: Callable[[TrialWorld, str], None]) -> TrialWorld:
    """Create the world of a trial and its actors; if any of it is invalid, raise RequestError and leave nothing."""
    directory = engine.directory
    world = directory.create(_world_settings(start))
    try:
        agents = world.pool.family.agents
        if agents != start.actor_count:
            raise InvalidArgument(
                f"the trial has {start.actor_count} actors: expected {agents}, as many as the world of family "
                f"{world.pool.family.name!r} has agents"
            )
        layout_cache = engine.layout_cache(observation_layout)
        actors = [_join(directory, world, index, one, layout_cache) for index, one in enumerate(start.actors)]
        world.trial_id = start.trial_id
        _check_size(actors, engine.limits.max_reply_bytes)
    except RequestError:
        directory.destroy(world)
        raise
    return TrialWorld(engine, start.trial_id, world, actors, start.confidence, when_over)


def parse_start(request: EnvStartRequest, default_config: trials_pb2.EnvironmentConfig | None) -> TrialStart:
    """Parse a request; one without a configuration gets the default."""
    config = default_config
    if request.HasField("config"):
        config = parse_content(trials_pb2.EnvironmentConfig, request.config.content, "the environment's configuration")
    if config is None:
        raise InvalidArgument(
            "the environment has no configuration: expected config with the content of a "
            "worldloom.trials.EnvironmentConfig, since this server was started without a default"
        )
    trial_config = parse_content(trials_pb2.TrialConfig, request.trial_config.content, "the trial's configuration")
    settings = {
        **_unpack_settings(config.world_settings, "the environment's configuration"),
        **_unpack_settings(trial_config.world_settings, "the trial's configuration"),
    }
    for name in VECTOR_SETTINGS:
        if name in settings:
            raise InvalidArgument(
                f"world setting {name!r} is given: expected none, since a trial is a world of one lane"
            )
    classes = _parse_classes(config.actor_classes, request.actor_counts)
    _check_order(config.actor_order, classes)
    confidence = _parse_confidence(config, trial_config)
    return TrialStart(request.trial_id, settings, classes, tuple(config.actor_order), confidence)


def _parse_confidence(config: trials_pb2.EnvironmentConfig, trial_config: trials_pb2.TrialConfig) -> RewardConfidence:
    found = {}
    for name in RewardConfidence._fields:
        for given in (config, trial_config):
            if given.HasField(name):
                found[name] = getattr(given, name)
        if name in found and not (math.isfinite(found[name]) and found[name] >= 0):
            raise InvalidArgument(f"{name} is {found[name]}: expected a finite number, 0 or more")
    return RewardConfidence(**found)


def _check_order(order: Sequence[str], classes: Sequence[ActorClass]) -> None:
    if order and Counter(order) != {one.id: one.actor_count for one in classes if one.actor_count}:
        counts = ", ".join(f"{one.actor_count} of {shown(one.id)}" for one in classes[:8])
        raise InvalidArgument(
            f"actor_order has {len(order)} names: expected one for each actor, as actor_counts says: {counts}"
        )


def _parse_classes(classes: Sequence[trials_pb2.ActorClass], counts: Sequence[int]) -> tuple[ActorClass, ...]:
    if len(counts) != len(classes):
        raise InvalidArgument(
            f"actor_counts has {len(counts)} numbers: expected {len(classes)}, one for each actor class of the "
            f"environment's configuration ({', '.join(shown(one.id) for one in classes[:8]) or 'it has none'})"
        )
    if any(count < 0 for count in counts):
        raise InvalidArgument(f"actor_counts has {min(counts)}: expected no negative number")
    if not sum(counts):
        raise InvalidArgument("actor_counts has no actors: expected at least one")
    return tuple(_parse_class(one, count) for one, count in zip(classes, counts, strict=True))


def _parse_class(one: trials_pb2.ActorClass, actor_count: int) -> ActorClass:
    what = f"actor class {shown(one.id)}"
    settings = _unpack_settings(one.join_settings, what)
    for name, reason in _FIXED_JOIN_SETTINGS.items():
        if name in settings:
            raise InvalidArgument(f"{what}: join setting {name!r} is given: expected none, since {reason}")
    return ActorClass(one.id, actor_count, {**settings, OBSERVATIONS: list(one.requested_observations)}, one.deltas)


def _unpack_settings(tensors: Mapping[str, object], what: str) -> dict[str, object]:
    try:
        return settings_from(tensors)
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}") from error


def _world_settings(start: TrialStart) -> dict[str, object]:
    """Return the settings of CreateWorld; a variable number of agents is set to the number of actors."""
    settings = dict(start.world_settings)
    family = settings.get("family")
    if not isinstance(family, str) or _AGENTS in settings:
        return settings
    try:
        known = {setting.name: setting for setting in find_family(family[:100]).settings}
        if _AGENTS in known:
            settings[_AGENTS] = known[_AGENTS].parse(start.actor_count)
    except FamilyError:
        pass  # reported when the world is created
    except SettingError as error:
        raise InvalidArgument(
            f"the trial has {start.actor_count} actors: expected {known[_AGENTS].expected}, as family {family!r} allows"
        ) from error
    return settings


def _join(
    directory: WorldDirectory, world: World, agent_index: int, one: ActorClass, layout_cache: ReplyLayoutCache
) -> WorldActor:
    try:
        agent = directory.join(world, {**one.join_settings, "agent": agent_index}, layout_cache)
        agent.owner = f"actor {agent_index} ({one.id})"
        return WorldActor(agent, one.takes_deltas)
    except RequestError as error:
        text = re.sub(r"(the join )?setting 'observations'", _REQUESTED, str(error))
        raise type(error)(f"actor class {shown(one.id)}: {text}") from error


def _check_size(actors: Sequence[WorldActor], max_bytes: int) -> None:
    size_bytes = sum(actor.request.data_bytes for actor in actors)
    if size_bytes > max_bytes:
        raise ResourceExhausted(
            f"the observations of {len(actors)} actors take {size_bytes} bytes: expected {max_bytes} at most; request "
            "fewer or smaller frames, or raise --max-reply-bytes"
        )
