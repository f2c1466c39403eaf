"""Replies are decoded as protobuf and the dm_env_rpc package do it; bad ones raise BadReply or ServerError."""

import contextlib
import gc
import random
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldloom.client import replies
from worldloom.client.errors import BadReply, ServerError
from worldloom.client.replies import StepReader
from worldloom.client.specs import Spec
from worldloom.protos.wire import varint

DTYPES = ["float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64", "bool"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
)
OBSERVATIONS = st.dictionaries(st.integers(0, 2**40), ARRAYS, max_size=5)


def spec(uid: int, array: np.ndarray) -> Spec:
    return Spec(uid, f"o{uid}", array.dtype.name, array.shape, None, None)


def specs(observations: dict[int, np.ndarray]) -> dict[int, Spec]:
    return {uid: spec(uid, array) for uid, array in observations.items()}


def reply(observations: dict[int, np.ndarray], state: int = rpc.RUNNING) -> rpc.EnvironmentResponse:
    tensors = {uid: tensor_utils.pack_tensor(array) for uid, array in observations.items()}
    return rpc.EnvironmentResponse(step=rpc.StepResponse(state=state, observations=tensors))


def check(found: dict[str, np.ndarray], expected: dict[int, np.ndarray]) -> None:
    assert found.keys() == {f"o{uid}" for uid in expected}
    for uid, array in expected.items():
        one = found[f"o{uid}"]
        assert one.dtype == array.dtype
        assert one.dtype.isnative
        assert one.tobytes() == array.tobytes()  # NaN too
        assert one.shape == array.shape
        assert one.flags.writeable
        assert one.flags.aligned
        assert one.flags.c_contiguous


def read_step(data: bytes, expected: dict[int, Spec]) -> dict[str, np.ndarray]:
    return StepReader(expected).read(data)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


@given(OBSERVATIONS, st.sampled_from([0, 1, 2, 3]))
def test_as_protobuf_writes_it(observations: dict[int, np.ndarray], state: int) -> None:
    check(read_step(reply(observations, state).SerializeToString(), specs(observations)), observations)


@given(OBSERVATIONS)
def test_without_protobuf_objects(observations: dict[int, np.ndarray]) -> None:
    data = reply(observations).SerializeToString()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replies, "_read_with_protobuf", None)  # it would be called
        check(read_step(data, specs(observations)), observations)


@given(OBSERVATIONS, st.randoms(use_true_random=False))
def test_fields_in_any_order_and_unknown_fields(observations: dict[int, np.ndarray], rng: random.Random) -> None:
    strange = [varint(20 << 3) + varint(7), field(21, b"what"), varint(22 << 3 | 5) + bytes(4)]
    parts = [varint(1 << 3) + b"\x01", *rng.sample(strange, rng.randrange(3))]
    for uid, array in observations.items():
        tensor = tensor_utils.pack_tensor(array)
        shape = rpc.Tensor(shape=tensor.shape).SerializeToString()
        tensor.ClearField("shape")
        pieces = [tensor.SerializeToString(), shape]
        rng.shuffle(pieces)
        entry = [varint(1 << 3) + varint(uid), field(2, b"".join(pieces))]
        rng.shuffle(entry)
        parts.append(field(2, b"".join(entry)))
    rng.shuffle(parts)
    check(read_step(field(3, b"".join(parts)), specs(observations)), observations)


def test_unpacked_numbers_and_numbers_in_pieces() -> None:
    """Legal forms that no writer of protobuf produces."""
    unpacked = b"".join(varint(1 << 3) + varint(value) for value in (1, 300))
    in_pieces = field(1, b"\x01") + field(1, varint(300))
    for array in (unpacked, in_pieces):
        tensor = field(4, array) + field(15, b"\x02")
        data = field(3, field(2, varint(1 << 3) + b"\x05" + field(2, tensor)))
        check(read_step(data, {5: Spec(5, "o5", "int32", (2,), None, None)}), {5: np.array([1, 300], np.int32)})


def test_broadcast_values_and_an_open_dimension() -> None:
    tensor = rpc.Tensor(shape=[2, 2], floats=rpc.Tensor.FloatArray(array=[1.5]))
    open_side = rpc.Tensor(shape=[-1, 2], floats=rpc.Tensor.FloatArray(array=[1.0, 2.0, 3.0, 4.0]))
    response = rpc.EnvironmentResponse(step=rpc.StepResponse(state=1, observations={1: tensor, 2: open_side}))
    expected = {1: np.full((2, 2), 1.5, np.float32), 2: np.array([[1, 2], [3, 4]], np.float32)}
    check(read_step(response.SerializeToString(), specs(expected)), expected)


@given(OBSERVATIONS, st.data())
def test_successive_replies(observations: dict[int, np.ndarray], data: st.DataObject) -> None:
    """A reader gives the same result as a new one, whatever it has read before."""
    reader, expected = StepReader(specs(observations)), specs(observations)
    for _ in range(data.draw(st.integers(2, 5))):
        numbers = {
            uid: np.frombuffer(data.draw(st.binary(min_size=array.nbytes, max_size=array.nbytes)), np.uint8)
            for uid, array in observations.items()
        }
        changed = {
            uid: (numbers[uid] & 1 if array.dtype == bool else numbers[uid]).view(array.dtype).reshape(array.shape)
            for uid, array in observations.items()
        }
        came = bytearray(reply(changed, data.draw(st.sampled_from([1, 2]))).SerializeToString())
        if came and data.draw(st.booleans()):
            came[data.draw(st.integers(0, len(came) - 1))] ^= data.draw(st.integers(0, 255))
        try:
            alone = read_step(bytes(came), expected)
        except (BadReply, ServerError) as error:
            with pytest.raises(type(error)):
                reader.read(bytes(came))
        else:
            found = reader.read(bytes(came))
            assert {name: one.tobytes() for name, one in found.items()} == {
                name: one.tobytes() for name, one in alone.items()
            }


