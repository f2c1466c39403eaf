"""Families whose code fails: whoever is in their worlds is told, and nobody else notices."""

import asyncio
from collections.abc import Iterator

import pytest

from scripts.support.engine_streams import FIRST, LAST, MID, RUNNING, TERMINATED, EngineHarness, Stream, refused
from tests.support.faulty_families import Faulty, Unspeakable
from worldloom.render.cpu import CPURenderer
from worldloom.worlds.registry import Registry

IN_STEPS = ("reset", "step", "reward shape", "reward is text", "ended shape", "no result")
IN_OBSERVATIONS = (
    *("observe", "observation shape", "observation length", "observation dtype"),
    *("observation is a list", "no observation"),
)
IN_PICTURES = (
    "place_camera",
    "write_instances",
    "pose shape",
    "pose is no number",
    "near plane behind",
    "mesh that is not there",
)


@pytest.fixture
def harness(cpu: CPURenderer, fresh_registry: Registry) -> Iterator[EngineHarness]:
    for name in ("Faulty", "Unborn", "Choosy", "Picky"):
        fresh_registry.add(f"tests.support.faulty_families:{name}")
    yield EngineHarness(cpu)
    Faulty.fault, Faulty.error = "", RuntimeError


def joined(harness: EngineHarness, family: str = "faulty", **settings: int) -> Stream:
    stream = harness.stream()
    stream.join(stream.create(family, **settings), width=4, height=4)
    return stream


def others(harness: EngineHarness) -> list[Stream]:
    """Streams in worlds that have nothing to do with it."""
    return [joined(harness, "catch"), joined(harness, "cartpole"), joined(harness, "catch", lanes=2)]


def check_begins(stream: Stream) -> None:
    """A whole episode, from its beginning."""
    told = stream.step("step_type", "count", "eye.rgb")
    assert (told.state, int(told.observations["step_type"]), int(told.observations["count"])) == (RUNNING, FIRST, 0)
    assert [stream.step("count", "eye.rgb").state for _ in range(2)] == [RUNNING, TERMINATED]


@pytest.mark.parametrize("begun", [0, 1, 2, 3])
@pytest.mark.parametrize("fault", [*IN_STEPS, *IN_OBSERVATIONS, *IN_PICTURES])
def test_a_family_that_fails_harms_its_own_worlds_only(harness: EngineHarness, fault: str, begun: int) -> None:
    broken, sound = [joined(harness), joined(harness)], others(harness)
    for _ in range(begun):
        harness.step_all(*broken, *sound)
    Faulty.fault = fault
    for stream in (*broken, *sound):
        stream.post_step("reward", "eye.rgb", *(["count"] if stream in broken else []))
    harness.settle()
    Faulty.fault = ""
    for stream in sound:
        told = stream.step_reply()
        assert told.state == RUNNING
        assert told.observations["eye.rgb"].any()
    begins = begun in (0, 3)
    fails = fault == "reset" if begins and fault in IN_STEPS else fault != "reset"
    for stream in broken:
        if fails:
            with refused("INTERNAL", "faulty"):
                stream.step_reply()
            check_begins(stream)
        else:
            stream.step_reply()
    assert [told.state for told in harness.step_all(*sound)] == [RUNNING] * len(sound)


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError, Unspeakable])
@pytest.mark.parametrize("fault", ["reset", "step", "observe", "place_camera"])
def test_whatever_a_family_raises_costs_its_own_worlds_only(
    harness: EngineHarness, fault: str, error: type[BaseException]
) -> None:
    broken, sound = joined(harness), joined(harness, "catch")
    if fault != "reset":
        harness.step_all(broken, sound)
    Faulty.fault, Faulty.error = fault, error
    broken.post_step("count", "eye.rgb")
    sound.post_step("eye.rgb")
    harness.settle()
    assert sound.step_reply().state == RUNNING
    with refused("INTERNAL", "faulty", error.__name__):
        broken.step_reply()
    Faulty.fault = ""
    check_begins(broken)


@pytest.mark.parametrize("fault", [*IN_OBSERVATIONS, *IN_PICTURES])
def test_what_was_not_asked_for_cannot_fail(harness: EngineHarness, fault: str) -> None:
    stream = joined(harness)
    Faulty.fault = fault
    see = ["eye.rgb"] if fault in IN_OBSERVATIONS else ["count"]
    assert [stream.step(*see).state for _ in range(3)] == [RUNNING, RUNNING, TERMINATED]


@pytest.mark.parametrize("fault", ["observe", "place_camera", "mesh that is not there"])
def test_an_agent_who_cannot_see_does_not_stop_the_others_in_its_world(harness: EngineHarness, fault: str) -> None:
    asks, does_not = harness.stream(), harness.stream()
    world = asks.create("faulty", agents=2)
    asks.join(world)
    does_not.join(world)
    harness.step_all(asks, does_not)
    Faulty.fault = fault
    asks.post_step("count", "eye.rgb")
    does_not.post_step("step_type")
    harness.settle()
    with refused("INTERNAL"):
        asks.step_reply()
    assert does_not.step_reply().state == RUNNING
    Faulty.fault = ""
    asks.post_step("step_type", "count")
    does_not.post_step("step_type", "count")
    harness.settle()
    told = asks.step_reply()
    assert (told.state, int(told.observations["step_type"]), int(told.observations["count"])) == (RUNNING, FIRST, 2)
    assert does_not.step_reply().state == TERMINATED


