"""Culling changes no pixel: hidden instances, meshes around the eye, and the rows of other bands."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scene_builder import ALL_OUTPUTS, assets
from worldloom.kernels.tables import CONTINUES_SHAPE
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary, _find_continued, _find_front, _measure_hollow
from worldloom.render.cpu import CPURenderer
from worldloom.render.meshes import Mesh, box, capsule, cylinder, plane, quad, sphere
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views, select_views

ROWS = 24


def crowded_scene(seed: int, order: int) -> Scene:
    """Return a lane with many shapes before one another: the nearest row first (order 1) or last (order -1)."""
    rng = np.random.default_rng(seed)
    scene = Scene(assets())
    rows = scene.rows(scene.add(1, ROWS))[0]
    turns = np.linalg.qr(rng.normal(size=(ROWS, 3, 3)))[0]
    sizes = rng.uniform(0.3, 1.5, (ROWS, 1, 1))
    places = rng.uniform((-2, 2, -2), (2, 12, 2), (ROWS, 3))
    places = places[np.argsort(places[:, 1])]
    instances, kept = scene.instances, rows[::order]
    instances.mesh[kept] = rng.integers(0, 6, ROWS)
    instances.pose[kept, :, :3], instances.pose[kept, :, 3] = turns * sizes, places
    instances.color[kept] = rng.uniform(0.2, 1.0, (ROWS, 3))
    instances.texture[kept] = rng.integers(-1, 4, ROWS)
    instances.label[kept] = np.arange(1, ROWS + 1)
    return scene


def draw(renderer: Renderer, scene: Scene, **settings: object) -> bytes:
    camera = look_at((0, -1, 0), (0, 5, 0))
    views = make_views([0], camera=camera, outputs=ALL_OUTPUTS, far=30.0, **settings)  # type: ignore[arg-type]
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    return arena.tobytes()


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("width", [64, 45])
def test_rows_that_others_hide_change_nothing(cpu: Renderer, width: int, samples: int) -> None:
    """With the nearest row last, none is hidden when it is drawn."""
    for seed in range(12):
        near_first, near_last = (
            draw(cpu, crowded_scene(seed, order), width=width, samples=samples) for order in (1, -1)
        )
        assert near_first == near_last


@pytest.mark.parametrize(("width", "height"), [(160, 120), (333, 201), (40, 700), (512, 512)])
@pytest.mark.parametrize("samples", [1, 4])
def test_a_view_in_bands_is_the_view_in_one_piece(width: int, height: int, samples: int) -> None:
    scene = crowded_scene(1, 1)
    scene.lanes.static_rows[:] = ROWS // 2  # with backdrops, which bands have of their own
    with CPURenderer(threads=1) as one, CPURenderer(threads=3) as three:
        whole = draw(one, scene, width=width, height=height, samples=samples)
        for _ in range(4):
            assert draw(three, scene, width=width, height=height, samples=samples) == whole


def test_large_and_small_views_in_one_batch() -> None:
    scene = crowded_scene(2, 1)
    camera = look_at((0, -1, 0), (0, 5, 0))
    sizes = np.array([[300, 200], [8, 8], [1, 1], [90, 400], [64, 64]])
    views = make_views(np.zeros(5, np.int32), camera=camera, width=sizes[:, 0], height=sizes[:, 1], outputs=ALL_OUTPUTS)
    offsets, size_bytes = lay_out(views)
    together = allocate_arena(size_bytes)
    with CPURenderer(threads=3) as three, CPURenderer(threads=1) as one:
        three.draw(scene, views, together, offsets)
        alone = allocate_arena(size_bytes)
        for view in range(5):
            one.draw(scene, select_views(views, [view]), alone, offsets[view : view + 1])
    assert (together == alone).all()


@pytest.mark.parametrize("build", [sphere, cylinder, capsule, box])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_from_inside_the_hollow_no_front_is_seen(build: object, seed: int) -> None:
    made: Mesh = build()  # type: ignore[operator]
    mesh = Mesh(made.positions, made.normals, made.uvs, made.triangles, two_sided=False)
    hollow = _measure_hollow(mesh)
    assert hollow > 0.2
    lowest, highest = mesh.positions.min(axis=0).astype(np.float64), mesh.positions.max(axis=0).astype(np.float64)
    where = np.random.default_rng(seed).uniform(-hollow, hollow, 3)
    eye = (lowest + highest) / 2 + where * (highest - lowest) / 2
    a, b, c = mesh.positions.astype(np.float64)[mesh.triangles].transpose(1, 0, 2)
    assert (np.einsum("ij,ij->i", np.cross(b - a, c - a), eye - a) < 0).all()


def test_what_is_open_or_seen_from_both_sides_is_not_hollow() -> None:
    two_sided = box()
    assert _measure_hollow(Mesh(two_sided.positions, two_sided.normals, two_sided.uvs, two_sided.triangles)) == 0.0
    assert _measure_hollow(plane()) == 0.0
    inward = Mesh(two_sided.positions, two_sided.normals, two_sided.uvs, two_sided.triangles[:, ::-1], False)
    assert _measure_hollow(inward) == 0.0


def one_sided(made: Mesh) -> Mesh:
    return Mesh(made.positions, made.normals, made.uvs, made.triangles, two_sided=False)


def test_only_flat_one_sided_meshes_have_a_front() -> None:
    for build in (quad, plane):
        normals = np.unique(build().normals, axis=0)
        assert (_find_front(one_sided(build())) == normals).all()
        assert not _find_front(build()).any()
    for build in (box, sphere, cylinder):
        assert not _find_front(one_sided(build())).any()


@pytest.mark.parametrize("orthographic_height", [None, 8.0])
@pytest.mark.parametrize("seed", range(12))
def test_flat_meshes_seen_from_behind_are_those_whose_triangles_are(
    cpu: Renderer, seed: int, orthographic_height: float | None
) -> None:
    """The same squares beside a corner out of their plane, which no triangle uses, have no front: each is tested."""
    frames = []
    for aside in (False, True):
        made = one_sided(quad())
        if aside:
            made = Mesh(
                np.concatenate([made.positions, made.positions[:1] + np.float32(1e-3)]),
                np.concatenate([made.normals, made.normals[:1]]),
                np.concatenate([made.uvs, made.uvs[:1]]),
                made.triangles,
                two_sided=False,
            )
        assert _find_front(made).any() != aside
        library = AssetLibrary()
        number = library.add_mesh("square", made)
        rng = np.random.default_rng(seed)
        scene = Scene(library)
        rows = scene.rows(scene.add(1, ROWS))[0]
        instances = scene.instances
        instances.mesh[rows] = number
        # Mirrored, stretched and singular poses too.
        instances.pose[rows, :, :3] = rng.normal(size=(ROWS, 3, 3)) * rng.choice(
            [1.0, 0.0], (ROWS, 1, 3), p=[0.95, 0.05]
        )
        instances.pose[rows, :, 3] = rng.uniform((-3, 1, -3), (3, 9, 3), (ROWS, 3))
        instances.color[rows] = rng.uniform(0.2, 1.0, (ROWS, 3))
        instances.label[rows] = np.arange(1, ROWS + 1)
        frames.append(draw(cpu, scene, orthographic_height=orthographic_height))
    assert frames[0] == frames[1]
    assert len(set(frames[0])) > 10


def test_which_triangles_continue_the_one_before() -> None:
    assert _find_continued(quad()).tolist() == [0, 1]
    assert _find_continued(box()).tolist() == [0, 1] * 6
    slices, stacks = 32, 16  # quadrilaterals but for the poles: flat, with normals that differ
    kinds = _find_continued(sphere(slices, stacks))
    assert np.bincount(kinds, minlength=3)[1:].tolist() == [0, slices * (stacks - 2)]
    bent = quad()
    for change in ("positions", "uvs", "normals"):
        numbers = {name: getattr(bent, name).copy() for name in ("positions", "uvs", "normals")}
        numbers[change][-1] += 0.25
        mesh = Mesh(numbers["positions"], numbers["normals"], numbers["uvs"], bent.triangles)
        assert _find_continued(mesh).tolist() == [0, 0 if change == "positions" else CONTINUES_SHAPE]


def test_a_mesh_that_is_replaced_is_measured_again() -> None:
    library = AssetLibrary(texture_size=4)
    number = library.set_mesh("shape", quad())
    assert library.table.triangle_continues[library.table.mesh_first_triangle[number] + 1] == 1
    bent = quad()
    positions = bent.positions.copy()
    positions[-1] += 0.25
    library.set_mesh("shape", Mesh(positions, bent.normals, bent.uvs, bent.triangles, bent.two_sided))
    assert library.table.triangle_continues[library.table.mesh_first_triangle[number] + 1] == 0
