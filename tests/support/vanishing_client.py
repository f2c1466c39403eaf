"""A client that is about to be killed: it joins a world as the reference package does, steps, and says so.

    python -m tests.support.vanishing_client ADDRESS WORLD STEPS

It steps that many times and then once more, without reading the answer.
"""

import sys
import time

import grpc
from dm_env_rpc.v1 import connection, message_utils
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

_LIFETIME_S = 120.0


def main(address: str, world: str, steps: int) -> None:
    channel = grpc.insecure_channel(address)
    stream = connection.Connection(channel)
    stream.send(rpc.JoinWorldRequest(world_name=world))
    for _ in range(steps):
        stream.send(rpc.StepRequest())
    request, _ = message_utils.pack_environment_request(rpc.StepRequest())
    stream._stream.write(request)
    print("stepped", flush=True)
    time.sleep(_LIFETIME_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
