"""Meshes with many triangles get lighter versions, for where they are small on the screen.

Vertices of one cell of a grid become one, and triangles that lose a corner that way are gone. A version is shown where
its cells are smaller than pixels.

Meshes of a model's own: mesh assets and height fields, in the units they are shown in.
"""

import hashlib
from dataclasses import replace

import mujoco
import numpy as np

from worldloom.kernels.tables import I32
from worldloom.render.meshes import CoarserMesh, Mesh, grid, join

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
    return replace(mesh, coarser=CoarserMesh(lighter, (size, size, size)))


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


_MOST_FACETS = 64 * 64
"""Heights of a field whose cells are told apart by their shading; in finer ones nobody sees it, and lanes may have a
field each."""
_BENT = 0.8
"""A normal whose cosine to its triangle's is less gives way to that, in meshes without texture coordinates."""


def mesh_solid(model: mujoco.MjModel, mesh: int) -> Mesh:
    """A mesh asset, with the normals that MuJoCo shows it with."""
    first, count = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    faces = slice(first, first + count)
    corners = model.mesh_vert[model.mesh_face[faces] + model.mesh_vertadr[mesh]]
    normals = model.mesh_normal[model.mesh_facenormal[faces] + model.mesh_normaladr[mesh]]
    flat = _face_normals(corners)[:, None]
    if has_texcoords(model, mesh):
        uvs = model.mesh_texcoord[model.mesh_facetexcoord[faces] + model.mesh_texcoordadr[mesh]]
    else:
        uvs = np.zeros((count, 3, 2), np.float32)
        normals = np.where((normals * flat).sum(axis=-1, keepdims=True) < _BENT, flat, normals)
    normals = np.where(np.linalg.norm(normals, axis=-1, keepdims=True) > 0, normals, flat)
    return lightened(from_corners(corners, normals, uvs))


def has_texcoords(model: mujoco.MjModel, mesh: int) -> bool:
    """Whether a mesh asset says where its textures lie."""
    return bool(model.mesh_texcoordadr[mesh] >= 0)


def field_solid(model: mujoco.MjModel, field: int) -> Mesh:
    """A height field: its surface, in facets unless they are many, four sides and a bottom."""
    rows, columns = int(model.hfield_nrow[field]), int(model.hfield_ncol[field])
    first = int(model.hfield_adr[field])
    x_size, y_size, z_size, below = model.hfield_size[field]
    heights = model.hfield_data[first : first + rows * columns].reshape(rows, columns) * z_size
    y, x = np.meshgrid(np.linspace(-y_size, y_size, rows), np.linspace(-x_size, x_size, columns), indexing="ij")
    surface = np.stack([x, y, heights], axis=-1)
    under = surface.copy()
    under[..., 2] = -below
    walls = [
        _wall(under[0], surface[0]),
        _wall(under[-1, ::-1], surface[-1, ::-1]),
        _wall(under[::-1, 0], surface[::-1, 0]),
        _wall(under[:, -1], surface[:, -1]),
        _wall(under[0, [-1, 0]], under[-1, [-1, 0]]),
    ]
    if rows * columns <= _MOST_FACETS:
        return join(_faceted(surface.reshape(-1, 3)[grid(columns - 1, rows - 1)]), *map(_faceted, walls))
    down, along = np.gradient(heights, 2 * y_size / (rows - 1), 2 * x_size / (columns - 1))
    normals = np.stack([-along, -down, np.ones_like(heights)], axis=-1).reshape(-1, 3)
    points = surface.reshape(-1, 3).astype(np.float32)
    whole = Mesh(points, normals.astype(np.float32), np.zeros_like(points[:, :2]), grid(columns - 1, rows - 1), False)
    return join(whole, *map(_faceted, walls))


def laid_on(mesh: Mesh, scale: tuple[float, float]) -> Mesh:
    """The same mesh with a texture laid on from above, `scale` times in two units, as MuJoCo does it."""
    offset = np.array([0.5, 0.5])
    uvs = mesh.positions[:, :2] * np.array([0.5 * scale[0], -0.5 * scale[1]]) - offset
    lighter = mesh.coarser and CoarserMesh(laid_on(mesh.coarser.mesh, scale), mesh.coarser.size)
    return replace(mesh, uvs=uvs.astype(np.float32), coarser=lighter)


def digest_of(mesh: Mesh) -> str:
    """A name for what a mesh is."""
    digest = hashlib.sha256()
    for array in (mesh.positions, mesh.normals, mesh.uvs, mesh.triangles):
        digest.update(repr(array.shape).encode() + array.tobytes())
    return digest.hexdigest()[:32]


def from_corners(corners: np.ndarray, normals: np.ndarray, uvs: np.ndarray) -> Mesh:
    """A mesh of triangles [n, 3, …]; corners that agree in everything become one vertex."""
    vertices = np.concatenate([corners, normals, uvs], axis=-1).reshape(-1, 8).astype(np.float32)
    vertices, vertex_of = np.unique(vertices, axis=0, return_inverse=True)
    triangles: I32 = vertex_of.reshape(-1, 3).astype(np.int32)
    return Mesh(vertices[:, :3], vertices[:, 3:6], vertices[:, 6:], triangles, two_sided=False)


def _faceted(corners: np.ndarray) -> Mesh:
    """Triangles [n, 3, 3] that are flat."""
    normals = np.repeat(_face_normals(corners)[:, None], 3, axis=1)
    return from_corners(corners, normals, np.zeros((*corners.shape[:2], 2)))


def _wall(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The triangles [n, 3, 3] between two lines of points; they face the viewer who sees the lines run to the right."""
    return np.concatenate([below, above])[grid(len(below) - 1, 1)]


def _face_normals(corners: np.ndarray) -> np.ndarray:
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(across, axis=1, keepdims=True)
    return np.where(length > 0, across / np.where(length > 0, length, 1), (0.0, 0.0, 1.0))
