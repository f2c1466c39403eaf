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
        self.ids = {name: camera for camera, name in enumerate(_camera_names(model))}
        """Numbers of the model's cameras by name; those of `eye` may be another's, or -1 for `free`."""
        self._projections = [_projection(model, camera) for camera in range(model.ncam)]
        free = model.vis.global_
        self._free_projection = _Projection(_half_height(free.fovy, bool(free.orthographic)), bool(free.orthographic))
        focuses_m = _focuses_m(model)
        specs = [Camera(name, _describe(model, camera), focus_m=focuses_m[camera]) for name, camera in self.ids.items()]
        if FREE not in self.ids:
            text = "The whole model, from the default camera of MuJoCo's viewer."
            specs.append(Camera(FREE, text, focus_m=float(free_camera.distance)))
        if eye is not None:
            specs = [camera for camera in specs if camera.name != EYE]
            text = self._define_eye(model, eye)
            focus_m = focuses_m[self.ids[EYE]] if EYE in self.ids else float(eye.distance)
            specs.append(Camera(EYE, text, focus_m=focus_m))
        elif EYE not in self.ids:
            first = specs[0]
            specs.append(Camera(EYE, f"The same as {first.name}.", focus_m=first.focus_m))
            self.ids[EYE] = self.ids.get(first.name, -1)
        self.specs = tuple(sorted(specs, key=lambda camera: camera.name != EYE))

    def _define_eye(self, model: mujoco.MjModel, eye: mujoco.MjvCamera) -> str:
        """Define the camera `eye`, and return its description."""
        if eye.type == mujoco.mjtCamera.mjCAMERA_FIXED:
            self.ids[EYE] = eye.fixedcamid
            return f"The same as {_camera_names(model)[eye.fixedcamid]}."
        self.ids.pop(EYE, None)
        self._free_poses[EYE] = _free_pose(eye)
        return "The scene as its environment shows it, from a camera that does not move."

    def place(self, addresses: I64, name: str) -> CameraPlacement:
        """Return the pose and projection of a camera in the lanes with these addresses [n, fields]."""
        camera = self.ids.get(name, -1)
        pose = self._free_poses.get(name, self._free_poses[FREE])
        if camera >= 0:
            pose = np.empty((len(addresses), 3, 4), np.float32)
            write_camera_poses(PROCESS_FLOAT64, addresses, CAM_XPOS, CAM_XMAT, camera, pose)
        return self._place(camera, pose)

    def place_posed(self, poses: F32, lanes: I64, name: str) -> CameraPlacement:
        """Return the same for lanes whose cameras have these poses [lane, camera, 3, 4]."""
        camera = self.ids.get(name, -1)
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


def _focuses_m(model: mujoco.MjModel) -> list[float]:
    """Return for each camera how far ahead the point is that it goes around where it is varied.

    That is as far away as what it shows is in the model's default pose: the centre of mass of the first body. Cameras
    that are fixed to a body see what that body sees, and turn in place.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)
    shown = data.subtree_com[min(1, model.nbody - 1)]
    is_mounted = (model.cam_bodyid != 0) & (model.cam_mode == mujoco.mjtCamLight.mjCAMLIGHT_FIXED)
    distances = np.linalg.norm(data.cam_xpos - shown, axis=1)
    return [float(distance) for distance in np.where(is_mounted | ~np.isfinite(distances), 0.0, distances)]


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
