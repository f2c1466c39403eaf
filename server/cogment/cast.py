"""Who takes part in a trial: its actors in the order of their ids, as its parameters name them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from worldloom.protos.cogment.api.common_pb2 import ActorConfig, TrialParams
from worldloom.server.cogment.endpoints import EXPECTED, target_of
from worldloom.server.cogment.settings import BUILT_IN, HUMAN
from worldloom.server.env_rpc.tensors import shown
from worldloom.server.errors import InvalidArgument

ENVIRONMENT_ID = -1
"""What the environment is called as the sender or receiver of a message."""
_MOST_ACTORS = 4096


@dataclass(frozen=True)
class Actor:
    """An actor."""

    id: int
    class_id: str
    endpoint: str
    config: ActorConfig | None

    @property
    def is_human(self) -> bool:
        """Whether its actions come through the Trial service."""
        return self.endpoint == HUMAN

    def __str__(self) -> str:
        return f"{'human' if self.is_human else 'agent'} {self.id} ({self.class_id})"


@dataclass(frozen=True)
class Cast:
    """All actors of a trial."""

    actors: tuple[Actor, ...]
    """By id."""
    counts: tuple[int, ...]
    """For each class."""

    @cached_property
    def humans(self) -> tuple[Actor, ...]:
        """Those who act through the Trial service."""
        return tuple(actor for actor in self.actors if actor.is_human)

    @cached_property
    def agents(self) -> tuple[Actor, ...]:
        """Those who are asked at their endpoints."""
        return tuple(actor for actor in self.actors if not actor.is_human)

    def find(self, actor_id: int, called: str = "actor_id") -> Actor:
        """The actor of an id."""
        if not 0 <= actor_id < len(self.actors):
            raise InvalidArgument(f"{called} is {actor_id}: expected one of the trial's, 0 to {len(self.actors) - 1}")
        return self.actors[actor_id]


def cast_of(params: TrialParams, actor_classes: Sequence[str]) -> Cast:
    """The actors that parameters name, class by class; parameters that cannot be raise InvalidArgument."""
    _check(params, actor_classes)
    in_order = [given for name in actor_classes for given in params.actors if given.actor_class == name]
    actors = tuple(
        Actor(actor_id, given.actor_class, given.endpoint, given.config if given.HasField("config") else None)
        for actor_id, given in enumerate(in_order)
    )
    names = [actor.class_id for actor in actors]
    return Cast(actors, tuple(names.count(name) for name in actor_classes))


def _check(params: TrialParams, actor_classes: Sequence[str]) -> None:
    if not 1 <= len(params.actors) <= _MOST_ACTORS:
        raise InvalidArgument(f"{len(params.actors)} actors: expected 1 to {_MOST_ACTORS}")
    for place, actor in enumerate(params.actors):
        if actor.actor_class not in actor_classes:
            raise InvalidArgument(
                f"actors[{place}].actor_class is {shown(actor.actor_class)}: expected one of {', '.join(actor_classes)}"
            )
        _check_endpoint(f"actors[{place}]", actor.endpoint, HUMAN)
    _check_endpoint("environment", params.environment.endpoint, BUILT_IN)


def _check_endpoint(whose: str, endpoint: str, word: str) -> None:
    if endpoint != word:
        try:
            target_of(endpoint)
        except ValueError:
            raise InvalidArgument(f"{whose}.endpoint is {shown(endpoint)}: expected {word} or {EXPECTED}") from None
