"""Backdrops: frames of the static instances of a lane, drawn once and reused as the background of many views.

The first `static_rows` instance rows of a lane are expected to be the same in most lanes of a family, most of the time.
Each worker caches their nearness, colour and label for each pixel. A view whose camera, light and still rows are equal
bit for bit starts from a cached backdrop instead of an empty frame. Its bytes are the same as if everything had been
drawn: rows are rasterised in order, and the first of two equally near triangles stays.
"""

from typing import NamedTuple

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import load_floats, load_ints, store
from worldloom.kernels.outputs import FLOW, NORMALS
from worldloom.kernels.raster.scratch import padded
from worldloom.kernels.simd import SIMD_WIDTH, ints
from worldloom.kernels.tables import (
    F32,
    I32,
    I64,
    LAMP_SIZE,
    MAX_LAMPS,
    OPAQUE_ALPHA,
    U32,
    InstanceTable,
    LaneTable,
    ViewTable,
)

CACHE_ENTRIES = 8
"""Backdrops that a worker keeps; find_backdrop takes the upper three bits of a hash as index."""
MAX_PIXELS = 1 << 17
"""Largest view that uses a backdrop: all backdrops of a worker then take at most 8 MiB."""
MAX_ROWS = 64
"""Most still rows of a view that uses a backdrop."""
_VIEW_KEY_SIZE, _ROW_KEY_SIZE = 46, 24
KEY_SIZE = _VIEW_KEY_SIZE + MAX_LAMPS * LAMP_SIZE + MAX_ROWS * _ROW_KEY_SIZE
NONE, FOUND, NEW = 0, 1, 2
"""Results of find_backdrop: draw without one; use the cached one; draw a new one first."""


class Backdrops(NamedTuple):
    """The backdrop cache of one worker, and the key of the view it is drawing."""

    length: I64  # [CACHE_ENTRIES] length of the key; 0 in an empty entry
    key: I32  # [CACHE_ENTRIES, KEY_SIZE] bits of everything that the backdrop depends on
    missed: I64  # [CACHE_ENTRIES] hash of the last view that missed this entry
    view_key: I32  # [KEY_SIZE] key of the view that is being drawn
    nearness: F32  # [CACHE_ENTRIES * pixels + SIMD_WIDTH] rows padded to whole vectors
    colors: U32  # [CACHE_ENTRIES * pixels + SIMD_WIDTH] red in the lowest byte, the label in the highest


def allocate_backdrops(pixels: int) -> Backdrops:
    """Allocate a cache for views of at most so many (padded) pixels."""
    return Backdrops(
        length=np.zeros(CACHE_ENTRIES, np.int64),
        key=np.zeros((CACHE_ENTRIES, KEY_SIZE), np.int32),
        missed=np.zeros(CACHE_ENTRIES, np.int64),
        view_key=np.zeros(KEY_SIZE, np.int32),
        nearness=np.zeros(CACHE_ENTRIES * pixels + SIMD_WIDTH, np.float32),
        colors=np.zeros(CACHE_ENTRIES * pixels + SIMD_WIDTH, np.uint32),
    )


@device_function
def find_backdrop(
    instances: InstanceTable, lanes: LaneTable, views: ViewTable, view: int, band: I64, backdrops: Backdrops
) -> tuple[int, np.uint64]:
    """Look up the backdrop of a band of a view; return NONE, FOUND or NEW, and its entry.

    A new one is drawn when the same view misses an entry twice in a row: a camera that moves would waste it.
    """
    lane = views.lane[view]
    still = np.int64(lanes.static_rows[lane])
    pixels = padded(views.width[view]) * np.uint64(band[1] - band[0])
    capacity = np.uint64(backdrops.colors.size - SIMD_WIDTH) // np.uint64(CACHE_ENTRIES)
    most = min(lanes.row_count[lane], MAX_ROWS)
    # A backdrop has no triangle records, which normals and flow are computed from.
    needs_records = views.outputs[view] & (NORMALS | FLOW) != 0 or views.shadows[view] == 1
    if still <= 0 or still > most or views.samples[view] != 1 or pixels > capacity or needs_records:
        return NONE, np.uint64(0)
    length = _write_key(instances, lanes, views, view, band, still, backdrops.view_key)
    mixed = np.uint64(still)
    for k in range(_VIEW_KEY_SIZE):
        mixed = (mixed ^ np.uint64(np.uint32(backdrops.view_key[k]))) * np.uint64(0x9E3779B97F4A7C15)
    entry = mixed >> np.uint64(61)
    if _is_same(backdrops, entry, length):
        return FOUND, entry
    if backdrops.missed[entry] != np.int64(mixed):
        backdrops.missed[entry] = np.int64(mixed)
        return NONE, entry
    backdrops.length[entry] = length
    for k in range(length):
        backdrops.key[entry, k] = backdrops.view_key[k]
    return NEW, entry


@inlined
def _is_same(backdrops: Backdrops, entry: np.uint64, length: int) -> bool:
    if backdrops.length[entry] != length:
        return False
    different = np.int32(0)
    for k in range(length):
        different |= backdrops.key[entry, k] ^ backdrops.view_key[k]
    return different == 0


