"""The GL renderer: views are independent, one thread uses it, others run while it waits, memory is released.

Its frames are compared with the reference in test_reference.py.
"""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from worldloom.kernels.outputs import DEPTH, outputs_of
from worldloom.kernels.tables import I32, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.gl.renderer import GLRenderer
from worldloom.render.gl.targets import Group, TargetCache
from worldloom.render.meshes import sphere
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views, select_views

pytestmark = pytest.mark.gl

ALL = 15
CANARY = 0xA5
ROWS = 14


@pytest.fixture(scope="module")
def renderer() -> Iterator[GLRenderer]:
    with GLRenderer() as made:
        yield made


@pytest.fixture(scope="module")
def assets() -> AssetLibrary:
    return AssetLibrary()


def populate(scene: Scene, lanes: I32, seed: int) -> None:
    """Fill lanes with meshes, textures, light and sky that differ from lane to lane."""
    rng = np.random.default_rng(seed)
    rows = scene.rows(lanes).ravel()
    instances, count = scene.instances, rows.size
    instances.mesh[rows] = rng.integers(0, 6, count)
    turns = np.linalg.qr(rng.normal(size=(count, 3, 3)))[0]
    instances.pose[rows, :, :3] = turns * rng.uniform(0.3, 1.5, (count, 1, 3))
    instances.pose[rows, :, 3] = rng.uniform(-2, 2, (count, 3))
    instances.color[rows] = rng.uniform(0.2, 1, (count, 3))
    instances.texture[rows] = rng.integers(-1, 4, count)
    instances.uv_scale[rows] = rng.uniform(0.5, 3, (count, 2))
    instances.label[rows] = rng.integers(1, 256, count)
    for column in (scene.lanes.light_direction, scene.lanes.sky_zenith, scene.lanes.fog_color):
        column[lanes] = rng.uniform(-1, 1, (lanes.size, 3)) ** 2
    scene.lanes.fog_range[lanes] = (3.0, 12.0)


def crowd(assets: AssetLibrary, count: int, seed: int = 0) -> tuple[Scene, ViewTable]:
    """Return many views of many lanes, of several sizes and projections, with different outputs."""
    rng = np.random.default_rng(seed)
    scene = Scene(assets)
    lanes = scene.add(count, ROWS)
    populate(scene, lanes, seed)
    sizes = np.array([[64, 64], [33, 17], [48, 40]])[rng.integers(0, 3, count)]
    views = make_views(
        lanes,
        camera=look_at(rng.uniform((-1, -7, 0), (1, -5, 2), (count, 3)), rng.uniform(-0.5, 0.5, (count, 3))),
        width=sizes[:, 0],
        height=sizes[:, 1],
        samples=rng.choice([1, 1, 4], count),
        outputs=rng.integers(1, 16, count),
        orthographic_height=np.where(rng.random(count) < 0.3, 5.0, np.nan),
        far=30.0,
    )
    return scene, views


def draw(renderer: GLRenderer, scene: Scene, views: ViewTable) -> list[dict[str, NDArray[Any]]]:
    """Return every frame of every view, drawn at unaligned offsets; bytes in between must not change."""
    offsets, end = lay_out(views, start=3)
    arena = np.full(end + 5, CANARY, np.uint8)
    renderer.draw(scene, views, arena, offsets)
    assert (arena[:3] == CANARY).all()
    assert (arena[end:] == CANARY).all()
    return [
        {
            output.name: get_frame(arena, views, offsets, view, output.name).copy()
            for output in outputs_of(int(views.outputs[view]))
        }
        for view in range(len(views.lane))
    ]


