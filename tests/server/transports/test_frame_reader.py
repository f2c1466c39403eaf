"""Frames come out as they were sent, however their bytes are cut; those that are too large take no memory."""

from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.local_frames import HEADER, pack_frame
from worldloom.server.transports.frame_reader import Frame, FrameReader

MAX_BYTES, MAX_DROPPED_BYTES = 40, 100
frames = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=MAX_DROPPED_BYTES)), max_size=8)


@given(frames, st.lists(st.integers(1, 60), min_size=1))
def test_frames_in_pieces(sent: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join(pack_frame(kind, content) for kind, content in sent)
    reader = FrameReader(MAX_BYTES, MAX_DROPPED_BYTES)
    found = []
    while data:
        size = sizes[0]
        sizes = [*sizes[1:], size]
        reader.add(data[:size])
        data = data[size:]
        while (frame := reader.take()) is not None:
            found.append(frame)
        held = sum(map(len, reader._pieces))
        assert held < HEADER.size + MAX_BYTES, "a whole frame is not left, and the content of a large one is not kept"
        assert held == reader._held_bytes
    assert found == [
        Frame(kind, len(content), content if len(content) <= MAX_BYTES else None) for kind, content in sent
    ]
    assert not reader.has_bytes


@given(st.integers(MAX_DROPPED_BYTES + 1, 2**32 - 1), st.binary(max_size=20))
def test_absurd_lengths_are_told_at_once(size_bytes: int, more: bytes) -> None:
    reader = FrameReader(MAX_BYTES, MAX_DROPPED_BYTES)
    reader.add(HEADER.pack(size_bytes, 0) + more)
    assert reader.take() == Frame(0, size_bytes, None)


@given(st.integers(0, MAX_BYTES), st.integers(0, 200))
def test_missing_bytes(size_bytes: int, come: int) -> None:
    frame = pack_frame(0, bytes(size_bytes))
    come = min(come, len(frame) - 1)
    reader = FrameReader(MAX_BYTES, MAX_DROPPED_BYTES)
    reader.add(frame[:come])
    assert reader.take() is None
    assert reader.has_bytes == (come > 0)
    expected = HEADER.size if come < HEADER.size else len(frame)
    assert reader.missing_bytes == expected - come