def test_a_known_form_is_not_walked_again() -> None:
    first, second = (np.full((2, 3), number, np.float32) for number in (1, 2))
    reader = StepReader({1: spec(1, first)})
    reader.read(reply({1: first}).SerializeToString())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replies, "_walk_reply", None)  # it would be called
        check(reader.read(reply({1: second}).SerializeToString()), {1: second})


@given(OBSERVATIONS, st.data())
def test_damaged_replies_are_read_as_protobuf_does_or_raise(
    observations: dict[int, np.ndarray], data: st.DataObject
) -> None:
    whole = reply(observations).SerializeToString()
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_step(bytes(damaged), specs(observations))
    except (BadReply, ServerError):
        return
    parsed = rpc.EnvironmentResponse.FromString(bytes(damaged)).step.observations
    for uid, array in observations.items():
        one = found[f"o{uid}"]
        assert (one.dtype, one.shape) == (array.dtype, array.shape)
        assert np.array_equal(one.ravel(), np.broadcast_to(tensor_utils.unpack_proto(parsed[uid]), one.size), True)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    expected = {1: Spec(1, "o1", "uint8", (2,), None, None)}
    with contextlib.suppress(BadReply, ServerError):
        read_step(data, expected)


def test_an_error() -> None:
    response = rpc.EnvironmentResponse()
    response.error.code = 8
    response.error.message = "too much"
    with pytest.raises(ServerError, match="RESOURCE_EXHAUSTED: too much") as caught:
        read_step(response.SerializeToString(), {})
    assert (caught.value.code, caught.value.text) == (8, "too much")


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (rpc.EnvironmentResponse(), "no payload: expected step"),
        (rpc.EnvironmentResponse(leave_world=rpc.LeaveWorldResponse()), "leave_world: expected step"),
        (reply({}), "without 'o1'"),
        (reply({1: np.zeros(3, np.uint8)}), r"uint8 \[3\]: expected uint8 \[2\]"),
        (reply({1: np.zeros(2, np.float32)}), r"float32 \[2\]: expected uint8 \[2\]"),
        (reply({1: np.array(["a", "b"])}), r"expected uint8 \[2\]"),
        (rpc.EnvironmentResponse(step=rpc.StepResponse(observations={1: rpc.Tensor()})), r"cannot be decoded"),
    ],
)
def test_unexpected_replies(response: Any, words: str) -> None:
    with pytest.raises(BadReply, match=words):
        read_step(response.SerializeToString(), {1: Spec(1, "o1", "uint8", (2,), None, None)})


def test_large_arrays_are_views_and_keep_the_reply_alive() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (4, 200, 200, 3), np.uint8)
    data = reply({1: frames, 2: np.arange(4, dtype=np.float32)}).SerializeToString()
    found = read_step(data, {1: spec(1, frames), 2: Spec(2, "o2", "float32", (4,), None, None)})
    pixels = found["o1"]
    assert np.may_share_memory(pixels, np.frombuffer(data, np.uint8))
    assert not np.may_share_memory(found["o2"], np.frombuffer(data, np.uint8))
    before = frames.copy()
    del data, found
    gc.collect()
    filler = [bytes(480_200) for _ in range(8)]  # would take the place of the reply if it were free
    assert np.array_equal(pixels, before)
    pixels += 1
    assert np.array_equal(pixels, before + 1)
    del filler


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.booleans())
def test_observations_whose_length_varies(lengths: list[int], as_protobuf: bool) -> None:
    """Rows for the episodes that ended, which are none in most replies, beside observations of a fixed shape."""
    fixed = np.arange(6, dtype=np.float32).reshape(3, 2)
    expected = {
        1: spec(1, fixed),
        2: Spec(2, "o2", "int64", (-1,), None, None),
        3: Spec(3, "o3", "uint8", (-1, 2, 2), None, None),
        4: Spec(4, "o4", "float32", (-1,), None, None),
    }
    reader = StepReader(expected)
    for number, length in enumerate(lengths):
        found: dict[int, Any] = {
            1: fixed + number,
            2: np.arange(length, dtype=np.int64),
            3: np.full((length, 2, 2), number, np.uint8),
            4: np.full(length, number, np.float32),
        }
        data = reply(found).SerializeToString()
        if as_protobuf:
            data += field(3, b"")  # an empty piece of the step: only protobuf itself puts it together
        check(reader.read(data), found)


def test_varying_lengths_have_the_shape_of_their_rows() -> None:
    expected = {3: Spec(3, "o3", "uint8", (-1, 2, 2), None, None)}
    for wrong in (np.zeros((1, 2, 3), np.uint8), np.zeros((2, 2), np.uint8), np.zeros((1, 2, 2), np.int8)):
        with pytest.raises(BadReply, match="'o3' is"):
            read_step(reply({3: wrong}).SerializeToString(), expected)
