"""Backdrops: what stands still in many views, drawn once and laid behind what moves.

The first `still_rows` instance rows of a lane are said to look the same in most lanes of its kind, and at most times. A
worker keeps what it saw of such rows: how near each pixel is, and its colour with the label above it. A view whose
camera, light and still rows are the same to the last bit begins with that instead of an empty picture. Its bytes come
out as if everything had been drawn: rows are entered in order, and the first of two that are equally near stays.
"""

from typing import NamedTuple

import numpy as np

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.intrinsics import load_floats, load_ints, store
from worldloom.kernels.raster.scratch import BLOCK, padded
from worldloom.kernels.simd import ints
from worldloom.kernels.tables import (
    F32,
    I32,
    I64,
    LAMP_NUMBERS,
    MAX_LAMPS,
    U32,
    InstanceTable,
    LaneTable,
    ViewTable,
)

SLOTS = 8
"""Backdrops that a worker keeps; a power of two."""
MAX_PIXELS = 1 << 17
"""Of a view that has one: all of a worker's backdrops take at most 8 MiB."""
MAX_ROWS = 64
"""Still rows of a view that has one."""
_VIEW_NUMBERS, _ROW_NUMBERS = 44, 23
KEY_NUMBERS = _VIEW_NUMBERS + MAX_LAMPS * LAMP_NUMBERS + MAX_ROWS * _ROW_NUMBERS
NONE, FOUND, NEW = 0, 1, 2
"""What looking for a backdrop comes to: go without; there is one; there is a place for one."""


class Backdrops(NamedTuple):
    """What one worker keeps, and the key of the view it is at."""

    length: I64  # [SLOTS] numbers of the key; 0 where there is no backdrop
    key: I32  # [SLOTS, KEY_NUMBERS] the bits of all that it depends on
    missed: I64  # [SLOTS] the last view that found no backdrop here
    wanted: I32  # [KEY_NUMBERS]
    nearness: F32  # [SLOTS * pixels + BLOCK] rows padded to whole blocks
    colors: U32  # [SLOTS * pixels + BLOCK] red in the lowest byte, the label in the highest


def make_backdrops(pixels: int) -> Backdrops:
    """Room for views of so many (padded) pixels."""
    return Backdrops(
        length=np.zeros(SLOTS, np.int64),
        key=np.zeros((SLOTS, KEY_NUMBERS), np.int32),
        missed=np.zeros(SLOTS, np.int64),
        wanted=np.zeros(KEY_NUMBERS, np.int32),
        nearness=np.zeros(SLOTS * pixels + BLOCK, np.float32),
        colors=np.zeros(SLOTS * pixels + BLOCK, np.uint32),
    )


@called
def find_backdrop(
    instances: InstanceTable, lanes: LaneTable, views: ViewTable, view: int, backdrops: Backdrops
) -> tuple[int, np.uint64]:
    """Whether a view has a backdrop, and which. A new one is worth making when it is missed twice in a row."""
    lane = views.lane[view]
    still = np.int64(lanes.still_rows[lane])
    pixels = padded(views.width[view]) * np.uint64(views.height[view])
    room = np.uint64(backdrops.colors.size - BLOCK) // np.uint64(SLOTS)
    most = min(lanes.row_count[lane], MAX_ROWS)
    if still <= 0 or still > most or views.samples[view] != 1 or pixels > room:
        return NONE, np.uint64(0)
    length = _write_key(instances, lanes, views, view, still, backdrops.wanted)
    mixed = np.uint64(still)
    for k in range(_VIEW_NUMBERS):
        mixed = (mixed ^ np.uint64(np.uint32(backdrops.wanted[k]))) * np.uint64(0x9E3779B97F4A7C15)
    slot = mixed >> np.uint64(61)
    if _is_same(backdrops, slot, length):
        return FOUND, slot
    if backdrops.missed[slot] != np.int64(mixed):
        backdrops.missed[slot] = np.int64(mixed)
        return NONE, slot
    backdrops.length[slot] = length
    for k in range(length):
        backdrops.key[slot, k] = backdrops.wanted[k]
    return NEW, slot


@inlined
def _is_same(backdrops: Backdrops, slot: np.uint64, length: int) -> bool:
    if backdrops.length[slot] != length:
        return False
    different = np.int32(0)
    for k in range(length):
        different |= backdrops.key[slot, k] ^ backdrops.wanted[k]
    return different == 0


@inlined
def _write_key(
    instances: InstanceTable, lanes: LaneTable, views: ViewTable, view: int, still: int, key: I32
) -> np.int64:
    """The bits of all that the look of a view's still rows depends on; how many numbers."""
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
    at = np.int64(_VIEW_NUMBERS)
    for lamp in range(lanes.lamp_count[lane]):
        for k in range(LAMP_NUMBERS):
            key[at + k] = _bits(lanes.lamps[lane, lamp, k])
        at += LAMP_NUMBERS
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
        at += _ROW_NUMBERS
    return at


@inlined
def _bits(number: float) -> np.int32:
    return np.float32(number).view(np.int32)


@inlined
def first_behind(backdrops: Backdrops, slot: np.uint64) -> np.uint64:
    """Where a backdrop begins."""
    return slot * (np.uint64(backdrops.colors.size - BLOCK) // np.uint64(SLOTS))


@called
def keep_nearness(nearness: F32, width: int, height: int, backdrops: Backdrops, slot: np.uint64) -> None:
    """Keep how near the pixels of a picture are that shows the still rows alone."""
    start = first_behind(backdrops, slot)
    for pixel in range(np.uint64(0), padded(width) * np.uint64(height), np.uint64(BLOCK)):
        store(backdrops.nearness, start + pixel, load_floats(nearness, pixel))


@inlined
def keep_row(
    instances: InstanceTable,
    first_row: np.uint64,
    start: np.uint64,
    width: np.uint64,
    whole: I32,
    row_column: int,
    owner: I32,
    colors: U32,
    backdrops: Backdrops,
) -> None:
    """Keep a finished row of such a picture, and what segmentation would show."""
    for x in range(width):
        number = np.uint64(owner[first_row + x])
        label = np.uint32(instances.label[np.uint64(whole[number, row_column])]) if number != 0 else np.uint32(0)
        backdrops.colors[start + x] = (colors[x] & np.uint32(0xFFFFFF)) | (label << np.uint32(24))


@called
def lay_behind(
    backdrops: Backdrops, slot: np.uint64, width: int, height: int, laid: I64, nearness: F32, owner: I32
) -> None:
    """Begin a picture with a backdrop: its pixels belong to nobody. If it is there already, mend it."""
    first, last = (laid[1], laid[2]) if laid[0] == np.int64(slot) else (np.int64(0), np.int64(height))
    laid[0] = slot
    start = first_behind(backdrops, slot)
    nobody = ints(np.int32(0))
    for pixel in range(np.uint64(first) * padded(width), np.uint64(last) * padded(width), np.uint64(BLOCK)):
        store(nearness, pixel, load_floats(backdrops.nearness, start + pixel))
        store(owner, pixel, nobody)


@inlined
def show_behind(backdrops: Backdrops, start: np.uint64, x_from: np.uint64, x_to: np.uint64, colors: U32) -> None:
    """The colours of the backdrop in a run of the row that begins at `start`."""
    for x in range(x_from, x_to, np.uint64(BLOCK)):
        store(colors, x, load_ints(backdrops.colors, start + x))
