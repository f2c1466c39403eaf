"""Actions whose elements have a range each: what clients are told, and what is refused."""

import numpy as np
import pytest
from dm_env_rpc.v1 import tensor_spec_utils
from dm_env_rpc.v1.dm_env_rpc_pb2 import Tensor
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from worldloom.client.spaces import build_observation_space
from worldloom.client.specs import parse_specs
from worldloom.protos.errors import InvalidArgument
from worldloom.server.dm_env_rpc.specs import tensor_spec
from worldloom.server.dm_env_rpc.tensors import INTEGER_DTYPES, ActionReader, pack
from worldloom.worlds.describe import format_range
from worldloom.worlds.family import Spec
from worldloom.worlds.lanes import idle_action

ranges = st.lists(
    st.tuples(st.floats(-10, 10), st.floats(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    min_size=2,
    max_size=6,
)


def spec_of(pairs: list[tuple[float, float]], dtype: str = "float64") -> Spec:
    low, high = zip(*pairs, strict=True)
    return Spec("control", dtype, (len(pairs),), "Push.", tuple(low), tuple(high))


@given(ranges, st.integers(1, 3))
def test_clients_are_told_the_range_of_each(pairs: list[tuple[float, float]], lanes: int) -> None:
    spec = spec_of(pairs)
    told = tensor_spec(spec.name, spec.dtype, (lanes, *spec.shape), spec.minimum, spec.maximum)
    theirs, ours = tensor_spec_utils.bounds(told), parse_specs([(1, told)])["control"]
    for low, high in ((theirs.min, theirs.max), (ours.low, ours.high)):
        assert low is not None
        assert high is not None
        assert np.array_equal(low, np.tile([pair[0] for pair in pairs], (lanes, 1)))
        assert np.array_equal(high, np.tile([pair[1] for pair in pairs], (lanes, 1)))


@given(ranges, st.integers(1, 3), st.data())
def test_each_element_is_held_to_its_range(pairs: list[tuple[float, float]], lanes: int, data: st.DataObject) -> None:
    reader = ActionReader(spec_of(pairs), lanes)
    values = np.array([[data.draw(st.floats(-20, 20)) for _ in pairs] for _ in range(lanes)])
    tensor = Tensor()
    pack(tensor, values)
    wrong = [
        (lane, k, pair)
        for lane in range(lanes)
        for k, pair in enumerate(pairs)
        if not pair[0] <= values[lane, k] <= pair[1]
    ]
    if not wrong:
        assert np.array_equal(reader.read(tensor), values)
        return
    lane, k, (low, high) = wrong[0]
    with pytest.raises(InvalidArgument) as refused:
        reader.read(tensor)
    expected = (
        f"action 'control' is {values[lane, k]} at [{lane}, {k}]: expected a finite number from {low:g} to {high:g}"
    )
    assert str(refused.value) == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_also_where_nothing_limits(value: float) -> None:
    reader = ActionReader(spec_of([(-1.0, 1.0), (-np.inf, np.inf)]), None)
    tensor = Tensor()
    pack(tensor, np.array([0.0, value]))
    with pytest.raises(InvalidArgument, match="expected a finite number"):
        reader.read(tensor)


def test_one_number_for_all_is_held_to_every_range() -> None:
    reader = ActionReader(spec_of([(-1.0, 1.0), (0.5, 2.0)]), None)
    one = Tensor()
    pack(one, np.array(0.75))
    assert reader.read(one).tolist() == [[0.75, 0.75]]
    low = Tensor()
    pack(low, np.array(0.0))
    with pytest.raises(InvalidArgument, match=r"is 0.0 at \[1\]: expected a finite number from 0.5 to 2"):
        reader.read(low)


def test_an_idle_action_is_as_near_to_zero_as_each_range_allows() -> None:
    idle = idle_action(spec_of([(-1.0, 1.0), (0.5, 2.0), (-3.0, -2.0), (-np.inf, np.inf)]), 2)
    assert idle.tolist() == [[0.0, 0.5, -2.0, 0.0]] * 2


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("bool", (0.0, 0.0), (1.0, 2.0)),
        ("int32", (0, 2), (1, 1)),
        ("int8", (0, 128), (1, 200)),
        ("uint8", (0, 0.25), (1, 0.75)),
        ("float32", (0.0, 0.0, 0.0), 1.0),
        ("float32", (0.0, 2.0), (1.0, 1.0)),
        ("float32", (0.0, np.nan), (1.0, 1.0)),
        ("float32", (), 1.0),
    ],
)
def test_ranges_that_make_no_sense_are_refused(
    dtype: str, low: float | tuple[float, ...], high: float | tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="expected"):
        tensor_spec("control", dtype, (2,), low, high)


