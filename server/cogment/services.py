# ruff: noqa: N802  # method names are those of the gRPC services
"""The gRPC services of the Cogment API: Trial, which runs trials, and Environment, which serves other orchestrators.

`add_services` adds both to a server that was started with `--cogment FILE`. Handlers run on the event loop, check the
size of a request, pass it on to `Trials` or to an `Environment`, and turn errors into statuses.
"""

import asyncio
import functools
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import metadata
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from worldloom.protos.cogment.api import environment_pb2 as env_api
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import VersionInfo, VersionRequest
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentServicer, add_EnvironmentServicer_to_server
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialServicer, add_TrialServicer_to_server
from worldloom.protos.errors import Internal, RequestError, ResourceExhausted
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.environment import EngineEnvironment, Environment
from worldloom.server.cogment.orchestrator.trials import Trials
from worldloom.server.cogment.settings import BUILT_IN, TrialSettings
from worldloom.server.cogment.status import abort
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.tensors import check_field_count
from worldloom.server.engine.engine import Engine
from worldloom.server.logs import Log

log = Log("cogment")

API_VERSION = "0.3.0"
"""Version of the Cogment API."""
SERVICES: tuple[str, ...] = (
    env_api.DESCRIPTOR.services_by_name["Environment"].full_name,
    api.DESCRIPTOR.services_by_name["Trial"].full_name,
)
_MAX_UNANSWERED = 64
"""Maximum number of unanswered actions of an ActionStream; no more are read until one is answered."""

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def add_services(server: grpc.aio.Server, engine: Engine, settings: TrialSettings) -> Trials:
    """Add both services to a server. The caller drains and closes the returned trials when the server stops."""
    limits = engine.limits
    environment = EngineEnvironment(engine, _default_config(settings))
    trials = Trials(settings, environment, limits)
    engine.counters.count_trials_played = lambda: trials.unfinished_count
    checked = _CheckedMessages(server)
    add_EnvironmentServicer_to_server(EnvironmentService(environment, limits), checked)
    add_TrialServicer_to_server(TrialService(trials), checked)
    return trials


class _CheckedMessages:
    """A gRPC server to which services are added with handlers that count the fields of a request before they parse it.

    A request with too many is handed to its handler as the error. (An error that is raised while gRPC parses a request
    would reach the client without its text.)
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore handlers that `add_registered_method_handlers` adds."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Add the handlers of a service."""
        checked = {name: handler._replace(request_deserializer=_checked(handler)) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, checked),))


def _checked(handler: Any) -> Callable[[bytes], Message | RequestError]:
    parse = handler.request_deserializer
    descriptor = parse.__self__.DESCRIPTOR

    def parse_checked(data: bytes) -> Message | RequestError:
        try:
            check_field_count(data, descriptor)
        except RequestError as error:
            return error
        message: Message = parse(data)
        return message

    return parse_checked


def _default_config(settings: TrialSettings) -> trials_pb2.EnvironmentConfig | None:
    """Return the configuration of the file, for trials of other orchestrators that send none."""
    environment = settings.params.environment
    if environment.endpoint != BUILT_IN:
        return None
    config: trials_pb2.EnvironmentConfig = trials_pb2.EnvironmentConfig.FromString(environment.config.content)
    return config


