"""What a hostile client might send: shapes that cannot be, settings that take memory, and messages to spoil."""

from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2
from google.rpc import status_pb2

from scripts.support.messages import packed
from scripts.support.stream_client import packed_any

MIB = 1 << 20

VALID = [
    rpc.EnvironmentRequest(create_world=rpc.CreateWorldRequest(settings=packed({"family": "catch", "rows": 5}))),
    rpc.EnvironmentRequest(join_world=rpc.JoinWorldRequest(world_name="maze-1", settings=packed({"width": 5}))),
    rpc.EnvironmentRequest(
        step=rpc.StepRequest(requested_observations=[1], actions={1: tensor_utils.pack_tensor(np.zeros(2, np.float32))})
    ),
    rpc.EnvironmentRequest(reset=rpc.ResetRequest(settings=packed({"width": 8}))),
    rpc.EnvironmentRequest(reset_world=rpc.ResetWorldRequest(world_name="maze-1", settings=packed({"seed": 8}))),
    rpc.EnvironmentRequest(destroy_world=rpc.DestroyWorldRequest(world_name="maze-1")),
    rpc.EnvironmentRequest(
        extension=packed_any(
            properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key="world.seed"))
        )
    ),
]


def tensor(shape: list[int], **payload: Any) -> rpc.Tensor:
    return rpc.Tensor(shape=shape, **payload)


def floats(*values: float) -> dict[str, Any]:
    return {"floats": rpc.Tensor.FloatArray(array=values)}


SHAPES = [[2**31 - 1] * 8, [-1, -1], [-(2**31)], [-5], [0], [2, 2**31 - 1], [2] * 100_000, [1] * 64, [2**31 - 1]]


def many(count: int) -> dict[str, rpc.Tensor]:
    return packed({f"setting {number}": number for number in range(count)})


BOMBS: dict[str, dict[str, rpc.Tensor]] = {
    "300 settings": many(300),
    "50,000 settings": many(50_000),
    "a million elements": {"rows": tensor_utils.pack_tensor(np.zeros(1_000_000, np.float32))},
    "one element for a million": {"rows": tensor([1_000_000], **floats(1.0))},
    "a text of 3 MiB": packed({"family": "x" * (3 * MIB)}),
    "a name of 1 MiB": packed({"x" * MIB: 1}),
    "a hundred thousand texts": {"family": tensor_utils.pack_tensor(["catch"] * 100_000)},
    "a proto": {"family": rpc.Tensor(protos=rpc.Tensor.ProtoArray(array=[packed_any(status_pb2.Status(code=1))]))},
    "no payload": {"family": rpc.Tensor()},
    "NaN": packed({"family": "maze", "speed": float("nan")}),
    "a large number": packed({"family": "maze", "speed": 1e308}),
    "many lanes": packed({"family": "maze", "lanes": 2**62}),
    "an odd name": packed({"family": "\0\u202e\ud7ff../../etc/passwd"}),
}
