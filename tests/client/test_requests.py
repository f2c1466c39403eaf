"""Requests of steps are encoded as protobuf decodes them; actions that are not in their spaces raise BadAction."""

import re
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldloom.client.errors import BadAction
from worldloom.client.requests import StepWriter, pack_settings, write_observation_request, write_step
from worldloom.client.specs import Spec

DTYPES = ["float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64", "bool"]


def finite(dtype: str) -> Any:
    if np.dtype(dtype).kind == "f":
        return hnp.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
    return hnp.from_dtype(np.dtype(dtype))


ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=3, max_side=4), elements=finite(dtype))
)


@given(
    st.dictionaries(st.integers(0, 2**40), ARRAYS, max_size=4),
    st.lists(st.integers(0, 2**40), max_size=5),
    st.booleans(),
)
def test_as_protobuf_reads_it(actions: dict[int, np.ndarray], uids: list[int], in_columns: bool) -> None:
    specs = {f"a{uid}": Spec(uid, f"a{uid}", one.dtype.name, one.shape, None, None) for uid, one in actions.items()}
    given = {f"a{uid}": np.asfortranarray(one) if in_columns else one for uid, one in actions.items()}
    request = rpc.EnvironmentRequest.FromString(
        write_step(StepWriter(specs).write(given), write_observation_request(uids))
    ).step
    assert list(request.requested_observations) == uids
    assert request.actions.keys() == actions.keys()
    for uid, action in actions.items():
        tensor = request.actions[uid]
        assert list(tensor.shape) == list(action.shape)
        assert tensor_utils.unpack_proto(tensor).dtype == action.dtype
        assert np.array_equal(tensor_utils.unpack_tensor(tensor), action)


def test_a_step_without_actions() -> None:
    request = rpc.EnvironmentRequest.FromString(write_step([], write_observation_request([3, 300])))
    assert request == rpc.EnvironmentRequest(step=rpc.StepRequest(requested_observations=[3, 300]))


FORCE = Spec(1, "force", "float32", (3,), np.array(-1, np.float32), np.array(1, np.float32))
MOVE = Spec(2, "move", "int32", (3,), np.array(-1, np.int32), np.array(1, np.int32))
FREE = Spec(3, "free", "int32", (3,), None, None)
PULL = Spec(4, "pull", "float32", (2,), np.array([0, 5], np.float32), np.array([1, 6], np.float32))


@pytest.mark.parametrize(
    ("spec", "value", "words"),
    [
        (FORCE, [0, 0], "'force' has shape [2]: expected float32 [3] from -1.0 to 1.0"),
        (FORCE, [[0, 0, 0]], "'force' has shape [1, 3]"),
        (FORCE, [0, [1], 0], "'force' is not an array"),
        (FORCE, [0, np.nan, 0], "'force' is nan at [1]"),
        (FORCE, [0, 0, np.inf], "'force' is inf at [2]"),
        (FORCE, [1.1, 0, 0], "'force' is 1.1 at [0]: expected float32 [3] from -1.0 to 1.0"),
        (FORCE, [1e300, 0, 0], "'force' is 1e+300 at [0]"),
        (FORCE, ["0", "0", "0"], "'force' has dtype <U1"),
        (FORCE, [True, False, True], "'force' has dtype bool"),
        (FORCE, None, "'force' has shape []"),
        (MOVE, [0.0, 0.0, 0.0], "'move' has dtype float64: expected int32 [3] from -1 to 1"),
        (MOVE, [0, 0, 2], "'move' is 2 at [2]"),
        (MOVE, np.array([0, 0, 2**63], np.uint64), "'move' is 9223372036854775808 at [2]"),
        (FREE, [0, 0, 2**31], "'free' is 2147483648 at [2]: expected int32 [3]"),
        (PULL, [0.5, 0.5], "'pull' is 0.5 at [1]: expected float32 from 5.0 to 6.0 there"),
    ],
)
def test_bad_actions(spec: Spec, value: Any, words: str) -> None:
    with pytest.raises(BadAction, match=re.escape(words)):
        StepWriter({spec.name: spec}).write({spec.name: value})


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ({}, "actions are none: expected 'force'"),
        ({"forse": [0, 0, 0]}, "actions are 'forse': expected 'force'"),
        ({"force": [0, 0, 0], "move": 0}, "actions are 'force', 'move': expected 'force'"),
        ([0, 0, 0], "actions are list: expected a dict of 'force'"),
    ],
)
def test_bad_names(actions: Any, words: str) -> None:
    with pytest.raises(BadAction, match=re.escape(words)):
        StepWriter({"force": FORCE}).write(actions)


@pytest.mark.parametrize("value", [[0, 1, -1], (0.5, 1, -1), np.ones(3), np.array([1, 0, -1], np.int8)])
def test_other_dtypes_that_fit(value: Any) -> None:
    data = write_step(StepWriter({"force": FORCE}).write({"force": value}), b"")
    assert list(rpc.EnvironmentRequest.FromString(data).step.actions[1].floats.array) == list(value)


def test_settings() -> None:
    packed = pack_settings({"a": 1, "b": 0.5, "c": True, "d": "x", "e": 2**64 - 1, "f": ["x", "y"]})
    found = {name: np.asarray(tensor_utils.unpack_tensor(tensor)).tolist() for name, tensor in packed.items()}
    assert found == {"a": 1, "b": 0.5, "c": True, "d": "x", "e": 2**64 - 1, "f": ["x", "y"]}


@pytest.mark.parametrize("value", [object(), None, [1, [2]]])
def test_bad_settings(value: Any) -> None:
    with pytest.raises(ValueError, match=r"setting 'a' is .*: expected a number, a bool, a string, a list or bytes"):
        pack_settings({"a": value})
    with pytest.raises(ValueError, match=r"or bytes; for a dict, its JSON text: json\.dumps"):
        pack_settings({"kwargs": {"is_slippery": False}})


@pytest.mark.parametrize("value", [2**64, 2**70, -(2**63) - 1])
def test_integers_that_no_message_has(value: int) -> None:
    with pytest.raises(ValueError, match=f"'vary_seed' is {value}: expected an integer from {-(2**63)} to {2**64 - 1}"):
        pack_settings({"vary_seed": value})
    for limit in (-(2**63), 2**64 - 1):
        assert tensor_utils.unpack_tensor(pack_settings({"vary_seed": limit})["vary_seed"]) == limit
