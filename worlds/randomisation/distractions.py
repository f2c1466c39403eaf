"""Data of a family's scene that a published distraction is applied to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from worldloom.kernels.tables import F64, I32, NO_TEXTURE, U8
from worldloom.worlds.randomisation.presets import Preset

NO_MATERIAL = -1
"""Material of a row whose colour is its own."""


@dataclass(frozen=True)
class OrbitingCamera:
    """A camera that a distraction moves around a point that it has a place on a sphere of."""

    offset: tuple[float, float, float]
    """From the origin of the sphere: the world's, or what the camera follows."""
    axes: tuple[tuple[float, float, float], ...]
    """Its own axes in the world as columns: right, up, backward."""


@dataclass(frozen=True)
class Distraction:
    """A preset, and what it varies in the lanes of a family."""

    preset: Preset
    row_materials: I32
    """Material that each instance row of a lane has its colour of, or NO_MATERIAL."""
    material_colors: F64
    """Colours [materials, 3] that they are drawn around."""
    floor: U8
    """1 for instance rows of the floor."""
    floor_alpha: float = 1.0
    """Alpha of the floor's rows where the sky is a video."""
    floors: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """Textures that the floor has one of, where colours are normally distributed."""
    floor_colors: F64 = field(default_factory=lambda: np.zeros((0, 3)))
    """Colours [floors, 3] of the darker squares of these."""
    sky: int = NO_TEXTURE
    """First texture of a sky box to be tinted there, or NO_TEXTURE."""
    sky_color: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Its tint, which is drawn around this."""
    cameras: Mapping[str, OrbitingCamera] = field(default_factory=dict)
    """Cameras that move, by name."""

    @property
    def has_sky(self) -> bool:
        """True if there is a sky box to be tinted."""
        return self.sky != NO_TEXTURE
