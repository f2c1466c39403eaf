"""Several agents in one world: lock-step, late comers, those who leave."""

from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from scripts.support.engine_streams import (
    FIRST,
    INTERRUPTED,
    LAST,
    MID,
    RUNNING,
    TERMINATED,
    EngineHarness,
    Stream,
    refused,
)
from scripts.support.reference_world import ReferenceWorld
from worldloom.render.cpu import CPURenderer
from worldloom.worlds.registry import Registry

SEEN = ("reward", "discount", "step_type")


@pytest.fixture
def toys(cpu: CPURenderer, fresh_registry: Registry) -> EngineHarness:
    fresh_registry.add("tests.support.toy:Toy")
    return EngineHarness(cpu)


def join_all(harness: EngineHarness, count: int, family: str, **settings: Any) -> list[Stream]:
    streams = [harness.stream() for _ in range(count)]
    world = streams[0].create(family, **settings)
    for stream in streams:
        stream.join(world, width=8, height=8)
    return streams


def test_eight_agents_in_one_maze(harness: EngineHarness, cpu: CPURenderer) -> None:
    """They act at random for some episodes; a pool that is driven by hand says what each must be told."""
    settings: dict[str, Any] = {"size": 7, "goals": 3, "agents": 8, "max_steps": 40, "speed": 0.5, "turn_speed": 60.0}
    streams = join_all(harness, 8, "maze", seed=5, **settings)
    direct = ReferenceWorld(cpu, "maze", 5, **settings)
    rng = np.random.default_rng(1)
    see = (*SEEN, "position", "heading", "goals_left")
    rewards = np.zeros(8)
    ends = set()
    for step in range(150):
        move, turn = rng.uniform(-1, 1, (8, 2)).astype(np.float32), rng.uniform(-1, 1, 8).astype(np.float32)
        pictures = ("eye.rgb",) if step % 25 == 0 else ()
        for agent in rng.permutation(8):
            assert not streams[agent].replies
            streams[agent].post_step(*see, *pictures, move=move[agent], turn=turn[agent])
            if agent % 3 == 0:
                harness.tick()
        harness.settle()
        direct.step(move=move[None], turn=turn[None])
        for agent, stream in enumerate(streams):
            told = stream.step_reply()
            assert told.state == direct.pool.status[direct.lanes[0]]
            for name in see:
                assert told.observations[name].tobytes() == direct.observe(name, agent).tobytes(), (
                    f"{name} of agent {agent}"
                )
            for name in pictures:
                assert told.observations[name].tobytes() == direct.draw(name, agent, width=8, height=8).tobytes()
            rewards[agent] += float(told.observations["reward"])
        ends.add(told.state)
    assert np.count_nonzero(rewards) > 1, "goals were taken by more than one"
    assert {RUNNING, TERMINATED} <= ends


def test_nobody_is_answered_before_everyone_has_stepped(harness: EngineHarness) -> None:
    streams = join_all(harness, 4, "maze", size=5, agents=4)
    for _ in range(3):
        for number, stream in enumerate(streams):
            assert not any(other.replies for other in streams)
            stream.post_step()
            if number < 3:
                assert stream.waits
        harness.settle()
        assert [stream.step_reply().state for stream in streams] == [RUNNING] * 4


def test_agents_who_are_not_there_do_nothing(harness: EngineHarness, cpu: CPURenderer) -> None:
    settings: dict[str, Any] = {"size": 5, "agents": 3, "speed": 0.5}
    stream = harness.stream()
    stream.join(stream.create("maze", seed=8, **settings), agent=1)
    direct = ReferenceWorld(cpu, "maze", 8, **settings)
    move = np.zeros((1, 3, 2), np.float32)
    move[0, 1] = 0.25, 1.0
    for _ in range(4):
        told = stream.step("position", move=move[0, 1])
        direct.step(move=move)
        assert told.observations["position"].tobytes() == direct.observe("position", 1).tobytes()
    world = harness.engine.directory.worlds[stream.world]
    np.testing.assert_array_equal(world.pool.state.position[world.lanes], direct.pool.state.position[direct.lanes])


def test_who_comes_late_begins_in_the_episode_that_runs(toys: EngineHarness) -> None:
    one, late = toys.stream(), toys.stream()
    world = one.create("toy", agents=2, longest=1000, max_steps=1000, seed=0)
    one.join(world)
    for _ in range(3):
        one.step(push=[0.5, 0.5])
    late.join(world)
    one.post_step("count", *SEEN, push=[0.5, 0.25])
    assert one.waits
    late.post_step("count", *SEEN, push=[0.125, 0.125])
    toys.settle()
    told, begun = one.step_reply(), late.step_reply()
    assert (told.state, float(told.observations["reward"]), int(told.observations["step_type"])) == (RUNNING, 0.75, MID)
    assert (begun.state, float(begun.observations["reward"]), int(begun.observations["step_type"])) == (
        RUNNING,
        0,
        FIRST,
    )
    assert float(begun.observations["discount"]) == 1
    assert int(told.observations["count"]) == int(begun.observations["count"]) == 3
    late.post_step("reward", "step_type", push=[0.125, 0.125])
    one.post_step()
    toys.settle()
    told = late.step_reply()
    assert (float(told.observations["reward"]), int(told.observations["step_type"])) == (0.25, MID)


