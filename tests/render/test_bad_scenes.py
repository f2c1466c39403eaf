"""Invalid numbers draw nothing and do no harm, and no byte outside the frames changes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.support.scene_builder import ALL_OUTPUTS, Look, Piece, assets, build, pose
from worldloom.kernels.outputs import DEPTH, OUTPUT_NAMES
from worldloom.kernels.tables import I64, LAMP_SIZE, MAX_LAMPS, NO_TEXTURE, U8, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import frame_bytes, look_at, make_views

NORTH = look_at((0, 0, 0), (0, 1, 0))
BOX = Piece("box", pose((0, 5, 0)), "ffffff", 1)


def draw(renderer: Renderer, scene: Scene, **view: Any) -> dict[str, np.ndarray]:
    """Return all frames of one view from the origin to the north."""
    views = make_views(0, **{"camera": NORTH, "width": 24, "height": 24, "outputs": ALL_OUTPUTS, **view})
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    return {output: get_frame(arena, views, offsets, 0, output) for output in OUTPUT_NAMES}


def is_empty(frames: dict[str, np.ndarray], far: float = 100.0) -> bool:
    return not frames["segmentation"].any() and bool((frames["depth"] == far).all())


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [(0, 0), (1, 3), (2, 2)])
def test_rows_that_are_not_finite_are_left_out(renderer: Renderer, number: float, index: tuple[int, int]) -> None:
    broken = BOX._replace(pose=BOX.pose.copy(), label=2)
    broken.pose[index] = number
    alone = draw(renderer, build((Look(), [BOX])))
    beside = draw(renderer, build((Look(), [broken, BOX, broken])))
    assert is_empty(draw(renderer, build((Look(), [broken]))))
    for output in OUTPUT_NAMES:
        assert np.array_equal(beside[output], alone[output])


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("size", [(0.0, 0.0, 0.0), (3.0, 0.0, 0.0), (0.0, 0.0, 3.0), (1e-30, 1e-30, 1e-30)])
def test_triangles_without_area_draw_nothing(
    renderer: Renderer, size: tuple[float, float, float], samples: int
) -> None:
    pieces = [Piece(mesh, pose((0.1, 5, 0.1), size), "ffffff", 1) for mesh in ("box", "plane", "quad", "sphere")]
    assert is_empty(draw(renderer, build((Look(), pieces)), samples=samples))


def test_what_is_behind_the_camera_is_not_seen(renderer: Renderer) -> None:
    pieces = [Piece("sphere", pose((x, -3, 0), 2.0), "ffffff", 1) for x in (-1.0, 0.0, 1.0)]
    assert is_empty(draw(renderer, build((Look(), pieces))))
    assert is_empty(draw(renderer, build((Look(), pieces)), orthographic_height=8.0))


def test_lanes_without_rows_show_their_sky(renderer: Renderer) -> None:
    scene = build((Look(horizon=(0.2, 0.4, 0.6), zenith=(0.2, 0.4, 0.6)), []))
    frames = draw(renderer, scene)
    assert is_empty(frames)
    assert (frames["rgb"] == [51, 102, 153]).all()


@pytest.mark.parametrize("scale", [1e4, 1e6, 1e8])
def test_a_huge_floor_is_still_a_floor(renderer: Renderer, scale: float) -> None:
    floor = Piece("plane", pose((0, 0, -1), (scale, scale, 1)), "ffffff", 1)
    frames = draw(renderer, build((Look(), [floor])), far=50.0)
    assert (frames["segmentation"][14:] == 1).all()
    assert not frames["segmentation"][:12].any()


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("scale", [1e20, 1e30, 3e38])
def test_scales_past_all_measure_do_no_harm(renderer: Renderer, scale: float, samples: int) -> None:
    pieces = [
        Piece(mesh, pose((0, 0, -1), scale, yaw=10, roll=3), "ffffff", 1, "brick")
        for mesh in ("plane", "box", "sphere")
    ]
    frames = draw(renderer, build((Look(fog_range=(1, 5)), pieces)), samples=samples)
    assert np.isfinite(frames["depth"]).all()


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("orthographic_height", [np.nan, 4.0])
def test_depth_lies_between_near_and_far_whatever_the_pose(
    renderer: Renderer, samples: int, orthographic_height: float
) -> None:
    # A ball pressed into a sheet that goes on for light years, seen along the sheet.
    sheet = np.array([[0, 0, 1, 0], [0, 0, 0, 0], [0, 1e20, 0, 0]], np.float32)
    frames = draw(
        renderer,
        build((Look(), [Piece("sphere", sheet, "ffffff", 1)])),
        camera=look_at((0, 0, 0), (0, 0, 1)),
        width=33,
        height=1,
        near=0.001,
        far=1.5,
        samples=samples,
        orthographic_height=orthographic_height,
    )
    assert (frames["depth"] >= np.float32(0.001) - np.float32(2e-7)).all()
    assert (frames["depth"] <= 1.5).all()


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("orthographic_height", [np.nan, 4.0])
def test_the_near_plane_may_touch(renderer: Renderer, samples: int, orthographic_height: float) -> None:
    # Faces exactly on the near plane, edges in it, corners at the eye, and a box around it all.
    pieces = [
        Piece("quad", pose((0, 0.5, 0), 0.2), "ffffff", 1),
        Piece("box", pose((0.5, 0.5, 0)), "ffffff", 2),
        Piece("plane", pose((0, 0, 0), (2, 2, 1)), "ffffff", 3),
        Piece("plane", pose((0, 0.5, -0.2), (2, 1, 1)), "ffffff", 4, "checker"),
        Piece("quad", pose((0, 0, 0), 2.0), "ffffff", 5),
        Piece("box", pose((0, 0, 0), 9.0), "ffffff", 6),
    ]
    frames = draw(renderer, build((Look(), pieces)), near=0.5, samples=samples, orthographic_height=orthographic_height)
    assert (frames["depth"] >= 0.5 * (1 - 1e-6)).all()
    assert (frames["depth"] <= 100.0).all()
    assert frames["segmentation"][12, 12] == 1


@pytest.mark.parametrize("samples", [1, 4])
def test_one_pixel_is_a_picture(renderer: Renderer, samples: int) -> None:
    frames = draw(renderer, build((Look(), [BOX])), width=1, height=1, fov_degrees=5, samples=samples)
    assert frames["segmentation"].tolist() == [[1]]
    assert frames["depth"][0, 0] == pytest.approx(4.5)


def test_no_views_are_no_work(renderer: Renderer) -> None:
    views = make_views(np.zeros(0, np.int32))
    offsets, _ = lay_out(views)
    arena = np.full(16, 0xA5, np.uint8)
    renderer.draw(build((Look(), [BOX])), views, arena, offsets)
    renderer.draw(Scene(assets()), views, arena, offsets)
    assert (arena == 0xA5).all()


ODD_NUMBERS = [0.0, -0.0, 1.0, -1.0, 1e-20, 1e-6, 1e6, 1e20, 3e38, np.nan, np.inf, -np.inf]
ODD = st.sampled_from(ODD_NUMBERS)
SMALL = st.floats(-3, 3, width=32)


def odd(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return mostly ordinary numbers, and some extreme ones."""
    return np.where(rng.random(shape) < 0.2, rng.choice(ODD_NUMBERS, shape), rng.uniform(-1, 2, shape))


