"""Environments with a MuJoCo model that are stepped by their own Python code, and drawn like other worlds.

Poses are read from each environment's own MjData. An environment may change its model, such as colours, sizes and the
positions of targets: what was written into the scene is compared with the model before each frame. Its memory is read
by tables that were made for the first model, so an environment whose model or data differs from that in size is not
drawn: its frames are black, and its numbers go on.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np

from worldloom.kernels.tables import I32, I64, NO_MESH, NO_TEXTURE
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import CameraPlacement, State
from worldloom.worlds.gym.cameras import rendered_camera
from worldloom.worlds.gym.environments import log, raise_interrupt
from worldloom.worlds.gym.family import Gym
from worldloom.worlds.mujoco.models.scene import ModelScene, appearance_key
from worldloom.worlds.mujoco.simulation.data import FIELDS, field_addresses

_SIZES = ("nq", "nv", "nbody", "ngeom", "nsite", "ncam", "nlight", "nmesh", "ntendon", "nskin", "nwrap", "nmat")
"""Numbers of a model that must be the same in all lanes, for their memory is read by one table of addresses."""
_NOT_DRAWN = b""
"""Key of the looks of a lane that is not drawn."""
_WHEN_DRAWN = "when it was drawn: its frames are black"
_ENVIRONMENT_BYTES = 1 << 20
"""Memory of a lane's environment beside the arrays of its model and simulation: mostly Python objects."""


