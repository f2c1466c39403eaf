"""However a trial ends, agents that are alive get what is pending before their End: each reward and message once."""

import asyncio
import contextlib
import random
from typing import Any

import grpc
import pytest

from tests.support.trial_services import Code, TrialHost, hang, let_time_pass, message, run, status_of, trial_host
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Feedback, TrialParams
from worldloom.protos.errors import Internal
from worldloom.server.cogment.settings import HUMAN

TICKS = 5
ENDS = ("client", "inactivity", "other agent fails", "environment fails", "server stops")


async def give(host: TrialHost, trial_id: str, value: float, text: str) -> None:
    """Give feedback for the latest tick to actor 1, and write to it."""
    about = Feedback(actor_id=1, tick_id=-1, value=value, confidence=1)
    await host.stub.GiveFeedback(api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=[about]))
    await host.stub.SendMessage(api.TrialMessageRequest(trial_id=trial_id, messages=[message(1, text)]))


async def fail(_request: Any, context: Any) -> None:
    await context.abort(Code.INTERNAL, "a bug")


async def fail_here(_request: Any, _context: Any) -> None:
    raise Internal("a bug")


def reward_world(host: TrialHost, ticks: int) -> None:
    """Let the environment reward actor 1 in each tick, with the number of the tick plus one."""
    for tick in range(1, ticks + 1):
        host.environment.feedbacks[tick] = [Feedback(actor_id=1, tick_id=-1, value=tick, confidence=1)]


def told(host: TrialHost, name: str = "a") -> list[tuple[int, float]]:
    """Return the ticks and values of all Reward calls of an agent."""
    return [(one.tick_id, one.reward.value) for one in host.call_log.of(name, "Reward")]


@pytest.mark.parametrize("how", ENDS)
def test_an_agent_gets_its_last_reward_feedback_and_message_before_its_end(how: str) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b"), params=TrialParams(max_inactivity=1000)) as host:
            reward_world(host, TICKS)
            trial_id = (await host.start()).trial_id
            for _ in range(TICKS):
                await host.act(trial_id)
            await host.call_log.until("a", "Decide", TICKS + 1)
            await host.call_log.until("b", "Decide", TICKS + 1)
            await give(host, trial_id, 7, "well done")
            if how == "client":
                await host.end(trial_id)
            elif how == "inactivity":
                let_time_pass(host, trial_id)
            elif how == "other agent fails":
                host.agents["b"].overrides["Reward"] = fail
                assert (await status_of(host.act(trial_id)))[0] is Code.INTERNAL
            elif how == "environment fails":
                host.environment.overrides["Update"] = fail_here
                assert (await status_of(host.act(trial_id)))[0] is Code.INTERNAL
            elif how == "server stops":
                host.trials.drain()
            await host.all_gone()
            assert told(host) == [*((tick, tick + 1) for tick in range(TICKS)), (TICKS, 7)]
            (letter,) = host.call_log.of("a", "OnMessage")
            assert [one.payload.value for one in letter.messages] == [b"well done"]
            calls = [call for call in host.call_log.calls() if call.startswith("a ")]
            assert calls[-1] == "a End"
            assert calls.count("a End") == 1

    run(scenario)


@pytest.mark.parametrize("how", ["client", "server stops"])
def test_what_comes_with_a_decision_is_pending_though_the_tick_is_not_completed(how: str) -> None:
    """Agent a has decided, with feedback and a message for b and c; c never decides."""

    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b", "c")) as host:
            trial_id = (await host.start()).trial_id
            host.agents["a"].feedbacks[1] = [Feedback(actor_id=2, tick_id=-1, value=4, confidence=1)]
            host.agents["a"].messages[1] = [message(2, "from a")]
            await host.call_log.until("c", "Decide")
            host.agents["c"].overrides["Decide"] = hang
            await host.act(trial_id)
            await host.call_log.until("a", "Decide", 2)
            await host.call_log.until("c", "Decide", 2)
            for _ in range(50):  # until a's reply has arrived
                await asyncio.sleep(0.01)
            if how == "client":
                await host.end(trial_id)
            else:
                host.trials.drain()
            await host.all_gone()
            assert told(host, "b") == [(0, 0), (1, 4)]
            (letter,) = host.call_log.of("b", "OnMessage")
            assert [one.payload.value for one in letter.messages] == [b"from a"]
            assert [call for call in host.call_log.calls() if call.startswith("b ")][-1] == "b End"

    run(scenario)


@pytest.mark.parametrize("what", ["Reward", "OnMessage"])
def test_a_call_that_is_under_way_at_the_end_arrives_once(what: str) -> None:
    """Its End comes after it has answered: a cancelled call might have arrived or not."""

    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            reward_world(host, 2)
            gate = asyncio.Event()
            trial_id = (await host.start()).trial_id
            await host.act(trial_id)
            await give(host, trial_id, 7, "hello")
            host.agents["a"].delays[what] = gate.wait
            action = host.act(trial_id)
            await host.call_log.until("a", what)
            await host.end(trial_id)
            assert (await status_of(action))[0] is Code.FAILED_PRECONDITION
            assert "a End" not in host.call_log.calls()
            gate.set()
            await host.all_gone()
            assert told(host) == [(0, 1), (1, 7)]
            assert [len(one.messages) for one in host.call_log.of("a", "OnMessage")] == [1]
            assert host.call_log.calls()[-1] == "a End" or host.call_log.calls()[-2] == "a End"

    run(scenario)


