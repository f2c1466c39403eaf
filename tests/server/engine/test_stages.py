"""What is drawn: what was asked for, once, for everyone in one call."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from scripts.support.engine_streams import RUNNING, EngineHarness, Stream, refused
from worldloom.kernels.tables import I64
from worldloom.render.cpu import CPURenderer
from worldloom.worlds.family import State, StepResult


def joined(harness: EngineHarness, family: str = "catch", lanes: int | None = None, **join: Any) -> Stream:
    stream = harness.stream()
    stream.join(
        stream.create(family, **({} if lanes is None else {"lanes": lanes})), **{"width": 8, "height": 8, **join}
    )
    return stream


def drawn(harness: EngineHarness) -> tuple[int, dict[str, int]]:
    """Calls of the renderer and pictures by output since the last time; only those above zero."""
    counters = harness.engine.counters
    found = counters.draws, {name: count for name, count in counters.frames.items() if count}
    counters.draws = 0
    counters.frames = dict.fromkeys(counters.frames, 0)
    return found


def test_a_step_that_asks_for_no_picture_draws_none(harness: EngineHarness) -> None:
    streams = [joined(harness, family) for family in ("catch", "cartpole", "maze")]
    for _ in range(5):
        harness.step_all(*streams)
        harness.step_all(*streams, see=("reward", "discount", "step_type"))
    assert drawn(harness) == (0, {})
    assert harness.engine.counters.steps == 30


def test_outputs_of_one_camera_are_one_view_and_what_is_asked_for_twice_is_drawn_once(harness: EngineHarness) -> None:
    stream = joined(harness, "maze")
    stream.step("eye.rgb", "eye.depth", "eye.segmentation", "eye.rgb", "eye.depth")
    assert drawn(harness) == (1, {"rgb": 1, "depth": 1, "segmentation": 1})
    stream.step("eye.gray", "map.gray")
    assert drawn(harness) == (1, {"gray": 2})
    stream.step("map.depth", "eye.rgb", "reward")
    assert drawn(harness) == (1, {"rgb": 1, "depth": 1})


def test_everyone_who_steps_in_a_tick_is_drawn_in_one_call(harness: EngineHarness) -> None:
    streams = [
        joined(harness, "maze"),
        joined(harness, "maze", width=5, height=9),
        joined(harness, "catch", samples=4),
        joined(harness, "cartpole", width=3),
        joined(harness, "catch", lanes=4),
        joined(harness, "maze", lanes=2),
    ]
    harness.step_all(*streams, see=("eye.rgb",))
    assert drawn(harness) == (1, {"rgb": 4 + 4 + 2})
    for stream in streams:
        stream.post_step("eye.rgb" if stream is streams[0] else "eye.depth", "reward")
    harness.settle()
    for stream in streams:
        assert stream.step_reply().state == RUNNING
    assert drawn(harness) == (1, {"rgb": 1, "depth": 3 + 4 + 2})


def test_whoever_is_cut_by_a_reset_is_drawn_with_the_others(harness: EngineHarness) -> None:
    cut, other, caller = joined(harness, "maze"), joined(harness, "maze"), harness.stream()
    harness.step_all(cut, other)
    caller.post_reset_world(cut.world)
    cut.post_step("eye.rgb")
    other.post_step("eye.rgb")
    harness.settle()
    assert drawn(harness) == (1, {"rgb": 2})


def test_a_refused_step_and_one_that_waits_draw_nothing(harness: EngineHarness) -> None:
    one, two = harness.stream(), harness.stream()
    world = one.create("maze", size=5, agents=2)
    one.join(world)
    two.join(world)
    one.post_step("eye.rgb")
    assert one.waits
    with refused("FAILED_PRECONDITION"):
        harness.stream().step()
    assert drawn(harness) == (0, {})
    two.step("eye.depth")
    assert drawn(harness) == (1, {"rgb": 1, "depth": 1})


def test_one_call_of_the_family_steps_all_worlds_of_a_pool(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [joined(harness) for _ in range(7)]
    harness.step_all(*streams)
    family = harness.engine.directory.worlds[streams[0].world].pool.family
    calls: list[int] = []
    step = family.step

    def counted(state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        calls.append(len(lanes))
        return step(state, lanes, actions)

    monkeypatch.setattr(family, "step", counted)
    harness.step_all(*streams)
    assert calls == [7]


def test_replies_stay_as_they_are_while_others_are_made(harness: EngineHarness) -> None:
    """A reply's memory is used again only when nobody holds it."""
    stream = joined(harness, "maze", width=16, height=16)
    stream.step()
    held: list[bytes] = []
    copies: list[bytes] = []
    for number in range(30):
        stream.post_step("eye.rgb", "position", "heading", turn=1.0)
        harness.engine.tick([stream.harness._calls.pop()])
        [data] = harness.sent
        harness.sent.clear()
        if number % 3:
            held.append(data)
            copies.append(bytes(bytearray(data)))
        del data
    assert held == copies
    assert len(set(held)) > 10


