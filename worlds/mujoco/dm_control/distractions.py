"""Published distractions of the suite: the materials, floors and cameras of a task that they vary."""

from collections.abc import Mapping

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, I32, NO_TEXTURE, U8
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.mujoco.models.appearance import DEFAULT_RGBA, alpha_of_layer
from worldloom.worlds.mujoco.models.scene import ModelScene
from worldloom.worlds.mujoco.models.textures import acquire_sky, acquire_texture, read_cube_faces, read_texture
from worldloom.worlds.random import mix, normal
from worldloom.worlds.randomisation.distractions import NO_MATERIAL, Distraction, OrbitingCamera
from worldloom.worlds.randomisation.presets import ALL, DISTRACTION, DISTRACTION_AXES, PRESETS, Preset
from worldloom.worlds.settings import SettingError

_FLOOR = "grid"
"""Material of the floor in all models of the suite."""
_SELF = "self"
"""Material of what moves."""
_SELF_COLOR, _SKY_COLOR, _FLOOR_COLOR = (0.7, 0.5, 0.3), (0.4, 0.6, 0.8), (0.1, 0.2, 0.3)
"""Colours that those of DMControl-GB are drawn around: of the body, the top of the sky, the floor's darker squares."""
_FLOOR_CONTRAST = 0.1
"""Colour of the lighter squares less that of the darker ones."""
FLOORS = 100
"""Floors to choose from, as in DMControl-GB. Each is a texture of 1.2 MB."""
_FLOOR_SEED = 0x666C6F6F72
_FLOOR_ALPHA = {"reacher": 0.0, "cartpole": 0.3, "finger": 0.3, "ball_in_cup": 0.3}
"""Published opacity of the floor before a video sky; 1 in walker and cheetah, and where nothing is published."""
_TRACKING = (int(mujoco.mjtCamLight.mjCAMLIGHT_TRACK), int(mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM))


def choose_preset(name: str, axis: str) -> Preset | None:
    """Return the axes of a preset that the settings name; None if they name none."""
    preset = PRESETS.get(name)
    if preset is None:
        if axis != ALL:
            raise SettingError(
                f"setting {DISTRACTION_AXES!r} is {axis!r} without a {DISTRACTION!r}: expected one of "
                f"{', '.join(PRESETS)} in that, or none here"
            )
        return None
    if axis not in (ALL, *preset.axes):
        raise SettingError(
            f"setting {DISTRACTION_AXES!r} is {axis!r}: expected one of {', '.join((ALL, *preset.axes))}, for "
            f"{preset.name!r} varies nothing else"
        )
    return preset.only(axis)


def describe_distraction(
    model: mujoco.MjModel, scene: ModelScene, assets: AssetLibrary, preset: Preset, domain: str
) -> Distraction:
    """Return what a preset varies in a task."""
    names = [model.mat(material).name for material in range(model.nmat)]
    materials: I32 = np.full(scene.rows_per_lane, NO_MATERIAL, np.int32)
    floor: U8 = np.zeros(scene.rows_per_lane, np.uint8)
    for rows, material, rgba in scene.list_surfaces(model):
        if material >= 0:
            floor[rows] = names[material] == _FLOOR
            if tuple(rgba.tolist()) == DEFAULT_RGBA:
                materials[rows] = material
    if preset.colors is not None and preset.colors.normal:
        is_self = materials == (names.index(_SELF) if _SELF in names else len(names))
        floors = _acquire_floors(model, assets, preset.colors.normal)
        return Distraction(
            preset=preset,
            row_materials=np.where(is_self, np.int32(0), np.int32(NO_MATERIAL)),
            material_colors=np.array([_SELF_COLOR]),
            floor=floor,
            floors=floors,
            floor_colors=draw_floor_colors(preset.colors.normal, len(floors)),
            sky=_acquire_sky(model, assets),
            sky_color=_SKY_COLOR,
        )
    floor_alpha = alpha_of_layer(_FLOOR_ALPHA.get(domain, 1.0))
    if preset.background is not None and preset.background.fills_screen:
        floor_alpha = 0.0 if preset.background.hides_floor else 1.0
    return Distraction(
        preset=preset,
        row_materials=materials,
        material_colors=np.asarray(model.mat_rgba[:, :3], np.float64),
        floor=floor,
        floor_alpha=floor_alpha,
        cameras=_find_cameras(model, scene),
    )


