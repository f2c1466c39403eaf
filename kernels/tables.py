"""The tables that all kernels read: assets, instances, lanes and views, each a group of plain arrays.

A row is one instance, lane, view or mesh; an array is one column. The groups are named tuples because numba accepts
those as arguments; the arrays are shared, never copied, and changed in place.
World space is right-handed with z up, in metres. Colours are red, green, blue in 0..1; light is summed
linearly, without gamma.
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

NO_MESH = -1
"""`InstanceTable.mesh` of a row that draws nothing."""
NO_TEXTURE = -1
"""`InstanceTable.texture` of a row with a plain colour, `LaneTable.sky_textures` of a lane with a plain sky."""
ONE_SKY = -2
"""`LaneTable.sky_textures` of a lane whose sky box has texture t on all sides is ONE_SKY - t."""
SCREEN_SKY = -(1 << 20)
"""The same of a lane whose sky is texture t, fixed to the screen in all views: SCREEN_SKY - t."""
TINTED_SKY = 1 << 20
"""The same of a lane whose sky box of six textures from t on is multiplied by `sky_zenith`: TINTED_SKY + t."""

OPAQUE_ALPHA = np.float32(0.995)
"""`InstanceTable.alpha` from which a row is opaque."""

MAX_LAMPS = 8
"""Most lamps of a lane."""
# Columns of `LaneTable.lamps`. Position, direction, colours and attenuation (constant, linear, quadratic) take three
# each; LAMP_CONE is the cosine of the cone's half angle, -1 for all directions. LAMP_SHADOW is half the side of the
# square around the lamp's axis in which it casts shadows, in metres or, of a spot, at depth 1; 0 if it casts none.
LAMP_KIND, LAMP_POSITION, LAMP_DIRECTION, LAMP_AMBIENT, LAMP_DIFFUSE, LAMP_SPECULAR = 0, 1, 4, 7, 10, 13
LAMP_ATTENUATION, LAMP_CONE, LAMP_EXPONENT, LAMP_SHADOW = 16, 19, 20, 21
LAMP_SIZE = 24
DIRECTIONAL, SPOT, HEADLIGHT = 0, 1, 2
"""Values of LAMP_KIND: parallel light; light from a position; parallel light along the camera's forward axis."""

CASTS, CASTS_NOTHING, STANDS_FOR_SHADOW = 0, 1, 2
"""Values of `InstanceTable.shadow`. STANDS_FOR_SHADOW: a painted shadow, which views with shadows do not show."""


CONTINUES_ALL, CONTINUES_SHAPE = 1, 2
"""Values of `AssetTable.triangle_continues`: with the one before it, a triangle forms a parallelogram that has one
normal and affine UVs; or only a convex polygon in one plane."""


class AssetTable(NamedTuple):
    """Assets, shared by all lanes: V vertices at C corners, T triangles, M meshes, X textures of P texels each."""

    positions: F32  # [V, 3]
    normals: F32  # [V, 3] unit length
    uvs: F32  # [V, 2] u to the right, v down the texture
    triangles: I32  # [T, 3] vertex rows, counter-clockwise seen from the front
    corners: F32  # [C, 3] distinct positions of each mesh; padded to a whole SIMD vector
    triangle_corners: I32  # [T, 3] relative to the mesh's first corner
    triangle_is_flat: U8  # [T] 1 where the three normals are the same
    triangle_continues: U8  # [T] CONTINUES_ALL, CONTINUES_SHAPE or 0: what it continues of the triangle before
    mesh_first_triangle: I32  # [M]
    mesh_triangle_count: I32  # [M]
    mesh_first_corner: I32  # [M]
    mesh_corner_count: I32  # [M]
    mesh_center: F32  # [M, 3] of the bounding box
    mesh_half_size: F32  # [M, 3] of the bounding box
    mesh_is_two_sided: U8  # [M] 1: back faces are drawn too, with normals turned to the viewer
    mesh_hollow: F32  # [M] part of the bounding box, around its centre, from where no front of a triangle is seen
    mesh_is_convex: U8  # [M] 1: nothing of it lies before one of its triangles
    mesh_front: F32  # [M, 3] normal of a one-sided mesh that is flat, of any length; 0 for all others
    mesh_coarser: I32  # [M] mesh of the next level of detail, drawn where this one is small on the screen, or NO_MESH
    mesh_coarser_size: F32  # [M, 3] see CoarserMesh.size in render/meshes.py
    texels: U32  # [X, P] all mip levels one after another, red in the lowest byte, then green, blue
    texel_rows: U32  # [X, 2·size²] the same, each row followed by its first texel, so that right neighbours are
    # adjacent; level k begins at 2·size² - (2·size² >> 2k), which is far enough for those before it
    mip_first_texel: I32  # [levels] index of each level's first texel; level k has (size >> k)² texels
    texture_size: int  # side of level 0, a power of two


