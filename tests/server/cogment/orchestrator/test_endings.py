"""However a trial ends, nobody waits for ever, everyone is told, and nothing is left."""

import asyncio
from typing import Any

import pytest

from tests.support.trial_services import Code, hang, run, status_of, trial_host
from worldloom.protos.cogment.api import environment_pb2
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Feedback, TrialParams
from worldloom.protos.errors import FailedPrecondition, Internal, InvalidArgument, NotFound, Unavailable
from worldloom.server.cogment.environments.trial_world import InvalidAction
from worldloom.server.cogment.settings import HUMAN
from worldloom.server.config import Limits


def test_end_answers_an_action_that_waits_for_an_agent() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), deadline_s=60) as host:
            host.agents["a"].overrides["Decide"] = hang
            trial_id = (await host.start()).trial_id
            action = host.act(trial_id)
            await host.acted(trial_id)
            await host.end(trial_id)
            code, text = await status_of(action)
            assert code is Code.FAILED_PRECONDITION
            assert text == f"trial '{trial_id}' is over: a client ended it"
            await host.call_log.until("env", "End")
            await host.call_log.until("a", "End")

    run(scenario)


def test_end_answers_an_action_that_waits_for_another_human() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, HUMAN)) as host:
            trial_id = (await host.start()).trial_id
            action = host.act(trial_id)
            await host.acted(trial_id)
            await host.end(trial_id)
            assert (await status_of(action))[0] is Code.FAILED_PRECONDITION

    run(scenario)


@pytest.mark.parametrize("remote", [False, True])
def test_end_answers_an_action_that_waits_for_an_environment_that_hangs(remote: bool) -> None:
    async def scenario() -> None:
        async with trial_host(remote_environment=remote, deadline_s=60) as host:
            host.environment.overrides["Update"] = hang
            trial_id = (await host.start()).trial_id
            action = host.act(trial_id)
            await host.call_log.until("env", "Update")
            await host.end(trial_id)
            assert (await status_of(action))[0] is Code.FAILED_PRECONDITION
            await host.call_log.until("env", "End")

    run(scenario)


def test_an_environment_that_hangs_when_it_is_ended_is_given_up() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), deadline_s=0.1) as host:
            host.environment.overrides["End"] = hang
            await host.end((await host.start()).trial_id)
            await host.all_gone()
            assert len(host.call_log.of("a", "End")) == 1

    run(scenario)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgument("it makes no sense"), Code.INTERNAL),
        (NotFound("there is no such trial"), Code.INTERNAL),
        (FailedPrecondition("it is gone"), Code.INTERNAL),
        (Internal("a bug"), Code.INTERNAL),
        (Unavailable("it is going away"), Code.UNAVAILABLE),
        (RuntimeError("unforeseen"), Code.INTERNAL),
    ],
)
def test_an_environment_that_fails_ends_the_trial(error: Exception, code: Code) -> None:
    async def fail(_request: Any, _context: Any) -> Any:
        raise error

    async def scenario() -> None:
        async with trial_host((HUMAN, "a", HUMAN)) as host:
            host.environment.overrides["Update"] = fail
            trial_id = (await host.start()).trial_id
            await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=2))
            for found, text in await asyncio.gather(*(status_of(host.act(trial_id, actor)) for actor in (0, 2))):
                assert found is code
                if isinstance(error, RuntimeError):
                    assert "the server failed: RuntimeError: unforeseen" in text
                else:
                    assert text == f"trial '{trial_id}' is over: the environment of this server: {error}"
            await host.call_log.until("env", "End")
            await host.call_log.until("a", "End")

    run(scenario)


def test_an_environment_that_refuses_to_start_says_why_and_everyone_is_told() -> None:
    async def refuse(_request: Any, _context: Any) -> Any:
        raise InvalidArgument("there is no family 'nowhere'")

    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            host.environment.overrides["Start"] = refuse
            code, text = await status_of(host.start())
            assert (code, text) == (Code.INVALID_ARGUMENT, "there is no family 'nowhere'")
            await host.all_gone()
            (trial_id,) = {request.trial_id for _, what, request in host.call_log.logged if what == "End"}
            assert (await status_of(host.act(trial_id)))[0] is Code.FAILED_PRECONDITION
            assert sorted(call for call in host.call_log.calls() if "End" in call) == ["a End", "env End"]

    run(scenario)


