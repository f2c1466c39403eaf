"""Human actors: who has joined, who has acted, and how long a silence lasts."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.trial_services import run
from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.protos.cogment.api.orchestrator_pb2 import TrialActionReply
from worldloom.protos.errors import FailedPrecondition, InvalidArgument
from worldloom.server.cogment.orchestrator.trial_state import HumanActors
from worldloom.server.cogment.settings import parse_actors

FOREVER_S = 1000.0


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def joined_humans(count: int, clock: Callable[[], float] | None = None) -> HumanActors:
    """Return human actors, all of whom have joined."""
    params = TrialParams()
    params.environment.endpoint = "worldloom"
    for _ in range(count):
        params.actors.add(actor_class="player", endpoint="human")
    humans = HumanActors(parse_actors(params, ["player"]), clock or Clock())
    for _ in range(count):
        humans.join(-1)
    return humans


async def turns(count: int = 5) -> None:
    """Let the others have their turn."""
    for _ in range(count):
        await asyncio.sleep(0)


async def ended(task: Awaitable[object]) -> bool:
    await turns()
    assert isinstance(task, asyncio.Future)
    return task.done()


def test_actions_are_there_when_the_last_has_come() -> None:
    async def scenario() -> None:
        humans = joined_humans(3)
        actions = asyncio.create_task(humans.collect_actions(FOREVER_S))
        acts = []
        for actor_id in (2, 0, 1):
            assert not await ended(actions)
            acts.append(asyncio.create_task(humans.act(actor_id, b"%d" % actor_id)))
        assert await actions == {0: b"0", 1: b"1", 2: b"2"}
        for actor_id in range(3):
            humans.answer(actor_id, TrialActionReply(trial_is_over=actor_id == 2))
        replies = await asyncio.gather(*acts)
        assert [reply.trial_is_over for reply in replies] == [True, False, False]

    run(scenario)


def test_silence_is_counted_from_the_last_answer_and_the_last_sign_of_life() -> None:
    async def scenario() -> None:
        clock = Clock()
        humans = joined_humans(2, clock)
        calls = [asyncio.create_task(humans.act(actor_id, b"")) for actor_id in (0, 1)]
        assert await humans.collect_actions(10) == {0: b"", 1: b""}
        clock.now_s += 100  # the environment takes its time: that is nobody's silence
        for actor_id, call in enumerate(calls):
            humans.answer(actor_id, TrialActionReply())
            await call
        actions = asyncio.create_task(humans.collect_actions(10))
        clock.now_s += 9
        assert not await _looked_again(humans, actions)
        humans.mark_active()
        clock.now_s += 9
        assert not await _looked_again(humans, actions)
        clock.now_s += 2
        assert await _looked_again(humans, actions)
        with pytest.raises(TimeoutError):
            actions.result()

    run(scenario)


async def _looked_again(humans: HumanActors, actions: "asyncio.Task[dict[int, bytes]]") -> bool:
    """Whether the wait is over, if it has a reason to look at the clock."""
    call = asyncio.create_task(humans.act(0, b""))
    await turns()
    call.cancel()
    return await ended(actions)


def test_silence_ends_a_wait_by_itself() -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            await joined_humans(1, asyncio.get_running_loop().time).collect_actions(0.05)

    run(scenario)


def test_a_call_that_is_cancelled_takes_its_action_back() -> None:
    async def scenario() -> None:
        humans = joined_humans(2)
        actions = asyncio.create_task(humans.collect_actions(FOREVER_S))
        first = asyncio.create_task(humans.act(0, b"never mind"))
        await turns()
        first.cancel()
        await turns()
        again = asyncio.create_task(humans.act(0, b"this"))
        other = asyncio.create_task(humans.act(1, b"that"))
        assert await actions == {0: b"this", 1: b"that"}
        assert not humans.have_missed_last
        for task in (again, other):
            task.cancel()

    run(scenario)


def test_an_action_that_is_in_tick_stays_and_its_answer_is_missed() -> None:
    async def scenario() -> None:
        humans = joined_humans(1)
        call = asyncio.create_task(humans.act(0, b"this"))
        assert await humans.collect_actions(FOREVER_S) == {0: b"this"}
        call.cancel()
        await turns()
        with pytest.raises(FailedPrecondition, match="has acted in this tick already"):
            await humans.act(0, b"that")
        humans.answer(0, TrialActionReply())
        assert humans.have_missed_last
        await _answered(humans)
        assert not humans.have_missed_last

    run(scenario)


def test_an_answer_that_comes_with_the_cancellation_is_missed() -> None:
    async def scenario() -> None:
        humans = joined_humans(1)
        call = asyncio.create_task(humans.act(0, b"this"))
        await humans.collect_actions(FOREVER_S)
        humans.answer(0, TrialActionReply())
        call.cancel()
        await turns()
        assert call.cancelled()
        assert humans.have_missed_last
        await _answered(humans)
        assert not humans.have_missed_last

    run(scenario)


async def _answered(humans: HumanActors) -> None:
    call = asyncio.create_task(humans.act(0, b"next"))
    await humans.collect_actions(FOREVER_S)
    humans.answer(0, TrialActionReply())
    await call


def test_whoever_is_refused_may_act_again() -> None:
    async def scenario() -> None:
        humans = joined_humans(2)
        first, second = (asyncio.create_task(humans.act(actor_id, b"%d" % actor_id)) for actor_id in (0, 1))
        await humans.collect_actions(FOREVER_S)
        humans.fail(0, InvalidArgument("no such action"))
        with pytest.raises(InvalidArgument, match="no such action"):
            await first
        actions = asyncio.create_task(humans.collect_actions(FOREVER_S))
        assert not await ended(actions)
        third = asyncio.create_task(humans.act(0, b"better"))
        assert await actions == {0: b"better", 1: b"1"}
        humans.fail_all(lambda: FailedPrecondition("it is over"))
        for call in (second, third):
            with pytest.raises(FailedPrecondition, match="it is over"):
                await call

    run(scenario)
