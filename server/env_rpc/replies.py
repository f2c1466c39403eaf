"""Replies that are the same whatever was asked."""

from dm_env_rpc.v1 import dm_env_rpc_pb2

from worldloom.server.errors import Refusal


def error_reply(refusal: Refusal) -> bytes:
    """A serialised EnvironmentResponse that says why a request was refused."""
    response = dm_env_rpc_pb2.EnvironmentResponse()
    response.error.code = refusal.code
    # A lone surrogate (from a file name, say) has no UTF-8 form and must not turn one error into another.
    response.error.message = str(refusal).encode(errors="replace").decode()
    reply: bytes = response.SerializeToString()
    return reply
