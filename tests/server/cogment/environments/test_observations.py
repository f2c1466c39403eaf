"""Observations as they lie in memory, judged by protobuf and the reference package."""

import numpy as np
from dm_env_rpc.v1 import tensor_utils
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldloom.kernels.wire import write_rows, write_varints
from worldloom.protos.worldloom import trials_pb2
from worldloom.render.arena import PROCESS_MEMORY
from worldloom.server.cogment.environments.trial_world import (
    DeltaEncoder,
    EncodedObservation,
    deduplicate,
    observation_layout,
)
from worldloom.server.dm_env_rpc.specs import DTYPES
from worldloom.server.engine.observations import ObservationRequest, ObservationSpec
from worldloom.server.engine.replies import ReplyLayout

NUMBER_DTYPES = [dtype for dtype in DTYPES if dtype != "str"]
NAMES = st.lists(st.text(st.characters(codec="utf-8"), max_size=200), unique=True, max_size=5)


@st.composite
def offered(draw: st.DrawFn) -> tuple[ObservationSpec, ...]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    return tuple(
        ObservationSpec(uid, name, draw(st.sampled_from(NUMBER_DTYPES)), draw(shapes), None, None)
        for uid, name in enumerate(draw(NAMES))
    )


def values_of(draw: st.DrawFn, observations: tuple[ObservationSpec, ...]) -> list[np.ndarray]:
    return [draw(hnp.arrays(one.dtype, one.shape)) for one in observations]


@st.composite
def courses(draw: st.DrawFn) -> tuple[tuple[ObservationSpec, ...], list[list[np.ndarray]]]:
    """Observations, and what they are in some ticks: each stays or changes."""
    observations = draw(offered())
    ticks = [values_of(draw, observations)]
    for _ in range(draw(st.integers(0, 3))):
        drawn = values_of(draw, observations)
        ticks.append([new if draw(st.booleans()) else old for old, new in zip(ticks[-1], drawn, strict=True)])
    return observations, ticks


def filled(layout: ReplyLayout, values: list[np.ndarray]) -> bytes:
    data: bytes
    data, addresses = layout.buffers.acquire()
    for value, where, address in zip(values, layout.fields, addresses, strict=True):
        start = np.array([address])
        row = np.ascontiguousarray(value).reshape(1, -1)
        if where.as_varints:
            write_varints(row.astype(np.int64), start, PROCESS_MEMORY)
        elif row.size:
            write_rows(row.view(np.uint8), start, PROCESS_MEMORY)
    return data


def check(message: trials_pb2.Observation, observations: tuple[ObservationSpec, ...], values: list[np.ndarray]) -> None:
    assert set(message.observations) == {one.name for one in observations}
    for one, value in zip(observations, values, strict=True):
        tensor = message.observations[one.name]
        assert tensor.WhichOneof("payload") == tensor_utils.pack_tensor(np.zeros(1, one.dtype)).WhichOneof("payload")
        assert list(tensor.shape) == list(value.shape)
        elements = np.asarray(tensor_utils.unpack_proto(tensor)).reshape(value.shape)
        np.testing.assert_array_equal(elements, value)


@given(courses())
def test_a_filled_form_is_the_message(course: tuple[tuple[ObservationSpec, ...], list[list[np.ndarray]]]) -> None:
    observations, ticks = course
    layout = observation_layout(observations)
    assert layout.state_offset is None
    for values in ticks:
        message = trials_pb2.Observation.FromString(filled(layout, values))
        check(message, observations, values)
        assert len(UnknownFieldSet(message)) == 0


@given(courses(), st.data())
def test_deltas_put_over_the_last_observation_give_the_next(
    course: tuple[tuple[ObservationSpec, ...], list[list[np.ndarray]]], data: st.DataObject
) -> None:
    """As the reader of a delta does it, in both ways: entry by entry, and by merging bytes."""
    observations, ticks = course
    request = ObservationRequest(observations, observation_layout(observations))
    encoder = DeltaEncoder(request)
    held = trials_pb2.Observation()
    merged = trials_pb2.Observation()
    previous: bytes | None = None
    for values in ticks:
        as_snapshot = data.draw(st.booleans())
        if data.draw(st.booleans()):
            encoder.reset()
            previous = None
        snapshot = filled(request.layout, values)
        encoded = encoder.encode(snapshot, as_snapshot)
        assert encoded.is_snapshot == (as_snapshot or previous is None)
        if encoded.is_snapshot:
            held.ParseFromString(encoded.content)
            merged.ParseFromString(encoded.content)
        else:
            delta = trials_pb2.ObservationDelta.FromString(encoded.content)
            for name, tensor in delta.observations.items():
                assert previous is None or tensor != trials_pb2.Observation.FromString(previous).observations[name]
                held.observations[name].CopyFrom(tensor)
            merged.MergeFromString(encoded.content)
        for message in (held, merged):
            check(message, observations, values)
        previous = bytes(bytearray(snapshot))


def test_the_bytes_of_a_snapshot_are_those_that_were_written() -> None:
    one = ObservationSpec(1, "eye.rgb", "uint8", (2, 2, 3), 0, 255)
    request = ObservationRequest((one,), observation_layout((one,)))
    snapshot = filled(request.layout, [np.arange(12, dtype=np.uint8).reshape(2, 2, 3)])
    assert DeltaEncoder(request).encode(snapshot, as_snapshot=False).content is snapshot


@given(st.lists(st.builds(EncodedObservation, st.binary(max_size=2), st.booleans()), max_size=12))
def test_what_is_the_same_is_there_once(encoded: list[EncodedObservation]) -> None:
    unique, indices = deduplicate(encoded)
    assert len(set(unique)) == len(unique)
    assert [unique[index] for index in indices] == encoded
    assert sorted(set(indices)) == list(range(len(unique)))
    assert [index for number, index in enumerate(indices) if index not in indices[:number]] == sorted(set(indices))


def test_sharing_does_not_depend_on_what_the_memory_held_before() -> None:
    """Bytes that were asked for their hash would keep it, whatever is written into them later."""
    one = ObservationSpec(1, "n", "uint8", (4,), 0, 255)
    layout = observation_layout((one,))
    for numbers, indices in (((1, 2), [0, 1]), ((3, 3), [0, 0]), ((3, 4), [0, 1])):
        encoded = [EncodedObservation(filled(layout, [np.full(4, number, np.uint8)]), True) for number in numbers]
        assert deduplicate(encoded)[1] == indices
        del encoded  # the next are written into the same memory
    assert len(layout.buffers) == 2
