"""Messages of dm_env_rpc, packed and unpacked with the reference package. Quick to import, for client processes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from google.rpc import code_pb2


class RequestFailed(Exception):  # noqa: N818
    """A reply that is an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code_pb2.Code.Name(code)}: {text}")
        self.code = code_pb2.Code.Name(code)
        self.text = text


class StepReply(NamedTuple):
    """The reply to a step."""

    state: int
    observations: dict[str, np.ndarray]


def packed(settings: Mapping[str, Any]) -> dict[str, rpc.Tensor]:
    """Pack settings into tensors."""
    return {name: tensor_utils.pack_tensor(value) for name, value in settings.items()}
