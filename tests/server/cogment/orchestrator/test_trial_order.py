"""How a trial runs: who is asked what, in which order, tick by tick."""

import asyncio
from typing import Any

from tests.support.trial_services import TrialHost, message, run, trial_host
from worldloom.protos.cogment.api import environment_pb2
from worldloom.protos.cogment.api.common_pb2 import Feedback, TrialParams
from worldloom.server.cogment.settings import HUMAN


async def play_through(host: TrialHost, ticks: int) -> str:
    """A trial whose human acts so often."""
    trial_id = (await host.start()).trial_id
    for tick in range(ticks):
        await host.act(trial_id, 0, b"h%d" % tick)
    await host.all_gone()
    return trial_id


def assert_stages(calls: list[str], *stages: str) -> None:
    """Calls come host by host; within a host in any order."""
    for host in stages:
        expected = sorted(host.split(", "))
        now, calls = calls[: len(expected)], calls[len(expected) :]
        assert sorted(now) == expected
    assert calls == []


def test_every_stage_comes_after_the_one_before_it() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b")) as host:
            host.environment.ends_at = 3
            await play_through(host, 3)
            assert_stages(
                [call for call in host.call_log.calls() if not call.endswith("End")],
                "env Start, a Start, b Start",
                *("a Decide, b Decide", "env Update"),
                *("a Decide, b Decide", "a Reward, b Reward", "env Update"),
                *("a Decide, b Decide", "a Reward, b Reward", "env Update"),
                "a Reward, b Reward",
            )
            last_calls = host.call_log.calls()[-5:]
            assert sorted(last_calls) == ["a End", "a Reward", "b End", "b Reward", "env End"]
            for name in ("a", "b"):
                assert last_calls.index(f"{name} Reward") < last_calls.index(f"{name} End")

    run(scenario)


def test_messages_are_handed_over_once_a_tick_between_rewards_and_update() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.environment.ends_at = 2
            for tick in (0, 1):
                host.agents["a"].messages[tick] = [message(-1, f"to env {tick}"), message(1, f"to myself {tick}")]
            await play_through(host, 2)
            assert_stages(
                host.call_log.calls()[:11],
                "env Start, a Start",
                *("a Decide", "env OnMessage, a OnMessage", "env Update"),
                *("a Decide", "a Reward", "env OnMessage, a OnMessage", "env Update"),
            )
            assert len(host.call_log.of("a", "OnMessage")) == 2

    run(scenario)


def test_everyone_is_started_at_the_same_time() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b")) as host:
            all_there = asyncio.Barrier(3)
            for who in (*host.agents.values(), host.environment):
                who.delays["Start"] = all_there.wait
            await host.start()

    run(scenario)


def test_all_agents_decide_at_the_same_time_and_before_the_human() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b")) as host:
            all_there = asyncio.Barrier(2)
            for agent in host.agents.values():
                agent.delays["Decide"] = all_there.wait
            trial_id = (await host.start()).trial_id
            await host.call_log.until("a", "Decide")
            await host.call_log.until("b", "Decide")
            assert "env Update" not in host.call_log.calls()
            await host.act(trial_id)
            assert host.call_log.of("env", "Update")[0].action_set.actions == [b"act", b"a.1@0", b"b.2@0"]

    run(scenario)


def test_the_next_decisions_are_asked_for_before_the_human_acts_again() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            trial_id = (await host.start()).trial_id
            await host.act(trial_id)
            assert (await host.call_log.until("a", "Decide", 2)).observation.tick_id == 1
            assert len(host.call_log.of("env", "Update")) == 1

    run(scenario)


def test_without_humans_a_trial_runs_by_itself() -> None:
    async def scenario() -> None:
        async with trial_host(("a", "a")) as host:
            host.environment.ends_at = 5
            reply = await host.start()
            assert reply.actor_id == -1
            assert not reply.HasField("observation")
            assert list(reply.actor_counts) == [2]
            await host.all_gone()
            sets = [list(request.action_set.actions) for request in host.call_log.of("env", "Update")]
            assert sets == [[b"a.0@%d" % tick, b"a.1@%d" % tick] for tick in range(5)]
            assert sorted(request.actor_id for request in host.call_log.of("a", "Start")) == [0, 1]
            assert sorted(request.actor_id for request in host.call_log.of("a", "End")) == [0, 1]

    run(scenario)


def test_max_steps_ends_a_trial() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), params=TrialParams(max_steps=3)) as host:
            trial_id = (await host.start()).trial_id
            replies = [await host.act(trial_id) for _ in range(3)]
            assert [reply.trial_is_over for reply in replies] == [False, False, True]
            assert replies[-1].observation.data.content == b"seen 0@3"
            await host.all_gone()
            assert len(host.call_log.of("env", "Update")) == 3
            assert len(host.call_log.of("env", "End")) == len(host.call_log.of("a", "End")) == 1

    run(scenario)


def test_a_human_is_told_the_reward_of_each_tick_with_its_reply() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.environment.ends_at = 3
            for tick in (1, 2, 3):  # with the observations of tick 1 comes what tick 0 was worth
                host.environment.feedbacks[tick] = [
                    Feedback(actor_id=actor, tick_id=-1, value=10 * actor + tick, confidence=1) for actor in (0, 1)
                ]
            trial_id = (await host.start()).trial_id
            replies = [await host.act(trial_id) for _ in range(3)]
            values = [(reply.reward.value, reply.reward.confidence) for reply in replies]
            assert values == [(1, 1), (2, 1), (3, 1)]
            assert [(one.tick_id, one.value) for one in replies[-1].reward.feedbacks] == [(2, 3)]
            await host.all_gone()
            rewards = host.call_log.of("a", "Reward")
            assert [(one.tick_id, one.reward.value, one.reward.confidence) for one in rewards] == [
                *((0, 11, 1), (1, 12, 1), (2, 13, 1))
            ]

    run(scenario)


def test_everyone_sees_through_the_map_and_nothing_is_touched() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b")) as host:

            async def share(_request: Any, _context: Any) -> Any:
                shared = environment_pb2.ObservationSet(tick_id=1, timestamp=1_000_000_001, actors_map=[1, 0, 0])
                shared.observations.add(content=b"\xff\x00 no message at all")
                shared.observations.add(content=b"seen 1@1", snapshot=True)
                return environment_pb2.EnvUpdateReply(observation_set=shared)

            host.environment.overrides["Update"] = share
            trial_id = (await host.start()).trial_id
            reply = await host.act(trial_id)
            assert reply.observation.data.content == b"seen 1@1"
            assert (reply.observation.tick_id, reply.observation.timestamp) == (1, 1_000_000_001)
            for name in ("a", "b"):
                observation = (await host.call_log.until(name, "Decide", 2)).observation
                assert observation.data.content == b"\xff\x00 no message at all"
                assert not observation.data.snapshot
                assert (observation.tick_id, observation.timestamp) == (1, 1_000_000_001)

    run(scenario)
