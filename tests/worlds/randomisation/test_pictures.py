"""Sets of pictures: what is read of the operator's files, in which order and size, and what is refused."""

import errno
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from worldloom.kernels.tables import ONE_SKY, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds, mix, uniform
from worldloom.worlds.randomisation import pictures
from worldloom.worlds.randomisation.draws import DRAWS
from worldloom.worlds.randomisation.pictures import (
    DIRECTORY_VARIABLE,
    allow_texture_dirs,
    find_clips,
    find_films,
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
from worldloom.worlds.settings import SettingError, SettingNotAllowedError, SettingTooLargeError

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
    assert "train: only the first 3 pictures and videos are used" in caplog.text


def test_files_that_are_no_pictures_do_not_count(folder: Path) -> None:
    (folder / "train" / "0 README").write_text("Nine pictures and videos of mine.")
    (folder / "train" / "1 notes.txt").write_text("A tenth is to come.")
    allow_texture_dirs([folder], max_frames=21)
    assets = AssetLibrary(texture_size=SIZE)
    assert [shades(assets, *clip) for clip in find_films(assets, "train", 2)] == [[10], [20]]
    assert [frames for _, frames in find_clips(assets, "train")] == [1, 1, 3, 3, 2, 2, 3]


def test_a_video_ends_before_what_cannot_be_read(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "train" / "7" / "4.png").write_bytes(b"no picture")
    assets = AssetLibrary(texture_size=SIZE)
    with caplog.at_level(logging.WARNING):
        assert shades(assets, *find_clips(assets, "train")[-1]) == [70, 71, 72, 73]
    assert "train/7 (from frame 4 on: " in caplog.text


def test_sets_share_the_frames_of_a_file(folder: Path) -> None:
    allow_texture_dirs([folder], max_frames=24)
    assets = AssetLibrary(texture_size=SIZE)
    few = find_films(assets, "train", 4)  # 6 frames of each at most
    held_bytes = assets.memory_bytes
    every = find_films(assets, "train")  # 3 frames of each at most
    assert every[:4] == [(first, min(frames, 3)) for first, frames in few]
    assert assets.memory_bytes == held_bytes + (2 + 2 + 3) * assets.texture_bytes
    some = find_films(assets, "train", 2)
    assert some == few[:2]
    more = find_films(assets, "train/7")  # 2 frames of each, but they are pictures
    assert [shades(assets, *clip) for clip in more] == [[70 + k] for k in range(12)]
    allow_texture_dirs([folder], max_frames=35)
    longer = find_films(assets, "train", 7)  # 5 frames of each: another key, and more of the last is read
    assert shades(assets, *longer[-1]) == [70, 71, 72, 73, 74]
    assert longer[:6] == [*few[:2], (few[2][0], 5), few[3], *every[4:6]]


def test_pictures_beyond_the_memory_are_refused(folder: Path) -> None:
    assets = AssetLibrary(texture_size=SIZE)
    before = assets.memory_bytes
    assets.add_texture("one", picture(0))
    assert assets.memory_bytes == before + assets.texture_bytes
    frames = 1 + 1 + 5 + 3 + 2 + 2 + 12
    assets.max_bytes = assets.memory_bytes + (frames - 1) * assets.texture_bytes
    with pytest.raises(SettingTooLargeError, match=r"'train' would take more than .* --max-texture-frames"):
        find_clips(assets, "train")
    assert assets.memory_bytes == before + assets.texture_bytes
    assets.max_bytes += assets.texture_bytes
    assert sum(count for _, count in find_clips(assets, "train")) == frames
    assets.max_bytes = 0
    assert len(find_films(assets, "train", 7)) == 7  # all of them are there
    with pytest.raises(SettingTooLargeError):
        find_clips(assets, "validation")


def test_no_more_is_read_than_there_is_memory_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(9):
        save(folder / "stills" / f"{k}.png", picture(k))
    assets, read, resample = AssetLibrary(texture_size=SIZE), list[U8](), pictures._resample

    def count(opened: Image.Image, size: int) -> U8:
        read.append(resample(opened, size))
        return read[-1]

    monkeypatch.setattr(pictures, "_resample", count)
    for name, most in (("stills", 4), ("train/7", 4), ("train", 8)):
        read.clear()
        assets.max_bytes = assets.memory_bytes + 3 * assets.texture_bytes
        with pytest.raises(SettingTooLargeError):
            find_clips(assets, name)
        # Of videos two frames come first, which tell them from pictures.
        assert len(read) <= most


def test_a_set_is_found_while_another_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = AssetLibrary(texture_size=SIZE)
    known = {name: find_clips(assets, name) for name in ("validation", BUILT_IN)}
    began, gate = threading.Event(), threading.Event()

    def wait(opened: Image.Image | None, size: int) -> U8:
        began.set()
        assert gate.wait(20.0)
        return np.zeros((size, size, 3), np.uint8)

    monkeypatch.setattr(pictures, "_resample", wait)
    monkeypatch.setitem(pictures._TEXTURES, "checker", lambda size: wait(None, size))
    with ThreadPoolExecutor(3) as threads:
        try:
            reading = threads.submit(find_clips, assets, "train")
            assert began.wait(20.0)
            began.clear()
            building = threads.submit(find_textures, assets, BUILT_IN)
            assert began.wait(20.0)
            for name, clips in known.items():
                assert threads.submit(find_clips, assets, name).result(timeout=10.0) == clips
            assert not reading.done()
            assert not building.done()
        finally:
            gate.set()
        assert len(reading.result()) == len(building.result()) == 7


def test_names_may_have_any_digits(folder: Path) -> None:
    save(folder / "digits" / "²1.png", picture(11))
    save(folder / "digits" / "3.png", picture(33))
    save(folder / "digits" / "\N{ARABIC-INDIC DIGIT TWO}.png", picture(22))
    assets = AssetLibrary(texture_size=SIZE)
    assert [shades(assets, *clip) for clip in find_clips(assets, "digits")] == [[22], [33], [11]]


def test_clients_are_told_names_and_no_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "empty").mkdir()
    assets = AssetLibrary(texture_size=SIZE)
    with pytest.raises(SettingError, match="'empty' has none that can be read") as told:
        find_clips(assets, "empty")
    assert str(folder) not in str(told.value)

    def refuse(path: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)  # rights do not hold for the superuser, who may run this
    with pytest.raises(SettingError, match="'train' cannot be read: Permission denied") as told:
        find_clips(assets, "train")
    assert str(folder) not in str(told.value)
    with pytest.raises(SettingError, match="no set of pictures 'nowhere'"):
        find_clips(assets, "nowhere")


def test_a_link_to_itself_is_no_set(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    for name in ("loop", "loop/deeper"):
        with pytest.raises(SettingError, match=f"no set of pictures '{name}': expected one of built-in, "):
            find_clips(AssetLibrary(texture_size=SIZE), name)
    assert len(find_clips(AssetLibrary(texture_size=SIZE), "train")) == 7


def test_links_are_not_followed_out_of_the_allowed_directory(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    save(outside / "film" / "0.png", picture(1))
    np.save(outside / "array.npy", picture(2))
    (folder / "linked" / "film").mkdir(parents=True)
    (folder / "linked" / "a").symlink_to(outside / "film")
    (folder / "linked" / "b.png").symlink_to(outside / "film" / "0.png")
    (folder / "linked" / "c.npy").symlink_to(outside / "array.npy")
    (folder / "linked" / "film" / "0.png").symlink_to(outside / "film" / "0.png")
    (folder / "linked" / "z.png").symlink_to(folder / "validation" / "a.png")
    assets = AssetLibrary(texture_size=SIZE)
    with caplog.at_level(logging.WARNING):
        assert [shades(assets, *clip) for clip in find_clips(assets, "linked")] == [[90]]
    assert caplog.text.count("leads out of --texture-dir") == 4


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
