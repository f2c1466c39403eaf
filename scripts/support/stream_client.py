"""A client's side of one stream over a real socket. Requests go out at once; answers lie there until they are read."""

import queue
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2

from scripts.support.messages import Refused, Told, packed

METHOD = "/dm_env_rpc.v1.Environment/Process"
TIMEOUT_S = 60.0
"""How long a stream may live, and so how long any answer may take before a test fails."""
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]


class Wire:
    """One stream on a connection of its own. Bytes go out and come in as they are."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.all_sent = threading.Event()
        """Set when the stream is half closed and everything has gone out."""
        self.call = self._channel.stream_stream(METHOD)(self._outgoing(), timeout=timeout_s)
        self.specs = rpc.ActionObservationSpecs()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, whatever is under way."""
        self.call.cancel()
        self._requests.put(None)
        self._channel.close()

    def _outgoing(self) -> Iterator[bytes]:
        """gRPC takes the next when the last has gone out."""
        yield from iter(self._requests.get, None)
        self.all_sent.set()

    # Bytes, and messages.

    def send_bytes(self, data: bytes) -> None:
        self._requests.put(data)

    def send(self, **payload: Any) -> None:
        self.send_bytes(rpc.EnvironmentRequest(**payload).SerializeToString())

    def half_close(self) -> None:
        """Say that no more requests come."""
        self._requests.put(None)

    def read(self) -> rpc.EnvironmentResponse:
        """The next answer."""
        return rpc.EnvironmentResponse.FromString(next(self.call))

    def read_rest(self) -> list[rpc.EnvironmentResponse]:
        """All answers until the server ends the stream."""
        return [rpc.EnvironmentResponse.FromString(data) for data in self.call]

    def ask_bytes(self, data: bytes) -> rpc.EnvironmentResponse:
        self.send_bytes(data)
        return self.read()

    def ask(self, **payload: Any) -> rpc.EnvironmentResponse:
        """The answer, or Refused."""
        self.send(**payload)
        return self.take(next(iter(payload)))

    def take(self, kind: str) -> rpc.EnvironmentResponse:
        """The next answer, which is of that kind; or Refused."""
        response = self.read()
        if response.WhichOneof("payload") == "error":
            raise Refused(response.error.code, response.error.message)
        assert response.WhichOneof("payload") == kind
        return response

    # The protocol.

    def create(self, family: str, **settings: Any) -> str:
        request = rpc.CreateWorldRequest(settings=packed({"family": family, **settings}))
        return str(self.ask(create_world=request).create_world.world_name)

    def join(self, world: str, **settings: Any) -> rpc.ActionObservationSpecs:
        request = rpc.JoinWorldRequest(world_name=world, settings=packed(settings))
        self.specs = self.ask(join_world=request).join_world.specs
        return self.specs

    def step(self, *see: str, **actions: Any) -> Told:
        self.send_step(*see, **actions)
        return self.told()

    def send_step(self, *see: str, **actions: Any) -> None:
        self.send(step=self.step_request(see, actions))

    def told(self) -> Told:
        """The next answer, which is to a step."""
        return self.unpack(self.take("step"))

    def leave(self) -> None:
        self.ask(leave_world=rpc.LeaveWorldRequest())

    def destroy(self, world: str) -> None:
        self.ask(destroy_world=rpc.DestroyWorldRequest(world_name=world))

    def property(self, key: str) -> Any:
        request = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
        response = properties_pb2.PropertyResponse()
        assert self.ask(extension=packed_any(request)).extension.Unpack(response)
        return tensor_utils.unpack_tensor(response.read_property.value)

    def step_request(self, see: Sequence[str], actions: dict[str, Any]) -> rpc.StepRequest:
        by_name = {spec.name: (uid, spec) for uid, spec in self.specs.actions.items()}
        tensors = {}
        for name, value in actions.items():
            uid, spec = by_name[name]
            dtype = tensor_utils.data_type_to_np_type(spec.dtype)
            tensors[uid] = tensor_utils.pack_tensor(np.asarray(value, dtype))
        uids = {spec.name: uid for uid, spec in self.specs.observations.items()}
        return rpc.StepRequest(actions=tensors, requested_observations=[uids[name] for name in see])

    def unpack(self, response: rpc.EnvironmentResponse) -> Told:
        names = {uid: spec.name for uid, spec in self.specs.observations.items()}
        step = response.step
        return Told(
            step.state,
            {names[uid]: np.asarray(tensor_utils.unpack_tensor(tensor)) for uid, tensor in step.observations.items()},
        )


def packed_any(message: Any) -> Any:
    """A message as an extension."""
    request = rpc.EnvironmentRequest()
    request.extension.Pack(message)
    return request.extension