@pytest.mark.parametrize("longest", [1, 1000])
def test_who_comes_with_the_last_step_is_told_so_one_step_later(toys: EngineHarness, longest: int) -> None:
    one, late = toys.stream(), toys.stream()
    world = one.create("toy", agents=2, longest=longest, max_steps=1, seed=0)
    one.join(world)
    one.step()
    late.join(world)
    ended, begun = toys.step_all(one, late, see=SEEN)
    assert ended.state == (TERMINATED if longest == 1 else INTERRUPTED)
    assert (begun.state, int(begun.observations["step_type"]), float(begun.observations["discount"])) == (
        RUNNING,
        FIRST,
        1,
    )
    anew, cut = toys.step_all(one, late, see=SEEN)
    assert (anew.state, int(anew.observations["step_type"])) == (RUNNING, FIRST)
    assert (cut.state, int(cut.observations["step_type"])) == (INTERRUPTED, LAST)
    assert (float(cut.observations["reward"]), float(cut.observations["discount"])) == (0, 1)


def test_an_agent_who_resets_alone_begins_again_where_the_others_are(toys: EngineHarness) -> None:
    one, two = join_all(toys, 2, "toy", agents=2, longest=1000, max_steps=1000, seed=0)
    for _ in range(3):
        toys.step_all(one, two)
    two.reset()
    told, begun = toys.step_all(one, two, see=("count", "step_type"))
    assert [int(told.observations["count"]), int(begun.observations["count"])] == [3, 3]
    assert [int(told.observations["step_type"]), int(begun.observations["step_type"])] == [MID, FIRST]
    one.reset()
    two.reset()
    for told in toys.step_all(one, two, see=("count", "step_type")):
        assert (int(told.observations["count"]), int(told.observations["step_type"])) == (0, FIRST)


def test_an_agent_who_joins_in_the_same_tick_is_waited_for(harness: EngineHarness) -> None:
    one, two = harness.stream(), harness.stream()
    world = one.create("maze", size=5, agents=2)
    one.join(world)
    one.post_step()
    two.post_bytes(join_request(world))
    harness.settle()
    two.specs = two.take("join_world").join_world.specs
    assert one.waits
    assert two.step().state == RUNNING
    assert one.step_reply().state == RUNNING


@pytest.mark.parametrize("how", ["leaves", "vanishes"])
@pytest.mark.parametrize("has_stepped", [True, False])
def test_who_is_gone_is_not_waited_for(harness: EngineHarness, how: str, has_stepped: bool) -> None:
    one, two, three = join_all(harness, 3, "maze", size=5, agents=3)
    harness.step_all(one, two, three)
    one.post_step()
    if has_stepped and how == "vanishes":
        three.post_step()
    assert one.waits
    three.leave() if how == "leaves" else three.close()
    assert one.waits
    assert two.step().state == RUNNING
    assert one.step_reply().state == RUNNING
    four = harness.stream()
    four.join(one.world, agent=2)
    assert [told.state for told in harness.step_all(one, two, four)] == [RUNNING] * 3


def test_when_the_last_agent_leaves_the_next_begins_anew(toys: EngineHarness) -> None:
    stream = toys.stream()
    world = stream.create("toy", longest=1000, max_steps=1000, seed=0)
    for _ in range(2):
        stream.join(world)
        assert [int(stream.step("count").observations["count"]) for _ in range(3)] == [0, 1, 2]
        stream.leave()


def test_slots_are_given_out_from_the_first_that_is_free(harness: EngineHarness) -> None:
    one, two, three = (harness.stream() for _ in range(3))
    world = one.create("maze", size=5, agents=2)
    one.join(world, agent=1)
    with refused("FAILED_PRECONDITION", "agent 1", "0"):
        two.join(world, agent=1)
    with refused("INVALID_ARGUMENT", "agent"):
        two.join(world, agent=2)
    two.join(world)
    assert (one.read("world.agent"), two.read("world.agent")) == (1, 0)
    assert one.read("world.agents_joined") == 2
    with refused("FAILED_PRECONDITION", "all 2 agents"):
        three.join(world)
    one.leave()
    three.join(world)
    assert three.read("world.agent") == 1


def test_a_late_comer_in_a_vector_world_begins_in_all_lanes(harness: EngineHarness) -> None:
    """Also when some of the lanes begin an episode in that very step."""
    one, late = harness.stream(), harness.stream()
    world = one.create("maze", size=5, agents=2, lanes=3, max_steps=4)
    one.join(world)
    for _ in range(5):
        assert one.step().state == RUNNING
    lanes = harness.engine.directory.worlds[world].lanes
    harness.engine.directory.worlds[world].pool.status[lanes[1:]] = RUNNING  # only the first is at its end
    late.join(world)
    told, begun = harness.step_all(one, late, see=SEEN)
    assert told.observations["step_type"].tolist() == [FIRST, LAST, LAST]
    assert begun.observations["step_type"].tolist() == [FIRST] * 3
    assert begun.observations["discount"].tolist() == [1.0] * 3
    assert {told.state, begun.state} == {RUNNING}


def join_request(world: str) -> bytes:
    request = rpc.EnvironmentRequest(join_world=rpc.JoinWorldRequest(world_name=world))
    data: bytes = request.SerializeToString()
    return data
