"""Meshes of MuJoCo's own shapes, with textures laid on as MuJoCo lays them.

Each is one unit from its middle to its sides, to be scaled by a geom's sizes. How many sides round things have is ours
to choose: what nobody can see on the screen is left out (`Mesh.coarser`).
"""

import math
from collections.abc import Callable

import numpy as np

from worldloom.kernels.tables import F32
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, grid, join, turned, with_coarser

_SLICES = 32
_STACKS = 16
_STEPS = 1000
"""Ratios of a capsule's length to its width are told apart in steps of one part in so many, so that their number is
bounded: a capsule's half length is wrong by a two-thousandth of itself at most."""


def take(assets: AssetLibrary, name: str, make: Callable[[], Mesh]) -> int:
    """The number of a mesh of the library; made when it is first asked for."""
    with assets.lock:
        try:
            return assets.mesh(name)
        except ValueError:
            return assets.add_mesh(name, make())


def ball(assets: AssetLibrary) -> int:
    """A ball of radius 1."""
    return take(assets, "mujoco.ball", sphere)


def box(assets: AssetLibrary) -> int:
    """A box that reaches one unit to each side."""
    return take(assets, "mujoco.box", cube)


def cylinder(assets: AssetLibrary) -> int:
    """A cylinder around z of radius 1 that reaches one unit up and down."""
    return take(assets, "mujoco.cylinder", drum)


def tube(assets: AssetLibrary) -> int:
    """The same without its ends."""
    return take(assets, "mujoco.tube", pipe)


def capsule(assets: AssetLibrary, half_length: float) -> int:
    """A capsule around z of radius 1 whose tube reaches `half_length` up and down."""
    if not half_length > 0:
        return ball(assets)
    step = round(math.log(half_length) * _STEPS)
    return take(assets, f"mujoco.capsule {step}", lambda: pill(math.exp(step / _STEPS)))


def plane(assets: AssetLibrary) -> int:
    """A square that reaches one unit to each side and faces up."""
    return take(assets, "mujoco.plane", lambda: sheet((0.0, 1.0), (1.0, 0.0)))


def ground(assets: AssetLibrary, u: tuple[float, float], v: tuple[float, float]) -> int:
    """A plane whose texture runs from the first to the second of `u` along x, and of `v` along y."""
    return take(assets, f"mujoco.plane {u} {v}", lambda: sheet(u, v))


def sheet(u: tuple[float, float], v: tuple[float, float]) -> Mesh:
    """A square from -1 to 1 in x and y."""
    positions = np.array([[-1, -1, 0], [1, -1, 0], [-1, 1, 0], [1, 1, 0]], np.float32)
    uvs = np.array([[u[0], v[0]], [u[1], v[0]], [u[0], v[1]], [u[1], v[1]]], np.float32)
    return Mesh(positions, _all_facing((0, 0, 1), 4), uvs, grid(1, 1), two_sided=False)


def cube() -> Mesh:
    """Six faces; on each the texture runs along the next axis, and up along the one after that."""
    faces = []
    square = sheet((0.0, 1.0), (1.0, 0.0))
    x, y, z = np.eye(3, dtype=np.float32)
    for right, up, out in ((x, y, z), (y, z, x), (x, z, -y)):
        for side in (out, -out):
            positions = square.positions[:, :1] * right + square.positions[:, 1:2] * up + side
            # Seen from outside the texture is mirrored on every other face.
            triangles = square.triangles if np.cross(right, up) @ side > 0 else square.triangles[:, ::-1]
            faces.append(Mesh(positions, _all_facing(side, 4), square.uvs, triangles, two_sided=False))
    return join(*faces)


def sphere(slices: int = _SLICES) -> Mesh:
    """The texture goes around once, its top at the upper pole."""
    stacks = slices * _STACKS // _SLICES
    latitude = np.linspace(-np.pi / 2, np.pi / 2, stacks + 1)
    r, z = np.cos(latitude), np.sin(latitude)
    return with_coarser(turned(r, z, r, z, np.linspace(1, 0, stacks + 1), slices), slices, sphere, (1.0, 1.0, 1.0))


def pipe(slices: int = _SLICES) -> Mesh:
    """The texture goes around once."""
    one = np.ones(2)
    side = turned(one, np.array([-1.0, 1.0]), one, 0 * one, np.array([1.0, 0.0]), slices)
    return with_coarser(side, slices, pipe, (1.0, 1.0, 0.0))


def drum(slices: int = _SLICES) -> Mesh:
    """A pipe whose ends carry the whole texture each, laid on from above."""
    one = np.ones(2)
    top = turned(np.array([1.0, 0.0]), one, 0 * one, one, 0 * one, slices)
    bottom = turned(np.array([0.0, 1.0]), -one, 0 * one, -one, 0 * one, slices)
    ends = [
        Mesh(m.positions, m.normals, (m.positions[:, :2] + 1) / np.float32(2), m.triangles, False)
        for m in (bottom, top)
    ]
    return with_coarser(join(pipe(slices), *ends), slices, drum, (1.0, 1.0, 0.0))


def pill(half_length: float, slices: int = _SLICES) -> Mesh:
    """A pipe closed by half balls; each of the three carries the whole texture."""
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
    return with_coarser(join(*parts), slices, lambda fewer: pill(half_length, fewer), (1.0, 1.0, 1.0))


def _all_facing(way: "F32 | tuple[int, int, int]", count: int) -> F32:
    return np.tile(np.asarray(way, np.float32), (count, 1))
