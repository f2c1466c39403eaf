"""ActionStream: actions as they come, answers in the same order, over a real socket."""

import asyncio
import contextlib
from typing import Any

import grpc
import pytest

from tests.support.trial_services import Code, TrialHost, hang, let_time_pass, message, run, trial_host
from worldloom.protos.cogment.api import environment_pb2
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Feedback, ObservationData, TrialParams
from worldloom.protos.errors import Internal
from worldloom.server.cogment import services
from worldloom.server.cogment.settings import HUMAN


def action(trial_id: str, actor_id: int = 0, content: bytes = b"act") -> api.TrialActionRequest:
    request = api.TrialActionRequest(trial_id=trial_id, actor_id=actor_id)
    request.action.content = content
    return request


async def joined(host: TrialHost) -> str:
    """A trial whose two humans are there."""
    trial_id: str = (await host.start()).trial_id
    await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=1))
    return trial_id


def test_each_action_is_answered() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.environment.ends_at = 3
            trial_id = (await host.start()).trial_id
            stream = host.stub.ActionStream()
            for tick in range(3):
                await stream.write(action(trial_id, 0, b"%d" % tick))
                reply = await stream.read()
                assert reply.observation.data.content == b"seen 0@%d" % (tick + 1)
                assert reply.trial_is_over == (tick == 2)
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is Code.OK
            assert [one.action_set.actions[0] for one in host.call_log.of("env", "Update")] == [b"0", b"1", b"2"]

    run(scenario)


def test_actions_that_were_sent_ahead_follow_each_other() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            trial_id = (await host.start()).trial_id
            stream = host.stub.ActionStream()
            count = 2 * services._MAX_UNANSWERED
            for tick in range(count):
                await stream.write(action(trial_id, 0, b"%d" % tick))
            await stream.done_writing()
            ticks = [(await stream.read()).observation.tick_id for _ in range(count)]
            assert ticks == list(range(1, count + 1))
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is Code.OK
            done = [one.action_set.actions[0] for one in host.call_log.of("env", "Update")]
            assert done == [b"%d" % tick for tick in range(count)]

    run(scenario)


def test_one_stream_may_act_for_several_actors_and_trials() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, HUMAN)) as host:
            first, second = await joined(host), await joined(host)
            stream = host.stub.ActionStream()
            asked = [(first, 0), (second, 1), (first, 0), (second, 0), (first, 1), (second, 1), (first, 1), (second, 0)]
            for trial_id, actor_id in asked:
                await stream.write(action(trial_id, actor_id))
            replies = [await stream.read() for _ in asked]
            seen = [reply.observation.data.content for reply in replies]
            assert seen == [
                b"seen %d@%d" % where for where in ((0, 1), (1, 1), (0, 2), (0, 1), (1, 1), (1, 2), (1, 2), (0, 2))
            ]
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF

    run(scenario)


async def _ends_with(stream: Any) -> tuple[grpc.StatusCode, str]:
    return await stream.code(), await stream.details()


def test_an_error_ends_the_stream_and_no_action_after_it_counts() -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            trial_id = (await host.start()).trial_id
            cases = {
                Code.NOT_FOUND: action("no such trial"),
                Code.INVALID_ARGUMENT: action(trial_id, 5),
                Code.RESOURCE_EXHAUSTED: action(trial_id, 0, b"x" * (5 << 20)),
            }
            for tick, (code, wrong) in enumerate(cases.items()):
                stream = host.stub.ActionStream()
                await stream.write(action(trial_id))
                assert (await stream.read()).observation.tick_id == tick + 1
                await stream.write(wrong)
                found, text = await _ends_with(stream)
                assert found is code
                assert "expected" in text
            stream = host.stub.ActionStream()
            ahead = (action(trial_id, 0, b"first"), action(trial_id, 7), action(trial_id, 0, b"second"))
            for one in ahead:
                await stream.write(one)
            assert (await stream.read()).observation.tick_id == 4
            assert (await _ends_with(stream))[0] is Code.INVALID_ARGUMENT
            assert host.call_log.of("env", "Update")[-1].action_set.actions == [b"first"]

    run(scenario)


def test_a_trial_that_ends_answers_the_stream_that_waits_for_it() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.agents["a"].overrides["Decide"] = hang
            trial_id = (await host.start()).trial_id
            stream = host.stub.ActionStream()
            count = 2 * services._MAX_UNANSWERED  # more than is read
            for _ in range(count):
                await stream.write(action(trial_id))
            await host.acted(trial_id)
            await host.end(trial_id)
            replies = [await stream.read() for _ in range(count)]
            assert all(reply.trial_is_over for reply in replies)
            assert {reply.observation.data.content for reply in replies} == {b"seen 0@0"}
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is Code.OK

    run(scenario)


async def _fail(_request: Any, context: Any) -> None:
    await context.abort(Code.INVALID_ARGUMENT, "I do not like it")


