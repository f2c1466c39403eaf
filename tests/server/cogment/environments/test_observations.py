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
from worldloom.server.cogment.environments.messages import Memory, Seen, observation_layout, share
from worldloom.server.dm_env_rpc.specs import DTYPES
from worldloom.server.engine.observations import ObservationRequest, ObservationSpec, ReplyLayout

PROCESS_FLOAT64 = [dtype for dtype in DTYPES if dtype != "str"]
NAMES = st.lists(st.text(st.characters(codec="utf-8"), max_size=200), unique=True, max_size=5)


@st.composite
def offered(draw: st.DrawFn) -> tuple[ObservationSpec, ...]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    return tuple(
        ObservationSpec(uid, name, draw(st.sampled_from(PROCESS_FLOAT64)), draw(shapes), None, None)
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
    data, place = layout.buffers.acquire()
    for value, where in zip(values, layout.fields, strict=True):
        start = np.array([place + where.offset])
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
    wanted = ObservationRequest(observations, observation_layout(observations))
    memory = Memory(wanted)
    held = trials_pb2.Observation()
    merged = trials_pb2.Observation()
    previous: bytes | None = None
    for values in ticks:
        as_snapshot = data.draw(st.booleans())
        if data.draw(st.booleans()):
            memory.forget()
            previous = None
        snapshot = filled(wanted.layout, values)
        seen = memory.see(snapshot, as_snapshot)
        assert seen.is_snapshot == (as_snapshot or previous is None)
        if seen.is_snapshot:
            held.ParseFromString(seen.content)
            merged.ParseFromString(seen.content)
        else:
            delta = trials_pb2.ObservationDelta.FromString(seen.content)
            for name, tensor in delta.observations.items():
                assert previous is None or tensor != trials_pb2.Observation.FromString(previous).observations[name]
                held.observations[name].CopyFrom(tensor)
            merged.MergeFromString(seen.content)
        for message in (held, merged):
            check(message, observations, values)
        previous = bytes(bytearray(snapshot))


def test_the_bytes_of_a_snapshot_are_those_that_were_painted() -> None:
    one = ObservationSpec(1, "eye.rgb", "uint8", (2, 2, 3), 0, 255)
    wanted = ObservationRequest((one,), observation_layout((one,)))
    snapshot = filled(wanted.layout, [np.arange(12, dtype=np.uint8).reshape(2, 2, 3)])
    assert Memory(wanted).see(snapshot, as_snapshot=False).content is snapshot


@given(st.lists(st.builds(Seen, st.binary(max_size=2), st.booleans()), max_size=12))
def test_what_is_the_same_is_there_once(seen: list[Seen]) -> None:
    distinct, places = share(seen)
    assert len(set(distinct)) == len(distinct)
    assert [distinct[place] for place in places] == seen
    assert sorted(set(places)) == list(range(len(distinct)))
    assert [place for number, place in enumerate(places) if place not in places[:number]] == sorted(set(places))


def test_sharing_does_not_depend_on_what_the_memory_held_before() -> None:
    """Bytes that were asked for their hash would keep it, whatever is written into them later."""
    one = ObservationSpec(1, "n", "uint8", (4,), 0, 255)
    layout = observation_layout((one,))
    for numbers, places in (((1, 2), [0, 1]), ((3, 3), [0, 0]), ((3, 4), [0, 1])):
        seen = [Seen(filled(layout, [np.full(4, number, np.uint8)]), True) for number in numbers]
        assert share(seen)[1] == places
        del seen  # the next are written into the same memory
    assert len(layout.buffers) == 2
