"""Episodes of a world that begin at a number: the same as if those before had been played."""

from typing import Any

import numpy as np
import pytest

from scripts.support.engine_streams import EngineHarness, Stream, refused
from worldloom.server.engine.timing import StageTimer

SIZE: dict[str, Any] = {"width": 8, "height": 6}
SETTINGS: dict[str, Any] = {"seed": 4, "lanes": 3, "rail": 2.0, "max_steps": 5}
PUSH = np.array([0.5, -0.2, 0.9], np.float32)
SEE = ("eye.rgb", "pose", "step_type", "reward")


def joined(harness: EngineHarness, family: str = "cartpole", **settings: Any) -> Stream:
    stream = harness.stream()
    stream.join(stream.create(family, **settings), **SIZE)
    return stream


def seen(stream: Stream) -> dict[str, np.ndarray]:
    return stream.step(*SEE, force=PUSH).observations


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], lane: int) -> bool:
    return all(np.array_equal(one[name][lane], other[name][lane]) for name in SEE)


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_episode_of_any_number_is_the_one_that_would_have_been_played(
    harness: EngineHarness, is_begun: bool
) -> None:
    played, written = joined(harness, **SETTINGS), joined(harness, **SETTINGS)
    if is_begun:
        seen(written)
        seen(written)
    assert written.read("world.next_episode").tolist() == [int(is_begun)] * 3
    written.write("world.next_episode", np.array([3, -1, 3]))
    assert written.read("world.next_episode").tolist() == [3, int(is_begun), 3]
    expected = seen(played)
    while played.read("world.episode").tolist() != [3, 3, 3]:
        expected = seen(played)
    for _ in range(12):  # to the end of that episode, and through the next
        found = seen(written)
        assert same(found, expected, 0)
        assert same(found, expected, 2)
        expected = seen(played)


def test_other_lanes_go_on_as_they_would(harness: EngineHarness) -> None:
    undisturbed, written = joined(harness, **SETTINGS), joined(harness, **SETTINGS)
    for step in range(20):
        if step == 2:
            written.write("world.next_episode", np.array([-1, 9, -1]))
        found, expected = seen(written), seen(undisturbed)
        assert same(found, expected, 0)
        assert same(found, expected, 2)


def test_with_same_step_the_episode_begins_at_once(harness: EngineHarness) -> None:
    settings = {**SETTINGS, "autoreset": "same_step"}
    played, written = joined(harness, **settings), joined(harness, **settings)
    seen(written)
    expected = seen(played)
    while played.read("world.episode").tolist() != [2, 2, 2]:
        expected = seen(played)
    assert expected["step_type"].tolist() == [2, 2, 2]  # and the next one has begun
    written.write("world.next_episode", np.array([2, 2, 2]))
    for _ in range(12):
        found, expected = seen(written), seen(played)
        assert all(same(found, expected, lane) for lane in range(3))


def test_with_disabled_a_reset_begins_it(harness: EngineHarness) -> None:
    settings = {**SETTINGS, "autoreset": "disabled"}
    played, written = joined(harness, **settings), joined(harness, **settings)
    everyone = np.array([True] * 3)
    for stream in (played, written):
        seen(stream)
    for _ in range(4):
        played.reset_world(played.world, reset_mask=everyone)
        expected = seen(played)
    written.write("world.next_episode", np.array([4, -1, -1]))
    before = seen(written)
    assert same(before, seen(written), 0) or not before["reward"][0]  # it waits for the reset
    written.reset_world(written.world, reset_mask=np.array([True, False, False]))
    for _ in range(5):
        found = seen(written)
        assert same(found, expected, 0)
        expected = seen(played)


def test_random_numbers_that_go_on_begin_anew_from_seed_and_number(harness: EngineHarness) -> None:
    settings = {"lanes": 2, "seed": 3, "domain": "cartpole", "task": "swingup"}
    first, second, fresh = (joined(harness, "dmc", **settings) for _ in range(3))
    names = ("position", "velocity")

    def observe(stream: Stream) -> list[list[float]]:
        found = stream.step(*names).observations
        return [found[name].ravel().tolist() for name in names]

    for _ in range(3):
        observe(second)
    for stream in (first, second):
        stream.write("world.next_episode", np.array([5, 5]))
    began = observe(first)
    assert began == observe(second)
    assert began != observe(fresh)


def test_wrong_numbers_change_nothing(harness: EngineHarness) -> None:
    stream, undisturbed = joined(harness, **SETTINGS), joined(harness, **SETTINGS)
    for one in (stream, undisturbed):
        seen(one)
    with refused("INVALID_ARGUMENT", "world.next_episode", "shape"):
        stream.write("world.next_episode", np.array([1, 2]))
    with refused("INVALID_ARGUMENT", "world.next_episode", "-2"):
        stream.write("world.next_episode", np.array([-2, 0, 0]))
    for _ in range(8):
        found, expected = seen(stream), seen(undisturbed)
        assert all(same(found, expected, lane) for lane in range(3))
    single = joined(harness, seed=1)
    with refused("NOT_FOUND", "world.next_episode"):
        single.read("world.next_episode")


def test_the_capacity_of_a_server(harness: EngineHarness) -> None:
    stream = joined(harness, **SETTINGS)
    limits = harness.engine.limits
    assert stream.read("capacity.processors") == harness.engine.renderer.threads  # type: ignore[attr-defined]
    assert stream.read("capacity.free_lanes") == limits.max_lanes - 3
    assert 0 < stream.read("capacity.free_memory_bytes") <= harness.engine.directory.memory.max_bytes
    assert stream.read("capacity.rate") == 0.0
    harness.engine.counters.lane_steps = 300
    timer = harness.engine.timer
    assert isinstance(timer, StageTimer)
    timer._added_s["draw"] += 1.5
    assert 150 < stream.read("capacity.rate") <= 200
