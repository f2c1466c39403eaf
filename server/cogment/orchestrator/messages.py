"""Messages between the actors of a trial and its environment: gathered as they come, handed over once a tick.

Feedback becomes rewards: what was said about an actor in a tick is weighed into one number.
"""

import math
from collections.abc import Sequence

from worldloom.protos.cogment.api.agent_pb2 import MessageCollection, Reward
from worldloom.protos.cogment.api.common_pb2 import Feedback, Message
from worldloom.protos.errors import InvalidArgument, ResourceExhausted
from worldloom.server.cogment.orchestrator.actors import ENVIRONMENT_ID

_MOST_BYTES = 16 << 20
_BESIDES_BYTES = 64
"""What a message takes in memory besides its payload, about."""


class Mail:
    """The messages of one trial that wait for their receivers."""

    def __init__(self, actors: int, keeps_copies: bool) -> None:
        self._actors = actors
        self._waiting: dict[int, list[Message]] = {}
        self._message_bytes = 0
        self._copies: dict[int, list[Message]] | None = {} if keeps_copies else None
        """All that was posted in this tick, for the datalog."""

    @property
    def is_waiting(self) -> bool:
        """Whether there is any."""
        return bool(self._waiting)

    def check(self, messages: Sequence[Message]) -> None:
        """Refuse what cannot be."""
        for message in messages:
            if not ENVIRONMENT_ID <= message.receiver_id < self._actors:
                raise InvalidArgument(
                    f"a message to receiver_id {message.receiver_id}: expected an actor of the trial, 0 to "
                    f"{self._actors - 1}, or -1 for the environment"
                )
        if self._message_bytes + _message_bytes(messages) > _MOST_BYTES:
            raise ResourceExhausted(
                f"messages of more than {_MOST_BYTES} bytes would wait: expected no more; send less, or let the trial "
                "move on first"
            )

    def post(self, messages: Sequence[Message], sender_id: int | None = None) -> None:
        """Take what was checked, from whom it says or from one who is known."""
        self._message_bytes += _message_bytes(messages)
        for given in messages:
            message = Message()
            message.CopyFrom(given)
            if sender_id is not None:
                message.sender_id = sender_id
            self._waiting.setdefault(message.receiver_id, []).append(message)
            if self._copies is not None:
                self._copies.setdefault(message.receiver_id, []).append(message)

    def collect(self, receiver_id: int) -> list[Message]:
        """What waits for a receiver, in the order in which it came."""
        messages = self._waiting.pop(receiver_id, [])
        self._message_bytes -= _message_bytes(messages)
        return messages

    def take_copies(self) -> list[MessageCollection]:
        """What was posted since the last time: for each actor, then for the environment."""
        if self._copies is None:
            return []
        copies, self._copies = self._copies, {}
        receivers = (*range(self._actors), ENVIRONMENT_ID)
        return [MessageCollection(messages=copies.get(receiver, ())) for receiver in receivers]


def _message_bytes(messages: Sequence[Message]) -> int:
    return sum(len(one.payload.value) + _BESIDES_BYTES for one in messages)


LATEST_TICK = -1
"""As the tick of a feedback: the one that is under way."""
"""What a feedback takes in memory besides its content, about."""


class Ledger:
    """The feedback of one trial. A tick is open until it is settled; what is said of older ones is late."""

    def __init__(self, actors: int) -> None:
        self.tick = 0
        """The latest."""
        self._actors = actors
        self._open: dict[int, list[list[Feedback]]] = {0: self._blank()}
        self._late = self._blank()
        self._feedback_bytes = 0

    @property
    def open_ticks(self) -> tuple[int, ...]:
        """Those that are not settled, in order."""
        return tuple(self._open)

    def check(self, feedbacks: Sequence[Feedback]) -> None:
        """Refuse what cannot be."""
        for feedback in feedbacks:
            if feedback.actor_id >= self._actors:
                raise InvalidArgument(
                    f"feedback for actor {feedback.actor_id}: expected one of the trial's, 0 to {self._actors - 1}"
                )
            if not LATEST_TICK <= feedback.tick_id <= self.tick:
                raise InvalidArgument(
                    f"feedback for tick {feedback.tick_id}: expected 0 to {self.tick}, or -1 for the latest"
                )
            if not (math.isfinite(feedback.value) and math.isfinite(feedback.confidence)):
                raise InvalidArgument(
                    f"feedback of value {feedback.value} and confidence {feedback.confidence}: expected finite numbers"
                )
        if self._feedback_bytes + _feedback_bytes(feedbacks) > _MOST_BYTES:
            raise ResourceExhausted(
                f"feedback of more than {_MOST_BYTES} bytes in a tick: expected no more; send less, or let the trial "
                "move on first"
            )

    def take(self, feedbacks: Sequence[Feedback]) -> None:
        """Take what was checked."""
        self._feedback_bytes += _feedback_bytes(feedbacks)
        for given in feedbacks:
            feedback = Feedback()
            feedback.CopyFrom(given)
            if feedback.tick_id == LATEST_TICK:
                feedback.tick_id = self.tick
            self._open.get(feedback.tick_id, self._late)[feedback.actor_id].append(feedback)

    def advance(self) -> None:
        """The next tick begins."""
        self.tick += 1
        self._open[self.tick] = self._blank()

    def settle(self, tick: int) -> list[Reward]:
        """The rewards of a tick, one for each actor. What is said of it from now on is late."""
        given = self._open.pop(tick)
        self._feedback_bytes -= sum(map(_feedback_bytes, given))
        return [reward_of(feedbacks) for feedbacks in given]

    def take_late(self) -> list[list[Feedback]]:
        """Late feedback for each actor, which nobody but the datalog is told."""
        late, self._late = self._late, self._blank()
        self._feedback_bytes -= sum(map(_feedback_bytes, late))
        return late

    def _blank(self) -> list[list[Feedback]]:
        return [[] for _ in range(self._actors)]


def reward_of(feedbacks: Sequence[Feedback]) -> Reward:
    """The mean of the values by confidence; the confidence is the mean one. Without confidence nothing counts."""
    counted = [(one.value, one.confidence) for one in feedbacks if one.confidence > 0]
    if not counted:
        return Reward(feedbacks=feedbacks)
    weight = math.fsum(confidence for _, confidence in counted)
    value = math.fsum(value * confidence for value, confidence in counted) / weight
    return Reward(value=value, confidence=weight / len(counted), feedbacks=feedbacks)


def _feedback_bytes(feedbacks: Sequence[Feedback]) -> int:
    return sum(len(one.content) + _BESIDES_BYTES for one in feedbacks)
