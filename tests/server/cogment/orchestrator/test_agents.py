"""The Agent API: what agents are told, and what becomes of a trial whose agent fails or is late."""

import asyncio
import logging
from typing import Any

import grpc
import pytest

from tests.support.trial_services import (
    Code,
    hang,
    message,
    run,
    status_of,
    trial_host,
)
from worldloom.protos.cogment.api import agent_pb2
from worldloom.protos.cogment.api.common_pb2 import Feedback
from worldloom.server.cogment.environments.trial_world import InvalidAction
from worldloom.server.cogment.settings import HUMAN


async def fail(_request: Any, context: Any) -> None:
    await context.abort(Code.INVALID_ARGUMENT, "I do not like it")


async def crash(_request: Any, _context: Any) -> None:
    raise ValueError("a bug")


def test_an_agent_is_told_of_every_tick() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.environment.ends_at = 2
            trial_id = (await host.start()).trial_id
            for _ in range(2):
                await host.act(trial_id)
            await host.all_gone()
            who = (trial_id, 1)
            decides = host.call_log.of("a", "Decide")
            assert [(one.trial_id, one.actor_id) for one in decides] == [who, who]
            assert [one.observation.tick_id for one in decides] == [0, 1]
            assert [one.observation.data.content for one in decides] == [b"seen 1@0", b"seen 1@1"]
            rewards = host.call_log.of("a", "Reward")
            assert [(one.trial_id, one.actor_id) for one in rewards] == [who, who]
            assert [(one.tick_id, one.reward.value, one.reward.confidence) for one in rewards] == [(0, 0, 0), (1, 0, 0)]
            (end,) = host.call_log.of("a", "End")
            assert (end.trial_id, end.actor_id) == who

    run(scenario)


def test_a_service_that_has_several_agents_is_called_for_each() -> None:
    async def scenario() -> None:
        async with trial_host(("a", HUMAN, "a", "a")) as host:
            trial_id = (await host.start()).trial_id
            await host.act(trial_id, 1)
            await host.end(trial_id)
            await host.all_gone()
            for what in ("Start", "End"):
                assert sorted(one.actor_id for one in host.call_log.of("a", what)) == [0, 2, 3]
            assert len(host.trials._channels._open) == 1
            actions = host.call_log.of("env", "Update")[0].action_set.actions
            assert actions == [b"a.0@0", b"act", b"a.2@0", b"a.3@0"]

    run(scenario)


def test_feedback_and_messages_of_agents_go_to_the_others() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b")) as host:
            host.environment.ends_at = 2
            host.agents["a"].feedbacks[0] = [Feedback(actor_id=2, tick_id=-1, value=3, confidence=1)]
            host.agents["b"].feedbacks[1] = [Feedback(actor_id=2, tick_id=0, value=5, confidence=1)]
            host.agents["a"].messages[1] = [message(2, "psst", sender=0)]
            trial_id = (await host.start()).trial_id
            for _ in range(2):
                await host.act(trial_id)
            await host.all_gone()
            # What b says in tick 1 of tick 0 is in time: tick 0 is settled when all have decided tick 1.
            reward = host.call_log.of("b", "Reward")[0]
            assert (reward.tick_id, reward.reward.value) == (0, 4)
            assert [one.value for one in reward.reward.feedbacks] == [3, 5]
            (letter,) = host.call_log.of("b", "OnMessage")
            assert list(letter.messages) == [message(2, "psst", sender=1)]
            assert host.call_log.of("a", "OnMessage") == []

    run(scenario)


def test_messages_of_the_last_update_reach_agents_before_their_end() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.environment.ends_at = 1
            host.environment.messages[1] = [message(1, "farewell")]
            await host.act((await host.start()).trial_id)
            await host.all_gone()
            calls = [call for call in host.call_log.calls() if call.startswith("a ")]
            assert calls == ["a Start", "a Decide", "a Reward", "a OnMessage", "a End"]

    run(scenario)


def test_a_service_is_asked_for_its_version_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "worldloom.trials")

    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            for _ in range(3):
                await host.end((await host.start()).trial_id)
                await host.all_gone()

    run(scenario)
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("versions")]
    assert len(told) == 1
    assert "service=agent" in told[0]
    assert 'versions="fake 1.2.3"' in told[0]


