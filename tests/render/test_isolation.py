"""The bytes of a view do not depend on what else is drawn, where, when, or by how many threads."""

import numpy as np
import pytest

from tests.support.scene_builder import ALL_OUTPUTS, assets
from tests.support.step_before import step_before
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.kernels.tables import (
    CASTS,
    CASTS_NOTHING,
    DIRECTIONAL,
    HEADLIGHT,
    I32,
    LAMP_AMBIENT,
    LAMP_ATTENUATION,
    LAMP_KIND,
    LAMP_SIZE,
    MAX_LAMPS,
    NO_MESH,
    NO_TEXTURE,
    SPOT,
    STANDS_FOR_SHADOW,
    ViewTable,
)
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.cpu import CPURenderer
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views, select_views

ROWS = 5
CROWD = 4096
SIZES = np.array([[12, 12], [17, 9], [7, 20], [1, 1], [24, 16]])
WATCHED = np.array([0, 1, 2, 77, 1000, 2047, 2048, 3333, 4094, 4095])
"""Views that are compared: the first, the last, and some between."""


def populate(scene: Scene, lanes: I32, seed: int) -> None:
    """Fill lanes, each from its own number and the seed, with shapes around the origin under the lane's own label."""
    instances, table = scene.instances, scene.lanes
    for lane, rows in zip(lanes.tolist(), scene.rows(lanes), strict=True):
        rng = np.random.default_rng((seed, lane))
        turns = np.linalg.qr(rng.normal(size=(rows.size, 3, 3)))[0]
        instances.mesh[rows] = rng.integers(0, 6, rows.size)
        instances.pose[rows, :, :3] = turns * rng.uniform(0.3, 1.2, (rows.size, 1, 3))
        instances.pose[rows, :, 3] = rng.uniform(-1.2, 1.2, (rows.size, 3))
        instances.color[rows] = rng.uniform(0.2, 1.0, (rows.size, 3))
        instances.texture[rows] = rng.integers(-1, 4, rows.size)
        instances.label[rows] = label_of(lane)
        instances.shadow[rows] = rng.choice([CASTS, CASTS, CASTS_NOTHING, STANDS_FOR_SHADOW], rows.size)
        table.sky_zenith[lane], table.light_direction[lane] = rng.uniform(0, 1, 3), rng.normal(size=3)
        table.fog_range[lane] = (2.0, rng.uniform(5.0, 20.0))
        instances.shine[rows] = rng.uniform((0, 0, 0), (0.2, 0.8, 30.0), (rows.size, 3))
        table.lamp_count[lane] = rng.integers(0, 4)
        table.lamps[lane] = rng.uniform(-1, 1, (MAX_LAMPS, LAMP_SIZE))
        table.lamps[lane, :, LAMP_KIND] = rng.choice([DIRECTIONAL, SPOT, HEADLIGHT], MAX_LAMPS)
        table.lamps[lane, :, LAMP_AMBIENT : LAMP_ATTENUATION + 3] = rng.uniform(0.1, 0.5, (MAX_LAMPS, 12))
        table.sky_textures[lane] = rng.choice([NO_TEXTURE, assets().texture("evening 0")])
        instances.alpha[rows] = rng.choice([1.0, 0.7, 0.2], rows.size) if rng.random() < 0.5 else 1.0


def label_of(lane: int) -> int:
    return 1 + lane % 255


def make_crowd(count: int) -> tuple[Scene, ViewTable]:
    """Return many lanes and a view of each, of several sizes, samples and projections."""
    rng = np.random.default_rng(count)
    scene = Scene(assets())
    lanes = scene.add(count, ROWS)
    populate(scene, lanes, seed=1)
    sizes = SIZES[rng.integers(0, len(SIZES), count)]
    views = make_views(
        lanes,
        camera=look_at(rng.uniform((-1, -6, 0), (1, -4, 2), (count, 3)), rng.uniform(-0.3, 0.3, (count, 3))),
        orthographic_height=np.where(rng.random(count) < 0.3, 4.0, np.nan),
        far=30.0,
        width=sizes[:, 0],
        height=sizes[:, 1],
        samples=rng.choice([1, 4], count),
        shadows=rng.random(count) < 0.3,
        outputs=ALL_OUTPUTS,
    )
    return scene, views


@pytest.fixture(scope="module")
def crowd() -> tuple[Scene, ViewTable]:
    return make_crowd(CROWD)


