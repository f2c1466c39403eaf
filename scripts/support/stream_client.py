"""A client of one dm_env_rpc stream over a socket. Requests are sent at once; replies wait until they are read."""

import queue
import socket
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2

from scripts.support.messages import RequestFailed, StepReply, packed

METHOD = "/dm_env_rpc.v1.Environment/Process"
TIMEOUT_S = 60.0
"""Lifetime of a stream, and so the time that a reply may take before a test fails."""
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a separate connection for each
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]


class StreamClient:
    """One stream on a separate connection."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.all_sent = threading.Event()
        """Set when the stream is half closed and all requests are sent."""
        self.call = self._channel.stream_stream(METHOD)(self._outgoing(), timeout=timeout_s)
        self.specs = rpc.ActionObservationSpecs()

    def __enter__(self) -> "StreamClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the stream and close the connection."""
        self.call.cancel()
        self._requests.put(None)
        self._channel.close()

    def _outgoing(self) -> Iterator[bytes]:
        """Yield requests; gRPC asks for the next when the last is sent."""
        yield from iter(self._requests.get, None)
        self.all_sent.set()

    def send_bytes(self, data: bytes) -> None:
        """Send the bytes of a request."""
        self._requests.put(data)

    def send(self, **payload: Any) -> None:
        """Send a request."""
        self.send_bytes(rpc.EnvironmentRequest(**payload).SerializeToString())

    def half_close(self) -> None:
        """Send no more requests."""
        self._requests.put(None)

    def read(self) -> rpc.EnvironmentResponse:
        """Return the next reply."""
        return rpc.EnvironmentResponse.FromString(next(self.call))

    def read_rest(self) -> list[rpc.EnvironmentResponse]:
        """Return all replies until the server ends the stream."""
        return [rpc.EnvironmentResponse.FromString(data) for data in self.call]

    def ask_bytes(self, data: bytes) -> rpc.EnvironmentResponse:
        """Send the bytes of a request and return the next reply."""
        self.send_bytes(data)
        return self.read()

    def ask(self, **payload: Any) -> rpc.EnvironmentResponse:
        """Send a request; return its reply or raise RequestFailed."""
        self.send(**payload)
        return self.take(next(iter(payload)))

    def take(self, kind: str) -> rpc.EnvironmentResponse:
        """Return the next reply, which must be of this kind, or raise RequestFailed."""
        response = self.read()
        if response.WhichOneof("payload") == "error":
            raise RequestFailed(response.error.code, response.error.message)
        assert response.WhichOneof("payload") == kind
        return response

    def create(self, family: str, **settings: Any) -> str:
        """Create a world; return its name."""
        request = rpc.CreateWorldRequest(settings=packed({"family": family, **settings}))
        return str(self.ask(create_world=request).create_world.world_name)

    def join(self, world: str, **settings: Any) -> rpc.ActionObservationSpecs:
        """Join a world; return and keep the specs."""
        request = rpc.JoinWorldRequest(world_name=world, settings=packed(settings))
        self.specs = self.ask(join_world=request).join_world.specs
        return self.specs

    def step(self, *see: str, **actions: Any) -> StepReply:
        """Step with these actions, and return the observations of these names."""
        self.send_step(*see, **actions)
        return self.step_reply()

    def send_step(self, *see: str, **actions: Any) -> None:
        """Send a step without reading its reply."""
        self.send(step=self.step_request(see, actions))

    def step_reply(self) -> StepReply:
        """Return the next reply, which must be that of a step."""
        return self.unpack(self.take("step"))

    def leave(self) -> None:
        """Leave the world."""
        self.ask(leave_world=rpc.LeaveWorldRequest())

    def destroy(self, world: str) -> None:
        """Destroy a world."""
        self.ask(destroy_world=rpc.DestroyWorldRequest(world_name=world))

    def property(self, key: str) -> Any:
        """Read a property."""
        request = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
        response = properties_pb2.PropertyResponse()
        assert self.ask(extension=packed_any(request)).extension.Unpack(response)
        return tensor_utils.unpack_tensor(response.read_property.value)

    def step_request(self, see: Sequence[str], actions: dict[str, Any]) -> rpc.StepRequest:
        """Return a StepRequest for actions and observations by name."""
        by_name = {spec.name: (uid, spec) for uid, spec in self.specs.actions.items()}
        tensors = {}
        for name, value in actions.items():
            uid, spec = by_name[name]
            dtype = tensor_utils.data_type_to_np_type(spec.dtype)
            tensors[uid] = tensor_utils.pack_tensor(np.asarray(value, dtype))
        uids = {spec.name: uid for uid, spec in self.specs.observations.items()}
        return rpc.StepRequest(actions=tensors, requested_observations=[uids[name] for name in see])

    def unpack(self, response: rpc.EnvironmentResponse) -> StepReply:
        """Return the observations of a reply by name."""
        names = {uid: spec.name for uid, spec in self.specs.observations.items()}
        step = response.step
        return StepReply(
            step.state,
            {names[uid]: np.asarray(tensor_utils.unpack_tensor(tensor)) for uid, tensor in step.observations.items()},
        )


def packed_any(message: Any) -> Any:
    """Pack a message into an extension."""
    request = rpc.EnvironmentRequest()
    request.extension.Pack(message)
    return request.extension


def free_port() -> int:
    """Return a TCP port without a listener, for programs that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
