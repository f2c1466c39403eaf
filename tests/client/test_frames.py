"""Stacked frames against plain NumPy, which joins the frames of each lane anew at each step."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.client.frames import FrameStack, arrange_channels

LANES = 4
MASKS = st.lists(st.booleans(), min_size=LANES, max_size=LANES).map(np.array)


@given(st.data())
@pytest.mark.parametrize("channels", ["last", "first"])
def test_stacks(channels: Any, data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 4))
    shape = data.draw(st.sampled_from([(3, 2), (2, 3, 3), (1, 1)]))
    dtype = data.draw(st.sampled_from([np.uint8, np.float32]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    stack = FrameStack(size, channels)
    kept: list[list[np.ndarray]] = [[] for _ in range(LANES)]
    """The frames of each lane, oldest first."""
    given_out: list[tuple[np.ndarray, np.ndarray]] = []

    def draw_frames(count: int = LANES) -> np.ndarray:
        return rng.integers(0, 255, (count, *shape)).astype(dtype)

    def join(frames: list[np.ndarray]) -> np.ndarray:
        arranged = [arrange_channels(frame[None], channels)[0] for frame in frames]
        return np.concatenate(arranged, axis=0 if channels == "first" else -1)

    def check(found: np.ndarray) -> None:
        expected = np.stack([join(frames) for frames in kept])
        assert np.array_equal(found, expected)
        assert found.dtype == dtype
        assert found.flags.c_contiguous
        given_out.append((found, expected))

    frames = draw_frames()
    kept = [[frame] * size for frame in frames]
    check(stack.begin(frames))
    for number in range(data.draw(st.integers(1, 6))):
        frames = draw_frames()
        if data.draw(st.booleans()):
            mask = data.draw(MASKS)
            kept = [[frame] * size if new else old for frame, new, old in zip(frames, mask, kept, strict=True)]
            check(stack.begin(frames, mask))
            continue
        is_first, is_held = data.draw(MASKS), data.draw(st.none() | MASKS)
        if is_held is not None:
            is_held &= ~is_first
        ended = np.flatnonzero(is_first)
        last = draw_frames(len(ended))
        final = stack.stack_final(last, ended, number)
        for row, lane in enumerate(ended.tolist()):
            assert np.array_equal(final[row], join([*kept[lane][1:], last[row]]))
        for lane in range(LANES):
            if is_first[lane]:
                kept[lane] = [frames[lane]] * size
            elif is_held is None or not is_held[lane]:
                kept[lane] = [*kept[lane][1:], frames[lane]]
        check(stack.push(frames, is_first, is_held, number))
        if data.draw(st.booleans()):  # the same step once more, after an interrupt
            assert np.array_equal(stack.stack_final(last, ended, number), final)
            check(stack.push(frames, is_first, is_held, number))
        given_out[-1][0][:] = 7  # it is the caller's
        given_out[-1][1][:] = 7
    for found, expected in given_out:
        assert np.array_equal(found, expected)  # later steps have not changed it
