"""The Client API: every call of the service Trial, and what is refused."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.trial_services import Code, hang, message, run, status_of, trial_host
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Feedback, TrialParams, VersionRequest
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.settings import HUMAN
from worldloom.server.config import Limits

CLASSES = ("seeker", "hider", "judge")
CALLS = {
    "Join": api.TrialJoinRequest,
    "End": api.TrialEndRequest,
    "Action": api.TrialActionRequest,
    "Heartbeat": api.TrialHeartbeatRequest,
    "GiveFeedback": api.TrialFeedbackRequest,
    "SendMessage": api.TrialMessageRequest,
}


def test_start_tells_everyone_what_they_need_to_know() -> None:
    async def scenario() -> None:
        actors = ("hider:a", f"seeker:{HUMAN}", "hider:b", f"seeker:{HUMAN}")
        async with trial_host(actors, actor_classes=CLASSES) as host:
            reply = await host.start(config=b"of the trial")
            assert reply.trial_id
            assert reply.actor_id == 0  # seekers come before hiders, whatever their place in the file
            assert list(reply.actor_counts) == [2, 2, 0]
            assert reply.observation.data.content == b"seen 0@0"
            assert reply.observation.data.snapshot
            assert reply.observation.tick_id == 0
            assert reply.observation.timestamp == 1_000_000_000
            assert not reply.HasField("human_config")

            (to_environment,) = host.call_log.of("env", "Start")
            assert to_environment.trial_id == reply.trial_id
            assert list(to_environment.actor_counts) == [2, 2, 0]
            assert to_environment.trial_config.content == b"of the trial"
            assert not to_environment.HasField("config")
            for name, actor_id in (("a", 2), ("b", 3)):
                (request,) = host.call_log.of(name, "Start")
                assert (request.trial_id, request.actor_id) == (reply.trial_id, actor_id)
                assert list(request.actor_counts) == [2, 2, 0]
                assert request.trial_config.content == b"of the trial"
                assert not request.HasField("config")

    run(scenario)


def test_configurations_are_there_if_they_are_given_and_else_not_even_empty() -> None:
    async def scenario() -> None:
        params = TrialParams()
        params.environment.config.content = b"of the environment"
        async with trial_host((HUMAN, "a"), params=params) as host:
            for actor, content in zip(params.actors, (b"of the human", b""), strict=True):
                actor.config.content = content
                actor.config.SetInParent()
            reply = await host.start()
            assert reply.human_config.content == b"of the human"
            (to_environment,) = host.call_log.of("env", "Start")
            assert to_environment.config.content == b"of the environment"
            assert not to_environment.HasField("trial_config")
            (to_agent,) = host.call_log.of("a", "Start")
            assert to_agent.HasField("config")
            assert not to_agent.HasField("trial_config")

    run(scenario)


def test_actors_in_the_order_of_the_file() -> None:
    async def scenario() -> None:
        actors = ("hider:a", f"seeker:{HUMAN}", "hider:b")
        for remote in (False, True):
            settings: dict[str, Any] = {"actor_classes": CLASSES, "actor_ids": "file_order"}
            async with trial_host(actors, remote_environment=remote, **settings) as host:
                reply = await host.start()
                assert (reply.actor_id, list(reply.actor_counts)) == (1, [1, 2, 0])
                assert reply.observation.data.content == b"seen 1@0"
                assert [host.call_log.of(name, "Start")[0].actor_id for name in ("a", "b")] == [0, 2]
                await host.act(reply.trial_id, 1, b"mine")
                (update,) = host.call_log.of("env", "Update")
                assert update.action_set.actions == [b"a.0@0", b"mine", b"b.2@0"]
                (start,) = host.call_log.of("env", "Start")
                assert list(start.actor_counts) == [1, 2, 0]
                config = trials_pb2.EnvironmentConfig.FromString(start.config.content)
                assert list(config.actor_order) == ([] if remote else ["hider", "seeker", "hider"])

    run(scenario)


def test_two_trials_have_different_ids_and_do_not_meet() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            first, second = (await host.start()).trial_id, (await host.start()).trial_id
            assert first != second
            assert (await host.act(first)).observation.tick_id == 1
            assert (await host.act(first)).observation.tick_id == 2
            assert (await host.act(second)).observation.tick_id == 1
            await host.end(first)
            assert (await host.act(second)).observation.tick_id == 2

    run(scenario)


def test_join_takes_a_human_actor_that_is_free() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", HUMAN, HUMAN)) as host:
            trial_id = (await host.start()).trial_id
            third = await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=3))
            assert (third.trial_id, third.actor_id, list(third.actor_counts)) == (trial_id, 3, [4])
            assert third.observation.data.content == b"seen 3@0"
            second = await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=-1))
            assert second.actor_id == 2
            assert second.observation.data.content == b"seen 2@0"
            expected = {0: Code.FAILED_PRECONDITION, 1: Code.INVALID_ARGUMENT, 4: Code.INVALID_ARGUMENT}
            for actor_id, refused in expected.items():
                call = host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=actor_id))
                assert (await status_of(call))[0] is refused
            code, text = await status_of(host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=-7)))
            assert code is Code.FAILED_PRECONDITION
            assert "all 3 human actors of the trial have joined" in text

    run(scenario)


def test_a_tick_waits_for_all_humans_whether_they_have_joined_or_not() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, HUMAN)) as host:
            trial_id = (await host.start()).trial_id
            first = host.act(trial_id, 0, b"one")
            code, text = await status_of(host.act(trial_id, 1, b"two"))
            assert code is Code.FAILED_PRECONDITION
            assert "actor 1 has not joined: expected Join" in text
            assert not first.done()
            await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=1))
            second = host.act(trial_id, 1, b"two")
            replies = await asyncio.gather(first, second)
            assert [reply.observation.data.content for reply in replies] == [b"seen 0@1", b"seen 1@1"]
            assert host.call_log.of("env", "Update")[0].action_set.actions == [b"one", b"two"]

    run(scenario)


@pytest.mark.parametrize(
    ("actor_id", "code", "words"),
    [
        (-1, Code.INVALID_ARGUMENT, "actor_id is -1: expected an actor of the trial, 0 to 1"),
        (2, Code.INVALID_ARGUMENT, "actor_id is 2: expected an actor of the trial, 0 to 1"),
        (-(2**31), Code.INVALID_ARGUMENT, "actor_id is -2147483648"),
        (1, Code.INVALID_ARGUMENT, "actor 1 is an agent: expected a human actor; the trial has 0"),
    ],
)
def test_actions_of_the_wrong_actor_are_refused_and_change_nothing(actor_id: int, code: Code, words: str) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            trial_id = (await host.start()).trial_id
            found, text = await status_of(host.act(trial_id, actor_id))
            assert found is code
            assert words in text
            assert (await host.act(trial_id)).observation.tick_id == 1

    run(scenario)


def test_a_second_action_in_a_tick_is_refused_and_the_first_counts() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            gate = asyncio.Event()
            host.agents["a"].delays["Decide"] = gate.wait
            trial_id = (await host.start()).trial_id
            first = host.act(trial_id, 0, b"first")
            await host.call_log.until("a", "Decide")
            await host.acted(trial_id)
            code, text = await status_of(host.act(trial_id, 0, b"second"))
            assert code is Code.FAILED_PRECONDITION
            assert "actor 0 has acted in this tick already" in text
            gate.set()
            assert (await first).observation.tick_id == 1
            assert host.call_log.of("env", "Update")[0].action_set.actions[0] == b"first"

    run(scenario)


@pytest.mark.parametrize("name", CALLS)
def test_a_trial_that_never_was_is_not_found(name: str) -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            await host.start()
            for trial_id in ("", "no such", "x" * 5000, "ü\n"):
                code, text = await status_of(getattr(host.stub, name)(CALLS[name](trial_id=trial_id)))
                assert code is Code.NOT_FOUND
                assert text.startswith("there is no trial '")
                assert len(text) < 400

    run(scenario)


@pytest.mark.parametrize("name", CALLS)
def test_after_its_end_a_trial_answers_with_why_it_ended_and_end_is_no_error(name: str) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.environment.ends_at = 1
            trial_id = (await host.start()).trial_id
            assert (await host.act(trial_id)).trial_is_over
            for _ in range(2):  # while others are told, and afterwards
                code, text = await status_of(getattr(host.stub, name)(CALLS[name](trial_id=trial_id)))
                if name in ("End", "GiveFeedback", "SendMessage"):  # feedback and messages go to the datalog
                    assert code is Code.OK
                else:
                    assert code is Code.FAILED_PRECONDITION
                    assert f"trial '{trial_id}' is over: its environment ended it" in text
                await host.all_gone()

    run(scenario)


def test_trials_that_are_over_are_forgotten_some_day(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("worldloom.server.cogment.orchestrator.ended_trials._MAX_ENDED", 2)
        async with trial_host() as host:
            ids = [(await host.start()).trial_id for _ in range(3)]
            for trial_id in ids:
                await host.end(trial_id)
            assert (await status_of(host.act(ids[0])))[0] is Code.NOT_FOUND
            assert (await status_of(host.act(ids[1])))[0] is Code.FAILED_PRECONDITION
            assert (await status_of(host.act(ids[2])))[0] is Code.FAILED_PRECONDITION

    run(scenario)


def test_of_older_trials_only_the_reason_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of ended trials is bounded by their size, too."""

    async def scenario() -> None:
        monkeypatch.setattr("worldloom.server.cogment.orchestrator.ended_trials._MAX_BYTES", 200)
        async with trial_host() as host:
            ids = [(await host.start()).trial_id for _ in range(3)]
            for trial_id in ids:
                await host.end(trial_id)
            sizes = host.trials._ended._sizes_bytes
            assert list(sizes) == ids[2:]  # a trial takes more than half of that
            assert host.trials._ended._size_bytes == sum(sizes.values()) <= 200
            kept, dropped = host.trials.final_reply(ids[2], 0), host.trials.final_reply(ids[0], 0)
            assert kept is not None
            assert kept.observation.data.content == b"seen 0@0"
            assert dropped == api.TrialActionReply(trial_is_over=True)
            about = [Feedback(actor_id=0, tick_id=-1)]
            code, text = await status_of(
                host.stub.GiveFeedback(api.TrialFeedbackRequest(trial_id=ids[0], feedbacks=about))
            )
            assert code is Code.FAILED_PRECONDITION
            assert "is over: a client ended it" in text

    run(scenario)


