"""Arrays of states of a scene: the poses, cameras, colours and light that differ from state to state, checked.

Each array has a row for each state, or is one for all states, which its number of dimensions tells.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from worldloom.kernels.drawing_states import read_array
from worldloom.kernels.tables import NO_MESH, NO_TEXTURE, AssetTable
from worldloom.kernels.views import AXES_TOLERANCE, find_invalid_camera
from worldloom.render.views import DEFAULT_FAR, DEFAULT_FOV_DEGREES, DEFAULT_NEAR

POSES = "poses"


class StateArrays(TypedDict, total=False):
    """Arrays of N states beside their poses: [N, ...] with a row for each, or [...] for all.

    `rows` are the instance rows that move. Names are those of `make_views` and of the tables of instances and lanes.
    What is not given is as in the template; cameras as in `make_views`.
    """

    camera: Any
    """Poses of cameras [N, 3, 4], camera to world; `look_at` returns such."""
    fov_degrees: Any
    """Vertical fields of view [N] of perspective cameras."""
    orthographic_height: Any
    """Heights [N] of orthographic frames, in metres; NaN for perspective."""
    near: Any
    """Distances [N] of the near planes."""
    far: Any
    """Distances [N] of the far planes."""
    mesh: Any
    """Numbers of meshes [N, rows]; NO_MESH, -1, draws nothing."""
    color: Any
    """Colours [N, rows, 3]."""
    alpha: Any
    """Alphas [N, rows]: from 0.995 on opaque, below translucent; 0 draws nothing."""
    texture: Any
    """Numbers of textures [N, rows]; NO_TEXTURE, -1, for none."""
    label: Any
    """Values in segmentation [N, rows]."""
    light_direction: Any
    """Directions [N, 3] in which the light travels."""
    light_color: Any
    """Colours [N, 3] of the light."""
    ambient: Any
    """Colours [N, 3] of the ambient light from above."""
    ambient_ground: Any
    """Colours [N, 3] of the ambient light from below."""
    sky_horizon: Any
    """Colours [N, 3] of the sky at the horizon."""
    sky_zenith: Any
    """Colours [N, 3] of the sky above."""


ROW_COLUMNS = {
    POSES: "pose",
    "mesh": "mesh",
    "color": "color",
    "alpha": "alpha",
    "texture": "texture",
    "label": "label",
}
"""Arrays by instance row, and their columns of the instance table."""
LIGHT_COLUMNS = ("light_direction", "light_color", "ambient", "ambient_ground")
SKY_COLUMNS = ("sky_horizon", "sky_zenith")
LANE_COLUMNS = (*LIGHT_COLUMNS, *SKY_COLUMNS)
"""Arrays that are columns of the lane table."""
VIEW_ARGUMENTS = ("camera", "fov_degrees", "orthographic_height", "near", "far")
"""Arrays that are arguments of `make_views`."""
_IDS = ("mesh", "texture", "label")
_COLORS = ("color", "alpha", *LANE_COLUMNS)


@dataclass(frozen=True)
class StateBatch:
    """States that were checked: their number, and their arrays, by state or for all."""

    count: int
    by_state: dict[str, np.ndarray]
    for_all: dict[str, np.ndarray]

    def part(self, first: int, end: int) -> "StateBatch":
        """Return some of the states."""
        by_state = {name: array[first:end] for name, array in self.by_state.items()}
        return StateBatch(end - first, by_state, self.for_all)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return self.by_state | self.for_all


class StateChecker:
    """Checks of the states of one template with so many rows that move."""

    def __init__(self, rows: int, has_lamps: bool, has_sky_textures: bool) -> None:
        self._shapes: dict[str, tuple[int, ...]] = {
            POSES: (rows, 3, 4),
            "camera": (3, 4),
            **dict.fromkeys(VIEW_ARGUMENTS[1:], ()),
            **dict.fromkeys(_IDS, (rows,)),
            "color": (rows, 3),
            "alpha": (rows,),
            **dict.fromkeys(LANE_COLUMNS, (3,)),
        }
        self._unused = {
            **dict.fromkeys(LIGHT_COLUMNS if has_lamps else (), "is lit by lamps"),
            **dict.fromkeys(SKY_COLUMNS if has_sky_textures else (), "has a sky box"),
        }

    def check(self, given: Mapping[str, Any], assets: AssetTable, first: int = 0) -> StateBatch:
        """Return states; ValueError if something is wrong with them. `first` is the first state's number in errors."""
        for name in given:
            if name not in self._shapes:
                nearest = difflib.get_close_matches(name, self._shapes, n=1)
                hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
                raise TypeError(f"unknown array {name!r}{hint}: expected some of {', '.join(self._shapes)}")
            if name in self._unused:
                raise ValueError(f"{name} has no effect, as the template {self._unused[name]}: expected it left out")
        arrays = {name: read_array(name, value) for name, value in given.items()}
        by_state: dict[str, np.ndarray] = {}
        for_all: dict[str, np.ndarray] = {}
        for name, array in arrays.items():
            self._check_form(name, array)
            (for_all if array.ndim == len(self._shapes[name]) else by_state)[name] = array
        if not by_state:
            hint = f"; for one state give {POSES}[None]" if POSES in arrays else ""
            raise ValueError(f"no array has a row for each state: expected {POSES} {self._form(POSES)}{hint}")
        source, count = next((name, len(array)) for name, array in by_state.items())
        for name, array in by_state.items():
            if len(array) != count:
                raise ValueError(f"{name} has {len(array)} states: expected {count}, as {source} has")
        with np.errstate(over="ignore"):  # beyond float32 is infinity, which is refused
            _check_cameras(arrays, first)
        _check_ids(arrays, assets, first, by_state)
        _check_colors(arrays, first, by_state)
        return StateBatch(count, by_state, for_all)

    def _check_form(self, name: str, array: np.ndarray) -> None:
        kinds, numbers = ("iu", "integers") if name in _IDS else ("fiu", "numbers")
        if array.dtype.kind not in kinds:
            raise ValueError(f"{name} has dtype {array.dtype}: expected {numbers} {self._form(name)}")
        shape = self._shapes[name]
        if shape not in (array.shape, array.shape[1:]):
            raise ValueError(
                f"{name} has shape {list(array.shape)}: expected {self._form(name)}, or {list(shape)} for all states"
            )

    def _form(self, name: str) -> str:
        return f"[{', '.join(['N', *map(str, self._shapes[name])])}]"


