"""Tasks of dm_control's suite, drawn by MuJoCo's renderer and by worldloom."""

import copy

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.mujoco_frames import Frame, MujocoFrames, WorldloomFrames, compare_frames, find_interior
from worldloom.kernels.tables import CASTS_NOTHING
from worldloom.render.renderer import Renderer
from worldloom.worlds.mujoco.dm_control.suite import Environment, suite
from worldloom.worlds.mujoco.models.contents import label_of

pytestmark = pytest.mark.gl

STATES = 20
FEWER = slice(None, None, 4)
"""The states that the second camera is compared in."""
SIZES = ((64, 64), (320, 240))
TASKS = {
    "cartpole": "swingup",
    "reacher": "easy",
    "cheetah": "run",
    "walker": "walk",
    "finger": "turn_easy",
    "ball_in_cup": "catch",
    "quadruped": "walk",
    "humanoid": "walk",
}
LABELS = {64: 0.985, 320: 0.997}
"""Share of pixels that must have the same label: outlines are up to a quarter of a pixel off, see docs/rendering.md,
and the quadruped's, seen from nearby, are long for a frame of 64 pixels."""
COLOR = 4.0
"""Mean difference allowed, of 255. Most of it is the stars of the suite's sky, single texels of 800 that are blurred in
worldloom's 256, and on the walker's floor light that MuJoCo computes at few vertices, worldloom at every pixel."""

SHADOWED, SHADOWED_SIZE = slice(5, None, 7), (160, 120)
"""The states and the size that are compared with shadows: MuJoCo takes long to draw them."""
SHADOWED_COLOR = dict.fromkeys(TASKS, 3.0) | {"walker": 7.0}
"""The same away from shadows; measured 2.2 at most, and 6.2 for the walker. Its floor, 496 m long, has so few vertices
in MuJoCo that it misses most of the spot above the walker: without shadows, both are too bright to show it, as all
lights together are clamped."""
FLOOR_COLOR = 3.0
"""Mean difference allowed on floors in the shadow; measured 1.5 at most."""
EDGE_PIXELS = 2
"""Pixels on both sides of a shadow's edge that are not compared: a texel of a light map, and MuJoCo's hard edge."""


def states_of(environment: Environment) -> list[mujoco.MjData]:
    """Return states of an episode with random actions."""
    rng = np.random.default_rng(1)
    spec = environment.action_spec()
    environment.reset()
    states = []
    for _ in range(STATES):
        for _ in range(12):
            environment.step(rng.uniform(spec.minimum, spec.maximum))
        states.append(copy.copy(environment.physics.data.ptr))
    return states


@pytest.mark.parametrize("domain", TASKS)
def test_frames_are_those_of_mujoco(domain: str, cpu: Renderer) -> None:
    environment = suite.load(domain, TASKS[domain], task_kwargs={"random": 1})
    model, every = environment.physics.model.ptr, states_of(environment)
    ours, theirs = WorldloomFrames(model, cpu, STATES), MujocoFrames(model, *SIZES[-1])
    for camera, states in enumerate((every, every[FEWER])):
        for width, height in SIZES:
            seen = ours.see(states, ours.model_scene.cameras[1 + camera].name, width, height)
            for state, frame in zip(states, seen, strict=True):
                difference = compare_frames(frame, theirs.see(state, camera, ours.model_scene, width, height))
                assert difference.labels >= LABELS[width]
                assert difference.color < COLOR
    theirs.close()


@pytest.mark.parametrize("domain", TASKS)
def test_shadows_are_those_of_mujoco(domain: str, cpu: Renderer) -> None:
    environment = suite.load(domain, TASKS[domain], task_kwargs={"random": 1})
    model, states = environment.physics.model.ptr, states_of(environment)[SHADOWED]
    width, height = SHADOWED_SIZE
    ours, theirs = WorldloomFrames(model, cpu, len(states)), MujocoFrames(model, width, height, shadows=True)
    camera = ours.model_scene.cameras[1].name
    seen = ours.see(states, camera, width, height, shadows=True)
    ours.scene.instances.shadow[:] = CASTS_NOTHING
    lit = ours.see(states, camera, width, height, shadows=True)
    floors = [number for number, name in enumerate(ours.model_scene.labels) if name in _planes(model)]
    on_floors = []
    for state, frame, bright in zip(states, seen, lit, strict=True):
        wanted = theirs.see(state, 0, ours.model_scene, width, height)
        in_shadow = (frame.rgb != bright.rgb).any(axis=-1)
        near_shadow, near_light = _widen(in_shadow), _widen(~in_shadow)
        interior = (frame.labels == wanted.labels) & find_interior(frame.labels) & find_interior(wanted.labels)
        assert _apart(frame, wanted)[interior & ~near_shadow].mean() < SHADOWED_COLOR[domain]
        on_floors.append(_apart(frame, wanted)[interior & ~near_light & np.isin(frame.labels, floors)])
    theirs.close()
    shadowed = np.concatenate(on_floors)
    assert shadowed.size == 0 or shadowed.mean() < FLOOR_COLOR


def _planes(model: mujoco.MjModel) -> set[str]:
    """Return the labels of planes."""
    planes = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE).tolist()
    return {label_of(model, "geom", geom) for geom in planes}


def _apart(ours: Frame, theirs: Frame) -> NDArray[np.float64]:
    return np.asarray(np.abs(ours.rgb.astype(np.int64) - theirs.rgb).mean(axis=-1))


def _widen(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the pixels within EDGE_PIXELS of those of a mask."""
    for _ in range(EDGE_PIXELS):
        mask = ~find_interior((~mask).astype(np.int64)) | mask
    return mask
