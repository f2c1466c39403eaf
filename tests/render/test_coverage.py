"""Every pixel along a shared edge belongs to exactly one triangle: no gap, and nothing drawn twice."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from worldloom.kernels.outputs import SEGMENTATION
from worldloom.kernels.tables import ViewTable
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

SIZE = 24
# Positions in pixels: on pixel centres, on corners, and anywhere.
coordinate = st.one_of(
    st.integers(1, SIZE - 1).map(float), st.integers(1, SIZE - 2).map(lambda k: k + 0.5), st.floats(1.0, SIZE - 1.0)
)


def fan_around(x: float, y: float, spokes: int) -> list[Mesh]:
    """Return triangles that share a corner at (x, y) pixels and together cover more than the frame."""
    angle = np.linspace(0, 2 * np.pi, spokes + 1)[:-1] + 0.1
    rim = np.stack([x + 3 * SIZE * np.cos(angle), y + 3 * SIZE * np.sin(angle)], axis=1)
    pixels = np.concatenate([[[x, y]], rim])
    metres = np.stack([pixels[:, 0] - SIZE / 2, SIZE / 2 - pixels[:, 1], np.zeros(spokes + 1)], axis=1)
    return [
        Mesh(
            metres[[0, 1 + k, 1 + (k + 1) % spokes]],
            np.tile(np.array([0, 0, 1.0]), (3, 1)),
            np.zeros((3, 2), np.float32),
            np.array([[0, 1, 2]]),
        )
        for k in range(spokes)
    ]


def views_from_above(lanes: np.ndarray, perspective: bool, samples: int) -> ViewTable:
    """Return views straight down, at one metre per pixel."""
    camera = look_at((0.0, 0.0, 10.0), (0.0, 0.0, 0.0), up=(0.0, 1.0, 0.0))
    field = 2 * np.degrees(np.arctan(SIZE / 2 / 10.0))
    return make_views(
        lanes,
        camera=camera,
        fov_degrees=field,
        orthographic_height=None if perspective else float(SIZE),
        width=SIZE,
        height=SIZE,
        outputs=SEGMENTATION,
        samples=samples,
    )


@settings(max_examples=40)
@example(x=1.5, y=1.5, spokes=6, perspective=False, samples=1)  # a corner on a pixel's centre
@given(x=coordinate, y=coordinate, spokes=st.integers(3, 9), perspective=st.booleans(), samples=st.sampled_from([1, 4]))
@pytest.mark.usefixtures("renderer")
def test_triangles_of_a_fan_share_the_picture_exactly(
    renderer: Renderer, x: float, y: float, spokes: int, perspective: bool, samples: int
) -> None:
    assets = AssetLibrary(texture_size=4)
    numbers = [assets.add_mesh(f"piece {k}", mesh) for k, mesh in enumerate(fan_around(x, y, spokes))]
    scene = Scene(assets)
    lanes = scene.add(spokes, 1)  # a lane for each triangle, so that none hides another
    rows = scene.rows(lanes)[:, 0]
    scene.instances.mesh[rows] = numbers
    scene.instances.label[rows] = 1
    views = views_from_above(lanes, perspective, samples)
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    owners = arena.reshape(spokes, SIZE, SIZE).sum(axis=0)
    assert (owners == 1).all(), f"pixels with another number of owners than one: {np.argwhere(owners != 1).tolist()}"
