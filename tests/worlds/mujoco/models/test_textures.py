"""Textures of models in an asset library that other threads add to at the same time."""

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from worldloom.render.assets import AssetLibrary
from worldloom.worlds.mujoco.models.textures import acquire_sky

SIZE = 8


@pytest.fixture
def rapid_switching() -> Iterator[None]:
    """Let the interpreter switch threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("rapid_switching")
def test_sky_textures_are_consecutive_while_other_threads_add() -> None:
    assets = AssetLibrary(texture_size=SIZE)
    first = assets.add_texture("first", np.zeros((SIZE, SIZE, 3), np.uint8))
    stop = threading.Event()

    def add() -> None:
        for number in range(100_000):
            if stop.is_set():
                return
            assets.add_texture(f"other {number}", np.zeros((SIZE, SIZE, 3), np.uint8))

    other = threading.Thread(target=add)
    other.start()
    skies = []
    for level in range(20):
        faces = [np.full((SIZE, SIZE, 3), 100 + 6 * level + face, np.uint8) for face in range(6)]
        skies.append((acquire_sky(assets, faces), level))
    stop.set()
    other.join(20)
    shown = assets.table.texels[:, 0] & 255
    assert len(shown) > first + 1 + 6 * 20, "the other thread added textures"
    for number, level in skies:
        assert shown[number : number + 6].tolist() == [100 + 6 * level + face for face in range(6)]
