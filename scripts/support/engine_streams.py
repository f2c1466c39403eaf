"""An engine without its thread, and streams that talk to it without sockets.

Nothing happens by itself here: requests are posted, a tick takes all that was posted, and replies lie where the test
looks for them. Messages are packed and unpacked with the reference package's own tools.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2

from scripts.support.messages import RequestFailed, StepReply, packed
from worldloom.render.renderer import Renderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.session import Session
from worldloom.server.engine.directory import WorldDirectory
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.router import Replies

RUNNING, TERMINATED, INTERRUPTED = rpc.RUNNING, rpc.TERMINATED, rpc.INTERRUPTED
FIRST, MID, LAST = 0, 1, 2
_ENOUGH_TICKS = 4
"""An answer that does not wait for somebody else is there after so many."""


@contextmanager
def refused(code: str, *words: str) -> Iterator[RequestFailed]:
    """What is done within is refused with that code, and the text has these words. What comes back says it after."""
    told = RequestFailed(0, "")
    try:
        yield told
    except RequestFailed as caught:
        told.code, told.text = caught.code, caught.text
    else:
        raise AssertionError(f"not refused: expected {code}")
    assert told.code == code, told.text
    for word in words:
        assert word in told.text, told.text


class EngineHarness:
    """An engine, and everyone who talks to it. The renderer is lent: it is not closed here."""

    def __init__(
        self, renderer: Renderer, clock: Callable[[], float] | None = None, timers: bool = True, **limits: Any
    ) -> None:
        self.engine = Engine(lambda: renderer, Limits(**limits), timers)
        if clock is not None:
            self.engine.directory = WorldDirectory(self.engine.limits, clock)
        self.engine.open()
        self.route = self.engine.router.register(self._deliver)
        self.sent: list[bytes] = []
        """Replies of the last tick."""
        self._opened = 0
        self._calls: list[Callable[[], None]] = []

    def stream(self) -> "Stream":
        """Another stream. What was posted before waits for the next tick all the same."""
        made = Stream(self, f"s{self._opened}")
        self._opened += 1
        made.session.open()
        return made

    def post(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def tick(self) -> None:
        """One round of the engine, with all that was posted."""
        calls, self._calls = self._calls, []
        self.sent.clear()
        self.engine.tick(calls)

    def _deliver(self, replies: Replies) -> None:
        for stream, data in replies:
            self.sent.append(data)
            stream.replies.append(rpc.EnvironmentResponse.FromString(data))

    def settle(self) -> None:
        """Rounds of the engine until nothing more can come of what was posted."""
        for _ in range(_ENOUGH_TICKS):
            self.tick()

    def step_all(self, *streams: "Stream", see: Sequence[str] = ()) -> list[StepReply]:
        """These streams step in one tick, without actions."""
        for stream in streams:
            stream.post_step(*see)
        self.settle()
        return [stream.step_reply() for stream in streams]

    def check_empty(self) -> None:
        """Nothing is left of worlds, lanes and agents, in the engine's books and in the pools."""
        directory = self.engine.directory
        assert not directory.worlds
        assert directory.lanes_in_use == 0
        assert directory.shared_bytes == 0
        assert all(count == 0 for count in directory.pools.lanes_of.values())
        for pool in directory.pools.by_key.values():
            assert not pool._in_use.any()