@pytest.mark.parametrize(
    ("observations", "words"),
    [
        (
            {"observations": [{}], "actors_map": [0]},
            "returned an actors_map of 1 entries: expected 2, one for each actor",
        ),
        ({"observations": [{}], "actors_map": [0, 0, 0]}, "returned an actors_map of 3 entries: expected 2"),
        ({"observations": [{}], "actors_map": [0, 1]}, "entry for actor 1 is 1: expected 0 to 0, since it returned 1"),
        ({"observations": [{}, {}], "actors_map": [-1, 0]}, "entry for actor 0 is -1: expected 0 to 1"),
        ({}, "returned an actors_map of 0 entries"),
    ],
)
@pytest.mark.parametrize("remote", [False, True])
def test_maps_that_cannot_be_are_failures_of_the_environment(
    observations: dict[str, Any], words: str, remote: bool
) -> None:
    async def answer(_request: Any, _context: Any) -> Any:
        return environment_pb2.EnvUpdateReply(observation_set=observations)

    async def begin(_request: Any, _context: Any) -> Any:
        return environment_pb2.EnvStartReply(observation_set=observations)

    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), remote_environment=remote) as host:
            name = f"the environment at {host.endpoints['env']}" if remote else "the environment of this server"
            host.environment.overrides["Update"] = answer
            code, text = await status_of(host.act((await host.start()).trial_id))
            assert code is Code.INTERNAL
            assert f"{name} returned" in text
            assert words in text
            host.environment.overrides["Start"] = begin
            code, text = await status_of(host.start())
            assert code is Code.INTERNAL
            assert f"{name} returned" in text
            assert words in text
            await host.all_gone()

    run(scenario)


def test_feedback_of_an_environment_that_cannot_be_is_its_failure() -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            host.environment.feedbacks[1] = [Feedback(actor_id=1, tick_id=-1)]
            code, text = await status_of(host.act((await host.start()).trial_id))
            assert code is Code.INTERNAL
            assert "the environment of this server: feedback for actor 1" in text

    run(scenario)


def test_a_human_whose_action_cannot_be_may_give_another() -> None:
    async def refuse(request: Any, _context: Any) -> Any:
        place = [one.startswith(b"bad") for one in request.action_set.actions].index(True)
        raise InvalidAction(place, f"the action of actor {place} makes no sense")

    async def scenario() -> None:
        async with trial_host((HUMAN, "a", HUMAN)) as host:
            trial_id = (await host.start()).trial_id
            await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=2))
            host.environment.overrides["Update"] = refuse
            good = host.act(trial_id, 2, b"good")
            for _ in range(2):
                code, text = await status_of(host.act(trial_id, 0, b"bad"))
                assert code is Code.INVALID_ARGUMENT
                assert text == "the action of actor 0 makes no sense"
            assert not good.done()
            host.environment.overrides.clear()
            reply = await host.act(trial_id, 0, b"better")
            assert reply.observation.tick_id == (await good).observation.tick_id == 1
            actions = host.call_log.of("env", "Update")[-1].action_set.actions
            assert actions == [b"better", b"a.1@0", b"good"]
            assert (await host.call_log.until("a", "Decide", 2)).observation.tick_id == 1  # it was not asked again

    run(scenario)


def test_a_client_that_gives_up_start_leaves_nothing() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a")) as host:
            gate = asyncio.Event()
            host.environment.delays["Start"] = gate.wait
            call = host.stub.Start(api.TrialStartRequest())
            await host.call_log.until("env", "Start")
            call.cancel()
            while host.trials.running_count:
                await asyncio.sleep(0)
            gate.set()
            await host.call_log.until("env", "End")
            await host.call_log.until("a", "End")

    run(scenario)


def test_an_environment_that_never_starts_is_given_up_with_its_client() -> None:
    async def scenario() -> None:
        async with trial_host(deadline_s=0.1) as host:
            host.environment.overrides["Start"] = hang
            call = host.stub.Start(api.TrialStartRequest())
            await host.call_log.until("env", "Start")
            call.cancel()
            await host.call_log.until("env", "End")

    run(scenario)


def test_a_client_that_gives_up_an_action_may_give_another() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, HUMAN)) as host:
            trial_id = (await host.start()).trial_id
            await host.stub.Join(api.TrialJoinRequest(trial_id=trial_id, actor_id=1))
            action = host.act(trial_id, 0, b"never mind")
            await host.acted(trial_id)
            action.cancel()
            human = host.trials._running[trial_id]._run.humans._humans[0]
            while human.reply is not None:
                await asyncio.sleep(0)
            await asyncio.gather(host.act(trial_id, 0, b"this"), host.act(trial_id, 1, b"that"))
            assert host.call_log.of("env", "Update")[0].action_set.actions == [b"this", b"that"]
            assert not host.call_log.of("env", "Update")[0].reply_with_snapshot

    run(scenario)


