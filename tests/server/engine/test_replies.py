"""Slots are used again when their reply is gone, and never before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.render.arena import MEMORY
from worldloom.server.engine.replies import Slots

PIECES = {0: b"head", 100: b"tail"}


def test_a_slot_has_its_pieces_and_zeros_elsewhere() -> None:
    data, _ = Slots(110, PIECES).take()
    assert data == b"head" + bytes(96) + b"tail" + bytes(6)


def test_pieces_beyond_the_form_are_refused() -> None:
    with pytest.raises(ValueError, match="40 bytes"):
        Slots(40, PIECES)


def test_replies_of_nothing_take_no_memory() -> None:
    slots = Slots(0, {})
    held = [slots.take().data for _ in range(100)]
    assert held == [b""] * 100
    assert len(slots) == 1


def test_a_slot_whose_reply_is_gone_is_used_again() -> None:
    slots = Slots(1000, {})
    data, place = slots.take()
    del data
    for _ in range(10):
        data, again = slots.take()
        assert again == place
        del data
    assert len(slots) == 1


def test_what_is_written_through_memory_is_in_the_reply() -> None:
    data, place = Slots(64, {}).take()
    MEMORY[place : place + 64] = np.arange(64)
    assert data == bytes(range(64))


@given(st.lists(st.integers(-6, 6), max_size=80))
def test_no_two_replies_share_a_slot(moves: list[int]) -> None:
    """A positive number takes so many; a negative one lets go of the reply at that place among those that are held."""
    slots = Slots(110, PIECES)
    held: list[tuple[bytes, int]] = []
    for move in moves:
        for _ in range(max(0, move)):
            data, place = slots.take()
            stamp = len(held) % 251
            MEMORY[place + 10 : place + 20] = stamp
            held.append((data, stamp))
            del data
        if move < 0 and held:
            held.pop(-move % len(held))
        for data, stamp in held:
            assert data[10:20] == bytes([stamp]) * 10
        data = b""
    assert len({id(data) for data, _ in held}) == len(held)


def test_readers_who_never_let_go_cost_their_slots_and_as_many_again() -> None:
    slots = Slots(1000, {})
    stuck = [slots.take().data for _ in range(5)]
    for _ in range(100):
        data, _ = slots.take()
        del data
    assert len(slots) <= 2 * len(stuck)


def test_large_slots_are_not_kept_in_numbers() -> None:
    slots = Slots(33 << 20, {})
    held = [slots.take().data for _ in range(4)]
    assert len(slots) == 2
    assert len({id(data) for data in held}) == 4
