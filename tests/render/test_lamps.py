"""Random lamps and skies: both renderers draw what the reference renderer does."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import reference_renderer as reference
from tests.support.scene_builder import Lamp, Look, Piece, build, pose
from worldloom.kernels.gl.packing import LAMP_FLOATS
from worldloom.kernels.tables import DIRECTIONAL, HEADLIGHT, LAMP_DIRECTION, MAX_LAMPS, SPOT, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.gl.pages import plan_pages
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

SIZE = 24
MESHES = ("box", "sphere", "capsule", "plane", "torus", "cylinder")
EVENING = Look(sky="evening 0")
SKIES = (
    EVENING,
    EVENING._replace(is_one_sky=True),
    EVENING._replace(is_screen_sky=True),
    EVENING._replace(is_tinted_sky=True),
)


def some_lamps(rng: np.random.Generator, count: int) -> list[Lamp]:
    return [
        Lamp(
            kind=int(rng.choice([DIRECTIONAL, SPOT, HEADLIGHT])),
            at=tuple(rng.uniform(-3, 3, 3)),
            towards=tuple(rng.normal(size=3)),
            ambient=tuple(rng.uniform(0, 0.1, 3)),
            diffuse=tuple(rng.uniform(0, 0.6, 3)),
            specular=tuple(rng.uniform(0, 0.6, 3)),
            attenuation=tuple(rng.uniform((0.5, 0, 0), (2.0, 0.5, 0.2))),
            cone_degrees=float(rng.choice([180.0, rng.uniform(5, 120)])),
            exponent=float(rng.choice([0.0, 10.0, rng.uniform(0, 60)])),
        )
        for _ in range(count)
    ]


def some_pieces(rng: np.random.Generator, count: int) -> list[Piece]:
    return [
        Piece(
            str(rng.choice(MESHES)),
            pose(tuple(rng.uniform(-1, 1, 3)), tuple(rng.uniform(0.5, 1.6, 3)), *rng.uniform(0, 360, 3)),
            tuple(rng.uniform(0.1, 1, 3)),
            1 + number,
            [None, "wood", "checker"][rng.integers(3)],
            shine=(
                float(rng.choice([0.0, 0.4])),
                float(rng.uniform(0, 1)),
                float(rng.choice([0.0, 64.0, rng.uniform(0, 128)])),
            ),
        )
        for number in range(count)
    ]


def compare(renderer: Renderer, scene: Scene, views: ViewTable) -> np.ndarray:
    """Return the difference of pixels in levels, away from silhouettes."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    hits = reference.cast(scene, views, 0)
    expected = reference.render(scene, views, 0, hits)["rgb"].astype(np.int64)
    apart: np.ndarray = abs(get_frame(arena, views, offsets, 0, "rgb") - expected).max(axis=2)
    return apart[~reference.silhouettes(scene, views, 0, hits)]


def from_somewhere(rng: np.random.Generator, distance: float, **view: Any) -> ViewTable:
    eye = rng.normal(size=3)
    camera = look_at(distance * eye / np.linalg.norm(eye), rng.normal(size=3) * 0.2, up=rng.normal(size=3))
    return make_views(0, camera=camera, width=SIZE, height=SIZE, **view)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), lamps=st.integers(1, MAX_LAMPS), flat=st.booleans(), samples=st.sampled_from([1, 4]))
def test_any_lamps(renderer: Renderer, seed: int, lamps: int, flat: bool, samples: int) -> None:
    rng = np.random.default_rng(seed)
    scene = build((Look(lamps=some_lamps(rng, lamps), fog_range=(3.0, 20.0)), some_pieces(rng, 5)))
    views = from_somewhere(rng, 5.0, orthographic_height=4.0 if flat else np.nan, samples=samples)
    apart = compare(renderer, scene, views)
    # A last bit says on which side of a cone's edge, or of a mirror that just turns away, a pixel is: in 1500 scenes,
    # one pixel in each of three.
    assert np.count_nonzero(apart > 1) <= 2


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), fov=st.floats(1, 150), flat=st.booleans(), look=st.sampled_from(SKIES))
def test_a_sky_seen_in_any_direction(renderer: Renderer, seed: int, fov: float, flat: bool, look: Look) -> None:
    rng = np.random.default_rng(seed)
    views = from_somewhere(rng, 1.0, fov_degrees=fov, orthographic_height=4.0 if flat else np.nan)
    apart = compare(renderer, build((look, [])), views)
    # A ray may meet the edge between two sides to the last bit.
    assert np.count_nonzero(apart > 1) <= 1