def test_ranges_of_their_own_are_said_in_words() -> None:
    assert format_range({"minimum": [0.0, None], "maximum": [1.0, 2.0]}) == "a range for each"


INTEGERS = ("int8", "uint8", "int32", "uint32", "int64", "uint64")


@st.composite
def integer_specs(draw: st.DrawFn) -> Spec:
    """A spec of integers of any dtype and of one or two dimensions, with a range for each element."""
    dtype = draw(st.sampled_from(INTEGERS))
    numbers = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    shape = draw(st.sampled_from([(2,), (3,), (2, 3)]))
    pairs = [sorted((draw(numbers), draw(numbers))) for _ in range(int(np.prod(shape)))]
    low, high = zip(*pairs, strict=True)
    return Spec("choice", dtype, shape, "Choose.", tuple(low), tuple(high))


@given(integer_specs(), st.integers(1, 3))
def test_integers_have_a_range_each(spec: Spec, lanes: int) -> None:
    told = tensor_spec(spec.name, spec.dtype, (lanes, *spec.shape), spec.minimum, spec.maximum)
    theirs, ours = tensor_spec_utils.bounds(told), parse_specs([(1, told)])[spec.name]
    box = build_observation_space([ours], lanes)[spec.name]
    assert isinstance(box, spaces.Box)
    assert box.dtype == spec.dtype
    for bound, *found in (
        (spec.minimum, theirs.min, ours.low, np.broadcast_to(box.low, (lanes, *spec.shape))),
        (spec.maximum, theirs.max, ours.high, np.broadcast_to(box.high, (lanes, *spec.shape))),
    ):
        expected = np.broadcast_to(np.array(bound, spec.dtype).reshape(spec.shape), (lanes, *spec.shape))
        for one in found:
            assert one is not None
            assert one.dtype == spec.dtype
            assert np.array_equal(one, expected)


@given(integer_specs(), st.integers(1, 3), st.booleans(), st.data())
def test_each_integer_is_held_to_its_range(spec: Spec, lanes: int, is_wrong: bool, data: st.DataObject) -> None:
    """In a message of its own, and where it lies on the wire."""
    assert isinstance(spec.minimum, tuple)
    assert isinstance(spec.maximum, tuple)
    pairs = list(zip(spec.minimum, spec.maximum, strict=True)) * lanes
    values = [data.draw(st.integers(int(low), int(high))) for low, high in pairs]
    wrong = data.draw(st.integers(0, len(pairs) - 1)) if is_wrong else -1
    if is_wrong:
        info, (low, high) = np.iinfo(spec.dtype), pairs[wrong]
        outside = [limit for limit in (int(low) - 1, int(high) + 1) if info.min <= limit <= info.max]
        if not outside:
            return
        values[wrong] = data.draw(st.sampled_from(outside))
    array = np.array(values, spec.dtype).reshape(lanes, *spec.shape)
    reader, tensor = ActionReader(spec, lanes), Tensor()
    pack(tensor, array)
    if is_wrong:
        index = list(map(int, np.unravel_index(wrong, array.shape)))
        low, high = pairs[wrong]
        with pytest.raises(InvalidArgument) as refused:
            reader.read(tensor)
        text = f"action 'choice' is {values[wrong]} at {index}: expected an integer from {low} to {high}"
        assert str(refused.value) == text
    else:
        assert np.array_equal(reader.read(tensor), array)
    if spec.dtype in INTEGER_DTYPES:
        on_wire = b"".join(_varint(value) for value in values)
        in_place = reader.read_in_place(on_wire, 0, len(on_wire))
        assert (in_place is None) == is_wrong
        assert in_place is None or np.array_equal(in_place, array)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def test_final_observations_have_a_length_that_varies_and_no_range() -> None:
    spec = tensor_spec("x@final", "float64", (-1, 2), (0.0, 1.0), (2.0, 3.0))
    assert list(spec.shape) == [-1, 2]
    assert not spec.HasField("min")
    assert not spec.HasField("max")
