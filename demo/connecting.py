"""A stream to a server by the dm_env_rpc package's own client, as people write it who know nothing of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from dm_env_rpc.v1.connection import Connection

_CONNECT_S = 10.0
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each stream
    ("grpc.enable_http_proxy", 0),  # the server is on this machine
]


@contextmanager
def connected(address: str) -> Iterator[Connection]:
    """A stream for as long as the block lasts."""
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CONNECT_S)
        except grpc.FutureTimeoutError:
            raise RuntimeError(f"no answer from the server at {address} within {_CONNECT_S:g} s") from None
        with Connection(channel) as stream:
            yield stream
