"""Settings of a server's trials, and the actors that a trial's parameters name.

`files/trial_file.py` reads TrialSettings from the file of `worldloom serve --cogment`. Hooks may replace the parameters
of a single trial, so they are checked again, by `parse_actors`, before each trial.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from worldloom.protos.addresses import TcpAddress, parse_address
from worldloom.protos.cogment.api.common_pb2 import ActorConfig, TrialParams
from worldloom.protos.errors import InvalidArgument
from worldloom.server.dm_env_rpc.tensors import shown

HUMAN = "human"
"""Endpoint of actors whose actions come through the Trial service."""
BUILT_IN = "worldloom"
"""Endpoint of the environment in this server's own engine."""
SCHEME = "grpc://"
ENDPOINT_FORM = "grpc://HOST:PORT"
"""Form of all other endpoints, for error messages."""
ENVIRONMENT_ID = -1
"""Id of the environment as the sender or receiver of a message."""
_MAX_ACTORS = 4096

ActorIds: TypeAlias = Literal["class_order", "file_order"]
"""Order in which actors get their ids: class by class, as the Cogment SDK counts them, or as the file lists them."""
AgentFailure: TypeAlias = Literal["end", "idle"]
"""Effect on a trial of an agent that fails or misses its deadline: end it, or continue without its action."""


@dataclass(frozen=True)
class TrialSettings:
    """Settings that every trial of a server starts from."""

    actor_classes: tuple[str, ...]
    """Ids of the classes, in the order of `actor_counts`."""
    params: TrialParams
    """Parameters before hooks change them. Endpoints are HUMAN, BUILT_IN or grpc://HOST:PORT."""
    pre_hooks: tuple[str, ...] = ()
    """Endpoints of TrialHooks services, called in this order."""
    datalog_file: Path | None = None
    """File to which a length-delimited DatalogSample is appended for each tick."""
    datalog_endpoint: str | None = None
    """Endpoint of a LogExporter service."""
    deadline_s: float = 10.0
    """Timeout of each call to an agent, a remote environment or a hook."""
    actor_ids: ActorIds = "class_order"
    on_agent_failure: AgentFailure = "end"
    max_trials: int = 1024
    """Maximum number of trials that run at the same time."""


@dataclass(frozen=True)
class Actor:
    """An actor of a trial, as the trial's parameters describe it."""

    id: int
    class_id: str
    endpoint: str
    config: ActorConfig | None

    @property
    def is_human(self) -> bool:
        """Return whether its actions come through the Trial service."""
        return self.endpoint == HUMAN

    def __str__(self) -> str:
        return f"{'human' if self.is_human else 'agent'} {self.id} ({self.class_id})"


@dataclass(frozen=True)
class Actors:
    """All actors of a trial."""

    all: tuple[Actor, ...]
    """In the order of their ids."""
    counts: tuple[int, ...]
    """Number of actors of each class."""

    @cached_property
    def humans(self) -> tuple[Actor, ...]:
        """Actors whose actions come through the Trial service."""
        return tuple(actor for actor in self.all if actor.is_human)

    @cached_property
    def agents(self) -> tuple[Actor, ...]:
        """Actors whose actions come from an Agent service."""
        return tuple(actor for actor in self.all if not actor.is_human)

    def find(self, actor_id: int) -> Actor:
        """Return the actor with an id; raise InvalidArgument if there is none."""
        if not 0 <= actor_id < len(self.all):
            raise InvalidArgument(f"actor_id is {actor_id}: expected an actor of the trial, 0 to {len(self.all) - 1}")
        return self.all[actor_id]


def parse_actors(params: TrialParams, actor_classes: Sequence[str], order: ActorIds = "class_order") -> Actors:
    """Return the actors that parameters name, in the order of their ids; raise InvalidArgument if they are invalid."""
    _check_params(params, actor_classes)
    in_order = list(params.actors)
    if order == "class_order":
        in_order.sort(key=lambda given: actor_classes.index(given.actor_class))
    actors = tuple(
        Actor(actor_id, given.actor_class, given.endpoint, given.config if given.HasField("config") else None)
        for actor_id, given in enumerate(in_order)
    )
    names = [actor.class_id for actor in actors]
    return Actors(actors, tuple(names.count(name) for name in actor_classes))


def parse_endpoint(endpoint: str) -> str:
    """Return the gRPC target of an endpoint; raise ValueError unless it is grpc://HOST:PORT."""
    error = ValueError(f"endpoint {endpoint[:100]!r}: expected {ENDPOINT_FORM}")
    if not endpoint.startswith(SCHEME):
        raise error
    try:
        address = parse_address(endpoint.removeprefix(SCHEME))
    except ValueError:
        raise error from None
    if not isinstance(address, TcpAddress):
        raise error
    return str(address)


def _check_params(params: TrialParams, actor_classes: Sequence[str]) -> None:
    if not 1 <= len(params.actors) <= _MAX_ACTORS:
        raise InvalidArgument(f"{len(params.actors)} actors: expected 1 to {_MAX_ACTORS}")
    for index, actor in enumerate(params.actors):
        if actor.actor_class not in actor_classes:
            raise InvalidArgument(
                f"actors[{index}].actor_class is {shown(actor.actor_class)}: expected one of {', '.join(actor_classes)}"
            )
        _check_endpoint(f"actors[{index}]", actor.endpoint, HUMAN)
    _check_endpoint("environment", params.environment.endpoint, BUILT_IN)


def _check_endpoint(owner: str, endpoint: str, keyword: str) -> None:
    if endpoint != keyword:
        try:
            parse_endpoint(endpoint)
        except ValueError:
            raise InvalidArgument(
                f"{owner}.endpoint is {shown(endpoint)}: expected {keyword} or {ENDPOINT_FORM}"
            ) from None