def _check_cameras(arrays: Mapping[str, np.ndarray], first: int) -> None:
    """Raise ValueError for the first camera that renderers would refuse, in the terms of `make_views`."""
    if "camera" in arrays:
        cameras = np.ascontiguousarray(arrays["camera"], np.float32).reshape(-1, 3, 4)
        wrong = find_invalid_camera(cameras, AXES_TOLERANCE)
        if wrong >= 0:
            where = f"camera of state {first + wrong}" if arrays["camera"].ndim == 3 else "camera"
            raise ValueError(
                f"{where} is {cameras[wrong].tolist()}: expected finite numbers whose first three columns are "
                "orthonormal (render.views.look_at returns such)"
            )
    fov = np.asarray(arrays.get("fov_degrees", DEFAULT_FOV_DEGREES), np.float64)
    half_height = np.tan(np.radians(fov) / 2).astype(np.float32)
    _raise_if("fov_degrees", fov, ~((fov > 0) & (fov < 180) & (half_height > 0)), "an angle above 0, below 180", first)
    metres = np.asarray(arrays.get("orthographic_height", np.nan), np.float32)
    is_perspective = np.isnan(metres)
    is_height = np.isfinite(metres) & (metres / 2 > 0)
    _raise_if("orthographic_height", metres, ~(is_perspective | is_height), "metres above 0, or NaN", first)
    near = np.asarray(arrays.get("near", DEFAULT_NEAR), np.float32)
    far = np.asarray(arrays.get("far", DEFAULT_FAR), np.float32)
    wrong_near = ~np.isfinite(near) | (is_perspective & (near <= 0))
    _raise_if("near", near, wrong_near, "a finite number, above 0 in perspective", first)
    _raise_if("far", far, ~(np.isfinite(far) & (far > near)), "a finite number above near", first)


def _check_ids(
    arrays: Mapping[str, np.ndarray], assets: AssetTable, first: int, by_state: Mapping[str, np.ndarray]
) -> None:
    """Raise ValueError for the first number of a mesh or a texture that does not exist, or label beyond its byte."""
    limits = {
        "mesh": (NO_MESH, len(assets.mesh_first_triangle) - 1),
        "texture": (NO_TEXTURE, len(assets.texels) - 1),
        "label": (0, 255),
    }
    for name in _IDS:
        array = arrays.get(name)
        if array is None or not array.size:
            continue
        least, most = limits[name]
        if least <= int(array.min()) and int(array.max()) <= most:
            continue
        wrong = (array < least) | (array > most)
        index = [int(place) for place in np.unravel_index(int(np.argmax(wrong)), array.shape)]
        where = f" of state {first + index[0]}" if name in by_state else ""
        none = f"{least} for none, or 0 to {most}" if least < 0 else f"{least} to {most}"
        raise ValueError(f"{name}{where} is {array[tuple(index)]} at row {index[-1]}: expected {none}")


def _check_colors(arrays: Mapping[str, np.ndarray], first: int, by_state: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError for the first colour, alpha or direction of light that is not finite."""
    for name in _COLORS:
        array = arrays.get(name)
        if array is None or not array.size or np.isfinite(array).all():
            continue
        index = [int(place) for place in np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)]
        where = f"{name} of state {first + index.pop(0)}" if name in by_state else name
        raise ValueError(f"{where} is {array[~np.isfinite(array)][0]} at {index}: expected finite numbers")


def _raise_if(name: str, values: np.ndarray, wrong: np.ndarray, expected: str, first: int) -> None:
    """Raise ValueError for the first state that is wrong, if there is one; arrays have one entry, or one a state."""
    if not wrong.any():
        return
    state = int(np.argmax(wrong))
    where = f"{name} of state {first + state}" if wrong.ndim else name
    raise ValueError(f"{where} is {values[state] if values.ndim else values}: expected {expected}")
