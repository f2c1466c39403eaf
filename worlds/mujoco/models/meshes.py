"""Meshes of a model's mesh assets and height fields, in metres, with coarser versions for distant views.

A coarser version merges all vertices in one cell of a grid into one and drops the triangles that collapse. The renderer
uses it where its cells are smaller than pixels.
"""

import hashlib
from dataclasses import replace

import mujoco
import numpy as np

from worldloom.kernels.tables import I32
from worldloom.render.meshes import CoarserMesh, Mesh, grid, join

_MIN_TRIANGLES = 64
"""Meshes with no more triangles get no coarser version."""
_CELLS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Grid cells along the longest side of a mesh, one number per version to try, coarsest first."""
_MAX_SHARE = 0.7
"""Largest share of the triangles of the next finer version that a version may have."""
_UV_CELLS = 8
"""Cells per unit of u and v: vertices are merged only if they are close in the texture, too."""


def with_coarser_versions(mesh: Mesh) -> Mesh:
    """Return the mesh with its coarser versions, each linked to the next coarser one."""
    side = float(np.ptp(mesh.positions, axis=0).max())
    if len(mesh.triangles) <= _MIN_TRIANGLES or not side > 0:
        return mesh
    best: Mesh | None = None
    size = 0.0
    for cells in _CELLS:
        cell = side / cells
        version = _merge_cells(mesh, cell)
        if version is None or (best is not None and len(best.triangles) > _MAX_SHARE * len(version.triangles)):
            continue
        if len(version.triangles) > _MAX_SHARE * len(mesh.triangles):
            break
        best, size = (version if best is None else _link(version, best, size)), cell
    return mesh if best is None else _link(mesh, best, size)


def _link(mesh: Mesh, coarser: Mesh, size: float) -> Mesh:
    return replace(mesh, coarser=CoarserMesh(coarser, (size, size, size)))


def _merge_cells(mesh: Mesh, cell: float) -> Mesh | None:
    """Merge vertices in one grid cell with similar normals and texture coordinates; None if no triangle remains."""
    sides = np.abs(mesh.normals).argmax(axis=1)
    sides = 2 * sides + (mesh.normals[np.arange(len(sides)), sides] > 0)
    u, v = np.floor(mesh.uvs.astype(np.float64) * _UV_CELLS).T
    _, patch = np.unique(u + 1j * v, return_inverse=True)  # numbered from 0, since u and v may be large
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


_MAX_FLAT_SHADED = 64 * 64
"""Height fields with more points are shaded smoothly: flat cells cannot be told apart in them, and lanes may have a
height field each."""
_MIN_COSINE = 0.8
"""In meshes without texture coordinates, a normal whose cosine to its triangle's normal is less is replaced by that."""


def build_mesh_asset(model: mujoco.MjModel, mesh: int) -> Mesh:
    """Return a mesh asset, with the normals that MuJoCo draws it with."""
    first, count = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    faces = slice(first, first + count)
    corners = model.mesh_vert[model.mesh_face[faces] + model.mesh_vertadr[mesh]]
    normals = model.mesh_normal[model.mesh_facenormal[faces] + model.mesh_normaladr[mesh]]
    flat = _face_normals(corners)[:, None]
    if has_texcoords(model, mesh):
        uvs = model.mesh_texcoord[model.mesh_facetexcoord[faces] + model.mesh_texcoordadr[mesh]]
    else:
        uvs = np.zeros((count, 3, 2), np.float32)
        normals = np.where((normals * flat).sum(axis=-1, keepdims=True) < _MIN_COSINE, flat, normals)
    normals = np.where(np.linalg.norm(normals, axis=-1, keepdims=True) > 0, normals, flat)
    return with_coarser_versions(mesh_from_triangles(corners, normals, uvs))


def has_texcoords(model: mujoco.MjModel, mesh: int) -> bool:
    """Return whether a mesh asset has texture coordinates."""
    return bool(model.mesh_texcoordadr[mesh] >= 0)


