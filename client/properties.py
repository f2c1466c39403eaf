"""A server's properties, read one at a time: what is asked, and what the answer says."""

from typing import Any

from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2

from worldloom.client.errors import BadReply
from worldloom.client.wire import parse_reply


def write_question(key: str) -> bytes:
    """The request for a property."""
    asked = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
    request = rpc.EnvironmentRequest()
    request.extension.Pack(asked)
    written: bytes = request.SerializeToString()
    return written


def read_answer(reply: bytes, key: str) -> Any:
    """The value in the reply to that request."""
    response = properties_pb2.PropertyResponse()
    if not parse_reply(reply, "extension").extension.Unpack(response):
        raise BadReply(f"no property in the answer to a question for {key!r}: expected a PropertyResponse")
    return tensor_utils.unpack_tensor(response.read_property.value)
