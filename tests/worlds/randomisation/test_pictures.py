"""Sets of pictures: what is read of the operator's files, in which order and size, and what is refused."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from worldloom.kernels.tables import ONE_SKY, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds, mix, uniform
from worldloom.worlds.randomisation.draws import DRAWS
from worldloom.worlds.randomisation.pictures import (
    DIRECTORY_VARIABLE,
    allow_texture_dirs,
    find_clips,
    find_textures,
)
from worldloom.worlds.randomisation.settings import (
    BACKGROUND,
    BUILT_IN,
    EPISODE,
    VARIATIONS,
    WALK,
    Randomisation,
)
from worldloom.worlds.registry import find_family
from worldloom.worlds.settings import SettingError, SettingNotAllowedError

SIZE = 16


def picture(shade: int, height: int = SIZE, width: int = SIZE) -> U8:
    return np.full((height, width, 3), (shade, 255 - shade, 7), np.uint8)


def save(path: Path, pixels: U8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture(autouse=True)
def none_is_allowed_afterwards() -> Iterator[None]:
    yield
    allow_texture_dirs([])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with two sets: pictures and films of all kinds, and one picture."""
    save(tmp_path / "train" / "1.png", picture(10))
    save(tmp_path / "train" / "2.bmp", picture(20, 40, 9))
    films = [Image.fromarray(picture(30 + k)) for k in range(5)]
    films[0].save(tmp_path / "train" / "3.gif", save_all=True, append_images=films[1:])
    films[0].save(tmp_path / "train" / "4.webp", save_all=True, append_images=films[1:3], lossless=True)
    np.save(tmp_path / "train" / "5.npy", np.stack([picture(50), picture(51)]))
    np.savez(tmp_path / "train" / "6.npz", one=picture(60), two=picture(61))
    for frame in range(12):
        save(tmp_path / "train" / "7" / f"{frame}.png", picture(70 + frame))
    save(tmp_path / "validation" / "a.png", picture(90))
    allow_texture_dirs([tmp_path])
    return tmp_path


def shades(assets: AssetLibrary, first: int, frames: int) -> list[int]:
    """Return the red of the mean colour of each texture."""
    return [int(assets.table.texels[number, -1] & 255) for number in range(first, first + frames)]


def test_all_kinds_of_files_are_read_in_order(folder: Path) -> None:
    assets = AssetLibrary(texture_size=SIZE)
    clips = find_clips(assets, "train")
    assert [frames for _, frames in clips] == [1, 1, 5, 3, 2, 2, 12]
    found = [shades(assets, *clip) for clip in clips]
    assert found[:2] == [[10], [20]]
    assert found[2] == pytest.approx([30, 31, 32, 33, 34], abs=3)  # GIF has a palette
    assert found[3:] == [[30, 31, 32], [50, 51], [60, 61], list(range(70, 82))]
    assert find_textures(assets, "train") == [first for first, _ in clips]
    assert find_clips(assets, "train") is clips
    assert [shades(assets, *clip) for clip in find_clips(assets, "validation")] == [[90]]


def test_pictures_are_resampled_as_a_whole(tmp_path: Path) -> None:
    halves = np.concatenate([picture(200, 30, 25), picture(100, 30, 25)], axis=1)
    save(tmp_path / "set" / "halves.png", halves)
    allow_texture_dirs([tmp_path])
    assets = AssetLibrary(texture_size=SIZE)
    [(number, _)] = find_clips(assets, "set")
    red = (assets.table.texels[number, : SIZE * SIZE] & 255).reshape(SIZE, SIZE)
    assert (red[:, :5] == 200).all()
    assert (red[:, -5:] == 100).all()


def test_what_cannot_be_read_is_left_out_and_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "train" / "film.mp4").write_bytes(b"no picture")
    (folder / "train" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    np.save(folder / "train" / "numbers.npy", np.zeros((3, 3)))
    (folder / "train" / "nothing").mkdir()
    assets = AssetLibrary(texture_size=SIZE)
    with caplog.at_level(logging.WARNING):
        assert len(find_clips(assets, "train")) == 7
    for name in ("film.mp4", "broken.png", "numbers.npy", "nothing"):
        assert name in caplog.text


def test_damaged_archives_and_pipes_are_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "train" / "archive.npz").write_bytes(b"PK\x03\x04 cut off")
    for name in ("pipe.png", "pipe.npy"):  # to read one would take until somebody writes to it
        os.mkfifo(folder / "train" / name)
    with caplog.at_level(logging.WARNING):
        assert len(find_clips(AssetLibrary(texture_size=SIZE), "train")) == 7
    for name in ("archive.npz", "pipe.png", "pipe.npy"):
        assert name in caplog.text