def draw_floor_colors(deviation: float, count: int) -> F64:
    """Return the darker colours [count, 3] of floors, by the law that fits those of DMControl-GB."""
    seeds = mix(np.full(count, _FLOOR_SEED, np.uint64), np.arange(count, dtype=np.uint64))
    numbers = normal(seeds[:, None], np.arange(3, dtype=np.uint64))
    return np.asarray(np.clip(np.array(_FLOOR_COLOR) + deviation * numbers, 0.0, 1.0))


def _acquire_floors(model: mujoco.MjModel, assets: AssetLibrary, deviation: float) -> I32:
    """Return textures of the floor in other colours; its edge stays. None if the model's floor is no checker."""
    known = [k for k in range(model.nmat) if model.mat(k).name == _FLOOR]
    texture = int(model.mat_texid[known[0], mujoco.mjtTextureRole.mjTEXROLE_RGB]) if known else -1
    pixels = read_texture(model, texture) if texture >= 0 else None
    if pixels is None or len(np.unique(pixels.reshape(-1, 3), axis=0)) != 2:
        return np.zeros(0, np.int32)
    inside = np.zeros(pixels.shape[:2], bool)
    inside[1:-1, 1:-1] = True
    is_dark = (pixels == pixels.reshape(-1, 3).min(axis=0)).all(axis=2)
    found = []
    for dark in draw_floor_colors(deviation, FLOORS):
        floor = pixels.copy()
        floor[inside & is_dark] = (255 * dark).astype(np.uint8)
        floor[inside & ~is_dark] = (255 * np.minimum(dark + _FLOOR_CONTRAST, 1.0)).astype(np.uint8)
        found.append(acquire_texture(assets, floor, repeats=True))
    return np.array(found, np.int32)


def _acquire_sky(model: mujoco.MjModel, assets: AssetLibrary) -> int:
    """Return the sky of the model without its colour, to be tinted: white above, black below."""
    for texture in np.flatnonzero(model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX):
        faces = read_cube_faces(model, int(texture))
        if faces is not None:
            white = [np.minimum(np.rint(face / np.array(_SKY_COLOR)), 255).astype(np.uint8) for face in faces]
            return acquire_sky(assets, white)
    return NO_TEXTURE


def _find_cameras(model: mujoco.MjModel, scene: ModelScene) -> dict[str, OrbitingCamera]:
    """Return the cameras that stand in the world or follow a body; those that a body carries see what it sees."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)
    found = {}
    for name, camera in scene.camera_ids.items():
        if camera < 0:
            continue  # none of the model's
        mode, body = int(model.cam_mode[camera]), int(model.cam_bodyid[camera])
        if not (mode in _TRACKING or _is_fixed(model, camera)):
            continue
        if mode == mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM:
            offset = data.cam_xpos[camera] - data.subtree_com[body]
        else:
            offset = data.cam_xpos[camera] - (data.xpos[body] if mode in _TRACKING else 0.0)
        axes = data.cam_xmat[camera].reshape(3, 3)
        found[name] = OrbitingCamera(tuple(offset.tolist()), tuple(tuple(row) for row in axes.tolist()))
    return found


def _is_fixed(model: mujoco.MjModel, camera: int) -> bool:
    """Return whether a camera stands in the world."""
    is_carried = model.cam_mode[camera] == mujoco.mjtCamLight.mjCAMLIGHT_FIXED
    return bool(is_carried and model.body_weldid[model.cam_bodyid[camera]] == 0)


def focus_distances_m(
    model: mujoco.MjModel, scene: ModelScene, cameras: Mapping[str, OrbitingCamera], camera: str, first_com: F64
) -> F64:
    """Return how far ahead the point is that a camera looks at, [n]: as far away as what the task is about.

    That is the centre of mass [n, 3] of the first body and all it carries, when the episode began, or as the camera
    follows it.
    """
    number = scene.camera_ids[camera]
    if _is_fixed(model, number):
        return np.asarray(np.linalg.norm(np.array(cameras[camera].offset) - first_com, axis=1))
    return np.full(len(first_com), np.linalg.norm(model.cam_poscom0[number]))
