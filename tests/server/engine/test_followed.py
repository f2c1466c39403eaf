"""Viewers who follow a lane get each of its steps once, with the rewards that clients get."""

from unittest.mock import patch

import pytest

from scripts.support.engine_streams import FIRST, LAST, EngineHarness
from tests.server.engine.test_watching import joined, view, watch
from worldloom.server.engine.followed import FollowedLane
from worldloom.server.engine.picture_requests import world_id


def follow(harness: EngineHarness, world: str, lane: int = 0, agent: int = 0, keep: int = 4096) -> FollowedLane:
    with patch("worldloom.server.engine.followed._MAX_STEPS", keep):
        followed = FollowedLane(world_id(world), lane, agent)
    harness.post(lambda: harness.engine.watching.follow(followed))
    return followed


def test_steps_of_a_followed_lane(harness: EngineHarness) -> None:
    stream = joined(harness, "catch", lanes=3, rows=3)
    lane = follow(harness, stream.world, 1)
    expected = []
    for number in range(12):
        reply = stream.step("reward", "step_type", paddle=[0, number % 3 - 1, 0])
        expected.append((float(reply.observations["reward"][1]), int(reply.observations["step_type"][1])))
    delivered = watch(harness, view(stream, 1), followed=lane)
    stream.step()
    taken = delivered[0].steps
    assert taken is not None
    assert (taken.lane, taken.first, taken.dropped) == ((world_id(stream.world), 1, 0), 0, 0)
    steps = taken.steps[:12]
    assert [(step.reward, step.step_type) for step in steps] == expected
    assert [step.step for step in steps if step.step_type == FIRST] == [0] * sum(kind == FIRST for _, kind in expected)
    harness.post(lambda: harness.engine.watching.unfollow(lane))
    stream.step()
    assert not harness.engine.watching.followed
    assert lane.take()[1:4] == (len(taken.steps), [], 0)


@pytest.mark.parametrize(("lane", "agent"), [(-1, 0), (-5, 0), (2, 0), (0, -1), (0, -1000), (0, 1)])
def test_a_lane_that_there_is_not_has_no_steps(harness: EngineHarness, lane: int, agent: int) -> None:
    stream = joined(harness, "catch", lanes=2)
    followed = follow(harness, stream.world, lane, agent)
    stream.step()
    assert not followed.take().steps


def test_a_lane_that_cannot_be_recorded_is_followed_no_more(harness: EngineHarness) -> None:
    stream = joined(harness, "catch", lanes=2)
    follow(harness, stream.world)
    with patch.object(FollowedLane, "record", side_effect=ValueError("from a family")):
        assert stream.step("reward").observations.keys() == {"reward"}
    assert not harness.engine.watching.followed


def test_the_actions_of_a_followed_lane(harness: EngineHarness) -> None:
    stream = joined(harness, "catch", lanes=2)
    lane = follow(harness, stream.world, 1)
    stream.step()
    for paddle in (-1, 1, 0):
        stream.step(paddle=[0, paddle])
        assert lane.take().actions == {"paddle": [paddle]}


def test_episodes_that_begin_within_the_step_that_ends_the_last(harness: EngineHarness) -> None:
    """The step that ends one is the last of that one, though the lane is in the next when it is answered."""
    stream = joined(harness, "catch", lanes=2, rows=3, autoreset="same_step")
    lane = follow(harness, stream.world, 1)
    expected, episode, count = [], 0, -1
    for _ in range(9):
        reply = stream.step("reward", "step_type").observations
        count += 1
        expected.append((episode, count, float(reply["reward"][1]), int(reply["step_type"][1])))
        if expected[-1][3] == LAST:
            episode, count = episode + 1, 0
    assert episode > 2
    assert lane.take().steps == expected


def test_a_step_of_several_agents_is_recorded_once(harness: EngineHarness) -> None:
    """Also for an agent that has not joined."""
    streams = [harness.stream() for _ in range(2)]
    name = streams[0].create("maze", agents=3)
    for agent, stream in enumerate(streams):
        stream.join(name, width=16, height=16, agent=agent + 1)
    lanes = [follow(harness, name, 0, agent) for agent in (0, 1)]
    for _ in range(4):
        harness.step_all(*streams)
    for lane in lanes:
        assert [step[:2] for step in lane.take().steps] == [(0, number) for number in range(4)]


def test_replies_without_a_step_are_not_recorded(harness: EngineHarness) -> None:
    """A reset by somebody else is answered by a last step, for which nothing is simulated."""
    stream, other = joined(harness, "catch"), harness.stream()
    lane = follow(harness, stream.world)
    stream.step()
    stream.step()
    other.post_reset_world(stream.world)
    harness.settle()
    assert stream.step("step_type").observations["step_type"] == LAST
    other.take("reset_world")
    assert stream.step("step_type").observations["step_type"] == FIRST
    assert [step[1] for step in lane.take().steps] == [0, 1, 0]


def test_steps_that_nobody_takes_are_dropped(harness: EngineHarness) -> None:
    stream = joined(harness, "catch")
    lane = follow(harness, stream.world, keep=4)
    for first, dropped, steps in ((3, 3, [3, 4, 5, 6]), (12, 5, [12, 13, 14, 15])):
        for _ in range(4 + dropped):
            stream.step()
        taken = lane.take()
        assert (taken.first, taken.dropped) == (first, dropped)
        assert [step.step for step in taken.steps if step.episode == 0] == [one for one in steps if one < 10]


def test_a_world_that_is_destroyed_is_followed_no_more(harness: EngineHarness) -> None:
    stream = joined(harness, "catch")
    lane = FollowedLane(world_id(stream.world), 0, 0)
    harness.post(lambda: harness.engine.watching.follow(lane))
    stream.step()
    stream.leave()
    stream.destroy(stream.world)
    assert not harness.engine.watching.followed
    harness.post(lambda: harness.engine.watching.unfollow(lane))
    harness.settle()
