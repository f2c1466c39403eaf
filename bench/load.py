"""Load for benchmarks: servers in other processes, and clients that only send requests and read replies."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils

from worldloom.server.launch import ServerProcess

_FLAGS = ("--listen", "127.0.0.1:0", "--log-level", "warning")
_METHOD = "/dm_env_rpc.v1.Environment/Process"


def worldloom_process(*flags: str) -> ServerProcess:
    """Start `worldloom serve`."""
    return ServerProcess(*_FLAGS, *flags, show_stderr=True)


def objects_process(*flags: str) -> ServerProcess:
    """Start the same with replies built as protobuf objects."""
    return _start_module("objects_server", *_FLAGS, *flags)


def naive_process(renderer: str) -> ServerProcess:
    """Start the simplest server that does the same."""
    return _start_module("naive_server", "--renderer", renderer)


def echo_process(reply_bytes: int) -> ServerProcess:
    """Start a server that answers every request with the same bytes."""
    return _start_module("echo_server", str(reply_bytes))


def _start_module(name: str, *arguments: str) -> ServerProcess:
    return ServerProcess(*arguments, program=(sys.executable, "-m", f"worldloom.bench.{name}"), show_stderr=True)


@dataclass
class Streams:
    """Streams to one server, each of which sends one request over and over."""

    loop: asyncio.AbstractEventLoop
    channels: list[grpc.aio.Channel]
    calls: list[grpc.aio.StreamStreamCall] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    reply_bytes: int = 0

    def run(self, seconds: float) -> tuple[float, list[float]]:
        """Messages a second over all streams, and how long each took."""
        return self.loop.run_until_complete(self._run(seconds))

    async def _run(self, seconds: float) -> tuple[float, list[float]]:
        took_s: list[float] = []
        end = time.perf_counter() + seconds

        async def step(call: grpc.aio.StreamStreamCall, request: bytes) -> None:
            while (began := time.perf_counter()) < end:
                await call.write(request)
                await call.read()
                took_s.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(step(*one) for one in zip(self.calls, self.requests, strict=True)))
        return len(took_s) / (time.perf_counter() - began), took_s

    def close(self) -> None:
        """Close all streams."""
        self.loop.run_until_complete(self._close())

    async def _close(self) -> None:
        for call in self.calls:
            call.cancel()
        for channel in self.channels:
            await channel.close()


def connect(loop: asyncio.AbstractEventLoop, address: str, connections: int) -> Streams:
    """Connect to a server, without any stream yet."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]

    async def make() -> list[grpc.aio.Channel]:
        return [grpc.aio.insecure_channel(address, options=options) for _ in range(connections)]

    return Streams(loop, loop.run_until_complete(make()))


def open_echo(streams: Streams, count: int, request: bytes) -> None:
    """Open streams that send this request."""
    for number in range(count):
        streams.calls.append(streams.channels[number % len(streams.channels)].stream_stream(_METHOD)())
        streams.requests.append(request)


def open_worlds(
    streams: Streams,
    count: int,
    family: str,
    observations: Sequence[str],
    lanes: int | None = None,
    action: int = 0,
) -> None:
    """Open streams that each step a world with a constant action and request these observations."""
    streams.loop.run_until_complete(_open_worlds(streams, count, family, observations, lanes, action))


async def _open_worlds(
    streams: Streams, count: int, family: str, observations: Sequence[str], lanes: int | None, action: int
) -> None:
    for number in range(count):
        call = streams.channels[number % len(streams.channels)].stream_stream(_METHOD)()
        settings: dict[str, object] = {"family": family, "seed": number}
        if lanes is not None:
            settings["lanes"] = lanes
        created = await _request(call, create_world=rpc.CreateWorldRequest(settings=_packed(settings)))
        joining: dict[str, object] = {"max_reply_bytes": 1 << 30}
        if observations:
            joining["observations"] = list(observations)
        join = rpc.JoinWorldRequest(world_name=created.create_world.world_name, settings=_packed(joining))
        specs = (await _request(call, join_world=join)).join_world.specs
        step = rpc.StepRequest(requested_observations=list(specs.observations) if observations else [])
        for uid, spec in specs.actions.items():
            step.actions[uid].CopyFrom(tensor_utils.pack_tensor(action, dtype=spec.dtype))
            step.actions[uid].shape[:] = spec.shape
        request = rpc.EnvironmentRequest(step=step).SerializeToString()
        for _ in range(3):
            await call.write(request)
            streams.reply_bytes = len(await call.read())
        streams.calls.append(call)
        streams.requests.append(request)


async def _request(call: grpc.aio.StreamStreamCall, **payload: object) -> rpc.EnvironmentResponse:
    await call.write(rpc.EnvironmentRequest(**payload).SerializeToString())
    response = rpc.EnvironmentResponse.FromString(await call.read())
    if response.HasField("error"):
        raise RuntimeError(response.error.message)
    return response


def _packed(settings: dict[str, object]) -> dict[str, rpc.Tensor]:
    return {name: tensor_utils.pack_tensor(value) for name, value in settings.items()}