def test_counters_tell_of_ticks_and_batches(harness: EngineHarness) -> None:
    streams = [joined(harness) for _ in range(4)] + [joined(harness, lanes=8)]
    for _ in range(3):
        harness.step_all(*streams)
    counters = harness.engine.counters
    assert (counters.ticks, counters.steps, counters.lane_steps) == (3, 15, 3 * 12)
    assert counters.mean_batch == 5
    assert streams[0].read("counters.lane_steps") == 36
    assert streams[0].read("counters.worlds") == 5
    assert streams[0].read("counters.lanes") == 12
    assert all(seconds >= 0 for seconds in harness.engine.timer.stage_s.values())


LIMITED: list[tuple[dict[str, Any], str]] = [({"max_worlds": 2}, "--max-worlds"), ({"max_lanes": 5}, "--max-lanes")]


@pytest.mark.parametrize(("limits", "flag"), LIMITED)
def test_limits_on_worlds_and_lanes(cpu: CPURenderer, limits: dict[str, Any], flag: str) -> None:
    harness = EngineHarness(cpu, **limits)
    stream = harness.stream()
    worlds = [stream.create("catch", lanes=2) for _ in range(2)]
    for lanes in (2, 10**9, 2**62):
        with refused("RESOURCE_EXHAUSTED", flag):
            stream.create("catch", lanes=lanes)
    assert set(harness.engine.directory.worlds) == set(worlds)
    assert harness.engine.directory.lanes_in_use == 4
    stream.destroy(worlds.pop())
    worlds.append(stream.create("maze", size=5, lanes=3))
    for world in worlds:
        stream.destroy(world)
    harness.check_empty()


def test_a_limit_on_pixels(cpu: CPURenderer) -> None:
    harness = EngineHarness(cpu, max_view_pixels=100)
    stream = harness.stream()
    world = stream.create("catch")
    with refused("RESOURCE_EXHAUSTED", "--max-view-pixels", "64"):
        stream.join(world)
    with refused("FAILED_PRECONDITION"):
        stream.step()
    stream.join(world, width=10, height=10)
    stream.step()
    with refused("RESOURCE_EXHAUSTED", "--max-view-pixels"):
        stream.reset(width=11)
    assert stream.step("eye.gray").observations["eye.gray"].shape == (10, 10)
    assert stream.read("world.steps") == 1


@pytest.mark.parametrize("who", ["server", "client"])
def test_a_limit_on_replies(cpu: CPURenderer, who: str) -> None:
    harness = EngineHarness(cpu, max_reply_bytes=1500 if who == "server" else 1 << 20)
    word = "--max-reply-bytes" if who == "server" else "max_reply_bytes"
    stream = harness.stream()
    join = {"width": 16, "height": 16} | ({"max_reply_bytes": 1500} if who == "client" else {})
    stream.join(stream.create("catch"), **join)
    stream.step()
    with refused("RESOURCE_EXHAUSTED", word):
        stream.step("eye.depth", "eye.rgb")
    assert stream.read("world.steps") == 0
    assert drawn(harness) == (0, {})
    assert np.isfinite(stream.step("eye.depth").observations["eye.depth"]).all()
    vector = harness.stream()
    world = vector.create("catch", lanes=3)
    with refused("RESOURCE_EXHAUSTED", word):
        vector.join(world, **join)
    vector.join(world, **join, observations=["eye.gray", "reward"])
    assert vector.step("eye.gray", "reward").state == RUNNING