def assert_same(first: dict[str, NDArray[Any]], second: dict[str, NDArray[Any]]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert first[name].tobytes() == second[name].tobytes(), name


def test_a_view_is_the_same_alone_among_many_and_anywhere_among_them(
    renderer: GLRenderer, assets: AssetLibrary
) -> None:
    scene, views = crowd(assets, 90)
    together = draw(renderer, scene, views)
    assert len({frames["rgb"].tobytes() for frames in together if "rgb" in frames}) > 30

    for view in range(0, 90, 3):
        assert_same(draw(renderer, scene, select_views(views, [view]))[0], together[view])

    order = np.random.default_rng(1).permutation(90)
    for index, frames in enumerate(draw(renderer, scene, select_views(views, order))):
        assert_same(frames, together[order[index]])


def test_a_view_is_the_same_in_every_page_of_a_long_batch(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene = Scene(assets)
    lane = scene.add(1, ROWS)
    populate(scene, lane, seed=6)
    views = make_views(lane, camera=look_at((0, -6, 1), (0, 0, 0)), outputs=ALL)
    (alone,) = draw(renderer, scene, views)

    frames = draw(renderer, scene, select_views(views, np.zeros(700, np.int64)))

    assert len(frames) > renderer._targets.layers_per_page(Group(64, 64, 1, DEPTH))
    for one in frames:
        assert_same(one, alone)


def test_other_lanes_coming_and_going_change_nothing(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene, views = crowd(assets, 8)
    before = draw(renderer, scene, views)

    others = scene.add(40, ROWS)
    populate(scene, others, seed=5)
    with_others = draw(renderer, scene, views)
    scene.free(others[::2])
    after = draw(renderer, scene, views)

    for view in range(8):
        assert_same(with_others[view], before[view])
        assert_same(after[view], before[view])


def test_a_freed_lane_leaves_no_picture_behind(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene = Scene(assets)
    empty_lane = scene.add(1, ROWS)
    camera = look_at((0, -6, 1), (0, 0, 0))
    (empty,) = draw(renderer, scene, make_views(empty_lane, camera=camera, outputs=ALL))
    lane = scene.add(1, ROWS)
    populate(scene, lane, seed=2)
    views = make_views(lane, camera=camera, outputs=ALL)
    (full,) = draw(renderer, scene, views)
    assert (full["segmentation"] > 0).any()

    scene.free(lane)
    assert scene.add(1, ROWS).tolist() == lane.tolist()

    assert_same(draw(renderer, scene, views)[0], empty)


def test_what_moved_is_drawn_where_it_is_now(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene = Scene(assets)
    lane = scene.add(1, 1)
    scene.instances.mesh[0] = assets.mesh("box")
    scene.instances.label[0] = 7
    views = make_views(lane, camera=look_at((0, -6, 0), (0, 0, 0)), outputs=8)
    for x in (-2.0, 0.0, 2.0):
        scene.instances.pose[0, 0, 3] = x
        (frames,) = draw(renderer, scene, views)
        columns = np.nonzero((frames["segmentation"] == 7).any(axis=0))[0]
        assert abs(columns.mean() - (31.5 + 32 * x / (6 * np.tan(np.radians(30))))) < 1.5


def test_assets_added_between_draws_are_there(renderer: GLRenderer) -> None:
    own = AssetLibrary(texture_size=8)
    scene = Scene(own)
    lane = scene.add(1, 1)
    views = make_views(lane, camera=look_at((0, -3, 0), (0, 0, 0)))
    draw(renderer, scene, views)
    scene.instances.mesh[0] = own.add_mesh("ball", sphere())
    scene.instances.texture[0] = own.add_texture("red", np.full((8, 8, 3), (255, 0, 0), np.uint8))

    (frames,) = draw(renderer, scene, views)

    red, green, blue = frames["rgb"][32, 32].tolist()
    assert red > 60
    assert (green, blue) == (0, 0)


def test_among_equal_depths_the_first_row_wins_whatever_its_mesh(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene = Scene(assets)
    lane = scene.add(1, 3)
    views = make_views(lane, camera=look_at((0, 0, 5), (0, 0, 0), up=(0, 1, 0)), orthographic_height=2.0, outputs=8)
    scene.instances.label[:] = (1, 2, 3)
    box_on_the_ground = np.eye(3, 4)
    box_on_the_ground[2, 3] = -0.5
    for order in (("box", "plane", "plane"), ("plane", "box", "plane"), ("plane", "plane", "box")):
        scene.instances.mesh[:] = [assets.mesh(name) for name in order]
        scene.instances.pose[:] = np.stack([box_on_the_ground if name == "box" else np.eye(3, 4) for name in order])

        (frames,) = draw(renderer, scene, views)

        assert np.unique(frames["segmentation"]).tolist() == [0, 1], order


def test_an_edge_through_pixel_centres_belongs_to_the_side_below_and_to_the_right(
    renderer: GLRenderer, assets: AssetLibrary
) -> None:
    scene = Scene(assets)
    lane = scene.add(1, 1)
    scene.instances.mesh[0] = assets.mesh("plane")
    scene.instances.label[0] = 1
    # Eight pixels to the metre, and edges half a pixel off the grid: exactly through centres.
    scene.instances.pose[0] = np.array([[1, 0, 0, 1 / 16], [0, 1, 0, 1 / 16], [0, 0, 1, 0]])
    views = make_views(
        lane,
        camera=look_at((0, 0, 5), (0, 0, 0), up=(0, 1, 0)),
        orthographic_height=2.0,
        width=16,
        height=16,
        outputs=8,
    )

    (frames,) = draw(renderer, scene, views)

    rows, columns = (np.flatnonzero(frames["segmentation"].any(axis=axis)) for axis in (1, 0))
    assert columns.tolist() == list(range(4, 12))
    assert rows.tolist() == list(range(3, 11))


def test_no_views_and_views_that_ask_for_nothing(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene = Scene(assets)
    lane = scene.add(1, 1)
    assert draw(renderer, scene, make_views(np.empty(0, np.int32))) == []
    assert draw(renderer, scene, make_views(lane, outputs=0)) == [{}]


@pytest.mark.parametrize("size", [(1, 1), (1, 200), (301, 3), (7, 5)])
@pytest.mark.parametrize("samples", [1, 4])
def test_odd_sizes(renderer: GLRenderer, assets: AssetLibrary, size: tuple[int, int], samples: int) -> None:
    scene = Scene(assets)
    lanes = scene.add(3, ROWS)
    populate(scene, lanes, seed=4)
    camera = look_at((0, -6, 1), (0, 0, 0))
    views = make_views(lanes, camera=camera, width=size[0], height=size[1], outputs=ALL, samples=samples, far=30)

    for frames in draw(renderer, scene, views):
        assert frames["rgb"].shape == (size[1], size[0], 3)
        assert (frames["depth"] >= views.near[0]).all()
        assert (frames["depth"] <= 30).all()
        assert ((frames["depth"] == 30) == (frames["segmentation"] == 0)).all()


def test_the_driver_tests_the_samples_where_pictures_say(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene = Scene(assets)
    lane = scene.add(1, 1)
    scene.instances.mesh[0] = assets.mesh("plane")
    views = make_views(
        lane,
        camera=look_at((0, 0, 5), (0, 0, 0), up=(0, 1, 0)),
        orthographic_height=1.0,
        width=1,
        height=1,
        samples=4,
        outputs=9,
    )
    scene.lanes.sky_horizon[0] = scene.lanes.sky_zenith[0] = 0.0
    scene.lanes.light_color[0] = 0.0
    scene.lanes.ambient[0] = scene.lanes.ambient_ground[0] = 1.0
    scene.instances.label[0] = 9
    points = ((3, 1), (7, 3), (1, 5), (5, 7))
    for number, (x, y) in enumerate(points):
        # A square of an eighth of the pixel around one point only.
        scene.instances.pose[0] = np.array([[1 / 8, 0, 0, x / 8 - 0.5], [0, 1 / 8, 0, 0.5 - y / 8], [0, 0, 1, 0]])

        (frames,) = draw(renderer, scene, views)

        assert frames["rgb"].ravel().tolist() == [64, 64, 64], (x, y)
        assert frames["segmentation"].item() == (9 if number == 0 else 0)


def test_only_the_thread_that_made_it_may_use_it(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene = Scene(assets)
    views = make_views(scene.add(1, 1))
    offsets, end = lay_out(views)
    caught: list[BaseException] = []

    def use() -> None:
        try:
            renderer.draw(scene, views, allocate_arena(end), offsets)
        except RuntimeError as error:
            caught.append(error)
        try:
            renderer.close()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=use, name="stranger")
    thread.start()
    thread.join()

    assert len(caught) == 2
    assert "'stranger'" in str(caught[0])
    assert "MainThread" in str(caught[0])
    draw(renderer, scene, views)


def test_two_renderers_take_turns_and_close_twice(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene, views = crowd(assets, 5)
    first = draw(renderer, scene, views)
    with GLRenderer() as other:
        second = draw(other, scene, views)
        third = draw(renderer, scene, views)
    other.close()
    for view in range(5):
        assert_same(second[view], first[view])
        assert_same(third[view], first[view])
    with pytest.raises(RuntimeError, match="closed"):
        draw(other, scene, views)
    draw(renderer, scene, views)


def test_another_thread_runs_while_it_draws(renderer: GLRenderer, assets: AssetLibrary) -> None:
    """Large views keep the driver busy; a thread that only needs the GIL must run meanwhile."""
    scene = Scene(assets)
    lanes = scene.add(2, ROWS)
    populate(scene, lanes, seed=3)
    views = make_views(lanes, camera=look_at((0, -4, 1), (0, 0, 0)), width=1024, height=1024, samples=4)
    offsets, end = lay_out(views)
    arena = allocate_arena(end)
    renderer.draw(scene, views, arena, offsets)
    stamps: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            stamps.append(time.perf_counter())
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        began = time.perf_counter()
        while time.perf_counter() - began < 1.0:
            renderer.draw(scene, views, arena, offsets)
        ended = time.perf_counter()
    finally:
        stop.set()
        thread.join()

    # With the GIL held it would wait for a whole draw each time: a handful of ticks.
    during = [stamp for stamp in stamps if began < stamp < ended]
    assert len(during) > 100


def test_targets_that_are_no_longer_used_are_given_back(renderer: GLRenderer) -> None:
    with renderer._context.current():
        cache = TargetCache(renderer._gl, max_kept_bytes=4 << 20)
        for width in range(16, 144, 16):
            cache.get(Group(width, 64, 1, DEPTH), 20)
            assert cache.kept_bytes <= 4 << 20
        assert cache.get(Group(128, 64, 1, DEPTH), 20) is cache.get(Group(128, 64, 1, DEPTH), 32)
        cache.release()
        assert cache.kept_bytes == 0


def test_ever_other_small_sizes_leave_few_targets(renderer: GLRenderer) -> None:
    """Ten thousand would fit into the byte limit, but a driver needs more memory for each than its pixels."""
    with renderer._context.current():
        cache = TargetCache(renderer._gl, max_kept=8)
        made = [cache.get(Group(width, 1, 1, 0), 1) for width in range(1, 40)]
        assert cache.kept_count == 8
        assert cache.get(Group(32, 1, 1, 0), 1) is made[31]  # the oldest of the eight
        cache.get(Group(40, 1, 1, 0), 1)
        assert cache.get(Group(32, 1, 1, 0), 1) is made[31], "expected that the one unused for longest goes"
        cache.release()
        assert cache.kept_count == 0


def test_other_contexts_on_the_thread_do_not_disturb(renderer: GLRenderer, assets: AssetLibrary) -> None:
    """MuJoCo frees what it has in a context when Python collects it, in whichever context is current then."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    import mujoco
    from mujoco import egl

    def current() -> int | None:
        find = ctypes.CDLL("libEGL.so.1").eglGetCurrentContext
        find.restype = ctypes.c_void_p
        return cast(int | None, find())

    scene, views = crowd(assets, 4, seed=3)
    offsets, end = lay_out(views)
    expected, drawn = allocate_arena(end), allocate_arena(end)
    renderer.draw(scene, views, expected, offsets)
    assert current() is None
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")

    def open_theirs() -> tuple[Any, Any]:
        context = egl.GLContext(16, 16)
        context.make_current()
        return context, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)

    with ThreadPoolExecutor(1) as other_thread:  # as Gymnasium's renderer where it draws on a thread of its own
        theirs, objects = other_thread.submit(open_theirs).result()
        other_thread.submit(theirs.free).result()
    del objects
    gc.collect()
    drawn[:] = 0
    renderer.draw(scene, views, drawn, offsets)
    np.testing.assert_array_equal(drawn, expected)
    theirs, objects = open_theirs()
    before = current()
    renderer.draw(scene, views, drawn, offsets)
    assert current() == before is not None
    theirs.free()
    del objects
    with GLRenderer() as other:
        other.draw(scene, views, drawn, offsets)
    assert current() is None
    renderer.draw(scene, views, drawn, offsets)
    np.testing.assert_array_equal(drawn, expected)


def test_memory_stays_flat_over_many_batches(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene, views = crowd(assets, 12, seed=9)
    rng = np.random.default_rng(0)

    def batches(count: int) -> None:
        for _ in range(count):
            some = select_views(views, rng.integers(0, 12, rng.integers(1, 5)))
            offsets, end = lay_out(some)
            renderer.draw(scene, some, allocate_arena(end), offsets)

    batches(300)
    before = resident_bytes()
    batches(1500)
    gc.collect()
    # A leak of one small texture or buffer a batch would come to 6 MB and more.
    assert resident_bytes() - before < 4 << 20


def test_what_cannot_be_drawn_is_refused_and_nothing_drawn(renderer: GLRenderer, assets: AssetLibrary) -> None:
    scene, views = crowd(assets, 3)
    offsets, end = lay_out(views)
    arena = np.full(end, CANARY, np.uint8)
    views.lane[2] = 99
    with pytest.raises(ValueError, match="lane is 99"):
        renderer.draw(scene, views, arena, offsets)
    assert (arena == CANARY).all()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
