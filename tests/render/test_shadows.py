"""Shadows: what both renderers draw, compared with the reference; nothing of it in views without."""

from functools import cache

import numpy as np
import pytest

from tests.render.test_isolation import make_crowd
from tests.render.test_reference import EDGE_SHARE, EDGE_SHARE_OF_BOTH, FLOW_ERROR, Expected, agree
from tests.support import reference_renderer as reference
from tests.support.scene_builder import ALL_OUTPUTS, Look, Piece, assets, build, ground, pose
from tests.support.scenes import SCENES
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.kernels.tables import HEADLIGHT, LAMP_KIND, LAMP_POSITION, LAMP_SHADOW, STANDS_FOR_SHADOW, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.cpu import CPURenderer
from worldloom.render.gl.light_maps import fit
from worldloom.render.meshes import join, plane, quad, sphere
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

SIZE = 72
SHADOWED = (
    *(("spheres", 1), ("shadow_play", 1), ("twenty_one_boxes", 1), ("three_lights", 1), ("head_lamp", 1)),
    *(("lamplit_table", 1), ("mirror_lake", 1), ("three_lights", 4), ("shadow_play", 4), ("glasshouse", 1)),
)
"""Scenes and samples: suns and lamps of all kinds, flat and round shapes with and without textures, and fog."""
EVERY_SHADOWED = pytest.mark.parametrize(("name", "samples"), SHADOWED)
EDGE_SHARE_OF_LAMPS = 0.985  # where a lamp's ambient light ends with the side that faces it, too; measured 0.9896
DOWN = look_at((0.0, 0.0, 5.0), (0.0, 0.0, 0.0), (0.0, 1.0, 0.0))


