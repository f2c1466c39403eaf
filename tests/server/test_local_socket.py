"""A real server over its local socket: the same bytes as over gRPC, and peers that harm nobody but themselves."""

import contextlib
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1.extensions import properties_pb2
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.support.background_client import BackgroundClient
from scripts.support.messages import packed
from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import StreamClient, packed_any
from tests.support.hostile_requests import MIB, VALID
from tests.support.local_echo import RawClient, wait_until
from worldloom.client.connecting import connect
from worldloom.client.connections import Connection, Credentials
from worldloom.protos.local_frames import HEADER, HELLO, MESSAGE, LocalAddress, pack_frame

_OUR_SHARE_BYTES = 64 * MIB
"""Limit of the memory that all peers of this file may add to the server."""
_WORLD_NAME = re.compile(rb"(catch|maze)-[0-9a-f]{32}")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def local(server: ServerProcess) -> LocalAddress:
    with StreamClient(server.address) as client:
        return LocalAddress(
            str(client.property("server.local_socket")), str(client.property("server.local_socket_key"))
        )


@pytest.fixture(scope="module")
def witness(server: ServerProcess) -> Iterator[BackgroundClient]:
    made = BackgroundClient(server.address)
    made.check()
    before = server.resident_bytes
    yield made
    made.stop()
    assert server.resident_bytes - before < _OUR_SHARE_BYTES


@pytest.fixture
def unharmed(server: ServerProcess, witness: BackgroundClient) -> Iterator[None]:
    """Other clients go on, and no stream or descriptor is left behind."""
    files = open_files(server)
    with StreamClient(server.address) as client:
        yield
        witness.check()
        wait_until(lambda: client.property("counters.streams") == 2)
    wait_until(lambda: open_files(server) <= files)


def open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


STEPS = [
    rpc.EnvironmentRequest(create_world=rpc.CreateWorldRequest(settings=packed({"family": "catch", "seed": 3}))),
    rpc.EnvironmentRequest(
        join_world=rpc.JoinWorldRequest(world_name="WORLD", settings=packed({"width": 8, "height": 8}))
    ),
    rpc.EnvironmentRequest(join_world=rpc.JoinWorldRequest(world_name="nowhere")),
    rpc.EnvironmentRequest(step=rpc.StepRequest(requested_observations=[1, 2, 3])),
    rpc.EnvironmentRequest(step=rpc.StepRequest(requested_observations=[1000])),
    rpc.EnvironmentRequest(step=rpc.StepRequest(actions={1: rpc.Tensor(int32s=rpc.Tensor.Int32Array(array=[1]))})),
    rpc.EnvironmentRequest(reset=rpc.ResetRequest()),
    rpc.EnvironmentRequest(reset_world=rpc.ResetWorldRequest(world_name="WORLD", settings=packed({"seed": 9}))),
    rpc.EnvironmentRequest(leave_world=rpc.LeaveWorldRequest()),
    rpc.EnvironmentRequest(destroy_world=rpc.DestroyWorldRequest(world_name="WORLD")),
    *(
        rpc.EnvironmentRequest(
            extension=packed_any(
                properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
            )
        )
        for key in ("server.version", "world.steps", "no.such.key", "shm.name")
    ),
]
requests = st.sampled_from([message.SerializeToString() for message in (*STEPS, *STEPS[:4], *VALID)])