def test_a_set_that_cannot_be_used_leaves_no_textures(folder: Path) -> None:
    (folder / "broken").mkdir()
    (folder / "broken" / "a.png").write_bytes(b"no picture")
    assets = AssetLibrary(texture_size=SIZE)
    before = assets.memory_bytes
    with pytest.raises(SettingError, match="none that can be read"):
        find_clips(assets, "broken")
    assert assets.memory_bytes == before


def test_a_set_has_a_limit(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    allow_texture_dirs([folder], max_frames=21)
    assert [frames for _, frames in find_clips(AssetLibrary(texture_size=SIZE), "train")] == [1, 1, 3, 3, 2, 2, 3]
    allow_texture_dirs([folder], max_frames=3)
    with caplog.at_level(logging.WARNING):
        assert [frames for _, frames in find_clips(AssetLibrary(texture_size=SIZE), "train")] == [1, 1, 1]
    assert "has 7 pictures and videos: only the first 3 are used" in caplog.text


def test_only_allowed_directories_are_read(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assets = AssetLibrary(texture_size=SIZE)
    outside = tmp_path_factory.mktemp("outside")
    save(outside / "secret" / "a.png", picture(1))
    (folder / "link").symlink_to(outside / "secret")
    for name in ("../secret", str(outside / "secret"), "link", "nowhere", "train/1.png", "\0", "x" * 300, "x/" * 3000):
        with pytest.raises(SettingError, match=r"expected one of built-in, (link, )?train, validation, or \. for all"):
            find_clips(assets, name)
    allow_texture_dirs([])
    with pytest.raises(SettingNotAllowedError, match="--texture-dir"):
        find_clips(assets, "train")


def test_programs_that_run_the_engine_have_a_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_texture_dirs([])
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(folder))
    assert len(find_clips(AssetLibrary(texture_size=SIZE), "validation")) == 1


def test_directories_without_pictures_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a directory with pictures"):
        allow_texture_dirs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="is empty: expected pictures"):
        allow_texture_dirs([tmp_path])
    (tmp_path / "set").mkdir()
    allow_texture_dirs([tmp_path])
    with pytest.raises(SettingError, match="none that can be read"):
        find_clips(AssetLibrary(texture_size=SIZE), "set")


@pytest.mark.parametrize("when", [EPISODE, WALK])
def test_a_video_goes_on_to_its_end_and_back(folder: Path, when: int) -> None:
    assets = AssetLibrary(texture_size=SIZE)
    amounts = [0.0] * len(VARIATIONS)
    amounts[BACKGROUND] = 1.0
    randomisation = Randomisation(tuple(amounts), (when,) * len(VARIATIONS), background_set="train")
    pool = Pool(find_family("cartpole")({}, assets), Scene(assets), randomisation)
    seeds = lane_seeds(6, 12)
    lanes = pool.add(seeds)
    clips = find_clips(assets, "train")
    numbers = uniform(mix(mix(seeds, DRAWS + BACKGROUND), 0)[:, None], np.arange(4, dtype=np.uint64))
    for step in range(60):
        pool.step(lanes, {"force": np.zeros((12, 1), np.float32)})
        pool.views(lanes, "eye")
        for lane in range(12):
            first, frames = clips[int(numbers[lane, 1] * len(clips))]
            there_and_back = [*range(frames), *range(frames - 2, 0, -1)]
            moves = (step // 2 if numbers[lane, 3] < 0.5 else -(step // 2)) if when == WALK else 0
            place = (int(numbers[lane, 2] * frames) + moves) % len(there_and_back)
            shown = pool.scene.lanes.sky_textures[pool.scene_lane[lanes[lane]]]
            assert shown == ONE_SKY - (first + there_and_back[place])


def test_the_pictures_made_by_code_differ() -> None:
    assets = AssetLibrary(texture_size=SIZE)
    numbers = [first + k for first, frames in find_clips(assets, BUILT_IN) for k in range(frames)]
    assert len({assets.table.texels[number].tobytes() for number in numbers}) == len(numbers)
    assert len(find_textures(assets, BUILT_IN)) == 7
