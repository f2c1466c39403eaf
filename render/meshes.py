"""Meshes: the type, and procedural shapes of one metre around the origin, to be scaled by an instance's pose.

Normals decide the shading: a corner is one vertex where the surface is smooth, and several at a hard edge.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F32, I32

Profile: TypeAlias = NDArray[np.floating[Any]]

_OUTLINE_PIXELS = 0.25
"""Largest distance of the sides of a coarser mesh from the round outline that they approximate."""
_FEWEST_SLICES = 8
"""Fewest slices of a coarser mesh: with fewer, shading differs visibly."""


_FLATNESS = 1e-5
"""Height before a triangle, as a part of a mesh's size, up to which a corner of a convex mesh may lie: rounding."""
_MOST_TRIANGLES = 4096
"""Triangles above which a mesh is not searched for concave places: round shapes of a library have fewer."""
_COPIES = 3.5
"""Memory of a mesh as a multiple of its arrays: the asset table has them again, and both have the distinct corners."""


@dataclass(frozen=True)
class Mesh:
    """An indexed triangle mesh; triangles are counter-clockwise seen from the front."""

    positions: F32  # [V, 3]
    normals: F32  # [V, 3]
    uvs: F32  # [V, 2]
    triangles: I32  # [T, 3]
    two_sided: bool = True
    coarser: "CoarserMesh | None" = None

    def __post_init__(self) -> None:
        for name, dtype, columns in (
            ("positions", np.float32, 3),
            ("normals", np.float32, 3),
            ("uvs", np.float32, 2),
            ("triangles", np.int32, 3),
        ):
            array = np.ascontiguousarray(getattr(self, name), dtype)
            if array.ndim != 2 or array.shape[1] != columns:
                raise ValueError(f"mesh {name}: expected shape [n, {columns}], got {list(array.shape)}")
            if not np.isfinite(array).all():
                raise ValueError(f"mesh {name}: expected finite numbers only")
            object.__setattr__(self, name, array)
        vertices = len(self.positions)
        if not vertices or not len(self.triangles):
            raise ValueError("a mesh needs at least one vertex and one triangle")
        if len(self.normals) != vertices or len(self.uvs) != vertices:
            raise ValueError(
                f"mesh with {vertices} positions: expected as many normals and uvs, "
                f"got {len(self.normals)} and {len(self.uvs)}"
            )
        if self.triangles.min() < 0 or self.triangles.max() >= vertices:
            raise ValueError(
                f"mesh triangles name vertices {self.triangles.min()} to {self.triangles.max()}: "
                f"expected 0 to {vertices - 1}"
            )
        lengths = np.linalg.norm(self.normals, axis=1, keepdims=True)
        if (lengths < 1e-12).any():
            raise ValueError("mesh normals: expected none of length 0")
        object.__setattr__(self, "normals", (self.normals / lengths).astype(np.float32))

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of this mesh and its coarser versions in an asset library: its arrays, twice, and more."""
        arrays = (self.positions, self.normals, self.uvs, self.triangles)
        own = int(_COPIES * sum(array.nbytes for array in arrays))
        return own + (0 if self.coarser is None else self.coarser.mesh.memory_bytes)

    @cached_property
    def corners(self) -> tuple[F32, I32]:
        """Distinct positions, and the index among them of each vertex."""
        # As numpy.unique with axis=0, in a fifth of the time: by columns, which are often nearly sorted.
        order = np.lexsort(self.positions.T[::-1])
        ordered = self.positions[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        corner_of = np.empty(len(order), np.int32)
        corner_of[order] = np.cumsum(is_first, dtype=np.int32) - 1
        return ordered[is_first], corner_of

    @cached_property
    def is_convex(self) -> bool:
        """True if no corner lies before a triangle."""
        if len(self.triangles) > _MOST_TRIANGLES:
            return False
        corners = self.corners[0].astype(np.float64)
        a, b, c = self.positions.astype(np.float64)[self.triangles].transpose(1, 0, 2)
        areas = np.cross(b - a, c - a)
        sizes = np.linalg.norm(areas, axis=1)
        kept = sizes > 0
        normals, start = areas[kept] / sizes[kept, None], a[kept]
        margin = _FLATNESS * float(np.ptp(corners, axis=0).max())
        # Most meshes that are not convex show it in the first part.
        return all(
            ((corners @ normals[some].T).max(axis=0) <= (normals[some] * start[some]).sum(axis=1) + margin).all()
            for some in np.array_split(np.arange(len(normals)), 1 + len(normals) * len(corners) // (1 << 16))
        )


@dataclass(frozen=True)
class CoarserMesh:
    """The next level of detail of a mesh: the same shape with fewer triangles, for where it is small on the screen."""

    mesh: Mesh
    size: tuple[float, float, float]
    """It is drawn where, for each axis, this times the pixels of a local unit along that axis is below 1."""


def grid(u_count: int, v_count: int) -> I32:
    """Return the triangles of a (v_count + 1) x (u_count + 1) grid of vertices, u fastest; the front is along u x v."""
    v, u = np.meshgrid(np.arange(v_count), np.arange(u_count), indexing="ij")
    corner = (v * (u_count + 1) + u).ravel()
    above = corner + u_count + 1
    halves = [[corner, corner + 1, above + 1], [corner, above + 1, above]]
    return np.array(halves, np.int32).transpose(2, 0, 1).reshape(-1, 3)


def box() -> Mesh:
    """Return a cube of side 1; each face shows the whole texture, upright on the four sides."""
    faces = []
    for normal, right in (
        ((1, 0, 0), (0, 1, 0)),
        ((-1, 0, 0), (0, -1, 0)),
        ((0, 1, 0), (-1, 0, 0)),
        ((0, -1, 0), (1, 0, 0)),
        ((0, 0, 1), (1, 0, 0)),
        ((0, 0, -1), (1, 0, 0)),
    ):
        n, r = np.array(normal, np.float32), np.array(right, np.float32)
        faces.append((n, r, np.cross(n, r)))
    corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]], np.float32)
    positions = [n / 2 + corners[:, :1] * r + corners[:, 1:] * up for n, r, up in faces]
    uvs = np.stack([corners[:, 0] + 0.5, 0.5 - corners[:, 1]], axis=1)
    quad_triangles = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
    return Mesh(
        np.concatenate(positions),
        np.repeat(np.array([n for n, _, _ in faces], np.float32), 4, axis=0),
        np.tile(uvs, (6, 1)),
        np.concatenate([quad_triangles + 4 * face for face in range(6)]),
        two_sided=False,
    )


def plane(cells: int = 1) -> Mesh:
    """Return a unit square in the xy plane that faces up, in `cells` x `cells` pieces."""
    steps = np.linspace(-0.5, 0.5, cells + 1, dtype=np.float32)
    y, x = np.meshgrid(steps, steps, indexing="ij")
    positions = np.stack([x.ravel(), y.ravel(), np.zeros(x.size, np.float32)], axis=1)
    uvs = np.stack([positions[:, 0] + 0.5, 0.5 - positions[:, 1]], axis=1)
    return Mesh(positions, np.tile(np.array([0, 0, 1], np.float32), (len(positions), 1)), uvs, grid(cells, cells))


def quad() -> Mesh:
    """Return a unit square in the xz plane that faces -y, with its texture upright."""
    corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]], np.float32)
    positions = np.stack([corners[:, 0], np.zeros(4, np.float32), corners[:, 1]], axis=1)
    uvs = np.stack([corners[:, 0] + 0.5, 0.5 - corners[:, 1]], axis=1)
    return Mesh(
        positions, np.tile(np.array([0, -1, 0], np.float32), (4, 1)), uvs, np.array([[0, 1, 2], [0, 2, 3]], np.int32)
    )


def disc(slices: int = 20) -> Mesh:
    """Return a flat disc of diameter 1 that faces up."""
    angle = np.linspace(0, 2 * np.pi, slices, endpoint=False)
    rim = np.stack([np.cos(angle) / 2, np.sin(angle) / 2, 0 * angle], axis=1).astype(np.float32)
    fan = np.stack([np.zeros(slices - 2), np.arange(1, slices - 1), np.arange(2, slices)], axis=1)
    up = np.tile(np.array([0, 0, 1], np.float32), (slices, 1))
    return Mesh(rim, up, rim[:, :2] + np.float32(0.5), fan.astype(np.int32))


def turned(radius: Profile, z: Profile, normal_radius: Profile, normal_z: Profile, v: Profile, slices: int) -> Mesh:
    """Return the surface of revolution of a profile, listed from the bottom up, around the z axis."""
    angle = np.linspace(0, 2 * np.pi, slices + 1)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def around(r: Profile, height: Profile) -> Profile:
        flat = r[:, None, None] * ring[None]
        return np.concatenate([flat, np.broadcast_to(height[:, None, None], (*flat.shape[:2], 1))], axis=2).reshape(
            -1, 3
        )

    uvs = np.stack(np.broadcast_arrays(angle / (2 * np.pi), v[:, None]), axis=-1).reshape(-1, 2)
    positions = around(radius, z)
    triangles = grid(slices, len(radius) - 1)
    corners = positions[triangles]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    return Mesh(positions, around(normal_radius, normal_z), uvs, triangles[area > 1e-9], two_sided=False)


def sphere(slices: int = 32, stacks: int = 16) -> Mesh:
    """Return a sphere of diameter 1."""
    latitude = np.linspace(-np.pi / 2, np.pi / 2, stacks + 1)
    r, z = np.cos(latitude), np.sin(latitude)
    ball = turned(r / 2, z / 2, r, z, np.linspace(1, 0, stacks + 1), slices)
    return with_coarser(ball, slices, lambda fewer: sphere(fewer, -(-fewer * stacks // slices)), (0.5, 0.5, 0.5))


def cylinder(slices: int = 32) -> Mesh:
    """Return a cylinder around z of diameter 1 and height 1, closed by flat caps."""
    half = np.array([0.5, 0.5], np.float32)
    side = turned(half, np.array([-0.5, 0.5], np.float32), half * 2, half * 0, np.array([1, 0], np.float32), slices)
    tilt = np.array([1, 1], np.float32)
    top = turned(np.array([0.5, 0], np.float32), half, half * 0, tilt, np.array([0, 0], np.float32), slices)
    bottom = turned(np.array([0, 0.5], np.float32), -half, half * 0, -tilt, np.array([0, 0], np.float32), slices)
    return with_coarser(join(side, _flat_uvs(top), _flat_uvs(bottom)), slices, cylinder, (0.5, 0.5, 0.0))


def capsule(slices: int = 32, stacks: int = 8, half_length: float = 0.5) -> Mesh:
    """Return a capsule around z: a tube of diameter 1 that ends `half_length` from the middle, closed by hemispheres.

    A non-uniform scale would distort its ends: use one mesh for each ratio of length to width.
    """
    latitude = np.linspace(-np.pi / 2, np.pi / 2, 2 * stacks + 1)
    latitude = np.insert(latitude, stacks, 0.0)
    shift = np.where(np.arange(latitude.size) <= stacks, -half_length, half_length)
    r, z = np.cos(latitude), np.sin(latitude)
    height = z / 2 + shift
    tube = turned(r / 2, height, r, z, (height.max() - height) / np.ptp(height), slices)
    return with_coarser(
        tube, slices, lambda fewer: capsule(fewer, -(-fewer * stacks // slices), half_length), (0.5, 0.5, 0.5)
    )


def with_coarser(mesh: Mesh, slices: int, build: Callable[[int], Mesh], radius: tuple[float, float, float]) -> Mesh:
    """Return a mesh of `slices` around with levels of detail of half as many, for where its radius is small."""
    fewer = slices // 2
    if fewer < _FEWEST_SLICES:
        return mesh
    small_pixels = _OUTLINE_PIXELS / (1 - np.cos(np.pi / fewer))
    x, y, z = (float(along / small_pixels) for along in radius)
    return replace(mesh, coarser=CoarserMesh(build(fewer), (x, y, z)))


def join(*meshes: Mesh) -> Mesh:
    """Return several meshes joined into one."""
    starts = np.cumsum([0, *(len(mesh.positions) for mesh in meshes[:-1])])
    return Mesh(
        np.concatenate([mesh.positions for mesh in meshes]),
        np.concatenate([mesh.normals for mesh in meshes]),
        np.concatenate([mesh.uvs for mesh in meshes]),
        np.concatenate([mesh.triangles + start for mesh, start in zip(meshes, starts, strict=True)]),
        two_sided=any(mesh.two_sided for mesh in meshes),
    )


def _flat_uvs(mesh: Mesh) -> Mesh:
    """Return the same mesh with UVs projected from above."""
    uvs = np.stack([mesh.positions[:, 0] + 0.5, 0.5 - mesh.positions[:, 1]], axis=1)
    return Mesh(mesh.positions, mesh.normals, uvs, mesh.triangles, mesh.two_sided)
