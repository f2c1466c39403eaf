"""Feedback becomes rewards: what was said about an actor in a tick is weighed into one number."""

import math
from collections.abc import Sequence

from worldloom.protos.cogment.api.agent_pb2 import Reward
from worldloom.protos.cogment.api.common_pb2 import Feedback
from worldloom.server.errors import InvalidArgument, ResourceExhausted

LATEST_TICK = -1
"""As the tick of a feedback: the one that is under way."""
_MOST_BYTES = 16 << 20
_BESIDES_BYTES = 64
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
