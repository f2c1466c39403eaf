"""The dm_env_rpc protocol for one stream, as a state machine: requests come in as bytes, replies go out as bytes.

A stream has joined a world or it has not. There is one handler for each message; it returns the response, or None if
the response comes later, when other agents have stepped. A handler that raises RequestError has changed nothing. All of
it runs on the engine's thread.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1.extensions import properties_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from worldloom.protos.errors import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    RequestError,
    ResourceExhausted,
    Unimplemented,
)
from worldloom.server.dm_env_rpc.properties import SEGMENT_PATH, described_family, make_tree
from worldloom.server.dm_env_rpc.property_tree import requested_key
from worldloom.server.dm_env_rpc.specs import agent_specs_message
from worldloom.server.dm_env_rpc.step_layout import step_layout
from worldloom.server.dm_env_rpc.step_requests import RepeatedSteps
from worldloom.server.dm_env_rpc.tensors import LARGE_BYTES, ActionReader, check_field_count, settings_from
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.observations import AgentSpecs, ObservationRequest
from worldloom.server.engine.replies import ReplyBuffer, array_layout
from worldloom.server.engine.resets import WorldReset
from worldloom.server.engine.world import FAILURES, Agent, Step, World
from worldloom.server.logs import Log

log = Log("session")

P = ParamSpec("P")

_MAX_NAMES = 4096
"""UIDs that a step may have, or twice as many as are offered, if that is more."""


def error_reply(error: RequestError) -> bytes:
    """Serialise an EnvironmentResponse with this error."""
    response = rpc.EnvironmentResponse()
    response.error.code = error.code
    # A lone surrogate (from a file name, say) has no UTF-8 form and must not turn one error into another.
    response.error.message = str(error).encode(errors="replace").decode()
    reply: bytes = response.SerializeToString()
    return reply


def _check_count(count: int, offered: int, what: str) -> None:
    """Raise InvalidArgument for absurdly many names in a request, whose conversion would hold up other streams."""
    most = max(_MAX_NAMES, 2 * offered)
    if count > most:
        raise InvalidArgument(f"a step with {count} {what}: expected {most} at most")


class ArrayStep(NamedTuple):
    """A step of a client in this process, which has the specs and has checked its actions."""

    uids: tuple[int, ...]
    """Requested observations."""
    actions: Mapping[str, np.ndarray]
    """By name, of the dtypes and shapes of their specs."""
    out: ReplyBuffer | None = None
    """Arrays of the client's that the observations are written into, and their addresses in the order of the UIDs."""


