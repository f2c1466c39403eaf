"""Who takes part in a trial: its actors in the order of their ids, as its parameters name them.

The human side of a trial: who has joined, who has acted in this tick, and who waits for an answer.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from worldloom.protos.cogment.api.common_pb2 import ActorConfig, TrialParams
from worldloom.protos.cogment.api.orchestrator_pb2 import TrialActionReply
from worldloom.protos.errors import FailedPrecondition, InvalidArgument, RequestError
from worldloom.server.cogment.orchestrator.connections import EXPECTED, target_of
from worldloom.server.cogment.settings import BUILT_IN, HUMAN
from worldloom.server.dm_env_rpc.tensors import shown

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


class Silence(Exception):  # noqa: N818  # it is how a trial may end
    """Nobody gave a sign of life for too long."""


class Seat:
    """The place of one human actor."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.is_taken = False
        self.action: bytes | None = None
        """Of this tick, once it came."""
        self.waiting: asyncio.Future[TrialActionReply] | None = None
        """The call that brought it."""
        self.is_under_way = False
        """Whether the trial has seen the action: too late to withdraw it."""
        self.missed_last = False
        """Whether the last answer reached nobody."""

    def clear(self) -> None:
        """Be ready for the next action."""
        self.action = self.waiting = None
        self.is_under_way = False


class Seats:
    """The human actors of one trial."""

    def __init__(self, cast: Cast, clock: Callable[[], float] = time.monotonic) -> None:
        self._cast = cast
        self._clock = clock
        self._seats = {actor.id: Seat(actor) for actor in cast.humans}
        self._acted = asyncio.Event()
        self._last_sign_s = self._clock()

    def show_life(self) -> None:
        """Somebody is there, or has just been answered: silence is counted from now on."""
        self._last_sign_s = self._clock()

    def join(self, actor_id: int) -> Actor:
        """Take a seat: that of an actor, or the first that is free."""
        if actor_id >= 0:
            seat = self._find(actor_id)
            if seat.is_taken:
                raise FailedPrecondition(
                    f"actor {actor_id} has joined already: expected a human actor that is free, or -1 for any such"
                )
        else:
            free = [seat for seat in self._seats.values() if not seat.is_taken]
            if not free:
                raise FailedPrecondition(
                    f"all {len(self._seats)} human actors of the trial have joined: expected one that is free"
                )
            seat = free[0]
        seat.is_taken = True
        self.show_life()
        return seat.actor

    async def act(self, actor_id: int, content: bytes) -> TrialActionReply:
        """Give an actor's action, and wait for what comes of it. A call that is cancelled takes its action back."""
        seat = self._find(actor_id)
        if not seat.is_taken:
            raise FailedPrecondition(f"actor {actor_id} has not joined: expected Join before its first Action")
        if seat.waiting is not None:
            raise FailedPrecondition(
                f"actor {actor_id} has acted in this tick already: expected one Action in a tick; wait for its answer"
            )
        answer: asyncio.Future[TrialActionReply] = asyncio.get_running_loop().create_future()
        seat.action, seat.waiting = content, answer
        self._acted.set()
        try:
            return await answer
        except asyncio.CancelledError:
            if seat.waiting is answer and not seat.is_under_way:
                seat.clear()
            elif seat.waiting is not answer:
                seat.missed_last = True  # it came, and was on its way when the call was cancelled
            raise

    async def actions(self, patience_s: float) -> dict[int, bytes]:
        """The actions of all human actors, when the last has come; Silence after so long without a sign of life."""
        while any(seat.action is None for seat in self._seats.values()):
            left_s = self._last_sign_s + patience_s - self._clock()
            if left_s <= 0:
                raise Silence
            self._acted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._acted.wait()
        found = {}
        for actor_id, seat in self._seats.items():
            assert seat.action is not None
            seat.is_under_way = True
            found[actor_id] = seat.action
        return found

    def answer(self, actor_id: int, reply: TrialActionReply) -> None:
        """Answer an actor's action."""
        seat = self._seats[actor_id]
        assert seat.waiting is not None
        seat.missed_last = seat.waiting.done()
        if not seat.waiting.done():
            seat.waiting.set_result(reply)
        seat.clear()
        self.show_life()

    def refuse(self, actor_id: int, refusal: RequestError) -> None:
        """Refuse an actor's action; it may give another in the same tick."""
        seat = self._seats[actor_id]
        assert seat.waiting is not None
        if not seat.waiting.done():
            seat.waiting.set_exception(refusal)
        seat.clear()
        self.show_life()

    def refuse_all(self, make_refusal: Callable[[], RequestError]) -> None:
        """Refuse every action that waits."""
        for actor_id, seat in self._seats.items():
            if seat.waiting is not None:
                self.refuse(actor_id, make_refusal())

    @property
    def have_missed_one(self) -> bool:
        """Whether the last answer to somebody got lost."""
        return any(seat.missed_last for seat in self._seats.values())

    def _find(self, actor_id: int) -> Seat:
        actor = self._cast.find(actor_id)
        if not actor.is_human:
            humans = ", ".join(map(str, self._seats)) or "none"
            raise InvalidArgument(f"actor {actor_id} is an agent: expected a human actor; the trial has {humans}")
        return self._seats[actor_id]
