"""Meshes with many triangles get lighter versions, for where they are small on the screen.

Vertices of one cell of a grid become one, and triangles that lose a corner that way are gone. A version is shown where
its cells are smaller than pixels.
"""

from dataclasses import replace

import numpy as np

from worldloom.render.meshes import Lighter, Mesh

_FEW = 64
"""A mesh of so few triangles needs no lighter version."""
_CELLS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Cells along the longest side of a mesh, from its lightest version on."""
_WORTH = 0.7
"""A version has no more than this share of the triangles of the next finer one."""
_UV_CELLS = 8
"""Parts of a texture that are kept apart: what is side by side in space need not be there."""


def lightened(mesh: Mesh) -> Mesh:
    """The same mesh with lighter versions, each with the next."""
    side = float(np.ptp(mesh.positions, axis=0).max())
    if len(mesh.triangles) <= _FEW or not side > 0:
        return mesh
    best: Mesh | None = None
    size = 0.0
    for cells in _CELLS:
        cell = side / cells
        version = _clustered(mesh, cell)
        if version is None or (best is not None and len(best.triangles) > _WORTH * len(version.triangles)):
            continue
        if len(version.triangles) > _WORTH * len(mesh.triangles):
            break
        best, size = (version if best is None else _with(version, best, size)), cell
    return mesh if best is None else _with(mesh, best, size)


def _with(mesh: Mesh, lighter: Mesh, size: float) -> Mesh:
    return replace(mesh, lighter=Lighter(lighter, (size, size, size)))


def _clustered(mesh: Mesh, cell: float) -> Mesh | None:
    """The mesh with one vertex for all that share a cell, a side and a part of the texture; none if nothing is left."""
    sides = np.abs(mesh.normals).argmax(axis=1)
    sides = 2 * sides + (mesh.normals[np.arange(len(sides)), sides] > 0)
    u, v = np.floor(mesh.uvs.astype(np.float64) * _UV_CELLS).T
    _, patch = np.unique(u + 1j * v, return_inverse=True)  # numbered, since they may be far apart
    keys = np.column_stack([np.floor(mesh.positions / cell), sides, patch]).astype(np.int64)
    keys -= keys.min(axis=0)
    flat = np.ravel_multi_index(tuple(keys.T), tuple(keys.max(axis=0) + 1))
    _, cluster_of, counts = np.unique(flat, return_inverse=True, return_counts=True)
    vertices = np.concatenate([mesh.positions, mesh.normals, mesh.uvs], axis=1)
    means = np.stack([np.bincount(cluster_of, column) for column in vertices.T], axis=1) / counts[:, None]
    triangles = cluster_of[mesh.triangles]
    a, b, c = triangles.T
    triangles = triangles[(a != b) & (b != c) & (c != a)]
    if not len(triangles):
        return None
    positions, normals, uvs = (part.astype(np.float32) for part in np.split(means, [3, 6], axis=1))
    return Mesh(positions, normals, uvs, triangles.astype(np.int32), mesh.two_sided)
