"""Replies made from templates, judged by protobuf and the reference package."""

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldloom.kernels.wire import VARINT_BYTES, write_rows, write_varints
from worldloom.render.arena import PROCESS_MEMORY
from worldloom.server.dm_env_rpc.specs import DTYPES
from worldloom.server.dm_env_rpc.step_layout import step_layout
from worldloom.server.engine.observations import ObservationSpec

NUMERIC_DTYPES = [dtype for dtype in DTYPES if dtype != "str"]


@st.composite
def observations_and_values(draw: st.DrawFn) -> list[tuple[ObservationSpec, np.ndarray]]:
    uids = draw(st.lists(st.integers(0, 200) | st.integers(0, 2**64 - 1), unique=True, max_size=5))
    found = []
    for uid in uids:
        dtype = draw(st.sampled_from(NUMERIC_DTYPES))
        shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
        value = draw(hnp.arrays(dtype, shape))
        found.append((ObservationSpec(uid, f"o{uid}", dtype, shape, None, None), value))
    return found


@given(observations_and_values(), st.integers(1, 3))
def test_a_filled_template_is_the_message(wanted: list[tuple[ObservationSpec, np.ndarray]], state: int) -> None:
    layout = step_layout(tuple(one for one, _ in wanted))
    assert layout.state_offset is not None
    data, addresses = layout.buffers.acquire()
    write_rows(np.array([[state]], np.uint8), addresses[-1:], PROCESS_MEMORY)
    for (_, value), where, address in zip(wanted, layout.fields, addresses[:-1], strict=True):
        start = np.array([address])
        row = value.reshape(1, -1)
        if where.as_varints:
            write_varints(row.astype(np.int64), start, PROCESS_MEMORY)
        elif row.size:
            write_rows(row.view(np.uint8), start, PROCESS_MEMORY)
    step = rpc.EnvironmentResponse.FromString(data).step
    assert step.state == state
    if all(one.uid < 2**21 for one, _ in wanted):
        assert all(where.offset % 8 == 0 for where in layout.fields)
        assert not (addresses[:-1] % 8).any()
    assert set(step.observations) == {one.uid for one, _ in wanted}
    for one, value in wanted:
        tensor = step.observations[one.uid]
        assert tensor.WhichOneof("payload") == tensor_utils.pack_tensor(np.zeros(1, one.dtype)).WhichOneof("payload")
        assert list(tensor.shape) == list(value.shape)
        elements = np.asarray(tensor_utils.unpack_proto(tensor)).reshape(value.shape)
        np.testing.assert_array_equal(elements, value)


def test_integers_take_the_same_room_whatever_they_are() -> None:
    one = ObservationSpec(1, "count", "int64", (3,), None, None)
    assert one.data_bytes == 3 * VARINT_BYTES
    layout = step_layout((one,))
    sizes = set()
    for values in ([0, 0, 0], [-(2**63), 2**63 - 1, 1]):
        data, addresses = layout.buffers.acquire()
        write_varints(np.array([values], np.int64), addresses[:1], PROCESS_MEMORY)
        assert list(rpc.EnvironmentResponse.FromString(data).step.observations[1].int64s.array) == values
        sizes.add(len(data))
    assert len(sizes) == 1