def test_a_user_id_of_absurd_length_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            code, text = await status_of(host.start("x" * 1_000_000))
            assert code is Code.INVALID_ARGUMENT
            assert text == "user_id has 1000000 characters: expected 1024 at most"
            assert host.call_log.calls() == []
            assert (await host.start("x" * 1024)).trial_id

    with caplog.at_level(logging.INFO, "worldloom"):
        run(scenario)
    assert max(len(record.getMessage()) for record in caplog.records) < 400


def test_end_ends_for_everyone() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", "b")) as host:
            trial_id = (await host.start()).trial_id
            await host.act(trial_id)
            await host.end(trial_id)
            assert host.trials.running_count == 0
            await host.end(trial_id)
            await host.all_gone()
            for who in ("env", "a", "b"):
                (request,) = host.call_log.of(who, "End")
                assert request.trial_id == trial_id
            assert [host.call_log.of(name, "End")[0].actor_id for name in ("a", "b")] == [1, 2]

    run(scenario)


def test_feedback_becomes_the_reward_of_an_agent() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            trial_id = (await host.start()).trial_id
            first = Feedback(actor_id=1, tick_id=-1, value=1, confidence=0.75, content=b"well done", agent_id=7)
            second = Feedback(actor_id=1, tick_id=0, value=-1, confidence=0.25)
            for one in (first, second):
                await host.stub.GiveFeedback(api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=[one]))
            await host.act(trial_id)
            await host.act(trial_id)
            (request,) = host.call_log.of("a", "Reward")
            assert (request.trial_id, request.actor_id, request.tick_id) == (trial_id, 1, 0)
            assert (request.reward.value, request.reward.confidence) == (0.5, 0.5)
            first.tick_id = 0
            assert list(request.reward.feedbacks) == [first, second]

    run(scenario)


