"""Our server with replies built as protobuf objects and then serialised, as most servers do.

    python -m worldloom.bench.objects_server [flags of worldloom serve]

Everything else is the same: the engine, its batches, the renderer. The difference is what reply layouts gain.
"""

import sys
from collections.abc import Callable
from math import prod

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils

from worldloom.server import cli
from worldloom.server import run as running
from worldloom.server.dm_env_rpc.session import Session
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.observations import ObservationSpec
from worldloom.server.engine.replies import ObservationField, ReplyLayout, bytes_layout
from worldloom.server.engine.world import Step


def arrays_one_after_the_other(observations: tuple[ObservationSpec, ...]) -> ReplyLayout:
    """Return a layout of the values alone, as arrays in memory, after a byte for the state."""
    fields, end = [], 1
    for one in observations:
        fields.append(ObservationField(end, as_varints=False))
        end += prod(one.shape) * np.dtype(one.dtype).itemsize
    return bytes_layout(end, {}, 0, tuple(fields))


class ObjectsSession(Session):
    """A session that builds a message of the values."""

    def __init__(self, engine: Engine, name: str, send: Callable[[bytes], None]) -> None:
        super().__init__(engine, name, send)
        self._layout_cache = engine.layout_cache(arrays_one_after_the_other)

    def _answer_step(self, step: Step) -> None:
        response = rpc.EnvironmentResponse()
        response.step.state = step.state
        for one, in_reply in zip(step.request.observations, step.request.layout.fields, strict=True):
            values = np.frombuffer(step.reply, one.dtype, prod(one.shape), in_reply.offset).reshape(one.shape)
            response.step.observations[one.uid].CopyFrom(tensor_utils.pack_tensor(values))
        self._send(response)


if __name__ == "__main__":
    vars(running)["Session"] = ObjectsSession
    sys.exit(cli.main(["serve", *sys.argv[1:]]))