class Player:
    """A connection, and the name of the last world that was created through it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._world = b""

    def ask(self, request: bytes) -> bytes:
        """Send a request, with the name of our world in it, and return the reply with its random part left out."""
        parsed = rpc.EnvironmentRequest()
        with contextlib.suppress(DecodeError):
            parsed.ParseFromString(request)
        for kind in ("join_world", "reset_world", "destroy_world"):
            if parsed.HasField(kind) and getattr(parsed, kind).world_name == "WORLD":
                getattr(parsed, kind).world_name = self._world.decode()
                request = parsed.SerializeToString()
        self._connection.send(request)
        reply = self._connection.receive()
        self._connection.taken += 1
        self._connection.release()
        if found := _WORLD_NAME.search(reply):
            self._world = found[0]
        return _WORLD_NAME.sub(rb"\1-name", reply)

    def close(self) -> None:
        """End the stream."""
        self._connection.close()


@settings(max_examples=40, deadline=None)
@given(sequence=st.lists(requests | st.binary(max_size=60), max_size=14))
def test_the_same_bytes_as_over_grpc(sequence: list[bytes], server: ServerProcess) -> None:
    by_grpc, by_socket = (
        Player(connect(server.address, Credentials(), "auto", 60.0, transport)) for transport in ("grpc", "socket")
    )
    try:
        for request in sequence:
            if _is_about_streams(request):
                continue
            assert by_socket.ask(request) == by_grpc.ask(request)
    finally:
        by_grpc.close()
        by_socket.close()


def _is_about_streams(request: bytes) -> bool:
    """Counters and timers, which differ from one call to the next."""
    return any(word in request for word in (b"counters", b"timers"))


@pytest.mark.usefixtures("unharmed")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), is_greeting=st.booleans(), is_framed=st.booleans())
def test_random_bytes(data: bytes, is_greeting: bool, is_framed: bool, local: LocalAddress) -> None:
    with RawClient(local, is_greeting=is_greeting) as client:
        client.socket.sendall(pack_frame(MESSAGE if is_greeting else HELLO, data) if is_framed else data)
        if is_framed:
            client.read()


@pytest.mark.usefixtures("unharmed")
def test_peers_that_stall_in_every_way(server: ServerProcess, local: LocalAddress, witness: BackgroundClient) -> None:
    """Silent ones, ones in the middle of a header or message, and ones that send and never read."""
    with StreamClient(server.address) as creator:
        world = creator.create("catch", lanes=512)
        join = rpc.EnvironmentRequest(
            join_world=rpc.JoinWorldRequest(world_name=world, settings=packed({"max_reply_bytes": 2**31 - 1}))
        )
        clients = [RawClient(local, is_greeting=False) for _ in range(100)]
        clients += [RawClient(local) for _ in range(60)]
        for number, client in enumerate(clients[100:]):
            client.socket.sendall(pack_frame(MESSAGE, bytes(3 * MIB))[: (0, 3, 8, 100)[number % 4]])
        greedy = RawClient(local)
        greedy.ask(join.SerializeToString())
        greedy.socket.setblocking(False)
        step = pack_frame(
            MESSAGE,
            rpc.EnvironmentRequest(step=rpc.StepRequest(requested_observations=range(1, 5))).SerializeToString(),
        )
        for _ in range(1000):
            try:
                greedy.socket.send(step)
            except BlockingIOError:
                break
        witness.check()
        for client in (*clients, greedy):
            client.socket.close()
        creator.destroy(world)


@pytest.mark.usefixtures("unharmed")
def test_slow_bytes_and_a_storm_of_connections(local: LocalAddress, witness: BackgroundClient) -> None:
    request = pack_frame(MESSAGE, STEPS[0].SerializeToString())
    with RawClient(local) as slow:
        for byte in request:
            slow.socket.sendall(bytes([byte]))
        assert rpc.EnvironmentResponse.FromString(slow.read()[1]).create_world.world_name
        for _ in range(1000):
            RawClient(local, is_greeting=False).socket.close()
        rng = random.Random(1)
        for _ in range(100):
            with RawClient(local, is_greeting=rng.random() < 0.5) as client:
                client.socket.sendall(rng.randbytes(rng.randrange(1, 200)))
        witness.check()
        assert rpc.EnvironmentResponse.FromString(slow.ask(b"")).error.message


@pytest.mark.usefixtures("unharmed")
def test_large_messages(local: LocalAddress) -> None:
    with RawClient(local) as client:
        reply = rpc.EnvironmentResponse.FromString(client.ask(bytes(5 * MIB)))
        assert "--max-message-bytes" in reply.error.message
        assert rpc.EnvironmentResponse.FromString(client.ask(b"")).error.message
        client.socket.sendall(HEADER.pack(2**32 - 1, MESSAGE))
        assert "--max-message-bytes" in client.read_end().message


@pytest.mark.usefixtures("unharmed")
def test_shared_memory_that_nobody_takes(server: ServerProcess, local: LocalAddress) -> None:
    """Replies with descriptors that are not read, again and again: none stays open in the server."""
    read = next(one for one in STEPS if one.extension.value.find(b"shm.name") >= 0).SerializeToString()
    with StreamClient(server.address) as creator:
        world = creator.create("catch")
        join = rpc.JoinWorldRequest(world_name=world, settings=packed({"shm": True}))
        with RawClient(local) as client:
            client.ask(rpc.EnvironmentRequest(join_world=join).SerializeToString())
            before = open_files(server)
            client.socket.setblocking(False)
            for _ in range(3000):
                try:
                    client.socket.send(pack_frame(MESSAGE, read))
                except BlockingIOError:
                    break
            assert open_files(server) <= before + 2
        creator.destroy(world)


def test_limits_count_streams_of_both_transports() -> None:
    with serving("--max-streams", "2") as process, StreamClient(process.address) as client:
        known: Any = [client.property(f"server.local_socket{end}") for end in ("", "_key")]
        with RawClient(LocalAddress(*map(str, known))) as second:
            assert rpc.EnvironmentResponse.FromString(second.ask(b"")).error.message
            with StreamClient(process.address) as third, pytest.raises(Exception, match="2 streams are open"):
                third.property("server.version")
            assert client.property("counters.streams") == 2
        wait_until(lambda: client.property("counters.streams") == 1)
        with StreamClient(process.address) as third:
            assert third.property("counters.streams") == 2
