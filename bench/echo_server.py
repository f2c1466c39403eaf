"""Echo server: the least work of a server over gRPC. It answers every request of a stream with the same bytes.

    python -m worldloom.bench.echo_server REPLY_BYTES

Time that our server takes beyond it is our own. The reply is built once; the address is printed as `worldloom serve`
does.
"""

import asyncio
import sys
from typing import Any

import grpc


async def _serve(reply: bytes) -> None:
    async def process(_requests: object, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(reply)

    handler = grpc.method_handlers_generic_handler(
        "dm_env_rpc.v1.Environment", {"Process": grpc.stream_stream_rpc_method_handler(process)}
    )
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers([handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(bytes(int(sys.argv[1]))))
