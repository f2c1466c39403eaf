"""Viewers get the frames that clients get, in the same draw, and clients notice nothing."""

import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.support.engine_streams import LAST, EngineHarness, Stream, refused
from tests.server.engine.test_prepared import MOVES, WORLDS, Course
from tests.support.faulty_families import Faulty
from worldloom.render.cpu import CPURenderer
from worldloom.render.renderer import Renderer
from worldloom.server.engine import watching
from worldloom.server.engine.followed import FollowedLane
from worldloom.server.engine.picture_requests import PictureRequest, ViewState, WatchedView, world_id
from worldloom.server.engine.watching import BATCH_PATIENCE_S
from worldloom.worlds.registry import Registry

ALL_OUTPUTS = ("rgb", "gray", "depth", "segmentation")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the pacing: the one number in it."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def joined(harness: EngineHarness, family: str = "maze", size: int = 16, **settings: Any) -> Stream:
    stream = harness.stream()
    stream.join(stream.create(family, **settings), width=size, height=size)
    return stream


def watch(harness: EngineHarness, *views: WatchedView, size: int = 16, **more: Any) -> list[PictureRequest]:
    """Ask for a picture; it is in the list when it has been delivered."""
    delivered: list[PictureRequest] = []
    harness.post(lambda: harness.engine.watching.requests.append(PictureRequest(views, size, delivered.append, **more)))
    return delivered


def view(stream: Stream, lane: int = 0, agent: int = 0, camera: str = "", output: str = "rgb") -> WatchedView:
    return WatchedView(world_id(stream.world), lane, agent, camera, output)


class WatchedCourse(Course):
    """A course whose lanes somebody watches and follows, in pictures of changing sizes."""

    def __init__(self, renderer: Renderer, world: dict[str, Any], shm: bool) -> None:
        super().__init__(renderer, world, shm)
        self.number = 0
        self.delivered: list[PictureRequest] = []
        followed = FollowedLane(world_id(self.name), 0, 0)
        self.harness.post(lambda: self.harness.engine.watching.follow(followed))
        self.harness.engine.watching.share = 1.0

    def move(self, kind: str, number: int) -> None:
        self.number += 1
        cameras = ["eye", "map"] if self.family == "maze" else ["eye"]
        views = [
            WatchedView(world_id(self.name), lane, self.number % 2, camera, ALL_OUTPUTS[(self.number + lane) % 4])
            for lane in range(3)
            for camera in cameras
        ]
        self.delivered += watch(self.harness, *views, size=8 * (1 + self.number % 3))
        super().move(kind, number)


def play(course: Course, moves: list[tuple[str, int]]) -> list[bytes | str]:
    for kind, number in moves:
        course.move(kind, number)
    return course.log


@settings(max_examples=40)
@given(
    st.sampled_from(WORLDS),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 9)), min_size=4, max_size=30),
)
def test_replies_have_the_same_bytes_with_viewers(
    cpu: CPURenderer, world: dict[str, Any], shm: bool, moves: list[tuple[str, int]]
) -> None:
    alone = play(Course(cpu, world, shm), moves)
    with patch.object(watching, "BATCH_PATIENCE_S", 0.0):  # also between steps
        watched = WatchedCourse(cpu, world, shm)
        assert play(watched, moves) == alone


@pytest.mark.parametrize("family", ["maze", "catch", "cartpole"])
@pytest.mark.parametrize("output", ALL_OUTPUTS)
def test_a_tile_has_the_pixels_of_the_reply(harness: EngineHarness, family: str, output: str) -> None:
    stream = joined(harness, family, lanes=3)
    stream.step()
    delivered = watch(harness, *(view(stream, lane, output=output) for lane in (2, 0)))
    reply = stream.step(f"eye.{output}")
    (picture,) = delivered
    for number, lane in enumerate((2, 0)):
        np.testing.assert_array_equal(picture.frame(number), reply.observations[f"eye.{output}"][lane])
    assert [(frame.state, frame.step) for frame in picture.frames] == [(ViewState.RUNNING, 1)] * 2


def test_viewers_and_clients_are_drawn_by_one_call(harness: EngineHarness) -> None:
    one, other = joined(harness), joined(harness, "catch", lanes=2)
    harness.step_all(one, other)
    counters = harness.engine.counters
    before, views = counters.draws, counters.views
    delivered = watch(harness, view(one, camera="map"), view(other, 1), size=32)
    delivered += watch(harness, view(other), size=8)
    harness.step_all(one, other, see=("eye.rgb",))
    assert (counters.draws - before, counters.views - views) == (1, 3)  # those of the clients are counted, no others
    assert harness.engine.watching.tiles == 3


