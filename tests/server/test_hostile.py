"""Whatever a client sends gets an error, or ends its own stream where gRPC itself refuses; nobody else is harmed."""

import random
import socket
from collections.abc import Iterator
from itertools import islice, permutations

import grpc
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1.extensions import properties_pb2
from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.support.background_client import BackgroundClient
from scripts.support.messages import packed
from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import TIMEOUT_S, StreamClient, packed_any
from tests.support.hostile_requests import BOMBS, MIB, SHAPES, VALID, floats, tensor
from worldloom.protos.wire import field_header

_OUR_SHARE_BYTES = 256 * MIB
"""Of memory that all this may add to the server: messages of 64 MiB are taken in, and a world of 65,536 lanes made."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def witness(server: ServerProcess) -> Iterator[BackgroundClient]:
    made = BackgroundClient(server.address)
    made.check()
    before = server.resident_bytes
    yield made
    made.stop()
    assert server.resident_bytes - before < _OUR_SHARE_BYTES


@pytest.fixture(autouse=True)
def unharmed(witness: BackgroundClient) -> Iterator[None]:
    yield
    witness.check()


@pytest.fixture(scope="module")
def hostile(server: ServerProcess) -> Iterator[StreamClient]:
    """A stream that many tests talk over: after each error it is there for the next."""
    with StreamClient(server.address, 280.0) as wire:
        wire.join(wire.create("maze", size=5), width=8, height=8, observations=["reward"])
        yield wire


def check_alive(wire: StreamClient) -> None:
    assert wire.step("reward").observations.keys() == {"reward"}


def code_of(response: rpc.EnvironmentResponse) -> str:
    """The code of an error, whose text is short enough to read."""
    assert response.WhichOneof("payload") == "error", response
    assert len(response.error.message) < 2000
    return str(code_pb2.Code.Name(response.error.code))


live = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@live
@given(data=st.binary(max_size=200))
def test_random_bytes(data: bytes, hostile: StreamClient) -> None:
    hostile.ask_bytes(data)


@live
@given(
    request=st.sampled_from([message.SerializeToString() for message in VALID]),
    cut=st.integers(0, 60),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    tail=st.binary(max_size=8),
)
def test_truncated_and_changed_messages(
    request: bytes, cut: int, changes: list[tuple[int, int]], tail: bytes, hostile: StreamClient
) -> None:
    data = bytearray(request[: max(0, len(request) - cut)])
    for place, value in changes:
        if data:
            data[place % len(data)] = value
    hostile.ask_bytes(bytes(data) + tail)


def test_the_stream_has_survived(hostile: StreamClient) -> None:
    hostile.leave()
    hostile.join(hostile.create("maze", size=5), width=8, height=8, observations=["reward"])
    check_alive(hostile)


def test_other_messages_than_requests(hostile: StreamClient) -> None:
    """The answers of a server, and a status: other fields by the same numbers."""
    specs = hostile.specs
    for message in (
        rpc.EnvironmentResponse(join_world=rpc.JoinWorldResponse(specs=specs)),
        rpc.EnvironmentResponse(error=status_pb2.Status(code=3, message="no")),
        status_pb2.Status(code=1, message="x", details=[any_pb2.Any(type_url="t", value=b"v")]),
        specs,
    ):
        code_of(hostile.ask_bytes(message.SerializeToString()))
    check_alive(hostile)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[:2]} of {len(shape)}")
def test_shapes_that_cannot_be(shape: list[int], hostile: StreamClient) -> None:
    """As an action, as settings, and as the value of a property."""
    hostile.step()
    for wrong in (tensor(shape, **floats(0.5)), tensor(shape, **floats(*[0.5] * 7)), tensor(shape)):
        if shape in ([-5], [-(2**31)]) and len(wrong.floats.array) == 1:
            continue  # one element for a dimension of any length
        request = rpc.StepRequest(actions={1: wrong})
        hostile.send(step=request)
        assert code_of(hostile.read()) == "INVALID_ARGUMENT"
        create = rpc.CreateWorldRequest(settings={**packed({"family": "maze"}), "speed": wrong})
        hostile.send(create_world=create)
        assert code_of(hostile.read()) == "INVALID_ARGUMENT"
        write = properties_pb2.WritePropertyRequest(key="world.lighting.ambient", value=wrong)
        hostile.send(extension=packed_any(properties_pb2.PropertyRequest(write_property=write)))
        assert code_of(hostile.read()) == "INVALID_ARGUMENT"
    check_alive(hostile)


@pytest.mark.parametrize("bomb", BOMBS)
def test_settings_bombs(bomb: str, hostile: StreamClient) -> None:
    """In every message that has settings."""
    before = hostile.property("counters.worlds"), hostile.property("counters.lanes")
    world = hostile.property("world.name")
    for payload in (
        {"create_world": rpc.CreateWorldRequest(settings={**packed({"family": "catch"}), **BOMBS[bomb]})},
        {"reset": rpc.ResetRequest(settings=BOMBS[bomb])},
        {"reset_world": rpc.ResetWorldRequest(world_name=world, settings=BOMBS[bomb])},
    ):
        hostile.send(**payload)
        assert code_of(hostile.read()) in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "NOT_FOUND")
    assert (hostile.property("counters.worlds"), hostile.property("counters.lanes")) == before
    check_alive(hostile)


def test_names_of_a_mebibyte(hostile: StreamClient) -> None:
    name = "w" * MIB
    for payload in (
        {"reset_world": rpc.ResetWorldRequest(world_name=name)},
        {"destroy_world": rpc.DestroyWorldRequest(world_name=name)},
    ):
        hostile.send(**payload)
        assert code_of(hostile.read()) == "NOT_FOUND"
    for asked in (
        properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=name)),
        properties_pb2.PropertyRequest(list_property=properties_pb2.ListPropertyRequest(key="a." * (MIB // 2))),
    ):
        hostile.send(extension=packed_any(asked))
        assert code_of(hostile.read()) == "NOT_FOUND"
    check_alive(hostile)


def test_messages_in_messages(hostile: StreamClient) -> None:
    """Extensions within extensions, and groups of unknown fields as deep as they go."""
    nested = any_pb2.Any()
    for _ in range(2000):
        outer = any_pb2.Any()
        outer.Pack(nested)
        nested = outer
    hostile.send(extension=nested)
    assert code_of(hostile.read()) == "UNIMPLEMENTED"
    assert code_of(hostile.ask_bytes(b"\xa3\x06" * 500_000)) == "INVALID_ARGUMENT"  # field 100 begins a group, …
    assert code_of(hostile.ask_bytes(b"\xa3\x06" * 500_000 + b"\xa4\x06" * 500_000)) == "INVALID_ARGUMENT"
    check_alive(hostile)


def test_observations_and_actions_by_the_million(hostile: StreamClient) -> None:
    hostile.step()
    hostile.send(step=rpc.StepRequest(requested_observations=range(1_000_000)))
    assert code_of(hostile.read()) == "INVALID_ARGUMENT"
    hostile.send(step=rpc.StepRequest(requested_observations=[1] * 4000))
    assert len(hostile.take("step").step.observations) == 1
    hostile.send(step=rpc.StepRequest(requested_observations=[1] * 1_000_000))
    refusal = hostile.read()
    assert code_of(refusal) == "INVALID_ARGUMENT"
    assert "1000000 requested observations: expected 4096 at most" in refusal.error.message
    actions = {number: tensor([], **floats(0.0)) for number in range(100_000)}
    hostile.send(step=rpc.StepRequest(actions=actions))
    assert code_of(hostile.read()) == "INVALID_ARGUMENT"
    check_alive(hostile)


@pytest.mark.parametrize(
    "data",
    [
        b"\x1a\x00\x22\x00" * 1_000_000,  # step and reset, again and again
        b"\xe8\x04\x05" * 1_300_000,  # a field that nobody knows
        field_header(3, 4_000_000) + b"\x0a\x00" * 2_000_000,  # empty actions
        field_header(3, 4_000_000) + b"\x10\x01" * 2_000_000,  # UIDs that are not packed
    ],
)
def test_requests_of_a_million_fields(hostile: StreamClient, data: bytes) -> None:
    hostile.step()
    refusal = hostile.ask_bytes(data)
    assert code_of(refusal) == "INVALID_ARGUMENT"
    assert "more than 8192 fields" in refusal.error.message
    check_alive(hostile)


def test_a_tensor_of_millions_of_dimensions(hostile: StreamClient) -> None:
    hostile.step()
    uid = next(iter(hostile.specs.actions))
    tensor_of_many = rpc.Tensor(int32s=rpc.Tensor.Int32Array(array=[0]), shape=[1] * 4_000_000)
    hostile.send(step=rpc.StepRequest(actions={uid: tensor_of_many}))
    refusal = hostile.read()
    assert code_of(refusal) == "INVALID_ARGUMENT"
    assert "4000000 dimensions" in refusal.error.message
    check_alive(hostile)


def test_pictures_larger_than_a_message(hostile: StreamClient) -> None:
    hostile.send(reset=rpc.ResetRequest(settings=packed({"width": 8192, "height": 8192})))
    assert code_of(hostile.read()) == "RESOURCE_EXHAUSTED"
    check_alive(hostile)


def test_ever_other_wishes_take_no_memory(server: ServerProcess) -> None:
    """Replies of 3 MiB in sixty forms, and requests for one observation thousands of times, never twice the same."""
    with StreamClient(server.address) as wire:
        wire.join(wire.create("catch"), width=1024, height=1000)
        wire.step("eye.rgb")
        before = server.resident_bytes
        for names in islice(permutations(["eye.rgb", "reward", "discount", "step_type", "ball"], 4), 60):
            assert wire.step(*names).observations.keys() == set(names)
        for number in range(2000):
            wire.send(step=rpc.StepRequest(requested_observations=[1] * (2000 + number)))
            assert len(wire.take("step").step.observations) == 1
        assert server.resident_bytes - before < 64 * MIB, "all of them together are 180 MiB, and the requests 48"


def test_five_mebibytes_are_refused_in_their_place(server: ServerProcess) -> None:
    with StreamClient(server.address) as wire:
        wire.send(create_world=rpc.CreateWorldRequest(settings=packed({"family": "catch"})))
        wire.send_bytes(random.Random(0).randbytes(5 * MIB))
        wire.send(leave_world=rpc.LeaveWorldRequest())
        wire.take("create_world")
        refusal = wire.read()
        assert code_of(refusal) == "RESOURCE_EXHAUSTED"
        assert f"{5 * MIB} bytes" in refusal.error.message
        assert "--max-message-bytes" in refusal.error.message
        wire.take("leave_world")


def test_seventy_mebibytes_end_their_stream(server: ServerProcess) -> None:
    """gRPC itself refuses those: they would have to be taken in whole before they could be answered."""
    with StreamClient(server.address) as wire:
        wire.join(wire.create("catch"))
        wire.send_bytes(bytes(70 * MIB))
        with pytest.raises(grpc.RpcError):
            wire.read()
        assert wire.call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_thousands_of_requests_without_reading(server: ServerProcess, witness: BackgroundClient) -> None:
    """Large ones and small ones. What the client then reads is one answer to each."""
    with StreamClient(server.address) as wire:
        wire.join(wire.create("catch"), width=64, height=64)
        step = rpc.EnvironmentRequest(step=wire.step_request(["eye.rgb"], {})).SerializeToString()
        for number in range(2000):
            wire.send_bytes(step if number % 200 else bytes(MIB))
        witness.check()
        wire.half_close()
        answers = wire.read_rest()
    assert len(answers) == 2000
    for answer in answers:
        if answer.WhichOneof("payload") == "error":
            assert code_of(answer) in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")
        else:
            assert len(answer.step.observations) == 1


def test_a_method_that_is_not_there(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        for method in ("/dm_env_rpc.v1.Environment/Proces", "/x/y"):
            with pytest.raises(grpc.RpcError) as refused:
                next(channel.stream_stream(method)(iter([b""]), timeout=TIMEOUT_S))
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_not_even_grpc(server: ServerProcess) -> None:
    """A few lines of HTTP, noise, the beginning of a connection that says no more, and one that says nothing."""
    host, _, port = server.address.rpartition(":")
    rng = random.Random(2)
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    noise = [rng.randbytes(rng.randrange(1, 5000)) for _ in range(40)]
    for data in (b"GET / HTTP/1.1\r\n\r\n", hello, hello[:5], *noise, *(hello + one for one in noise), b""):
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            connection.sendall(data)
    with StreamClient(server.address) as wire:
        assert wire.property("counters.streams") >= 1
