"""Distracted lanes: a published distraction in the lanes of a pool, drawn for each and applied to what it shows."""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F32, F64, I32, I64, ONE_SKY, SCREEN_SKY, TINTED_SKY
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import CameraPlacement, Family, State, resized
from worldloom.worlds.random import integers
from worldloom.worlds.randomisation.camera_walks import PLACE, find_law, move_cameras, walk_camera
from worldloom.worlds.randomisation.distraction_draws import (
    draw_films,
    draw_looping_films,
    draw_normal_colors,
    find_seeds,
    walk_colors,
    write_colors,
    write_floors,
    write_skies,
)
from worldloom.worlds.randomisation.distractions import Distraction
from worldloom.worlds.randomisation.pictures import find_films
from worldloom.worlds.randomisation.presets import BACKGROUND as BACKGROUND_AXIS
from worldloom.worlds.randomisation.presets import CAMERA as CAMERA_AXIS
from worldloom.worlds.randomisation.presets import COLORS as COLORS_AXIS
from worldloom.worlds.randomisation.presets import Backdrop, ColorRange
from worldloom.worlds.randomisation.settings import BUILT_IN
from worldloom.worlds.randomisation.specs import moved_cameras

log = logging.getLogger("worldloom.worlds")

CAMERA, COLORS, BACKGROUND, FLOORS = range(4)
"""Numbers of the axes, which their random numbers depend on."""


@dataclass
class DrawnLanes:
    """Lanes that are drawn, and what their distractions depend on."""

    lanes: I64
    steps: I64
    """Step in the episode, for each lane of the pool."""
    drawn_seed: NDArray[np.uint64]
    number: I64
    """Seed and number of the variation, for each lane of the pool."""

    def seeds(self, axis: int) -> NDArray[np.uint64]:
        """Return the seeds of an axis, [n]."""
        found = np.empty(len(self.lanes), np.uint64)
        find_seeds(self.lanes, self.drawn_seed, self.number, axis, found)
        return found