class MujocoGym(Gym):
    """Environments whose `unwrapped` has a MuJoCo model and data: each lane has one."""

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        unwrapped: Any = self.template.unwrapped
        self._model: mujoco.MjModel = unwrapped.model
        self._sizes = _sizes(self._model)
        self._default_data: mujoco.MjData = unwrapped.data
        self._layout = _layout(self._default_data)
        self._default_addresses = field_addresses(self._default_data)
        """Those of lanes that have no environment yet."""
        self._scene = ModelScene(self._model, assets, eye=rendered_camera(_rendered(unwrapped)))
        self._has_callback = callable(getattr(unwrapped, "_render_callback", None))
        """True if environments place targets before a picture is made, as those of gymnasium-robotics do."""
        self._saved_data = mujoco.MjData(self._model) if self._has_callback else None
        self.rows_per_lane, self.static_rows = self._scene.rows_per_lane, self._scene.static_rows
        self.labels = self._scene.labels
        self.row_groups = self._scene.row_groups
        self.cameras = self._scene.cameras
        if self._scene.not_drawn:
            log.info("environment %s: not drawn: %s", self.env_id, ", ".join(self._scene.not_drawn))

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the state of a lane: its environment and observations, its model and data, and what is drawn of it.

        `model` and `data` are those that were looked at last, whatever they are, and `addresses` those of the arrays
        that are drawn. `appearance` is the key of the looks in the scene.
        """
        return {
            **super().state_fields(),
            "model": ("object", ()),
            "data": ("object", ()),
            "is_drawn": ("bool", ()),
            "addresses": ("int64", (len(FIELDS),)),
            "scales": ("float32", (self.rows_per_lane, 3)),
            "appearance": ("object", ()),
        }

    def memory_bytes(self, lanes: int) -> int:
        """Estimate the memory of a pool: each lane has a model and a simulation of its own."""
        arrays = int(self._model.nbuffer) + int(self._default_data.nbuffer)
        return super().memory_bytes(lanes) + (lanes + 1) * (arrays + _ENVIRONMENT_BYTES)

    def free(self, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Free the meshes of height fields of these lanes."""
        self._scene.free(scene, scene_lanes)

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return the current pose and projection of `eye` or one of the model's cameras."""
        self._find_data(state, lanes)
        return self._scene.place_camera(state.addresses[lanes], camera)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write the looks of lanes whose model has changed, then the poses of what moves."""
        self._find_data(state, lanes)
        if not self._has_callback:
            for k, lane in enumerate(lanes.tolist()):
                self._write_appearance(state, lane, scene, scene_lanes[k : k + 1])
            self._scene.write_poses(state.addresses[lanes], state.scales, lanes, scene, scene_lanes)
            return
        for k, lane in enumerate(lanes.tolist()):
            one, scene_lane = lanes[k : k + 1], scene_lanes[k : k + 1]
            with self._callback_called(state, lane):
                self._write_appearance(state, lane, scene, scene_lane)
                self._scene.write_poses(state.addresses[one], state.scales, one, scene, scene_lane)

    def _write_appearance(self, state: State, lane: int, scene: Scene, scene_lane: I32) -> None:
        """Write what does not move, if that has changed. A model with ids that it does not have is not drawn."""
        model = state.model[lane]
        key = appearance_key(model) if state.is_drawn[lane] else _NOT_DRAWN
        if state.appearance[lane] == key:
            return
        state.appearance[lane] = key
        if state.is_drawn[lane]:
            try:
                self._scene.write_static(state.scales, np.array([lane]), scene, scene_lane, model)
                return
            except Exception as error:
                self._failures.add(_WHEN_DRAWN, error)
        scene.instances.mesh[scene.rows(scene_lane)] = NO_MESH
        scene.lanes.sky_textures[scene_lane] = NO_TEXTURE
        scene.lanes.sky_horizon[scene_lane] = scene.lanes.sky_zenith[scene_lane] = 0.0

    def _find_data(self, state: State, lanes: I64) -> None:
        """Find the arrays of each lane's model and data, which an environment may replace.

        Lanes without an environment show the first state of another.
        """
        for lane in lanes.tolist():
            model, data = self._model_and_data(state, lane)
            if model is state.model[lane] and data is state.data[lane]:
                continue
            problem = self._why_not_drawn(model, data)
            if problem:
                self._failures.add(_WHEN_DRAWN, ValueError(problem))
            state.model[lane], state.data[lane], state.is_drawn[lane] = model, data, not problem
            state.addresses[lane] = self._default_addresses if problem else field_addresses(data)
            state.appearance[lane] = 0

    def _model_and_data(self, state: State, lane: int) -> tuple[Any, Any]:
        if state.environment[lane] == 0:
            return self._model, self._default_data
        try:
            unwrapped = state.environment[lane].env.unwrapped
            return unwrapped.model, unwrapped.data
        except BaseException as error:  # an attribute may be computed
            raise_interrupt(error)
            return None, None

    def _why_not_drawn(self, model: Any, data: Any) -> str:
        """Return why the tables of the first model do not fit this memory, or an empty text."""
        if not isinstance(model, mujoco.MjModel) or not isinstance(data, mujoco.MjData):
            return "it has no model or no data"
        if _sizes(model) != self._sizes:
            return "its model has another size than the first one"
        return "" if _layout(data) == self._layout else "its data is not that of a model of this size"

    @contextmanager
    def _callback_called(self, state: State, lane: int) -> Iterator[None]:
        """Have an environment place its targets as before a picture, and undo it: numbers do not depend on frames."""
        model, data = state.model[lane], state.data[lane]
        if data is self._default_data or not state.is_drawn[lane]:
            yield
            return
        mujoco.mj_copyData(self._saved_data, model, data)
        positions, rotations = model.site_pos.copy(), model.site_quat.copy()
        try:
            try:
                state.environment[lane].env.unwrapped._render_callback()
            except BaseException as error:
                raise_interrupt(error)
                self._failures.add("before a frame was drawn", error)
            yield
        finally:
            mujoco.mj_copyData(data, model, self._saved_data)
            model.site_pos[:], model.site_quat[:] = positions, rotations


def _rendered(environment: Any) -> Any:
    """Return the environment, or the one that it is built around, whose renderer is Gymnasium's."""
    owners = (environment, *vars(environment).values())
    return next((owner for owner in owners if hasattr(owner, "mujoco_renderer")), environment)


def _sizes(model: mujoco.MjModel) -> tuple[int, ...]:
    return tuple(getattr(model, name) for name in _SIZES)


def _layout(data: mujoco.MjData) -> tuple[object, ...]:
    """Return the shapes of the arrays that are read, and where the others lie beside them."""
    anchor = data.xpos.ctypes.data  # which is never empty: empty arrays lie anywhere
    paths = (data.ten_length, data.ten_wrapadr, data.ten_wrapnum, data.wrap_obj)
    return (
        int(data.nbuffer),
        *(getattr(data, name).shape for name in FIELDS),
        *(array.ctypes.data - anchor for array in paths if array.size),
    )