@st.composite
def scenes(draw_from: st.DrawFn) -> Scene:
    """Return lanes of a few rows each; most poses are ordinary, some are arbitrary."""
    scene = Scene(assets())
    for _ in range(draw_from(st.integers(1, 3))):
        (lane,) = scene.add(1, draw_from(st.integers(0, 4)))
        for row in scene.rows(lane)[0].tolist():
            instances = scene.instances
            instances.mesh[row] = draw_from(st.integers(-1, 5))
            instances.texture[row] = draw_from(st.integers(NO_TEXTURE, 3))
            numbers = draw_from(st.lists(st.one_of(SMALL, SMALL, SMALL, ODD), min_size=14, max_size=14))
            instances.pose[row] = np.reshape(numbers[:12], (3, 4))
            instances.uv_scale[row] = numbers[12:]
            instances.label[row] = draw_from(st.integers(0, 255))
            instances.alpha[row] = draw_from(st.sampled_from([1.0, 1.0, 0.5, 1e-30, 0.9949, 0.0, -1.0, np.nan, np.inf]))
        scene.lanes.fog_range[lane] = draw_from(
            st.sampled_from([(0, 0), (1, 4), (-1e30, 1e30), (np.nan, 1), (0, np.inf)])
        )
        scene.lanes.light_direction[lane] = draw_from(st.sampled_from([(0, 0, 0), (1, 2, 3), (1e30, 0, 0)]))
        scene.lanes.sky_textures[lane] = draw_from(st.sampled_from([NO_TEXTURE, assets().texture("evening 0")]))
        scene.lanes.lamp_count[lane] = draw_from(st.sampled_from([0, 1, MAX_LAMPS]))
        if scene.lanes.lamp_count[lane]:
            rng = np.random.default_rng(draw_from(st.integers(0, 2**32)))
            scene.lanes.lamps[lane] = odd(rng, MAX_LAMPS, LAMP_SIZE)
            scene.instances.shine[scene.rows(lane)[0]] = odd(rng, scene.rows(lane).size, 3)
    return scene