ASSET_DIMENSIONS = (2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1, 2, 1, 2, 2, 2, 1, 0)
"""Dimensions of each column; 0 is an integer."""


class InstanceTable(NamedTuple):
    """Instances: a row is one mesh placed in one lane."""

    mesh: I32  # [N] or NO_MESH
    pose: F32  # [N, 3, 4] local to world; scale and mirroring included
    color: F32  # [N, 3] multiplies the texture
    texture: I32  # [N] or NO_TEXTURE
    uv_scale: F32  # [N, 2] multiplies the mesh's UVs
    label: U8  # [N] value in segmentation; 0 is the background
    shine: F32  # [N, 3] emission, specular reflection and its exponent; used in lanes with lamps
    shadow: U8  # [N] CASTS, CASTS_NOTHING or STANDS_FOR_SHADOW; used in views with shadows
    alpha: F32  # [N] from OPAQUE_ALPHA on opaque, below translucent; not drawn unless it is above 0


INSTANCE_DIMENSIONS = (1, 3, 2, 1, 2, 1, 2, 1, 1)


class LaneTable(NamedTuple):
    """Lanes: the range of instance rows of each, and its light, sky and fog."""

    first_row: I32  # [L]
    row_count: I32  # [L]
    static_rows: I32  # [L] the first rows that are the same in most lanes, most of the time; see backdrop.py
    light_direction: F32  # [L, 3] direction of travel; any length
    light_color: F32  # [L, 3]
    ambient: F32  # [L, 3] ambient light of a surface that faces up
    ambient_ground: F32  # [L, 3] of a surface that faces down; interpolated between
    sky_horizon: F32  # [L, 3]
    sky_zenith: F32  # [L, 3]
    sky_textures: I32  # [L] first of the six textures of a sky box, NO_TEXTURE for the gradient above; see ONE_SKY
    lamp_count: I32  # [L] if not 0, lamps replace light_direction, light_color, ambient and ambient_ground
    lamps: F32  # [L, MAX_LAMPS, LAMP_SIZE]
    fog_color: F32  # [L, 3]
    fog_range: F32  # [L, 2] depth in metres where fog begins and where it is complete; end <= begin: no fog


LANE_DIMENSIONS = (1, 1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 3, 2, 2)


class ViewTable(NamedTuple):
    """Views: a row is one camera of one lane, to be drawn at one size."""

    lane: I32  # [V]
    camera: F32  # [V, 3, 4] camera to world: right, up, backward, position
    orthographic: U8  # [V] 0 perspective, 1 orthographic
    half_height: F32  # [V] half the frame's height in metres, at depth 1 (perspective) or any depth (orthographic)
    near: F32  # [V] metres along the view axis
    far: F32  # [V]
    width: I32  # [V] pixels
    height: I32  # [V]
    outputs: U8  # [V] bits of the outputs, see kernels/outputs.py
    samples: U8  # [V] 1, or 4 for antialiasing
    shadows: U8  # [V] 1: with shadows


VIEW_DIMENSIONS = (1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1)


class PreviousTable(NamedTuple):
    """Cameras and instances one step before, for flow: a row for each view, and rows for the instances of its lane."""

    first_row: I32  # [V] first of the rows below that are its lane's, which follow in order; -1: no step before
    camera: F32  # [V, 3, 4] as in the view table
    half_height: F32  # [V]
    mesh: I32  # [R] as in the instance table
    pose: F32  # [R, 3, 4]


PREVIOUS_DIMENSIONS = (1, 3, 1, 1, 3)

Table = TypeVar("Table", AssetTable, InstanceTable, LaneTable, ViewTable)


def map_columns(table: Table, change: Callable[[Any], Any]) -> Table:
    """Return a table of the same kind with `change` applied to each column."""
    columns: list[Any] = [change(column) for column in table]
    return type(table)(*columns)
