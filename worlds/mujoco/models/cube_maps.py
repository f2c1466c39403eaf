"""Cube textures on things: a mesh is cut where one face of the cube ends and the next begins.

MuJoCo looks such textures up by the place of a point in the thing's own space, as OpenGL does: the longest coordinate
says which of six pictures, the other two where in it.
"""

from collections.abc import Callable

import numpy as np

from worldloom.kernels.tables import F32
from worldloom.render.meshes import CoarserMesh, Mesh, join
from worldloom.worlds.mujoco.models.meshes import from_corners

_FACES = (
    ((1, 0, 0), (0, 0, -1), (0, -1, 0)),
    ((-1, 0, 0), (0, 0, 1), (0, -1, 0)),
    ((0, 1, 0), (1, 0, 0), (0, 0, 1)),
    ((0, -1, 0), (1, 0, 0), (0, 0, -1)),
    ((0, 0, 1), (1, 0, 0), (0, -1, 0)),
    ((0, 0, -1), (-1, 0, 0), (0, -1, 0)),
)
"""Of each face of a cube texture: where it is, and the ways in which u and v grow on it."""
_UNEVEN = 1.15
"""How much farther one corner of a triangle may be towards its face than another: on larger ones, a texture would bend
where it should not."""
_HALVINGS = 4
_MIDDLE = 1e-9
"""So close to the middle of the cube, a point looks everywhere at once."""


def wrapped(mesh: Mesh, ways: Callable[[F32], np.ndarray], pictures: tuple[int, ...], size: int) -> dict[int, Mesh]:
    """The parts of a mesh that show each picture, with their UVs, of textures of `size` texels.

    `ways` tells for points of the mesh where they look into the cube, `pictures` which one is on each face.
    """
    pieces: dict[int, list[Mesh]] = {}
    vertices = np.concatenate([mesh.positions, mesh.normals, ways(mesh.positions)], axis=1)
    corners = _even(vertices[mesh.triangles])
    for (out, right, down), picture in zip(np.array(_FACES, np.float64), pictures, strict=True):
        part = _cut(corners, out, right, down)
        if len(part):
            across = np.stack([part[..., 6:] @ right, part[..., 6:] @ down], axis=-1)
            uvs = across / np.maximum(part[..., 6:] @ out, _MIDDLE)[..., None] * (1 - 1 / size) / 2 + 0.5
            pieces.setdefault(picture, []).append(from_corners(part[..., :3], part[..., 3:6], uvs))
    whole = {picture: join(*some) for picture, some in pieces.items()}
    if mesh.coarser is None:
        return whole
    fewer = wrapped(mesh.coarser.mesh, ways, pictures, size)
    return {
        picture: Mesh(
            some.positions,
            some.normals,
            some.uvs,
            some.triangles,
            some.two_sided,
            CoarserMesh(fewer[picture], mesh.coarser.size) if picture in fewer else None,
        )
        for picture, some in whole.items()
    }


def _even(corners: np.ndarray) -> np.ndarray:
    """Triangles [n, 3, 9], those whose corners look into the cube unevenly in four, and again."""
    for _ in range(_HALVINGS):
        reach = np.abs(corners[..., 6:]).max(axis=-1)
        uneven = reach.max(axis=1) > _UNEVEN * reach.min(axis=1)
        if not uneven.any():
            break
        a, b, c = np.moveaxis(corners[uneven], 1, 0)
        ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
        fourths = [np.stack(some, axis=1) for some in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        corners = np.concatenate([corners[~uneven], *fourths])
    return corners


def _cut(corners: np.ndarray, out: np.ndarray, right: np.ndarray, down: np.ndarray) -> np.ndarray:
    """What of these triangles is seen on one face, as triangles again."""
    sides = np.stack([out - right, out + right, out - down, out + down], axis=1)
    inside = corners[..., 6:] @ sides >= 0
    outward = (corners[..., 6:] @ out).max(axis=1) > _MIDDLE
    whole = inside.all(axis=(1, 2)) & outward
    maybe = ~whole & outward & inside.any(axis=1).all(axis=1)
    cut = [triangle for polygon in corners[maybe] for triangle in _fan(_clipped(polygon, sides))]
    return np.concatenate([corners[whole], np.array(cut).reshape(-1, 3, 9)])


def _clipped(polygon: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """A polygon [n, 9] cut along four planes through the middle of the cube."""
    for side in sides.T:
        if not len(polygon):
            break
        height = polygon[:, 6:] @ side
        kept = []
        for k in range(len(polygon)):
            before = k - 1
            if height[k] * height[before] < 0:
                share = height[before] / (height[before] - height[k])
                kept.append(polygon[before] + share * (polygon[k] - polygon[before]))
            if height[k] >= 0:
                kept.append(polygon[k])
        polygon = np.array(kept).reshape(-1, 9)
    return polygon


def _fan(polygon: np.ndarray) -> list[np.ndarray]:
    return [polygon[[0, k, k + 1]] for k in range(1, len(polygon) - 1)]