@st.composite
def batches(draw_from: st.DrawFn) -> tuple[Scene, ViewTable, I64, int]:
    """Return a scene, views of it, and offsets in any order and alignment, with gaps."""
    scene = draw_from(scenes())
    count = draw_from(st.integers(0, 5))

    def each(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw_from(st.lists(values, min_size=count, max_size=count))

    eyes = np.reshape(np.array(each(st.tuples(SMALL, SMALL, SMALL)), np.float64), (count, 3))
    targets = eyes + np.reshape(np.array(each(st.sampled_from(np.eye(3).tolist())), np.float64), (count, 3))
    views = make_views(
        np.array(each(st.integers(0, len(scene.lanes.first_row) - 1)), np.int32),
        camera=look_at(eyes, targets),
        orthographic_height=np.array(each(st.sampled_from([np.nan, np.nan, 0.1, 5.0])), np.float32),
        near=np.array(each(st.sampled_from([1e-3, 0.05, 1.0]))),
        far=np.array(each(st.sampled_from([1.5, 50.0, 1e6]))),
        width=np.array(each(st.integers(1, 20))),
        height=np.array(each(st.integers(1, 20))),
        outputs=np.array(each(st.integers(0, ALL_OUTPUTS))),
        samples=np.array(each(st.sampled_from([1, 4]))),
    )
    sizes = frame_bytes(views)
    offsets = np.full(sizes.shape, -1, np.int64)
    end = draw_from(st.integers(0, 5))
    for view, output in draw_from(st.permutations(np.argwhere(sizes > 0).tolist())):
        offsets[view, output] = end
        end += int(sizes[view, output]) + draw_from(st.integers(0, 9))
    return scene, views, offsets, end


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(batch=batches())
def test_every_byte_of_the_slots_is_written_and_no_other(
    renderer: Renderer, batch: tuple[Scene, ViewTable, I64, int]
) -> None:
    scene, views, offsets, end = batch
    note(f"{scene.instances} {scene.lanes}")
    covered = np.zeros(end, np.bool_)
    for start, size in zip(offsets.ravel().tolist(), frame_bytes(views).ravel().tolist(), strict=True):
        covered[start : start + size] |= size > 0
    arenas = [np.full(end, background, np.uint8) for background in (0xA5, 0x5A)]
    for arena in arenas:
        renderer.draw(scene, views, arena, offsets)
    assert (arenas[0][~covered] == 0xA5).all()
    assert (arenas[1][~covered] == 0x5A).all()
    assert np.array_equal(arenas[0][covered], arenas[1][covered])
    for view in np.flatnonzero(views.outputs & DEPTH):
        depth = np.frombuffer(picture_bytes(arenas[0], views, offsets, int(view)), np.float32)
        # An orthographic depth may be kept as its distance from far, in float32.
        rounding = 1e-5 * views.near[view] + 1.2e-7 * views.far[view] * views.orthographic[view]
        assert (depth >= views.near[view] - rounding).all()
        assert (depth <= views.far[view]).all()


def picture_bytes(arena: U8, views: ViewTable, offsets: I64, view: int) -> bytes:
    """Return the bytes of a depth frame, which may begin at any offset."""
    column = OUTPUT_NAMES.index("depth")
    start = int(offsets[view, column])
    return arena[start : start + int(frame_bytes(views)[view, column])].tobytes()


def test_orthographic_near_may_be_behind_the_camera(renderer: Renderer) -> None:
    behind = Piece("box", pose((0, -2, 0)), "ffffff", 3)
    frames = draw(renderer, build((Look(), [behind])), orthographic_height=4.0, near=-5.0, far=5.0)
    assert frames["segmentation"][12, 12] == 3
    assert frames["depth"][12, 12] == pytest.approx(-2.5)