@pytest.mark.parametrize("what", ["Decide", "Reward", "OnMessage"])
@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        (fail, Code.INTERNAL, "answered INVALID_ARGUMENT: I do not like it"),
        (crash, Code.INTERNAL, "answered UNKNOWN: "),
        (hang, Code.DEADLINE_EXCEEDED, "did not answer within 1 s (deadline_s)"),
    ],
)
def test_an_agent_that_fails_or_is_late_ends_the_trial(what: str, how: Any, code: Code, words: str) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b"), deadline_s=1) as host:
            host.agents["b"].messages[1] = [message(1, "hello")]
            permits = asyncio.Semaphore(1)  # for the decision of tick 0; that of tick 1 waits
            host.agents["a"].delays["Decide"] = permits.acquire
            trial_id = (await host.start()).trial_id
            await host.act(trial_id)
            action = host.act(trial_id)
            await host.acted(trial_id)
            host.agents["a"].overrides[what] = how
            permits.release()
            found, text = await status_of(action)
            assert found is code
            assert text.startswith(f"trial '{trial_id}' is over: agent 1 (player) at {host.endpoints['a']}: {what} ")
            assert words in text
            assert host.trials.running_count == 0
            late, why = await status_of(host.act(trial_id))
            assert late is code  # as for a call that waited: which of the two a call is, is a matter of chance
            assert words in why
            await host.all_gone()
            assert [len(host.call_log.of(who, "End")) for who in ("env", "a", "b")] == [1, 1, 1]

    run(scenario)


def test_an_agent_that_dies_while_it_decides_ends_the_trial_at_once() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b"), deadline_s=60) as host:
            host.agents["a"].overrides["Decide"] = hang
            trial_id = (await host.start()).trial_id
            action = host.act(trial_id)
            await host.call_log.until("a", "Decide")
            await host.acted(trial_id)
            await host.servers["a"].stop(None)
            code, text = await status_of(action)
            assert code is Code.UNAVAILABLE
            assert f"agent 1 (player) at {host.endpoints['a']}: Decide answered" in text
            assert (await status_of(host.act(trial_id)))[0] is Code.UNAVAILABLE
            await host.call_log.until("b", "End")
            await host.call_log.until("env", "End")

    run(scenario)


def test_nobody_waits_for_a_human_when_an_agent_has_failed() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.agents["a"].overrides["Decide"] = fail
            trial_id = (await host.start()).trial_id
            await host.call_log.until("env", "End")
            assert (await status_of(host.act(trial_id)))[0] is Code.INTERNAL

    run(scenario)


def test_an_agent_that_is_not_there_keeps_a_trial_from_starting() -> None:
    async def scenario() -> None:
        for rule in ("end", "idle"):
            async with trial_host((HUMAN, "a", "b"), on_agent_failure=rule) as host:
                await host.servers["a"].stop(None)
                code, text = await status_of(host.start())
                assert code is Code.UNAVAILABLE
                assert text.startswith(f"agent 1 (player) at {host.endpoints['a']}: Start answered UNAVAILABLE: ")
                await host.all_gone()
                for who in ("env", "b"):
                    assert host.call_log.of(who, "Start")[0].trial_id == host.call_log.of(who, "End")[0].trial_id

    run(scenario)


def test_everyone_has_answered_start_before_they_are_told_of_the_end() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b")) as host:
            gate = asyncio.Event()
            host.agents["a"].overrides["Start"] = fail
            host.agents["b"].delays["Start"] = gate.wait
            assert (await status_of(host.start()))[0] is Code.INVALID_ARGUMENT
            await host.call_log.until("b", "Start")
            assert "b End" not in host.call_log.calls()
            gate.set()
            await host.call_log.until("b", "End")

    run(scenario)


