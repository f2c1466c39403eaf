"""Families whose code fails: whoever is in their worlds is told, and nobody else notices."""

from collections.abc import Iterator

import pytest

from tests.support.engine_streams import FIRST, RUNNING, TERMINATED, Desk, Stream, refused
from tests.support.faulty_families import Faulty
from worldloom.render.cpu import CPURenderer
from worldloom.worlds.registry import Registry

IN_STEPS = ("reset", "step", "reward shape", "reward is text", "ended shape", "no outcome")
IN_OBSERVATIONS = (
    *("observe", "observation shape", "observation length", "observation dtype"),
    *("observation is a list", "no observation"),
)
IN_PICTURES = ("look", "dress", "pose shape", "pose is no number", "near plane behind", "mesh that is not there")


@pytest.fixture
def desk(cpu: CPURenderer, fresh_registry: Registry) -> Iterator[Desk]:
    for name in ("Faulty", "Unborn", "Choosy"):
        fresh_registry.add(f"tests.support.faulty_families:{name}")
    yield Desk(cpu)
    Faulty.fault = ""


def joined(desk: Desk, family: str = "faulty", **settings: int) -> Stream:
    stream = desk.stream()
    stream.join(stream.create(family, **settings), width=4, height=4)
    return stream


def others(desk: Desk) -> list[Stream]:
    """Streams in worlds that have nothing to do with it."""
    return [joined(desk, "catch"), joined(desk, "cartpole"), joined(desk, "catch", lanes=2)]


def check_begins(stream: Stream) -> None:
    """A whole episode, from its beginning."""
    told = stream.step("step_type", "count", "eye.rgb")
    assert (told.state, int(told.seen["step_type"]), int(told.seen["count"])) == (RUNNING, FIRST, 0)
    assert [stream.step("count", "eye.rgb").state for _ in range(2)] == [RUNNING, TERMINATED]


@pytest.mark.parametrize("begun", [0, 1, 2, 3])
@pytest.mark.parametrize("fault", [*IN_STEPS, *IN_OBSERVATIONS, *IN_PICTURES])
def test_a_family_that_fails_harms_its_own_worlds_only(desk: Desk, fault: str, begun: int) -> None:
    broken, sound = [joined(desk), joined(desk)], others(desk)
    for _ in range(begun):
        desk.step_all(*broken, *sound)
    Faulty.fault = fault
    for stream in (*broken, *sound):
        stream.post_step("reward", "eye.rgb", *(["count"] if stream in broken else []))
    desk.settle()
    Faulty.fault = ""
    for stream in sound:
        told = stream.told()
        assert told.state == RUNNING
        assert told.seen["eye.rgb"].any()
    begins = begun in (0, 3)
    fails = fault == "reset" if begins and fault in IN_STEPS else fault != "reset"
    for stream in broken:
        if fails:
            with refused("INTERNAL", "faulty"):
                stream.told()
            check_begins(stream)
        else:
            stream.told()
    assert [told.state for told in desk.step_all(*sound)] == [RUNNING] * len(sound)


@pytest.mark.parametrize("fault", [*IN_OBSERVATIONS, *IN_PICTURES])
def test_what_was_not_asked_for_cannot_fail(desk: Desk, fault: str) -> None:
    stream = joined(desk)
    Faulty.fault = fault
    see = ["eye.rgb"] if fault in IN_OBSERVATIONS else ["count"]
    assert [stream.step(*see).state for _ in range(3)] == [RUNNING, RUNNING, TERMINATED]


@pytest.mark.parametrize("fault", ["observe", "look", "mesh that is not there"])
def test_an_agent_who_cannot_see_does_not_stop_the_others_in_its_world(desk: Desk, fault: str) -> None:
    asks, does_not = desk.stream(), desk.stream()
    world = asks.create("faulty", agents=2)
    asks.join(world)
    does_not.join(world)
    desk.step_all(asks, does_not)
    Faulty.fault = fault
    asks.post_step("count", "eye.rgb")
    does_not.post_step("step_type")
    desk.settle()
    with refused("INTERNAL"):
        asks.told()
    assert does_not.told().state == RUNNING
    Faulty.fault = ""
    asks.post_step("step_type", "count")
    does_not.post_step("step_type", "count")
    desk.settle()
    told = asks.told()
    assert (told.state, int(told.seen["step_type"]), int(told.seen["count"])) == (RUNNING, FIRST, 2)
    assert does_not.told().state == TERMINATED


def test_worlds_of_the_same_family_in_another_pool_go_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = joined(desk, group=1), joined(desk, group=2)
    desk.step_all(broken, sound)
    family = desk.engine.directory.worlds[broken.world].pool.family
    monkeypatch.setattr(family, "fault", "step", raising=False)
    broken.post_step()
    sound.post_step()
    desk.settle()
    assert sound.told().state == RUNNING
    with refused("INTERNAL"):
        broken.told()


def test_someone_who_is_cut_by_a_reset_and_cannot_be_shown_it_does_not_hold_the_reset_up(desk: Desk) -> None:
    stream, caller = joined(desk), desk.stream()
    stream.step()
    Faulty.fault = "observe"
    caller.post_reset_world(stream.world)
    stream.post_step("count")
    desk.settle()
    caller.take("reset_world")
    with refused("INTERNAL"):
        stream.told()
    Faulty.fault = ""
    check_begins(stream)


def test_a_family_that_cannot_be_made_makes_no_world(desk: Desk) -> None:
    stream = desk.stream()
    with refused("INTERNAL"):
        stream.create("unborn")
    desk.check_empty()
    stream.join(stream.create("catch"))
    assert stream.step().state == RUNNING


def test_an_action_that_is_left_out_is_what_is_allowed_nearest_to_zero(desk: Desk) -> None:
    stream, peer = joined(desk, "choosy", agents=2, longest=1000, seed=0), desk.stream()
    stream.step()
    assert float(stream.step("reward").seen["reward"]) == 0.5
    peer.join(stream.world)
    desk.step_all(stream, peer)
    peer.post_step("reward", push=[0.25, 1.0])
    stream.post_step("reward")
    desk.settle()
    assert float(peer.told().seen["reward"]) == 1.25
    assert float(stream.told().seen["reward"]) == 0.5


def test_a_world_whose_actions_change_with_a_reset_goes_by_the_new_ones(desk: Desk) -> None:
    stream, caller = desk.stream(), desk.stream()
    world = stream.create("choosy", longest=1000, max_steps=1000, seed=0)
    stream.join(world)
    stream.step()
    with refused("FAILED_PRECONDITION"):
        caller.reset_world(world, steered=True)
    stream.leave()
    caller.reset_world(world, steered=True)
    stream.join(world)
    stream.step()
    assert float(stream.step("reward").seen["reward"]) == 0.5 - 3
    assert float(stream.step("reward", steer=-5).seen["reward"]) == 0.5 - 5
