"""Whole trials by lot, compared with a model that knows nothing of stages: who must have been told what."""

import asyncio
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.trial_services import message, run, trial_host
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.agent_pb2 import Reward
from worldloom.protos.cogment.api.common_pb2 import Feedback
from worldloom.server.cogment.settings import HUMAN

ENVIRONMENT = -1


class Remark(NamedTuple):
    """A feedback and a message, of somebody in some tick, to somebody."""

    tick: int
    sender: int
    receiver: int
    value: float
    confidence: float


class Plot(NamedTuple):
    actors: tuple[str, ...]
    ticks: int
    remarks: list[Remark]


@st.composite
def plots(draw: st.DrawFn) -> Plot:
    actors = tuple(draw(st.lists(st.sampled_from([HUMAN, "a", "b"]), min_size=1, max_size=4)))
    ticks = draw(st.integers(1, 4))
    ids = st.integers(ENVIRONMENT, len(actors) - 1)
    weights = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    remark = st.builds(Remark, st.integers(0, ticks - 1), ids, ids, st.integers(-8, 8).map(float), weights)
    return Plot(actors, ticks, draw(st.lists(remark, max_size=12)))


def text(remark: Remark) -> str:
    return f"{remark.tick} {remark.sender} {remark.value}"


def expected_reward(plot: Plot, actor: int, tick: int) -> tuple[float, float]:
    """Value and confidence that an actor is told of a tick."""
    about = [one for one in plot.remarks if one.receiver == actor and one.tick == tick and one.confidence]
    if not about:
        return 0, 0
    weights = [one.confidence for one in about]
    return float(np.average([one.value for one in about], weights=weights)), float(np.mean(weights))


def same(reward: Reward, expected: tuple[float, float]) -> bool:
    return (reward.value, reward.confidence) == pytest.approx(expected, rel=1e-6)  # a proto's float has 24 bits


@settings(max_examples=40)
@given(plots())
def test_everyone_is_told_everything_once(plot: Plot) -> None:
    humans = [actor for actor, kind in enumerate(plot.actors) if kind == HUMAN]
    agents = [actor for actor, kind in enumerate(plot.actors) if kind != HUMAN]

    async def scenario() -> None:
        async with trial_host(plot.actors) as host:
            environment = host.environment
            environment.ends_at = plot.ticks
            for one in plot.remarks:
                if one.sender == ENVIRONMENT:  # what it says of a tick comes with the observations of the next
                    environment.messages.setdefault(one.tick + 1, []).append(message(one.receiver, text(one)))
                    environment.feedbacks.setdefault(one.tick + 1, []).extend(feedback(one))
                elif one.sender in agents:
                    agent = host.agents[plot.actors[one.sender]]
                    agent.remarks.setdefault((one.sender, one.tick), []).append(
                        (message(one.receiver, text(one)), feedback(one))
                    )
            trial_id = (await host.start()).trial_id
            for actor in humans[1:]:
                await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=actor))
            replies: dict[int, list[api.TrialActionReply]] = {actor: [] for actor in humans}
            for tick in range(plot.ticks if humans else 0):
                for one in plot.remarks:
                    if one.tick == tick and one.sender in humans:
                        letter = message(one.receiver, text(one), one.sender)
                        await host.stub.SendMessage(api.TrialMessageRequest(trial_id=trial_id, messages=[letter]))
                        about = api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=feedback(one))
                        await host.stub.GiveFeedback(about)
                acts = [host.act(trial_id, actor, b"%d@%d" % (actor, tick)) for actor in humans]
                for actor, reply in zip(humans, await asyncio.gather(*acts), strict=True):
                    replies[actor].append(reply)
            await host.all_gone()

            for actor in humans:
                for tick, reply in enumerate(replies[actor]):
                    assert reply.trial_is_over == (tick == plot.ticks - 1)
                    assert reply.observation.data.content == b"seen %d@%d" % (actor, tick + 1)
                    assert same(reply.reward, expected_reward(plot, actor, tick))
                    texts = sorted(one.payload.value.decode() for one in reply.messages.messages)
                    mine = [one for one in plot.remarks if (one.receiver, one.tick) == (actor, tick)]
                    assert texts == sorted(map(text, mine))
            for actor in agents:
                name = plot.actors[actor]
                rewards = [one for one in host.call_log.of(name, "Reward") if one.actor_id == actor]
                assert [one.tick_id for one in rewards] == list(range(plot.ticks))
                assert all(same(one.reward, expected_reward(plot, actor, one.tick_id)) for one in rewards)
                letters = [one for one in host.call_log.of(name, "OnMessage") if one.actor_id == actor]
                texts = sorted(one.payload.value.decode() for letter in letters for one in letter.messages)
                assert texts == sorted(text(one) for one in plot.remarks if one.receiver == actor)
            for tick, update in enumerate(host.call_log.of("env", "Update")):
                expected = [
                    b"%d@%d" % (actor, tick) if kind == HUMAN else f"{kind}.{actor}@{tick}".encode()
                    for actor, kind in enumerate(plot.actors)
                ]
                assert list(update.action_set.actions) == expected

    run(scenario)


def feedback(remark: Remark) -> list[Feedback]:
    """About an actor; of the environment there is none."""
    if remark.receiver == ENVIRONMENT:
        return []
    return [Feedback(actor_id=remark.receiver, tick_id=-1, value=remark.value, confidence=remark.confidence)]
