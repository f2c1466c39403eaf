"""Meshes and a sky as a user would bring them, for test scenes."""

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import U8
from worldloom.render.meshes import Mesh, grid


def torus(slices: int = 40, sides: int = 20, thickness: float = 0.16) -> Mesh:
    """A ring of diameter 1 around z."""
    v, u = np.meshgrid(np.linspace(0, 2 * np.pi, sides + 1), np.linspace(0, 2 * np.pi, slices + 1), indexing="ij")
    around = np.stack([np.cos(u), np.sin(u), np.zeros_like(u)], axis=-1)
    normals = np.cos(v)[..., None] * around + np.sin(v)[..., None] * (0, 0, 1)
    positions = (0.5 - thickness) * around + thickness * normals
    uvs = np.stack([u / (2 * np.pi), v / (2 * np.pi)], axis=-1)
    return _mesh(positions, normals, uvs, grid(slices, sides), two_sided=False)


def ribbon(steps: int = 72, turns: float = 1.5) -> Mesh:
    """A band that winds up around z: open, so both its sides are seen."""
    across, t = np.meshgrid([-0.12, 0.12], np.linspace(0, 1, steps + 1), indexing="ij")
    angle = 2 * np.pi * turns * t
    outward = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(t)], axis=-1)
    positions = (0.5 - 0.25 * t)[..., None] * outward + (t - 0.5 + across)[..., None] * (0, 0, 1)
    return _mesh(positions, outward, np.stack([6 * t, across * 4 + 0.5], axis=-1), grid(steps, 1), two_sided=True)


def roof() -> Mesh:
    """A saddle roof over the unit square, ridge along y, half a metre high; open below, hard edges."""
    left_front, right_front, ridge_front = (-0.5, -0.5, 0.0), (0.5, -0.5, 0.0), (0.0, -0.5, 0.5)
    left_back, right_back, ridge_back = (-0.5, 0.5, 0.0), (0.5, 0.5, 0.0), (0.0, 0.5, 0.5)
    corners = np.array(
        [
            (right_front, right_back, ridge_back),
            (right_front, ridge_back, ridge_front),
            (left_back, left_front, ridge_front),
            (left_back, ridge_front, ridge_back),
            (left_front, right_front, ridge_front),
            (right_back, left_back, ridge_back),
        ]
    )
    any_normals = np.ones_like(corners)
    return in_facets(_mesh(corners, any_normals, corners[..., 1:], np.arange(18).reshape(-1, 3), two_sided=False))


def in_facets(mesh: Mesh) -> Mesh:
    """The same shape with a normal for each triangle."""
    corners = mesh.positions[mesh.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    numbers = np.arange(mesh.triangles.size).reshape(-1, 3)
    return _mesh(corners, np.repeat(normals, 3, axis=0), mesh.uvs[mesh.triangles], numbers, mesh.two_sided)


def _mesh(positions: ArrayLike, normals: ArrayLike, uvs: ArrayLike, triangles: ArrayLike, two_sided: bool) -> Mesh:
    """A mesh from vertices in any layout whose last axis is the coordinate."""
    return Mesh(
        np.asarray(positions, np.float32).reshape(-1, 3),
        np.asarray(normals, np.float32).reshape(-1, 3),
        np.asarray(uvs, np.float32).reshape(-1, 2),
        np.asarray(triangles, np.int32),
        two_sided,
    )


def evening(face: int, size: int) -> U8:
    """One of six sides of a sky: from dusk below to night above, with a frame and marks that tell the sides apart."""
    v, u = (np.mgrid[:size, :size] + 0.5) / size
    height = {2: np.ones_like(v), 3: np.zeros_like(v)}.get(face, 1 - v)[..., None]
    below, above = np.array([240, 163, 126]), np.array([43, 53, 102])
    color = below + (above - below) * height
    edge = np.minimum(np.minimum(u, 1 - u), np.minimum(v, 1 - v))[..., None]
    color = np.where(edge < 0.03, np.array([244, 234, 215]), color)
    for mark in range(face + 1):  # from the top left to the right, and lower to the right: no side looks as if turned
        round_mark = np.hypot(u - (0.15 + 0.13 * mark), v - (0.2 + 0.05 * mark))[..., None] < 0.05
        color = np.where(round_mark, np.array([255, 217, 160]), color)
    return np.asarray(np.rint(color), np.uint8)