def test_the_last_reward_reaches_an_agent_though_the_datalog_is_slow() -> None:
    """Between the taking of a reward and its sending nothing waits."""

    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            reward_world(host, 2)
            trial_id = (await host.start()).trial_id
            await host.act(trial_id)
            state = host.trials._running[trial_id].state
            waiting = asyncio.Event()

            async def write(*_: Any) -> None:
                waiting.set()
                await asyncio.Event().wait()

            state._write = write  # type: ignore[method-assign,assignment]
            action = host.act(trial_id)
            await waiting.wait()
            del state._write
            await host.end(trial_id)
            await status_of(action)
            await host.all_gone()
            assert told(host) == [(0, 1)]

    run(scenario)


def test_an_agent_that_does_not_take_its_reward_is_ended_all_the_same() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b"), deadline_s=0.3) as host:
            reward_world(host, 1)
            trial_id = (await host.start()).trial_id
            await host.act(trial_id)
            host.agents["a"].overrides["Reward"] = hang
            await host.end(trial_id)
            await host.all_gone()
            assert len(host.call_log.of("a", "End")) == len(host.call_log.of("b", "End")) == 1
            assert [one.tick_id for one in host.call_log.of("b", "Reward")] == [0]

    run(scenario)


def test_messages_to_the_environment_reach_it_before_its_end() -> None:
    async def scenario() -> None:
        async with trial_host(remote_environment=True) as host:
            trial_id = (await host.start()).trial_id
            letter = message(-1, "goodbye")
            await host.stub.SendMessage(api.TrialMessageRequest(trial_id=trial_id, messages=[letter]))
            await host.end(trial_id)
            await host.all_gone()
            assert host.call_log.calls()[-2:] == ["env OnMessage", "env End"]

    run(scenario)


def test_nobody_who_was_not_started_is_ended() -> None:
    """A client that gives up Start at once, before anyone was called."""

    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            starting = asyncio.create_task(host.trials.start(api.TrialStartRequest()))
            while not host.trials.running_count:
                await asyncio.sleep(0)
            starting.cancel()  # the task of the trial has not run yet
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            await host.all_gone()
            await host.start()
            assert "a End" not in host.call_log.calls()
            assert "env End" not in host.call_log.calls()

    run(scenario)


def test_an_agent_that_start_did_not_reach_is_not_ended() -> None:
    """It may come up in between: its first call would be an End."""

    async def refuse(_request: Any, context: Any) -> None:
        await context.abort(Code.UNAVAILABLE, "not yet")

    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b")) as host:
            host.agents["a"].overrides["Start"] = refuse
            assert (await status_of(host.start()))[0] is Code.UNAVAILABLE
            await host.all_gone()
            ends = [call for call in host.call_log.calls() if call.endswith("End")]
            assert sorted(ends) == ["b End", "env End"]

    run(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_whoever_was_started_is_ended_once_and_nobody_else(seed: int) -> None:
    """Trials that fail, are given up or are ended while they start, at random moments."""
    rng = random.Random(seed)

    async def pause() -> None:
        for _ in range(rng.randint(0, 20)):
            await asyncio.sleep(0)

    async def refuse(_request: Any, context: Any) -> None:
        await context.abort(rng.choice([Code.INTERNAL, Code.INVALID_ARGUMENT]), "not now")

    async def refuse_here(_request: Any, _context: Any) -> None:
        raise Internal("not now")

    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b", "a")) as host:
            for one in (host.environment, *host.agents.values()):
                one.delays["Start"] = pause
            for _ in range(12):
                for agent in host.agents.values():
                    agent.overrides = {"Start": refuse} if rng.random() < 0.3 else {}
                host.environment.overrides = {"Start": refuse_here} if rng.random() < 0.2 else {}
                call = host.stub.Start(api.TrialStartRequest())
                await pause()
                if rng.random() < 0.5:
                    call.cancel()
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
                    trial_id = (await call).trial_id
                    await pause()
                    await host.end(trial_id)
            host.trials.drain()
            await host.all_gone()
            seen: dict[tuple[Any, ...], list[str]] = {}
            for service, method, request in host.call_log.logged:
                if method in ("Start", "End"):
                    key = service, request.trial_id, getattr(request, "actor_id", None)
                    seen.setdefault(key, []).append(method)
            assert seen
            assert {tuple(methods) for methods in seen.values()} == {("Start", "End")}

    run(scenario)


def test_agents_alone_are_ended_when_their_clients_are_inactive() -> None:
    async def scenario() -> None:
        for remote in (False, True):
            async with trial_host(("a",), params=TrialParams(max_inactivity=1), remote_environment=remote) as host:
                trial_id = (await host.start()).trial_id
                await host.all_gone()
                code, text = await status_of(host.act(trial_id))
                assert code is Code.FAILED_PRECONDITION
                assert "its clients were inactive for 1 s (max_inactivity): expected Heartbeat" in text

    run(scenario)


def test_agents_alone_go_on_while_a_client_is_active() -> None:
    async def scenario() -> None:
        async with trial_host(("a",), params=TrialParams(max_inactivity=1)) as host:
            trial_id = (await host.start()).trial_id
            humans = host.trials._running[trial_id].state.humans
            humans._clock = lambda: now_s
            now_s = 0.0
            for now_s in (0.0, 0.9, 1.8, 2.7):  # noqa: B007  # read by the clock
                await host.stub.Heartbeat(api.TrialHeartbeatRequest(trial_id=trial_id))
                ticks = len(host.call_log.of("env", "Update"))
                await host.call_log.until("env", "Update", ticks + 2)
            now_s = 3.8
            await host.all_gone()

    run(scenario)
