"""What the reference package packs we read, what we pack it unpacks; all else is refused in words, and cheaply."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.dm_env_rpc_pb2 import Tensor
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.tensor_cases import ANY_ARRAY, any_tensor, arrays, elements, flat_values, possible_shapes
from worldloom.protos.errors import InvalidArgument
from worldloom.server.dm_env_rpc.specs import DTYPES, PAYLOADS
from worldloom.server.dm_env_rpc.tensors import ActionReader, TensorReader, pack
from worldloom.worlds.family import Spec
from worldloom.worlds.lanes import idle_action

FILLED = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4)
WHOLE = ("int8", "int32", "int64", "uint8", "uint32", "uint64")


def refusal(reader: TensorReader, tensor: Tensor) -> str:
    with pytest.raises(InvalidArgument) as refused:
        reader.read(tensor)
    text = str(refused.value)
    assert text.startswith(f"{reader.what} ")
    assert "expected" in text
    assert len(text) < 400
    return text


def is_finite(value: np.ndarray) -> bool:
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def action(dtype: str, shape: tuple[int, ...], minimum: float | None = None, maximum: float | None = None) -> Spec:
    return Spec("go", dtype, shape, "Where to go.", minimum, maximum)


@given(st.sampled_from(sorted(DTYPES)).flatmap(lambda dtype: arrays(dtype, FILLED)), st.booleans(), st.booleans())
def test_actions_that_the_reference_packs_are_read(value: np.ndarray, lanes: bool, compressed: bool) -> None:
    lanes = lanes and value.ndim > 0
    dtype = "str" if value.dtype.kind == "U" else value.dtype.name
    spec = action(dtype, value.shape[1:] if lanes else value.shape)
    reader = ActionReader(spec, len(value) if lanes else None)
    assert (reader.name, reader.shape) == ("go", value.shape)
    tensor = tensor_utils.pack_tensor(value, try_compress=compressed)
    if not is_finite(value):
        assert "expected a finite number" in refusal(reader, tensor)
        return
    read = reader.read(tensor)
    assert read.shape == ((len(value) if lanes else 1), *spec.shape)
    assert read.dtype == (spec.dtype if dtype != "str" else read.dtype)
    assert read.dtype.kind == value.dtype.kind
    assert read.flags.c_contiguous
    assert read.reshape(value.shape).tolist() == value.tolist()


@given(
    st.sampled_from(["float32", "int32", "uint8", "int8", "bool", "str"]),
    st.sampled_from([(), (1,), (2,), (3, 2), (2, 1, 3)]),
    st.sampled_from([(None, None), (-3, 3), (0, 1), (None, 2)]),
    st.data(),
)
def test_tensors_of_any_shape_are_read_or_refused_as_the_protocol_says(
    dtype: str, shape: tuple[int, ...], limits: tuple[Any, Any], data: st.DataObject
) -> None:
    reader = ActionReader(action(dtype, shape, *limits), None)
    tensor = data.draw(any_tensor((dtype, dtype, "float64")))
    if data.draw(st.booleans()):  # nearly right
        count = data.draw(st.sampled_from([math.prod(shape), 1, 6]))
        near = np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
        tensor = tensor_utils.pack_tensor(near.astype(dtype))
        tensor.shape[:] = data.draw(st.one_of(st.just(shape), st.permutations(shape)))
        if data.draw(st.booleans()) and shape:
            tensor.shape[data.draw(st.integers(0, len(shape) - 1))] = -1
    fits = tensor.WhichOneof("payload") == PAYLOADS[dtype]
    if fits:
        values = flat_values(tensor)
        fits = shape in possible_shapes(tensor, 12) or (len(values) == 1 and not tensor.shape)
        fits = fits and is_finite(values)
        if dtype not in ("bool", "str"):
            low, high = limits
            fits = (
                fits and (low is None or bool((values >= low).all())) and (high is None or bool((values <= high).all()))
            )
    if not fits:
        refusal(reader, tensor)
        return
    expected = np.full(shape, values[0]) if len(values) == 1 else values.reshape(shape)
    assert reader.read(tensor)[0].tolist() == expected.tolist()


@given(
    any_tensor(), st.sampled_from(sorted(DTYPES)), st.sampled_from([(), (2,), (-1,), (2, -1), (0, -1)]), st.booleans()
)
def test_nothing_but_a_refusal_is_ever_raised(
    tensor: Tensor, dtype: str, shape: tuple[int, ...], convert: bool
) -> None:
    also = () if not convert or dtype in ("bool", "str") else tuple(kind for kind in WHOLE if kind != dtype)
    reader = TensorReader("value", dtype, shape, -5, 100, also)
    try:
        read = reader.read(tensor)
    except InvalidArgument:
        return
    assert read.dtype.kind == np.dtype(dtype).kind
    assert read.ndim == len(shape)
    assert all(size in (length, -1) for size, length in zip(shape, read.shape, strict=True))
    assert read.ravel().tolist() == flat_values(tensor).tolist() or read.size > flat_values(tensor).size == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint32", "uint64", "uint8", "int8", "bool"])
def test_many_lanes_are_read_and_each_is_checked(dtype: str) -> None:
    reader = ActionReader(action(dtype, (2,), 0, 100), 4096)
    value = (np.arange(8192) % 101).astype(dtype).reshape(4096, 2)
    read = reader.read(tensor_utils.pack_tensor(value))
    assert read.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(read, value)
    if dtype != "bool":
        value[1234, 1] = 101
        assert "'go' is 101" in refusal(reader, tensor_utils.pack_tensor(value))
        assert "at [1234, 1]: expected" in refusal(reader, tensor_utils.pack_tensor(value))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("limits", [(None, None), (-1, 1), (None, 1), (-1, None)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 3, 500])
def test_what_is_not_finite_is_refused(bad: float, limits: tuple[Any, Any], dtype: str, count: int) -> None:
    value = np.zeros(count, dtype)
    value[-1] = bad
    text = refusal(ActionReader(action(dtype, (count,), *limits), None), tensor_utils.pack_tensor(value))
    where = f" at [{count - 1}]" if count > 1 else ""
    assert text.startswith(f"action 'go' is {bad}{where}: expected a finite number")


@pytest.mark.parametrize("bound", [0.1, 1 / 3, 2.7, 1e-8])
def test_the_bounds_that_a_spec_shows_are_in_range(bound: float) -> None:
    reader = ActionReader(action("float32", (), -bound, bound), None)
    for value in (np.float32(bound), np.float32(-bound)):
        assert reader.read(tensor_utils.pack_tensor(value)) == value
        refusal(reader, tensor_utils.pack_tensor(np.nextafter(value, value * 2)))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [((None, None), 0), ((-1, 1), 0), ((2, 5), 2), ((-5, -2), -2), ((2, None), 2), ((None, -2), -2)],
)
def test_an_action_that_is_not_sent_is_nothing_or_the_least(limits: tuple[Any, Any], expected: int) -> None:
    for dtype in ("float32", "int32", "int8"):
        for lanes in (1, 3):
            default = idle_action(action(dtype, (2,), *limits), lanes)
            assert default.shape == (lanes, 2)
            assert default.dtype == np.dtype(dtype)
            assert (default == expected).all()
            assert not default.flags.writeable
    assert not idle_action(action("bool", ()), 4).any()
    assert idle_action(action("str", ()), 1).tolist() == [""]


def shaped(value: Any, *shape: int, dtype: str = "float32") -> Tensor:
    tensor = tensor_utils.pack_tensor(np.asarray(value, dtype))
    tensor.shape[:] = shape
    return tensor


@pytest.mark.parametrize(
    ("shape", "tensor", "words"),
    [
        ((2,), shaped([0, 0], 2, dtype="float64"), "action 'go' came as doubles: expected floats"),
        ((2,), Tensor(shape=[2]), "action 'go' came as no payload: expected floats"),
        ((2,), shaped([0, 0, 0], 3), "has shape [3] and 3 elements: expected shape [2] and 2 elements, or one for all"),
        ((2,), shaped([0, 0, 0], -1), "has shape [-1] and 3 elements: expected shape [2]"),
        ((2,), shaped([0, 0, 0], 2), "has shape [2] and 3 elements: expected shape [2]"),
        ((2,), shaped([0, 0]), "has shape [] and 2 elements: expected shape [2]"),
        ((), shaped([0], 1), "has shape [1] and 1 element: expected shape [] and 1 element$"),
        ((2,), shaped([0, 0], 2, 1), "has shape [2, 1] and 2 elements: expected shape [2]"),
        ((2, 3), shaped([0] * 6, -1, -1), "has shape [-1, -1] and 6 elements: expected shape [2, 3]"),
        ((2, 3), shaped([0] * 6, 3, 2), "has shape [3, 2] and 6 elements: expected shape [2, 3]"),
        ((2,), shaped([0, 7], 2), "'go' is 7.0 at [1]: expected a finite number from -1 to 1"),
        ((2,), shaped([7], 2), "'go' is 7.0: expected a finite number from -1 to 1"),
        ((2,), shaped([0, 0], *range(1, 30)), "has shape [1, 2, 3, 4, 5, 6, 7, 8, …] and 2 elements"),
    ],
)
def test_the_words_of_a_refusal(shape: tuple[int, ...], tensor: Tensor, words: str) -> None:
    assert words in refusal(ActionReader(action("float32", shape, -1, 1), None), tensor) + "$"


@pytest.mark.parametrize(
    "shape",
    [[2**31 - 1], [2**31 - 1] * 2, [2**31 - 1] * 1000, [65_536] * 4, [-1, 2**31 - 1], [-(2**31)] * 5, [1] * 100_000],
)
@pytest.mark.parametrize("expected", [(), (2,), (2, 3), (-1,), (-1, 2)])
def test_gigantic_shapes_take_no_memory(shape: list[int], expected: tuple[int, ...]) -> None:
    reader = TensorReader("value", "float32", expected)
    tensor = shaped([1.5], *shape)
    tracemalloc.start()
    try:
        refusal(reader, tensor)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20


def test_texts_of_uneven_lengths_take_no_memory() -> None:
    tensor = Tensor(shape=[50_001])
    tensor.strings.array.extend(["x" * 100_000, *[""] * 50_000])
    assert "50001 elements of up to 100000 characters" in refusal(TensorReader("value", "str", (-1,)), tensor)


@given(st.sampled_from(WHOLE), st.sampled_from([*WHOLE, "float32", "float64"]), st.data())
def test_integers_of_other_types_are_taken_where_they_are_welcome(sent: str, kept: str, data: st.DataObject) -> None:
    value = data.draw(elements(sent))
    reader = TensorReader("value", kept, (), also=[dtype for dtype in WHOLE if dtype != kept])
    tensor = tensor_utils.pack_tensor(value, dtype=np.dtype(sent))
    if kept.startswith("float") or np.iinfo(kept).min <= value <= np.iinfo(kept).max:
        read = reader.read(tensor)
        assert (read.shape, read.dtype.name) == ((), kept)
        assert read == np.array(value, sent).astype(kept)
    else:
        assert f"value is {value}: expected an integer from {np.iinfo(kept).min} to" in refusal(reader, tensor)


@given(st.floats())
def test_doubles_are_taken_for_floats_where_they_are_welcome(value: float) -> None:
    reader = TensorReader("value", "float32", (2,), also=["float64"])
    with np.errstate(over="ignore"):
        kept = np.float32(value)
    if np.isfinite(kept):
        assert reader.read(tensor_utils.pack_tensor(np.array([value, 0]))).tolist() == [kept, 0]
    else:
        assert "at [0]: expected a finite number" in refusal(reader, tensor_utils.pack_tensor(np.array([value, 0])))


def packed(value: np.ndarray) -> Tensor:
    tensor = Tensor()
    pack(tensor, value)
    return tensor


@given(ANY_ARRAY)
def test_what_is_packed_is_what_the_reference_packs_and_unpacks(value: np.ndarray) -> None:
    tensor = packed(value)
    again = Tensor.FromString(tensor.SerializeToString())
    np.testing.assert_array_equal(tensor_utils.unpack_tensor(again), value)
    if value.dtype.kind != "f":  # messages with NaN in them are never equal
        assert tensor == tensor_utils.pack_tensor(value)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("count", [1, 40, 64, 5000])
def test_arrays_of_any_layout_are_packed(dtype: str, count: int) -> None:
    kind = np.dtype("<U7") if dtype == "str" else np.dtype(dtype)
    grid = (np.arange(4 * count) % 101).reshape(count, 4).astype(kind)
    raw = np.zeros(count * kind.itemsize + 1, np.uint8)
    unaligned = raw[1:].view(kind) if kind.kind != "U" else grid[:, 0]
    unaligned[:] = grid[:, 0]
    readonly = grid.copy()
    readonly.flags.writeable = False
    for value in (grid, grid.T, grid[::-2, ::3], unaligned, readonly, grid.astype(kind.newbyteorder(">")), grid[:0]):
        unpacked = tensor_utils.unpack_tensor(packed(value))
        assert unpacked.dtype.kind == kind.kind
        np.testing.assert_array_equal(unpacked, value)


@pytest.mark.parametrize("dtype", ["float16", "int16", "object", "S3", "complex64"])
def test_arrays_that_have_no_payload_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="expected one of float32"):
        packed(np.zeros(3, dtype))
    with pytest.raises(ValueError, match="expected one of float32"):
        ActionReader(action(dtype, ()), None)
