"""Pictures that a family makes itself, for viewers: they take little of a tick, and each view has its turn."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from scripts.support.engine_streams import EngineHarness
from tests.server.engine.test_watching import joined, view, watch
from tests.support.faulty_families import Photographed
from worldloom.render.cpu import CPURenderer
from worldloom.server.engine.picture_requests import PictureRequest, RecentViews, ViewState
from worldloom.worlds.registry import Registry

PICTURE_S = 0.003
"""Time that a picture takes, by the clock of the tests."""


@pytest.fixture
def photographed(
    cpu: CPURenderer, fresh_registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EngineHarness]:
    fresh_registry.add("tests.support.faulty_families:Photographed")
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Photographed, "clock", lambda: now.__setitem__(0, now[0] + PICTURE_S))
    harness = EngineHarness(cpu)
    harness.engine.watching.share = 1.0
    yield harness
    Photographed.broken = frozenset()


def drawn(picture: PictureRequest) -> list[int]:
    return [number for number, frame in enumerate(picture.frames) if frame.start >= 0]


def test_all_lanes_have_their_turn(photographed: EngineHarness) -> None:
    stream = joined(photographed, "photographed", lanes=10)
    stream.step()
    recent = RecentViews()
    seen: list[int] = []
    for _ in range(5):
        delivered = watch(photographed, *(view(stream, lane) for lane in range(10)), recent=recent)
        stream.step()
        seen += drawn(delivered[0])
        assert [frame.state for frame in delivered[0].frames].count(ViewState.POSTPONED) == 6
    assert sorted(seen) == sorted([*range(10), *range(10)])  # four in each picture, each twice in five


def test_a_tick_makes_few_pictures_of_many_worlds(photographed: EngineHarness) -> None:
    streams = [joined(photographed, "photographed") for _ in range(8)]
    photographed.step_all(*streams)
    before = Photographed.made
    delivered = watch(photographed, *map(view, streams))
    photographed.step_all(*streams)
    assert Photographed.made - before == len(drawn(delivered[0])) == 4  # 10 ms have passed after the fourth
    assert [frame.state == ViewState.POSTPONED for frame in delivered[0].frames] == 4 * [False] + 4 * [True]


def test_viewers_share_the_time_of_a_tick(photographed: EngineHarness) -> None:
    stream = joined(photographed, "photographed", lanes=4)
    stream.step()
    delivered: list[PictureRequest] = []
    views = [view(stream, lane) for lane in range(4)]
    watching = photographed.engine.watching
    for _ in range(5):
        photographed.post(lambda: watching.requests.append(PictureRequest(views, 16, delivered.append)))
    stream.step()
    assert [len(drawn(picture)) for picture in delivered] == [1] * 5  # each has one, however little time there is


def test_a_picture_that_fails_is_the_only_one_that_is_missing(photographed: EngineHarness) -> None:
    stream = joined(photographed, "photographed", lanes=3)
    stream.step()
    Photographed.broken = frozenset({1})
    delivered = watch(photographed, *(view(stream, lane) for lane in range(3)))
    stream.step()
    failed = [frame.state == ViewState.NOT_DRAWABLE for frame in delivered[0].frames]
    assert failed == [False, True, False]
    for lane in (0, 2):
        np.testing.assert_array_equal(delivered[0].frame(lane)[0, 0], [lane, 1, lane])


def test_pictures_for_clients_are_made_once_if_a_draw_fails(
    photographed: EngineHarness, fresh_registry: Registry
) -> None:
    """A view of somebody else cannot be drawn: the pictures of this tick stay, and count once."""
    fresh_registry.add("tests.support.faulty_families:Picky")
    stream, other = joined(photographed, "photographed", lanes=2), joined(photographed, "picky")
    photographed.step_all(stream, other)
    frames, made = photographed.engine.counters.frames["rgb"], Photographed.made
    stream.post_step("eye.rgb")
    other.post_step("eye.rgb", push=[0.125, 0.0])
    photographed.settle()
    np.testing.assert_array_equal(stream.step_reply().observations["eye.rgb"][:, 0, 0], [[0, 1, 0], [1, 1, 1]])
    assert photographed.engine.counters.frames["rgb"] - frames == Photographed.made - made == 2