@pytest.mark.parametrize(
    ("feedback", "words"),
    [
        (Feedback(actor_id=2, tick_id=-1), "feedback for actor 2: expected an actor of the trial, 0 to 1"),
        (Feedback(actor_id=2**32 - 1, tick_id=-1), "feedback for actor 4294967295"),
        (Feedback(tick_id=1), "feedback for tick 1: expected 0 to 0, or -1 for the latest"),
        (Feedback(tick_id=-2), "feedback for tick -2"),
        (Feedback(value=float("nan"), confidence=1), "feedback of value nan and confidence 1.0"),
        (Feedback(value=1, confidence=float("inf")), "feedback of value 1.0 and confidence inf"),
    ],
)
def test_feedback_that_cannot_be_is_refused_and_takes_its_neighbours_with_it(feedback: Feedback, words: str) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            trial_id = (await host.start()).trial_id
            good = Feedback(actor_id=1, tick_id=-1, value=1, confidence=1)
            request = api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=[good, feedback])
            code, text = await status_of(host.stub.GiveFeedback(request))
            assert code is Code.INVALID_ARGUMENT
            assert words in text
            await host.act(trial_id)
            await host.act(trial_id)
            (request,) = host.call_log.of("a", "Reward")
            assert (request.reward.value, request.reward.confidence) == (0, 0)

    run(scenario)


