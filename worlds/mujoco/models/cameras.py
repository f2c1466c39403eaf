"""The cameras of a model: its own, `free`, the default camera of MuJoCo's viewer, and `eye`.

`eye` is the first of them, unless whoever uses the model defines it as another camera of MuJoCo's.
"""

import math
from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I64
from worldloom.render.arena import PROCESS_FLOAT64
from worldloom.worlds.family import Camera, CameraPlacement
from worldloom.worlds.mujoco.simulation.data import CAM_XMAT, CAM_XPOS
from worldloom.worlds.settings import SettingError

EYE, FREE = "eye", "free"


class _Projection(NamedTuple):
    half_height: float
    is_orthographic: bool


class Cameras:
    """Poses and projections of the cameras of a model; `eye` defines that camera: a fixed or a free one."""

    def __init__(self, model: mujoco.MjModel, eye: mujoco.MjvCamera | None = None) -> None:
        self._near = float(model.vis.map.znear * model.stat.extent)
        self._far = float(model.vis.map.zfar * model.stat.extent)
        smallest, largest = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
        if not smallest <= self._near < self._far <= largest:
            raise SettingError(
                f"the model's near and far planes are at {self._near:g} and {self._far:g} (znear and zfar times its "
                f"extent, {model.stat.extent:g}): expected 0 < near < far in 32 bits; a body may be too far away"
            )
        free_camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(model, free_camera)
        self._free_poses = {FREE: _free_pose(free_camera)}
        self._ids = {name: camera for camera, name in enumerate(_camera_names(model))}
        self._projections = [_projection(model, camera) for camera in range(model.ncam)]
        free = model.vis.global_
        self._free_projection = _Projection(_half_height(free.fovy, bool(free.orthographic)), bool(free.orthographic))
        specs = [Camera(name, _describe(model, camera)) for name, camera in self._ids.items()]
        if FREE not in self._ids:
            specs.append(Camera(FREE, "The whole model, from the default camera of MuJoCo's viewer."))
        if eye is not None:
            specs = [camera for camera in specs if camera.name != EYE]
            specs.append(Camera(EYE, self._define_eye(model, eye)))
        elif EYE not in self._ids:
            first = specs[0]
            specs.append(Camera(EYE, f"The same as {first.name}."))
            self._ids[EYE] = self._ids.get(first.name, -1)
        self.specs = tuple(sorted(specs, key=lambda camera: camera.name != EYE))

    def _define_eye(self, model: mujoco.MjModel, eye: mujoco.MjvCamera) -> str:
        """Define the camera `eye`, and return its description."""
        if eye.type == mujoco.mjtCamera.mjCAMERA_FIXED:
            self._ids[EYE] = eye.fixedcamid
            return f"The same as {_camera_names(model)[eye.fixedcamid]}."
        self._ids.pop(EYE, None)
        self._free_poses[EYE] = _free_pose(eye)
        return "The scene as its environment shows it, from a camera that does not move."

    def place(self, addresses: I64, name: str) -> CameraPlacement:
        """Return the pose and projection of a camera in the lanes with these addresses [n, fields]."""
        camera = self._ids.get(name, -1)
        pose = self._free_poses.get(name, self._free_poses[FREE])
        if camera >= 0:
            pose = np.empty((len(addresses), 3, 4), np.float32)
            write_camera_poses(PROCESS_FLOAT64, addresses, CAM_XPOS, CAM_XMAT, camera, pose)
        return self._place(camera, pose)

    def place_posed(self, poses: F32, lanes: I64, name: str) -> CameraPlacement:
        """Return the same for lanes whose cameras have these poses [lane, camera, 3, 4]."""
        camera = self._ids.get(name, -1)
        pose = poses[lanes, camera] if camera >= 0 else self._free_poses.get(name, self._free_poses[FREE])
        return self._place(camera, pose)

    def _place(self, camera: int, pose: F32) -> CameraPlacement:
        if camera < 0:
            half_height, is_orthographic = self._free_projection
            return CameraPlacement(pose, half_height, is_orthographic, self._near, self._far)
        half_height, is_orthographic = self._projections[camera]
        return CameraPlacement(pose, half_height, is_orthographic, self._near, self._far)


def has_unusual_intrinsics(model: mujoco.MjModel) -> bool:
    """Return whether a camera has a principal point off its centre, or pixels that are not square."""
    has_intrinsics = model.cam_sensorsize[:, 1] > 0
    focal, centre = model.cam_intrinsic[:, :2], model.cam_intrinsic[:, 2:]
    return bool((has_intrinsics & ((centre != 0).any(axis=1) | (focal[:, 0] != focal[:, 1]))).any())


def _camera_names(model: mujoco.MjModel) -> list[str]:
    return [model.cam(camera).name or f"camera{camera}" for camera in range(model.ncam)]


def _describe(model: mujoco.MjModel, camera: int) -> str:
    body = int(model.cam_bodyid[camera])
    where = f"on body {model.body(body).name or body}" if body else "in the world"
    mode = mujoco.mjtCamLight(int(model.cam_mode[camera])).name.removeprefix("mjCAMLIGHT_").lower()
    return f"A camera {where} ({mode})."


def _projection(model: mujoco.MjModel, camera: int) -> _Projection:
    is_orthographic = bool(model.cam_projection[camera] == mujoco.mjtProjection.mjPROJ_ORTHOGRAPHIC)
    sensor_height = float(model.cam_sensorsize[camera, 1])
    if sensor_height > 0 and not is_orthographic:
        return _Projection(sensor_height / 2 / float(model.cam_intrinsic[camera, 1]), False)
    return _Projection(_half_height(float(model.cam_fovy[camera]), is_orthographic), is_orthographic)


def _half_height(fovy: float, is_orthographic: bool) -> float:
    return fovy / 2 if is_orthographic else math.tan(math.radians(fovy) / 2)


def _free_pose(camera: mujoco.MjvCamera) -> F32:
    """Return the pose [3, 4] of a free camera."""
    azimuth, elevation = math.radians(camera.azimuth), math.radians(camera.elevation)
    cos, sin = math.cos(elevation), math.sin(elevation)
    forward = np.array([cos * math.cos(azimuth), cos * math.sin(azimuth), sin])
    up = np.array([-sin * math.cos(azimuth), -sin * math.sin(azimuth), cos])
    right = np.cross(forward, up)
    position = np.asarray(camera.lookat) - camera.distance * forward
    return np.stack([right, up, -forward, position], axis=1).astype(np.float32)


@kernel_holding_gil
def write_camera_poses(
    numbers: F64, addresses: I64, position_field: int, rotation_field: int, camera: int, pose: F32
) -> None:
    """Write the poses [n, 3, 4] of one of the model's cameras.

    Where a diverged simulation has left a pose that is not finite, the camera is put at the origin: the renderer
    rejects such a camera, and the frames of all other lanes with it.
    """
    for k in range(addresses.shape[0]):
        position = addresses[k, position_field] + 3 * camera
        rotation = addresses[k, rotation_field] + 9 * camera
        is_finite = True
        for i in range(3):
            for j in range(3):
                pose[k, i, j] = numbers[rotation + 3 * i + j]
                is_finite &= np.isfinite(pose[k, i, j])
            pose[k, i, 3] = numbers[position + i]
            is_finite &= np.isfinite(pose[k, i, 3])
        if not is_finite:
            for i in range(3):
                for j in range(4):
                    pose[k, i, j] = 1.0 if i == j else 0.0
