"""Worlds of trials in another program, behind a socket."""

from typing import Any

import grpc
import pytest

from tests.support.trial_services import Code, hang, message, play, run, status_of
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.agent_pb2_grpc import add_AgentServicer_to_server
from worldloom.protos.cogment.api.common_pb2 import Feedback, TrialParams
from worldloom.server.cogment.settings import HUMAN


def test_a_trial_runs_on_it() -> None:
    async def scenario() -> None:
        params = TrialParams()
        params.environment.config.content = b"of the environment"
        async with play((HUMAN, "a"), remote_environment=True, params=params) as stage:
            stage.environment.ends_at = 2
            stage.environment.feedbacks[1] = [Feedback(actor_id=1, tick_id=-1, value=4, confidence=1)]
            stage.environment.messages[1] = [message(0, "welcome")]
            reply = await stage.start(config=b"of the trial")
            assert reply.observation.data.content == b"seen 0@0"
            (start,) = stage.book.of("env", "Start")
            assert (start.trial_id, start.config.content) == (reply.trial_id, b"of the environment")
            assert start.trial_config.content == b"of the trial"
            assert list(start.actor_counts) == [2]
            letter = api.TrialMessageRequest(trial_id=reply.trial_id, messages=[message(-1, "hello")])
            await stage.stub.SendMessage(letter)
            first = await stage.act(reply.trial_id)
            assert [one.payload.value for one in first.messages.messages] == [b"welcome"]
            last = await stage.act(reply.trial_id)
            assert last.trial_is_over
            assert last.observation.data.content == b"seen 0@2"
            await stage.all_gone()
            calls = [call for call in stage.book.calls() if call.startswith("env")]
            assert calls == ["env Start", "env OnMessage", "env Update", "env Update", "env End"]
            assert stage.book.of("env", "OnMessage")[0].actor_id == -1
            update = stage.book.of("env", "Update")[1]
            assert (update.trial_id, update.reply_with_snapshot) == (reply.trial_id, False)
            assert list(update.action_set.actions) == [b"act", b"a.1@1"]
            assert stage.book.of("a", "Reward")[0].reward.value == 4
            assert stage.book.of("env", "End")[0].trial_id == reply.trial_id

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
        async with play((HUMAN, "a"), remote_environment=True, deadline_s=1) as stage:
            stage.environment.instead["Update"] = how
            trial_id = (await stage.start()).trial_id
            found, text = await status_of(stage.act(trial_id))
            assert found is code
            assert text == f"trial '{trial_id}' is over: the environment at {stage.endpoints['env']}: {words}"
            await stage.book.until("env", "End")
            await stage.book.until("a", "End")

    run(scenario)


def test_one_that_dies_while_it_updates_ends_the_trial_at_once() -> None:
    async def scenario() -> None:
        async with play((HUMAN, "a"), remote_environment=True, deadline_s=60) as stage:
            stage.environment.instead["Update"] = hang
            action = stage.act((await stage.start()).trial_id)
            await stage.book.until("env", "Update")
            await stage.servers["env"].stop(None)
            code, text = await status_of(action)
            assert code in (Code.UNAVAILABLE, Code.INTERNAL)
            assert f"the environment at {stage.endpoints['env']}: Update answered" in text
            await stage.all_gone()
            assert len(stage.book.of("a", "End")) == 1
            stage.environment.trials.clear()  # nobody could tell it

    run(scenario)


@pytest.mark.parametrize("is_there", [True, False])
def test_one_that_does_not_start_keeps_a_trial_from_starting(is_there: bool) -> None:
    async def scenario() -> None:
        async with play((HUMAN, "a"), remote_environment=True, deadline_s=1) as stage:
            if is_there:
                stage.environment.instead["Start"] = hang
            else:
                await stage.servers["env"].stop(None)
            code, text = await status_of(stage.start())
            assert code is (Code.DEADLINE_EXCEEDED if is_there else Code.UNAVAILABLE)
            assert text.startswith(f"the environment at {stage.endpoints['env']}: Start ")
            await stage.all_gone()
            assert len(stage.book.of("a", "End")) == 1

    run(scenario)


def test_one_that_refuses_a_configuration_is_heard() -> None:
    async def refuse_config(_request: Any, context: Any) -> None:
        await context.abort(Code.INVALID_ARGUMENT, "no such maze")

    async def scenario() -> None:
        async with play(remote_environment=True) as stage:
            stage.environment.instead["Start"] = refuse_config
            code, text = await status_of(stage.start(config=b"?"))
            assert code is Code.INVALID_ARGUMENT
            assert text.endswith("Start answered INVALID_ARGUMENT: no such maze")

    run(scenario)


def test_one_that_comes_back_is_reached_again() -> None:
    async def scenario() -> None:
        async with play((HUMAN, "a")) as stage:
            trial_id = (await stage.start()).trial_id
            await stage.end(trial_id)
            await stage.all_gone()
            await stage.servers["a"].stop(None)
            assert (await status_of(stage.start()))[0] is Code.UNAVAILABLE
            server = grpc.aio.server()
            add_AgentServicer_to_server(stage.agents["a"], server)
            server.add_insecure_port(stage.endpoints["a"].removeprefix("grpc://"))
            await server.start()
            while (await status_of(stage.start()))[0] is not Code.OK:
                await stage.all_gone()
            await stage.trials.close()
            await server.stop(None)

    run(scenario)
