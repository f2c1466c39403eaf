"""The light and sky of the reference renderer, in cases whose pixels can be computed by hand."""

from typing import Any

import numpy as np
import pytest

from tests.support import reference_renderer as reference
from tests.support.scene_builder import Lamp, Look, Piece, assets, build, pose
from worldloom.kernels.tables import DIRECTIONAL, HEADLIGHT, SPOT
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

DOWN = look_at((0, 0, 10), (0, 0, 0), up=(0, 1, 0))
WHITE = (1.0, 1.0, 1.0)
HALF = (0.5, 0.5, 0.5)
COLOR = (0.4, 0.8, 0.2)
FLOOR = Piece("plane", pose((0, 0, 0), (100, 100, 1)), COLOR, 1)


def seen(lamps: list[Lamp], piece: Piece = FLOOR, fog: Look | None = None, **view: Any) -> list[float]:
    """The one pixel in the middle, in 0..1: of the floor from straight above unless told."""
    scene = build(((fog or Look())._replace(lamps=lamps), [piece]))
    views = make_views(0, **{"camera": DOWN, "fov_degrees": 1.0, "width": 1, "height": 1, **view})
    pixel = reference.render(scene, views, 0)["rgb"][0, 0]
    return [level / 255 for level in pixel.tolist()]


def near(*color: float) -> Any:
    return pytest.approx(color, abs=0.5 / 255 + 1e-5)  # half a level; the tables are in float32


def test_a_head_lamp_shines_the_way_the_camera_looks() -> None:
    lamp = Lamp(HEADLIGHT, at=(5, 5, 5), towards=(1, 0, 0), ambient=(0.1, 0.1, 0.1), diffuse=HALF)
    assert seen([lamp]) == near(0.24, 0.48, 0.12)
    slanted = look_at((0, -10, 10), (0, 0, 0))
    strength = 0.1 + 0.5 * np.sqrt(0.5)
    assert seen([lamp], camera=slanted) == near(0.4 * strength, 0.8 * strength, 0.2 * strength)
    assert seen([lamp], camera=slanted, orthographic_height=1.0) == seen([lamp], camera=slanted)


@pytest.mark.parametrize("length", [1.0, 7.0])
def test_a_sun_shines_one_way_everywhere(length: float) -> None:
    sixty_degrees = (length * np.sqrt(3), 0, -length)
    assert seen([Lamp(DIRECTIONAL, (0, 0, -9), sixty_degrees, diffuse=WHITE)]) == near(0.2, 0.4, 0.1)
    assert seen([Lamp(DIRECTIONAL, towards=(0, 0, 1), diffuse=WHITE)]) == [0, 0, 0]


def test_lamps_add_up() -> None:
    red, green = Lamp(HEADLIGHT, diffuse=(0.5, 0, 0)), Lamp(DIRECTIONAL, diffuse=(0, 0.5, 0))
    assert seen([red, green, red]) == near(0.4, 0.4, 0)


def test_a_lamp_from_a_place_fades_with_distance() -> None:
    assert seen([Lamp(SPOT, (0, 0, 2), diffuse=WHITE)]) == near(*COLOR)
    # 0.5 + 0.5 · 2 + 0.25 · 4 = 2.5
    assert seen([Lamp(SPOT, (0, 0, 2), diffuse=WHITE, attenuation=(0.5, 0.5, 0.25))]) == near(0.16, 0.32, 0.08)
    # Three metres aside and four up: five away, at a cosine of 0.8; the ambient part fades as well.
    aside = Lamp(SPOT, (3, 0, 4), ambient=HALF, diffuse=WHITE, attenuation=(0, 0.4, 0))
    assert seen([aside]) == near(0.26, 0.52, 0.13)