def test_agents_see_for_themselves(harness: EngineHarness) -> None:
    one, two = harness.stream(), harness.stream()
    name = one.create("maze", agents=2)
    for stream in (one, two):
        stream.join(name, width=16, height=16)
    harness.step_all(one, two)
    delivered = watch(harness, view(one, agent=1), view(one, agent=0))
    replies = harness.step_all(one, two, see=("eye.rgb",))
    for number, reply in enumerate(reversed(replies)):
        np.testing.assert_array_equal(delivered[0].frame(number), reply.observations["eye.rgb"])


class NobodyWatches:
    """The watching of an engine that nobody watches: a tick may only look at its two containers."""

    requests: tuple[()] = ()
    followed: tuple[()] = ()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a tick used {name}")


def test_a_tick_makes_no_call_if_nobody_watches(harness: EngineHarness) -> None:
    streams = [joined(harness), joined(harness, "catch", lanes=4)]
    harness.engine.watching = NobodyWatches()  # type: ignore[assignment]
    for _ in range(3):
        harness.step_all(*streams, see=("eye.rgb",))
        streams[0].step("eye.rgb")
        streams[1].reset()


def test_what_is_not_stepped_is_drawn_after_a_moment(harness: EngineHarness, clock: list[float]) -> None:
    stream = joined(harness)
    reply = stream.step("eye.rgb")
    delivered = watch(harness, view(stream))
    harness.tick()
    assert not delivered
    assert harness.engine.watching.patience_s == pytest.approx(BATCH_PATIENCE_S)
    clock[0] += BATCH_PATIENCE_S
    harness.tick()
    np.testing.assert_array_equal(delivered[0].frame(0), reply.observations["eye.rgb"])


def test_pictures_take_no_more_than_their_share(harness: EngineHarness, clock: list[float]) -> None:
    stream = joined(harness)
    stream.step()
    engine = harness.engine
    engine.watching.share = 0.1
    with patch.object(time, "perf_counter", side_effect=iter(np.arange(0.0, 100.0, 0.01).tolist())):
        # Writing the scene takes one hundredth of a second by this clock; drawing is timed by another.
        delivered = watch(harness, view(stream))
        stream.step("eye.rgb")
        assert len(delivered) == 1
        delivered = watch(harness, view(stream))
        stream.step("eye.rgb")
        assert not delivered
        clock[0] += 0.01 * 9 * 0.99
        stream.step("eye.rgb")
        assert not delivered
        clock[0] += 0.1
        stream.step("eye.rgb")
    assert delivered[0].is_late
    assert engine.watching.late == 1


def test_pictures_take_no_more_than_their_share_between_steps(harness: EngineHarness, clock: list[float]) -> None:
    """A client that waits for each reply leaves ticks without steps; those are no reason to draw more."""
    stream = joined(harness)
    stream.step()
    watching = harness.engine.watching
    watching.share = 0.02
    with patch.object(time, "perf_counter", side_effect=iter(np.arange(0.0, 100.0, 0.01).tolist())):
        assert len(take_with_step(harness, stream)) == 1  # for 0.01 s by this clock: none in the next 0.49 s
        delivered = watch(harness, view(stream))
        stream.step("eye.rgb")
        clock[0] += 0.3
        harness.tick()
        assert not delivered
        assert 0.01 * 49 - 0.3 <= watching.patience_s < 0.3  # for drawing, too, which is timed by another clock
        assert watching.late == 1
        clock[0] += watching.patience_s
        harness.tick()
        assert len(delivered) == 1


def test_pictures_have_all_the_time_when_nothing_is_stepped(harness: EngineHarness, clock: list[float]) -> None:
    stream = joined(harness)
    stream.step()
    harness.engine.watching.share = 0.001
    with patch.object(time, "perf_counter", side_effect=iter(np.arange(0.0, 100.0, 0.01).tolist())):
        assert len(take_with_step(harness, stream)) == 1  # for 0.01 s by this clock: none in the next 10 s
        for wait_s in (1.1, BATCH_PATIENCE_S, BATCH_PATIENCE_S):
            delivered = watch(harness, view(stream))
            harness.tick()
            clock[0] += wait_s
            assert not delivered
            harness.tick()
            assert len(delivered) == 1


def take_with_step(harness: EngineHarness, stream: Stream) -> list[PictureRequest]:
    delivered = watch(harness, view(stream))
    stream.step("eye.rgb")
    return delivered


def test_pictures_wait_while_lanes_are_added(harness: EngineHarness, clock: list[float]) -> None:
    stream = joined(harness)
    stream.step()
    with patch.object(harness.engine, "_additions", [object()]):
        request = PictureRequest([view(stream)], 8, lambda _: None)
        harness.engine.watching.requests.append(request)
        assert harness.engine._take_watched(True) is None
        assert request.is_late
        clock[0] += 1.0  # not for ever
        assert harness.engine._take_watched(True) is not None


