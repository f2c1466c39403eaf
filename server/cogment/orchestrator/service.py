# ruff: noqa: N802  # the service's own names
"""A stream of actions: each is given as it comes, and answered in its place."""

import asyncio
import functools
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import VersionInfo, VersionRequest
from worldloom.protos.cogment.api.orchestrator_pb2 import TrialActionReply, TrialActionRequest
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialServicer
from worldloom.server.cogment.orchestrator.trials import Trials
from worldloom.server.cogment.status import M, T, answered, take_request, version_info

_MOST_WAITING = 64
"""Actions that are given and not answered. While there are so many nothing more is read.

The service Trial over gRPC: what clients call, passed on to the trials of this server.
"""

Act: TypeAlias = Callable[[TrialActionRequest], Awaitable[TrialActionReply]]


class ActionStream:
    """One stream. The actions of one actor follow each other; those of others need not wait for them, since a tick
    takes the actions of all."""

    def __init__(self, act: Act, context: Any) -> None:
        self._act = act
        self._context = context
        self._waiting: asyncio.Queue[asyncio.Task[TrialActionReply] | None] = asyncio.Queue(_MOST_WAITING)
        """In the order of the answers; None at the end."""
        self._latest: dict[tuple[str, int], asyncio.Task[TrialActionReply]] = {}
        """The last action of each actor that is not answered."""
        self._under_way: set[asyncio.Task[TrialActionReply]] = set()
        self._numbers = itertools.count()
        self._last_number = math.inf
        """Of the first action that was refused: nothing after it counts."""
        self._is_over = False

    async def serve(self, requests: AsyncIterator[TrialActionRequest]) -> None:
        """Until the client ends it, or an action is refused. A client that vanishes takes its actions back."""
        answering = asyncio.create_task(self._answer())
        try:
            async for request in requests:
                if not self._is_over:
                    await self._waiting.put(self._give(request))
            await self._waiting.put(None)
            await answering
        finally:
            for task in (answering, *self._under_way):
                task.cancel()

    def _give(self, request: TrialActionRequest) -> "asyncio.Task[TrialActionReply]":
        whose = request.trial_id, request.actor_id
        task = asyncio.create_task(self._act_after(self._latest.get(whose), next(self._numbers), request))
        self._latest[whose] = task
        self._under_way.add(task)
        task.add_done_callback(functools.partial(self._forget, whose))
        return task

    async def _act_after(
        self, before: "asyncio.Task[TrialActionReply] | None", number: int, request: TrialActionRequest
    ) -> TrialActionReply:
        if before is not None:
            await before
        if number > self._last_number:
            raise asyncio.CancelledError
        try:
            return await self._act(request)
        except Exception:
            self._last_number = min(number, self._last_number)
            raise

    def _forget(self, whose: tuple[str, int], task: "asyncio.Task[TrialActionReply]") -> None:
        self._under_way.discard(task)
        if self._latest.get(whose) is task:
            del self._latest[whose]
        if not task.cancelled():
            task.exception()  # of a stream that has ended it is no news

    async def _answer(self) -> None:
        """Write the answers. The first refusal ends the stream."""
        try:
            while (task := await self._waiting.get()) is not None:
                await self._context.write(await answered(self._context, task))
        except grpc.aio.BaseError:
            pass  # the client is gone, or the stream was ended: the reading side learns of it by itself
        finally:
            self._is_over = True
            while not self._waiting.empty():
                self._waiting.get_nowait()


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
