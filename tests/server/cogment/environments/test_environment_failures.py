"""Trials that do not go as planned: calls at once, calls cancelled, worlds that fail, vanish or are left alone."""

import asyncio
import re
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.faulty_families import Faulty
from tests.support.trial_engine import (
    EngineHarness,
    Watcher,
    action,
    actor_class,
    config,
    posted,
    starting,
    unpacked,
    updating,
)
from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.errors import AlreadyExists, FailedPrecondition, Internal, Unavailable
from worldloom.protos.worldloom import trials_pb2
from worldloom.render.cpu import CPURenderer
from worldloom.server.engine.resets import WorldReset
from worldloom.worlds.registry import Registry

IDLE = action()
MAZE = config(actor_class("player", "goals_left", "heading", deltas=True), family="maze", seed=1)
TURN = action(turn=np.float32(1.0))


@pytest.fixture
def harness(cpu: CPURenderer) -> EngineHarness:
    return EngineHarness(cpu, MAZE)


def ending(trial_id: str) -> api.EnvEndRequest:
    return api.EnvEndRequest(trial_id=trial_id)


# At once.


def test_one_update_at_a_time(harness: EngineHarness) -> None:
    harness.start("t")
    environment = harness.environment
    first, second, other = harness.ask_all(
        environment.update(updating("t", IDLE)),
        environment.update(updating("t", IDLE)),
        environment.start(starting("u")),
    )
    assert first.observation_set.tick_id == 1
    assert isinstance(second, FailedPrecondition)
    assert "one call at a time" in str(second)
    assert other.observation_set.tick_id == 0
    assert harness.update("t", IDLE).observation_set.tick_id == 2


def test_the_same_trial_started_twice_at_once(harness: EngineHarness) -> None:
    first, second, third = harness.ask_all(
        harness.environment.start(starting("t")),
        harness.environment.start(starting("t")),
        harness.environment.update(updating("t", IDLE)),
    )
    assert first.observation_set.tick_id == 0
    assert isinstance(second, AlreadyExists)
    assert isinstance(third, FailedPrecondition)
    assert harness.update("t", IDLE).observation_set.tick_id == 1


def test_a_trial_that_ends_under_an_update(harness: EngineHarness) -> None:
    harness.start("t")
    update, end = harness.ask_all(harness.environment.update(updating("t", IDLE)), harness.environment.end(ending("t")))
    assert isinstance(update, FailedPrecondition)
    assert "'t' is over: it was ended" in str(update)
    assert end is None
    harness.check_empty()


def test_a_trial_that_ends_under_its_start(harness: EngineHarness) -> None:
    start, _ = harness.ask_all(harness.environment.start(starting("t")), harness.environment.end(ending("t")))
    assert isinstance(start, FailedPrecondition)
    harness.check_empty()
    harness.start("t")


# Cancelled.


async def cancelled(harness: EngineHarness, call: asyncio.Task[object], after_tick: bool) -> None:
    """Cancel a call that the engine has not seen, or one whose answer is on its way."""
    await asyncio.sleep(0)
    if after_tick:
        await posted()
        harness.tick()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await harness.settle()


@pytest.mark.parametrize("after_tick", [False, True])
def test_a_start_that_is_cancelled_leaves_nothing(harness: EngineHarness, after_tick: bool) -> None:
    async def scenario() -> None:
        await cancelled(harness, asyncio.create_task(harness.environment.start(starting("t"))), after_tick)

    harness.run(scenario())
    harness.check_empty()
    assert harness.start("t").tick_id == 0


def test_a_start_that_was_refused_and_cancelled_ends_no_trial_of_others(harness: EngineHarness) -> None:
    harness.start("t")

    async def scenario() -> None:
        await cancelled(harness, asyncio.create_task(harness.environment.start(starting("t"))), after_tick=True)

    harness.run(scenario())
    assert harness.update("t", IDLE).observation_set.tick_id == 1


@pytest.mark.parametrize("after_tick", [False, True])
def test_after_an_update_that_was_cancelled_snapshots_come(harness: EngineHarness, after_tick: bool) -> None:
    """Whoever asked may not have seen the observation that a delta would build on."""
    watcher = Watcher()
    watcher.see(harness.start("t"))

    async def scenario() -> None:
        await cancelled(harness, asyncio.create_task(harness.environment.update(updating("t", TURN))), after_tick)

    harness.run(scenario())
    seen = harness.update("t", TURN).observation_set
    assert seen.tick_id == 2
    assert [one.snapshot for one in seen.observations] == [True]
    seen = harness.update("t", TURN).observation_set
    assert [one.snapshot for one in seen.observations] == [False]


def test_an_update_waits_for_the_cancelled_one_before_it(harness: EngineHarness) -> None:
    harness.start("t")

    async def scenario() -> list[object]:
        first = asyncio.create_task(harness.environment.update(updating("t", IDLE)))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        return await harness.settle(harness.environment.update(updating("t", IDLE)))

    (second,) = harness.run(scenario())
    assert isinstance(second, FailedPrecondition)
    assert harness.update("t", IDLE).observation_set.tick_id == 2


# Left alone.


def test_trials_that_nobody_calls_for_are_given_up(cpu: CPURenderer) -> None:
    now_s = [0.0]
    harness = EngineHarness(cpu, MAZE, clock=lambda: now_s[0], idle_world_s=60.0)
    for name in ("left", "stepped", "told"):
        harness.start(name)
    now_s[0] = 50.0
    harness.update("stepped", IDLE)
    harness.on_message("told")  # without messages: a sign of life
    assert not harness.engine.directory.reap()
    now_s[0] = 61.0
    assert len(harness.engine.directory.reap()) == 1
    assert harness.engine.counters.trials == 2
    with pytest.raises(FailedPrecondition, match="it was not used for 60 s, the limit set by --idle-world-s"):
        harness.update("left", IDLE)
    assert harness.update("stepped", IDLE).observation_set.tick_id == 2
    now_s[0] = 200.0
    assert len(harness.engine.directory.reap()) == 2
    harness.check_empty()
    harness.end("left")
    harness.start("left")


