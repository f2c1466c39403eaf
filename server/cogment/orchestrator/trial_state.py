"""State of a trial between ticks: the actions of its human actors, feedback, messages, and how the trial ended.

Calls of clients put actions, feedback and messages in; the tick (`trial.py`) takes them out. All of it belongs to the
event loop. Feedback and messages are checked (`check`) before they are taken (`add`), so that a request with an invalid
part changes nothing.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from worldloom.protos.cogment.api.agent_pb2 import MessageCollection, Reward
from worldloom.protos.cogment.api.common_pb2 import Feedback, Message
from worldloom.protos.cogment.api.orchestrator_pb2 import TrialActionReply
from worldloom.protos.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    RequestError,
    ResourceExhausted,
    Unavailable,
)
from worldloom.server.cogment.settings import ENVIRONMENT_ID, Actor, Actors
from worldloom.server.dm_env_rpc.tensors import shown

LATEST_TICK = -1
"""Tick id of feedback for the current tick, whichever that is."""
_MAX_BYTES = 16 << 20
"""Maximum size of the messages, and of the feedback, that a trial holds."""
_OVERHEAD_BYTES = 64
"""Approximate memory of a message or feedback besides its content."""


@dataclass(frozen=True)
class Ending:
    """Reason for the end of a trial."""

    reason: str
    kind: type[RequestError] = FailedPrecondition
    """Error of calls that are waiting when the trial ends."""

    def error(self, trial_id: str) -> RequestError:
        """Return the error for a call that was waiting when the trial ended."""
        return self.kind(f"trial {shown(trial_id)} is over: {self.reason}")

    def late_error(self, trial_id: str) -> RequestError:
        """Return the error for a call that comes after the end.

        After a failure it has the code of a call that was waiting: clients cannot know which of the two theirs is.
        """
        is_failure = issubclass(self.kind, Unavailable | DeadlineExceeded | Internal)
        kind = self.kind if is_failure else FailedPrecondition
        return kind(f"trial {shown(trial_id)} is over: {self.reason}; start another")


class TrialEnded(Exception):  # noqa: N818  # seldom an error
    """Signal from inside a tick that the trial ends here."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending

    @classmethod
    def by_failure(cls, error: RequestError, participant: str = "") -> "TrialEnded":
        """Return the end of a trial by a failed agent or environment, which the text names.

        Clients get an error of the server, not of their request: INTERNAL, UNAVAILABLE or DEADLINE_EXCEEDED.
        """
        kind = type(error) if isinstance(error, Unavailable | DeadlineExceeded) else Internal
        text = str(error)
        return cls(Ending(text if participant in text else f"{participant}: {text}", kind))


class HumanActor:
    """State of one human actor in the current tick."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.has_joined = False
        self.action: bytes | None = None
        """Action of this tick, once it was given."""
        self.reply: asyncio.Future[TrialActionReply] | None = None
        """Reply that the Action call waits for."""
        self.is_in_tick = False
        """True once the tick has taken the action, which can no longer be withdrawn."""
        self.missed_last = False
        """True if the last reply did not reach the client."""

    def clear(self) -> None:
        """Remove the action, ready for the next one."""
        self.action = self.reply = None
        self.is_in_tick = False


class HumanActors:
    """The human actors of a trial: which have joined, their actions of this tick, and when they were last active."""

    def __init__(self, actors: Actors, clock: Callable[[], float] = time.monotonic) -> None:
        self._actors = actors
        self._clock = clock
        self._humans = {actor.id: HumanActor(actor) for actor in actors.humans}
        self._has_acted = asyncio.Event()
        self._last_active_s = self._clock()

    def mark_active(self) -> None:
        """Restart the inactivity timeout: a client has called, or was just answered."""
        self._last_active_s = self._clock()

    def join(self, actor_id: int) -> Actor:
        """Join as the actor with this id, or as the first that is free if it is negative; return the actor."""
        if actor_id >= 0:
            human = self._find(actor_id)
            if human.has_joined:
                raise FailedPrecondition(
                    f"actor {actor_id} has joined already: expected a human actor that is free, or -1 for any of those"
                )
        else:
            free = [human for human in self._humans.values() if not human.has_joined]
            if not free:
                raise FailedPrecondition(
                    f"all {len(self._humans)} human actors of the trial have joined: expected one that is free"
                )
            human = free[0]
        human.has_joined = True
        self.mark_active()
        return human.actor

    def has_joined(self, actor_id: int) -> bool:
        """Return whether a client has joined as this human actor."""
        return self._humans[actor_id].has_joined

    async def act(self, actor_id: int, content: bytes) -> TrialActionReply:
        """Give an actor's action and return the reply of its tick. Cancelling the call withdraws the action."""
        human = self._find(actor_id)
        if not human.has_joined:
            raise FailedPrecondition(f"actor {actor_id} has not joined: expected Join before its first Action")
        if human.reply is not None:
            raise FailedPrecondition(
                f"actor {actor_id} has acted in this tick already: expected one Action in a tick; wait for its reply"
            )
        reply: asyncio.Future[TrialActionReply] = asyncio.get_running_loop().create_future()
        human.action, human.reply = content, reply
        self._has_acted.set()
        try:
            return await reply
        except asyncio.CancelledError:
            if human.reply is reply and not human.is_in_tick:
                human.clear()
            elif human.reply is not reply:
                human.missed_last = True  # the reply was already on its way when the call was cancelled
            raise

    @property
    def inactive_s(self) -> float:
        """Time since the last activity of a client."""
        return self._clock() - self._last_active_s

    async def collect_actions(self, timeout_s: float) -> dict[int, bytes]:
        """Wait for the actions of all human actors and return them by actor id.

        Raises TimeoutError after `timeout_s` without activity of any human.
        """
        while any(human.action is None for human in self._humans.values()):
            remaining_s = timeout_s - self.inactive_s
            if remaining_s <= 0:
                raise TimeoutError
            self._has_acted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining_s):
                    await self._has_acted.wait()
        actions = {}
        for actor_id, human in self._humans.items():
            assert human.action is not None
            human.is_in_tick = True
            actions[actor_id] = human.action
        return actions

    def answer(self, actor_id: int, reply: TrialActionReply) -> None:
        """Reply to an actor's action."""
        human = self._humans[actor_id]
        assert human.reply is not None
        human.missed_last = human.reply.done()
        if not human.reply.done():
            human.reply.set_result(reply)
        human.clear()
        self.mark_active()

    def fail(self, actor_id: int, error: RequestError) -> None:
        """Answer an actor's action with an error; it may give another one in the same tick."""
        human = self._humans[actor_id]
        assert human.reply is not None
        if not human.reply.done():
            human.reply.set_exception(error)
        human.clear()
        self.mark_active()

    def fail_all(self, build_error: Callable[[], RequestError]) -> None:
        """Answer all waiting actions with an error."""
        for actor_id, human in self._humans.items():
            if human.reply is not None:
                self.fail(actor_id, build_error())

    @property
    def have_missed_last(self) -> bool:
        """Return whether the last reply to any of them did not reach its client."""
        return any(human.missed_last for human in self._humans.values())

    def _find(self, actor_id: int) -> HumanActor:
        human = self._humans.get(actor_id)
        if human is None:
            self._actors.find(actor_id)  # raises if there is no such actor
            humans = ", ".join(map(str, self._humans)) or "none"
            raise InvalidArgument(f"actor {actor_id} is an agent: expected a human actor; the trial has {humans}")
        return human