@pytest.mark.parametrize("how", [fail, hang])
def test_an_idle_agent_does_nothing_and_comes_back(how: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b"), on_agent_failure="idle", deadline_s=1) as host:
            trial_id = (await host.start()).trial_id
            await host.act(trial_id)
            await host.call_log.until("a", "Decide", 2)
            await host.act(trial_id)
            await host.call_log.until("a", "Decide", 3)
            host.agents["a"].overrides.update(Decide=how, Reward=how, OnMessage=how)
            await host.act(trial_id)
            await host.call_log.until("a", "Decide", 4)
            await host.act(trial_id)
            host.agents["a"].overrides.clear()
            for _ in range(2):
                await host.act(trial_id)
            updates = host.call_log.of("env", "Update")
            ticks = [update.action_set.actions[1] for update in updates]
            assert ticks[0] == b"a.1@0"
            assert ticks[3] == b""
            assert ticks[-1] == b"a.1@5"
            assert [update.action_set.actions[2] for update in updates] == [b"b.2@%d" % tick for tick in range(6)]
            # Whoever missed an observation cannot make use of a delta.
            assert [update.reply_with_snapshot for update in updates] == [action == b"" for action in ticks]

    with caplog.at_level(logging.WARNING, "worldloom.trials"):
        run(scenario)
    told = [record.getMessage() for record in caplog.records if "agent idles" in record.getMessage()]
    assert len(told) == 1
    assert "agent 1 (player) at grpc://127.0.0.1" in told[0]


def test_a_trial_of_idle_agents_alone_ends() -> None:
    async def scenario() -> None:
        async with trial_host(("a", "b"), on_agent_failure="idle") as host:
            for agent in host.agents.values():
                agent.overrides["Decide"] = fail
            trial_id = (await host.start()).trial_id
            await host.all_gone()
            code, text = await status_of(host.act(trial_id))
            assert code is Code.UNAVAILABLE
            assert "none of its agents answers Decide any more" in text

    run(scenario)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"feedbacks": [Feedback(actor_id=9, tick_id=-1)]}, "Decide returned feedback for actor 9"),
        ({"feedbacks": [Feedback(tick_id=5)]}, "Decide returned feedback for tick 5"),
        ({"messages": [message(9, "hello")]}, "Decide returned a message to receiver_id 9"),
    ],
)
def test_remarks_that_cannot_be_are_a_failure_of_the_agent(reply: dict[str, Any], words: str) -> None:
    async def answer(_request: Any, _context: Any) -> Any:
        return agent_pb2.AgentDecideReply(**reply)

    async def scenario(rule: str) -> None:
        async with trial_host((HUMAN, "a"), on_agent_failure=rule) as host:
            host.agents["a"].overrides["Decide"] = answer
            trial_id = (await host.start()).trial_id
            code, text = await status_of(host.act(trial_id))
            if rule == "end":
                assert code is Code.INTERNAL
                assert f"agent 1 (player) at {host.endpoints['a']}: {words}" in text
            else:
                assert code is Code.OK

    run(lambda: scenario("end"))
    run(lambda: scenario("idle"))


def test_a_reply_that_is_no_message_is_a_failure_of_the_agent() -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            server = grpc.aio.server()
            handlers = {
                what: grpc.unary_unary_rpc_method_handler(_bytes(b"\xff\xff\xff" if what == "Decide" else b""))
                for what in ("Start", "Decide", "Reward", "OnMessage", "End", "Version")
            }
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("cogment.Agent", handlers)])
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            host.trials._settings.params.actors.add(actor_class="player", endpoint=f"grpc://127.0.0.1:{port}")
            trial_id = (await host.start()).trial_id
            await host.all_gone()
            _, text = await status_of(host.act(trial_id))
            assert "Decide answered with bytes that are not a reply of that method" in text
            await server.stop(None)

    run(scenario)


def _bytes(reply: bytes) -> Any:
    async def answer(_request: bytes, _context: Any) -> bytes:
        return reply

    return answer


@pytest.mark.parametrize("rule", ["end", "idle"])
def test_an_action_that_cannot_be_is_a_failure_of_its_agent(rule: str) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), on_agent_failure=rule) as host:

            async def refuse(request: Any, _context: Any) -> Any:
                del host.environment.overrides["Update"]
                raise InvalidAction(1, "action 'fly': expected one of 'walk'")

            host.environment.overrides["Update"] = refuse
            trial_id = (await host.start()).trial_id
            code, text = await status_of(host.act(trial_id))
            if rule == "end":
                assert code is Code.INTERNAL
                assert "agent 1 (player) at" in text
                assert "Decide returned an invalid action: action 'fly'" in text
            else:
                assert code is Code.OK
                assert [list(one.action_set.actions) for one in host.call_log.of("env", "Update")] == [
                    *([b"act", b"a.1@0"], [b"act", b""])
                ]

    run(scenario)


def test_an_environment_that_refuses_to_have_an_agent_do_nothing_ends_the_trial() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), on_agent_failure="idle") as host:

            async def refuse(_request: Any, _context: Any) -> Any:
                raise InvalidAction(1, "whatever")

            host.environment.overrides["Update"] = refuse
            code, text = await status_of(host.act((await host.start()).trial_id))
            assert code is Code.INTERNAL
            assert "the environment of this server: whatever" in text

    run(scenario)
