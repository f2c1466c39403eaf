"""Worlds of trials in another program, behind a socket."""

from typing import Any

import grpc
import pytest

from tests.support.trial_services import Code, hang, message, run, status_of, trial_host
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.agent_pb2_grpc import add_AgentServicer_to_server
from worldloom.protos.cogment.api.common_pb2 import Feedback, TrialParams
from worldloom.server.cogment.settings import HUMAN


def test_a_trial_runs_on_it() -> None:
    async def scenario() -> None:
        params = TrialParams()
        params.environment.config.content = b"of the environment"
        async with trial_host((HUMAN, "a"), remote_environment=True, params=params) as host:
            host.environment.ends_at = 2
            host.environment.feedbacks[1] = [Feedback(actor_id=1, tick_id=-1, value=4, confidence=1)]
            host.environment.messages[1] = [message(0, "welcome")]
            reply = await host.start(config=b"of the trial")
            assert reply.observation.data.content == b"seen 0@0"
            (start,) = host.call_log.of("env", "Start")
            assert (start.trial_id, start.config.content) == (reply.trial_id, b"of the environment")
            assert start.trial_config.content == b"of the trial"
            assert list(start.actor_counts) == [2]
            letter = api.TrialMessageRequest(trial_id=reply.trial_id, messages=[message(-1, "hello")])
            await host.stub.SendMessage(letter)
            first = await host.act(reply.trial_id)
            assert [one.payload.value for one in first.messages.messages] == [b"welcome"]
            last = await host.act(reply.trial_id)
            assert last.trial_is_over
            assert last.observation.data.content == b"seen 0@2"
            await host.all_gone()
            calls = [call for call in host.call_log.calls() if call.startswith("env")]
            assert calls == ["env Start", "env OnMessage", "env Update", "env Update", "env End"]
            assert host.call_log.of("env", "OnMessage")[0].actor_id == -1
            update = host.call_log.of("env", "Update")[1]
            assert (update.trial_id, update.reply_with_snapshot) == (reply.trial_id, False)
            assert list(update.action_set.actions) == [b"act", b"a.1@1"]
            assert host.call_log.of("a", "Reward")[0].reward.value == 4
            assert host.call_log.of("env", "End")[0].trial_id == reply.trial_id

    run(scenario)


async def refuse(_request: Any, context: Any) -> None:
    await context.abort(Code.NOT_FOUND, "what trial?")


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        (refuse, Code.INTERNAL, "Update answered NOT_FOUND: what trial?"),
        (hang, Code.DEADLINE_EXCEEDED, "Update did not answer within 1 s (deadline_s)"),
    ],
)
def test_one_that_fails_or_is_late_ends_the_trial(how: Any, code: Code, words: str) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), remote_environment=True, deadline_s=1) as host:
            host.environment.overrides["Update"] = how
            trial_id = (await host.start()).trial_id
            found, text = await status_of(host.act(trial_id))
            assert found is code
            assert text == f"trial '{trial_id}' is over: the environment at {host.endpoints['env']}: {words}"
            await host.call_log.until("env", "End")
            await host.call_log.until("a", "End")

    run(scenario)


def test_one_that_dies_while_it_updates_ends_the_trial_at_once() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), remote_environment=True, deadline_s=60) as host:
            host.environment.overrides["Update"] = hang
            action = host.act((await host.start()).trial_id)
            await host.call_log.until("env", "Update")
            await host.servers["env"].stop(None)
            code, text = await status_of(action)
            assert code in (Code.UNAVAILABLE, Code.INTERNAL)
            assert f"the environment at {host.endpoints['env']}: Update answered" in text
            await host.all_gone()
            assert len(host.call_log.of("a", "End")) == 1
            host.environment.trials.clear()  # nobody could tell it

    run(scenario)


@pytest.mark.parametrize("is_there", [True, False])
def test_one_that_does_not_start_keeps_a_trial_from_starting(is_there: bool) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), remote_environment=True, deadline_s=1) as host:
            if is_there:
                host.environment.overrides["Start"] = hang
            else:
                await host.servers["env"].stop(None)
            code, text = await status_of(host.start())
            assert code is (Code.DEADLINE_EXCEEDED if is_there else Code.UNAVAILABLE)
            assert text.startswith(f"the environment at {host.endpoints['env']}: Start ")
            await host.all_gone()
            assert len(host.call_log.of("a", "End")) == 1

    run(scenario)


def test_one_that_refuses_a_configuration_is_heard() -> None:
    async def refuse_config(_request: Any, context: Any) -> None:
        await context.abort(Code.INVALID_ARGUMENT, "no such maze")

    async def scenario() -> None:
        async with trial_host(remote_environment=True) as host:
            host.environment.overrides["Start"] = refuse_config
            code, text = await status_of(host.start(config=b"?"))
            assert code is Code.INVALID_ARGUMENT
            assert text.endswith("Start answered INVALID_ARGUMENT: no such maze")

    run(scenario)


def test_one_that_comes_back_is_reached_again() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            trial_id = (await host.start()).trial_id
            await host.end(trial_id)
            await host.all_gone()
            await host.servers["a"].stop(None)
            assert (await status_of(host.start()))[0] is Code.UNAVAILABLE
            server = grpc.aio.server()
            add_AgentServicer_to_server(host.agents["a"], server)
            server.add_insecure_port(host.endpoints["a"].removeprefix("grpc://"))
            await server.start()
            while (await status_of(host.start()))[0] is not Code.OK:
                await host.all_gone()
            await host.trials.close()
            await server.stop(None)

    run(scenario)
