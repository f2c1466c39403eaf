"""The human side of a trial: who has joined, who has acted in this tick, and who waits for an answer."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from worldloom.protos.cogment.api.orchestrator_pb2 import TrialActionReply
from worldloom.server.cogment.cast import Actor, Cast
from worldloom.server.errors import FailedPrecondition, InvalidArgument, Refusal


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

    def refuse(self, actor_id: int, refusal: Refusal) -> None:
        """Refuse an actor's action; it may give another in the same tick."""
        seat = self._seats[actor_id]
        assert seat.waiting is not None
        if not seat.waiting.done():
            seat.waiting.set_exception(refusal)
        seat.clear()
        self.show_life()

    def refuse_all(self, make_refusal: Callable[[], Refusal]) -> None:
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
