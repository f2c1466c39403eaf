"""Translucent rows: their order, and their colours blended over those of the opaque rows.

The opaque rows of a view are drawn first, and their colours kept as a frame in scratch memory. Then the translucent
rows follow from far to near, each as a layer of its own: it is rasterised into the visibility buffer of the opaque
rows, shaded, and blended over the frame where it is seen. The order is that of both renderers.
"""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import load_floats, load_ints, store
from worldloom.kernels.raster.cull import is_in_frustum, model_view
from worldloom.kernels.raster.scratch import SAMPLE, Scratch, first_pixel, padded
from worldloom.kernels.shading.rows import blend_samples
from worldloom.kernels.simd import SIMD_WIDTH, ints
from worldloom.kernels.tables import (
    F32,
    F64,
    I32,
    NO_MESH,
    OPAQUE_ALPHA,
    STANDS_FOR_SHADOW,
    U32,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)

ALL_ROWS, OPAQUE_ROWS, TRANSLUCENT_ROWS = 0, 1, 2
"""Kinds of instance rows. All of them where all are opaque: then no alpha is looked at."""


@inlined
def is_of_kind(alpha: F32, row: int, kind: int) -> bool:
    """Return whether a row is opaque, or translucent; False for both if it is not drawn."""
    return (alpha[row] >= OPAQUE_ALPHA) == (kind == OPAQUE_ROWS) and alpha[row] > np.float32(0.0)


@inlined
def is_translucent(alpha: F32, row: int) -> bool:
    """Return whether a row is neither opaque nor invisible; False where its alpha is not a number."""
    return np.float32(0.0) < alpha[row] < OPAQUE_ALPHA


@inlined
def may_have_layers(instances: InstanceTable, lanes: LaneTable, lane: int) -> bool:
    """Return whether a lane has rows that are not opaque. Every view is asked this, so it takes no branches."""
    found = False
    first = np.uint64(lanes.first_row[lane])
    for row in range(first, first + np.uint64(lanes.row_count[lane])):
        found |= not instances.alpha[row] >= OPAQUE_ALPHA
    return found


@device_function
def find_layers(
    assets: AssetTable, instances: InstanceTable, lanes: LaneTable, views: ViewTable, view: int, scratch: Scratch
) -> int:
    """Write the translucent rows in a view's frustum into `scratch`, from far to near; return their number."""
    lane, count = views.lane[view], 0
    orthographic = views.orthographic[view] == 1
    for row in range(lanes.first_row[lane], lanes.first_row[lane] + lanes.row_count[lane]):
        mesh = instances.mesh[row]
        if mesh == NO_MESH or not is_translucent(instances.alpha, row):
            continue
        if views.shadows[view] == 1 and instances.shadow[row] == STANDS_FOR_SHADOW:
            continue
        model_view(instances.pose, row, views.camera, view, scratch.matrix)
        if is_in_frustum(
            assets.mesh_center,
            assets.mesh_half_size,
            mesh,
            scratch.matrix,
            views.half_height[view],
            views.width[view] / np.float64(views.height[view]),
            views.near[view],
            views.far[view],
            orthographic,
        ):
            key = layer_key(assets, mesh, scratch.matrix, orthographic)
            insert_layer(scratch.layer_keys, scratch.layer_rows, 0, count, key, row)
            count += 1
    return count


@device_function
def layer_key(assets: AssetTable, mesh: int, matrix: F64, orthographic: bool) -> float:
    """Return what translucent rows are sorted by, the greatest first: the distance of the row's ball from the camera.

    The ball is the smallest around the row's origin with all of its mesh in it. Of a flat mesh through the origin
    its far end counts, of others the near end. `matrix` [3, 4] is that of `model_view`.
    """
    largest = 0.0
    first = np.uint64(assets.mesh_first_corner[mesh])
    for corner in range(first, first + np.uint64(assets.mesh_corner_count[mesh])):
        square = 0.0
        for i in range(3):
            along = 0.0
            for j in range(3):
                along += matrix[i, j] * assets.corners[corner, j]
            square += along * along
        largest = max(largest, square)
    distance = -matrix[2, 3]
    if not orthographic:
        distance = np.sqrt(matrix[0, 3] ** 2 + matrix[1, 3] ** 2 + matrix[2, 3] ** 2)
    is_flat = False
    for k in range(3):
        is_flat |= assets.mesh_half_size[mesh, k] == 0.0 and assets.mesh_center[mesh, k] == 0.0
    return distance + np.sqrt(largest) if is_flat else distance - np.sqrt(largest)


