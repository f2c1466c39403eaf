"""What the bytes in requests mean: our messages for configurations and actions, read and checked.

Observations of actors: the form that the engine paints them in, what changed since the last, and who shares which.

    Observation { observations: { name: Tensor { payload { array }, shape }, … } }

An ObservationDelta lies on the wire as an Observation does, and an entry of a map is a run of bytes. So a delta is put
together from runs of the new observation, and merging it into the last one gives the new one: entries of a map that
come later win.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from worldloom.protos.cogment.api.environment_pb2 import EnvStartRequest
from worldloom.protos.errors import InvalidArgument
from worldloom.protos.wire import field_header
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.environment import WrongAction
from worldloom.server.dm_env_rpc.step_layout import entry_head
from worldloom.server.dm_env_rpc.tensors import ActionReader, settings_from, shown
from worldloom.server.engine.observations import (
    DTYPES_AS_IN_MEMORY,
    OBSERVATIONS,
    ObservationField,
    ObservationRequest,
    ObservationSpec,
    ReplyLayout,
)

M = TypeVar("M", bound=Message)

_DECIDED = {
    "agent": "an actor's id says which agent it is",
    "shm": "observations of trials go to other machines",
    OBSERVATIONS: "requested_observations says it",
}
"""Settings of JoinWorld that actor classes do not have, and why."""


@dataclass(frozen=True)
class ActorClass:
    """Actors who see the same kind of things."""

    id: str
    actors: int
    """How many there are."""
    joining: Mapping[str, object]
    """How they join the world, but for the agent they are."""
    takes_deltas: bool


@dataclass(frozen=True)
class Start:
    """A trial to be."""

    trial_id: str
    world_settings: Mapping[str, object]
    """As for CreateWorld."""
    classes: tuple[ActorClass, ...]

    @property
    def actors(self) -> int:
        """How many there are."""
        return sum(one.actors for one in self.classes)


def read_start(request: EnvStartRequest, defaults: trials_pb2.EnvironmentConfig | None) -> Start:
    """The trial that a request asks for; one without a configuration has the defaults."""
    config = defaults
    if request.HasField("config"):
        config = parse(trials_pb2.EnvironmentConfig, request.config.content, "the environment's configuration")
    if config is None:
        raise InvalidArgument(
            "there is no configuration of the environment: expected config with the content of a "
            "worldloom.trials.EnvironmentConfig, as this server was started without one of its own"
        )
    own = parse(trials_pb2.TrialConfig, request.trial_config.content, "the trial's configuration")
    settings = {
        **_settings(config.world_settings, "the environment's configuration"),
        **_settings(own.world_settings, "the trial's configuration"),
    }
    if "lanes" in settings:
        raise InvalidArgument("world setting 'lanes' is given: expected none, as a trial is a world of one lane")
    return Start(request.trial_id, settings, _classes(config.actor_classes, request.actor_counts))


def read_actions(
    contents: Sequence[bytes], readers: Sequence[Mapping[str, ActionReader]]
) -> list[dict[str, np.ndarray]]:
    """The actions of all actors by name, [1, *shape]; each actor has readers of its own."""
    if len(contents) != len(readers):
        raise InvalidArgument(
            f"{len(contents)} actions came: expected {len(readers)}, one for each actor, in the order of their ids"
        )
    return [_actions_of(actor_id, content, readers[actor_id]) for actor_id, content in enumerate(contents)]


def parse(kind: type[M], content: bytes, what: str) -> M:
    """A message of ours."""
    try:
        message: M = kind.FromString(content)
    except DecodeError as error:
        raise InvalidArgument(
            f"{what} has {len(content)} bytes that cannot be read: expected a {kind.DESCRIPTOR.full_name}"
        ) from error
    return message


def _classes(classes: Sequence[trials_pb2.ActorClass], counts: Sequence[int]) -> tuple[ActorClass, ...]:
    if len(counts) != len(classes):
        raise InvalidArgument(
            f"actor_counts has {len(counts)} numbers: expected {len(classes)}, one for each actor class of the "
            f"environment's configuration ({', '.join(shown(one.id) for one in classes[:8]) or 'it has none'})"
        )
    if any(count < 0 for count in counts):
        raise InvalidArgument(f"actor_counts has {min(counts)}: expected no number below 0")
    if not sum(counts):
        raise InvalidArgument("a trial without actors: expected one at least in actor_counts")
    return tuple(_class(one, count) for one, count in zip(classes, counts, strict=True))


def _class(one: trials_pb2.ActorClass, actors: int) -> ActorClass:
    what = f"actor class {shown(one.id)}"
    joining = _settings(one.join_settings, what)
    for name, why in _DECIDED.items():
        if name in joining:
            raise InvalidArgument(f"{what}: join setting {name!r} is given: expected none, as {why}")
    return ActorClass(one.id, actors, {**joining, OBSERVATIONS: list(one.requested_observations)}, one.deltas)


def _settings(tensors: Mapping[str, object], what: str) -> dict[str, object]:
    try:
        return settings_from(tensors)
    except InvalidArgument as refusal:
        raise InvalidArgument(f"{what}: {refusal}") from refusal


def _actions_of(actor_id: int, content: bytes, readers: Mapping[str, ActionReader]) -> dict[str, np.ndarray]:
    try:
        return _actions(content, readers)
    except InvalidArgument as refusal:
        raise WrongAction(actor_id, f"the action of actor {actor_id}: {refusal}") from refusal


def _actions(content: bytes, readers: Mapping[str, ActionReader]) -> dict[str, np.ndarray]:
    tensors = parse(trials_pb2.Action, content, "its content").actions
    # In order of their names: of several errors it is always the same that is told.
    for name in sorted(tensors):
        if name not in readers:
            raise InvalidArgument(f"{shown(name)} is no action: expected some of {', '.join(readers) or 'none'}")
    return {name: readers[name].read(tensors[name]) for name in sorted(tensors)}


_OBSERVATIONS = trials_pb2.Observation.DESCRIPTOR.fields_by_name["observations"].number
_KEY = 1


def observation_layout(observations: tuple[ObservationSpec, ...]) -> ReplyLayout:
    """The form of an Observation with these, in this order. It does not tell the state."""
    pieces, places, end = {}, [], 0
    for one in observations:
        name = one.name.encode()
        head = entry_head(_OBSERVATIONS, field_header(_KEY, len(name)) + name, one)
        pieces[end] = head
        places.append(ObservationField(end + len(head), one.dtype not in DTYPES_AS_IN_MEMORY))
        end += len(head) + one.data_bytes
    return ReplyLayout(end, pieces, None, tuple(places))


class Seen(NamedTuple):
    """The content of an ObservationData."""

    content: bytes
    is_snapshot: bool


class Memory:
    """What an actor saw last, for one who takes deltas."""

    def __init__(self, wanted: ObservationRequest) -> None:
        ends = [
            place.offset + one.data_bytes for one, place in zip(wanted.observations, wanted.layout.fields, strict=True)
        ]
        self._entries = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        self._last: bytes | None = None

    def forget(self) -> None:
        """It is not sure to have seen it: the next is a snapshot."""
        self._last = None

    def see(self, snapshot: bytes, as_snapshot: bool) -> Seen:
        """The actor sees this next, as a delta if it can be."""
        last, self._last = self._last, snapshot
        if as_snapshot or last is None:
            return Seen(snapshot, is_snapshot=True)
        changed = (snapshot[entry] for entry in self._entries if snapshot[entry] != last[entry])
        return Seen(b"".join(changed), is_snapshot=False)


def share(seen: Sequence[Seen]) -> tuple[list[Seen], list[int]]:
    """Each once, and for each actor which it is."""
    # Contents are not put into a set: bytes remember their hash, and the engine writes these bytes anew.
    distinct: list[Seen] = []
    places = []
    for one in seen:
        if one not in distinct:
            distinct.append(one)
        places.append(distinct.index(one))
    return distinct, places