class DistractedLanes:
    """The distraction of the lanes of one pool."""

    def __init__(self, family: Family, distraction: Distraction, background_set: str) -> None:
        self._family, self._distraction = family, distraction
        preset = distraction.preset
        cameras = {name: distraction.cameras[name] for name in moved_cameras(family, distraction)}
        self._laws = {name: find_law(camera, preset.camera) for name, camera in cameras.items() if preset.camera}
        most = 0.0 if preset.colors is None else preset.colors.most
        self._low: F64 = np.maximum(distraction.material_colors - most, 0.0)
        self._high: F64 = np.minimum(distraction.material_colors + most, 1.0)
        if preset.background is not None and background_set == BUILT_IN:
            log.info(
                "%s: its videos are made by code, not those of the benchmark: name a directory of pictures in "
                "'background_set' to have others",
                preset.name,
            )
        self._films: I32 = _find_films(family.assets, distraction, background_set)
        materials = 0 if preset.colors is None else len(self._low)
        # Columns with a row for each lane.
        self._actions: I64 = np.zeros(0, np.int64)
        self._color_steps: I64 = np.zeros(0, np.int64)
        self._colors: F64 = np.zeros((0, materials, 3))
        self._camera_steps = {name: np.zeros(0, np.int64) for name in self._laws}
        self._places = {name: np.zeros((0, 2 * PLACE)) for name in self._laws}

    def arrays(self) -> list[np.ndarray]:
        """Return the arrays that a step may change, with a row for each lane."""
        walks = (*self._camera_steps.values(), *self._places.values())
        return [self._actions, self._color_steps, self._colors, *walks]

    def resize(self, capacity: int) -> None:
        """Replace the arrays by larger or smaller ones; rows that remain keep their values."""
        for name in ("_actions", "_color_steps", "_colors"):
            setattr(self, name, resized(getattr(self, name), capacity))
        for arrays in (self._camera_steps, self._places):
            for name, array in arrays.items():
                arrays[name] = resized(array, capacity)

    def begin(self, lanes: I64) -> None:
        """Forget what was drawn in the episodes before."""
        for steps in (self._color_steps, *self._camera_steps.values()):
            steps[lanes] = -1
        self._actions[lanes] = 0

    def count_actions(self, lanes: I64) -> None:
        """Count an action in each lane, however often it was applied."""
        self._actions[lanes] += 1

    def write(self, drawn: DrawnLanes, scene: Scene, scene_lanes: I32) -> None:
        """Write what is drawn for lanes into the scene."""
        preset, lanes = self._distraction.preset, drawn.lanes
        if preset.colors is not None:
            if preset.colors.normal:
                self._write_normal_colors(drawn, scene, scene_lanes)
            else:
                self.draw_colors(drawn)
            write_colors(
                lanes, self._distraction.row_materials, self._colors, scene_lanes, scene.lanes, scene.instances
            )
        if preset.background is not None:
            skies = self.draw_skies(drawn)
            floor, alpha = self._distraction.floor, self._distraction.floor_alpha
            write_skies(skies, floor, alpha, scene_lanes, scene.lanes, scene.instances)

    def _write_normal_colors(self, drawn: DrawnLanes, scene: Scene, scene_lanes: I32) -> None:
        """Write floors and skies, and keep the colours of materials to be written."""
        distraction = self._distraction
        self._colors[drawn.lanes], tints = self.draw_normal_colors(drawn)
        if len(distraction.floors):
            floors = distraction.floors[self._draw_floors(drawn)]
            write_floors(floors, distraction.floor, scene_lanes, scene.lanes, scene.instances)
        if distraction.has_sky:
            scene.lanes.sky_textures[scene_lanes] = TINTED_SKY + distraction.sky
            scene.lanes.sky_zenith[scene_lanes] = tints

    def draw_normal_colors(self, drawn: DrawnLanes) -> tuple[F64, F64]:
        """Return the colours of materials [n, materials, 3] and the tint of the sky [n, 3]."""
        assert self._distraction.preset.colors is not None
        means = np.concatenate([self._distraction.material_colors, [self._distraction.sky_color]])
        colors = np.empty((len(drawn.lanes), *means.shape))
        draw_normal_colors(drawn.seeds(COLORS), means, self._distraction.preset.colors.normal, colors)
        return colors[:, :-1], colors[:, -1]

    def _draw_floors(self, drawn: DrawnLanes) -> I64:
        return np.asarray(integers(drawn.seeds(FLOORS), 0, len(self._distraction.floors)))

    def draw_colors(self, drawn: DrawnLanes) -> F64:
        """Return the colours of materials, [n, materials, 3]."""
        assert self._distraction.preset.colors is not None
        deviation = self._distraction.preset.colors.deviation
        seeds, known = drawn.seeds(COLORS), self._colors
        walk_colors(drawn.lanes, drawn.steps, seeds, self._low, self._high, deviation, self._color_steps, known)
        return np.asarray(known[drawn.lanes])

    def draw_skies(self, drawn: DrawnLanes) -> I32:
        """Return the `sky_textures` of lanes, [n]."""
        background = self._distraction.preset.background
        assert background is not None
        film, frame = self._draw_frames(drawn, background).T
        textures = self._films[film, 0] + frame.astype(np.int32)
        return np.asarray((SCREEN_SKY if background.fills_screen else ONE_SKY) - textures)

    def _draw_frames(self, drawn: DrawnLanes, background: Backdrop) -> I64:
        """Return the numbers of the videos that are shown and of their frames, [n, 2]."""
        lanes, frames = drawn.lanes, np.empty((len(drawn.lanes), 2), np.int64)
        if background.fills_screen:
            moves = self._actions[lanes]
            draw_looping_films(lanes, drawn.drawn_seed, drawn.number, moves, self._films, frames)
        else:
            moves = drawn.steps[lanes] if background.plays else np.zeros(len(lanes), np.int64)
            draw_films(drawn.seeds(BACKGROUND), moves, self._films, frames)
        return frames

    def observe(self, drawn: DrawnLanes, axis: str) -> F64:
        """Return what an axis of the preset shows in lanes as numbers, [n, m]: those that `specs.py` describes."""
        preset, count = self._distraction.preset, len(drawn.lanes)
        if axis == CAMERA_AXIS and self._laws:
            return np.concatenate([self._observe_places(drawn, camera) for camera in self._laws], axis=1)
        if axis == COLORS_AXIS and preset.colors is not None:
            return self._observe_colors(drawn, preset.colors).reshape(count, -1)
        if axis == BACKGROUND_AXIS and preset.background is not None:
            return self._draw_frames(drawn, preset.background).astype(np.float64)
        return np.empty((count, 0))

    def _observe_places(self, drawn: DrawnLanes, camera: str) -> F64:
        """Return bearing, angle from the zenith, roll and distance [n, 4] as parts of their ranges."""
        law = self._laws[camera]
        size = law.high - law.low
        parts = (self.draw_places(drawn, camera)[:, :PLACE] - law.low) / np.where(size > 0, size, 1.0)
        return np.asarray(parts[:, [1, 2, 3, 0]])

    def _observe_colors(self, drawn: DrawnLanes, colors: ColorRange) -> F64:
        """Return colours [n, m, 3]: of materials, or of body, sky and floor, those of them that there are."""
        if not colors.normal:
            return self.draw_colors(drawn)
        bodies, tints = self.draw_normal_colors(drawn)
        parts = [bodies]
        if self._distraction.has_sky:
            parts.append(tints[:, None])
        if len(self._distraction.floors):
            parts.append(self._distraction.floor_colors[self._draw_floors(drawn)][:, None])
        return np.concatenate(parts, axis=1)

    def draw_places(self, drawn: DrawnLanes, camera: str) -> F64:
        """Return the places of a camera, and the way that it made in the last step, [n, 8]."""
        steps, places = self._camera_steps[camera], self._places[camera]
        walk_camera(drawn.lanes, drawn.steps, drawn.seeds(CAMERA), self._laws[camera], steps, places)
        return places[drawn.lanes]

    def move_camera(self, drawn: DrawnLanes, state: State, camera: str, placement: CameraPlacement) -> CameraPlacement:
        """Return where a camera is that the family has placed."""
        if camera not in self._laws:
            return placement
        poses: F32 = np.empty((len(drawn.lanes), 3, 4), np.float32)
        poses[...] = placement.pose
        focus_m = self._family.focus_distances_m(state, drawn.lanes, camera)
        move_cameras(self._laws[camera], self.draw_places(drawn, camera), focus_m, poses, np.empty((7, 3)))
        return placement._replace(pose=poses)


def load_films(assets: AssetLibrary, distraction: Distraction, background_set: str) -> None:
    """Add the pictures that a distraction needs, so that nothing has to be read later."""
    with assets.loading():
        _find_films(assets, distraction, background_set)


def _find_films(assets: AssetLibrary, distraction: Distraction, background_set: str) -> I32:
    background = distraction.preset.background
    found = [] if background is None else find_films(assets, background_set, background.videos)
    return np.array(found, np.int32).reshape(-1, 2)
