"""A vector world, joined and stepped: actions are sent, observations are received as arrays, by one of the transports.

With the transports `shm` and `socket`, steps ask for the positions of frames in shared memory
(`<camera>.<output>@shm`) instead of the frames; while all of that memory is in use, they ask for frames in the reply.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from numpy.typing import ArrayLike

from worldloom.client.connecting import check_transport, connect
from worldloom.client.connections import (
    MAX_REPLY_BYTES,
    Connection,
    Credentials,
    LocalConnection,
    is_on_this_machine,
)
from worldloom.client.errors import BadReply, ClientError, NoSharedMemory, ServerError
from worldloom.client.replies import Arrays, StepReader, parse_reply
from worldloom.client.requests import StepWriter, write_observation_request, write_step
from worldloom.client.shared_memory import SharedFrames, SharedPart
from worldloom.client.specs import Spec, dtypes_and_shapes, parse_specs
from worldloom.client.world import World
from worldloom.kernels.outputs import OUTPUT_NAMES

Transport: TypeAlias = Literal["auto", "grpc", "shm", "socket"]
_log = logging.getLogger("worldloom.client")
_ALWAYS_REQUESTED = ("reward", "discount", "step_type")
_SHARED_SUFFIX = "@shm"
_NO_STEP = -1
_FRAME_SUFFIXES = tuple(f".{name}" for name in OUTPUT_NAMES)


class StepTarget(NamedTuple):
    """Arrays of a caller's that the frames of a step are drawn into."""

    arrays: Arrays
    ring_index: int | None
    """The part of shared memory that these are in, if they are."""
    shared: SharedFrames | None
    """The shared memory, which another rollout may have replaced since: then frames are copied."""
    buffer: Any
    """The same for an engine in this process."""


