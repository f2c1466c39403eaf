"""Requests that repeat are read as the message parser reads them, or left to it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.support.engine_streams import EngineHarness, Stream
from tests.support.tensor_cases import any_tensor, elements
from worldloom.protos.errors import InvalidArgument
from worldloom.protos.wire import field_header, varint
from worldloom.render.cpu import CPURenderer
from worldloom.server.dm_env_rpc.specs import DTYPES
from worldloom.server.dm_env_rpc.step_requests import RepeatedSteps, StepContent
from worldloom.server.dm_env_rpc.tensors import ActionReader
from worldloom.worlds.family import Spec

NUMBERS = tuple(sorted(set(DTYPES) - {"str"}))
FIXED = ("float32", "float64", "int8", "uint8")


def parse(data: bytes, readers: Mapping[int, ActionReader]) -> StepContent:
    """Return the content as the message parser has it, or raise the error."""
    step = rpc.EnvironmentRequest.FromString(data).step
    if set(step.actions) - set(readers):
        raise InvalidArgument("no such action")
    actions = {readers[uid].name: readers[uid].read(tensor) for uid, tensor in step.actions.items()}
    return StepContent(tuple(step.requested_observations), actions)


def same(one: StepContent, other: StepContent) -> bool:
    return one.uids == other.uids and {
        name: (value.dtype, value.shape, value.tobytes()) for name, value in one.actions.items()
    } == {name: (value.dtype, value.shape, value.tobytes()) for name, value in other.actions.items()}


def request(actions: Mapping[int, rpc.Tensor], uids: list[int]) -> bytes:
    step = rpc.StepRequest(actions=actions, requested_observations=uids)
    data: bytes = rpc.EnvironmentRequest(step=step).SerializeToString(deterministic=True)
    return data


def tensor(dtype: str, shape: tuple[int, ...], values: Any) -> rpc.Tensor:
    return tensor_utils.pack_tensor(np.broadcast_to(np.asarray(values, dtype), shape))


@st.composite
def agents(draw: st.DrawFn) -> dict[int, ActionReader]:
    """Readers of one to three actions."""
    lanes = draw(st.sampled_from([None, 1, 3, 60]))  # of 60, integers take a template instead of the whole request
    count = draw(st.integers(1, 3))
    return {
        uid: ActionReader(
            Spec(
                f"a{uid}",
                draw(st.sampled_from(NUMBERS)),
                draw(st.sampled_from([(), (2,), (2, 2)])),
                "",
                *draw(st.sampled_from([(None, None), (0, 1)])),
            ),
            lanes,
        )
        for uid in range(1, 1 + count)
    }


@st.composite
def requests(draw: st.DrawFn, readers: dict[int, ActionReader]) -> bytes:
    """A request, mostly valid, whose actions are any numbers, and whose bytes may be in an unusual form."""
    actions = {}
    for uid, reader in readers.items():
        kind = draw(st.sampled_from(["plain", "plain", "plain", "one", "left out", "any"]))
        if kind == "any":
            actions[uid] = draw(any_tensor((reader.dtype,)))
        elif kind != "left out":
            shape = reader.shape if kind == "plain" else ()
            few = st.sampled_from([0, 1])
            one = draw(st.one_of(few, few, elements(reader.dtype)))
            actions[uid] = tensor(reader.dtype, shape, one)
    data = request(actions, draw(st.sampled_from([[], [3], [3, 4], [4, 3]])))
    form = draw(
        st.sampled_from(["as it is", "as it is", "as it is", "twice", "unknown field", "changed byte", "nested"])
    )
    if form == "twice":  # protobuf merges them
        return data + data
    if form == "unknown field":
        return data + varint(100 << 3) + varint(draw(st.integers(0, 300)))
    if form == "nested":  # a field that StepRequest does not have
        inner: bytes = rpc.EnvironmentRequest.FromString(data).step.SerializeToString()
        inner += field_header(99, 2) + b"\x0a\x00"
        return field_header(3, len(inner)) + inner
    if form == "changed byte" and data:
        place = draw(st.integers(0, len(data) - 1))
        return data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
    return data


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=200)
@given(st.data())
def test_a_repeated_request_has_the_content_that_the_parser_reads(data: st.DataObject) -> None:
    readers = data.draw(agents())
    repeated = RepeatedSteps(readers)
    for _ in range(data.draw(st.integers(2, 10))):
        sent = data.draw(requests(readers))
        found = repeated.read(sent)
        try:
            expected = parse(sent, readers)
        except Exception:
            assert found is None
        else:
            assert found is None or same(found, expected)
            repeated.remember(sent, expected.uids, expected.actions)


@pytest.mark.parametrize("dtype", FIXED)
@pytest.mark.parametrize("lanes", [None, 5])
def test_values_are_read_without_the_parser_once_the_form_is_known(dtype: str, lanes: int | None) -> None:
    readers = {
        1: ActionReader(Spec("go", dtype, (2,), "", 0, 100), lanes),
        2: ActionReader(Spec("up", dtype, (), "", 0, 100), lanes),
    }
    repeated = RepeatedSteps(readers)
    shapes = [readers[uid].shape for uid in (1, 2)]
    first = request({uid: tensor(dtype, shape, 0) for uid, shape in enumerate(shapes, 1)}, [7])
    assert repeated.read(first) is None
    repeated.remember(first, [7], parse(first, readers).actions)
    for value in range(1, 101):
        sent = request({uid: tensor(dtype, shape, value) for uid, shape in enumerate(shapes, 1)}, [7])
        found = repeated.read(sent)
        assert found is not None
        assert same(found, parse(sent, readers))
    too_large = request({uid: tensor(dtype, shape, 101) for uid, shape in enumerate(shapes, 1)}, [7])
    other_uid = request({uid: tensor(dtype, shape, 1) for uid, shape in enumerate(shapes, 1)}, [8])
    assert repeated.read(too_large) is None
    assert repeated.read(other_uid) is None


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64", "bool"])
def test_other_requests_are_known_as_a_whole_and_their_arrays_cannot_be_changed(dtype: str) -> None:
    readers = {1: ActionReader(Spec("go", dtype, (), ""), None)}
    repeated = RepeatedSteps(readers)
    sent = [request({1: tensor(dtype, (), value)}, [7]) for value in (0, 1)]
    for one in sent:
        repeated.remember(one, [7], parse(one, readers).actions)
    for one in sent:
        found = repeated.read(one)
        assert found is not None
        assert same(found, parse(one, readers))
        with pytest.raises(ValueError, match="read-only"):
            found.actions["go"][...] = 0


def test_what_is_remembered_is_bounded() -> None:
    readers = {1: ActionReader(Spec("go", "int64", (), ""), None)}
    repeated = RepeatedSteps(readers)
    for value in range(1000):
        sent = request({1: tensor("int64", (), value)}, [7] * (value % 8))
        repeated.remember(sent, [7], parse(sent, readers).actions)
    assert len(repeated._known) <= 32
    assert len(repeated._templates) <= 4
    large = request({1: tensor("int64", (), 1)}, [7] * 1000)
    repeated.remember(large, [7] * 1000, parse(large, readers).actions)
    assert repeated.read(large) is None
    many_lanes = RepeatedSteps({1: ActionReader(Spec("go", "int64", (), ""), 100_000)})
    one_for_all = request({1: tensor("int64", (), 1)}, [])
    many_lanes.remember(
        one_for_all, [], parse(one_for_all, {1: ActionReader(Spec("go", "int64", (), ""), 100_000)}).actions
    )
    assert many_lanes.read(one_for_all) is None


ACTS = st.one_of(
    st.tuples(st.just("step"), st.sampled_from([0.0, 1.0, -1.0, 0.25, 2.0, np.nan, np.inf]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["reset", "rejoin", "reset world", "empty step", "leave"]), st.just(0.0), st.just(0)),
)
SEEN = (("eye.rgb", "reward"), ("reward",), ("reward", "step_type", "discount"), ())


def act(stream: Stream, world: str, kind: str, value: float, seen: int) -> None:
    if kind in ("step", "empty step"):
        actions = {}
        for uid, spec in stream.specs.actions.items():
            dtype = tensor_utils.data_type_to_np_type(spec.dtype)
            if np.isfinite(value) or dtype.kind == "f":
                actions[uid] = tensor_utils.pack_tensor(np.full(spec.shape, value, dtype))
        uids = {spec.name: uid for uid, spec in stream.specs.observations.items()}
        wanted = [uids[name] for name in SEEN[seen]] if uids else [1]
        stream.post_bytes(request(actions if kind == "step" else {}, wanted))
    elif kind == "leave":
        stream.post(rpc.EnvironmentRequest(leave_world=rpc.LeaveWorldRequest()))
        stream.post(rpc.EnvironmentRequest(join_world=rpc.JoinWorldRequest(world_name=world)))
    elif kind == "reset world":
        stream.post(rpc.EnvironmentRequest(reset_world=rpc.ResetWorldRequest(world_name=world)))
    else:
        size = {"width": tensor_utils.pack_tensor(8), "height": tensor_utils.pack_tensor(8)}
        stream.post(rpc.EnvironmentRequest(reset=rpc.ResetRequest(settings=size if kind == "rejoin" else {})))


@pytest.mark.parametrize(("family", "lanes"), [("catch", None), ("catch", 3), ("cartpole", None), ("cartpole", 3)])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10, deadline=None)
@given(acts=st.lists(ACTS, min_size=5, max_size=25))
def test_sessions_answer_the_same_with_and_without_it(
    cpu: CPURenderer, family: str, lanes: int | None, acts: list[tuple[str, float, int]]
) -> None:
    replies = []
    for is_on in (True, False):
        harness = EngineHarness(cpu)
        stream = harness.stream()
        world = stream.create(family, seed=3, **({} if lanes is None else {"lanes": lanes}))
        stream.join(world, width=8, height=8)
        told: list[bytes] = []
        with pytest.MonkeyPatch.context() as patch:
            if not is_on:
                patch.setattr(RepeatedSteps, "read", lambda self, data: None)
            for kind, value, seen in acts:
                act(stream, world, kind, value, seen)
                for _ in range(4):
                    harness.tick()
                    told += map(bytes, harness.sent)
        replies.append((told, harness.engine.counters.requests, harness.engine.counters.refusals))
    assert replies[0] == replies[1]
