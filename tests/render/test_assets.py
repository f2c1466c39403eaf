"""Meshes are closed, face outwards and have a size of one metre; textures repeat; bad assets are errors."""

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from worldloom.render import meshes, textures
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh

CLOSED = [meshes.box, meshes.sphere, meshes.cylinder, meshes.capsule]
TEXTURES = [textures.checker, textures.brick, textures.wood, textures.noise]


def corner_edges(mesh: Mesh) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return every edge of every triangle, as positions in winding order."""
    corners = [tuple(np.round(position, 5).tolist()) for position in mesh.positions + 0.0]
    return [(corners[t[k]], corners[t[(k + 1) % 3]]) for t in mesh.triangles for k in range(3)]


@pytest.mark.parametrize("make", CLOSED)
def test_closed_meshes_have_no_gap(make: type) -> None:
    edges = corner_edges(make())
    assert len(set(edges)) == len(edges)
    assert {(b, a) for a, b in edges} == set(edges), "each edge is walked once in either direction"


@pytest.mark.parametrize("make", CLOSED)
def test_triangles_and_normals_face_outwards(make: type) -> None:
    mesh: Mesh = make()
    corners = mesh.positions[mesh.triangles]
    faces = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((faces * corners.mean(axis=1)).sum(axis=1) > 0).all()
    assert ((faces[:, None] * mesh.normals[mesh.triangles]).sum(axis=2) > 0).all()
    # float32 normals, normalised once: a few units in the last place.
    assert np.abs(np.linalg.norm(mesh.normals, axis=1) - 1).max() < 1e-6
    assert not mesh.two_sided


@pytest.mark.parametrize("make", [*CLOSED, meshes.plane, meshes.quad, meshes.disc])
def test_meshes_are_one_metre_wide_around_the_origin(make: type) -> None:
    mesh: Mesh = make()
    lowest, highest = mesh.positions.min(axis=0), mesh.positions.max(axis=0)
    np.testing.assert_allclose(lowest, -highest, atol=1e-6)
    assert np.ptp(mesh.positions[:, 0]) == pytest.approx(1, abs=1e-6)


def test_a_sphere_of_finer_pieces_comes_nearer_to_the_ball() -> None:
    def volume(mesh: Mesh) -> float:
        a, b, c = (mesh.positions[mesh.triangles[:, k]].astype(np.float64) for k in range(3))
        return float((a * np.cross(b, c)).sum() / 6)

    ball = np.pi / 6
    assert volume(meshes.sphere(16, 8)) < volume(meshes.sphere(64, 32)) < ball
    assert volume(meshes.sphere(64, 32)) == pytest.approx(ball, rel=0.006)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": np.zeros((4, 2))}, r"mesh positions: expected shape \[n, 3\], got \[4, 2\]"),
        ({"uvs": np.full((4, 2), np.nan)}, "mesh uvs: expected finite numbers only"),
        ({"uvs": np.zeros((3, 2))}, "expected as many normals and uvs, got 4 and 3"),
        ({"triangles": np.array([[0, 1, 4]])}, "name vertices 0 to 4: expected 0 to 3"),
        ({"triangles": np.zeros((0, 3))}, "at least one vertex and one triangle"),
        ({"normals": np.zeros((4, 3))}, "mesh normals: expected none of length 0"),
    ],
)
def test_broken_meshes_are_refused(change: dict[str, np.ndarray], message: str) -> None:
    good = meshes.quad()
    parts: dict[str, Any] = {
        "positions": good.positions,
        "normals": good.normals,
        "uvs": good.uvs,
        "triangles": good.triangles,
    }
    with pytest.raises(ValueError, match=message):
        Mesh(**{**parts, **change})


@pytest.mark.parametrize("draw", TEXTURES)
@pytest.mark.parametrize("size", [1, 2, 8, 256])
def test_textures_come_in_every_size(draw: type, size: int) -> None:
    pixels = draw(size)
    assert pixels.shape == (size, size, 3)
    assert pixels.dtype == np.uint8


@pytest.mark.parametrize("draw", [textures.brick, textures.noise])
def test_textures_repeat_without_a_seam(draw: type) -> None:
    pixels = draw(256).astype(int)
    for axis in (0, 1):
        inside = np.abs(np.diff(pixels, axis=axis)).mean()
        across = np.abs(np.take(pixels, 0, axis) - np.take(pixels, -1, axis)).mean()
        assert across < 3 * inside + 1


def test_smaller_levels_are_means_of_larger_ones() -> None:
    library = AssetLibrary(texture_size=16)
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    number = library.add_texture("mine", pixels)
    table = library.table
    for level in range(5):
        side = 16 >> level
        first = table.mip_first_texel[level]
        words = table.texels[number, first : first + side * side].reshape(side, side)
        channels = np.stack([words >> shift & 255 for shift in (0, 8, 16)], axis=-1)
        blocks = pixels.reshape(side, 1 << level, side, 1 << level, 3).astype(np.float64).mean(axis=(1, 3))
        # Half a level, from rounding once.
        assert np.abs(channels - blocks).max() <= 0.5


def test_the_library_names_what_it_has() -> None:
    library = AssetLibrary(texture_size=8)
    assert [library.mesh(name) for name in ("box", "plane", "quad", "sphere", "cylinder", "capsule")] == list(range(6))
    before = library.table
    assert library.table is before, "nothing was added, nothing is built anew"
    number = library.add_mesh("mine", meshes.plane(3))
    assert library.table is not before
    assert library.table.mesh_triangle_count[number] == 18
    with pytest.raises(ValueError, match="unknown mesh 'bax': expected one of box, plane"):
        library.mesh("bax")
    with pytest.raises(ValueError, match=": expected a name that is not in use"):
        library.add_mesh("box", meshes.box())
    with pytest.raises(ValueError, match=r"expected uint8 \[8, 8, 3\], got float64 \[4, 4, 3\]"):
        library.add_texture("small", np.zeros((4, 4, 3)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a power of two"):
        AssetLibrary(texture_size=100)


def test_a_mesh_can_be_put_in_anothers_place() -> None:
    library = AssetLibrary(1)
    number = library.set_mesh("thing", meshes.box())
    before = library.table
    assert library.set_mesh("thing", meshes.plane()) == number == library.mesh("thing")
    after = library.table
    assert before.mesh_triangle_count[number] == 12
    assert after.mesh_triangle_count[number] == 2
    assert len(after.mesh_first_triangle) == len(before.mesh_first_triangle)


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_the_corners_of_a_mesh_are_its_distinct_positions(vertices: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    positions = rng.integers(-1, 2, (vertices, 3)).astype(np.float32)
    normals, uvs = np.ones((vertices, 3), np.float32), np.zeros((vertices, 2), np.float32)
    mesh = meshes.Mesh(positions, normals, uvs, rng.integers(0, vertices, (5, 3)).astype(np.int32))
    corners, corner_of = mesh.corners
    expected, inverse = np.unique(positions, axis=0, return_inverse=True)
    assert np.array_equal(corners, expected)
    assert np.array_equal(corner_of, inverse.reshape(-1))


def test_draws_go_on_while_another_thread_loads_assets() -> None:
    library = AssetLibrary(texture_size=4)
    before = library.table

    def load(name: str) -> None:
        with library.loading():
            library.add_mesh(name, meshes.box())
            added.set()
            assert go_on.wait(60)

    for name, uses_it in (("a", False), ("b", True)):
        added, go_on = threading.Event(), threading.Event()
        thread = threading.Thread(target=load, args=(name,))
        thread.start()
        assert added.wait(60)
        if uses_it:  # by its name, before the thread is done
            assert library.mesh(name) < len(library.table.mesh_first_triangle)
        else:
            assert library.table is before
        go_on.set()
        thread.join()
        assert library.mesh(name) < len(library.table.mesh_first_triangle)
        before = library.table
        assert library.table is before


def test_assets_that_are_added_beside_loading_are_listed_at_once() -> None:
    library = AssetLibrary(texture_size=4)
    with library.loading():
        library.add_mesh("slow", meshes.box())
        thread = threading.Thread(target=library.add_mesh, args=("quick", meshes.quad()))
        thread.start()
        thread.join()
        assert library.mesh("quick") < len(library.table.mesh_first_triangle)
    assert library.mesh("slow") < len(library.table.mesh_first_triangle)


@given(st.integers(0, 2**32))
@hypothesis_settings(max_examples=20)
def test_a_mesh_that_is_replaced_by_one_of_its_form_gives_the_table_of_a_new_library(seed: int) -> None:
    """Grids with other heights: in the table that is there, and in one that is built anew."""
    rng = np.random.default_rng(seed)
    names = ["first", "second", "third"]

    def height_field() -> meshes.Mesh:
        side = 5
        x, y = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side))
        positions = np.stack([x, y, rng.normal(size=x.shape)], axis=-1).reshape(-1, 3).astype(np.float32)
        normals = rng.normal(size=positions.shape).astype(np.float32)
        return meshes.Mesh(positions, normals, positions[:, :2], meshes.grid(side - 1, side - 1))

    fields = {name: height_field() for name in names}
    library, anew = AssetLibrary(8), AssetLibrary(8)
    for name in names:
        library.set_mesh(name, fields[name])
    before = library.table
    changed = names[int(rng.integers(3))]
    fields[changed] = height_field()
    library.set_mesh(changed, fields[changed])
    for name in names:
        anew.set_mesh(name, fields[name])
    table = library.table
    assert table is not before, "renderers that keep copies must notice"
    assert table.positions is before.positions, "written in place"
    for name, column, expected in zip(table._fields, table, anew.table, strict=True):
        np.testing.assert_array_equal(column, expected, err_msg=name)