def test_a_cone_ends_at_its_angle() -> None:
    # At 45° from where the lamp points, and three quarters of the light are in the ambient part.
    for degrees, lit in ((44.9, 0.0), (45.1, 1.0), (100.0, 1.0)):
        lamp = Lamp(SPOT, (0, 3, 3), ambient=(0.75, 0.75, 0.75), cone_degrees=degrees)
        assert seen([lamp]) == near(0.3 * lit, 0.6 * lit, 0.15 * lit)
    behind = Lamp(SPOT, (0, 0, 3), (0, 1, 0.1), ambient=WHITE, cone_degrees=120.0)
    assert seen([behind]) == [0, 0, 0], "no cone reaches backward"
    assert seen([behind._replace(cone_degrees=180.0)]) == near(*COLOR)


def test_a_cone_is_brightest_in_its_middle() -> None:
    lamp = Lamp(SPOT, (0, 3, 3), ambient=WHITE, cone_degrees=60.0, exponent=4.0)
    assert seen([lamp]) == near(0.1, 0.2, 0.05)
    assert seen([lamp._replace(towards=(0, -2, -2))]) == near(*COLOR)
    assert seen([lamp._replace(cone_degrees=180.0)]) == near(*COLOR), "all around, the exponent does not count"


def test_a_mirror_shows_the_lamp_at_the_right_angle() -> None:
    black = FLOOR._replace(color=(0, 0, 0), shine=(0.0, 0.5, 2.0))
    lamp = Lamp(DIRECTIONAL, towards=(0, 1, -1), specular=(1, 0.6, 0.2))
    assert seen([lamp], black, camera=look_at((0, 10, 10), (0, 0, 0))) == near(0.5, 0.3, 0.1)
    # From above, halfway between lamp and viewer is 22.5° off the normal.
    part = 0.5 * np.cos(np.radians(22.5)) ** 2
    assert seen([lamp], black) == near(part, 0.6 * part, 0.2 * part)
    assert seen([lamp], black, orthographic_height=1.0) == near(part, 0.6 * part, 0.2 * part)
    assert seen([lamp], black._replace(shine=(0.0, 0.5, 0.0))) == near(0.5, 0.3, 0.1)
    grazing = lamp._replace(towards=(0, 1, 0.01))
    assert seen([grazing], black, camera=look_at((0, 10, 1), (0, 0, 0))) == [0, 0, 0], "from behind the surface"


def test_the_viewer_is_somewhere_else_for_every_pixel_in_perspective_only() -> None:
    black = FLOOR._replace(color=(0, 0, 0), shine=(0.0, 1.0, 40.0))
    scene = build((Look(lamps=[Lamp(HEADLIGHT, specular=WHITE)]), [black]))
    for height, flat in ((np.nan, False), (20.0, True)):
        views = make_views(0, camera=DOWN, fov_degrees=90, orthographic_height=height, width=9, height=9)
        levels = reference.render(scene, views, 0)["rgb"][..., 0]
        assert levels[4, 4] == 255
        assert (levels == 255).all() == flat


def test_what_glows_needs_no_light() -> None:
    glowing = FLOOR._replace(shine=(0.5, 0.0, 0.0))
    assert seen([Lamp(DIRECTIONAL)], glowing) == near(0.2, 0.4, 0.1)
    assert seen([Lamp(HEADLIGHT, diffuse=HALF)], glowing) == near(*COLOR)


def test_light_is_held_to_one_before_the_texture() -> None:
    # The dark squares of the board are 120 of 255; twice the light changes nothing, half of it does.
    board = Piece("plane", pose((0, 0, 0), (100, 100, 1)), WHITE, 1, "checker")
    place = look_at((25, 25, 10), (25, 25, 0), up=(0, 1, 0))
    for light, expected in ((2.0, 120), (1.0, 120), (0.5, 60)):
        lamp = Lamp(HEADLIGHT, ambient=(light, light, light))
        assert seen([lamp], board, camera=place) == near(*[expected / 255] * 3)


def test_light_without_lamps_does_not_count_beside_them_but_fog_does() -> None:
    look = Look(sun=WHITE, ambient=WHITE, ambient_ground=WHITE, fog=(0, 0, 1), fog_range=(5.0, 15.0))
    assert seen([Lamp(HEADLIGHT, diffuse=HALF)], fog=look) == near(0.1, 0.2, 0.55)


