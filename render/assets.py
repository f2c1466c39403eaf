"""The asset library: every mesh and texture of a server, loaded once and shared by all worlds.

One thread may add assets while another draws: a draw uses the table as it was when the draw began. A thread that adds
many, for worlds that are drawn later, does so within `loading`: draws then go on with the table that there is, and the
new one is built beside them.
"""

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from worldloom.kernels.simd import SIMD_WIDTH
from worldloom.kernels.tables import CONTINUES_ALL, CONTINUES_SHAPE, F32, I32, NO_MESH, U8, U32, AssetTable
from worldloom.render import meshes, textures
from worldloom.render.meshes import Mesh

_TEXTURE_COPIES = 3.5
"""A texture in the library, and twice in the asset table, once with rows of its own length."""


class AssetLibrary:
    """Meshes and textures by name, with the basic ones already in it; more may be added before and between draws."""

    def __init__(self, texture_size: int = textures.DEFAULT_SIZE) -> None:
        if texture_size < 1 or texture_size & (texture_size - 1):
            raise ValueError(f"texture size {texture_size}: expected a power of two")
        self.texture_size = texture_size
        self._meshes: dict[str, Mesh] = {}
        self._textures: dict[str, U32] = {}
        self._table: AssetTable | None = None
        self._loading: set[int] = set()  # threads within `loading`
        self._has_unlisted = False  # some assets were added there and are not in the table
        self._version = 0
        self.memory_bytes = 0
        """Estimated memory of all meshes and textures that were added, without those that can be replaced."""
        self.max_bytes = sys.maxsize
        """Memory up to which pictures of the operator's are added; what worlds cannot do without is added beyond."""
        self.lock = threading.RLock()
        """Held while assets are added. Hold it to look up a name and add it if missing, or to add several together."""
        for build in (meshes.box, meshes.plane, meshes.quad, meshes.sphere, meshes.cylinder, meshes.capsule):
            self.add_mesh(build.__name__, build())
        for draw in (textures.checker, textures.brick, textures.wood, textures.noise):
            self.add_texture(draw.__name__, draw(texture_size))

    def add_mesh(self, name: str, mesh: Mesh) -> int:
        """Add a mesh; return its number, for `InstanceTable.mesh`."""
        with self.lock:
            if name in self._meshes:
                raise ValueError(f"cannot add mesh {name!r}: expected a name that is not in use")
            self._meshes[name] = mesh
            self._note_change()
            self.memory_bytes += mesh.memory_bytes
            return len(self._meshes) - 1

    def set_mesh(self, name: str, mesh: Mesh) -> int:
        """Add a mesh, or replace the one with that name: instances with its number then show this one.

        A mesh of the same form, such as another height field of the same size, is written into the existing table: do
        it on the thread that draws, and not during a draw.
        """
        with self.lock:
            before, table = self._meshes.get(name), self._table
            self._meshes[name] = mesh
            self._version += 1
            self._table = None
            if before is not None and table is not None and threading.get_ident() not in self._loading:
                number = list(self._meshes).index(name)
                if _has_same_form(before, mesh, int(table.mesh_corner_count[number])):
                    _write_mesh(table, number, list(self._meshes.values())[:number], mesh)
                    self._table = table._replace()  # another object: renderers that keep copies make new ones
        return self.mesh(name)

    def add_texture(self, name: str, pixels: U8) -> int:
        """Add a square uint8 image of the library's texture size, and its mip levels; return its number."""
        return self.add_textures({name: pixels})

    def add_textures(self, images: Mapping[str, U8]) -> int:
        """Add images by name, as `add_texture` does, with consecutive numbers; return the first."""
        expected = (self.texture_size, self.texture_size, 3)
        for name, pixels in images.items():
            if pixels.shape != expected or pixels.dtype != np.uint8:
                raise ValueError(
                    f"texture {name!r}: expected uint8 {list(expected)}, got {pixels.dtype} {list(pixels.shape)}"
                )
        levels = {name: _mip_chain(pixels) for name, pixels in images.items()}
        with self.lock:
            for name in levels:
                if name in self._textures:
                    raise ValueError(f"cannot add texture {name!r}: expected a name that is not in use")
            first = len(self._textures)
            self._textures |= levels
            self._note_change()
            self.memory_bytes += len(levels) * self.texture_bytes
            return first

    @property
    def texture_bytes(self) -> int:
        """Estimated memory of a texture."""
        texels = sum(4**level for level in range(self.texture_size.bit_length()))
        return int(_TEXTURE_COPIES * texels * np.dtype(np.uint32).itemsize)

    def mesh(self, name: str) -> int:
        """Return the number of a mesh."""
        self._list_all()
        return _number("mesh", name, list(self._meshes))

    def texture(self, name: str) -> int:
        """Return the number of a texture."""
        self._list_all()
        return _number("texture", name, list(self._textures))

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Add assets on this thread without having draws of other threads wait; the table has them afterwards."""
        with self.lock:
            self._loading.add(threading.get_ident())
        try:
            yield
        finally:
            with self.lock:
                self._loading.remove(threading.get_ident())
                version, known = self._version, self._snapshot()
            table = self._build_table(*known)
            with self.lock:
                if version == self._version:
                    self._table, self._has_unlisted = table, False
                else:  # another thread has added some meanwhile
                    self._table = None

    def _note_change(self) -> None:
        self._version += 1
        if threading.get_ident() in self._loading:
            self._has_unlisted = True
        else:
            self._table = None

    def _list_all(self) -> None:
        """Have the next draw list all assets, if this thread may use some that another is adding."""
        if self._has_unlisted and threading.get_ident() not in self._loading:
            self._table = None

    def _snapshot(self) -> tuple[list[Mesh], list[U32]]:
        return list(self._meshes.values()), list(self._textures.values())

    @property
    def table(self) -> AssetTable:
        """The asset table; the same object until something is added."""
        table = self._table
        if table is None:
            with self.lock:
                table = self._table = self._build_table(*self._snapshot())
                self._has_unlisted = False
        return table

    def _build_table(self, known: list[Mesh], textures_with_levels: list[U32]) -> AssetTable:
        parts, coarser = _with_coarser(known)
        triangle_counts = np.array([len(mesh.triangles) for mesh in parts], np.int32)
        corners, corner_of = zip(*(mesh.corners for mesh in parts), strict=True)
        corner_counts = np.array([len(some) for some in corners], np.int32)
        whole = meshes.join(*parts)
        normals = whole.normals[whole.triangles]
        lowest = np.stack([mesh.positions.min(axis=0) for mesh in parts])
        highest = np.stack([mesh.positions.max(axis=0) for mesh in parts])
        sides = self.texture_size >> np.arange(self.texture_size.bit_length())
        texels = np.stack(textures_with_levels)
        first_texels = _starts(np.array(sides * sides, np.int32))
        return AssetTable(
            positions=whole.positions,
            normals=whole.normals,
            uvs=whole.uvs,
            triangles=whole.triangles,
            corners=np.concatenate([*corners, np.zeros((SIMD_WIDTH - 1, 3), np.float32)]),
            triangle_corners=np.concatenate([of[mesh.triangles] for of, mesh in zip(corner_of, parts, strict=True)]),
            triangle_is_flat=np.array((normals == normals[:, :1]).all(axis=(1, 2)), np.uint8),
            triangle_continues=np.concatenate([_find_continued(mesh) for mesh in parts]),
            mesh_first_triangle=_starts(triangle_counts),
            mesh_triangle_count=triangle_counts,
            mesh_first_corner=_starts(corner_counts),
            mesh_corner_count=corner_counts,
            mesh_center=(lowest + highest) / 2,
            mesh_half_size=(highest - lowest) / 2,
            mesh_is_two_sided=np.array([mesh.two_sided for mesh in parts], np.uint8),
            mesh_hollow=np.array([_measure_hollow(mesh) for mesh in parts], np.float32),
            mesh_is_convex=np.array([mesh.is_convex for mesh in parts], np.uint8),
            mesh_front=np.array([_find_front(mesh) for mesh in parts], np.float32),
            mesh_coarser=coarser,
            mesh_coarser_size=np.array(
                [mesh.coarser.size if mesh.coarser else (0, 0, 0) for mesh in parts], np.float32
            ),
            texels=texels,
            texel_rows=_close_rows(texels, first_texels, self.texture_size),
            mip_first_texel=first_texels,
            texture_size=self.texture_size,
        )


def _has_same_form(before: Mesh, mesh: Mesh, corner_count: int) -> bool:
    """Return whether a mesh takes as many rows of the asset table as another, which has no coarser levels of detail."""
    sizes = [(len(one.positions), len(one.triangles), one.two_sided, one.coarser) for one in (before, mesh)]
    return sizes[0] == sizes[1] and mesh.coarser is None and len(mesh.corners[0]) == corner_count


def _write_mesh(table: AssetTable, number: int, before: list[Mesh], mesh: Mesh) -> None:
    """Write a mesh over another of the same form; `before` are the meshes with lower numbers."""
    first = sum(len(one.positions) for one in before)
    vertices = slice(first, first + len(mesh.positions))
    table.positions[vertices] = mesh.positions
    table.normals[vertices] = meshes.join(mesh).normals  # as all meshes are joined
    table.uvs[vertices] = mesh.uvs
    start = int(table.mesh_first_triangle[number])
    triangles = slice(start, start + len(mesh.triangles))
    table.triangles[triangles] = mesh.triangles + first
    corners, corner_of = mesh.corners
    start = int(table.mesh_first_corner[number])
    table.corners[start : start + len(corners)] = corners
    table.triangle_corners[triangles] = corner_of[mesh.triangles]
    normals = table.normals[table.triangles[triangles]]
    table.triangle_is_flat[triangles] = (normals == normals[:, :1]).all(axis=(1, 2))
    table.triangle_continues[triangles] = _find_continued(mesh)
    table.mesh_hollow[number] = _measure_hollow(mesh)
    table.mesh_is_convex[number] = mesh.is_convex
    table.mesh_front[number] = _find_front(mesh)
    lowest, highest = mesh.positions.min(axis=0), mesh.positions.max(axis=0)
    table.mesh_center[number] = (lowest + highest) / 2
    table.mesh_half_size[number] = (highest - lowest) / 2


def _find_continued(mesh: Mesh) -> U8:
    """Return what each triangle continues of the one before it: CONTINUES_ALL, CONTINUES_SHAPE or 0."""
    numbers = np.concatenate([mesh.positions, mesh.uvs, mesh.normals], axis=1).astype(np.float64)[mesh.triangles]
    before, after = numbers[:-1], numbers[1:]
    continues, is_polygon = np.zeros((2, len(numbers)), np.bool_)
    for i in range(3):
        for j in range(3):
            # They share an edge, in opposite directions; the corners i and j that are left are opposite to each other.
            a, b, c = before[:, i], before[:, i - 2], before[:, i - 1]
            shares = (after[:, j - 2] == c).all(axis=1) & (after[:, j - 1] == b).all(axis=1)
            continues[1:] |= shares & (after[:, j] == b + c - a).all(axis=1)
            is_polygon[1:] |= shares & _is_convex_polygon(np.stack([a, b, after[:, j], c], axis=1)[..., :3])
    flat = (numbers[:, :, 5:] == numbers[:, :1, 5:]).all(axis=(1, 2))
    continues[1:] &= flat[:-1] & flat[1:]
    # At most two in a row: the first of a pair is never the second of another.
    for triangle in np.flatnonzero(continues):
        continues[triangle] &= not continues[triangle - 1]
    kinds = np.append(np.where(continues, CONTINUES_ALL, 0), 0).astype(np.uint8)
    for triangle in np.flatnonzero(is_polygon & ~continues):
        if kinds[triangle - 1] == kinds[triangle + 1] == 0:
            kinds[triangle] = CONTINUES_SHAPE
    return kinds[:-1]


_ROUNDING = 3e-7
"""Part of their greatest coordinate by which float32 corners may be off the plane of a polygon."""


def _is_convex_polygon(corners: np.ndarray) -> np.ndarray:
    """Return which of the quadrilaterals [n, 4, 3] are flat, but for rounding to float32, and convex."""
    edges = np.roll(corners, -1, axis=1) - corners
    turns = np.cross(np.roll(edges, 1, axis=1), edges)
    normal = turns.sum(axis=1, keepdims=True)
    length = np.linalg.norm(normal, axis=2)
    size = abs(corners).max(axis=(1, 2))
    off_plane = abs(((corners[:, 2:] - corners[:, :1]) * normal).sum(axis=2)).max(axis=1)
    return np.asarray((off_plane <= _ROUNDING * size * length[:, 0]) & ((turns * normal).sum(axis=2) > 0.0).all(axis=1))


_HOLLOW_MARGIN = 0.9
"""Far enough inside that no rounding in a kernel turns a triangle's front to the eye."""