async def _fail_here(_request: Any, _context: Any) -> Any:
    raise Internal("a bug")


async def _end_abnormally(host: TrialHost, trial_id: str, how: str) -> None:
    if how == "agent stopped":
        await host.servers["a"].stop(None)
    elif how == "agent failed":
        host.agents["a"].overrides["Reward"] = _fail
    elif how == "another's End":
        await host.end(trial_id)
    elif how == "environment failed":
        host.environment.overrides["Update"] = _fail_here
    elif how == "server stopped":
        host.trials.drain()
    else:
        assert how == "inactivity"
        let_time_pass(host, trial_id)
        while host.trials.running_count:
            await asyncio.sleep(0)


ABNORMAL_ENDS = ("agent stopped", "agent failed", "another's End", "environment failed", "server stopped", "inactivity")


@pytest.mark.parametrize("how", ABNORMAL_ENDS)
def test_an_action_of_a_trial_that_ended_otherwise_is_answered_with_its_end(how: str) -> None:
    """As SDK clients need it, which know no other end of a trial: the observation again, and what is pending."""

    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), params=TrialParams(max_inactivity=1000)) as host:
            trial_id = (await host.start()).trial_id
            stream = host.stub.ActionStream()
            await stream.write(action(trial_id))
            assert (await stream.read()).observation.tick_id == 1
            await host.call_log.until("a", "Decide", 2)
            about = Feedback(actor_id=0, tick_id=-1, value=3, confidence=1)
            await host.stub.GiveFeedback(api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=[about]))
            await host.stub.SendMessage(api.TrialMessageRequest(trial_id=trial_id, messages=[message(0, "hello")]))
            await _end_abnormally(host, trial_id, how)
            with contextlib.suppress(asyncio.InvalidStateError):  # a server that stops has ended the stream already
                await stream.write(action(trial_id))
            reply = await stream.read()
            while not reply.trial_is_over:  # the agent had decided before it was stopped
                assert how == "agent stopped"
                await stream.write(action(trial_id))
                reply = await stream.read()
            assert reply.observation.data.content.startswith(b"seen 0@")
            if how not in ("agent stopped", "agent failed"):
                assert reply.observation.tick_id == 1
                assert reply.reward.value == 3
                assert [one.payload.value for one in reply.messages.messages] == [b"hello"]
            if how == "another's End":  # what was pending comes once, however many actions follow
                await stream.write(action(trial_id))
                again = await stream.read()
                assert again.trial_is_over
                assert again.observation == reply.observation
                assert (again.reward.value, len(again.messages.messages)) == (0, 0)
            with contextlib.suppress(asyncio.InvalidStateError):
                await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is Code.OK

    run(scenario)


def test_a_server_that_stops_ends_streams_that_wait_for_nothing() -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            await host.start()
            unused = host.stub.ActionStream()
            await unused.write(action("no such trial"))
            assert (await _ends_with(unused))[0] is Code.NOT_FOUND
            unused = host.stub.ActionStream()
            await unused.wait_for_connection()
            host.trials.drain()
            reply = await unused.read()
            assert reply.trial_is_over
            assert await unused.read() is grpc.aio.EOF
            assert await unused.code() is Code.OK

    run(scenario)


def test_the_end_is_no_change_to_an_observation_that_was_a_delta() -> None:
    async def scenario() -> None:
        async with trial_host() as host:

            async def change(_request: Any, _context: Any) -> Any:
                observations = environment_pb2.ObservationSet(tick_id=1, actors_map=[0])
                observations.observations.add(content=b"a change")
                return environment_pb2.EnvUpdateReply(observation_set=observations)

            host.environment.overrides["Update"] = change
            trial_id = (await host.start()).trial_id
            stream = host.stub.ActionStream()
            await stream.write(action(trial_id))
            assert (await stream.read()).observation.data.content == b"a change"
            await host.end(trial_id)
            await stream.write(action(trial_id))
            reply = await stream.read()
            assert (reply.trial_is_over, reply.observation.tick_id) == (True, 1)
            assert reply.observation.data == ObservationData()
            await stream.done_writing()

    run(scenario)


def test_a_client_that_vanishes_leaves_nothing_waiting() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, HUMAN)) as host:
            trial_id = await joined(host)
            human = host.trials._running[trial_id]._run.humans._humans[0]
            stream = host.stub.ActionStream()
            for _ in range(3):
                await stream.write(action(trial_id, 0, b"never mind"))
            await host.acted(trial_id)
            stream.cancel()
            while human.reply is not None:
                await asyncio.sleep(0)
            await asyncio.gather(host.act(trial_id, 0, b"this"), host.act(trial_id, 1, b"that"))
            assert host.call_log.of("env", "Update")[0].action_set.actions == [b"this", b"that"]

    run(scenario)


def test_a_stream_that_ends_without_a_word_is_no_error() -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            stream = host.stub.ActionStream()
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is Code.OK

    run(scenario)