class Stream:
    """A client's side of one stream. Each request gets one answer, and one is under way at a time."""

    def __init__(self, harness: EngineHarness, name: str) -> None:
        self.harness = harness
        self.replies: list[rpc.EnvironmentResponse] = []
        self.session = Session(harness.engine, name, partial(harness.route.send, self))
        self.world = ""
        self.specs = rpc.ActionObservationSpecs()

    # One request, which is answered at once.

    def create(self, family: str, **settings: Any) -> str:
        request = rpc.CreateWorldRequest(settings=packed({"family": family, **settings}))
        return str(self.ask(create_world=request).create_world.world_name)

    def join(self, world: str, **settings: Any) -> rpc.ActionObservationSpecs:
        request = rpc.JoinWorldRequest(world_name=world, settings=packed(settings))
        self.specs = self.ask(join_world=request).join_world.specs
        self.world = world
        return self.specs

    def step(self, *see: str, **actions: Any) -> StepReply:
        self.post_step(*see, **actions)
        self.harness.settle()
        return self.step_reply()

    def reset(self, **settings: Any) -> rpc.ActionObservationSpecs:
        self.specs = self.ask(reset=rpc.ResetRequest(settings=packed(settings))).reset.specs
        return self.specs

    def reset_world(self, world: str, **settings: Any) -> None:
        self.post_reset_world(world, **settings)
        self.harness.settle()
        self.take("reset_world")

    def leave(self) -> None:
        self.ask(leave_world=rpc.LeaveWorldRequest())

    def destroy(self, world: str) -> None:
        self.ask(destroy_world=rpc.DestroyWorldRequest(world_name=world))

    def read(self, key: str) -> Any:
        request = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
        return tensor_utils.unpack_tensor(self.ask_property(request).read_property.value)

    def write(self, key: str, value: Any) -> None:
        tensor = tensor_utils.pack_tensor(value)
        write = properties_pb2.WritePropertyRequest(key=key, value=tensor)
        self.ask_property(properties_pb2.PropertyRequest(write_property=write))

    def list_properties(self, key: str = "") -> dict[str, properties_pb2.PropertySpec]:
        asked = properties_pb2.PropertyRequest(list_property=properties_pb2.ListPropertyRequest(key=key))
        return {one.spec.name: one for one in self.ask_property(asked).list_property.values}

    def ask_property(self, request: properties_pb2.PropertyRequest) -> properties_pb2.PropertyResponse:
        asked = rpc.EnvironmentRequest()
        asked.extension.Pack(request)
        self.post(asked)
        self.harness.settle()
        response = properties_pb2.PropertyResponse()
        assert self.take("extension").extension.Unpack(response)
        return response

    # The halves of that: post what may have to wait, and take what came.

    def ask(self, **payload: Any) -> rpc.EnvironmentResponse:
        self.post(rpc.EnvironmentRequest(**payload))
        self.harness.settle()
        return self.take(next(iter(payload)))

    def post(self, request: rpc.EnvironmentRequest) -> None:
        self.post_bytes(request.SerializeToString())

    def post_bytes(self, data: bytes) -> None:
        self.harness.post(lambda: self.session.receive(data))

    def post_step(self, *see: str, **actions: Any) -> None:
        uids = {spec.name: uid for uid, spec in self.specs.actions.items()}
        dtypes = {spec.name: tensor_utils.data_type_to_np_type(spec.dtype) for spec in self.specs.actions.values()}
        tensors = {
            uids[name]: tensor_utils.pack_tensor(np.asarray(value, dtypes[name])) for name, value in actions.items()
        }
        request = rpc.StepRequest(actions=tensors, requested_observations=[self.uid(name) for name in see])
        self.post(rpc.EnvironmentRequest(step=request))

    def post_reset_world(self, world: str, **settings: Any) -> None:
        request = rpc.ResetWorldRequest(world_name=world, settings=packed(settings))
        self.post(rpc.EnvironmentRequest(reset_world=request))

    def close(self) -> None:
        """The stream is gone."""
        self.harness.post(self.session.close)
        self.harness.settle()

    @property
    def waits(self) -> bool:
        """No answer has come, however often the engine ticks."""
        self.harness.settle()
        return not self.replies

    def take(self, kind: str) -> rpc.EnvironmentResponse:
        """The one answer that came, which is of that kind."""
        assert len(self.replies) == 1, f"{len(self.replies)} answers: expected one"
        response = self.replies.pop()
        if response.WhichOneof("payload") == "error":
            raise RequestFailed(response.error.code, response.error.message)
        assert response.WhichOneof("payload") == kind
        return response

    def step_reply(self) -> StepReply:
        """The answer to a step."""
        step = self.take("step").step
        names = {uid: spec.name for uid, spec in self.specs.observations.items()}
        return StepReply(
            step.state,
            {names[uid]: np.asarray(tensor_utils.unpack_tensor(tensor)) for uid, tensor in step.observations.items()},
        )

    def uid(self, name: str) -> int:
        return next(int(uid) for uid, spec in self.specs.observations.items() if spec.name == name)

    @property
    def names(self) -> list[str]:
        """All observations that are offered."""
        return [spec.name for spec in self.specs.observations.values()]
