"""The CPU renderer's kernel: check a batch of views, and draw it on several threads.

Everything that the kernel reads is described by address (`kernels/addresses.py`), so a call takes well under a
microsecond beside the work itself. Threads that help stay inside the kernel (`kernels/sharing.py`).
"""

from typing import NamedTuple

import numpy as np

from worldloom.kernels.addresses import COLUMN_WORDS, describe, make_reader
from worldloom.kernels.compiling import device_function, kernel, kernel_holding_gil
from worldloom.kernels.raster.backdrop import Backdrops, allocate_backdrops
from worldloom.kernels.raster.scratch import Scratch, allocate_scratch
from worldloom.kernels.raster.views import draw_view
from worldloom.kernels.sharing import (
    FIRST_THREAD,
    THREAD_WORDS,
    close_job,
    leave_job,
    open_job,
    take_items,
    wait_for_job,
)
from worldloom.kernels.tables import (
    ASSET_DIMENSIONS,
    F32,
    I32,
    I64,
    INSTANCE_DIMENSIONS,
    LANE_DIMENSIONS,
    PREVIOUS_DIMENSIONS,
    U8,
    VIEW_DIMENSIONS,
    AssetTable,
    InstanceTable,
    LaneTable,
    PreviousTable,
    ViewTable,
)
from worldloom.kernels.views import AXES_TOLERANCE, is_valid_draw, measure_views

DONE, INVALID, TOO_LARGE = 0, 1, 2
"""Results of `draw_batch`: all is drawn; nothing, as the draw is not valid, or as it needs more scratch memory."""


class Destination(NamedTuple):
    """Memory that a batch is drawn into."""

    offsets: I64  # [V, outputs] bytes of the arena where each output of each view begins
    arena: U8  # [bytes]


class CheckMemory(NamedTuple):
    """Memory of the checks before a batch is drawn."""

    ranges: I64  # [outputs * V or more, 2] scratch
    limits: I64  # [LIMITS] see below


# Indices of CheckMemory.limits: what the scratch memory of all threads allows, and what the last batch needs.
CORNERS, TRIANGLES, PIXELS, TEXELS, THREADS = 0, 1, 2, 3, 4
NEEDED = 5
BANDS = 10  # most bands of a view, of the batch that is being drawn
LIMITS = 11

# First rows of the tables in the descriptions of a batch, and in those of a thread.
ASSETS = 0
INSTANCES = ASSETS + len(ASSET_DIMENSIONS)
LANES = INSTANCES + len(INSTANCE_DIMENSIONS)
VIEWS = LANES + len(LANE_DIMENSIONS)
DESTINATION = VIEWS + len(VIEW_DIMENSIONS)
CHECK_MEMORY = DESTINATION + len(Destination._fields)
PREVIOUS = CHECK_MEMORY + len(CheckMemory._fields)
BATCH_ROWS = PREVIOUS + len(PREVIOUS_DIMENSIONS)
BACKDROPS = len(Scratch._fields)
THREAD_ROWS = BACKDROPS + len(Backdrops._fields)

_PIXELS_PER_THREAD = 4096
"""Pixels of a batch for each thread that is woken."""
_CHUNKS_PER_THREAD = 8
"""Chunks of a batch for each thread, so that one on a slower core can draw fewer."""
_PIXELS_PER_BAND = 8192
"""Least pixels of a band. Every band sets up the triangles of its view again, which takes as long as few pixels."""

_read_assets = make_reader(AssetTable, ASSET_DIMENSIONS)
_read_instances = make_reader(InstanceTable, INSTANCE_DIMENSIONS)
_read_lanes = make_reader(LaneTable, LANE_DIMENSIONS)
_read_views = make_reader(ViewTable, VIEW_DIMENSIONS)
_read_previous = make_reader(PreviousTable, PREVIOUS_DIMENSIONS)
_read_destination = make_reader(Destination, (2, 1))
_read_check_memory = make_reader(CheckMemory, (2, 1))
_read_scratch = make_reader(Scratch, [column.ndim for column in allocate_scratch(1, 1, 1)])
_read_backdrops = make_reader(Backdrops, [column.ndim for column in allocate_backdrops(1)])


def allocate_descriptions(rows: int) -> I64:
    """Return descriptions of so many columns, still to be written."""
    return np.zeros((rows, COLUMN_WORDS), np.int64)


def describe_thread(scratch: Scratch, backdrops: Backdrops, threads: I64, thread: int) -> None:
    """Describe the memory of a thread in its rows of `threads`."""
    first = thread * THREAD_ROWS
    describe(scratch, threads[first : first + BACKDROPS])
    describe(backdrops, threads[first + BACKDROPS : first + THREAD_ROWS])