class TrialService(TrialServicer):
    """The Trial service: starts trials and takes the calls of their clients."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials

    async def Start(self, request: api.TrialStartRequest, context: Any) -> api.TrialStartReply:
        """Start a trial."""
        return await respond(context, self._call(request, self._trials.start))

    async def Join(self, request: api.TrialJoinRequest, context: Any) -> api.TrialStartReply:
        """Join a trial as another human actor."""
        return await respond(context, self._call(request, self._trials.join))

    async def End(self, request: api.TrialEndRequest, context: Any) -> api.TrialEndReply:
        """End a trial."""
        return await respond(context, self._call(request, self._trials.end))

    async def Action(self, request: api.TrialActionRequest, context: Any) -> api.TrialActionReply:
        """Take an actor's action; reply with the result of the tick."""
        return await respond(context, self._call(request, self._trials.action))

    async def ActionStream(self, requests: AsyncIterator[api.TrialActionRequest], context: Any) -> None:
        """Take a stream of actions; reply to each in the order in which they came."""
        await ActionStream(self._trials, context).serve(requests)

    async def Heartbeat(self, request: api.TrialHeartbeatRequest, context: Any) -> api.TrialHeartbeatReply:
        """Reset the inactivity timeout of a trial."""
        return await respond(context, self._call(request, self._trials.heartbeat))

    async def GiveFeedback(self, request: api.TrialFeedbackRequest, context: Any) -> api.TrialFeedbackReply:
        """Take feedback on actors."""
        return await respond(context, self._call(request, self._trials.give_feedback))

    async def SendMessage(self, request: api.TrialMessageRequest, context: Any) -> api.TrialMessageReply:
        """Send messages to actors or the environment."""
        return await respond(context, self._call(request, self._trials.send_message))

    async def Version(self, request: VersionRequest, context: Any) -> VersionInfo:
        """Return the versions of the server and the API."""
        return version_info()

    async def _call(self, request: M, method: Callable[[M], Awaitable[T]]) -> T:
        check_size(request, self._trials.limits)
        return await method(request)


class EnvironmentService(EnvironmentServicer):
    """The Environment service: worlds of this server for the trials of other orchestrators."""

    def __init__(self, environment: Environment, limits: Limits) -> None:
        self._environment = environment
        self._limits = limits

    async def Start(self, request: env_api.EnvStartRequest, context: Any) -> env_api.EnvStartReply:
        """Create the world of a trial; reply with its first observations."""
        return await respond(context, self._call(request, self._environment.start))

    async def Update(self, request: env_api.EnvUpdateRequest, context: Any) -> env_api.EnvUpdateReply:
        """Advance a trial by one tick."""
        return await respond(context, self._call(request, self._environment.update))

    async def OnMessage(self, request: env_api.EnvOnMessageRequest, context: Any) -> env_api.EnvOnMessageReply:
        """Take messages to the environment."""
        await respond(context, self._call(request, self._environment.on_message))
        return env_api.EnvOnMessageReply()

    async def End(self, request: env_api.EnvEndRequest, context: Any) -> env_api.EnvEndReply:
        """End a trial."""
        await respond(context, self._call(request, self._environment.end))
        return env_api.EnvEndReply()

    async def Version(self, request: VersionRequest, context: Any) -> VersionInfo:
        """Return the versions of the server and the API."""
        return version_info()

    async def _call(self, request: M, method: Callable[[M], Awaitable[T]]) -> T:
        check_size(request, self._limits)
        return await method(request)