# Gone.


def test_a_world_that_is_destroyed_under_its_trial(harness: EngineHarness) -> None:
    harness.start("t")
    (world,) = harness.engine.directory.worlds.values()
    harness.engine.destroy(world)
    with pytest.raises(FailedPrecondition, match="'t' is over: it was destroyed"):
        harness.update("t", IDLE)
    harness.check_empty()


def test_a_world_that_is_destroyed_under_an_update(harness: EngineHarness) -> None:
    harness.start("t")
    (world,) = harness.engine.directory.worlds.values()

    async def scenario() -> list[object]:
        update = asyncio.create_task(harness.environment.update(updating("t", IDLE)))
        await posted()
        harness.engine.post(lambda: harness.engine.destroy(world))
        return await harness.settle(update)

    (reply,) = harness.run(scenario())
    assert isinstance(reply, FailedPrecondition)
    harness.check_empty()


def test_a_server_that_shuts_down_starts_nothing_and_answers_the_rest(harness: EngineHarness) -> None:
    harness.start("t")
    harness.engine.drain()
    with pytest.raises(Unavailable, match="shutting down"):
        harness.start("u")
    assert harness.update("t", IDLE).observation_set.tick_id == 1
    harness.on_message("t")
    harness.end("t")
    harness.check_empty()


# Families that fail.


@pytest.fixture
def faulty(cpu: CPURenderer, fresh_registry: Registry) -> Iterator[EngineHarness]:
    fresh_registry.add("tests.support.faulty_families:Faulty")
    fresh_registry.add("tests.support.faulty_families:Unborn")
    classes = [actor_class("counts", "count"), actor_class("looks", "eye.rgb", width=4, height=4)]
    yield EngineHarness(cpu, config(*classes, family="faulty"))
    Faulty.fault = ""


@pytest.mark.parametrize("fault", ["step", "observe", "place_camera", "write_instances", "mesh that is not there"])
def test_a_family_that_fails_ends_its_trials_only(faulty: EngineHarness, fault: str) -> None:
    """Also where only some of the actors could not be shown what they asked for."""
    faulty.start("broken", [1, 1])
    faulty.start("sound", [1], MAZE)
    Faulty.fault = fault
    broken, sound = faulty.ask_all(
        faulty.environment.update(updating("broken", IDLE, IDLE)), faulty.environment.update(updating("sound", IDLE))
    )
    Faulty.fault = ""
    assert isinstance(broken, Internal)
    cause = "family 'faulty' (failed|cannot be drawn).*: (RuntimeError|ValueError): "
    assert re.search(f"'broken' is over: .*{cause}", str(broken))
    assert sound.observation_set.tick_id == 1
    with pytest.raises(FailedPrecondition, match=cause):
        faulty.update("broken", IDLE, IDLE)
    faulty.end("sound")
    faulty.check_empty()
    assert faulty.start("broken", [1, 1]).tick_id == 0


@pytest.mark.parametrize("fault", ["reset", "observe", "write_instances"])
def test_a_family_that_fails_at_the_start(faulty: EngineHarness, fault: str) -> None:
    Faulty.fault = fault
    with pytest.raises(Internal, match="faulty"):
        faulty.start("t", [1, 1])
    faulty.check_empty()
    Faulty.fault = ""
    assert faulty.start("t", [1, 1]).tick_id == 0


def test_a_family_that_cannot_be_made(faulty: EngineHarness) -> None:
    with pytest.raises(Internal, match="RuntimeError"):
        faulty.start("t", [1, 1], None, family="unborn")
    faulty.check_empty()
    faulty.start("t", [1, 1])


def test_the_last_step_of_an_episode_that_ends_at_once(faulty: EngineHarness) -> None:
    """An episode of one step: the observation says so, the reward counts."""
    request = starting("t", [1, 1], None, max_steps=1)
    seen = faulty.ask(faulty.environment.start(request)).observation_set
    assert unpacked(trials_pb2.Observation.FromString(seen.observations[0].content)) == {"count": 0}
    push = action(push=np.array([0.25, 0.5], np.float32))
    reply = faulty.update("t", push, IDLE)
    assert reply.end_trial
    assert [one.value for one in reply.feedbacks] == [0.75, 0.0]
    faulty.check_empty()


def test_a_world_that_is_reset_under_its_trial_ends_it(faulty: EngineHarness) -> None:
    """Its actors see it a last time, as it stands, and have nothing from an action that was not carried out."""
    faulty.start("t", [1, 1])
    push = action(push=np.array([0.25, 0.5], np.float32))
    before = faulty.update("t", push, IDLE)
    (world,) = faulty.engine.directory.worlds.values()
    told: list[str] = []
    reset = WorldReset(None, {}, lambda: told.append("reset"), lambda refusal: told.append("refused"))
    faulty.engine.post(lambda: faulty.engine.resets.begin(world, reset))
    reply = faulty.update("t", push, IDLE)
    assert reply.end_trial
    assert [one.value for one in before.feedbacks] == [0.75, 0.0]
    assert [one.value for one in reply.feedbacks] == [0.0, 0.0]
    assert reply.observation_set.observations == before.observation_set.observations
    assert told == ["refused"]
    faulty.check_empty()