@kernel_holding_gil
def describe_views(
    lane: I32,
    camera: F32,
    orthographic: U8,
    half_height: F32,
    near: F32,
    far: F32,
    width: I32,
    height: I32,
    outputs: U8,
    samples: U8,
    shadows: U8,
    offsets: I64,
    arena: U8,
    batch: I64,
) -> None:
    """Describe a view table, offsets and an arena in their rows of `batch`: `describe` would take ten times as long."""
    for row in range(VIEWS, DESTINATION):
        batch[row, 1], batch[row, 2], batch[row, 3] = lane.size, 3, 4
    batch[VIEWS, 0], batch[VIEWS + 1, 0] = lane.ctypes.data, camera.ctypes.data
    batch[VIEWS + 2, 0], batch[VIEWS + 3, 0] = orthographic.ctypes.data, half_height.ctypes.data
    batch[VIEWS + 4, 0], batch[VIEWS + 5, 0] = near.ctypes.data, far.ctypes.data
    batch[VIEWS + 6, 0], batch[VIEWS + 7, 0] = width.ctypes.data, height.ctypes.data
    batch[VIEWS + 8, 0], batch[VIEWS + 9, 0] = outputs.ctypes.data, samples.ctypes.data
    batch[VIEWS + 10, 0] = shadows.ctypes.data
    batch[DESTINATION, 0], batch[DESTINATION, 1] = offsets.ctypes.data, offsets.shape[0]
    batch[DESTINATION, 2] = offsets.shape[1]
    batch[DESTINATION + 1, 0], batch[DESTINATION + 1, 1] = arena.ctypes.data, arena.size


@kernel
def draw_batch(batch: I64, threads: I64, control: I64, thread: int) -> int:
    """Draw a batch of views; return DONE, INVALID or TOO_LARGE. Threads other than 0 help until they are stopped.

    `batch` [BATCH_ROWS, 4] and `threads` [THREAD_ROWS for each thread, 4] are descriptions, `control` is a control
    block. One kernel, with one loop for all threads: compiling takes half the time of two.
    """
    if thread == 0:
        result = _open_batch(batch, control)
        if result != DONE:
            return result
    while True:
        if thread > 0 and not wait_for_job(control, thread):
            return DONE
        instances, lanes, views = (
            _read_instances(batch, INSTANCES),
            _read_lanes(batch, LANES),
            _read_views(batch, VIEWS),
        )
        assets, destination = _read_assets(batch, ASSETS), _read_destination(batch, DESTINATION)
        previous = _read_previous(batch, PREVIOUS)
        scratch = _read_scratch(threads, thread * THREAD_ROWS)
        backdrops = _read_backdrops(threads, thread * THREAD_ROWS + BACKDROPS)
        most_bands = _read_check_memory(batch, CHECK_MEMORY).limits[BANDS]
        while True:
            first, end = take_items(control)
            if first == end:
                break
            for item in range(first, end):
                view, band = item // most_bands, item % most_bands
                height = np.int64(views.height[view])
                bands = min(most_bands, max(1, views.width[view] * height // _PIXELS_PER_BAND), height)
                if band < bands and views.outputs[view] != 0:
                    draw_view(
                        assets,
                        instances,
                        lanes,
                        views,
                        view,
                        previous,
                        height * band // bands,
                        height * (band + 1) // bands,
                        destination.offsets,
                        scratch,
                        backdrops,
                        destination.arena,
                    )
        if thread == 0:
            close_job(control)
            return DONE
        leave_job(control)


@device_function
def _open_batch(batch: I64, control: I64) -> int:
    """Check a batch and open a job that draws it; return DONE, or INVALID or TOO_LARGE with no job open."""
    instances, lanes, views = (
        _read_instances(batch, INSTANCES),
        _read_lanes(batch, LANES),
        _read_views(batch, VIEWS),
    )
    assets, destination = _read_assets(batch, ASSETS), _read_destination(batch, DESTINATION)
    check = _read_check_memory(batch, CHECK_MEMORY)
    if not is_valid_draw(
        views.lane,
        views.camera,
        views.orthographic,
        views.half_height,
        views.near,
        views.far,
        views.width,
        views.height,
        views.outputs,
        views.samples,
        views.shadows,
        destination.offsets,
        check.ranges,
        destination.arena.size,
        lanes.first_row,
        lanes.row_count,
        lanes.sky_textures,
        lanes.lamp_count,
        instances.mesh,
        instances.texture,
        assets.mesh_first_triangle.size,
        assets.texels.shape[0],
        AXES_TOLERANCE,
    ):
        return INVALID
    count = views.lane.size
    corners, triangles, pixels, texels, all_pixels = measure_views(
        views.lane,
        views.width,
        views.height,
        views.shadows,
        lanes.lamp_count,
        lanes.lamps,
        lanes.first_row,
        lanes.row_count,
        instances.mesh,
        assets.mesh_triangle_count,
        assets.mesh_corner_count,
    )
    limits = check.limits
    most_threads = (control.size - FIRST_THREAD) // THREAD_WORDS
    # Views of small batches are cut into bands of rows, so that all threads have something to draw.
    bands = max(1, most_threads * _CHUNKS_PER_THREAD // max(count, 1)) if most_threads > 1 else 1
    items = count * bands
    wanted = min(most_threads, items, max(1, all_pixels // _PIXELS_PER_THREAD))
    limits[NEEDED + CORNERS], limits[NEEDED + TRIANGLES] = corners, 1 + triangles
    limits[NEEDED + PIXELS], limits[NEEDED + TEXELS], limits[NEEDED + THREADS] = pixels, texels, wanted
    for k in range(NEEDED):
        if limits[NEEDED + k] > limits[k]:
            return TOO_LARGE
    if wanted <= 1:
        bands, items = 1, count
    chunk_size = -(-items // (wanted * _CHUNKS_PER_THREAD)) if wanted > 1 else count
    limits[BANDS] = bands
    open_job(control, items, chunk_size, wanted)
    return DONE