def draw(renderer: Renderer, scene: Scene, views: ViewTable) -> list[dict[str, np.ndarray]]:
    """Return the frames of each view, by output."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    return [
        {name: get_frame(arena, views, offsets, view, name) for name in OUTPUT_NAMES} for view in range(len(views.lane))
    ]


@cache
def build_shadowed(name: str, samples: int) -> tuple[Scene, ViewTable]:
    scene, views = SCENES[name](SIZE, SIZE, samples)
    views.shadows[:] = 1
    return scene, views


@cache
def expect(name: str, samples: int) -> list[Expected]:
    scene, views = build_shadowed(name, samples)
    expected = []
    for view in range(len(views.lane)):
        hits = reference.cast(scene, views, view)
        edges = reference.silhouettes(scene, views, view, hits)
        expected.append(Expected(reference.render(scene, views, view, hits), edges))
    return expected


@EVERY_SHADOWED
def test_a_renderer_draws_shadows_as_the_rules_say(renderer: Renderer, name: str, samples: int) -> None:
    share = EDGE_SHARE_OF_LAMPS if name == "head_lamp" else EDGE_SHARE
    for got, expected in zip(draw(renderer, *build_shadowed(name, samples)), expect(name, samples), strict=True):
        agree(got, expected.frames, expected.edges, samples, FLOW_ERROR[renderer.name], share)


@pytest.mark.gl
@EVERY_SHADOWED
def test_the_renderers_agree_on_shadows(cpu: Renderer, gl: Renderer, name: str, samples: int) -> None:
    scene, views = build_shadowed(name, samples)
    share = EDGE_SHARE_OF_LAMPS if name == "head_lamp" else EDGE_SHARE_OF_BOTH
    for by_gl, by_cpu, expected in zip(
        draw(gl, scene, views), draw(cpu, scene, views), expect(name, samples), strict=True
    ):
        agree(by_gl, by_cpu, expected.edges, samples, FLOW_ERROR["gl"], share)


def test_shadows_are_part_of_the_reference() -> None:
    """Otherwise the tests above would compare nothing."""
    scene, views = build_shadowed("shadow_play", 1)
    lit = reference.render(scene, views._replace(shadows=np.zeros_like(views.shadows)), 0)["rgb"]
    assert (lit != expect("shadow_play", 1)[0].frames["rgb"]).any(axis=-1).mean() > 0.03


def test_without_shadows_nothing_of_them_counts(renderer: Renderer) -> None:
    scene, views = SCENES["three_lights"](SIZE, SIZE)
    expected = draw(renderer, scene, views)
    before = scene.instances.shadow.copy()
    scene.instances.shadow[:] = np.random.default_rng(2).integers(0, 3, before.size)
    got = draw(renderer, scene, views)
    scene.instances.shadow[:] = before
    for one, other in zip(got, expected, strict=True):
        assert all((one[name] == other[name]).all() for name in OUTPUT_NAMES)


def table_from_above(x: float, painted: bool = False) -> tuple[Scene, ViewTable]:
    """Return a floor with a board and a ball above it, under a sun that stands low, seen from above."""
    pieces = [
        ground("ffffff", 1, 16.0),
        Piece("plane", pose((0.1, 0.2, 0.6), (1.3, 0.7, 1), yaw=20), "4060c0", 2),
        Piece("sphere", pose((-0.6, -0.4, 0.5), 0.5), "c04040", 3),
    ]
    if painted:
        disc = Piece("plane", pose((1.2, 1.2, 0.1), (0.6, 0.6, 1)), "000000", 4, shadow=STANDS_FOR_SHADOW)
        pieces.append(disc)
    scene = build((Look(sun_at=(0.5, -0.3, 0.9)), pieces))
    camera = DOWN.copy()
    camera[0, 3] = x
    views = make_views(
        [0], camera=camera, orthographic_height=8.0, width=128, height=128, outputs=ALL_OUTPUTS, shadows=True
    )
    return scene, views


def test_shadows_do_not_crawl_when_the_camera_moves(renderer: Renderer) -> None:
    (still,) = draw(renderer, *table_from_above(0.0))
    assert (still["rgb"] != still["rgb"][0, 0]).any(axis=-1).mean() > 0.02
    for pixels in (1, 2, 5, 51, 60):  # the last two cut what casts
        (moved,) = draw(renderer, *table_from_above(pixels / 16))
        apart = np.abs(moved["rgb"][:, :-pixels].astype(int) - still["rgb"][:, pixels:])
        assert apart.max() <= 1  # a last bit of float32


def test_painted_shadows_are_not_shown_with_shadows(renderer: Renderer) -> None:
    (expected,) = draw(renderer, *table_from_above(0.0))
    scene, views = table_from_above(0.0, painted=True)
    (got,) = draw(renderer, scene, views)
    for name in OUTPUT_NAMES:
        assert (got[name] == expected[name]).all()
    (without,) = draw(renderer, scene, views._replace(shadows=np.zeros(1, np.uint8)))
    assert 4 in without["segmentation"]


@pytest.mark.parametrize("samples", [1, 4])
def test_other_outputs_have_the_same_bytes_without_colors(renderer: Renderer, samples: int) -> None:
    """Nobody sees their shadows, but what stands for one is hidden all the same."""
    scene, views = table_from_above(0.0, painted=True)
    views.samples[:] = samples
    (expected,) = draw(renderer, scene, views)
    for name in ("depth", "segmentation", "normals"):
        alone = views._replace(outputs=np.full(1, output_bits([name]), np.uint8))
        offsets, size_bytes = lay_out(alone)
        arena = allocate_arena(size_bytes)
        renderer.draw(scene, alone, arena, offsets)
        assert get_frame(arena, alone, offsets, 0, name).tobytes() == expected[name].tobytes()


def test_light_maps_are_fitted_for_colors_only() -> None:
    scene, views = table_from_above(0.0)
    page = np.zeros(1, np.int64)

    def maps(*names: str, shadows: int = 1) -> int:
        outputs = np.full(1, output_bits(names), np.uint8)
        asked = views._replace(outputs=outputs, shadows=np.full(1, shadows, np.uint8))
        return fit(scene.assets.table, scene.instances, scene.lanes, asked, page).size

    assert maps("rgb") == maps("gray") == maps("gray", "depth") == 1
    assert maps("depth", "segmentation", "normals", "flow") == maps("rgb", shadows=0) == 0


def test_what_casts_beside_the_frame_darkens_its_edge(renderer: Renderer) -> None:
    """Its shadow begins a little to the right of the last pixels, which read texels there.

    The light map reaches as far because of two boards that cross the whole frame.
    """
    pieces = [
        ground("808080", 1, 16.0),
        *(Piece("box", pose((0.0, y, 0.5), (30.0, 0.3, 0.1)), "4060c0", 2) for y in (-2.5, 2.5)),
        Piece("box", pose((4.55, 0.0, 0.5), (0.5, 2.0, 0.1)), "c04040", 3),
    ]
    scene = build((Look(sun_at=(0.0, 0.0, 1.0)), pieces))
    right = 4.55 - 0.25 - 1e-3  # of the frame: a little before the box on that side, and before the middle of a texel
    darkened = 0
    for width_m in np.linspace(7.0, 8.0, 9):
        camera = DOWN.copy()
        camera[0, 3] = right - width_m / 2
        views = make_views([0], camera=camera, orthographic_height=width_m, width=128, height=128, shadows=True)
        views.outputs[:] = ALL_OUTPUTS
        expected = reference.render(scene, views, 0)["rgb"][:, -3:].astype(int)
        (got,) = draw(renderer, scene, views)
        assert abs(got["rgb"][:, -3:] - expected).max() <= 1  # rounding
        darkened += (expected[64] < expected[36]).any()
    assert darkened > 0


def test_a_lamp_at_the_head_casts_nothing(renderer: Renderer) -> None:
    scene, views = build_shadowed("head_lamp", 1)
    expected = draw(renderer, scene, views)
    lamps = scene.lanes.lamps[0]
    heads = lamps[:, LAMP_KIND] == HEADLIGHT
    assert heads.any()
    before = lamps[heads, LAMP_SHADOW]
    lamps[heads, LAMP_SHADOW] = 2.0
    got = draw(renderer, scene, views)
    lamps[heads, LAMP_SHADOW] = before
    for one, other in zip(got, expected, strict=True):
        assert (one["rgb"] == other["rgb"]).all()


@pytest.mark.parametrize("size", [(500, 300), (90, 700)])
def test_bands_of_a_large_view_have_the_same_shadows(cpu: Renderer, size: tuple[int, int]) -> None:
    scene, views = build_shadowed("three_lights", 1)
    large = make_views([0], camera=views.camera[0], width=size[0], height=size[1], outputs=ALL_OUTPUTS, shadows=True)
    with CPURenderer(threads=1) as one, CPURenderer(threads=3) as three:
        (alone,), (together,) = draw(one, scene, large), draw(three, scene, large)
    assert all((alone[name] == together[name]).all() for name in OUTPUT_NAMES)


@pytest.mark.parametrize("seed", range(3))
def test_degenerate_numbers_break_nothing(renderer: Renderer, seed: int) -> None:
    """Poses and lights that are not finite, huge, tiny or singular; what is drawn of them is not defined."""
    rng = np.random.default_rng(seed)
    scene, views = make_crowd(80)
    views.shadows[:] = 1
    poses, lamps = scene.instances.pose, scene.lanes.lamps
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, 3e38, 1e-40], np.float32)
    some = rng.integers(0, len(poses), len(poses) // 2)
    with np.errstate(over="ignore"):
        poses[some] *= (10.0 ** rng.integers(-30, 36, some.size)).astype(np.float32)[:, None, None]
    poses[rng.integers(0, len(poses), 40), rng.integers(0, 3, 40), rng.integers(0, 4, 40)] = rng.choice(odd, 40)
    lamps[:, :, LAMP_SHADOW] = rng.choice([*odd, 1.0, -1.0], lamps.shape[:2])
    lamps[:20, 0, LAMP_POSITION : LAMP_POSITION + 6] = rng.choice(odd, (20, 6))
    scene.lanes.light_direction[:40] = rng.choice([*odd, 1.0], (40, 3))
    for frames in draw(renderer, scene, views):
        assert np.isfinite(frames["depth"]).all()


def test_a_wrong_value_is_refused(renderer: Renderer) -> None:
    scene, views = SCENES["shadow_play"](8, 8)
    views.shadows[0] = 2
    with pytest.raises(ValueError, match="view 0: shadows is 2, expected 0 or 1"):
        draw(renderer, scene, views)


def test_convex_meshes_are_found() -> None:
    library = assets()
    found = {
        name: bool(library.table.mesh_is_convex[library.mesh(name)]) for name in ("box", "sphere", "torus", "quad")
    }
    assert found == {"box": True, "sphere": True, "torus": False, "quad": True}
    assert sphere(64, 32).is_convex
    apart = plane()
    assert not join(apart, quad()).is_convex  # they cross each other