def _measure_hollow(mesh: Mesh) -> float:
    """Return how much of the bounding box, around its centre, lies behind all triangles of a one-sided mesh.

    0 where that is nothing, and for two-sided meshes.
    """
    lowest, highest = mesh.positions.min(axis=0).astype(np.float64), mesh.positions.max(axis=0).astype(np.float64)
    a, b, c = mesh.positions.astype(np.float64)[mesh.triangles].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    behind = np.einsum("ij,ij->i", normals, a - (lowest + highest) / 2)
    reach = np.abs(normals) @ ((highest - lowest) / 2)
    if mesh.two_sided or not (behind > 0).all():
        return 0.0
    return float(min(_HOLLOW_MARGIN * (behind / reach).min(), 1.0))


def _find_front(mesh: Mesh) -> F32:
    """Return the normal of a one-sided mesh whose triangles lie in one plane and face the same way, else 0.

    The centre of the bounding box is exactly in the plane through all corners that has this normal: kernels rely on it.
    """
    corners = mesh.positions.astype(np.float64)[mesh.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    front = (normals[0] / max(np.abs(normals[0]).max(), np.finfo(np.float64).tiny)).astype(np.float32)
    center = (mesh.positions.min(axis=0) + mesh.positions.max(axis=0)) / 2
    is_flat = not ((corners - center) @ front.astype(np.float64)).any() and (normals @ front > 0).all()
    return np.zeros(3, np.float32) if mesh.two_sided or mesh.coarser is not None or not is_flat else front


def _with_coarser(known: Iterable[Mesh]) -> tuple[list[Mesh], I32]:
    """Return these meshes followed by their coarser levels of detail, and for each the index of its next level."""
    parts = list(known)
    coarser = []
    for mesh in parts:  # grows in the loop
        coarser.append(NO_MESH if mesh.coarser is None else len(parts))
        if mesh.coarser is not None:
            parts.append(mesh.coarser.mesh)
    return parts, np.array(coarser, np.int32)


def _starts(counts: I32) -> I32:
    return np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32)


