"""What tests say and are told, with the reference package's own tools. Quick to import: client processes need it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from google.rpc import code_pb2


class Refused(Exception):  # noqa: N818  # as the protocol says it
    """An answer that is an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code_pb2.Code.Name(code)}: {text}")
        self.code = code_pb2.Code.Name(code)
        self.text = text


class Told(NamedTuple):
    """The answer to a step."""

    state: int
    seen: dict[str, np.ndarray]


def packed(settings: Mapping[str, Any]) -> dict[str, rpc.Tensor]:
    return {name: tensor_utils.pack_tensor(value) for name, value in settings.items()}