class Session:
    """The state of one stream. `send` delivers the bytes of a reply to its client at the end of the tick."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        send: Callable[[Any], None],
        share_file: Callable[[int], None] | None = None,
    ) -> None:
        """Make a session. `share_file` sends a copy of a descriptor with the next reply, where a transport can."""
        self.engine = engine
        self.name = name
        """Name of the stream in the log."""
        self.agent: Agent | None = None
        self._layout_cache = engine.layout_cache(step_layout)
        self._send_bytes = send
        self._share_file = share_file
        self._readers: dict[int, ActionReader] = {}
        self._repeated_steps = RepeatedSteps({})
        self._last_uids: tuple[int, ...] = ()
        self._last_specs: AgentSpecs | None = None
        self._last_request: ObservationRequest | None = None
        """The request of the last step that repeated one before, which had these UIDs and specs."""
        self._is_closed = False

    def open(self) -> None:
        """Count the new stream."""
        self.engine.counters.streams += 1
        log.debug("opened", stream=self.name)

    def close(self) -> None:
        """Leave the world of a stream that has ended; replies that it waits for are not sent."""
        self._is_closed = True
        self.engine.counters.streams -= 1
        if self.agent is not None and self.agent.world.creator == self.name:
            self.agent.world.is_lost = True
        self._leave()
        log.debug("closed", stream=self.name)

    def reject(self) -> None:
        """Count a request that was answered with an error before it reached the session: it is too large."""
        self.engine.counters.requests += 1
        self.engine.counters.count_refusal(ResourceExhausted.code)

    def receive(self, data: bytes) -> None:
        """Handle a request. Exactly one reply is sent for it, in this tick or a later one."""
        if self._is_closed:
            return
        self.engine.counters.requests += 1
        self._answer(self._handle, data)

    def step(self, asked: ArrayStep) -> None:
        """Handle a step of a client in this process. Its reply is a dict of arrays, or the bytes of an error."""
        if self._is_closed:
            return
        self.engine.counters.requests += 1
        try:
            agent = self._joined("Step")
            request = agent.specs.request(asked.uids, self.engine.layout_cache(array_layout))
            actions = asked.actions if agent.is_told_running else {}
            agent.check_actions(actions)
            self.engine.step(Step(agent, actions, request, self._answer_step, self._fail_step, asked.out))
        except RequestError as error:
            self._fail(error)

    def _answer(self, work: Callable[P, rpc.EnvironmentResponse | None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send the response that `work` returns, if any, or its error."""
        try:
            response = work(*args, **kwargs)
        except RequestError as error:
            self._fail(error)
        except FAILURES as error:
            log.error("request failed", stream=self.name)
            self._fail(Internal.caused_by("the server failed", error))
        else:
            if response is not None:
                self._send(response)

    def _handle(self, data: bytes) -> rpc.EnvironmentResponse | None:
        agent = self.agent
        if agent is not None and not agent.world.is_gone and (content := self._repeated_steps.read(data)) is not None:
            if content.uids != self._last_uids or agent.specs is not self._last_specs:
                self._last_request = agent.specs.request(content.uids)
                self._last_uids, self._last_specs = content.uids, agent.specs
            assert self._last_request is not None
            self._start_step(agent, content.actions, self._last_request)
            return None
        if len(data) > LARGE_BYTES:
            check_field_count(data, rpc.EnvironmentRequest.DESCRIPTOR)
        try:
            request = rpc.EnvironmentRequest.FromString(data)
        except DecodeError as error:
            raise InvalidArgument(
                f"{len(data)} bytes that cannot be read: expected a dm_env_rpc.v1.EnvironmentRequest"
            ) from error
        kind = request.WhichOneof("payload")
        if kind is None:
            raise InvalidArgument(f"a request without a payload: expected one of {', '.join(_PAYLOADS)}")
        if kind == "step":
            self._step(request.step, data)
            return None
        return _HANDLERS[kind](self, getattr(request, kind))

    def _create_world(self, request: rpc.CreateWorldRequest) -> None:
        given = settings_from(request.settings)
        self.engine.create(given, lambda create: self._answer(lambda: self._finish_create(create)))

    def _finish_create(self, create: Callable[[], World]) -> rpc.EnvironmentResponse | None:
        world = create()
        if self._is_closed:  # the stream ended meanwhile: nobody knows the name of the world
            self.engine.destroy(world)
            return None
        world.creator = self.name
        log.info("created", stream=self.name, world=world.name, lanes=len(world.lanes))
        return rpc.EnvironmentResponse(create_world=rpc.CreateWorldResponse(world_name=world.name))

    def _join_world(self, request: rpc.JoinWorldRequest) -> rpc.EnvironmentResponse:
        if self.agent is not None and not self.agent.world.is_gone:
            raise FailedPrecondition(
                f"this stream has joined {self.agent.world.name} already: leave it first, or join over another stream"
            )
        directory = self.engine.directory
        world = directory.find(request.world_name)
        agent = directory.join(world, settings_from(request.settings), self._layout_cache)
        try:
            specs = agent_specs_message(agent.specs)
            readers = _action_readers(agent.specs)
        except FAILURES:
            self.engine.leave(agent)  # nothing has changed when an error comes
            raise
        self._leave()  # the world that is gone, if there was one
        self.agent, agent.owner = agent, self.name
        self._set_readers(readers)
        log.info("joined", stream=self.name, world=self.agent.world.name, agent=self.agent.index)
        return rpc.EnvironmentResponse(join_world=rpc.JoinWorldResponse(specs=specs))

    def _step(self, request: rpc.StepRequest, data: bytes) -> None:
        agent = self._joined("Step")
        _check_count(len(request.requested_observations), len(agent.specs.observations), "requested observations")
        observations = agent.specs.request(request.requested_observations)
        actions = {}
        if agent.is_told_running:  # in any other state actions are ignored, valid or not
            _check_count(len(request.actions), len(self._readers), "actions")
            for uid, tensor in request.actions.items():
                reader = self._readers.get(uid)
                if reader is None:
                    known = ", ".join(f"{uid} ({reader.name})" for uid, reader in self._readers.items())
                    raise InvalidArgument(f"action {uid} does not exist: expected some of {known or 'none'}")
                actions[reader.name] = reader.read(tensor)
            self._repeated_steps.remember(data, request.requested_observations, actions)
        self._start_step(agent, actions, observations)

    def _start_step(self, agent: Agent, actions: Mapping[str, np.ndarray], observations: ObservationRequest) -> None:
        """Have the engine step an agent. Actions are ignored unless the agent is in the middle of a sequence."""
        if agent.is_told_running:
            agent.check_actions(actions)
        self.engine.step(Step(agent, actions, observations, self._answer_step, self._fail_step))

    def _answer_step(self, step: Step) -> None:
        if not self._is_closed:
            self._send_bytes(step.reply)

    def _fail_step(self, error: RequestError) -> None:
        self._fail(Internal(f"{error}. The next step begins a new sequence") if isinstance(error, Internal) else error)

    def _reset(self, request: rpc.ResetRequest) -> rpc.EnvironmentResponse:
        agent = self._joined("Reset")
        if request.settings:
            self.engine.directory.rejoin(agent, settings_from(request.settings))
            self._set_readers(_action_readers(agent.specs))
        agent.world.reset_all()
        if agent.is_told_running:
            agent.end_sequence()
            self.engine.touch(agent.world)  # other agents may wait for this one
        return rpc.EnvironmentResponse(reset=rpc.ResetResponse(specs=agent_specs_message(agent.specs)))

    def _reset_world(self, request: rpc.ResetWorldRequest) -> None:
        world = self.engine.directory.find(request.world_name)
        given = settings_from(request.settings)
        self.engine.resets.begin(world, WorldReset(self.agent, given, self._answer_reset_world, self._fail))

    def _answer_reset_world(self) -> None:
        self._send(rpc.EnvironmentResponse(reset_world=rpc.ResetWorldResponse()))

    def _leave_world(self, request: rpc.LeaveWorldRequest) -> rpc.EnvironmentResponse:
        self._leave()
        return rpc.EnvironmentResponse(leave_world=rpc.LeaveWorldResponse())

    def _destroy_world(self, request: rpc.DestroyWorldRequest) -> rpc.EnvironmentResponse:
        world = self.engine.directory.find(request.world_name)
        if self.agent is not None and self.agent.world is world:
            raise FailedPrecondition(f"this stream has joined {world.name}: leave it before you destroy it")
        self.engine.destroy(world)
        log.info("destroyed", stream=self.name, world=world.name)
        return rpc.EnvironmentResponse(destroy_world=rpc.DestroyWorldResponse())

    def _extension(self, request: AnyMessage) -> rpc.EnvironmentResponse | None:
        if not request.Is(properties_pb2.PropertyRequest.DESCRIPTOR):
            raise Unimplemented(
                f"extension {request.type_url[:100]!r} is not known: expected {_PROPERTY_REQUEST}, the only one here"
            )
        try:
            asked = properties_pb2.PropertyRequest.FromString(request.value)
        except DecodeError as error:
            raise InvalidArgument(f"an extension that cannot be read: expected a {_PROPERTY_REQUEST}") from error
        name = described_family(requested_key(asked))
        if name is None:
            return self._answer_property(asked)
        self.engine.descriptions.request(name, lambda: self._answer(lambda: self._answer_property(asked)))
        return None

    def _answer_property(self, asked: properties_pb2.PropertyRequest) -> rpc.EnvironmentResponse:
        response = rpc.EnvironmentResponse()
        response.extension.Pack(make_tree(self.engine, self.agent, requested_key(asked)).handle(asked))
        segment = None if self.agent is None else self.agent.segment
        if self._share_file is not None and segment is not None and asked.read_property.key == SEGMENT_PATH:
            self._share_file(segment.file)  # the path itself can be opened by the same user only
        return response

    def _joined(self, what: str) -> Agent:
        if self.agent is None:
            raise FailedPrecondition(f"{what} on a stream that has joined no world: expected JoinWorld before it")
        if self.agent.world.is_gone:
            raise NotFound(f"world {self.agent.world.name} is gone: it was destroyed; leave it and join another")
        return self.agent

    def _set_readers(self, readers: dict[int, ActionReader]) -> None:
        self._readers = readers
        self._repeated_steps = RepeatedSteps(self._readers)

    def _leave(self) -> None:
        if self.agent is not None:
            self.engine.leave(self.agent)
            self._last_specs = self._last_request = None
            log.info("left", stream=self.name, world=self.agent.world.name, agent=self.agent.index)
            self.agent = None

    def _fail(self, error: RequestError) -> None:
        self.engine.counters.count_refusal(error.code)
        log.debug("refused", stream=self.name, code=error.code, text=str(error))
        if not self._is_closed:
            self._send_bytes(error_reply(error))

    def _send(self, response: Message) -> None:
        if not self._is_closed:
            self._send_bytes(response.SerializeToString())


def _action_readers(specs: AgentSpecs) -> dict[int, ActionReader]:
    return {uid: ActionReader(spec, specs.lanes) for uid, spec in specs.actions.items()}


_PAYLOADS = [field.name for field in rpc.EnvironmentRequest.DESCRIPTOR.oneofs_by_name["payload"].fields]
_PROPERTY_REQUEST = properties_pb2.PropertyRequest.DESCRIPTOR.full_name
_HANDLERS: dict[str, Callable[[Session, Any], rpc.EnvironmentResponse | None]] = {
    "create_world": Session._create_world,
    "join_world": Session._join_world,
    "reset": Session._reset,
    "reset_world": Session._reset_world,
    "leave_world": Session._leave_world,
    "destroy_world": Session._destroy_world,
    "extension": Session._extension,
}