@inlined
def _write_key(
    instances: InstanceTable, lanes: LaneTable, views: ViewTable, view: int, band: I64, still: int, key: I32
) -> np.int64:
    """Write the bits of everything that the frame of a view's still rows depends on; return the length of the key."""
    lane = views.lane[view]
    camera = views.camera.view(np.int32)
    for k in range(12):
        key[k] = camera[view, k // 4, k % 4]
    key[12], key[13] = views.width[view], views.height[view]
    key[14], key[15] = views.orthographic[view], _bits(views.half_height[view])
    key[16], key[17] = _bits(views.near[view]), _bits(views.far[view])
    for k in range(3):
        key[18 + k] = _bits(lanes.light_direction[lane, k])
        key[21 + k] = _bits(lanes.light_color[lane, k])
        key[24 + k] = _bits(lanes.ambient[lane, k])
        key[27 + k] = _bits(lanes.ambient_ground[lane, k])
        key[30 + k] = _bits(lanes.sky_horizon[lane, k])
        key[33 + k] = _bits(lanes.sky_zenith[lane, k])
        key[36 + k] = _bits(lanes.fog_color[lane, k])
    key[39], key[40], key[41] = _bits(lanes.fog_range[lane, 0]), _bits(lanes.fog_range[lane, 1]), still
    key[42], key[43] = lanes.sky_textures[lane], lanes.lamp_count[lane]
    key[44], key[45] = band[0], band[1]
    at = np.int64(_VIEW_KEY_SIZE)
    for lamp in range(lanes.lamp_count[lane]):
        for k in range(LAMP_SIZE):
            key[at + k] = _bits(lanes.lamps[lane, lamp, k])
        at += LAMP_SIZE
    pose = instances.pose.view(np.int32)
    for row in range(lanes.first_row[lane], lanes.first_row[lane] + still):
        for k in range(12):
            key[at + k] = pose[row, k // 4, k % 4]
        for k in range(3):
            key[at + 12 + k] = _bits(instances.color[row, k])
        key[at + 15], key[at + 16] = _bits(instances.uv_scale[row, 0]), _bits(instances.uv_scale[row, 1])
        key[at + 17], key[at + 18] = instances.mesh[row], instances.texture[row]
        key[at + 19] = instances.label[row]
        for k in range(3):
            key[at + 20 + k] = _bits(instances.shine[row, k])
        key[at + 23] = np.int32(instances.alpha[row] >= OPAQUE_ALPHA)  # others are not part of it
        at += _ROW_KEY_SIZE
    return at


@inlined
def _bits(value: float) -> np.int32:
    return np.float32(value).view(np.int32)


@inlined
def backdrop_offset(backdrops: Backdrops, entry: np.uint64) -> np.uint64:
    """Return the offset of a backdrop in `nearness` and `colors`."""
    return entry * (np.uint64(backdrops.colors.size - SIMD_WIDTH) // np.uint64(CACHE_ENTRIES))


@device_function
def store_backdrop_nearness(nearness: F32, width: int, height: int, backdrops: Backdrops, entry: np.uint64) -> None:
    """Store the nearness of a frame that shows the still rows only."""
    start = backdrop_offset(backdrops, entry)
    for pixel in range(np.uint64(0), padded(width) * np.uint64(height), np.uint64(SIMD_WIDTH)):
        store(backdrops.nearness, start + pixel, load_floats(nearness, pixel))


@inlined
def store_backdrop_row(
    instances: InstanceTable,
    first_row: np.uint64,
    start: np.uint64,
    width: np.uint64,
    record_ints: I32,
    row_column: int,
    owner: I32,
    colors: U32,
    backdrops: Backdrops,
) -> None:
    """Store the colours and labels of a finished row of such a frame."""
    for x in range(width):
        record = np.uint64(owner[first_row + x])
        label = np.uint32(instances.label[np.uint64(record_ints[record, row_column])]) if record != 0 else np.uint32(0)
        backdrops.colors[start + x] = (colors[x] & np.uint32(0xFFFFFF)) | (label << np.uint32(24))


@device_function
def restore_backdrop(
    backdrops: Backdrops, entry: np.uint64, width: int, height: int, restored: I64, nearness: F32, owner: I32
) -> None:
    """Fill the visibility buffer from a backdrop, with no owner; if it holds that one, only the rows drawn over."""
    first, last = (restored[1], restored[2]) if restored[0] == np.int64(entry) else (np.int64(0), np.int64(height))
    restored[0] = entry
    start = backdrop_offset(backdrops, entry)
    no_owner = ints(np.int32(0))
    for pixel in range(np.uint64(first) * padded(width), np.uint64(last) * padded(width), np.uint64(SIMD_WIDTH)):
        store(nearness, pixel, load_floats(backdrops.nearness, start + pixel))
        store(owner, pixel, no_owner)


@inlined
def copy_backdrop_colors(
    backdrops: Backdrops, start: np.uint64, x_from: np.uint64, x_to: np.uint64, colors: U32
) -> None:
    """Copy the colours of a run from the backdrop row that begins at `start`."""
    for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
        store(colors, x, load_ints(backdrops.colors, start + x))
