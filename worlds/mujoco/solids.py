"""Meshes of a model's own: mesh assets and height fields, in the units they are shown in."""

import hashlib
from dataclasses import replace

import mujoco
import numpy as np

from worldloom.kernels.tables import I32
from worldloom.render.meshes import Lighter, Mesh, grid, join
from worldloom.worlds.mujoco.lighter import lightened

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
    lighter = mesh.lighter and Lighter(laid_on(mesh.lighter.mesh, scale), mesh.lighter.size)
    return replace(mesh, uvs=uvs.astype(np.float32), lighter=lighter)


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