class MessageQueue:
    """Messages of a trial that wait for their receivers, delivered once a tick. Clients send for human actors only."""

    def __init__(self, actor_count: int, keeps_copies: bool, humans: Collection[int] = ()) -> None:
        self._actor_count = actor_count
        self._client_ids = humans or (ENVIRONMENT_ID,)
        self._waiting: dict[int, list[Message]] = {}
        """Messages by receiver id."""
        self._size_bytes = 0
        self._copies: dict[int, list[Message]] | None = {} if keeps_copies else None
        """All messages of this tick by receiver id, for the datalog."""

    @property
    def has_messages(self) -> bool:
        """Return whether any message waits."""
        return bool(self._waiting)

    def check(self, messages: Sequence[Message]) -> None:
        """Raise RequestError for messages that are invalid or too large."""
        for message in messages:
            if not ENVIRONMENT_ID <= message.receiver_id < self._actor_count:
                raise InvalidArgument(
                    f"a message to receiver_id {message.receiver_id}: expected an actor of the trial, 0 to "
                    f"{self._actor_count - 1}, or -1 for the environment"
                )
        if self._size_bytes + _messages_bytes(messages) > _MAX_BYTES:
            raise ResourceExhausted(
                f"more than {_MAX_BYTES} bytes of messages would wait: expected at most that; send less, or wait until "
                "the trial advances"
            )

    def check_from_clients(self, messages: Sequence[Message]) -> None:
        """Raise RequestError for messages that are invalid, too large, or not from a human actor."""
        for message in messages:
            if message.sender_id not in self._client_ids:
                raise InvalidArgument(
                    f"a message from sender_id {message.sender_id}: expected a human actor of the trial, one of "
                    f"{', '.join(map(str, self._client_ids))}"
                )
        self.check(messages)

    def add(self, messages: Sequence[Message], sender_id: int | None = None) -> None:
        """Add checked messages. `sender_id` replaces the sender that they name."""
        self._size_bytes += _messages_bytes(messages)
        for given in messages:
            message = Message()
            message.CopyFrom(given)
            if sender_id is not None:
                message.sender_id = sender_id
            self._waiting.setdefault(message.receiver_id, []).append(message)
            if self._copies is not None:
                self._copies.setdefault(message.receiver_id, []).append(message)

    def pop(self, receiver_id: int) -> list[Message]:
        """Remove and return the messages to a receiver, oldest first."""
        messages = self._waiting.pop(receiver_id, [])
        self._size_bytes -= _messages_bytes(messages)
        return messages

    def pop_copies(self) -> list[MessageCollection]:
        """Return all messages since the last call, by receiver: each actor, then the environment."""
        if self._copies is None:
            return []
        copies, self._copies = self._copies, {}
        return self.by_receiver([message for received in copies.values() for message in received])

    def by_receiver(self, messages: Sequence[Message]) -> list[MessageCollection]:
        """Return messages by receiver: each actor, then the environment."""
        received = [MessageCollection() for _ in range(self._actor_count + 1)]
        for message in messages:
            received[message.receiver_id].messages.append(message)  # the environment is -1: the last
        return received