def test_messages_reach_agents_environment_and_humans() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", HUMAN)) as host:
            host.agents["a"].messages[0] = [message(0, "I am the agent", sender=2)]
            host.environment.messages[1] = [message(0, "I am the world", sender=1)]
            trial_id = (await host.start()).trial_id
            await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=2))
            sent = [message(1, "to the agent"), message(-1, "to the world", 2), message(2, "to the other")]
            await host.stub.SendMessage(api.TrialMessageRequest(trial_id=trial_id, messages=sent))
            first, second = await asyncio.gather(host.act(trial_id, 0), host.act(trial_id, 2))
            (to_agent,) = host.call_log.of("a", "OnMessage")
            assert (to_agent.trial_id, to_agent.actor_id) == (trial_id, 1)
            assert list(to_agent.messages) == sent[:1]
            (to_environment,) = host.call_log.of("env", "OnMessage")
            assert (to_environment.trial_id, to_environment.actor_id) == (trial_id, -1)
            assert list(to_environment.messages) == sent[1:2]
            assert list(second.messages.messages) == sent[2:]
            # Whatever they say of themselves, the sender is who they are.
            assert list(first.messages.messages) == [message(0, "I am the agent", 1), message(0, "I am the world", -1)]
            again = await asyncio.gather(host.act(trial_id, 0), host.act(trial_id, 2))
            assert [len(reply.messages.messages) for reply in again] == [0, 0]
            assert len(host.call_log.of("a", "OnMessage")) == 1

    run(scenario)


@pytest.mark.parametrize(
    ("receiver", "sender", "words"),
    [
        (2, 0, "a message to receiver_id 2: expected an actor of the trial, 0 to 1, or -1 for the environment"),
        (-2, 0, "a message to receiver_id -2"),
        (0, 1, "a message from sender_id 1: expected a human actor of the trial, one of 0"),
        (0, -1, "a message from sender_id -1"),
    ],
)
def test_messages_that_cannot_be_are_refused(receiver: int, sender: int, words: str) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            trial_id = (await host.start()).trial_id
            both = [message(1, "good"), message(receiver, "bad", sender)]
            code, text = await status_of(
                host.stub.SendMessage(api.TrialMessageRequest(trial_id=trial_id, messages=both))
            )
            assert code is Code.INVALID_ARGUMENT
            assert words in text
            await host.act(trial_id)
            assert host.call_log.of("a", "OnMessage") == []

    run(scenario)


