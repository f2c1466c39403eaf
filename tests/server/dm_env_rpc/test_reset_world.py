"""What ResetWorld does besides waiting: seeds, settings, and calls that cross."""

from typing import Any

import numpy as np
import pytest

from scripts.support.engine_streams import FIRST, INTERRUPTED, LAST, RUNNING, EngineHarness, Stream, refused
from scripts.support.reference_world import ReferenceWorld
from worldloom.render.cpu import CPURenderer

MAZE = {"size": 5, "agents": 2, "goals": 1}


def pair(harness: EngineHarness, **settings: Any) -> tuple[Stream, Stream]:
    """Two agents in the middle of an episode of a maze."""
    one, two = harness.stream(), harness.stream()
    world = one.create("maze", **({"seed": 1} | MAZE | settings))
    one.join(world, width=8, height=8)
    two.join(world, width=8, height=8)
    harness.step_all(one, two)
    return one, two


def reset_together(one: Stream, two: Stream, **settings: Any) -> None:
    one.post_reset_world(one.world, **settings)
    two.post_reset_world(two.world)
    one.harness.settle()
    one.take("reset_world")
    two.take("reset_world")


def test_a_seed_starts_the_world_over_as_a_fresh_one(harness: EngineHarness, cpu: CPURenderer) -> None:
    one, two = pair(harness)
    harness.step_all(one, two)
    reset_together(one, two, seed=9)
    fresh = ReferenceWorld(cpu, "maze", 9, **MAZE)
    for _ in range(3):
        fresh.step()
        for agent, told in enumerate(harness.step_all(one, two, see=["position", "map.rgb"])):
            assert told.observations["position"].tobytes() == fresh.observe("position", agent).tobytes()
            assert told.observations["map.rgb"].tobytes() == fresh.draw("map.rgb", agent, width=8, height=8).tobytes()
    assert one.read("world.seed") == 9
    assert one.read("world.episode") == 0


def test_without_a_seed_the_next_episode_begins(harness: EngineHarness, cpu: CPURenderer) -> None:
    one, two = pair(harness)
    reset_together(one, two)
    fresh = ReferenceWorld(cpu, "maze", 1, **MAZE)
    fresh.step()
    fresh.pool.interrupt(fresh.lanes)
    fresh.step()
    for agent, told in enumerate(harness.step_all(one, two, see=["position"])):
        assert told.observations["position"].tobytes() == fresh.observe("position", agent).tobytes()
    assert one.read("world.episode") == 1


def test_a_vector_world_begins_anew_in_all_lanes(harness: EngineHarness, cpu: CPURenderer) -> None:
    stream = harness.stream()
    stream.join(stream.create("catch", rows=4, lanes=3, seed=4))
    for _ in range(3):
        stream.step()
    stream.reset_world(stream.world)
    assert stream.step("step_type").observations["step_type"].tolist() == [FIRST] * 3
    assert stream.read("world.episode").tolist() == [1, 1, 1]
    stream.reset_world(stream.world, seed=11)
    told = stream.step("ball", "step_type")
    fresh = ReferenceWorld(cpu, "catch", 11, 3, rows=4)
    fresh.step()
    assert told.state == RUNNING
    assert told.observations["ball"].tobytes() == fresh.observe("ball").tobytes()


def test_the_familys_own_settings_can_change_where_nobody_can_tell_by_the_specs(
    harness: EngineHarness, cpu: CPURenderer
) -> None:
    one, two = pair(harness)
    reset_together(one, two, max_steps=2, speed=0.5, seed=3)
    fresh = ReferenceWorld(cpu, "maze", 3, **MAZE, max_steps=2, speed=0.5)
    states = []
    for _ in range(3):
        fresh.step(move=[1.0, 0.0])
        for stream in (one, two):
            stream.post_step("position", "eye.rgb", move=[1.0, 0.0])
        harness.settle()
        for agent, told in enumerate([one.step_reply(), two.step_reply()]):
            states.append(told.state)
            assert told.observations["position"].tobytes() == fresh.observe("position", agent).tobytes()
            assert told.observations["eye.rgb"].tobytes() == fresh.draw("eye.rgb", agent, width=8, height=8).tobytes()
    assert states == [RUNNING] * 4 + [INTERRUPTED] * 2
    two.leave()
    one.leave()
    one.destroy(one.world)
    harness.check_empty()


def test_settings_of_an_earlier_reset_stay(harness: EngineHarness) -> None:
    one, two = pair(harness)
    reset_together(one, two, max_steps=1)
    reset_together(one, two, speed=0.5)
    reset_together(one, two)
    harness.step_all(one, two)
    assert [told.state for told in harness.step_all(one, two)] == [INTERRUPTED] * 2


