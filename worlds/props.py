"""What families dress their lanes with: a list of things to draw, made once and copied into every lane.

The rows of a lane are `Props` in the order they were added. They are written once (`furnish`), since a scene's lane is
empty when a world gets it; the poses of what moves a family writes each time. Positions are computed with plain sums
and products only: those round the same in any batch.

Lanes whose rows are copied from a list of things once, and moved afterwards.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F32, I32, NO_MESH, NO_TEXTURE, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh, cylinder, disc, sphere
from worldloom.render.scene import Scene

_SHAPES: dict[str, Callable[[], Mesh]] = {
    "ball": lambda: sphere(16, 8),
    "drum": lambda: cylinder(16),
    "disc": disc,
}
"""Meshes that are light enough for thousands of small pictures; a library takes them in when they are first used."""


def rgb(color: str) -> tuple[float, float, float]:
    """A colour from two hexadecimal digits for each of red, green and blue."""
    red, green, blue = bytes.fromhex(color)
    return red / 255, green / 255, blue / 255


def placed(at: ArrayLike, size: ArrayLike = (1.0, 1.0, 1.0)) -> F32:
    """Poses [..., 3, 4] that scale and move; for any number of things at once."""
    at, size = np.asarray(at, np.float32), np.asarray(size, np.float32)
    pose = np.zeros((*np.broadcast_shapes(at.shape[:-1], size.shape[:-1]), 3, 4), np.float32)
    for axis in range(3):
        pose[..., axis, axis] = size[..., axis]
    pose[..., 3] = at
    return pose


def lying(at: tuple[float, float, float], diameter: float, length: float) -> F32:
    """The pose of a drum that lies along y, as a wheel that rolls along x does."""
    x, y, z = at
    return np.array([[diameter, 0, 0, x], [0, 0, -length, y], [0, diameter, 0, z]], np.float32)


def pressed(pose: np.ndarray, sun_at: np.ndarray, height: float = 0.004) -> np.ndarray:
    """Poses [..., 3, 4] pressed flat onto the floor, away from the sun: what they place becomes its shadow."""
    flat = np.empty_like(pose)
    flat[..., 0, :] = pose[..., 0, :] - pose[..., 2, :] * (sun_at[0] / sun_at[2])
    flat[..., 1, :] = pose[..., 1, :] - pose[..., 2, :] * (sun_at[1] / sun_at[2])
    flat[..., 2, :] = (0.0, 0.0, 0.0, height)
    return flat


class Props:
    """The things in a lane."""

    def __init__(self, assets: AssetLibrary) -> None:
        self.assets = assets
        self.mesh: list[int] = []
        self.pose: list[F32] = []
        self.color: list[tuple[float, float, float]] = []
        self.texture: list[int] = []
        self.uv_scale: list[tuple[float, float]] = []
        self.label: list[int] = []

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
    ) -> int:
        """One thing more; its place in a lane's rows comes back."""
        self.mesh.append(take_mesh(self.assets, mesh))
        self.pose.append(pose)
        self.color.append(rgb(color))
        self.label.append(label)
        self.texture.append(NO_TEXTURE if texture is None else self.assets.texture(texture))
        self.uv_scale.append(uv_scale)
        return len(self) - 1

    def furnish(self, scene: Scene, scene_lanes: I32, **look: ArrayLike) -> None:
        """Put everything into these lanes where it is not there yet; `look` are columns of `scene.lanes`."""
        first_row, mesh = scene.lanes.first_row, scene.instances.mesh
        if any_bare(scene_lanes, first_row, mesh):
            self._write(scene, scene_lanes[mesh[first_row[scene_lanes]] == NO_MESH], look)

    def _write(self, scene: Scene, scene_lanes: I32, look: Mapping[str, ArrayLike]) -> None:
        rows, table = scene.rows(scene_lanes), scene.instances
        for column, value in look.items():
            getattr(scene.lanes, column)[scene_lanes] = value
        table.pose[rows], table.color[rows], table.texture[rows] = np.array(self.pose), self.color, self.texture
        table.uv_scale[rows], table.label[rows] = self.uv_scale, self.label
        table.mesh[rows] = self.mesh  # last: it says that all is there


def take_mesh(assets: AssetLibrary, name: str) -> int:
    """The number of a mesh of the library, or of one of the light shapes here."""
    try:
        return assets.mesh(name)
    except ValueError:
        if name not in _SHAPES:
            raise
        return assets.add_mesh(name, _SHAPES[name]())


def take_texture(assets: AssetLibrary, name: str, paint: Callable[[int], U8]) -> str:
    """See that the library has a texture, painting it if need be; the name comes back."""
    try:
        assets.texture(name)
    except ValueError:
        assets.add_texture(name, paint(assets.texture_size))
    return name


@kernel_holding_gil
def any_bare(scene_lanes: I32, first_row: I32, mesh: I32) -> bool:
    """Whether the first row of any of these lanes is empty: then nothing has been put into that lane yet."""
    bare = False
    for k in range(scene_lanes.size):
        bare |= mesh[first_row[scene_lanes[k]]] == NO_MESH
    return bare
