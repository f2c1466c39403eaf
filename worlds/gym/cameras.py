"""The camera through which `render()` of a MuJoCo environment of Gymnasium shows it."""

from typing import Any

import mujoco
import numpy as np


def rendered_camera(environment: Any) -> mujoco.MjvCamera | None:
    """Return the camera of `render()`, or None if the environment has no renderer of Gymnasium's.

    It is the camera of the model that the environment names, or else a free camera, as configured by
    `default_camera_config`. What that leaves open, Gymnasium takes from the moment when the environment is rendered for
    the first time: it looks at the median of the positions of all geoms. Here that is the initial state of the model,
    without noise and after `mj_forward`, so that frames depend on the state of a lane and on nothing else.
    """
    renderer = getattr(environment, "mujoco_renderer", None)
    if renderer is None:
        return None
    model = environment.model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    camera = mujoco.MjvCamera()
    camera.lookat[:] = np.median(data.geom_xpos, axis=0)
    camera.distance = model.stat.extent
    for name, value in (renderer.default_cam_config or {}).items():
        if isinstance(value, np.ndarray):
            getattr(camera, name)[:] = value
        else:
            setattr(camera, name, value)
    is_fixed = renderer.camera_id >= 0
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED if is_fixed else mujoco.mjtCamera.mjCAMERA_FREE
    camera.fixedcamid = renderer.camera_id
    return camera
