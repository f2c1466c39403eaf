"""The tables every kernel reads: plain arrays grouped by what they describe.

One row is one thing (an instance, a lane, a view, a mesh), one array is one property of all of them. The groups are
named tuples because numba takes those as they are; the arrays inside are shared, never copied, and changed in place.
World space is right-handed with z up, in metres. Colours are red, green, blue in 0..1; light is summed as it stands,
without gamma.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
U8: TypeAlias = NDArray[np.uint8]
U32: TypeAlias = NDArray[np.uint32]

OUTPUTS = ("rgb", "gray", "depth", "segmentation")
"""What a view can be asked for, in the order of the columns of an offsets table."""
OUTPUT_BYTES = (3, 1, 4, 1)
"""Bytes a pixel takes in each output."""
RGB, GRAY, DEPTH, SEGMENTATION = 1, 2, 4, 8
"""Bits of `ViewTable.outputs`: bit k asks for `OUTPUTS[k]`."""

NO_MESH = -1
"""`InstanceTable.mesh` of a row that draws nothing."""
NO_TEXTURE = -1
"""`InstanceTable.texture` of a row with a plain colour, `LaneTable.sky_textures` of a lane with a plain sky."""

MAX_LAMPS = 8
"""Lamps of a lane."""
# Numbers of a lamp in `LaneTable.lamps`. Colours, position and direction are three each.
LAMP_KIND, LAMP_POSITION, LAMP_DIRECTION, LAMP_AMBIENT, LAMP_DIFFUSE, LAMP_SPECULAR = 0, 1, 4, 7, 10, 13
LAMP_FADING, LAMP_CONE, LAMP_EXPONENT = 16, 19, 20
LAMP_NUMBERS = 24
SUN, SPOT, HEAD = 0, 1, 2
"""What LAMP_KIND says: shines one way everywhere; shines from a place; shines the way the camera looks."""


class AssetTable(NamedTuple):
    """What is loaded once and shared: V vertices at C corners, T triangles, M meshes, X textures of P texels each."""

    positions: F32  # [V, 3]
    normals: F32  # [V, 3] unit length
    uvs: F32  # [V, 2] u to the right, v down the texture
    triangles: I32  # [T, 3] vertex rows, counter-clockwise seen from the front
    corners: F32  # [C, 3] each position of a mesh once, however many vertices share it; some more at the end
    triangle_corners: I32  # [T, 3] counted from the mesh's first
    triangle_is_flat: U8  # [T] 1 where the three normals are the same
    mesh_first_triangle: I32  # [M]
    mesh_triangle_count: I32  # [M]
    mesh_first_corner: I32  # [M]
    mesh_corner_count: I32  # [M]
    mesh_center: F32  # [M, 3] of the box around its vertices
    mesh_half_size: F32  # [M, 3] half the sides of that box
    mesh_is_two_sided: U8  # [M] 1: its back is drawn too, lit from the viewer's side
    mesh_lighter: I32  # [M] which mesh is shown instead where this one is small on the screen, or NO_MESH
    mesh_lighter_size: F32  # [M, 3] along each axis: how many times as large as that it is, one pixel to the metre
    texels: U32  # [X, P] all mip levels one after another, red in the lowest byte, then green, blue
    texel_rows: U32  # [X, Q] the same, each row followed by its first texel: left and right neighbour lie together
    mip_first_texel: I32  # [levels] where each level starts; level k is (size >> k) texels square
    texture_size: int  # side of level 0, a power of two


class InstanceTable(NamedTuple):
    """One row is one mesh placed in one lane."""

    mesh: I32  # [N] or NO_MESH
    pose: F32  # [N, 3, 4] local to world; scale and mirroring included
    color: F32  # [N, 3] multiplies the texture
    texture: I32  # [N] or NO_TEXTURE
    uv_scale: F32  # [N, 2] multiplies the mesh's UVs
    label: U8  # [N] what segmentation shows; 0 is the sky's
    shine: F32  # [N, 3] under lamps: how much it glows by itself, how much it reflects as a mirror would, how sharply


class LaneTable(NamedTuple):
    """One row is one lane: which instance rows are its own, and how its light, sky and fog are."""

    first_row: I32  # [L]
    row_count: I32  # [L]
    still_rows: I32  # [L] how many of the first look the same in most lanes, at most times; 0 if nothing is known
    light_direction: F32  # [L, 3] the way the light travels; any length
    light_color: F32  # [L, 3]
    ambient: F32  # [L, 3] what reaches a surface that faces up
    ambient_ground: F32  # [L, 3] what reaches a surface that faces down; between them, a blend
    sky_horizon: F32  # [L, 3]
    sky_zenith: F32  # [L, 3]
    sky_textures: I32  # [L] the first of six that are the sky, or NO_TEXTURE: it is as above
    lamp_count: I32  # [L] 0: light_direction, light_color, ambient and ambient_ground are all the light there is
    lamps: F32  # [L, MAX_LAMPS, LAMP_NUMBERS] instead of these; what the numbers are is said above
    fog_color: F32  # [L, 3]
    fog_range: F32  # [L, 2] depth in metres where fog begins and where nothing else is left; end <= begin: no fog


class ViewTable(NamedTuple):
    """One row is one picture asked for."""

    lane: I32  # [V]
    camera: F32  # [V, 3, 4] camera to world: right, up, backward, position
    orthographic: U8  # [V] 0 perspective, 1 orthographic
    half_height: F32  # [V] half the picture's height in metres: one metre ahead (perspective), anywhere (orthographic)
    near: F32  # [V] metres along the view axis
    far: F32  # [V]
    width: I32  # [V] pixels
    height: I32  # [V]
    outputs: U8  # [V] bits of RGB, GRAY, DEPTH, SEGMENTATION
    samples: U8  # [V] 1, or 4 for smooth edges


Table = TypeVar("Table", AssetTable, InstanceTable, LaneTable, ViewTable)


def each_column(table: Table, change: Callable[[Any], Any]) -> Table:
    """A table of the same kind whose columns are what `change` makes of this one's."""
    columns: list[Any] = [change(column) for column in table]
    return type(table)(*columns)
