"""Visible instances are found and drawn in the order of rows, compared with the corners of boxes in plain NumPy."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.reference_renderer import detail
from worldloom.kernels.gl.visible import COMMAND_WORDS, FACINGS, find_visible, sort_visible
from worldloom.kernels.tables import AssetTable, ViewTable
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)


class Sorted(NamedTuple):
    layers: NDArray[np.int32]
    rows: NDArray[np.int32]
    commands: NDArray[np.uint32]
    segments: NDArray[np.int32]


def visible(scene: Scene, views: ViewTable, page: NDArray[np.int64]) -> Sorted:
    assets = scene.assets.table
    capacity = int(scene.lanes.row_count[views.lane[page]].sum())
    layer, row, run, kind, sorted_layer, sorted_row = np.full((6, capacity), -9, np.int32)
    found = (layer, row, run, kind)
    matrix = np.empty((3, 4))
    count, runs, _ = find_visible(assets, scene.instances, scene.lanes, views, page, True, matrix, *found)
    buckets = np.empty(runs * FACINGS * len(assets.mesh_first_triangle), np.int32)
    commands, segments = np.empty((capacity, COMMAND_WORDS), np.uint32), np.empty((capacity, 4), np.int32)
    drawn, settings = sort_visible(
        assets, count, runs, *found, buckets, sorted_layer, sorted_row, commands, segments, 0
    )
    return Sorted(sorted_layer[:count], sorted_row[:count], commands[:drawn], segments[:settings])


def random_scene(seed: int, lanes: int = 6, rows: int = 12) -> tuple[Scene, ViewTable]:
    """Return lanes of rotated, stretched and mirrored meshes, some outside, with a camera of either kind each."""
    rng = np.random.default_rng(seed)
    scene = Scene(AssetLibrary(texture_size=4))
    added = scene.add(lanes, rows)
    every = scene.rows(added).ravel()
    scene.instances.mesh[every] = rng.integers(-1, 6, every.size)
    axes = np.linalg.qr(rng.normal(size=(every.size, 3, 3)))[0] * rng.uniform(-1.5, 1.5, (every.size, 1, 3))
    axes[rng.random(every.size) < 0.1, :, 2] = 0.0
    scene.instances.pose[every, :, :3] = axes
    scene.instances.pose[every, :, 3] = rng.uniform(-5, 5, (every.size, 3))
    cameras = look_at(rng.uniform(-4, 4, (lanes, 3)), rng.uniform(-1, 1, (lanes, 3)))
    return scene, make_views(
        added,
        camera=cameras,
        width=rng.integers(8, 80, lanes),
        height=rng.integers(8, 80, lanes),
        near=0.3,
        far=rng.uniform(3, 9, lanes),
        orthographic_height=np.where(rng.random(lanes) < 0.5, np.nan, 4.0),
    )


def facing(assets: AssetTable, mesh: int, pose: NDArray[np.float32]) -> int:
    if assets.mesh_is_two_sided[mesh]:
        return 0
    volume = np.linalg.det(pose[:, :3].astype(np.float64))
    return 1 if volume > 0 else 2 if volume < 0 else 0


def outside(assets: AssetTable, mesh: int, pose: NDArray[np.float32], views: ViewTable, view: int) -> bool:
    """Return whether all eight corners of the mesh's box lie beyond one plane of the frustum."""
    local = assets.mesh_center[mesh] + CORNERS * assets.mesh_half_size[mesh]
    world = local @ pose[:, :3].T.astype(np.float64) + pose[:, 3]
    camera = views.camera[view].astype(np.float64)
    x, y, z = ((world - camera[:, 3]) @ camera[:, :3]).T
    depth, h = -z, float(views.half_height[view])
    w = np.ones(8) if views.orthographic[view] else depth
    a = views.width[view] / views.height[view]
    sides = (x - h * a * w, -x - h * a * w, y - h * w, -y - h * w, views.near[view] - depth, depth - views.far[view])
    # A small margin, since the two sides round differently.
    return any((side > -1e-9).all() for side in sides)


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_corners_of_boxes(seed: int) -> None:
    scene, views = random_scene(seed)
    assets, instances = scene.assets.table, scene.instances
    page = np.random.default_rng(seed).permutation(len(views.lane)).astype(np.int64)

    drawn = visible(scene, views, page)

    wanted = []
    for layer, view in enumerate(page):
        run, last = -1, None
        for row in scene.rows(views.lane[view])[0]:
            mesh, pose = int(instances.mesh[row]), instances.pose[row]
            if mesh < 0:
                continue
            kind = (facing(assets, mesh, pose), detail(assets, mesh, pose.astype(np.float64), views, int(view)))
            run += kind != last
            last = kind
            if not outside(assets, mesh, pose, views, int(view)):
                wanted.append((run, *kind, layer, int(row)))
    wanted.sort()
    assert 0 < len(wanted) < (instances.mesh >= 0).sum()
    assert list(zip(drawn.layers.tolist(), drawn.rows.tolist(), strict=True)) == [key[3:] for key in wanted]

    keys = [key[:3] for key in wanted]
    starts = [index for index, key in enumerate(keys) if index == 0 or key != keys[index - 1]]
    for command, start, end in zip(drawn.commands.tolist(), starts, [*starts[1:], len(keys)], strict=True):
        mesh = keys[start][2]
        first, count = assets.mesh_first_triangle[mesh], assets.mesh_triangle_count[mesh]
        assert command == [3 * count, end - start, 3 * first, 0, start]
    settings = [keys[start][1] for start in starts]
    assert np.repeat(drawn.segments[:, 0], drawn.segments[:, 2]).tolist() == settings
    assert (np.diff(drawn.segments[:, 0]) != 0).all()
    assert drawn.segments[:, 1].tolist() == [0, *np.cumsum(drawn.segments[:-1, 2]).tolist()]


def test_rows_of_one_mesh_are_one_command_however_many_views() -> None:
    scene = Scene(AssetLibrary(texture_size=4))
    lanes = scene.add(5, 3)
    scene.instances.mesh[:] = scene.assets.mesh("box")
    views = make_views(lanes, camera=look_at((0, -5, 0), (0, 0, 0)))

    drawn = visible(scene, views, np.arange(5))

    assert drawn.commands[:, 1].tolist() == [15]
    assert drawn.segments.tolist() == [[1, 0, 1, 0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_poses_that_are_not_finite_are_left_out(bad: float) -> None:
    scene = Scene(AssetLibrary(texture_size=4))
    lanes = scene.add(1, 12)
    scene.instances.mesh[:] = scene.assets.mesh("quad")
    for row in range(11):
        scene.instances.pose[row].flat[row] = bad
    views = make_views(lanes, camera=look_at((0, -5, 0), (0, 0, 0)))

    assert visible(scene, views, np.arange(1)).rows.tolist() == [11]


def test_nothing_to_draw() -> None:
    scene = Scene(AssetLibrary(texture_size=4))
    views = make_views(scene.add(2, 3))

    drawn = visible(scene, views, np.arange(2))

    assert (drawn.rows.size, len(drawn.commands), len(drawn.segments)) == (0, 0, 0)