def _close_rows(texels: U32, first_texels: I32, size: int) -> U32:
    """Return all mip levels of all textures with the first texel of each row repeated at its end."""
    twice = 2 * size * size
    closed = np.zeros((len(texels), twice), np.uint32)
    for level, first in enumerate(first_texels.tolist()):
        side, start = size >> level, twice - (twice >> 2 * level)
        rows = texels[:, first : first + side * side].reshape(-1, side, side)
        closed[:, start : start + side * (side + 1)] = np.concatenate([rows, rows[:, :, :1]], axis=2).reshape(
            len(texels), -1
        )
    return closed


def _mip_chain(pixels: U8) -> U32:
    """Return all mip levels of an image, flattened, each texel packed into 32 bits."""
    levels = []
    level = pixels.astype(np.float64)
    while True:
        rounded = np.rint(level).astype(np.uint32)
        levels.append((rounded[..., 0] | rounded[..., 1] << 8 | rounded[..., 2] << 16 | np.uint32(255 << 24)).ravel())
        if len(level) == 1:
            return np.concatenate(levels)
        level = (level[0::2, 0::2] + level[1::2, 0::2] + level[0::2, 1::2] + level[1::2, 1::2]) / 4


def _number(kind: str, name: str, known: list[str]) -> int:
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}: expected one of {', '.join(known)}")
    return known.index(name)
