"""Whatever range a family gives, the reference package takes the spec, and dm_env makes one of its own of it."""

import math
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2, dm_env_utils, tensor_spec_utils, tensor_utils
from hypothesis import given
from hypothesis import strategies as st

from worldloom.server.dm_env_rpc.specs import DTYPES, PAYLOADS, tensor_spec

NUMBERS = [dtype for dtype in DTYPES if np.dtype(dtype).kind in "fiu"]
INFO: dict[str, Any] = {dtype: (np.finfo if dtype.startswith("float") else np.iinfo)(dtype) for dtype in NUMBERS}
EDGES = [np.asarray(edge).item() for info in INFO.values() for edge in (info.min, info.max)]
BOUNDS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False),
    st.sampled_from([0, 0.0, -1, 1, 1e300, -1e300, *EDGES]),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.floats(width=32, allow_nan=False).map(np.float32),
)
SHAPES = st.sampled_from([(), (1,), (3,), (64, 64, 3), (-1,), (2, -1)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_payloads_are_those_of_the_reference(dtype: str) -> None:
    assert DTYPES[dtype] == tensor_utils.np_type_to_data_type(np.dtype(dtype))
    packed = tensor_utils.pack_tensor(np.zeros((), dtype))
    assert packed.WhichOneof("payload") == PAYLOADS[dtype]


@given(st.sampled_from(NUMBERS), SHAPES, BOUNDS, BOUNDS)
def test_every_range_that_holds_a_number_makes_a_good_spec(
    dtype: str, shape: tuple[int, ...], minimum: Any, maximum: Any
) -> None:
    try:
        spec = tensor_spec("arm.force", dtype, shape, minimum, maximum)
    except ValueError:
        assert not holds_a_number(dtype, minimum, maximum)
        return
    assert (spec.name, tuple(spec.shape), spec.dtype) == ("arm.force", shape, DTYPES[dtype])
    told = tensor_spec_utils.bounds(spec)
    assert told.min <= told.max
    if spec.HasField("min"):
        assert nearly(told.min, minimum, dtype)
    if spec.HasField("max"):
        assert nearly(told.max, maximum, dtype)
    made = dm_env_utils.tensor_spec_to_dm_env_spec(spec)
    assert (made.shape, made.dtype) == (shape, np.dtype(dtype))
    if -1 not in shape:
        made.validate(np.full(shape, told.min, dtype))
        made.validate(np.full(shape, told.max, dtype))


def holds_a_number(dtype: str, minimum: Any, maximum: Any) -> bool:
    """Whether some value of the dtype is in the range, found by trying the likely ones."""
    low, high = (None if bound is None else np.asarray(bound).item() for bound in (minimum, maximum))
    least, most = np.asarray(INFO[dtype].min).item(), np.asarray(INFO[dtype].max).item()
    tries = [least, most]
    for bound in (low, high):
        if bound is not None and math.isfinite(bound):
            if dtype.startswith("float"):
                tries += [float(np.dtype(dtype).type(min(max(bound, least), most)))]
            else:
                tries += [math.floor(bound), math.ceil(bound)]
    return any(
        least <= value <= most and (low is None or value >= low) and (high is None or value <= high) for value in tries
    )


def nearly(told: Any, bound: Any, dtype: str) -> bool:
    """Whether a bound is told as it is, up to the rounding of the dtype."""
    told, bound = np.asarray(told).item(), np.asarray(bound).item()
    if dtype.startswith("float"):
        return bool(abs(told - bound) <= abs(bound) * np.finfo(dtype).eps + np.finfo(dtype).tiny)
    return told in (math.floor(bound), math.ceil(bound))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_ordinary_ranges_are_sent_as_they_are(dtype: str) -> None:
    spec = tensor_spec("a", dtype, (2,), 1, 100)
    assert tensor_spec_utils.bounds(spec) == tensor_spec_utils.Bounds(1, 100)
    assert not tensor_spec("a", dtype, (2,)).HasField("min")
    assert not tensor_spec("a", dtype, (2,)).HasField("max")


def test_pixels_have_their_range_and_single_integers_leave_out_a_maximum_that_says_nothing() -> None:
    pixels = dm_env_utils.tensor_spec_to_dm_env_spec(tensor_spec("eye.rgb", "uint8", (64, 64, 3), 0, 255))
    assert (int(pixels.minimum), int(pixels.maximum)) == (0, 255)
    assert not tensor_spec("label", "uint8", (), 0, 255).HasField("max")
    assert dm_env_utils.tensor_spec_to_dm_env_spec(tensor_spec("label", "uint8", (), 0, 254)).num_values == 255


@pytest.mark.parametrize("dtype", ["bool", "str"])
def test_truths_and_texts_have_no_range(dtype: str) -> None:
    spec = tensor_spec("a", dtype, (), 0, 1)
    assert spec == dm_env_rpc_pb2.TensorSpec(name="a", dtype=DTYPES[dtype])
    assert dm_env_utils.tensor_spec_to_dm_env_spec(spec).name == "a"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("float16", ()), "'arm' has dtype 'float16': expected one of float32"),
        (("float32", (-1, 2, -1)), r"'arm' has shape \[-1, 2, -1\]: expected one dimension of varying length"),
        (("uint8", (), 256), "'arm' has range 256 to None: expected one that some uint8"),
        (("uint8", (), None, -1), "'arm' has range None to -1: expected"),
        (("int32", (), 0.2, 0.8), "'arm' has range 0.2 to 0.8: expected"),
        (("float32", (), 1, -1), "'arm' has range 1 to -1: expected"),
        (("float32", (), math.nan), "'arm' has range nan to None: expected"),
        (("float64", (), None, math.nan), "'arm' has range None to nan: expected"),
        (("float32", (), math.inf), "'arm' has range inf to None: expected"),
    ],
)
def test_what_no_client_could_make_sense_of_is_refused(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tensor_spec("arm", *given)