def test_settings_of_two_callers_are_both_applied(harness: EngineHarness) -> None:
    one, two = pair(harness)
    one.post_reset_world(one.world, max_steps=1)
    assert one.waits
    two.post_reset_world(two.world, speed=0.5)
    harness.settle()
    one.take("reset_world")
    two.take("reset_world")
    family = harness.engine.directory.worlds[one.world].pool.family
    assert (family.max_steps, family.setting_values["speed"]) == (1, 0.5)


@pytest.mark.parametrize("changed", [{"size": 7}, {"goals": 2}, {"agents": 1}])
def test_settings_that_change_what_someone_inside_can_see_or_be_are_refused(
    harness: EngineHarness, changed: dict[str, Any]
) -> None:
    one, two = pair(harness)
    caller = harness.stream()
    for stream in (one, two, caller):
        with refused("FAILED_PRECONDITION", one.world):
            stream.reset_world(one.world, **changed)
    assert [told.state for told in harness.step_all(one, two, see=["reward"])] == [RUNNING] * 2
    assert one.read("world.steps") == 1
    one.leave()
    two.leave()
    caller.reset_world(one.world, **changed)
    one.join(one.world)
    assert one.step("reward", "goals_left", "map.rgb").state == RUNNING
    if "agents" in changed:
        with refused("FAILED_PRECONDITION"):
            two.join(one.world)


def test_an_agent_who_could_not_be_there_any_more_is_in_the_way_even_if_it_sees_nothing(harness: EngineHarness) -> None:
    stream, caller = harness.stream(), harness.stream()
    world = stream.create("maze", **MAZE)
    stream.join(world, agent=1, observations=["reward"])
    stream.step("reward")
    with refused("FAILED_PRECONDITION", "agent 1"):
        caller.reset_world(world, agents=1)
    assert stream.step("reward").state == RUNNING


def test_an_agent_who_joins_while_a_reset_waits_cannot_be_moved_to_where_it_is_not(harness: EngineHarness) -> None:
    """The reset was fine when it was asked for; when it is carried out, someone is there whom it would hurt."""
    stream, caller, late = harness.stream(), harness.stream(), harness.stream()
    world = stream.create("maze", **MAZE)
    stream.join(world, observations=["reward"])
    stream.step()
    caller.post_reset_world(world, agents=1)
    assert caller.waits
    late.join(world, observations=["reward"])
    late.post_step("reward")
    assert late.waits
    stream.post_step()
    harness.settle()
    assert stream.step_reply().state == INTERRUPTED
    with refused("FAILED_PRECONDITION", "agent 1"):
        caller.take("reset_world")
    stream.post_step("reward")
    harness.settle()
    assert stream.step_reply().state == RUNNING
    assert late.step_reply().state == RUNNING


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"family": "catch"}, "INVALID_ARGUMENT"),
        ({"lanes": 2}, "INVALID_ARGUMENT"),
        ({"seed": 1.5}, "INVALID_ARGUMENT"),
        ({"max_steps": 0}, "INVALID_ARGUMENT"),
        ({"colour": "red"}, "INVALID_ARGUMENT"),
    ],
)
def test_wrong_settings_change_nothing(harness: EngineHarness, wrong: dict[str, Any], code: str) -> None:
    one, two = pair(harness)
    before = [one.read("world.seed"), one.read("world.episode"), one.read("world.steps")]
    caller = harness.stream()
    for stream in (caller, one):
        with refused(code, next(iter(wrong))):
            stream.reset_world(one.world, **({"seed": 5} | wrong))
    assert [one.read("world.seed"), one.read("world.episode"), one.read("world.steps")] == before
    assert [told.state for told in harness.step_all(one, two)] == [RUNNING] * 2
    assert one.read("world.steps") == before[2] + 1


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("at_once", [True, False])
def test_streams_that_reset_each_others_worlds_do_not_wait_for_ever(
    harness: EngineHarness, count: int, at_once: bool
) -> None:
    """Each waits for the next to step, which it cannot while it waits: so whoever waits counts as arrived."""
    streams = [harness.stream() for _ in range(count)]
    for stream in streams:
        stream.join(stream.create("catch"))
        stream.step()
    for place, stream in enumerate(streams):
        stream.post_reset_world(streams[(place + 1) % count].world)
        if not at_once:
            harness.settle()
    harness.settle()
    waiting = list(streams)
    for _ in range(count):
        for stream in [one for one in waiting if one.replies]:
            stream.take("reset_world")
            waiting.remove(stream)
            while stream.step().state != RUNNING:
                pass
    assert not waiting


