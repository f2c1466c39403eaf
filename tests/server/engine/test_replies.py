"""Reply buffers are reused when nothing refers to the reply any more, and never before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.render.arena import PROCESS_MEMORY
from worldloom.server.engine.replies import ReplyBuffers

CONSTANTS = {0: b"head", 100: b"tail"}


def test_a_buffer_has_its_constants_and_zeros_elsewhere() -> None:
    data, _ = ReplyBuffers(110, CONSTANTS, [0]).acquire()
    assert data == b"head" + bytes(96) + b"tail" + bytes(6)


def test_constants_beyond_the_end_are_errors() -> None:
    with pytest.raises(ValueError, match="40 bytes"):
        ReplyBuffers(40, CONSTANTS, [])


def test_replies_of_nothing_take_no_memory() -> None:
    buffers = ReplyBuffers(0, {}, [])
    held = [buffers.acquire().data for _ in range(100)]
    assert held == [b""] * 100
    assert len(buffers) == 1


def test_a_buffer_whose_reply_is_gone_is_used_again() -> None:
    buffers = ReplyBuffers(1000, {}, [0])
    data, address = buffers.acquire()
    del data
    for _ in range(10):
        data, again = buffers.acquire()
        assert again == address
        del data
    assert len(buffers) == 1


def test_what_is_written_through_memory_is_in_the_reply() -> None:
    data, addresses = ReplyBuffers(64, {}, [0, 16]).acquire()
    PROCESS_MEMORY[addresses[0] : addresses[0] + 16] = np.arange(16)
    PROCESS_MEMORY[addresses[1] : addresses[1] + 48] = np.arange(16, 64)
    assert data == bytes(range(64))


@given(st.lists(st.integers(-6, 6), max_size=80))
def test_no_two_replies_share_a_buffer(moves: list[int]) -> None:
    """A positive number acquires so many buffers; a negative one releases one of those that are held."""
    buffers = ReplyBuffers(110, CONSTANTS, [0])
    held: list[tuple[bytes, int]] = []
    for move in moves:
        for _ in range(max(0, move)):
            data, (address,) = buffers.acquire()
            stamp = len(held) % 251
            PROCESS_MEMORY[address + 10 : address + 20] = stamp
            held.append((data, stamp))
            del data
        if move < 0 and held:
            held.pop(-move % len(held))
        for data, stamp in held:
            assert data[10:20] == bytes([stamp]) * 10
        data = b""
    assert len({id(data) for data, _ in held}) == len(held)


def test_readers_who_never_let_go_cost_their_slots_and_as_many_again() -> None:
    buffers = ReplyBuffers(1000, {}, [0])
    stuck = [buffers.acquire().data for _ in range(5)]
    for _ in range(100):
        data, _ = buffers.acquire()
        del data
    assert len(buffers) <= 2 * len(stuck)


def test_large_slots_are_not_kept_in_numbers() -> None:
    buffers = ReplyBuffers(33 << 20, {}, [])
    held = [buffers.acquire().data for _ in range(4)]
    assert len(buffers) == 2
    assert len({id(data) for data in held}) == 4