@pytest.mark.parametrize("samples", [1, 4])
def test_lanes_with_and_without_lamps_and_skies_in_one_draw(renderer: Renderer, samples: int) -> None:
    rng = np.random.default_rng(3)
    looks = [Look(lamps=some_lamps(rng, count), sky=sky) for count in (0, 2, MAX_LAMPS) for sky in (None, "evening 0")]
    scene = build(*((look, some_pieces(rng, 3)) for look in looks))
    camera = look_at((0.5, -4.5, 1), (0, 0, 0))
    views = make_views(np.arange(len(looks)), camera=camera, width=SIZE, height=SIZE, samples=samples)
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    for view in range(len(looks)):
        expected = reference.render(scene, views, view)["rgb"].astype(np.int64)
        apart = abs(get_frame(arena, views, offsets, view, "rgb") - expected).max(axis=2)
        assert (apart <= 1).mean() >= 0.98  # on silhouettes a point in a hundred changes sides


def test_pages_keep_lamps_apart_and_within_the_smallest_table() -> None:
    scene = Scene(AssetLibrary(texture_size=4))
    lanes = scene.add(6000, 0)
    scene.lanes.lamp_count[lanes] = np.arange(6000) % 3 * 4
    scene.lanes.sky_textures[lanes[::2]] = 0
    pages = list(plan_pages(make_views(lanes, width=1, height=1), scene.lanes, lambda group: 2048))
    assert sorted(np.concatenate([page.views for page in pages]).tolist()) == lanes.tolist()
    for page in pages:
        assert ((scene.lanes.lamp_count[page.views] > 0) == page.has_lamps).all()
        assert ((scene.lanes.sky_textures[page.views] == 0) == page.has_sky_textures).all()
        assert not page.has_lamps or page.views.size * MAX_LAMPS * LAMP_FLOATS // 4 <= 65536


@pytest.mark.parametrize("exponent", [-120, -100, -40, 60, 100, 120])
@pytest.mark.parametrize("lamps", [0, 4])
def test_the_length_of_a_direction_does_not_matter(renderer: Renderer, lamps: int, exponent: int) -> None:
    """A power of two changes no digit of a direction, so not a bit of the frame may change."""
    rng = np.random.default_rng(7)
    scene = build((Look(lamps=some_lamps(rng, lamps)), some_pieces(rng, 5)))
    views = from_somewhere(rng, 5.0)
    offsets, size_bytes = lay_out(views)
    frames = []
    for factor in (1.0, 2.0**exponent):
        scene.lanes.light_direction[:] *= np.float32(factor)
        scene.lanes.lamps[:, :, LAMP_DIRECTION : LAMP_DIRECTION + 3] *= np.float32(factor)
        arena = allocate_arena(size_bytes)
        renderer.draw(scene, views, arena, offsets)
        frames.append(get_frame(arena, views, offsets, 0, "rgb").copy())
    assert np.array_equal(frames[0], frames[1])
    # The factor is in the table now: the reference renderer draws with it as well.
    assert np.count_nonzero(compare(renderer, scene, views) > 1) <= 2  # as in test_any_lamps


@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1e-10, 1e20, 1e300])
def test_the_length_of_up_and_the_distance_of_the_target_do_not_matter(factor: float) -> None:
    eye, forward, up = np.zeros(3), np.array([0.3, 0.9, -0.2]), np.array([0.1, 0.2, 0.9])
    expected = look_at(eye, forward, up)
    # A factor that is no power of two rounds the last digit of a double, which a float does not show.
    np.testing.assert_allclose(look_at(eye, forward, up * factor), expected, rtol=0, atol=1.2e-7)
    np.testing.assert_allclose(look_at(eye, forward * factor, up), expected, rtol=0, atol=1.2e-7)
