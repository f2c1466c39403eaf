"""Tables read by address have the numbers of the tables that were described."""

import numpy as np
import pytest

from worldloom.kernels.addresses import COLUMN_WORDS, describe, make_reader
from worldloom.kernels.compiling import device_function
from worldloom.kernels.raster import batch
from worldloom.kernels.tables import (
    ASSET_DIMENSIONS,
    I64,
    INSTANCE_DIMENSIONS,
    LANE_DIMENSIONS,
    VIEW_DIMENSIONS,
    InstanceTable,
)
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import make_views

_read_instances = make_reader(InstanceTable, INSTANCE_DIMENSIONS)


@device_function
def _first_and_last(descriptions: I64, first: int, row: int) -> tuple[int, float, float, float, float]:
    table = _read_instances(descriptions, first)
    table.mesh[row] += 1
    return table.mesh[row], table.pose[row, 2, 3], table.color[row, 1], table.uv_scale[row, 1], table.shine[row, 2]


def make_scene() -> Scene:
    scene = Scene(AssetLibrary(texture_size=4))
    rows = scene.rows(scene.add(3, 2)).ravel()
    rng = np.random.default_rng(0)
    for column in scene.instances:
        column[rows] = rng.integers(0, 9, column[rows].shape)
    return scene


def test_columns_are_where_they_were_described() -> None:
    instances = make_scene().instances
    descriptions = np.zeros((2 + len(instances), COLUMN_WORDS), np.int64)
    describe(instances, descriptions[2:])
    for row in range(6):
        mesh = instances.mesh[row]
        seen = _first_and_last(descriptions, 2, row)
        assert seen[0] == mesh + 1 == instances.mesh[row], "the kernel has the array itself"
        expected = (
            instances.pose[row, 2, 3],
            instances.color[row, 1],
            instances.uv_scale[row, 1],
            instances.shine[row, 2],
        )
        assert seen[1:] == expected


def test_dimensions_are_those_of_the_tables() -> None:
    scene = make_scene()
    for table, dimensions in (
        (scene.assets.table, ASSET_DIMENSIONS),
        (scene.instances, INSTANCE_DIMENSIONS),
        (scene.lanes, LANE_DIMENSIONS),
        (make_views(0), VIEW_DIMENSIONS),
    ):
        assert tuple(np.ndim(column) for column in table) == dimensions


def test_columns_that_are_not_contiguous_are_refused() -> None:
    instances = make_scene().instances
    with pytest.raises(AssertionError, match="contiguous"):
        describe(instances._replace(mesh=instances.mesh[::2]), np.zeros((len(instances), COLUMN_WORDS), np.int64))


def test_the_kernel_describes_views_as_describe_does() -> None:
    views = make_views(range(5), width=3)
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    quick = batch.allocate_descriptions(batch.BATCH_ROWS)
    batch.describe_views(*views, offsets, arena, quick)
    plain = batch.allocate_descriptions(batch.BATCH_ROWS)
    describe(views, plain[batch.VIEWS : batch.DESTINATION])
    describe(batch.Destination(offsets, arena), plain[batch.DESTINATION : batch.CHECK_MEMORY])
    used = plain != 0
    assert (quick[used] == plain[used]).all()