class ActionStream:
    """One ActionStream call, which may carry actions of several actors and trials.

    The actions of one actor are processed one after the other. Those of different actors are processed concurrently,
    since a tick needs the actions of all of them. Replies keep the order of the requests.

    Actions of a trial that is over get its final reply, and so does a client that waits for nothing when the server
    stops. Clients of the Cogment SDK rely on it: they do not notice when a stream ends without such a reply.
    """

    def __init__(self, trials: Trials, context: Any) -> None:
        self._trials = trials
        self._context = context
        self._unanswered: asyncio.Queue[asyncio.Task[api.TrialActionReply] | None] = asyncio.Queue(_MAX_UNANSWERED)
        """Actions in the order of their replies; None marks the end."""
        self._latest: dict[tuple[str, int], asyncio.Task[api.TrialActionReply]] = {}
        """Latest unanswered action of each (trial id, actor id)."""
        self._tasks: set[asyncio.Task[api.TrialActionReply]] = set()
        self._numbers = itertools.count()
        self._first_failed = math.inf
        """Number of the first action that failed; later ones are dropped."""
        self._last_actor: tuple[str, int] = "", 0
        """(trial id, actor id) of the latest action."""
        self._has_told_over = False
        """True if the latest reply said that its trial is over."""
        self._is_over = False

    async def serve(self, requests: AsyncIterator[api.TrialActionRequest | RequestError]) -> None:
        """Process actions until the client ends the stream, one fails, or the server stops.

        If the client disconnects, its actions are withdrawn.
        """
        replying = asyncio.create_task(self._write_replies())
        reading = asyncio.create_task(self._read(requests))
        stopping = asyncio.create_task(self._trials.draining.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            is_stopped = not reading.done()
            if is_stopped:
                reading.cancel()
                await asyncio.wait({reading})
            else:
                reading.result()
            await self._unanswered.put(None)
            is_intact = await replying
            if is_stopped and is_intact and not self._has_told_over:
                reply = self._trials.final_reply(*self._last_actor)
                await self._context.write(reply or api.TrialActionReply(trial_is_over=True))
        finally:
            for task in (replying, reading, stopping, *self._tasks):
                task.cancel()

    async def _read(self, requests: AsyncIterator[api.TrialActionRequest | RequestError]) -> None:
        async for request in requests:
            if not self._is_over:
                await self._unanswered.put(self._begin(request))

    async def _act(self, request: api.TrialActionRequest | RequestError) -> api.TrialActionReply:
        if isinstance(request, RequestError):
            raise request
        try:
            check_size(request, self._trials.limits)
            return await self._trials.action(request)
        except RequestError:
            reply = self._trials.final_reply(request.trial_id, request.actor_id)
            if reply is None:
                raise
            return reply

    def _begin(self, request: api.TrialActionRequest | RequestError) -> "asyncio.Task[api.TrialActionReply]":
        if not isinstance(request, RequestError):
            self._last_actor = request.trial_id, request.actor_id
        actor = self._last_actor
        task = asyncio.create_task(self._act_after(self._latest.get(actor), next(self._numbers), request))
        self._latest[actor] = task
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._forget, actor))
        return task

    async def _act_after(
        self,
        previous: "asyncio.Task[api.TrialActionReply] | None",
        number: int,
        request: api.TrialActionRequest | RequestError,
    ) -> api.TrialActionReply:
        if previous is not None:
            await previous
        if number > self._first_failed:
            raise asyncio.CancelledError
        try:
            return await self._act(request)
        except Exception:
            self._first_failed = min(number, self._first_failed)
            raise

    def _forget(self, actor: tuple[str, int], task: "asyncio.Task[api.TrialActionReply]") -> None:
        self._tasks.discard(task)
        if self._latest.get(actor) is task:
            del self._latest[actor]
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the tasks of an ended stream are not awaited

    async def _write_replies(self) -> bool:
        """Write replies in order; the first error ends the stream. Return whether more could be written."""
        try:
            while (task := await self._unanswered.get()) is not None:
                reply = await respond(self._context, task)
                await self._context.write(reply)
                self._has_told_over = reply.trial_is_over
        except grpc.aio.BaseError:
            return False  # the client has disconnected, or the stream was aborted: the reading side notices by itself
        else:
            return True
        finally:
            self._is_over = True
            while not self._unanswered.empty():
                self._unanswered.get_nowait()


async def respond(context: Any, call: Awaitable[T]) -> T:
    """Return the result of a call; if it raises, abort the gRPC call with the error's status."""
    try:
        return await call
    except RequestError as error:
        reported = error
    except Exception as error:
        log.error("request failed")
        reported = Internal.caused_by("the server failed", error)
    return await abort(context, reported)


def check_size(request: Message | RequestError, limits: Limits) -> None:
    """Raise ResourceExhausted for a request that is larger than the server's limit, or the error that it came as."""
    if isinstance(request, RequestError):
        raise request
    size_bytes = request.ByteSize()
    if size_bytes > limits.max_message_bytes:
        raise ResourceExhausted(
            f"a request of {size_bytes} bytes: expected at most {limits.max_message_bytes}; send less at a time, or "
            "start the server with a larger --max-message-bytes"
        )


def version_info() -> VersionInfo:
    """Return the versions of this server, of the Cogment API and of gRPC."""
    versions = {"worldloom": _server_version(), "cogment-api": API_VERSION, "grpc": grpc.__version__}
    return VersionInfo(versions=[VersionInfo.Version(name=name, version=version) for name, version in versions.items()])


@functools.cache
def _server_version() -> str:
    return metadata.version("worldloom")
