"""Published distractions as clients ask for them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from worldloom.client import VectorEnv
from worldloom.client.errors import ServerError
from worldloom.worlds.randomisation.pictures import DIRECTORY_VARIABLE

TASK = {"domain": "cartpole", "task": "swingup", "distraction": "dcs-easy", "distraction_axes": "background"}


def make(lanes: int, **settings: object) -> VectorEnv:
    options: dict[str, Any] = {"observations": ["eye.rgb", "variation"], "width": 16, "height": 16, "renderer": "cpu"}
    return VectorEnv("local", "dmc", lanes, settings={**TASK, **settings}, **options)


def test_the_first_videos_of_a_set_are_used_and_numbers_can_be_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    colors = [(250, 10 * k, 10) for k in range(6)]
    for k, color in enumerate(colors):
        (tmp_path / "films" / f"film{k}").mkdir(parents=True)
        for frame in range(3):
            Image.new("RGB", (20, 10), color).save(tmp_path / "films" / f"film{k}" / f"{frame}.png")
    with make(40, background_set="films") as env:
        first = env.reset(seed=1)[0]
        corners = {tuple(pixel) for pixel in first["eye.rgb"][:, 0, 0].tolist()}
        assert corners == set(colors[:4])
        assert (first["variation"] == 0).all()
        chosen = env.reset(options={"variation": np.arange(40)})[0]
        assert chosen["variation"].tolist() == list(range(40))
        again = env.reset(options={"variation": 0})[0]
        assert (again["eye.rgb"][:, 0, 0] == first["eye.rgb"][:, 0, 0]).all()


def test_worlds_without_a_distraction_have_no_numbers() -> None:
    with pytest.raises(ServerError, match=r"PERMISSION_DENIED.*--texture-dir DIRECTORY"):
        make(1, background_set="films")
    with make(1, distraction="gb-color-hard", distraction_axes="all") as env:
        env.reset(seed=0, options={"variation": 3})
    with pytest.raises(ServerError, match="gb-color-hard"):
        make(1, distraction="gb-color-hard")
