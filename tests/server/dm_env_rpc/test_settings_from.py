"""Settings come as the plain values that the reference package packs them from; bombs are refused in a line."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.dm_env_rpc_pb2 import CreateWorldRequest, Tensor
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tensor_cases import TEXTS, any_tensor, flat_values
from worldloom.protos.errors import InvalidArgument
from worldloom.server.dm_env_rpc.tensors import settings_from

SINGLE: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    TEXTS,
]
VALUES = st.one_of(*SINGLE, *(st.lists(single, min_size=1, max_size=5) for single in SINGLE))


def refusal(**tensors: Tensor) -> str:
    with pytest.raises(InvalidArgument) as refused:
        settings_from(tensors)
    text = str(refused.value)
    assert "expected" in text
    assert len(text) < 250
    return text


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_settings_come_back_as_they_were(settings: dict[str, Any]) -> None:
    request = CreateWorldRequest(settings={name: tensor_utils.pack_tensor(value) for name, value in settings.items()})
    taken = settings_from(CreateWorldRequest.FromString(request.SerializeToString()).settings)
    assert taken == settings
    for name, value in settings.items():
        assert type(taken[name]) is type(value)
        if isinstance(value, list):
            assert [type(item) for item in value] == [type(item) for item in taken[name]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_integers_come_from_any_integer_tensor(dtype: str) -> None:
    for value in (np.iinfo(dtype).min, 7, np.iinfo(dtype).max):
        single, several = np.array(value, dtype), np.array([value, 1], dtype)
        taken = settings_from({"a": tensor_utils.pack_tensor(single), "b": tensor_utils.pack_tensor(several)})
        # A list of uint8 may be the bytes of a file; settings that are lists of integers read it as such.
        assert taken == {"a": value, "b": bytes([value, 1]) if dtype == "uint8" else [value, 1]}
        assert type(taken["a"]) is int


@given(any_tensor())
def test_any_tensor_is_taken_or_refused(tensor: Tensor) -> None:
    try:
        taken = settings_from({"size": tensor})["size"]
    except InvalidArgument:
        assert refusal(size=tensor).startswith("setting 'size' ")
        return
    values = flat_values(tensor).tolist()
    if isinstance(taken, list):
        (length,) = tensor.shape
        assert str(taken) == str(values * length if len(values) == 1 and length > 0 else values)  # NaN is not itself
        assert length < 0 or len(taken) == length
    else:
        assert not tensor.shape
        assert str([taken]) == str(values)


def text_tensor(*texts: str, shape: tuple[int, ...] = ()) -> Tensor:
    tensor = Tensor(shape=shape)
    tensor.strings.array.extend(texts)
    return tensor


def test_lists_may_vary_in_length_or_have_one_value_for_all() -> None:
    assert settings_from({"a": text_tensor("x", "y", shape=(-1,))}) == {"a": ["x", "y"]}
    assert settings_from({"a": text_tensor("x", shape=(-1,))}) == {"a": ["x"]}
    assert settings_from({"a": text_tensor("x", shape=(3,))}) == {"a": ["x", "x", "x"]}


def test_what_does_not_fit_is_told() -> None:
    assert "setting 'a' has no payload: expected numbers" in refusal(a=Tensor())
    protos = Tensor()
    protos.protos.array.add()
    assert "setting 'a' has protos: expected numbers" in refusal(a=protos)
    assert "setting 'a' is empty: expected a value" in refusal(a=tensor_utils.pack_tensor([]))
    assert "setting 'a' has shape [] and 2 elements: expected a shape" in refusal(a=text_tensor("x", "y"))
    assert "setting 'a' has shape [3] and 2 elements: expected" in refusal(a=text_tensor("x", "y", shape=(3,)))
    assert "setting 'a' has shape [0] and 1 element: expected" in refusal(a=text_tensor("x", shape=(0,)))
    assert "setting 'a' has shape [1, 1]: expected a single value or" in refusal(a=text_tensor("x", shape=(1, 1)))


def test_bombs_are_refused_without_making_them() -> None:
    long = "世" * 70_000
    tracemalloc.start()
    try:
        assert "257 settings came: expected 256 at most" in refusal(**{f"s{n}": Tensor() for n in range(257)})
        assert "has 2147483647 elements: expected 65536" in refusal(a=text_tensor("x", shape=(2**31 - 1,)))
        assert "has 70000 elements: expected 65536 at most" in refusal(a=tensor_utils.pack_tensor([0] * 70_000))
        assert "has shape [2147483647, 2147483647]" in refusal(a=text_tensor("x", shape=(2**31 - 1,) * 2))
        assert "has shape [9, 9, 9, 9, 9, 9, 9, 9, …]" in refusal(a=text_tensor("x", shape=(9,) * 100_000))
        assert "has a text of 70000 characters: expected 65536" in refusal(a=text_tensor(long, shape=(1,)))
        assert "has a name of 70000 characters: expected 256" in refusal(**{long: text_tensor("x")})
        assert "has a name of 70000 characters" in refusal(**{"\x1b" * 70_000: text_tensor("x")})
        assert "…' has no payload" in refusal(**{"\x1b" * 80: Tensor()})
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20


def test_of_several_errors_the_same_is_told() -> None:
    for names in (["a", "b", "c"], ["c", "b", "a"]):
        assert "setting 'a' has no payload" in refusal(**{name: Tensor() for name in names})