def _messages_bytes(messages: Sequence[Message]) -> int:
    return sum(len(message.payload.value) + _OVERHEAD_BYTES for message in messages)


class RewardAccumulator:
    """Feedback of a trial by tick and actor, combined into rewards.

    For an agent a tick is open until its reward is sent, in the following tick; for a human until the tick ends, since
    the reply to its action has the reward. Feedback for a tick that is not open is late: only the datalog gets it.
    """

    def __init__(self, actor_count: int, humans: Collection[int] = ()) -> None:
        self.tick = 0
        """Current tick."""
        self.actor_count = actor_count
        self.totals = [0.0] * actor_count
        """Sum of the rewards of each actor, of the ticks that are closed."""
        self._humans = frozenset(humans)
        self._open: dict[int, list[list[Feedback]]] = {0: self._no_feedback()}
        self._late = self._no_feedback()
        self._size_bytes = 0

    @property
    def open_ticks(self) -> tuple[int, ...]:
        """Ticks whose rewards are not computed, in order."""
        return tuple(self._open)

    def check(self, feedbacks: Sequence[Feedback]) -> None:
        """Raise RequestError for feedback that is invalid or too large."""
        for feedback in feedbacks:
            if feedback.actor_id >= self.actor_count:
                raise InvalidArgument(
                    f"feedback for actor {feedback.actor_id}: expected an actor of the trial, 0 to "
                    f"{self.actor_count - 1}"
                )
            if not LATEST_TICK <= feedback.tick_id <= self.tick:
                raise InvalidArgument(
                    f"feedback for tick {feedback.tick_id}: expected 0 to {self.tick}, or -1 for the latest"
                )
            if not (math.isfinite(feedback.value) and math.isfinite(feedback.confidence)):
                raise InvalidArgument(
                    f"feedback of value {feedback.value} and confidence {feedback.confidence}: expected finite numbers"
                )
        if self._size_bytes + _feedbacks_bytes(feedbacks) > _MAX_BYTES:
            raise ResourceExhausted(
                f"more than {_MAX_BYTES} bytes of feedback in a tick: expected at most that; send less, or wait until "
                "the trial advances"
            )

    def add(self, feedbacks: Sequence[Feedback]) -> None:
        """Add checked feedback."""
        self._size_bytes += _feedbacks_bytes(feedbacks)
        for feedback in map(self.with_tick, feedbacks):
            is_late = feedback.tick_id < self.tick and feedback.actor_id in self._humans
            given = self._late if is_late else self._open.get(feedback.tick_id, self._late)
            given[feedback.actor_id].append(feedback)

    def with_tick(self, given: Feedback) -> Feedback:
        """Return a copy of feedback that names the tick which it is for."""
        feedback = Feedback()
        feedback.CopyFrom(given)
        if feedback.tick_id == LATEST_TICK:
            feedback.tick_id = self.tick
        return feedback

    def reward_of(self, tick: int, actor_id: int) -> Reward:
        """Return an actor's reward of an open tick, from the feedback so far."""
        return combine_feedback(self._open[tick][actor_id])

    def advance(self) -> None:
        """Begin the next tick."""
        self.tick += 1
        self._open[self.tick] = self._no_feedback()

    def close_tick(self, tick: int) -> list[Reward]:
        """Return the reward of each actor for a tick; from now on feedback for it is late."""
        given = self._open.pop(tick)
        self._size_bytes -= sum(map(_feedbacks_bytes, given))
        rewards = [combine_feedback(feedbacks) for feedbacks in given]
        self.totals = [total + reward.value for total, reward in zip(self.totals, rewards, strict=True)]
        return rewards

    def pop_late(self) -> list[list[Feedback]]:
        """Remove and return the late feedback of each actor."""
        late, self._late = self._late, self._no_feedback()
        self._size_bytes -= sum(map(_feedbacks_bytes, late))
        return late

    def _no_feedback(self) -> list[list[Feedback]]:
        return [[] for _ in range(self.actor_count)]


def combine_feedback(feedbacks: Sequence[Feedback]) -> Reward:
    """Return the mean of the values weighted by confidence, and the mean confidence; those without are ignored."""
    counted = [(one.value, one.confidence) for one in feedbacks if one.confidence > 0]
    if not counted:
        return Reward(feedbacks=feedbacks)
    weight = math.fsum(confidence for _, confidence in counted)
    value = math.fsum(value * confidence for value, confidence in counted) / weight
    return Reward(value=value, confidence=weight / len(counted), feedbacks=feedbacks)


def _feedbacks_bytes(feedbacks: Sequence[Feedback]) -> int:
    return sum(len(feedback.content) + _OVERHEAD_BYTES for feedback in feedbacks)
