"""Program that watches the servers of a fleet over the network: their health, and their counters.

    python -m worldloom.fleet.probe PARENT_PID

It reads JSON lines from stdin: first the token and the authority's certificate, then servers by name whenever they have
changed. It writes a line twice a second with an entry for each server (`ServerHealth`). It is a process of its own,
since gRPC and Ray in one process disturb each other. It ends with its parent.

The stream that counters are read through would keep a draining server waiting. So it is closed as soon as the server
says that it is not serving.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from worldloom.client.errors import ClientError
from worldloom.client.world import decode_property, encode_property_request
from worldloom.fleet.health import INTERVAL_S, ServerHealth
from worldloom.fleet.serve_process import die_with_parent
from worldloom.kernels.outputs import OUTPUT_NAMES

_METHOD = "/dm_env_rpc.v1.Environment/Process"
_CHECK_TIMEOUT_S = 1.0
_READ_TIMEOUT_S = 5.0
_FRAMES = tuple(f"counters.frames.{output}" for output in OUTPUT_NAMES)
_KEYS = ("counters.lanes", "counters.lane_steps", *_FRAMES)
_STATUS = health_pb2.HealthCheckResponse


class _Watched:
    """One server, watched by a task of its own."""

    def __init__(self, address: str, token: str, credentials: grpc.ChannelCredentials) -> None:
        self.address = address
        self.health = ServerHealth(began_s=time.monotonic())
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._channel = grpc.aio.secure_channel(address, credentials)
        self._tasks = [asyncio.create_task(self._check_health()), asyncio.create_task(self._read_counters())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def _check_health(self) -> None:
        stub = health_pb2_grpc.HealthStub(self._channel)
        while True:
            asked_s = time.monotonic()
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_CHECK_TIMEOUT_S)
            except grpc.RpcError:
                self.health.failures += 1
            else:
                self.health.failures = 0
                self.health.answered_s = time.monotonic()
                self.health.is_serving = answer.status == _STATUS.SERVING
            await asyncio.sleep(max(0.0, asked_s + INTERVAL_S - time.monotonic()))

    async def _read_counters(self) -> None:
        while True:
            if self.health.is_serving:
                call = self._channel.stream_stream(_METHOD)(metadata=self._metadata)
                with suppress(grpc.RpcError, ClientError, TimeoutError):
                    await self._read_while_serving(call)
                call.cancel()
            await asyncio.sleep(INTERVAL_S)

    async def _read_while_serving(self, call: Any) -> None:
        while self.health.is_serving:
            await asyncio.wait_for(self._read(call), _READ_TIMEOUT_S)
            await asyncio.sleep(INTERVAL_S)
        await call.done_writing()

    async def _read(self, call: Any) -> None:
        values = []
        for key in _KEYS:
            await call.write(encode_property_request(key))
            reply = await call.read()
            if reply is grpc.aio.EOF:
                raise TimeoutError
            values.append(int(decode_property(reply, key)))
        lanes, lane_steps, *frames = values
        self.health.count(time.monotonic(), lanes, lane_steps, sum(frames))


async def _watch() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    secrets = json.loads(await lines.readline())
    credentials = grpc.ssl_channel_credentials(root_certificates=secrets["tls_ca"].encode())
    watched: dict[str, _Watched] = {}
    writing = asyncio.create_task(_write(watched))
    while line := await lines.readline():
        servers: dict[str, str] = json.loads(line)
        for name in [name for name, one in watched.items() if servers.get(name) != one.address]:
            await watched.pop(name).close()
        for name in servers.keys() - watched.keys():
            watched[name] = _Watched(servers[name], secrets["token"], credentials)
    writing.cancel()
    for one in watched.values():
        await one.close()


async def _write(watched: dict[str, _Watched]) -> None:
    while True:
        print(json.dumps({name: one.health.as_dict() for name, one in watched.items()}), flush=True)
        await asyncio.sleep(INTERVAL_S)


def main(words: Sequence[str]) -> int:
    """Watch until stdin ends."""
    die_with_parent(int(words[0]))
    asyncio.run(_watch())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
