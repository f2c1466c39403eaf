"""Messages between the actors of a trial and its environment: gathered as they come, handed over once a tick."""

from collections.abc import Sequence

from worldloom.protos.cogment.api.agent_pb2 import MessageCollection
from worldloom.protos.cogment.api.common_pb2 import Message
from worldloom.server.cogment.cast import ENVIRONMENT_ID
from worldloom.server.errors import InvalidArgument, ResourceExhausted

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