class VectorWorld:
    """A world with lanes, joined, with the observations `names` besides reward, discount and step_type."""

    def __init__(
        self,
        world: World,
        names: Sequence[str],
        *,
        join_settings: Mapping[str, Any],
        transport: Transport = "auto",
        clip_actions: bool = False,
    ) -> None:
        """Join a world; it is closed if that fails. `create_vector_world` creates and joins one."""
        self._names = tuple(dict.fromkeys((*_ALWAYS_REQUESTED, *names)))
        self._join_settings = {**join_settings, "max_reply_bytes": MAX_REPLY_BYTES}
        self._clip_actions = clip_actions
        self._shared: SharedFrames | None = None
        self._step_number = _NO_STEP
        """The number of the last step among all requests, from just before it is sent."""
        self._target: StepTarget | None = None
        """The target of the last step, if it is in shared memory."""
        self._is_shared = False
        """True if the last step asked for frames in shared memory."""
        self.unshared_steps = 0
        """Steps that asked for frames in the reply because no shared memory was free."""
        self._has_warned = False
        self._world = world
        try:
            self._join(transport)
        except BaseException:
            self.close()
            raise

    @property
    def transport(self) -> str:
        """The transport that is used: `local`, `socket`, `shm` (gRPC, with frames in shared memory) or `grpc`."""
        by = self._world.connection.transport
        return "shm" if by == "grpc" and self.has_shared_memory else by

    @property
    def has_shared_memory(self) -> bool:
        """Frames come in shared memory, as long as some of it is free."""
        return self._shared is not None

    @property
    def name(self) -> str:
        """The name of the world on its server; empty once it is closed."""
        return self._world.name

    @property
    def connection(self) -> Connection:
        """The connection to the server or engine."""
        return self._world.connection

    @property
    def is_under_way(self) -> bool:
        """A step was sent, and its reply not taken. It follows from the connection's counts at any moment."""
        connection = self._world.connection
        return connection.taken <= self._step_number < connection.sent

    @property
    def step_number(self) -> int:
        """The number of the step under way, unlike that of any other."""
        return self._step_number

    def drop_step(self) -> None:
        """Have no step under way. Its reply is dropped before the next request."""
        self._step_number = _NO_STEP

    def send_reset(self, settings: Mapping[str, Any] | None = None) -> None:
        """Reset the world with settings of ResetWorld, and send a step for the first observations."""
        self.drop_step()
        self._world.reset(settings or {})
        self._send_step({})

    def send(self, actions: Mapping[str, ArrayLike]) -> None:
        """Send a step; BadAction before anything is sent."""
        self.send_valid(self.validate(actions))

    def validate(self, actions: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """Return the actions as arrays of their dtypes; BadAction if one is not in its space."""
        return self.writer.validate(actions)

    def send_valid(self, actions: Mapping[str, np.ndarray], target: "StepTarget | None" = None) -> None:
        """Send a step with arrays that were validated, here or by `StepWriter.validate`.

        With a target, frames are drawn into its arrays where that is possible: `receive` returns the very same arrays.
        """
        self._send_step(actions, target)

    def step_unobserved(self, actions: Mapping[str, np.ndarray]) -> None:
        """Step with valid actions and no observations, so that nothing is drawn; return when it is done."""
        connection = self._world.connection
        if isinstance(connection, LocalConnection):
            request = connection.array_step((), actions)
        else:
            request = write_step(self.writer.encode(actions), b"")
        self._world.discard_replies()
        self._world.send_request(request)
        reply = self._world.receive_reply()
        if not isinstance(reply, dict):
            parse_reply(reply, "step")

    def receive(self) -> Arrays:
        """Return the observations of the step under way, and take its reply."""
        return self._decode(self._world.receive_reply())

    def read(self) -> Arrays:
        """Return the same without taking the reply, which can be read again after an interrupt."""
        return self._decode(self._world.connection.receive())

    def take(self) -> None:
        """Take the reply to the last step. Doing it twice does nothing."""
        connection = self._world.connection
        connection.taken = max(connection.taken, self._step_number + 1)
        connection.release()

    def allocate_frames(self, sets: int) -> Arrays:
        """Return arrays [sets, *shape] of frames in shared memory, for targets; none if there is no room for them.

        Their ring indices are those of the sets. Arrays that were returned before are not drawn into any more.
        """
        if self._shared is None:
            return {}
        try:
            self._world.write_property("shm.slots", np.int64(sets))
            self._shared = None  # the server has replaced it: if the new one cannot be opened, frames come in replies
            self._shared = self._map_shared_memory()
            set_bytes = int(self.read_property("shm.slot_bytes"))
            return {
                name: self._shared.whole_ring(int(self.read_property(f"shm.offsets.{name}")), set_bytes, spec)
                for name, spec in self.observations.items()
                if is_frame(name)
            }
        except (OSError, ServerError) as error:
            _log.warning("no shared memory for %d steps (%s): their frames are copied", sets, error)
            return {}

    def make_target(self, arrays: Arrays, ring_index: int | None) -> "StepTarget":
        """Return the target of steps that are drawn into these arrays: of all lanes, and contiguous.

        `ring_index` is that of arrays in shared memory; others are drawn into by an engine in this process alone.
        """
        buffer = None
        connection = self._world.connection
        if isinstance(connection, LocalConnection):
            every = {name: arrays[name] if name in arrays else spec.empty() for name, spec in self.observations.items()}
            buffer = connection.array_buffer(every)
        return StepTarget(arrays, ring_index, None if ring_index is None else self._shared, buffer)

    def shared_parts(self) -> dict[str, SharedPart] | None:
        """Return where the frames of each observation are in shared memory; None if they do not come in any."""
        if self._shared is None:
            return None
        set_bytes = int(self.read_property("shm.slot_bytes"))
        return {
            name: SharedPart(self._shared, int(self.read_property(f"shm.offsets.{name}")), set_bytes, spec.size_bytes)
            for name, spec in self.observations.items()
            if is_frame(name)
        }

    def read_property(self, key: str) -> Any:
        """Read a property of the server or of this world."""
        return self._world.read_property(key)

    def write_property(self, key: str, value: Any) -> None:
        """Write a property of this world."""
        self._world.write_property(key, value)

    def join_again(self, names: Sequence[str], *, join_settings: Mapping[str, Any], **more: Any) -> "VectorWorld":
        """Join the same world once more, for another of its agents, through a connection of its own.

        Arguments are those of VectorWorld; `join_settings` may have the number of the agent (`agent`). The agents of a
        world step together: send the steps of all of them before the first is received.
        """
        return VectorWorld(self._world.open_again(), names, join_settings=join_settings, **more)

    def close(self) -> None:
        """Destroy the world and close the connection. Closing twice does nothing."""
        self._world.close()

    def _decode(self, reply: Any) -> Arrays:
        if isinstance(reply, dict):
            return reply  # of an engine in this process
        if self._shared is None or not self._is_shared:
            return self._read_frames(reply)
        found = self._read_positions(reply)
        positions = {
            name.removesuffix(_SHARED_SUFFIX): found.pop(name) for name in list(found) if name.endswith(_SHARED_SUFFIX)
        }
        frames = self._shared.read(positions, self.observations)
        target = self._target
        if target is not None and all(position[0, 0] == target.ring_index for position in positions.values()):
            frames |= target.arrays
        return found | frames

    def _send_step(self, actions: Mapping[str, np.ndarray], target: "StepTarget | None" = None) -> None:
        connection = self._world.connection
        request: Any
        self.drop_step()
        if isinstance(connection, LocalConnection):
            request = connection.array_step(self._uids, actions, None if target is None else target.buffer)
        else:
            request = write_step(self.writer.encode(actions), self._choose_request(target))
        if connection.sent != connection.taken:  # an interrupt came before the reply to something else
            self._world.discard_replies()
        self._step_number = connection.sent
        self._world.send_request(request)

    def _choose_request(self, target: "StepTarget | None") -> bytes:
        self._target = None
        if self._shared is None:
            return self._request_frames
        if target is not None and target.ring_index is not None and target.shared is self._shared:
            self._shared.choose(target.ring_index)
            self._target, self._is_shared = target, True
            return self._request_positions
        self._is_shared = self._shared.choose()
        if self._is_shared:
            return self._request_positions
        if not self._has_warned and not self._shared.is_whole_in_use:
            self._has_warned = True
            _log.warning(
                "frames of %s come in the reply instead of shared memory, which is slower: shared memory has room for "
                "%d steps, and the program keeps the frames of earlier ones; use env.rollout, or keep copies. Further "
                "steps like this are not logged: `unshared_steps` counts them",
                self._world.name,
                self._shared.ring_size,
            )
        self.unshared_steps += 1
        return self._request_frames

    def _join(self, transport: Transport) -> None:
        address = self._world.connection.address
        if transport == "shm":
            self._join_with_shared_memory()
        elif transport != "grpc" and not isinstance(address, str) and is_on_this_machine(address):
            try:
                self._join_with_shared_memory()
            except NoSharedMemory:
                self._join_without_shared_memory()
        else:
            self._join_without_shared_memory()

    def _join_without_shared_memory(self) -> None:
        self._shared = None
        self._use_specs(self._world.join({**self._join_settings, "observations": list(self._names)}))

    def _join_with_shared_memory(self) -> None:
        """Join with frames in shared memory; NoSharedMemory if joining without would work."""
        frames = [name for name in self._names if is_frame(name)]
        if not frames:
            raise NoSharedMemory("no frames among the observations: expected at least one, such as eye.rgb")
        names = [*self._names, *(f"{name}{_SHARED_SUFFIX}" for name in frames)]
        try:
            specs = self._world.join({**self._join_settings, "shm": True, "observations": names})
        except ServerError as error:
            self._join_without_shared_memory()  # raises if the cause is another setting
            self._world.leave()
            raise NoSharedMemory(f"no shared memory with {self._world.name}: {error}") from error
        self._use_specs(specs)
        try:
            self._shared = self._map_shared_memory()
        except (OSError, ServerError) as error:
            self._world.leave()
            raise NoSharedMemory(
                f"the server's shared memory cannot be opened ({error}): expected a server on this machine, run by the "
                "same user"
            ) from error

    def _map_shared_memory(self) -> SharedFrames:
        """Map the memory of this stream: by its descriptor if that came with the reply that tells the path."""
        path = str(self.read_property("shm.name"))
        file = self.connection.take_file()
        try:
            return SharedFrames(
                path if file is None else file,
                int(self.read_property("shm.size_bytes")),
                int(self.read_property("shm.slots")),
                str(self.read_property("shm.token")),
            )
        finally:
            if file is not None:
                os.close(file)

    def _use_specs(self, specs: rpc.ActionObservationSpecs) -> None:
        self.actions: dict[str, Spec] = parse_specs(specs.actions.items())
        offered = parse_specs(specs.observations.items())
        missing = [name for name in self._names if name not in offered]
        if missing:
            raise BadReply(f"the server offers no {missing[0]!r}: expected {', '.join(self._names)}")
        self.observations = {name: offered[name] for name in self._names}
        self.writer = StepWriter(self.actions, self._clip_actions)
        frames = {spec.uid: spec for spec in self.observations.values()}
        self._uids = tuple(frames)
        shared = [offered.get(f"{name}{_SHARED_SUFFIX}", spec) for name, spec in self.observations.items()]
        positions = {spec.uid: spec for spec in shared}
        self._request_frames, self._read_frames = write_observation_request(frames), StepReader(frames).read
        self._request_positions = write_observation_request(positions)
        self._read_positions = StepReader(positions, remembered=positions.keys() - frames.keys()).read


def create_vector_world(
    address: str,
    names: Sequence[str],
    *,
    world_settings: Mapping[str, Any],
    join_settings: Mapping[str, Any],
    transport: Transport,
    credentials: Credentials,
    renderer: str,
    timeout_s: float,
    clip_actions: bool = False,
    first_timeout_s: float | None = None,
    sibling: VectorWorld | None = None,
) -> VectorWorld:
    """Create a world on a server or an engine, and join it.

    `first_timeout_s` is for the server's first reply; None is `timeout_s`. With a `sibling`, the world is on the same
    engine as that one, through another connection.
    """
    check_transport(address, transport, get_args(Transport))
    if sibling is None:
        by = connection_transport(transport)
        connection = connect(address, credentials, renderer, timeout_s, by, first_timeout_s)
    else:
        connection = sibling.connection.open_sibling()
    world = World(connection, world_settings, first_timeout_s)
    return VectorWorld(world, names, join_settings=join_settings, transport=transport, clip_actions=clip_actions)


def connection_transport(transport: Transport) -> str:
    """Return the transport of the connection itself: `shm` is gRPC, with frames in shared memory."""
    return "grpc" if transport == "shm" else transport


def check_same_specs(before: VectorWorld, now: VectorWorld) -> None:
    """Raise ClientError if a world that takes another's place has other actions or observations."""
    for kind in ("actions", "observations"):
        old, new = (dtypes_and_shapes(getattr(world, kind)) for world in (before, now))
        if old != new:
            address = now.connection.address
            raise ClientError(f"the server at {address} now has {kind} {new}: expected {old}; make a new env")


def is_frame(name: str) -> bool:
    """True if an observation of this name is a frame of a camera."""
    return name.endswith(_FRAME_SUFFIXES)
