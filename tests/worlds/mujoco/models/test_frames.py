"""Tasks of dm_control's suite, drawn by MuJoCo's renderer and by worldloom."""

import copy

import mujoco
import numpy as np
import pytest

from tests.support.mujoco_frames import MujocoFrames, WorldloomFrames, compare_frames
from worldloom.render.renderer import Renderer
from worldloom.worlds.mujoco.dm_control.suite import Environment, suite

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