def draw(renderer: Renderer, scene: Scene, views: ViewTable) -> list[tuple[bytes, ...]]:
    """Return every frame of every view, as bytes."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets, previous=step_before(scene, views))
    return [
        tuple(get_frame(arena, views, offsets, view, output).tobytes() for output in OUTPUT_NAMES)
        for view in range(len(views.lane))
    ]


def test_alone_as_among_thousands(renderer: Renderer, crowd: tuple[Scene, ViewTable]) -> None:
    scene, views = crowd
    among = draw(renderer, scene, views)
    for view in WATCHED.tolist():
        assert draw(renderer, scene, select_views(views, [view])) == [among[view]]


def test_in_any_order(renderer: Renderer, crowd: tuple[Scene, ViewTable]) -> None:
    scene, views = crowd
    some = select_views(views, np.arange(300))
    in_order = draw(renderer, scene, some)
    shuffled = np.random.default_rng(3).permutation(300)
    assert draw(renderer, scene, select_views(some, shuffled)) == [in_order[view] for view in shuffled]


def test_beside_other_sizes(renderer: Renderer, crowd: tuple[Scene, ViewTable]) -> None:
    scene, views = crowd
    watched = select_views(views, WATCHED)
    expected = draw(renderer, scene, watched)
    mixed = select_views(views, np.r_[0, 0, 0, WATCHED, 0, 0, 0])
    mixed.width[[0, 1, 2, -3, -2, -1]], mixed.height[[0, 1, 2, -3, -2, -1]] = [150, 3, 64] * 2, [90, 200, 64] * 2
    assert draw(renderer, scene, mixed)[3:-3] == expected


def test_every_time_the_same(renderer: Renderer, crowd: tuple[Scene, ViewTable]) -> None:
    scene, views = crowd
    some = select_views(views, np.arange(200))
    assert draw(renderer, scene, some) == draw(renderer, scene, some)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_with_any_number_of_threads(cpu: Renderer, crowd: tuple[Scene, ViewTable], threads: int) -> None:
    scene, views = crowd
    some = select_views(views, np.arange(500))
    with CPURenderer(threads=threads) as other:
        assert draw(other, scene, some) == draw(cpu, scene, some)


def test_whatever_lanes_come_and_go(renderer: Renderer) -> None:
    scene, views = make_crowd(40)
    watched = select_views(views, np.arange(10, 20))
    expected = draw(renderer, scene, watched)
    populate(scene, scene.add(100, ROWS), seed=2)  # the tables move
    assert draw(renderer, scene, watched) == expected
    scene.free(np.r_[0:10, 20:60])
    assert draw(renderer, scene, watched) == expected
    populate(scene, scene.add(30, ROWS), seed=3)  # in the places of freed ones
    scene.add(7, ROWS + 40)
    assert draw(renderer, scene, watched) == expected


def test_whatever_lanes_of_other_sizes_make_the_rows_move(renderer: Renderer) -> None:
    scene, views = make_crowd(40)
    watched = select_views(views, np.arange(10, 20))
    expected = draw(renderer, scene, watched)
    scene.free(np.arange(10))
    rng, moves, beside = np.random.default_rng(4), 0, scene.add(3, 1)
    for rows in range(ROWS + 1, ROWS + 31):
        before = scene.lanes.first_row[10:20].copy()
        scene.free(beside)
        beside = scene.add(3, int(rng.integers(0, 9)))
        others = scene.add(int(rng.integers(300, 900)), rows)
        populate(scene, others[:20], seed=rows)
        assert draw(renderer, scene, watched) == expected
        scene.free(others)
        assert draw(renderer, scene, watched) == expected
        moves += bool((scene.lanes.first_row[10:20] != before).any())
    assert moves > 5, "expected that the rows of those who stay are moved time and again"
    assert len(scene.instances.mesh) <= 4096 + 30 * ROWS + 3 * 9


def test_no_view_shows_another_lane(renderer: Renderer, crowd: tuple[Scene, ViewTable]) -> None:
    scene, views = crowd
    seen = 0
    for view, frames in enumerate(draw(renderer, scene, views)):
        labels = set(frames[OUTPUT_NAMES.index("segmentation")]) - {0}
        assert labels <= {label_of(view)}
        seen += bool(labels)
    assert seen > CROWD // 2


def test_nothing_is_left_of_a_freed_lane(renderer: Renderer) -> None:
    scene, views = make_crowd(8)
    before = draw(renderer, scene, views)
    fresh = Scene(assets())
    fresh.add(8, 0)
    empty = draw(renderer, fresh, views)
    scene.free([2, 5])
    freed = draw(renderer, scene, views)
    again = scene.add(2, ROWS)
    assert sorted(again.tolist()) == [2, 5]
    reused = draw(renderer, scene, views)
    for view in range(8):
        expected = empty if view in (2, 5) else before
        assert freed[view] == expected[view]
        assert reused[view] == expected[view]
    populate(scene, again, seed=1)
    assert draw(renderer, scene, views) == before


def test_nothing_is_left_of_emptied_rows(renderer: Renderer) -> None:
    scene, views = make_crowd(6)
    before = draw(renderer, scene, views)
    scene.instances.mesh[scene.rows([3])] = NO_MESH
    after = draw(renderer, scene, views)
    assert set(after[3][OUTPUT_NAMES.index("segmentation")]) == {0}
    assert [after[view] for view in (0, 1, 2, 4, 5)] == [before[view] for view in (0, 1, 2, 4, 5)]
