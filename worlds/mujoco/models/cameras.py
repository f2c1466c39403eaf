"""The cameras of a model: its own, and the one that MuJoCo looks through when nobody says which."""

import math
from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.tables import F32, I64
from worldloom.render.arena import PROCESS_FLOAT64
from worldloom.worlds.family import Camera, CameraPlacement
from worldloom.worlds.mujoco.models.kernels import look_through
from worldloom.worlds.mujoco.simulation.data import CAM_XMAT, CAM_XPOS

EYE, FREE = "eye", "free"


class _Lens(NamedTuple):
    half_height: float
    orthographic: bool


class Cameras:
    """Where the cameras of some lanes stand."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self._near = float(model.vis.map.znear * model.stat.extent)
        self._far = float(model.vis.map.zfar * model.stat.extent)
        self._free_pose = _free_pose(model)
        self._numbers = {name: camera for camera, name in enumerate(_names(model))}
        self._lenses = [_lens(model, camera) for camera in range(model.ncam)]
        free = model.vis.global_
        self._free_lens = _Lens(_half_height(free.fovy, bool(free.orthographic)), bool(free.orthographic))
        described = [Camera(name, _text(model, camera)) for name, camera in self._numbers.items()]
        if FREE not in self._numbers:
            described.append(Camera(FREE, "Sees the whole model, from where MuJoCo's viewer begins."))
        if EYE not in self._numbers:
            first = described[0]
            described.append(Camera(EYE, f"The same as {first.name}."))
            self._numbers[EYE] = self._numbers.get(first.name, -1)
        self.described = tuple(sorted(described, key=lambda camera: camera.name != EYE))

    def look(self, places: I64, name: str) -> CameraPlacement:
        """Where a camera stands in each lane of these simulations."""
        camera = self._numbers.get(name, -1)
        if camera < 0:
            half_height, orthographic = self._free_lens
            return CameraPlacement(self._free_pose, half_height, orthographic, self._near, self._far)
        pose = np.empty((len(places), 3, 4), np.float32)
        look_through(PROCESS_FLOAT64, places, CAM_XPOS, CAM_XMAT, camera, pose)
        half_height, orthographic = self._lenses[camera]
        return CameraPlacement(pose, half_height, orthographic, self._near, self._far)


def off_centre(model: mujoco.MjModel) -> bool:
    """Whether a camera has a lens of its own that is not in the middle, or whose pixels are not square."""
    own = model.cam_sensorsize[:, 1] > 0
    focal, middle = model.cam_intrinsic[:, :2], model.cam_intrinsic[:, 2:]
    return bool((own & ((middle != 0).any(axis=1) | (focal[:, 0] != focal[:, 1]))).any())


def _names(model: mujoco.MjModel) -> list[str]:
    return [model.cam(camera).name or f"camera{camera}" for camera in range(model.ncam)]


def _text(model: mujoco.MjModel, camera: int) -> str:
    body = int(model.cam_bodyid[camera])
    where = f"on body {model.body(body).name or body}" if body else "in the world"
    mode = mujoco.mjtCamLight(int(model.cam_mode[camera])).name.removeprefix("mjCAMLIGHT_").lower()
    return f"A camera {where} ({mode})."


def _lens(model: mujoco.MjModel, camera: int) -> _Lens:
    orthographic = bool(model.cam_projection[camera] == mujoco.mjtProjection.mjPROJ_ORTHOGRAPHIC)
    sensor_height = float(model.cam_sensorsize[camera, 1])
    if sensor_height > 0 and not orthographic:
        return _Lens(sensor_height / 2 / float(model.cam_intrinsic[camera, 1]), False)
    return _Lens(_half_height(float(model.cam_fovy[camera]), orthographic), orthographic)


def _half_height(fovy: float, orthographic: bool) -> float:
    return fovy / 2 if orthographic else math.tan(math.radians(fovy) / 2)


def _free_pose(model: mujoco.MjModel) -> F32:
    """One and a half times the model's extent away from its middle."""
    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    around, up = math.radians(camera.azimuth), math.radians(camera.elevation)
    forward = np.array([math.cos(up) * math.cos(around), math.cos(up) * math.sin(around), math.sin(up)])
    upward = np.array([-math.sin(up) * math.cos(around), -math.sin(up) * math.sin(around), math.cos(up)])
    right = np.cross(forward, upward)
    at = np.asarray(camera.lookat) - camera.distance * forward
    return np.stack([right, upward, -forward, at], axis=1).astype(np.float32)