def library(size: int = 8) -> AssetLibrary:
    """Six sides: red tells which, green grows to the right, blue grows downward."""
    made = AssetLibrary(texture_size=size)
    steps = np.arange(size) * 256 // size
    for side in range(6):
        pixels = np.empty((size, size, 3), np.uint8)
        pixels[..., 0], pixels[..., 1], pixels[..., 2] = 40 * side, steps, steps[:, None]
        made.add_texture(f"side {side}", pixels)
    return made


def sky(size: int = 8, **view: Any) -> np.ndarray:
    made = library(size)
    scene = Scene(made)
    lane = scene.add(1, 0)
    scene.lanes.sky_textures[lane] = made.texture("side 0")
    views = make_views(0, **{"width": 1, "height": 1, "fov_degrees": 1.0, **view})
    return reference.render(scene, views, 0)["rgb"]


@pytest.mark.parametrize(
    ("towards", "side", "up", "right"),
    [
        # (s, t, r) = (x, z, -y): +s is east, -s west, +t up, -t down, +r south, -r north. Cube maps are drawn to be
        # seen from outside, so that the right of a side is on the left of who stands within.
        ((1, 0, 0), 0, (0, 0, 1), (0, 1, 0)),
        ((-1, 0, 0), 1, (0, 0, 1), (0, -1, 0)),
        ((0, 0, 1), 2, (0, 1, 0), (1, 0, 0)),
        ((0, 0, -1), 3, (0, -1, 0), (1, 0, 0)),
        ((0, -1, 0), 4, (0, 0, 1), (1, 0, 0)),
        ((0, 1, 0), 5, (0, 0, 1), (-1, 0, 0)),
    ],
)
def test_each_side_of_the_sky_lies_where_opengl_puts_it(
    towards: tuple[int, ...], side: int, up: tuple[int, ...], right: tuple[int, ...]
) -> None:
    along, above, beside = (np.array(way, np.float64) for way in (towards, up, right))
    for row, column in ((1, 1), (1, 6), (5, 2)):
        # The centre of a texel: the side is two metres wide, one metre away.
        target = along + ((column + 0.5) / 4 - 1) * beside - ((row + 0.5) / 4 - 1) * above
        camera = look_at((0, 0, 0), target, up=(0.3, 0.4, 0.5))
        assert sky(camera=camera)[0, 0].tolist() == [40 * side, 32 * column, 32 * row]


def test_a_flat_picture_has_one_colour_of_sky() -> None:
    shown = sky(camera=look_at((3, 4, 5), (4, 4.125, 5.125)), orthographic_height=1.0, width=5, height=5)
    assert (shown == [0, 32 * 4, 32 * 3]).all()


@pytest.mark.parametrize(("texels", "level"), [(0.9, 0), (1.4, 0), (1.42, 1), (2.8, 1), (2.9, 2), (500.0, 3)])
def test_the_sky_is_read_at_one_level(texels: float, level: int) -> None:
    # A pixel of so many texels, at a corner of the side: what is beyond the last texel's centre is the last texel.
    fov = np.degrees(2 * np.arctan(texels / 8))
    shown = sky(camera=look_at((0, 0, 0), (1, -0.999, 0.999)), fov_degrees=fov)[0, 0]
    side = 8 >> level
    corner = np.arange(8).reshape(side, -1)[0].mean() * 32
    assert shown.tolist() == [0, round(corner), round(corner)]


def test_no_fog_touches_the_sky() -> None:
    scene = build((Look(sky="evening 0", fog=(1, 0, 0), fog_range=(1, 2)), []))
    views = make_views(
        0, camera=look_at((0, 0, 0), (0, 0, 1), up=(0, 1, 0)), fov_degrees=1, width=1, height=1, outputs=15
    )
    shown = reference.render(scene, views, 0)
    assert shown["rgb"][0, 0].tolist() == [43, 53, 102]
    assert shown["depth"][0, 0] == views.far[0]
    assert shown["segmentation"][0, 0] == 0
    assert assets().texture("evening 5") == assets().texture("evening 0") + 5
