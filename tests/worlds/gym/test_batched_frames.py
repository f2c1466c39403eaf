"""Gymnasium's MuJoCo tasks, drawn by worldloom and by Gymnasium's own renderer."""

import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from tests.support.mujoco_frames import TIMEOUT_S, Frame, compare_frames, labels_by_id
from worldloom.kernels.outputs import RGB, SEGMENTATION
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.gym.batched import BatchedGym
from worldloom.worlds.gym.family import Gym
from worldloom.worlds.lanes import RUNNING
from worldloom.worlds.pool import Pool

pytestmark = pytest.mark.gl

SIZE = 64
FRAMES = 12
LABELS = 0.985
"""Share of pixels that must have the same label, as in tests/worlds/mujoco/models/test_frames.py."""
COLOR = 4.0
"""Mean difference allowed, of 255, as there, with textures of one colour."""
PATTERN_COLOR = 10.0
"""The same with the textures of the models. Their sizes are no powers of two, and Mesa reduces such textures so that
the white mark of a body grows with distance: with 128 texels instead of 127, colours of bodies agree. On the floor that
is half of the difference; the other half is how the two filter tiles that are far away.
"""


def make_rendering(env_id: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bounds that are rounded
        return gymnasium.make(env_id, render_mode="rgb_array", width=SIZE, height=SIZE)


class GymnasiumFrames:
    """An environment that draws on a thread of its own, without shadows, reflections and multisampling."""

    def __init__(self, env_id: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self.environment = make_rendering(env_id)
        self._unwrapped = self.environment.unwrapped
        model = self._unwrapped.model
        model.vis.quality.offsamples = 0
        # Gymnasium's camera looks at the middle of what there is when the first frame is drawn: here the initial state.
        mujoco.mj_forward(model, self._unwrapped.data)
        self._thread.submit(self._draw, False).result(TIMEOUT_S)
        self._viewer = self._unwrapped.mujoco_renderer.viewer
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._viewer.scn.flags[flag] = 0

    def see(self, labels: tuple[str, ...]) -> Frame:
        """Draw the current state, with worldloom's labels."""
        rgb = self._thread.submit(self._draw, False).result(TIMEOUT_S)
        encoded = self._thread.submit(self._draw, True).result(TIMEOUT_S).astype(np.int64) @ (1, 1 << 8, 1 << 16)
        return Frame(rgb, labels_by_id(self._unwrapped.model, self._viewer.scn, labels)[encoded])

    def close(self) -> None:
        """Free the context."""
        self._thread.submit(self.environment.close).result(TIMEOUT_S)
        self._thread.shutdown()

    def _draw(self, is_encoded: bool) -> Any:
        """Draw with `render()`, or each object in the colour that encodes its id."""
        if is_encoded:
            self._set_encoded(True)
        frame = self._unwrapped.render()
        if is_encoded:
            self._set_encoded(False)
        return frame

    def _set_encoded(self, is_encoded: bool) -> None:
        for flag in (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR):
            self._viewer.scn.flags[flag] = is_encoded


def without_patterns(text: str) -> str:
    """Return a model whose textures have one colour each, but for the sky."""
    text = re.sub(r' (mark|random)="[^"]*"', "", text)
    return re.sub(r'builtin="checker"([^>]*) rgb1="[^"]*"', r'builtin="flat"\1 rgb1="0.6 0.7 0.8"', text)


@pytest.fixture(params=["Ant", "HalfCheetah", "Hopper", "Humanoid", "InvertedPendulum", "Pusher", "Reacher", "Swimmer"])
def env_id(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.chdir(tmp_path)  # MuJoCo writes warnings into a file in the working directory
    return f"{request.param}-v5"


@pytest.fixture
def plain_env_id(env_id: str, tmp_path: Path) -> Iterator[str]:
    """The id of the same task with a model without patterns."""
    spec = gymnasium.spec(env_id)
    environment: Any = gymnasium.make(env_id).unwrapped
    path = tmp_path / "plain.xml"
    path.write_text(without_patterns(Path(environment.fullpath).read_text()))
    gymnasium.register("Plain-v0", spec.entry_point, kwargs={"xml_file": str(path)})
    yield "Plain-v0"
    del gymnasium.registry["Plain-v0"]


def test_eye_shows_what_render_shows(env_id: str, cpu: Renderer) -> None:
    compare_episode(env_id, cpu, PATTERN_COLOR)


def test_eye_has_the_light_of_render(plain_env_id: str, cpu: Renderer) -> None:
    compare_episode(plain_env_id, cpu, COLOR)


def compare_episode(env_id: str, renderer: Renderer, max_color: float) -> None:
    """Compare frames of an episode with random actions, up to its end."""
    assets = AssetLibrary()
    family, scene = Gym({"id": env_id}, assets), Scene(assets)
    assert isinstance(family, BatchedGym)
    pool, theirs = Pool(family, scene), GymnasiumFrames(env_id)
    lanes = pool.add(family.lane_seeds(7, 1))
    pool.begin(lanes)
    theirs.environment.reset(seed=7)
    rng, space = np.random.default_rng(0), theirs.environment.action_space
    for step in range(3 * FRAMES):
        if step % 3 == 0:
            views = pool.views(lanes, "eye", width=SIZE, height=SIZE, outputs=RGB | SEGMENTATION)
            offsets, size = lay_out(views)
            arena = allocate_arena(size)
            renderer.draw(scene, views, arena, offsets)
            labels = get_frame(arena, views, offsets, 0, "segmentation").astype(np.int64)
            ours = Frame(get_frame(arena, views, offsets, 0, "rgb"), labels)
            difference = compare_frames(ours, theirs.see(family.labels))
            assert difference.labels >= LABELS
            assert difference.color < max_color
        action = rng.uniform(space.low, space.high).astype(np.float32)
        pool.step(lanes, {"action": action[None, None]})
        theirs.environment.step(action)
        if pool.status[lanes[0]] != RUNNING:
            break
    theirs.close()
