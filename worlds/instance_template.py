"""Instance templates: the instance rows that every lane of a family starts with, and helpers to build them.

A family builds an `InstanceTemplate` once, from meshes, poses, colours, textures and labels. Its rows are copied into a
lane before that lane is drawn for the first time (a lane of the scene is empty when a pool gets it); after that the
family only writes the poses of what moves.

Poses are computed with sums and products only: those round the same in any batch.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.tables import CASTS, F32, I32, NO_TEXTURE, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, cylinder, disc, sphere
from worldloom.render.scene import Scene

_COARSE_MESHES: dict[str, Callable[[], Mesh]] = {
    "coarse sphere": lambda: sphere(16, 8),
    "coarse cylinder": lambda: cylinder(16),
    "disc": disc,
}
"""Meshes with few triangles, for thousands of small frames; added to a library when they are first used."""


def parse_color(color: str) -> tuple[float, float, float]:
    """Return red, green and blue in 0..1 of a colour such as "ff8000": two hexadecimal digits for each."""
    red, green, blue = bytes.fromhex(color)
    return red / 255, green / 255, blue / 255


def upright_pose(position: ArrayLike, size: ArrayLike = (1.0, 1.0, 1.0)) -> F32:
    """Return poses [..., 3, 4] that scale by `size` [..., 3] and move to `position` [..., 3], without a rotation."""
    position, size = np.asarray(position, np.float32), np.asarray(size, np.float32)
    pose = np.zeros((*np.broadcast_shapes(position.shape[:-1], size.shape[:-1]), 3, 4), np.float32)
    for axis in range(3):
        pose[..., axis, axis] = size[..., axis]
    pose[..., 3] = position
    return pose


def wheel_pose(position: tuple[float, float, float], diameter: float, width: float) -> F32:
    """Return the pose of a cylinder whose axis is along y, as of a wheel that rolls along x."""
    x, y, z = position
    return np.array([[diameter, 0, 0, x], [0, 0, -width, y], [0, diameter, 0, z]], np.float32)


def shadow_pose(pose: np.ndarray, to_sun: np.ndarray, height: float = 0.004) -> np.ndarray:
    """Return poses [..., 3, 4] projected onto the floor along the sunlight: their meshes become shadows.

    `to_sun` [3] points to the sun. `height` is that of the shadows, just above the floor.
    """
    flat = np.empty_like(pose)
    flat[..., 0, :] = pose[..., 0, :] - pose[..., 2, :] * (to_sun[0] / to_sun[2])
    flat[..., 1, :] = pose[..., 1, :] - pose[..., 2, :] * (to_sun[1] / to_sun[2])
    flat[..., 2, :] = (0.0, 0.0, 0.0, height)
    return flat


class InstanceTemplate:
    """Instance rows of a lane, in the order they were added."""

    def __init__(self, assets: AssetLibrary) -> None:
        self.assets = assets
        self.mesh: list[int] = []
        self.pose: list[F32] = []
        self.color: list[tuple[float, float, float]] = []
        self.texture: list[int] = []
        self.uv_scale: list[tuple[float, float]] = []
        self.label: list[int] = []
        self.shadow: list[int] = []
        self.alpha: list[float] = []

    def __len__(self) -> int:
        return len(self.mesh)

    def add(
        self,
        mesh: str,
        pose: F32,
        color: str,
        label: int,
        texture: str | None = None,
        uv_scale: tuple[float, float] = (1.0, 1.0),
        shadow: int = CASTS,
        alpha: float = 1.0,
    ) -> int:
        """Add an instance and return its index among the rows of a lane; `shadow` is as in `InstanceTable`."""
        self.mesh.append(find_or_add_mesh(self.assets, mesh))
        self.pose.append(pose)
        self.color.append(parse_color(color))
        self.label.append(label)
        self.texture.append(NO_TEXTURE if texture is None else self.assets.texture(texture))
        self.uv_scale.append(uv_scale)
        self.shadow.append(shadow)
        self.alpha.append(alpha)
        return len(self) - 1

    def write(self, scene: Scene, scene_lanes: I32, **lane_columns: ArrayLike) -> None:
        """Write the rows of these lanes, and columns of `scene.lanes` such as `ambient`."""
        rows, table = scene.rows(scene_lanes), scene.instances
        for column, value in lane_columns.items():
            getattr(scene.lanes, column)[scene_lanes] = value
        table.mesh[rows], table.pose[rows], table.color[rows] = self.mesh, np.array(self.pose), self.color
        table.texture[rows], table.uv_scale[rows], table.label[rows] = self.texture, self.uv_scale, self.label
        table.shadow[rows] = self.shadow
        table.alpha[rows] = self.alpha


def find_or_add_mesh(assets: AssetLibrary, name: str) -> int:
    """Return the number of a mesh of the library; add it first if it is one of the coarse meshes of this module."""
    try:
        return assets.mesh(name)
    except ValueError:
        if name not in _COARSE_MESHES:
            raise
        return assets.add_mesh(name, _COARSE_MESHES[name]())


def find_or_add_texture(assets: AssetLibrary, name: str, build: Callable[[int], U8]) -> str:
    """Return the name of a texture; add `build(assets.texture_size)` under it first if the library lacks it."""
    try:
        assets.texture(name)
    except ValueError:
        assets.add_texture(name, build(assets.texture_size))
    return name
