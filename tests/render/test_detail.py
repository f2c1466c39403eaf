"""Round meshes are drawn with fewer triangles where the difference is below a quarter of a pixel."""

import functools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from worldloom.kernels.outputs import SEGMENTATION
from worldloom.kernels.tables import NO_MESH
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import capsule, cylinder, sphere
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

SIDE = 96
OFF_PIXELS = 0.26
"""Error of an outline: a quarter of a pixel inside the round one, and corners rounded to 1/256."""
FINEST_PIXELS = 0.25 / (1 - np.cos(np.pi / 32))
"""Radius from which on the meshes of the library are drawn with all 32 slices."""


@functools.cache
def stage() -> Scene:
    """Return a scene with one instance row."""
    scene = Scene(AssetLibrary(texture_size=8))
    scene.add(1, 1)
    return scene


def outline(renderer: Renderer, mesh: str, radius_pixels: float, perspective: bool) -> np.ndarray:
    """Return the pixels covered by a round mesh of that radius in the middle of the frame."""
    scene = stage()
    depth = 1000.0  # so far away that what is nearer of it is hardly larger
    metres = 2 * radius_pixels / SIDE
    scene.instances.mesh[0] = scene.assets.mesh(mesh)
    # The z axis of the mesh comes to lie along the view.
    scene.instances.pose[0] = np.array([[1, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0]]) * metres
    scene.instances.label[0] = 1
    views = make_views(
        0,
        camera=look_at((0, -depth, 0), (0, 0, 0)),
        orthographic_height=np.nan if perspective else 1.0,
        fov_degrees=np.degrees(2 * np.arctan(0.5 / depth)),
        near=1.0,
        far=2000.0,
        width=SIDE,
        height=SIDE,
        outputs=SEGMENTATION,
    )
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    shown: np.ndarray = get_frame(arena, views, offsets, 0, "segmentation") == 1
    return shown


@pytest.mark.parametrize("mesh", ["sphere", "cylinder", "capsule"])
@pytest.mark.parametrize("perspective", [False, True])
@given(radius_pixels=st.floats(0.6, FINEST_PIXELS))
@example(radius_pixels=0.25 / (1 - np.cos(np.pi / 8)))
@example(radius_pixels=0.25 / (1 - np.cos(np.pi / 16)))
@settings(max_examples=15, deadline=None)
def test_outlines_are_round(renderer: Renderer, mesh: str, perspective: bool, radius_pixels: float) -> None:
    shown = outline(renderer, mesh, radius_pixels, perspective)
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5 - SIDE / 2
    away = np.hypot(x, y)
    assert shown[away < radius_pixels - OFF_PIXELS].all()
    assert not shown[away > radius_pixels * 1.002 + 1 / 128].any()


def test_small_things_have_fewer_triangles() -> None:
    table = AssetLibrary(texture_size=8).table
    for mesh in (3, 4, 5):
        chain = [mesh]
        while table.mesh_coarser[chain[-1]] != NO_MESH:
            chain.append(int(table.mesh_coarser[chain[-1]]))
        triangles = table.mesh_triangle_count[chain]
        assert len(chain) == 3
        assert (triangles[1:] <= 0.51 * triangles[:-1]).all()
        sizes = table.mesh_coarser_size[chain[:-1]].max(axis=1)
        assert (sizes[1:] > sizes[:-1]).all(), "the coarser a mesh, the smaller it is when it is shown"


@pytest.mark.parametrize("make", [sphere, cylinder, capsule])
def test_coarser_meshes_are_of_the_same_form(make: object) -> None:
    mesh = make(16)  # type: ignore[operator]
    while mesh.coarser is not None:
        coarser = mesh.coarser.mesh
        assert np.allclose(coarser.positions.max(axis=0), mesh.positions.max(axis=0), atol=0.05)
        assert np.allclose(coarser.positions.min(axis=0), mesh.positions.min(axis=0), atol=0.05)
        assert coarser.two_sided == mesh.two_sided
        mesh = coarser
    assert len(mesh.triangles) < len(make(16).triangles)  # type: ignore[operator]