def test_a_client_of_a_trial_without_humans_writes_as_nobody() -> None:
    async def scenario() -> None:
        async with trial_host(("a",)) as host:
            gate = asyncio.Event()
            host.agents["a"].delays["Decide"] = gate.wait
            trial_id = (await host.start()).trial_id
            request = api.TrialMessageRequest(trial_id=trial_id, messages=[message(0, "hello", -1)])
            await host.stub.SendMessage(request)
            gate.set()
            assert list((await host.call_log.until("a", "OnMessage")).messages) == [message(0, "hello", -1)]

    run(scenario)


def test_version() -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            info = await host.stub.Version(VersionRequest())
            assert {"worldloom", "cogment-api", "grpc"} <= {one.name for one in info.versions}
            assert all(one.version for one in info.versions)

    run(scenario)


def test_more_trials_than_allowed_are_refused() -> None:
    async def scenario() -> None:
        async with trial_host(max_trials=2) as host:
            first = (await host.start()).trial_id
            await host.start()
            code, text = await status_of(host.start())
            assert code is Code.RESOURCE_EXHAUSTED
            assert "2 trials are running or ending" in text
            assert "max_trials" in text
            await host.end(first)
            await host.start()

    run(scenario)


def test_trials_that_hardly_end_count_as_well() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), max_trials=2) as host:
            host.agents["a"].overrides["End"] = hang
            for _ in range(4):
                await host.end((await host.start()).trial_id)
            code, _ = await status_of(host.start())
            assert code is Code.RESOURCE_EXHAUSTED
            host.agents["a"].overrides.clear()
            await host.servers["a"].stop(None)

    run(scenario)


def test_requests_that_are_too_large_are_refused() -> None:
    async def scenario() -> None:
        async with trial_host(limits=Limits(max_message_bytes=1000)) as host:
            trial_id = (await host.start()).trial_id
            code, text = await status_of(host.act(trial_id, 0, b"x" * 1000))
            assert code is Code.RESOURCE_EXHAUSTED
            assert "expected at most 1000" in text
            assert "--max-message-bytes" in text
            assert (await host.act(trial_id, 0, b"x" * 900)).observation.tick_id == 1

    run(scenario)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("worldloom.server.cogment.orchestrator.trial_state._MAX_BYTES", 3000)
        async with trial_host((HUMAN, "a"), datalog_file=tmp_path / "log") as host:
            trial_id = (await host.start()).trial_id
            letter = api.TrialMessageRequest(trial_id=trial_id, messages=[message(1, "x" * 1200)])
            remark = api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=[Feedback(content=b"x" * 1200)])
            for call, request in ((host.stub.SendMessage, letter), (host.stub.GiveFeedback, remark)):
                assert [(await status_of(call(request)))[0] for _ in range(3)] == [
                    *(Code.OK, Code.OK, Code.RESOURCE_EXHAUSTED)
                ]
            for _ in range(3):
                await host.act(trial_id)
            for call, request in ((host.stub.SendMessage, letter), (host.stub.GiveFeedback, remark)):
                assert (await status_of(call(request)))[0] is Code.OK

    run(scenario)


@pytest.mark.parametrize("sign", ["Heartbeat", "GiveFeedback", "SendMessage"])
def test_these_calls_are_signs_of_life(sign: str) -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            trial_id = (await host.start()).trial_id
            seats = host.trials._running[trial_id]._run.humans
            before_s = seats._last_active_s
            await getattr(host.stub, sign)(CALLS[sign](trial_id=trial_id))
            assert seats._last_active_s > before_s

    run(scenario)
