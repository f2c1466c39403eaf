"""The service Trial over gRPC: what clients call, passed on to the trials of this server."""

# ruff: noqa: N802  # the service's own names

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import VersionInfo, VersionRequest
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialServicer
from worldloom.server.cogment.action_stream import ActionStream
from worldloom.server.cogment.codes import answered
from worldloom.server.cogment.requests import M, T, take_request
from worldloom.server.cogment.trials import Trials
from worldloom.server.cogment.versions import version_info


class TrialService(TrialServicer):
    """Calls of the trials' methods."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials

    async def Start(self, request: api.TrialStartRequest, context: Any) -> api.TrialStartReply:
        """Begin a trial."""
        return await answered(context, self._take(request, self._trials.start))

    async def Join(self, request: api.TrialJoinRequest, context: Any) -> api.TrialStartReply:
        """Be another human actor of a trial."""
        return await answered(context, self._take(request, self._trials.join))

    async def End(self, request: api.TrialEndRequest, context: Any) -> api.TrialEndReply:
        """End a trial."""
        return await answered(context, self._take(request, self._trials.end))

    async def Action(self, request: api.TrialActionRequest, context: Any) -> api.TrialActionReply:
        """Advance a trial by one tick."""
        return await answered(context, self._take(request, self._trials.action))

    async def ActionStream(self, requests: AsyncIterator[api.TrialActionRequest], context: Any) -> None:
        """Advance trials tick by tick: every action is answered in its place."""

        async def act(request: api.TrialActionRequest) -> api.TrialActionReply:
            return await self._take(request, self._trials.action)

        await ActionStream(act, context).serve(requests)

    async def Heartbeat(self, request: api.TrialHeartbeatRequest, context: Any) -> api.TrialHeartbeatReply:
        """Give a sign of life."""
        return await answered(context, self._take(request, self._trials.heartbeat))

    async def GiveFeedback(self, request: api.TrialFeedbackRequest, context: Any) -> api.TrialFeedbackReply:
        """Say what actors did well or badly."""
        return await answered(context, self._take(request, self._trials.give_feedback))

    async def SendMessage(self, request: api.TrialMessageRequest, context: Any) -> api.TrialMessageReply:
        """Send messages to actors or the environment."""
        return await answered(context, self._take(request, self._trials.send_message))

    async def Version(self, request: VersionRequest, context: Any) -> VersionInfo:
        """Say what this is."""
        return version_info()

    async def _take(self, request: M, call: Callable[[M], Awaitable[T]]) -> T:
        return await take_request(request, call, self._trials.limits)
