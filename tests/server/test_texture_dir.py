"""Worlds with pictures of `worldloom serve --texture-dir`, as their clients see them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scripts.support.server_process import serving
from worldloom.client import VectorEnv
from worldloom.client.errors import ServerError

pytestmark = pytest.mark.slow


def make(address: str, **settings: object) -> VectorEnv:
    return VectorEnv(
        address,
        "catch",
        3,
        width=16,
        height=16,
        observations=["eye.rgb"],
        settings={"vary_background": 1.0, **settings},
    )


def test_a_client_names_a_set_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "red").mkdir()
    Image.new("RGB", (30, 20), (250, 3, 4)).save(tmp_path / "red" / "a.png")
    with serving("--listen", "127.0.0.1:0", "--texture-dir", str(tmp_path)) as process:
        with make(process.address, background_set="red") as env:
            corners = env.reset(seed=0)[0]["eye.rgb"][:, 0, 0]
            assert corners.tolist() == [[250, 3, 4]] * 3
        with make(process.address) as env:
            assert np.ptp(env.reset(seed=0)[0]["eye.rgb"][:, 0, 0], axis=0).any()
        with pytest.raises(ServerError, match="INVALID_ARGUMENT: there is no set of pictures 'blue': expected one of"):
            make(process.address, background_set="blue")


def test_a_server_without_pictures_says_how_to_get_some() -> None:
    with pytest.raises(ServerError, match=r"PERMISSION_DENIED.*--texture-dir DIRECTORY"):
        make("local", background_set="red")
