"""Translucent rows: which there are, the order in which they are blended, and what does not depend on them."""

from typing import Any

import numpy as np
import pytest

from tests.support.scene_builder import ALL_OUTPUTS, Look, Piece, build, pose
from tests.support.scenes import SCENES
from worldloom.kernels.outputs import DEPTH, GRAY, OUTPUT_NAMES, RGB, SEGMENTATION
from worldloom.kernels.tables import ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.cpu import CPURenderer
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

PLAIN = Look(sun=(0, 0, 0), ambient=(1, 1, 1), ambient_ground=(1, 1, 1), horizon="000000", zenith="000000")
"""Every surface shows its own colour, before a black sky."""
NORTH = look_at((0, 0, 0), (0, 1, 0))
RED, GREEN, BLUE = "c80000", "00a000", "0000f0"


def draw(renderer: Renderer, scene: Scene, views: ViewTable) -> dict[str, np.ndarray]:
    """Return the frames of the first view."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    asked = [name for k, name in enumerate(OUTPUT_NAMES) if views.outputs[0] >> k & 1]
    return {name: get_frame(arena, views, offsets, 0, name).copy() for name in asked}


def see(renderer: Renderer, pieces: list[Piece], **view: Any) -> dict[str, np.ndarray]:
    given = {"camera": NORTH, "fov_degrees": 20, "width": 16, "height": 16, "outputs": ALL_OUTPUTS, **view}
    return draw(renderer, build((PLAIN, pieces)), make_views(0, **given))


def middle(renderer: Renderer, pieces: list[Piece], **view: Any) -> list[int]:
    """Return the colour of the middle of the picture."""
    return see(renderer, pieces, **view)["rgb"][8, 8].tolist()  # type: ignore[no-any-return]


def over(color: str, alpha: float, below: list[int]) -> list[int]:
    """Blend as on paper."""
    levels = np.array(list(bytes.fromhex(color)), np.float64)
    return np.floor(below + np.float32(alpha) * (levels - below) + 0.5).astype(int).tolist()  # type: ignore[no-any-return]


def ball(distance: float, color: str, alpha: float, size: float = 1.0) -> Piece:
    return Piece("sphere", pose((0, distance, 0), size), color, 7, alpha=alpha)


@pytest.mark.parametrize("height", [np.nan, 6.0])
@pytest.mark.parametrize("samples", [1, 4])
def test_layers_are_blended_from_far_to_near_in_any_order_of_rows(
    renderer: Renderer, samples: int, height: float
) -> None:
    far, between, near = ball(7.0, RED, 0.5), ball(5.0, GREEN, 0.25), ball(3.0, BLUE, 0.7)
    wanted = over(BLUE, 0.7, over(GREEN, 0.25, over(RED, 0.5, [0, 0, 0])))
    how = {"samples": samples, "orthographic_height": height}
    assert middle(renderer, [far, between, near], **how) == wanted
    assert middle(renderer, [near, far, between], **how) == wanted
    assert middle(renderer, [between, near, far], **how) == wanted


def test_the_nearest_point_of_a_ball_counts_not_its_middle(renderer: Renderer) -> None:
    large, small = ball(6.0, RED, 0.5, size=6.0), ball(4.0, GREEN, 0.5, size=0.5)
    wanted = over(RED, 0.5, over(GREEN, 0.5, [0, 0, 0]))
    assert middle(renderer, [large, small]) == middle(renderer, [small, large]) == wanted


def test_a_plane_is_blended_before_what_stands_on_it(renderer: Renderer) -> None:
    wall = Piece("quad", pose((0, 5, 0), 8.0), BLUE, 2, alpha=0.5)
    before = ball(4.0, RED, 0.5)
    assert middle(renderer, [before, wall]) == over(RED, 0.5, over(BLUE, 0.5, [0, 0, 0]))
    window = Piece("quad", pose((0, 3, 0), 1.0), GREEN, 3, alpha=0.5)
    wanted = over(GREEN, 0.5, over(RED, 0.5, over(BLUE, 0.5, [0, 0, 0])))
    assert middle(renderer, [window, ball(9.0, RED, 0.5), wall._replace(pose=pose((0, 12, 0), 8.0))]) == wanted


def test_rows_of_equal_keys_keep_their_order(renderer: Renderer) -> None:
    first, second = ball(4.0, RED, 0.5), ball(4.0, GREEN, 0.5)
    assert middle(renderer, [first, second]) == over(GREEN, 0.5, over(RED, 0.5, [0, 0, 0]))
    assert middle(renderer, [second, first]) == over(RED, 0.5, over(GREEN, 0.5, [0, 0, 0]))


def test_opaque_rows_hide_layers_and_show_through_them(renderer: Renderer) -> None:
    glass = ball(4.0, RED, 0.5)
    assert middle(renderer, [glass, ball(2.5, GREEN, 1.0)]) == over(GREEN, 1.0, [0, 0, 0])
    assert middle(renderer, [glass, ball(6.0, GREEN, 1.0)]) == over(RED, 0.5, over(GREEN, 1.0, [0, 0, 0]))


def test_a_row_is_one_layer_whatever_its_mesh(renderer: Renderer) -> None:
    # A torus seen from the side: four of its surfaces lie along the ray, two of them fronts.
    torus = Piece("torus", pose((0, 4, 0), 2.0), RED, 1)
    solid = see(renderer, [torus], width=48, height=48)["rgb"].astype(np.float64)
    glass = see(renderer, [torus._replace(alpha=0.5)], width=48, height=48)["rgb"]
    assert np.array_equal(glass, np.floor(0.5 * solid + 0.5))


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.nan, -np.inf])
def test_rows_without_alpha_are_not_drawn(renderer: Renderer, alpha: float) -> None:
    behind = ball(6.0, GREEN, 1.0)
    alone, beside = see(renderer, [behind]), see(renderer, [ball(4.0, RED, alpha), behind])
    assert all(np.array_equal(alone[name], beside[name]) for name in OUTPUT_NAMES)


@pytest.mark.parametrize("alpha", [0.995, 2.0, np.inf])
def test_rows_of_full_alpha_are_opaque(renderer: Renderer, alpha: float) -> None:
    opaque, given = (see(renderer, [ball(4.0, RED, a), ball(6.0, GREEN, 1.0)]) for a in (1.0, alpha))
    assert all(np.array_equal(opaque[name], given[name]) for name in OUTPUT_NAMES)


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("name", ["glasshouse", "lantern"])
def test_depth_and_labels_are_those_of_opaque_rows(renderer: Renderer, name: str, samples: int) -> None:
    scene, views = SCENES[name](50, 40, samples)
    glass = draw(renderer, scene, views)
    kept = scene.instances.alpha.copy()
    scene.instances.alpha[kept > 0] = 1.0
    opaque = draw(renderer, scene, views)
    scene.instances.alpha[:] = kept
    assert np.array_equal(glass["depth"], opaque["depth"])
    assert np.array_equal(glass["segmentation"], opaque["segmentation"])
    assert not np.array_equal(glass["rgb"], opaque["rgb"])


@pytest.mark.parametrize("samples", [1, 4])
def test_each_output_alone_is_the_same(renderer: Renderer, samples: int) -> None:
    scene, views = SCENES["glasshouse"](50, 40, samples)
    every = draw(renderer, scene, views)
    for outputs in (RGB, GRAY, DEPTH, SEGMENTATION, RGB | DEPTH, GRAY | SEGMENTATION):
        some = draw(renderer, scene, views._replace(outputs=np.full_like(views.outputs, outputs)))
        assert all(np.array_equal(frame, every[name]) for name, frame in some.items())


@pytest.mark.parametrize("samples", [1, 4])
def test_bands_of_a_large_view_are_the_same_as_the_whole(samples: int) -> None:
    scene, views = SCENES["glasshouse"](320, 300, samples)
    frames = []
    for threads in (1, 3):
        with CPURenderer(threads=threads) as renderer:
            frames.append(draw(renderer, scene, views))
    assert all(np.array_equal(frames[0][name], frames[1][name]) for name in OUTPUT_NAMES)


@pytest.mark.gl
def test_both_renderers_blend_a_crowd_alike(cpu: Renderer, gl: Renderer) -> None:
    rng = np.random.default_rng(0)
    pieces = []
    for color, alpha in zip(rng.choice([RED, GREEN, BLUE, "ffffff"], 60), rng.uniform(0.05, 0.9, 60), strict=True):
        x, y, z, size, yaw, pitch = rng.uniform((-2, 4, -2, 0.5, 0, 0), (2, 9, 2, 2, 360, 360)).tolist()
        pieces.append(Piece("box", pose((x, y, z), size, yaw, pitch), str(color), 1, alpha=float(alpha)))
    by_cpu, by_gl = (see(renderer, pieces, width=96, height=96)["rgb"].astype(int) for renderer in (cpu, gl))
    apart = np.abs(by_cpu - by_gl).max(axis=-1)
    # 60 layers, each rounded: float32 may round one to the other side of a half; and pixels on edges.
    assert (apart <= 1).mean() >= 0.99