def test_states_of_views(harness: EngineHarness) -> None:
    new, over, gone = joined(harness), joined(harness, "catch", rows=3), joined(harness)
    over.step()
    while over.step("step_type").observations["step_type"] != LAST:
        pass
    views = [
        view(new),
        view(over),
        view(over, 1),
        view(over, -1),
        view(over, agent=1),
        view(over, camera="map"),
        WatchedView("maze-nothing", 0),
        view(gone),
    ]
    gone.leave()
    gone.destroy(gone.world)
    with patch.object(watching, "BATCH_PATIENCE_S", 0.0):
        delivered = watch(harness, *views)
        harness.settle()
    states = [frame.state for frame in delivered[0].frames]
    assert states == [
        ViewState.NOT_BEGUN,
        ViewState.ENDED,
        ViewState.GONE,
        ViewState.GONE,
        ViewState.GONE,
        ViewState.NOT_DRAWABLE,
        ViewState.GONE,
        ViewState.GONE,
    ]
    assert [frame.start >= 0 for frame in delivered[0].frames] == [state == ViewState.ENDED for state in states]


@pytest.fixture
def faulty(cpu: CPURenderer, fresh_registry: Registry) -> Iterator[EngineHarness]:
    fresh_registry.add("tests.support.faulty_families:Faulty")
    yield EngineHarness(cpu)
    Faulty.fault, Faulty.error = "", RuntimeError


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
@pytest.mark.parametrize(
    "fault",
    [
        "place_camera",
        "write_instances",
        "pose shape",
        "pose is no number",
        "near plane behind",
        "mesh that is not there",
    ],
)
def test_a_view_that_fails_harms_no_step(faulty: EngineHarness, fault: str, error: type[BaseException]) -> None:
    broken, sound = joined(faulty, "faulty"), joined(faulty)
    faulty.step_all(broken, sound)
    Faulty.fault, Faulty.error = fault, error
    delivered = watch(faulty, view(broken), view(sound))
    broken.post_step("reward")
    sound.post_step("eye.rgb")
    faulty.settle()
    reply = sound.step_reply()
    broken.step_reply()
    states = [frame.state for frame in delivered[0].frames]
    assert states[0] == ViewState.NOT_DRAWABLE
    assert states[1] == ViewState.RUNNING
    np.testing.assert_array_equal(delivered[0].frame(1), reply.observations["eye.rgb"])
    assert reply.observations["eye.rgb"].any()


@pytest.fixture
def picky(cpu: CPURenderer, fresh_registry: Registry) -> EngineHarness:
    fresh_registry.add("tests.support.faulty_families:Picky")
    return EngineHarness(cpu)


def test_a_client_whose_frames_cannot_be_drawn_takes_no_picture_from_viewers(picky: EngineHarness) -> None:
    broken, sound = joined(picky, "picky"), joined(picky)
    picky.step_all(broken, sound)
    picky.engine.watching.share = 1.0
    for _ in range(2):  # pictures go on at once: it was not their fault
        delivered = watch(picky, view(sound))
        broken.post_step("eye.rgb", push=[0.125, 0.0])
        sound.post_step("eye.rgb")
        picky.settle()
        with refused("INTERNAL", "frames of family 'picky' cannot be drawn"):
            broken.step_reply()
        np.testing.assert_array_equal(delivered[0].frame(0), sound.step_reply().observations["eye.rgb"])
        broken.step()


def test_one_world_that_cannot_be_drawn_costs_no_other_its_tile(picky: EngineHarness) -> None:
    streams = [joined(picky, "picky"), joined(picky), joined(picky, "catch"), joined(picky)]
    picky.step_all(*streams)
    streams[0].step(push=[0.125, 0.0])
    delivered = watch(picky, *map(view, streams))
    replies = picky.step_all(*streams[1:], see=("eye.rgb",))
    assert [frame.state for frame in delivered[0].frames] == [
        ViewState.NOT_DRAWABLE,
        ViewState.RUNNING,
        ViewState.RUNNING,
        ViewState.RUNNING,
    ]
    for number, reply in enumerate(replies, 1):
        np.testing.assert_array_equal(delivered[0].frame(number), reply.observations["eye.rgb"])
    delivered = watch(picky, *map(view, streams))
    picky.step_all(*streams[1:], see=("eye.rgb",))
    assert not delivered  # a second draw in each tick would be too much
    with patch.object(watching, "_APART_S", -1.0):  # nor do they take longer than that
        picky.engine.watching._free_at_s = 0.0
        picky.step_all(*streams[1:])
    assert {frame.state for frame in delivered[0].frames} == {ViewState.POSTPONED}


def test_a_destroyed_world_is_not_kept_for_viewers(harness: EngineHarness) -> None:
    stream = joined(harness)
    stream.step()
    delivered = watch(harness, view(stream))
    stream.step("eye.rgb")
    assert len(delivered) == 1
    delivered.clear()
    world = weakref.ref(harness.engine.directory.worlds[stream.world])
    stream.leave()
    stream.destroy(stream.world)
    gc.collect()
    assert world() is None
