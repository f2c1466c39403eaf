"""Work that is divided over ticks: others step meanwhile, and what comes out is the same as if it were done at once."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from numpy.typing import NDArray

from scripts.support.engine_streams import INTERRUPTED, RUNNING, EngineHarness, Stream, refused
from scripts.support.messages import packed
from tests.support.toy import Toy
from worldloom.kernels.tables import I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.worlds.family import State
from worldloom.worlds.registry import Registry

LANES = 60
SEEN = ("count", "end", "step_type", "reward")
JOIN: dict[str, Any] = {"observations": [*SEEN, "eye.gray"], "width": 2, "height": 2}


class Sluggish(Toy):
    """A family that takes 2 ms to begin an episode in a lane, and has many rows."""

    name = "sluggish"
    rows_per_lane = 4096
    begin_s: ClassVar[float] = 0.002
    fails_at: ClassVar[int | None] = None

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self.begun = 0

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        super().reset(state, lanes, seeds)
        self.begun += len(lanes)
        time.sleep(self.begin_s * len(lanes))
        if self.fails_at is not None and self.begun >= self.fails_at:
            raise RuntimeError("too many")


@pytest.fixture
def harness(cpu: CPURenderer, fresh_registry: Registry) -> Iterator[EngineHarness]:
    fresh_registry.add("tests.support.toy:Toy")
    fresh_registry.add(f"{__name__}:Sluggish")
    made = EngineHarness(cpu)
    made.engine.divided_work_s = 0.02
    yield made
    Sluggish.fails_at = None


def ticks_until_reply(harness: EngineHarness, stream: Stream, *others: Stream) -> int:
    """Tick until the stream is answered; the others are answered in each tick."""
    count = 0
    while not stream.replies:
        for other in others:
            other.post_step(*SEEN)
        harness.tick()
        count += 1
        for other in others:
            assert other.step_reply().state == RUNNING
        assert count < 1000
    return count


def quick(harness: EngineHarness) -> Stream:
    stream = harness.stream()
    stream.join(stream.create("toy", longest=1000, max_steps=10**6, seed=19))
    assert int(stream.step("end").observations["end"]) > 500, "longer than any of these tests"
    return stream


def post_create(stream: Stream, **settings: Any) -> None:
    request = rpc.CreateWorldRequest(settings=packed({"family": "sluggish", "lanes": LANES, **settings}))
    stream.post(rpc.EnvironmentRequest(create_world=request))


def create_slowly(harness: EngineHarness, other: Stream, **settings: Any) -> Stream:
    stream = harness.stream()
    post_create(stream, seed=3, **settings)
    ticks_until_reply(harness, stream, other)
    stream.join(
        stream.take("create_world").create_world.world_name, observations=[*SEEN, "eye.gray"], width=2, height=2
    )
    return stream


def expected_episodes(cpu: CPURenderer, steps: int, **settings: Any) -> list[dict[str, np.ndarray]]:
    """The same with an engine that divides nothing."""
    harness = EngineHarness(cpu)
    stream = harness.stream()
    stream.join(
        stream.create("sluggish", lanes=LANES, seed=3, **settings), observations=[*SEEN, "eye.gray"], width=2, height=2
    )
    return [dict(stream.step(*SEEN, "eye.gray").observations) for _ in range(steps)]


def test_a_large_world_is_created_while_others_step(harness: EngineHarness) -> None:
    other = quick(harness)
    stream = harness.stream()
    harness.engine.divided_work_s = 1e-6  # a part of the lanes in each tick
    post_create(stream)
    assert ticks_until_reply(harness, stream, other) > 5
    world = stream.take("create_world").create_world.world_name
    assert harness.engine.directory.lanes_in_use == LANES + 1
    other.destroy(world)
    other.leave()
    other.destroy(other.world)
    harness.check_empty()


def test_lanes_count_while_they_are_added(cpu: CPURenderer, harness: EngineHarness) -> None:
    limited = EngineHarness(cpu, max_lanes=LANES, max_worlds=1)
    limited.engine.divided_work_s = 1e-6
    first, second = limited.stream(), limited.stream()
    post_create(first)
    limited.tick()
    assert not first.replies
    with refused("RESOURCE_EXHAUSTED", "--max-worlds"):
        second.create("toy")
    ticks_until_reply(limited, first)
    first.destroy(first.take("create_world").create_world.world_name)
    limited.check_empty()


def test_a_stream_that_ends_before_its_world_is_complete_leaves_the_world_to_nobody(harness: EngineHarness) -> None:
    harness.engine.divided_work_s = 1e-6
    stream, other = harness.stream(), quick(harness)
    post_create(stream)
    harness.tick()
    harness.post(stream.session.close)
    for _ in range(100):
        harness.tick()
    assert harness.engine.directory.lanes_in_use == 1
    assert list(harness.engine.directory.worlds) == [other.world]


def test_episodes_that_begin_over_several_ticks_are_the_same(harness: EngineHarness, cpu: CPURenderer) -> None:
    """All lanes at first, later those whose episode has ended."""
    settings = {"max_steps": 3, "longest": 6}
    expected = expected_episodes(cpu, 8, **settings)
    other = quick(harness)
    stream = create_slowly(harness, other, **settings)
    ticks = []
    for step in expected:
        stream.post_step(*SEEN, "eye.gray")
        ticks.append(ticks_until_reply(harness, stream, other))
        told = stream.step_reply()
        assert told.state == RUNNING
        for name, values in step.items():
            np.testing.assert_array_equal(told.observations[name], values, err_msg=name)
    assert ticks[0] >= 3, "60 lanes at 2 ms are 120 ms, and a tick has 20"


@pytest.mark.parametrize("worlds", [1, 2])
def test_a_world_that_has_begun_some_episodes_when_there_is_time_for_all(
    harness: EngineHarness, cpu: CPURenderer, worlds: int
) -> None:
    """The lanes that have begun wait for the others, however fast these are: none makes a step more than the others."""
    settings = {"max_steps": 3, "longest": 6}
    expected = expected_episodes(cpu, 8, **settings)
    other = quick(harness)
    streams = [create_slowly(harness, other, **settings) for _ in range(worlds)]
    begun_at_once = 0
    for step in expected:
        for stream in streams:
            stream.post_step(*SEEN, "eye.gray")
        harness.tick()
        for world in harness.engine.directory.worlds.values():
            begun_at_once += world.begun is not None
            world.pool.begin_s = 0.0  # as if it had been measured on a machine that is less busy now
        for stream in streams:
            ticks_until_reply(harness, stream)
            told = stream.step_reply().observations
            for name, values in step.items():
                np.testing.assert_array_equal(told[name], values, err_msg=name)
        for world in harness.engine.directory.worlds.values():
            world.pool.begin_s = Sluggish.begin_s
    assert begun_at_once > 0, "some episodes began in a tick before"


def test_a_family_that_fails_while_episodes_begin_harms_its_world_only(harness: EngineHarness) -> None:
    other = quick(harness)
    stream = create_slowly(harness, other)
    Sluggish.fails_at = 30
    stream.post_step(*SEEN)
    ticks_until_reply(harness, stream, other)
    with refused("INTERNAL", "sluggish", "RuntimeError: too many"):
        stream.step_reply()
    Sluggish.fails_at = None
    stream.post_step(*SEEN)
    ticks_until_reply(harness, stream, other)
    assert not stream.step_reply().observations["count"].any()


@pytest.mark.parametrize("what", ["destroy", "leave", "reset_world", "close"])
def test_what_happens_to_a_world_whose_episodes_are_beginning(harness: EngineHarness, what: str) -> None:
    other = quick(harness)
    stream = create_slowly(harness, other)
    stream.post_step(*SEEN)
    harness.tick()
    assert not stream.replies
    if what == "destroy":
        other.destroy(stream.world)
        with refused("NOT_FOUND", "is gone"):
            stream.step_reply()
    elif what == "reset_world":
        other.post_reset_world(stream.world, seed=9)
        ticks_until_reply(harness, stream)
        other.take("reset_world")
        told = stream.step_reply()
        assert told.state == RUNNING
        assert not told.observations["count"].any()
        harness.engine.divided_work_s = float("inf")
        again = harness.stream()
        again.join(again.create("sluggish", lanes=LANES, seed=9), **JOIN)
        np.testing.assert_array_equal(told.observations["end"], again.step("end").observations["end"])
    else:
        world = harness.engine.directory.worlds[stream.world]
        harness.post(stream.session.close if what == "close" else stream.session._leave)
        harness.settle()
        assert not world.agents
        later = harness.stream()
        later.join(stream.world, observations=[*SEEN])
        later.post_step(*SEEN)
        ticks_until_reply(harness, later, other)
        assert not later.step_reply().observations["count"].any()
    assert other.step("count").state == RUNNING


def test_a_world_that_moves_to_another_pool_gets_its_lanes_over_several_ticks(harness: EngineHarness) -> None:
    other = quick(harness)
    stream = create_slowly(harness, other)
    stream.post_step(*SEEN)
    ticks_until_reply(harness, stream, other)
    stream.step_reply()
    harness.engine.divided_work_s = 1e-6
    caller = harness.stream()
    caller.post_reset_world(stream.world, max_steps=7)
    harness.tick()
    directory = harness.engine.directory
    assert (directory.lanes_in_use, sum(directory.pools.lanes_of.values())) == (LANES + 1, 2 * LANES + 1)
    for _ in range(100):
        harness.tick()
    assert not caller.replies, "it waits for the agent's step"
    stream.post_step(*SEEN)
    harness.settle()
    assert stream.step_reply().state == INTERRUPTED
    caller.take("reset_world")
    assert (directory.lanes_in_use, sum(directory.pools.lanes_of.values())) == (LANES + 1, LANES + 1)


def test_a_reset_that_is_overtaken_by_the_end_of_its_world_frees_its_lanes(harness: EngineHarness) -> None:
    other = quick(harness)
    stream = create_slowly(harness, other)
    harness.engine.divided_work_s = 1e-6
    caller = harness.stream()
    caller.post_reset_world(stream.world, max_steps=7)
    harness.tick()
    other.destroy(stream.world)
    for _ in range(100):
        harness.tick()
    with refused("NOT_FOUND", "is gone"):
        caller.take("reset_world")
    directory = harness.engine.directory
    assert (directory.lanes_in_use, sum(directory.pools.lanes_of.values())) == (1, 1)


def test_an_agent_that_comes_when_another_left_in_between_begins_all_lanes(harness: EngineHarness) -> None:
    """Some lanes were in the middle of an episode, others were beginning theirs."""
    other = quick(harness)
    stream = create_slowly(harness, other, longest=2, max_steps=100)
    for _ in range(2):
        stream.post_step(*SEEN)
        ticks_until_reply(harness, stream, other)
        ended = stream.step_reply().observations["step_type"] == 2
    assert 0 < ended.sum() < LANES
    stream.post_step(*SEEN)
    harness.tick()
    assert not stream.replies
    harness.post(stream.session.close)
    harness.settle()
    later = harness.stream()
    later.join(stream.world, **JOIN)
    later.post_step(*SEEN)
    ticks_until_reply(harness, later, other)
    told = later.step_reply().observations
    assert not told["step_type"].any()
    assert not told["count"].any()
