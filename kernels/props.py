"""Lanes whose rows are copied from a list of things once, and moved afterwards."""

from worldloom.kernels.compiling import brief
from worldloom.kernels.tables import I32, NO_MESH


@brief
def any_bare(scene_lanes: I32, first_row: I32, mesh: I32) -> bool:
    """Whether the first row of any of these lanes is empty: then nothing has been put into that lane yet."""
    bare = False
    for k in range(scene_lanes.size):
        bare |= mesh[first_row[scene_lanes[k]]] == NO_MESH
    return bare
