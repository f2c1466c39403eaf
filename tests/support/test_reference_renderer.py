"""The reference renderer, in cases whose pixels can be computed by hand."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support import reference_renderer as reference
from tests.support.scene_builder import ALL_OUTPUTS, Look, Piece, build, pose
from worldloom.kernels.tables import ViewTable
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

PLAIN = Look(sun=(0, 0, 0), ambient=(1, 1, 1), ambient_ground=(1, 1, 1), horizon=(0, 0, 0), zenith=(0, 0, 1))
"""Every surface shows its own colour."""
NORTH = look_at((0, 0, 0), (0, 1, 0))
DOWN = look_at((0, 0, 10), (0, 0, 0), up=(0, 1, 0))
COLOR = (0.4, 0.8, 2 / 15)
BYTES = [102, 204, 34]


def render(pieces: list[Piece], look: Look = PLAIN, **view: Any) -> dict[str, NDArray[Any]]:
    scene, views = stage(pieces, look, **view)
    return reference.render(scene, views, 0)


def stage(pieces: list[Piece], look: Look = PLAIN, **view: Any) -> tuple[Scene, ViewTable]:
    given = {"camera": NORTH, "fov_degrees": 90.0, "width": 16, "height": 16, "outputs": ALL_OUTPUTS, **view}
    return build((look, pieces)), make_views(0, **given)


def facing_quad(size: float, distance: float, **more: Any) -> Piece:
    return Piece("quad", pose((0, distance, 0), size), COLOR, 7, **more)


def square(first: int, last: int, size: int = 16) -> NDArray[np.bool_]:
    """A picture that is True in these rows and columns, the last ones included."""
    inside = (np.arange(size) >= first) & (np.arange(size) <= last)
    return inside[:, None] & inside


def test_a_quad_fills_the_pixels_worked_out_on_paper() -> None:
    # Edges one metre from the axis, four metres away: a quarter of the half picture, 8 ± 2 pixels.
    shown = render([facing_quad(2.0, 4.0)])
    inside = square(6, 9)
    assert np.array_equal(shown["segmentation"], np.where(inside, 7, 0))
    assert np.array_equal(shown["depth"], np.where(inside, np.float32(4.0), np.float32(100.0)))
    assert (shown["rgb"][inside] == BYTES).all()
    assert (shown["gray"][inside] == (77 * 102 + 150 * 204 + 29 * 34 + 128) // 256).all()


def test_edges_through_centres_belong_to_the_top_and_the_left() -> None:
    # 8 ± 1.5 pixels: all four edges run through centres, and so does the diagonal between the two triangles.
    shown = render([facing_quad(1.5, 4.0)])
    assert np.array_equal(shown["segmentation"] == 7, square(6, 8))


def test_a_wide_picture_sees_more_to_the_sides() -> None:
    shown = render([facing_quad(2.0, 4.0)], width=32)
    assert np.array_equal(shown["segmentation"] == 7, np.pad(square(6, 9), ((0, 0), (8, 8))))


def test_the_depth_of_a_floor_grows_as_one_over_the_angle() -> None:
    floor = Piece("plane", pose((0, 0, -1), (1000, 1000, 1)), COLOR, 1)
    depth = render([floor])["depth"]
    below_horizon = (np.arange(8, 16) + 0.5) / 8 - 1  # slope of the ray through each row below the middle
    assert np.allclose(depth[8:], (1 / below_horizon)[:, None], rtol=1e-6)
    assert (depth[:8] == 100).all()


def test_the_depth_of_a_slanted_plane() -> None:
    # From one metre above, 45° down: the middle of the picture is √2 m away.
    floor = Piece("plane", pose((0, 0, -1), (1000, 1000, 1)), COLOR, 1)
    depth = render([floor], camera=look_at((0, 0, 0), (0, 1, -1)), width=1, height=1)["depth"]
    assert depth[0, 0] == pytest.approx(np.sqrt(2), rel=1e-6)


def test_near_is_drawn_and_far_is_not() -> None:
    quad = facing_quad(2.0, 4.0)
    assert render([quad], near=4.0)["segmentation"].any()
    assert not render([quad], far=4.0)["segmentation"].any()
    assert not render([quad], near=4.001)["segmentation"].any()


def test_the_nearest_wins_whatever_the_order_and_the_first_among_equals() -> None:
    near, behind = facing_quad(2.0, 4.0), facing_quad(8.0, 5.0)._replace(label=8)
    for pieces in ([near, behind], [behind, near]):
        assert render(pieces)["segmentation"][8, 8] == 7
    assert render([near, near._replace(label=9)])["segmentation"][8, 8] == 7


def test_checker_squares_lie_where_the_uvs_say() -> None:
    # From above, eight pixels for two metres: a pixel is 32 texels, its centre is the centre of a texel of level 5.
    board = Piece("plane", pose((0, 0, 0), (2, 2, 1)), (1, 1, 1), 1, "checker")
    shown = render([board], camera=DOWN, orthographic_height=2.0, width=8, height=8)["rgb"][..., 0]
    light = np.kron([[1, 0], [0, 1]], np.ones((4, 4)))
    assert np.array_equal(shown, np.where(light, 235, 120))


def test_texels_are_blended_between_their_centres() -> None:
    # One tiny pixel, a quarter texel right of the middle, where light meets dark: u = 128.25, v = 64 texels.
    board = Piece("plane", pose((0, 0, 0), (256, 256, 1)), (1, 1, 1), 1, "checker")
    camera = look_at((0.25, 64, 10), (0.25, 64, 0), up=(0, 1, 0))
    shown = render([board], camera=camera, orthographic_height=0.01, width=1, height=1)["rgb"]
    assert shown[0, 0, 0] == round(0.25 * 235 + 0.75 * 120)


def test_orthographic_blocks_fill_their_pixels() -> None:
    # Half a metre a pixel. The second block reaches from 10.3 to 12.7 and from 1.52 to 3.52 pixels.
    blocks = [
        Piece("plane", pose((-2.0, 2.0, 0), (1, 1, 1)), COLOR, 1),
        Piece("plane", pose((1.75, 2.74, 0), (1.2, 1.0, 1)), COLOR, 2),
    ]
    shown = render(blocks, camera=DOWN, orthographic_height=8.0)
    expected = np.zeros((16, 16))
    expected[3:5, 3:5] = 1
    expected[2:4, 10:13] = 2
    assert np.array_equal(shown["segmentation"], expected)
    assert (shown["depth"][expected > 0] == 10).all()


def test_fog_halfway() -> None:
    fog = PLAIN._replace(fog=(0.8, 0.0, 0.0), fog_range=(2.0, 6.0))
    shown = render([facing_quad(2.0, 4.0)], fog)["rgb"]
    assert shown[8, 8].tolist() == [153, 102, 17]
    assert shown[0, 0].tolist() == render([], PLAIN)["rgb"][0, 0].tolist()
    clear = PLAIN._replace(fog=(0.8, 0.0, 0.0), fog_range=(6.0, 6.0))
    assert render([facing_quad(2.0, 4.0)], clear)["rgb"][8, 8].tolist() == BYTES


def test_the_sky_runs_from_horizon_to_zenith() -> None:
    straight_up = render([], camera=look_at((0, 0, 0), (0, 0, 1)), width=1, height=1)["rgb"]
    assert straight_up[0, 0].tolist() == [0, 0, 255]
    up_30_degrees = render([], camera=look_at((0, 0, 0), (0, np.sqrt(3), 1)), width=1, height=1)["rgb"]
    assert up_30_degrees[0, 0].tolist() == [0, 0, round(255 * 0.5 * 1.5)]
    assert not render([], camera=NORTH)["rgb"][8:].any()
    flat = render([], camera=DOWN, orthographic_height=1.0, height=2)["rgb"][:, 0, 2]
    assert flat.tolist() == [round(255 * 0.75 * 1.25), round(255 * 0.25 * 1.75)]


def test_four_samples_blend_colours_but_not_depth_or_labels() -> None:
    # One pixel, one metre wide. Of the points at 3, 7, 1 and 5 eighths from the left, two lie in either half of it.
    black = PLAIN._replace(zenith=(0, 0, 0))
    for x, label, depth in ((-0.5, 7, 10.0), (0.5, 0, 100.0)):
        half = Piece("plane", pose((x, 0, 0), (1, 2, 1)), COLOR, 7)
        shown = render([half], black, camera=DOWN, orthographic_height=1.0, width=1, height=1, samples=4)
        assert shown["rgb"][0, 0].tolist() == [51, 102, 17]
        assert shown["segmentation"][0, 0] == label
        assert shown["depth"][0, 0] == depth


def test_four_samples_shade_at_the_centre() -> None:
    # The top half of the pixel has the first two points. The slope's depth is that of its plane at the pixel's centre.
    slope = Piece("plane", pose((0, 0.25, 0.25), (4, np.sqrt(0.5), 1), roll=45), COLOR, 7)
    shown = render([slope], camera=DOWN, orthographic_height=1.0, width=1, height=1, samples=4)
    assert shown["segmentation"][0, 0] == 7
    assert shown["depth"][0, 0] == pytest.approx(10.0, rel=1e-6)


def test_one_sided_meshes_are_not_seen_from_inside_and_survive_mirroring() -> None:
    box, mirrored = (Piece("box", pose((0, 5, 0), size), COLOR, 7) for size in (2.0, (-2.0, 2.0, 2.0)))
    assert np.array_equal(render([box])["depth"], render([mirrored])["depth"])
    assert render([box])["depth"][8, 8] == 4.0
    for around in (Piece("box", pose((0, 0, 0), size), COLOR, 7) for size in (2.0, (2.0, 2.0, -2.0))):
        assert not render([around])["segmentation"].any()


def test_light_falls_on_the_side_that_is_seen() -> None:
    # The light shines down, and the ambient light from above and from below is not the same.
    look = Look(sun_at=(0, 0, 2), sun=(0.4, 0.4, 0.4), ambient=(0.4, 0, 0), ambient_ground=(0, 0.2, 0))
    plane = Piece("plane", pose((0, 0, 0)), (1, 1, 1), 1)
    up = render([plane], look, camera=DOWN, width=1, height=1)["rgb"][0, 0]
    assert up.tolist() == [204, 102, 102]
    from_below = look_at((0, 0, -10), (0, 0, 0), up=(0, 1, 0))
    assert render([plane], look, camera=from_below, width=1, height=1)["rgb"][0, 0].tolist() == [0, 51, 0]


@pytest.mark.parametrize("mirror", [1.0, -1.0])
def test_normals_stay_square_to_a_stretched_surface(mirror: float) -> None:
    # A roof at 45°, made twice as high: its right side rises 2 to 1, so its normal is (2, 0, 1) / √5.
    look = Look(sun_at=(0, 0, 1), sun=(0.5, 0.5, 0.5), ambient=(0.4, 0.4, 0.4), ambient_ground=(0, 0, 0))
    tall = Piece("roof", pose((0, 0, 0), (mirror, 1.0, 2.0)), (1, 1, 1), 1)
    camera = look_at((0.25, 0, 10), (0.25, 0, 0), up=(0, 1, 0))
    shown = render([tall], look, camera=camera, orthographic_height=0.1, width=1, height=1)["rgb"][0, 0, 0]
    up = 1 / np.sqrt(5)
    assert shown == round(255 * (0.4 * (0.5 + 0.5 * up) + 0.5 * up))


def test_poses_that_are_not_finite_draw_nothing() -> None:
    broken = facing_quad(2.0, 4.0)
    broken.pose[0, 3] = np.nan
    assert not render([broken])["segmentation"].any()


def test_silhouettes_are_the_edges_and_their_neighbours() -> None:
    edges = reference.silhouettes(*stage([facing_quad(2.0, 4.0)]), 0)
    assert np.array_equal(edges, square(5, 10) & ~square(7, 8))
    # A box corner first: its vertical edges are at 4.23, 8 and 11.77 pixels.
    box = Piece("box", pose((0, 3, 0), 2.0, yaw=45), COLOR, 1)
    assert np.flatnonzero(reference.silhouettes(*stage([box]), 0)[8]).tolist() == [3, 4, 7, 8, 11, 12]


def test_triangle_ids_tell_rows_and_triangles_apart() -> None:
    scene, views = stage([facing_quad(2.0, 4.0)])
    ids = reference.triangle_ids(scene, views, 0)
    quad = scene.assets.table.mesh_first_triangle[scene.assets.mesh("quad")]
    assert set(np.unique(ids)) == {-1, quad, quad + 1}
    assert ids[9, 9] == quad  # the lower right of the two
    assert ids[6, 6] == quad + 1
