"""A vector world, joined and stepped: actions are sent, observations are received as arrays, by one of the transports.

With the transport `shm`, steps ask for the positions of frames in shared memory (`<camera>.<output>@shm`) instead of
the frames; while the next part of the ring is in use, they ask for frames in the reply.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from numpy.typing import ArrayLike

from worldloom.client.connections import (
    LOCAL,
    MAX_REPLY_BYTES,
    Connection,
    Credentials,
    is_on_this_machine,
    open_connection,
)
from worldloom.client.errors import BadReply, ClientError, NoSharedMemory, ServerError
from worldloom.client.replies import Arrays, StepReader
from worldloom.client.requests import StepWriter, write_observation_request, write_step
from worldloom.client.shared_memory import SharedFrames
from worldloom.client.specs import Spec, dtypes_and_shapes, parse_specs
from worldloom.client.world import World
from worldloom.kernels.outputs import OUTPUT_NAMES

Transport: TypeAlias = Literal["auto", "grpc", "shm"]
_log = logging.getLogger("worldloom.client")
_ALWAYS_REQUESTED = ("reward", "discount", "step_type")
_SHARED_SUFFIX = "@shm"
_FRAME_SUFFIXES = tuple(f".{name}" for name in OUTPUT_NAMES)


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
        self._is_shared = False
        """True if the pending step asked for frames in shared memory."""
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
        """The transport of frames: `local`, `shm` or `grpc`."""
        if self._shared is not None:
            return "shm"
        return LOCAL if self._world.connection.address == LOCAL else "grpc"

    @property
    def connection(self) -> Connection:
        """The connection to the server or engine."""
        return self._world.connection

    def send_reset(self, settings: Mapping[str, Any] | None = None) -> None:
        """Reset the world with settings of ResetWorld, and send a step for the first observations."""
        self._world.discard_replies()
        self._world.reset(settings or {})
        self._world.send_bytes(write_step([], self._choose_request()))

    def send(self, actions: Mapping[str, ArrayLike]) -> None:
        """Send a step; BadAction before anything is sent."""
        self.send_valid(self.validate(actions))

    def validate(self, actions: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """Return the actions as arrays of their dtypes; BadAction if one is not in its space."""
        return self._writer.validate(actions)

    def send_valid(self, actions: Mapping[str, np.ndarray]) -> None:
        """Send a step with arrays that were validated, here or by `StepWriter.validate`."""
        self._world.send_bytes(write_step(self._writer.encode(actions), self._choose_request()))

    def receive(self) -> Arrays:
        """Return the observations of the pending step."""
        reply = self._world.receive_bytes()
        if self._shared is None or not self._is_shared:
            return self._read_frames(reply)
        found = self._read_positions(reply)
        positions = {
            name.removesuffix(_SHARED_SUFFIX): found.pop(name) for name in list(found) if name.endswith(_SHARED_SUFFIX)
        }
        return found | self._shared.read(positions, self.observations)

    def read_property(self, key: str) -> Any:
        """Read a property of the server or of this world."""
        return self._world.read_property(key)

    def join_again(self, names: Sequence[str], *, join_settings: Mapping[str, Any], **more: Any) -> "VectorWorld":
        """Join the same world once more, for another of its agents, through a connection of its own.

        Arguments are those of VectorWorld; `join_settings` may have the number of the agent (`agent`). The agents of a
        world step together: send the steps of all of them before the first is received.
        """
        return VectorWorld(self._world.open_again(), names, join_settings=join_settings, **more)

    def close(self) -> None:
        """Destroy the world and close the connection. Closing twice does nothing."""
        self._world.close()

    def _choose_request(self) -> bytes:
        if self._shared is None:
            return self._request_frames
        is_after_a_reply = self._shared.is_next_known
        self._is_shared = self._shared.acquire_next()
        if self._is_shared:
            return self._request_positions
        if is_after_a_reply and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "frames of %s come in the reply instead of shared memory, which is slower: shared memory has room for "
                "%d steps, and the program keeps the frames of earlier ones; keep copies instead. Further steps like "
                "this are not logged: `unshared_steps` counts them",
                self._world.name,
                self._shared.ring_size,
            )
        self.unshared_steps += 1
        return self._request_frames

    def _join(self, transport: Transport) -> None:
        address = self._world.connection.address
        if transport == "shm":
            self._join_with_shared_memory()
        elif transport == "auto" and not isinstance(address, str) and is_on_this_machine(address):
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
            raise NoSharedMemory(f"no frames among {', '.join(self._names)}: expected at least one, such as eye.rgb")
        names = [*self._names, *(f"{name}{_SHARED_SUFFIX}" for name in frames)]
        try:
            specs = self._world.join({**self._join_settings, "shm": True, "observations": names})
        except ServerError as error:
            self._join_without_shared_memory()  # raises if the cause is another setting
            self._world.leave()
            raise NoSharedMemory(f"no shared memory with {self._world.name}: {error}") from error
        self._use_specs(specs)
        try:
            self._shared = SharedFrames(
                str(self.read_property("shm.name")),
                int(self.read_property("shm.size_bytes")),
                int(self.read_property("shm.slots")),
                str(self.read_property("shm.token")),
            )
        except (OSError, ServerError) as error:
            self._world.leave()
            raise NoSharedMemory(
                f"the server's shared memory cannot be opened ({error}): expected a server on this machine, run by the "
                "same user"
            ) from error

    def _use_specs(self, specs: rpc.ActionObservationSpecs) -> None:
        self.actions: dict[str, Spec] = parse_specs(specs.actions.items())
        offered = parse_specs(specs.observations.items())
        missing = [name for name in self._names if name not in offered]
        if missing:
            raise BadReply(f"the server offers no {missing[0]!r}: expected {', '.join(self._names)}")
        self.observations = {name: offered[name] for name in self._names}
        self._writer = StepWriter(self.actions, self._clip_actions)
        frames = {spec.uid: spec for spec in self.observations.values()}
        shared = [offered.get(f"{name}{_SHARED_SUFFIX}", spec) for name, spec in self.observations.items()]
        positions = {spec.uid: spec for spec in shared}
        self._request_frames, self._read_frames = write_observation_request(frames), StepReader(frames).read
        self._request_positions, self._read_positions = write_observation_request(positions), StepReader(positions).read


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
    if transport not in get_args(Transport):
        raise ValueError(f"transport is {transport!r}: expected one of {', '.join(get_args(Transport))}")
    if address == LOCAL and transport != "auto":
        raise ValueError(f"transport is {transport!r} for {LOCAL!r}: expected auto, which is no transport there")
    if sibling is None:
        connection = open_connection(address, credentials, renderer, timeout_s)
    else:
        connection = sibling.connection.open_sibling()
    world = World(connection, world_settings, first_timeout_s)
    return VectorWorld(world, names, join_settings=join_settings, transport=transport, clip_actions=clip_actions)


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
