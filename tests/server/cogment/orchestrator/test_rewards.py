"""Feedback becomes rewards."""

import struct
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.cogment.api.common_pb2 import Feedback
from worldloom.protos.errors import InvalidArgument, ResourceExhausted
from worldloom.server.cogment.orchestrator.trial_state import RewardAccumulator, combine_feedback

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
FEEDBACKS = st.lists(st.builds(Feedback, value=NUMBERS, confidence=NUMBERS), max_size=8)


def as_float(exact: Fraction) -> float:
    """What a proto's float makes of it."""
    (value,) = struct.unpack("f", struct.pack("f", float(exact)))
    return float(value)


@given(FEEDBACKS)
def test_a_reward_is_the_mean_by_confidence(feedbacks: list[Feedback]) -> None:
    counted = [(Fraction(one.value), Fraction(one.confidence)) for one in feedbacks if one.confidence > 0]
    reward = combine_feedback(feedbacks)
    assert list(reward.feedbacks) == feedbacks
    if not counted:
        assert (reward.value, reward.confidence) == (0, 0)
        return
    weight = sum((confidence for _, confidence in counted), Fraction())
    exact = sum((value * confidence for value, confidence in counted), Fraction()) / weight
    # It is worked out in doubles, so that no more than a float's last bit may differ.
    assert reward.value == pytest.approx(as_float(exact), rel=2**-23, abs=2**-149)
    assert reward.confidence == pytest.approx(as_float(weight / len(counted)), rel=2**-23, abs=2**-149)
    values = [float(value) for value, _ in counted]
    assert min(values) <= reward.value <= max(values)


def give(rewards: RewardAccumulator, *feedbacks: Feedback) -> None:
    rewards.check(feedbacks)
    rewards.add(feedbacks)


@given(
    st.lists(
        st.one_of(
            st.just("advance"),
            st.just("settle"),
            st.builds(Feedback, actor_id=st.integers(0, 2), tick_id=st.integers(-1, 6), value=NUMBERS),
        ),
        max_size=40,
    )
)
def test_a_tick_gets_what_is_said_of_it_until_it_is_settled(events: list[str | Feedback]) -> None:
    rewards = RewardAccumulator(3)
    latest, settled = 0, 0
    said: dict[tuple[int, int], list[float]] = {}
    late: list[list[float]] = [[], [], []]
    for event in events:
        if event == "advance":
            latest += 1
            rewards.advance()
        elif event == "settle":
            if settled < latest:
                found = [[one.value for one in reward.feedbacks] for reward in rewards.close_tick(settled)]
                assert found == [said.pop((settled, actor), []) for actor in range(3)]
                settled += 1
        else:
            assert isinstance(event, Feedback)
            if event.tick_id > latest:
                with pytest.raises(InvalidArgument, match=f"expected 0 to {latest}, or -1"):
                    rewards.check([event])
                continue
            tick = latest if event.tick_id == -1 else event.tick_id
            (late[event.actor_id] if tick < settled else said.setdefault((tick, event.actor_id), [])).append(
                event.value
            )
            give(rewards, event)
        assert rewards.open_ticks == tuple(range(settled, latest + 1))
    assert [[one.value for one in others] for others in rewards.pop_late()] == late
    assert rewards.pop_late() == [[], [], []]


def test_feedback_is_told_with_the_tick_it_is_for() -> None:
    rewards = RewardAccumulator(1)
    rewards.advance()
    mine = Feedback(tick_id=-1, value=1, confidence=1, content=b"why", agent_id=3)
    give(rewards, mine)
    assert mine.tick_id == -1  # it belongs to the caller
    (reward,) = rewards.close_tick(1)
    assert list(reward.feedbacks) == [Feedback(tick_id=1, value=1, confidence=1, content=b"why", agent_id=3)]


def test_there_is_room_again_once_a_tick_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldloom.server.cogment.orchestrator.trial_state._MAX_BYTES", 1000)
    rewards = RewardAccumulator(1)
    large = Feedback(content=b"x" * 900)
    give(rewards, large)
    with pytest.raises(ResourceExhausted, match="more than 1000 bytes of feedback"):
        rewards.check([large])
    rewards.advance()
    rewards.close_tick(0)
    give(rewards, large)  # for tick 0, which is settled: it is late
    rewards.pop_late()
    give(rewards, large)