@inlined
def insert_layer(keys: F64, rows: I32, first: int, count: int, key: float, row: int) -> None:
    """Insert a row into the `count` rows from index `first` on: after those whose keys are greater or equal."""
    at = first + count
    while at > first and keys[at - 1] < key:
        keys[at], rows[at] = keys[at - 1], rows[at - 1]
        at -= 1
    keys[at], rows[at] = key, row


@device_function
def keep_opaque(views: ViewTable, view: int, scratch: Scratch) -> None:
    """Copy the visibility buffer of the opaque rows, and clear its owners."""
    none = ints(np.int32(0))
    pixels = padded(views.width[view]) * np.uint64(scratch.band[1] - scratch.band[0])
    for sample in range(np.uint64(views.samples[view])):
        first = first_pixel(scratch.owner, sample, 0, 0)
        for at in range(first, first + pixels, np.uint64(SIMD_WIDTH)):
            store(scratch.opaque_nearness, at, load_floats(scratch.nearness, at))
            store(scratch.opaque_owner, at, load_ints(scratch.owner, at))
            store(scratch.owner, at, none)


@device_function
def remove_layer(views: ViewTable, view: int, scratch: Scratch) -> None:
    """Remove the layer that was drawn last from the visibility buffer."""
    none = ints(np.int32(0))
    width = padded(views.width[view])
    top = np.uint64(scratch.drawn_rows[0] - scratch.band[0])
    bottom = np.uint64(max(scratch.drawn_rows[0], scratch.drawn_rows[1]) - scratch.band[0])
    for sample in range(np.uint64(views.samples[view])):
        first = first_pixel(scratch.owner, sample, 0, 0)
        for at in range(first + top * width, first + bottom * width, np.uint64(SIMD_WIDTH)):
            store(scratch.nearness, at, load_floats(scratch.opaque_nearness, at))
            store(scratch.owner, at, none)


@device_function
def restore_opaque(views: ViewTable, view: int, scratch: Scratch) -> None:
    """Restore the visibility buffer of the opaque rows."""
    pixels = padded(views.width[view]) * np.uint64(scratch.band[1] - scratch.band[0])
    for sample in range(np.uint64(views.samples[view])):
        first = first_pixel(scratch.owner, sample, 0, 0)
        for at in range(first, first + pixels, np.uint64(SIMD_WIDTH)):
            store(scratch.nearness, at, load_floats(scratch.opaque_nearness, at))
            store(scratch.owner, at, load_ints(scratch.opaque_owner, at))


@device_function
def keep_row(y: int, width: np.uint64, samples: np.uint64, colors: U32, owner: I32, frame: U32) -> None:
    """Copy the finished colours of all samples of a row, counted in the band, into the frame."""
    for sample in range(samples):
        row = first_pixel(owner, sample, y, width)
        for x in range(width):
            frame[row + x] = colors[sample * SAMPLE + x]


@device_function
def blend_row(
    y: int, width: np.uint64, samples: np.uint64, alpha: np.float32, colors: U32, owner: I32, frame: U32
) -> None:
    """Blend the finished colours of a layer over a row of the frame, where it is seen: each sample, rounded."""
    low, half = np.uint32(255), np.float32(0.5)
    for sample in range(samples):
        row = first_pixel(owner, sample, y, width)
        for x in range(width):
            above, below = colors[sample * SAMPLE + x], frame[row + x]
            mixed = np.uint32(0)
            for channel in range(3):
                shift = np.uint32(8 * channel)
                behind = np.float32(np.int32((below >> shift) & low))
                change = np.float32(np.int32((above >> shift) & low)) - behind
                mixed |= np.uint32(np.int32(behind + alpha * change + half)) << shift
            frame[row + x] = mixed if owner[row + x] != 0 else below


@device_function
def finish_row(y: int, width: np.uint64, samples: np.uint64, colors: U32, owner: I32, frame: U32) -> None:
    """Write the finished pixels of a row of the frame into the first row of `colors`."""
    for sample in range(samples):
        row = first_pixel(owner, sample, y, width)
        for x in range(width):
            colors[sample * SAMPLE + x] = frame[row + x]
    if samples == 4:
        blend_samples(width, colors)