def test_a_world_is_reset_though_an_agent_of_it_waits_for_the_reset_of_another(harness: EngineHarness) -> None:
    waiting, slow, caller = harness.stream(), harness.stream(), harness.stream()
    for stream in (waiting, slow):
        stream.join(stream.create("catch"))
        stream.step()
    waiting.post_reset_world(slow.world)
    assert waiting.waits
    caller.reset_world(waiting.world)
    slow.post_step()
    harness.settle()
    assert slow.step_reply().state == INTERRUPTED
    waiting.take("reset_world")
    last = waiting.step("step_type", "reward", "discount")
    assert last.state == INTERRUPTED
    assert [float(last.observations[name]) for name in ("step_type", "reward", "discount")] == [LAST, 0, 1]
    first = waiting.step("step_type")
    assert (first.state, int(first.observations["step_type"])) == (RUNNING, FIRST)


def test_a_caller_who_vanishes_leaves_nothing_behind(harness: EngineHarness) -> None:
    one, two = pair(harness)
    caller = harness.stream()
    caller.post_reset_world(one.world)
    assert caller.waits
    caller.close()
    one.post_step()
    two.post_step()
    harness.settle()
    assert {one.step_reply().state, two.step_reply().state} == {INTERRUPTED}
    assert [told.state for told in harness.step_all(one, two)] == [RUNNING] * 2
    assert [told.state for told in harness.step_all(one, two)] == [RUNNING] * 2


def test_a_joined_caller_who_vanishes_is_not_waited_for(harness: EngineHarness) -> None:
    one, two = pair(harness)
    one.post_reset_world(one.world)
    assert one.waits
    one.close()
    assert two.step().state == INTERRUPTED
    assert two.step().state == RUNNING


def test_whoever_joins_while_a_reset_waits_begins_with_the_others(harness: EngineHarness) -> None:
    one, two = pair(harness, agents=3)
    caller, late = harness.stream(), harness.stream()
    caller.post_reset_world(one.world)
    late.join(one.world)
    late.post_step("step_type", "position")
    assert late.waits
    one.post_step()
    harness.settle()
    assert one.step_reply().state == INTERRUPTED
    assert late.waits
    assert caller.waits
    two.post_step()
    harness.settle()
    assert two.step_reply().state == INTERRUPTED
    caller.take("reset_world")
    assert late.waits
    assert [told.state for told in harness.step_all(one, two)] == [RUNNING] * 2
    assert int(late.step_reply().observations["step_type"]) == FIRST


def test_a_step_that_waited_through_a_reset_sees_its_own_world(harness: EngineHarness, cpu: CPURenderer) -> None:
    """The world has moved to another pool in the meantime, while others step in the old one."""
    see = ("position", "eye.rgb", "reward")
    one, late = harness.stream(), harness.stream()
    world = one.create("maze", **MAZE, seed=21)
    one.join(world, width=8, height=8)
    one.step()
    late.join(world, width=8, height=8)
    late.post_step(*see)
    others = pair(harness, seed=22)
    assert late.waits
    one.reset_world(world, max_steps=77, seed=23)
    for stream in (*others, one):
        stream.post_step(*see)
    harness.settle()
    moved, stayed = ReferenceWorld(cpu, "maze", 23, **MAZE), ReferenceWorld(cpu, "maze", 22, **MAZE)
    moved.step()
    stayed.step()
    stayed.step()
    for stream, agent, course in ((one, 0, moved), (late, 1, moved), (others[0], 0, stayed), (others[1], 1, stayed)):
        seen = stream.step_reply().observations
        for name in see:
            size = {"width": 8, "height": 8} if "." in name else {}
            np.testing.assert_array_equal(seen[name], course.see(name, agent, **size)[0], f"{name} of agent {agent}")


def test_lighting_and_field_of_view_outlive_a_reset(harness: EngineHarness) -> None:
    one, two = pair(harness)
    one.write("world.lighting.ambient", np.array([1.0, 2.0, 3.0]))
    one.write("camera.eye.field_of_view", 33.0)
    reset_together(one, two, max_steps=9)
    assert two.read("world.lighting.ambient").tolist() == [1, 2, 3]
    assert one.read("camera.eye.field_of_view") == pytest.approx(33)
    harness.step_all(one, two, see=["eye.rgb"])
    assert two.read("world.lighting.ambient").tolist() == [1, 2, 3]