def build_height_field(model: mujoco.MjModel, field: int) -> Mesh:
    """Return a height field: its surface, flat shaded unless it is fine, four sides and a bottom."""
    rows, columns = int(model.hfield_nrow[field]), int(model.hfield_ncol[field])
    first = int(model.hfield_adr[field])
    x_size, y_size, z_size, base_depth = model.hfield_size[field]
    heights = model.hfield_data[first : first + rows * columns].reshape(rows, columns) * z_size
    y, x = np.meshgrid(np.linspace(-y_size, y_size, rows), np.linspace(-x_size, x_size, columns), indexing="ij")
    surface = np.stack([x, y, heights], axis=-1)
    base = surface.copy()
    base[..., 2] = -base_depth
    sides = [
        _strip(base[0], surface[0]),
        _strip(base[-1, ::-1], surface[-1, ::-1]),
        _strip(base[::-1, 0], surface[::-1, 0]),
        _strip(base[:, -1], surface[:, -1]),
        _strip(base[0, [-1, 0]], base[-1, [-1, 0]]),
    ]
    if rows * columns <= _MAX_FLAT_SHADED:
        return join(_flat_shaded(surface.reshape(-1, 3)[grid(columns - 1, rows - 1)]), *map(_flat_shaded, sides))
    slope_y, slope_x = np.gradient(heights, 2 * y_size / (rows - 1), 2 * x_size / (columns - 1))
    normals = np.stack([-slope_x, -slope_y, np.ones_like(heights)], axis=-1).reshape(-1, 3)
    points = surface.reshape(-1, 3).astype(np.float32)
    smooth = Mesh(points, normals.astype(np.float32), np.zeros_like(points[:, :2]), grid(columns - 1, rows - 1), False)
    return join(smooth, *map(_flat_shaded, sides))


def project_texture(mesh: Mesh, scale: tuple[float, float]) -> Mesh:
    """Return the mesh with a texture projected from above, `scale` times per two metres, as MuJoCo does it."""
    offset = np.array([0.5, 0.5])
    uvs = mesh.positions[:, :2] * np.array([0.5 * scale[0], -0.5 * scale[1]]) - offset
    coarser = mesh.coarser and CoarserMesh(project_texture(mesh.coarser.mesh, scale), mesh.coarser.size)
    return replace(mesh, uvs=uvs.astype(np.float32), coarser=coarser)


def mesh_digest(mesh: Mesh) -> str:
    """Return a hash of the contents of a mesh."""
    digest = hashlib.sha256()
    for array in (mesh.positions, mesh.normals, mesh.uvs, mesh.triangles):
        digest.update(repr(array.shape).encode() + array.tobytes())
    return digest.hexdigest()[:32]


def mesh_from_triangles(corners: np.ndarray, normals: np.ndarray, uvs: np.ndarray) -> Mesh:
    """Return a mesh of triangles [n, 3, ...]; corners that agree in everything become one vertex."""
    vertices = np.concatenate([corners, normals, uvs], axis=-1).reshape(-1, 8).astype(np.float32)
    vertices, vertex_of = np.unique(vertices, axis=0, return_inverse=True)
    triangles: I32 = vertex_of.reshape(-1, 3).astype(np.int32)
    return Mesh(vertices[:, :3], vertices[:, 3:6], vertices[:, 6:], triangles, two_sided=False)


def _flat_shaded(corners: np.ndarray) -> Mesh:
    """Return a mesh of triangles [n, 3, 3] that have their own normals."""
    normals = np.repeat(_face_normals(corners)[:, None], 3, axis=1)
    return mesh_from_triangles(corners, normals, np.zeros((*corners.shape[:2], 2)))


def _strip(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Return the triangles [n, 3, 3] between two lines of points, facing a viewer who sees them run to the right."""
    return np.concatenate([below, above])[grid(len(below) - 1, 1)]


def _face_normals(corners: np.ndarray) -> np.ndarray:
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.where(length > 0, length, 1), (0.0, 0.0, 1.0))
