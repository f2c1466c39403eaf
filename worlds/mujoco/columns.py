"""What does not move of a lane's rows, for a model or one that differs from it in numbers."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.tables import F32, I32, NO_MESH, NO_TEXTURE, U8

_KEPT = 64
"""Of models that differ, so many are kept for when they come again."""
_DECIDING = (
    *("geom_size", "geom_rgba", "geom_matid", "geom_dataid", "site_size", "site_rgba", "site_matid"),
    *("tendon_rgba", "tendon_matid", "skin_rgba", "skin_matid"),
    *("mat_rgba", "mat_emission", "mat_specular", "mat_shininess", "mat_texrepeat", "mat_texid", "mat_texuniform"),
)
"""What of a model decides how its things look."""


class Columns(NamedTuple):
    """Of a lane's rows, and how large each thing is along its own axes."""

    mesh: I32
    color: F32
    texture: I32
    uv_scale: F32
    label: U8
    shine: F32
    scale: F32


def blank_columns(rows: int) -> Columns:
    """Rows that draw nothing."""
    return Columns(
        mesh=np.full(rows, NO_MESH, np.int32),
        color=np.zeros((rows, 3), np.float32),
        texture=np.full(rows, NO_TEXTURE, np.int32),
        uv_scale=np.ones((rows, 2), np.float32),
        label=np.zeros(rows, np.uint8),
        shine=np.zeros((rows, 3), np.float32),
        scale=np.ones((rows, 3), np.float32),
    )


class KnownColumns:
    """Columns by what decides them: most lanes look like another."""

    def __init__(self, make: Callable[[mujoco.MjModel], Columns]) -> None:
        self._make = make
        self._known: dict[bytes, Columns] = {}

    def of(self, model: mujoco.MjModel) -> Columns:
        """Those of a model, made if they are not known."""
        digest = hashlib.sha256()
        for name in _DECIDING:
            digest.update(getattr(model, name).tobytes())
        key = digest.digest()
        if key not in self._known:
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = self._make(model)
        return self._known[key]
