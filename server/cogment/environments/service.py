"""The Environment service over gRPC, for orchestrators elsewhere."""

# ruff: noqa: N802  # the service's own names

from collections.abc import Awaitable, Callable
from typing import Any

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import VersionInfo, VersionRequest
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentServicer
from worldloom.server.cogment.environments.environment import Environment
from worldloom.server.cogment.status import M, T, answered, take_request, version_info
from worldloom.server.config import Limits


class EnvironmentService(EnvironmentServicer):
    """Calls of an environment's methods."""

    def __init__(self, environment: Environment, limits: Limits) -> None:
        self._environment = environment
        self._limits = limits

    async def Start(self, request: api.EnvStartRequest, context: Any) -> api.EnvStartReply:
        """Begin a trial."""
        return await answered(context, self._take(request, self._environment.start))

    async def Update(self, request: api.EnvUpdateRequest, context: Any) -> api.EnvUpdateReply:
        """Advance a trial by one tick."""
        return await answered(context, self._take(request, self._environment.update))

    async def OnMessage(self, request: api.EnvOnMessageRequest, context: Any) -> api.EnvOnMessageReply:
        """Take messages."""
        await answered(context, self._take(request, self._environment.on_message))
        return api.EnvOnMessageReply()

    async def End(self, request: api.EnvEndRequest, context: Any) -> api.EnvEndReply:
        """End a trial."""
        await answered(context, self._take(request, self._environment.end))
        return api.EnvEndReply()

    async def Version(self, request: VersionRequest, context: Any) -> VersionInfo:
        """Say what this is."""
        return version_info()

    async def _take(self, request: M, call: Callable[[M], Awaitable[T]]) -> T:
        return await take_request(request, call, self._limits)
