"""What a trial asks of its environment, wherever that is: in this server's engine or behind an endpoint."""

from typing import Protocol

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.server.errors import InvalidArgument


class WrongAction(InvalidArgument):
    """An action that cannot be. The trial stands where it stood: its actor may give another."""

    def __init__(self, actor_id: int, problem: str) -> None:
        super().__init__(problem)
        self.actor_id = actor_id


class Environment(Protocol):
    """The worlds of many trials. Every call is made on the event loop, and raises Refusal for what cannot be."""

    async def start(self, request: api.EnvStartRequest) -> api.EnvStartReply:
        """Begin a trial: its first observations."""

    async def update(self, request: api.EnvUpdateRequest) -> api.EnvUpdateReply:
        """Advance a trial by one tick. An actor's action that cannot be raises WrongAction, and nothing has changed."""

    async def on_message(self, request: api.EnvOnMessageRequest) -> None:
        """Take messages that actors sent to the environment."""

    async def end(self, request: api.EnvEndRequest) -> None:
        """End a trial; one that has ended already, or never was, is no error."""