def test_worlds_of_the_same_family_in_another_pool_go_on(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = joined(harness, group=1), joined(harness, group=2)
    harness.step_all(broken, sound)
    family = harness.engine.directory.worlds[broken.world].pool.family
    monkeypatch.setattr(family, "fault", "step", raising=False)
    broken.post_step()
    sound.post_step()
    harness.settle()
    assert sound.step_reply().state == RUNNING
    with refused("INTERNAL"):
        broken.step_reply()


@pytest.mark.parametrize("push", [0.5, 0.25, 0.125])
@pytest.mark.parametrize("shm", [False, True])
def test_one_world_that_fails_costs_other_worlds_of_its_pool_nothing(
    harness: EngineHarness, push: float, shm: bool
) -> None:
    """Three worlds of one pool step in one tick: two are answered as if the third were not there."""
    settings = {"longest": 1000, "max_steps": 1000}
    streams = []
    for seed in range(4):
        streams.append(harness.stream())
        streams[-1].join(streams[-1].create("picky", seed=seed, **settings), width=4, height=4, shm=shm)
    *sound, broken = streams
    frame = "eye.rgb@shm" if shm else "eye.rgb"
    seen = ("count", "reward", "step_type", frame)
    pushes = [0.0, 0.75, -1.0, push]
    for count in range(4):
        ring = []
        for stream, action in zip(streams, pushes, strict=True):
            stream.post_step(*seen, push=[action if count == 2 else 0.0, 0.0])
        harness.settle()
        for stream, action in zip(sound, pushes, strict=False):
            told = stream.step_reply()
            assert told.state == RUNNING
            assert int(told.observations["count"]) == count
            assert float(told.observations["reward"]) == (action if count == 2 else 0.0)
            ring.append(told.observations[frame].ravel()[0])
        assert not shm or ring == [ring[0]] * 3 == [count % 4] * 3
        if count == 2:
            with refused("INTERNAL", "picky", "begins a new sequence") as error:
                broken.step_reply()
            expected = {0.5: "KeyError: ", 0.25: "ValueError: a push that cannot be observed", 0.125: "ValueError: "}
            assert expected[push] in error.text
            assert "/" not in error.text
            assert "Traceback" not in error.text
        else:
            told = broken.step_reply()
            assert int(told.observations["step_type"]) == (1 if count == 1 else FIRST)
            assert int(told.observations["count"]) == (0 if count == 3 else count)


def test_someone_who_is_cut_by_a_reset_and_cannot_be_shown_it_does_not_hold_the_reset_up(
    harness: EngineHarness,
) -> None:
    stream, caller = joined(harness), harness.stream()
    stream.step()
    Faulty.fault = "observe"
    caller.post_reset_world(stream.world)
    stream.post_step("count")
    harness.settle()
    caller.take("reset_world")
    with refused("INTERNAL"):
        stream.step_reply()
    Faulty.fault = ""
    check_begins(stream)


def test_a_family_that_cannot_be_made_makes_no_world(harness: EngineHarness) -> None:
    stream = harness.stream()
    with refused("INTERNAL"):
        stream.create("unborn")
    harness.check_empty()
    stream.join(stream.create("catch"))
    assert stream.step().state == RUNNING


def test_an_action_that_is_left_out_is_what_is_allowed_nearest_to_zero(harness: EngineHarness) -> None:
    stream, peer = joined(harness, "choosy", agents=2, longest=1000, seed=0), harness.stream()
    stream.step()
    assert float(stream.step("reward").observations["reward"]) == 0.5
    peer.join(stream.world)
    harness.step_all(stream, peer)
    peer.post_step("reward", push=[0.25, 1.0])
    stream.post_step("reward")
    harness.settle()
    assert float(peer.step_reply().observations["reward"]) == 1.25
    assert float(stream.step_reply().observations["reward"]) == 0.5


def test_a_world_whose_actions_change_with_a_reset_goes_by_the_new_ones(harness: EngineHarness) -> None:
    stream, caller = harness.stream(), harness.stream()
    world = stream.create("choosy", longest=1000, max_steps=1000, seed=0)
    stream.join(world)
    stream.step()
    with refused("FAILED_PRECONDITION"):
        caller.reset_world(world, steered=True)
    stream.leave()
    caller.reset_world(world, steered=True)
    stream.join(world)
    stream.step()
    assert float(stream.step("reward").observations["reward"]) == 0.5 - 3
    assert float(stream.step("reward", steer=-5).observations["reward"]) == 0.5 - 5


@pytest.mark.parametrize("fault", ["reset", "observe", "no observation", "place_camera", "mesh that is not there"])
def test_a_family_that_fails_at_the_end_of_an_episode(harness: EngineHarness, fault: str) -> None:
    """Where the next episode begins within the step, its observations and the last ones are made in that step."""
    broken, sound = harness.stream(), harness.stream()
    broken.join(broken.create("faulty", lanes=2, autoreset="same_step"), width=4, height=4)
    sound.join(sound.create("cartpole", lanes=2, autoreset="same_step", max_steps=2), width=4, height=4)
    harness.step_all(broken, sound)
    harness.step_all(broken, sound)
    Faulty.fault = fault
    asked = {broken: ("count@final", "eye.rgb@final", "final_lanes"), sound: ("eye.rgb@final", "final_lanes")}
    for stream, names in asked.items():
        stream.post_step(*names)
    harness.settle()
    Faulty.fault = ""
    told = sound.step_reply()
    assert told.observations["final_lanes"].tolist() == [0, 1]
    assert told.observations["eye.rgb@final"].any()
    with refused("INTERNAL", "faulty"):
        broken.step_reply()
    for _ in range(2):
        kinds = [broken.step("step_type", *asked[broken]).observations["step_type"].tolist() for _ in range(3)]
        assert kinds == [[FIRST] * 2, [MID] * 2, [LAST] * 2]
        broken.reset()
