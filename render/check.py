"""Validation of a draw, before anything is drawn: kernels rely on it and check nothing themselves.

One kernel recognises a valid draw in microseconds; only if it fails does slower code find what is wrong and where.
Values that a simulation can produce by accident (a pose that is not finite) are no errors: such rows are not drawn.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from worldloom.kernels.outputs import OUTPUT_COUNT, OUTPUT_NAMES
from worldloom.kernels.raster.scratch import MAX_WIDTH
from worldloom.kernels.tables import (
    I64,
    MAX_LAMPS,
    NO_MESH,
    NO_TEXTURE,
    ONE_SKY,
    SCREEN_SKY,
    TINTED_SKY,
    U8,
    PreviousTable,
    ViewTable,
)
from worldloom.kernels.views import AXES_TOLERANCE, SKY_SIDES, find_invalid_camera, is_valid_draw
from worldloom.render.views import frame_bytes

if TYPE_CHECKING:
    from worldloom.render.scene import Scene

_I64, _U8 = np.dtype("int64"), np.dtype("uint8")
_DTYPES = tuple(
    np.dtype(name)
    for name in ("int32", *("float32", "uint8", *("float32",) * 3), "int32", "int32", "uint8", "uint8", "uint8")
)
"""Dtypes of the columns of a view table."""


def check_draw(scene: "Scene", views: ViewTable, arena: U8, offsets: I64) -> None:
    """Raise ValueError if a draw is not valid."""
    if not _is_valid(scene, views, arena, offsets):
        raise_first_error(scene, views, arena, offsets)


def _is_valid(scene: "Scene", views: ViewTable, arena: U8, offsets: I64) -> bool:
    """Return whether a draw is valid."""
    if not has_valid_arrays(views, arena, offsets):
        return False
    lanes, instances, table = scene.lanes, scene.instances, scene.assets.table
    return is_valid_draw(
        *views,
        offsets,
        np.empty((offsets.size, 2), np.int64),
        arena.size,
        lanes.first_row,
        lanes.row_count,
        lanes.sky_textures,
        lanes.lamp_count,
        instances.mesh,
        instances.texture,
        len(table.mesh_first_triangle),
        len(table.texels),
        AXES_TOLERANCE,
    )


def check_previous(scene: "Scene", views: ViewTable, previous: PreviousTable) -> None:
    """Raise ValueError unless a previous table fits the views, whose lanes may still be found to be wrong."""
    count, rows = len(views.lane), len(previous.mesh)
    for name, dtype, shape in (
        ("first_row", "int32", (count,)),
        ("camera", "float32", (count, 3, 4)),
        ("half_height", "float32", (count,)),
        ("mesh", "int32", (rows,)),
        ("pose", "float32", (rows, 3, 4)),
    ):
        _check_array(f"previous.{name}", getattr(previous, name), np.dtype(dtype), shape)
    known = len(scene.lanes.row_count)
    row_counts = scene.lanes.row_count[np.clip(views.lane, 0, known - 1)] if known else np.zeros(count, np.int32)
    first, half_height = previous.first_row, previous.half_height
    _raise_if(
        first, (first < -1) | ((first >= 0) & (first > rows - row_counts)), "previous.first_row", f"rows of the {rows}"
    )
    is_wrong = (first >= 0) & ~(np.isfinite(half_height) & (half_height > 0))
    _raise_if(half_height, is_wrong, "previous.half_height", "a finite number above 0")
    asked = np.flatnonzero(first >= 0)
    view = find_invalid_camera(previous.camera[asked], AXES_TOLERANCE)
    if view >= 0:
        raise ValueError(
            f"view {asked[view]}: previous.camera is {previous.camera[asked[view]].tolist()}, expected finite numbers "
            "whose first three columns are orthonormal"
        )


def has_valid_arrays(views: ViewTable, arena: U8, offsets: I64) -> bool:
    """Return whether the arrays of a draw have the expected dtypes and shapes and are contiguous."""
    count, camera = len(views.lane), views.camera
    shape, pose_shape = (count,), (count, 3, 4)
    columns: Iterator[tuple[np.ndarray, np.dtype[Any]]] = zip(views, _DTYPES, strict=True)
    for column, dtype in columns:
        if column.dtype != dtype or column.shape != (pose_shape if column is camera else shape):
            return False
        if not column.flags.c_contiguous:
            return False
    if offsets.dtype != _I64 or offsets.shape != (count, OUTPUT_COUNT) or not offsets.flags.c_contiguous:
        return False
    return arena.dtype == _U8 and arena.ndim == 1 and arena.flags.carray


def raise_first_error(scene: "Scene", views: ViewTable, arena: U8, offsets: I64) -> None:
    """Raise ValueError for the first error of a draw that is not valid."""
    _check_arrays(views, arena, offsets)
    lanes = len(scene.lanes.first_row)
    _raise_if(
        views.lane,
        (views.lane < 0) | (views.lane >= lanes),
        "lane",
        f"0 to {lanes - 1}" if lanes else "a lane of the scene, which has none",
    )
    for name in ("width", "height"):
        side = getattr(views, name)
        _raise_if(side, (side < 1) | (side > MAX_WIDTH), name, f"1 to {MAX_WIDTH} pixels")
    _raise_if(views.samples, (views.samples != 1) & (views.samples != 4), "samples", "1 or 4")
    every = (1 << OUTPUT_COUNT) - 1
    _raise_if(views.outputs, views.outputs > every, "outputs", f"bits of {', '.join(OUTPUT_NAMES)}, at most {every}")
    _raise_if(views.orthographic, views.orthographic > 1, "orthographic", "0 or 1")
    _raise_if(views.shadows, views.shadows > 1, "shadows", "0 or 1")
    _check_cameras(views)
    _check_lanes(scene, views)
    _check_rows(scene, views)
    _check_offsets(views, arena, offsets)


def _raise_if(values: np.ndarray, wrong: np.ndarray, name: str, expected: str) -> None:
    if wrong.any():
        view = int(np.argmax(wrong))
        raise ValueError(f"view {view}: {name} is {values[view]}, expected {expected}")


def _check_arrays(views: ViewTable, arena: U8, offsets: I64) -> None:
    count = len(views.lane)
    for name, dtype in zip(views._fields, _DTYPES, strict=True):
        shape = (count, 3, 4) if name == "camera" else (count,)
        _check_array(f"views.{name}", getattr(views, name), dtype, shape)
    _check_array("offsets", offsets, _I64, (count, OUTPUT_COUNT))
    _check_array("arena", arena, _U8, (arena.size,))
    if not arena.flags.writeable:
        raise ValueError("the arena is read-only: expected a writeable array")


def _check_array(name: str, array: np.ndarray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        layout = "" if array.flags.c_contiguous else ", not contiguous"
        raise ValueError(
            f"{name}: expected a contiguous {dtype} {list(shape)}, got {array.dtype} {list(array.shape)}{layout}"
        )


def _check_cameras(views: ViewTable) -> None:
    half, near, far = views.half_height, views.near, views.far
    _raise_if(half, ~(np.isfinite(half) & (half > 0)), "half_height", "a finite number above 0")
    _raise_if(
        near,
        ~np.isfinite(near) | ((near <= 0) & (views.orthographic == 0)),
        "near",
        "a finite number, above 0 in perspective",
    )
    _raise_if(far, ~(np.isfinite(far) & (far > near)), "far", "a finite number above near")
    view = find_invalid_camera(views.camera, AXES_TOLERANCE)
    if view >= 0:
        raise ValueError(
            f"view {view}: camera is {views.camera[view].tolist()}, expected finite numbers whose first three columns "
            "are orthonormal (render.views.look_at returns such)"
        )


def _check_lanes(scene: "Scene", views: ViewTable) -> None:
    """Check lamps and sky of the lanes that are drawn."""
    lanes = np.unique(views.lane)
    counts, first_textures = scene.lanes.lamp_count[lanes], scene.lanes.sky_textures[lanes]
    known = len(scene.assets.table.texels)
    box = np.where(first_textures >= TINTED_SKY, first_textures - TINTED_SKY, first_textures)
    has_sky = (box >= 0) & (box <= known - SKY_SIDES)
    base = np.where(first_textures <= SCREEN_SKY, SCREEN_SKY, ONE_SKY)
    has_sky |= (first_textures <= ONE_SKY) & (base - first_textures.astype(np.int64) < known)
    for name, values, wrong, expected in (
        ("lamp_count", counts, (counts < 0) | (counts > MAX_LAMPS), f"0 to {MAX_LAMPS}"),
        (
            "sky_textures",
            first_textures,
            (first_textures != NO_TEXTURE) & ~has_sky,
            f"{NO_TEXTURE} for none, the first of {SKY_SIDES} textures of the {known} there are, or {ONE_SKY} or "
            f"{SCREEN_SKY} less the only one",
        ),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(f"lane {lanes[first]}: {name} is {values[first]}, expected {expected}")


def _check_rows(scene: "Scene", views: ViewTable) -> None:
    """Check the instance rows of the lanes that are drawn, and no others."""
    instances, table, lanes = scene.instances, scene.assets.table, np.unique(views.lane)
    first_rows, counts = scene.lanes.first_row[lanes], scene.lanes.row_count[lanes].astype(np.int64)
    rows = np.sort(np.arange(counts.sum()) + np.repeat(first_rows - (np.cumsum(counts) - counts), counts))
    for name, column, none, known in (
        ("mesh", instances.mesh[rows], NO_MESH, len(table.mesh_first_triangle)),
        ("texture", instances.texture[rows], NO_TEXTURE, len(table.texels)),
    ):
        wrong = (column < none) | (column >= known)
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(
                f"instance row {rows[first]}: {name} is {column[first]}, expected {none} for none, or 0 to {known - 1}"
            )


def _check_offsets(views: ViewTable, arena: U8, offsets: I64) -> None:
    sizes = frame_bytes(views)
    asked = sizes > 0
    outside = asked & ((offsets < 0) | (offsets > arena.size - sizes))
    if outside.any():
        view, output = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(
            f"view {view}: {OUTPUT_NAMES[output]} takes {sizes[view, output]} bytes at offset {offsets[view, output]}, "
            f"expected a range inside the arena of {arena.size} bytes"
        )
    starts, lengths = offsets[asked], sizes[asked]
    order = np.argsort(starts, kind="stable")
    overlapping = starts[order][:-1] + lengths[order][:-1] > starts[order][1:]
    if overlapping.any():
        where = np.argwhere(asked)[order]
        (view, output), (other, second) = where[int(np.argmax(overlapping))], where[int(np.argmax(overlapping)) + 1]
        raise ValueError(
            f"views {view} and {other}: {OUTPUT_NAMES[output]} and {OUTPUT_NAMES[second]} overlap in the arena, "
            "expected disjoint ranges"
        )
