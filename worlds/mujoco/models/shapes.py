"""Meshes of MuJoCo's primitive shapes, with texture coordinates as MuJoCo has them.

Each mesh is one unit from its centre to its sides, to be scaled by the sizes of a geom. `build_...` returns a mesh,
`acquire_...` its id in the asset library, where it is added on first use. Round meshes have coarser versions with fewer
sides, for frames in which the difference cannot be seen (`Mesh.coarser`).
"""

import math
from collections.abc import Callable

import numpy as np

from worldloom.kernels.tables import F32
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, grid, join, turned, with_coarser

_SLICES = 32
_STACKS = 16
_RATIO_STEPS = 1000
"""The ratio of a capsule's length to its width is rounded to this many steps per factor e, which bounds the number of
capsule meshes. A half length is off by a two-thousandth of itself at most."""


def acquire_mesh(assets: AssetLibrary, name: str, build: Callable[[], Mesh]) -> int:
    """Return the id of a mesh of the library; build and add it if there is none of that name."""
    with assets.lock:
        try:
            return assets.mesh(name)
        except ValueError:
            return assets.add_mesh(name, build())


def acquire_sphere(assets: AssetLibrary) -> int:
    """Return the id of a sphere of radius 1."""
    return acquire_mesh(assets, "mujoco.sphere", build_sphere)


def acquire_box(assets: AssetLibrary) -> int:
    """Return the id of a box from -1 to 1 along each axis."""
    return acquire_mesh(assets, "mujoco.box", build_box)


def acquire_cylinder(assets: AssetLibrary) -> int:
    """Return the id of a cylinder around z of radius 1, from -1 to 1."""
    return acquire_mesh(assets, "mujoco.cylinder", build_cylinder)


def acquire_tube(assets: AssetLibrary) -> int:
    """Return the id of a cylinder without its ends."""
    return acquire_mesh(assets, "mujoco.tube", build_tube)


def acquire_capsule(assets: AssetLibrary, half_length: float) -> int:
    """Return the id of a capsule around z of radius 1 whose tube reaches from -half_length to half_length."""
    if not half_length > 0:
        return acquire_sphere(assets)
    step = round(math.log(half_length) * _RATIO_STEPS)
    return acquire_mesh(assets, f"mujoco.capsule {step}", lambda: build_capsule(math.exp(step / _RATIO_STEPS)))


def acquire_plane(assets: AssetLibrary) -> int:
    """Return the id of a square from -1 to 1 in x and y that faces up."""
    return acquire_mesh(assets, "mujoco.plane", lambda: build_plane((0.0, 1.0), (1.0, 0.0)))


def acquire_textured_plane(assets: AssetLibrary, u: tuple[float, float], v: tuple[float, float]) -> int:
    """Return the id of a plane with texture coordinates from u[0] to u[1] along x and from v[0] to v[1] along y."""
    return acquire_mesh(assets, f"mujoco.plane {u} {v}", lambda: build_plane(u, v))


def build_plane(u: tuple[float, float], v: tuple[float, float]) -> Mesh:
    """Return a square from -1 to 1 in x and y, with texture coordinates in the given ranges."""
    positions = np.array([[-1, -1, 0], [1, -1, 0], [-1, 1, 0], [1, 1, 0]], np.float32)
    uvs = np.array([[u[0], v[0]], [u[1], v[0]], [u[0], v[1]], [u[1], v[1]]], np.float32)
    return Mesh(positions, _repeat_normal((0, 0, 1), 4), uvs, grid(1, 1), two_sided=False)


def build_box() -> Mesh:
    """Return a box, each of whose six faces shows the whole texture."""
    faces = []
    square = build_plane((0.0, 1.0), (1.0, 0.0))
    x, y, z = np.eye(3, dtype=np.float32)
    for right, up, out in ((x, y, z), (y, z, x), (x, z, -y)):
        for side in (out, -out):
            positions = square.positions[:, :1] * right + square.positions[:, 1:2] * up + side
            # Every other face shows the texture mirrored, so its triangles are turned to face outwards.
            triangles = square.triangles if np.cross(right, up) @ side > 0 else square.triangles[:, ::-1]
            faces.append(Mesh(positions, _repeat_normal(side, 4), square.uvs, triangles, two_sided=False))
    return join(*faces)


def build_sphere(slices: int = _SLICES) -> Mesh:
    """Return a sphere; the texture goes around it once, its top at the upper pole."""
    stacks = slices * _STACKS // _SLICES
    latitude = np.linspace(-np.pi / 2, np.pi / 2, stacks + 1)
    r, z = np.cos(latitude), np.sin(latitude)
    return with_coarser(
        turned(r, z, r, z, np.linspace(1, 0, stacks + 1), slices), slices, build_sphere, (1.0, 1.0, 1.0)
    )


def build_tube(slices: int = _SLICES) -> Mesh:
    """Return a cylinder without its ends; the texture goes around it once."""
    one = np.ones(2)
    side = turned(one, np.array([-1.0, 1.0]), one, 0 * one, np.array([1.0, 0.0]), slices)
    return with_coarser(side, slices, build_tube, (1.0, 1.0, 0.0))


def build_cylinder(slices: int = _SLICES) -> Mesh:
    """Return a cylinder; its side is a tube, and each end shows the whole texture, projected from above."""
    one = np.ones(2)
    top = turned(np.array([1.0, 0.0]), one, 0 * one, one, 0 * one, slices)
    bottom = turned(np.array([0.0, 1.0]), -one, 0 * one, -one, 0 * one, slices)
    ends = [
        Mesh(m.positions, m.normals, (m.positions[:, :2] + 1) / np.float32(2), m.triangles, False)
        for m in (bottom, top)
    ]
    return with_coarser(join(build_tube(slices), *ends), slices, build_cylinder, (1.0, 1.0, 0.0))


def build_capsule(half_length: float, slices: int = _SLICES) -> Mesh:
    """Return a tube with a hemisphere at each end; each of the three shows the whole texture."""
    stacks = -(-slices * _STACKS // (2 * _SLICES))
    latitude = np.linspace(0, np.pi / 2, stacks + 1)
    r, z = np.cos(latitude), np.sin(latitude)
    v = np.linspace(1, 0, stacks + 1)
    one = np.ones(2)
    parts = (
        turned(one, half_length * np.array([-1, 1]), one, 0 * one, np.array([1.0, 0.0]), slices),
        turned(r, z + half_length, r, z, v, slices),
        turned(r[::-1], -z[::-1] - half_length, r[::-1], -z[::-1], 1 - v[::-1], slices),
    )
    return with_coarser(join(*parts), slices, lambda fewer: build_capsule(half_length, fewer), (1.0, 1.0, 1.0))


def _repeat_normal(normal: "F32 | tuple[int, int, int]", count: int) -> F32:
    return np.tile(np.asarray(normal, np.float32), (count, 1))
