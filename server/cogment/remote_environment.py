"""An environment behind an endpoint: the worlds of trials in another program."""

from collections.abc import Awaitable
from typing import Any, TypeVar

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub
from worldloom.server.cogment.channels import ask

T = TypeVar("T")


class RemoteEnvironment:
    """An Environment service. Every call raises Refusal, which names it, if it fails or takes too long."""

    def __init__(self, endpoint: str, channel: Any, deadline_s: float) -> None:
        self._name = f"the environment at {endpoint}"
        self._stub = EnvironmentStub(channel)
        self._deadline_s = deadline_s

    async def start(self, request: api.EnvStartRequest) -> api.EnvStartReply:
        """Begin a trial: its first observations."""
        reply: api.EnvStartReply = await self._ask("Start", self._stub.Start(request, timeout=self._deadline_s))
        return reply

    async def update(self, request: api.EnvUpdateRequest) -> api.EnvUpdateReply:
        """Advance a trial by one tick."""
        reply: api.EnvUpdateReply = await self._ask("Update", self._stub.Update(request, timeout=self._deadline_s))
        return reply

    async def on_message(self, request: api.EnvOnMessageRequest) -> None:
        """Hand over messages."""
        await self._ask("OnMessage", self._stub.OnMessage(request, timeout=self._deadline_s))

    async def end(self, request: api.EnvEndRequest) -> None:
        """End a trial."""
        await self._ask("End", self._stub.End(request, timeout=self._deadline_s))

    async def _ask(self, what: str, call: Awaitable[T | None]) -> T:
        return await ask(call, f"{self._name}: {what}", self._deadline_s)