def test_after_a_lost_answer_everyone_gets_a_snapshot() -> None:
    async def scenario() -> None:
        async with trial_host() as host:
            gate = asyncio.Event()
            host.environment.delays["Update"] = gate.wait
            trial_id = (await host.start()).trial_id
            action = host.act(trial_id)
            await host.call_log.until("env", "Update")
            action.cancel()
            human = host.trials._running[trial_id]._run.humans._humans[0]
            waiting = human.reply
            assert waiting is not None
            while not waiting.cancelled():
                await asyncio.sleep(0)
            gate.set()
            while not human.missed_last:
                await asyncio.sleep(0)
            for _ in range(2):
                await host.act(trial_id)
            assert [one.reply_with_snapshot for one in host.call_log.of("env", "Update")] == [False, True, False]

    run(scenario)


def test_silent_humans_end_a_trial() -> None:
    async def scenario() -> None:
        for params, limits, words in (
            (TrialParams(max_inactivity=1), Limits(), "for 1 s (max_inactivity)"),
            (TrialParams(), Limits(idle_world_s=0.2), "for 0.2 s (--idle-world-s)"),
        ):
            async with trial_host((HUMAN, "a", HUMAN), params=params, limits=limits) as host:
                trial_id = (await host.start()).trial_id
                code, text = await status_of(host.act(trial_id))
                assert code is Code.FAILED_PRECONDITION
                assert f"trial '{trial_id}' is over: its humans were inactive {words}" in text
                await host.all_gone()
                assert [len(host.call_log.of(who, "End")) for who in ("env", "a")] == [1, 1]

    run(scenario)


def test_slow_humans_who_give_signs_of_life_keep_the_trial_and_its_world() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a"), limits=Limits(idle_world_s=2.4)) as host:
            trial_id = (await host.start()).trial_id
            beats = 0
            while len(host.call_log.of("env", "OnMessage")) < 4:  # four thirds of what a world may be idle for
                await host.stub.Heartbeat(api.TrialHeartbeatRequest(trial_id=trial_id))
                beats += 1
            assert beats > 4
            assert {len(one.messages) for one in host.call_log.of("env", "OnMessage")} == {0}
            assert (await host.act(trial_id)).observation.tick_id == 1

    run(scenario)


def test_a_human_that_waits_for_its_answer_is_not_silent() -> None:
    async def scenario() -> None:
        async with trial_host(limits=Limits(idle_world_s=0.5)) as host:
            loop = asyncio.get_running_loop()
            until_s = loop.time() + 1.2
            host.environment.delays["Update"] = lambda: asyncio.sleep(until_s - loop.time())
            trial_id = (await host.start()).trial_id
            assert (await host.act(trial_id)).observation.tick_id == 1

    run(scenario)


def test_a_server_that_stops_tells_everyone() -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, "a", HUMAN)) as host:
            first, second = (await host.start()).trial_id, (await host.start()).trial_id
            action = host.act(first)
            await host.acted(first)
            host.trials.drain()
            code, text = await status_of(action)
            assert code is Code.UNAVAILABLE
            assert "the server is shutting down" in text
            assert (await status_of(host.start()))[0] is Code.UNAVAILABLE
            assert (await status_of(host.act(second)))[0] is Code.UNAVAILABLE
            await host.end(second)
            await host.trials.close()
            assert sorted(call for call in host.call_log.calls() if "End" in call) == ["a End"] * 2 + ["env End"] * 2

    run(scenario)


def test_a_server_that_stops_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("worldloom.server.cogment.orchestrator.trials._CLOSE_TIMEOUT_S", 0.1)
        async with trial_host((HUMAN, "a"), deadline_s=60) as host:
            host.agents["a"].overrides["End"] = hang
            await host.start()
            host.environment.overrides["Start"] = hang
            starting = host.stub.Start(api.TrialStartRequest())
            await host.call_log.until("env", "Start", 2)
            await host.trials.close()
            assert (await status_of(starting))[0] is Code.UNAVAILABLE
            host.environment.trials.clear()

    run(scenario)
