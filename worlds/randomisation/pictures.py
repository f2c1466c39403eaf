"""Sets of pictures and videos: textures and backgrounds to choose from, made by code or read from the operator's files.

A set is a directory within one that the operator allows. Its files are pictures, or videos if they have several frames:
what Pillow reads (PNG, JPEG, GIF, WebP, TIFF, …), and arrays of uint8 [height, width, 3] or [frames, height, width, 3]
(.npy, .npz). A directory in it that has pictures is a video, its frames in the order of their names. Films such as MP4
are not read.
"""

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from PIL import Image, ImageSequence

from worldloom.kernels.tables import U8
from worldloom.render import textures
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.randomisation.settings import BACKGROUND, BUILT_IN, TEXTURES, Randomisation
from worldloom.worlds.settings import SettingError, SettingNotAllowedError, SettingTooLargeError, abbreviate

log = logging.getLogger("worldloom.worlds")

DIRECTORY_VARIABLE = "WORLDLOOM_TEXTURE_DIR"
"""Environment variable with directories of pictures, for programs that run the engine themselves."""
MAX_FRAMES = 256
"""Most frames of a set, unless the operator says otherwise: 1.2 MB each."""
_ARRAYS = (".npy", ".npz")
_BUILT_IN_FILMS, _BUILT_IN_FILM_FRAMES = 10, 12
_MAX_NAMED = 5
"""Most files that a warning names."""
_FEW = 2
"""Frames by which a picture differs from a video."""

Clip: TypeAlias = tuple[int, int]
"""First texture of a picture or video, and its number of frames."""


@dataclass
class _Loaded:
    """Pictures and videos that were added to a library."""

    sets: dict[str, list[Clip]] = field(default_factory=dict)
    """Pictures and videos of each set, by its key."""
    files: dict[Path, Clip] = field(default_factory=dict)
    """The most frames that were read of each file or directory: sets with fewer of them share its textures."""


_TEXTURES: dict[str, Callable[[int], U8]] = {
    "checker": textures.checker,
    "brick": textures.brick,
    "wood": textures.wood,
    "noise": textures.noise,
    "stripes": textures.stripes,
    "dots": textures.dots,
    "marble": textures.marble,
}
_allowed: list[Path] = []
_max_frames = MAX_FRAMES
_loaded: WeakKeyDictionary[AssetLibrary, _Loaded] = WeakKeyDictionary()
_building, _reading = threading.Lock(), threading.Lock()
"""Held while a set is made by code, or read: one thread does it, and others wait for that one."""


def allow_texture_dirs(directories: Iterable[str | os.PathLike[str]], max_frames: int = MAX_FRAMES) -> None:
    """Allow sets of pictures from these directories and no others; read so many frames of each set at most."""
    global _max_frames
    found = [Path(directory) for directory in directories]
    for directory in found:
        if not directory.is_dir():
            raise ValueError(f"--texture-dir {str(directory)!r}: expected a directory with pictures")
        if not any(directory.iterdir()):
            raise ValueError(
                f"--texture-dir {str(directory)!r} is empty: expected pictures, or directories of pictures and videos"
            )
    _allowed[:] = [directory.resolve() for directory in found]
    _max_frames = max_frames


def find_textures(assets: AssetLibrary, name: str) -> list[int]:
    """Return the textures of a set, the first frames of its videos among them; add those that the library lacks."""
    return [first for first, _ in _acquire(assets, "textures", name, _build_textures)]


def find_clips(assets: AssetLibrary, name: str) -> list[Clip]:
    """Return the pictures and videos of a set of backgrounds; add those that the library lacks."""
    return _acquire(assets, "backgrounds", name, _build_backgrounds)


def find_films(assets: AssetLibrary, name: str, first: int = 0) -> list[Clip]:
    """Return the first so many pictures and videos of a set, or all of them; the built-in set has videos alone."""
    if name != BUILT_IN:
        return _acquire(assets, "backgrounds", name, _build_backgrounds, first)
    return [
        clip
        for film in range(min(first or _BUILT_IN_FILMS, _BUILT_IN_FILMS))
        for clip in _acquire(assets, f"film {film}", name, partial(_build_film, seed=film))
    ]


def load_sets(assets: AssetLibrary, randomisation: Randomisation) -> None:
    """Add the pictures that a randomisation needs, so that nothing has to be read later."""
    with assets.loading():
        if randomisation.amounts[TEXTURES] > 0:
            find_textures(assets, randomisation.texture_set)
        if randomisation.amounts[BACKGROUND] > 0:
            find_clips(assets, randomisation.background_set)


def has_sets(assets: AssetLibrary, randomisation: Randomisation | None) -> bool:
    """Return whether a library has all pictures that a randomisation needs; False if a set cannot be found."""
    if randomisation is None:
        return True
    sets = {
        ("textures", randomisation.texture_set): TEXTURES,
        ("backgrounds", randomisation.background_set): BACKGROUND,
    }
    loaded = _loaded_of(assets).sets
    try:
        return all(_find_key(*one)[0] in loaded for one, what in sets.items() if randomisation.amounts[what] > 0)
    except SettingError:
        return False


def _acquire(
    assets: AssetLibrary, kind: str, name: str, build: Callable[[int], Iterator[tuple[str, list[U8]]]], first: int = 0
) -> list[Clip]:
    key, directory = _find_key(kind, name, first)
    loaded = _loaded_of(assets)
    # Looked up before: the engine finds what is loaded while another thread reads for a minute.
    if key not in loaded.sets:
        with _reading if directory else _building:
            if key not in loaded.sets and directory is not None:
                loaded.sets[key] = _read_set(assets, loaded.files, key, name, directory, first)
            elif key not in loaded.sets:
                built = list(build(assets.texture_size))
                loaded.sets[key] = [(_add_frames(assets, key, word, frames), len(frames)) for word, frames in built]
    return loaded.sets[key]


def _loaded_of(assets: AssetLibrary) -> _Loaded:
    return _loaded.setdefault(assets, _Loaded())


def _find_key(kind: str, name: str, first: int = 0) -> tuple[str, Path | None]:
    """Return the key of a set, and its directory if it has one."""
    if name == BUILT_IN:
        return f"{kind} {BUILT_IN}", None
    directory = _find_set(name)
    return f"pictures {directory} {first or ''}", directory


def _add_frames(assets: AssetLibrary, key: str, word: str, frames: list[U8]) -> int:
    return assets.add_textures({f"{key}: {word} {k}": frame for k, frame in enumerate(frames)})


def _build_textures(size: int) -> Iterator[tuple[str, list[U8]]]:
    for word, draw in _TEXTURES.items():
        yield word, [draw(size)]


def _build_backgrounds(size: int) -> Iterator[tuple[str, list[U8]]]:
    for seed in range(8):
        yield f"scenery {seed}", [textures.scenery(size, seed)]
    for seed in range(2):
        yield from _build_film(size, seed)


def _build_film(size: int, seed: int) -> Iterator[tuple[str, list[U8]]]:
    frames = _BUILT_IN_FILM_FRAMES
    yield f"drift {seed}", [textures.drift(size, frame, frames, seed) for frame in range(frames)]


def _allowed_directories() -> list[Path]:
    return _allowed or [Path(one).resolve() for one in os.environ.get(DIRECTORY_VARIABLE, "").split(os.pathsep) if one]


def _find_set(name: str) -> Path:
    """Return the directory of a set."""
    allowed = _allowed_directories()
    if not allowed:
        raise SettingNotAllowedError(
            f"set of pictures {abbreviate(name)}: expected {BUILT_IN!r}, for this server has no others; start it with "
            f"--texture-dir DIRECTORY, or set {DIRECTORY_VARIABLE} where a program runs the engine itself"
        )
    for directory in allowed:
        # A name that no path can have, as it is too long or has a null character, raises an error in the first call;
        # so does a link that leads to itself, and Python 3.12 and before have a RuntimeError for that.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            wanted = (directory / name).resolve(strict=True)
            if wanted.is_relative_to(directory) and wanted.is_dir():
                return wanted
    sets = set[str]()
    for directory in allowed:
        with contextlib.suppress(OSError):  # the operator has removed it, or taken the right to read it
            sets |= {one.name for one in directory.iterdir() if one.is_dir()}
    listed = ", ".join([BUILT_IN, *sorted(sets)[:20]]) + (", …" if len(sets) > 20 else "")
    raise SettingError(
        f"there is no set of pictures {abbreviate(name)}: expected one of {listed}, or . for all of them"
    )


def _read_set(
    assets: AssetLibrary, known: dict[Path, Clip], key: str, name: str, directory: Path, first: int
) -> list[Clip]:
    """Return the pictures and videos of a directory, in the order of their names; add what the library lacks."""
    most, size, unread = min(first or _max_frames, _max_frames), assets.texture_size, list[str]()
    paths = iter(_list_set(name, directory))
    # What is a picture is known when it was read: the first frames of each come before their shares.
    chosen: dict[Path, list[U8]] = {}
    added = 0
    for path in paths:
        frames = [] if path in known else _read_frames(path, size, _FEW, unread)
        if frames or path in known:
            chosen[path] = frames
            added += 1 if frames else 0
            _check_room(assets, name, added)
        if len(chosen) == most:
            break
    each = max(1, _max_frames // max(1, len(chosen)))
    added = 0
    for path, frames in chosen.items():
        known_count = known[path][1] if path in known else 0
        if known_count < each and (known_count or len(frames) == _FEW < each):
            frames = _read_frames(path, size, each, unread)
        chosen[path] = frames[:each] if len(frames) > known_count else []
        added += len(chosen[path])
        _check_room(assets, name, added)
    if unread:
        more = f" and {len(unread) - _MAX_NAMED} more" if len(unread) > _MAX_NAMED else ""
        log.warning("pictures that cannot be read are left out: %s%s", "; ".join(unread[:_MAX_NAMED]), more)
    if len(chosen) == _max_frames and most != first and next(paths, None) is not None:
        log.warning("%s: only the first %d pictures and videos are used", directory, _max_frames)
    if not chosen:
        raise SettingError(
            f"the set of pictures {abbreviate(name)} has none that can be read: expected PNG, JPEG, GIF, …"
        )
    # All is read before anything is added: a set that cannot be used leaves nothing behind.
    for path, frames in chosen.items():
        if frames:
            known[path] = _add_frames(assets, key, path.name, frames), len(frames)
    return [(known[path][0], min(each, known[path][1])) for path in chosen]


def _check_room(assets: AssetLibrary, name: str, added: int) -> None:
    """Raise SettingTooLargeError if so many textures of a set, those that were read so far, are too many."""
    room_bytes = max(0, assets.max_bytes - assets.memory_bytes)
    if added and added * assets.texture_bytes > room_bytes:
        raise SettingTooLargeError(
            f"the set of pictures {abbreviate(name)} would take more than {room_bytes} bytes of memory, which is what "
            "is left for pictures, as they stay until the server ends: use sets that others use, raise "
            "--max-memory-bytes or lower --max-texture-frames"
        )


def _list_set(name: str, directory: Path) -> list[Path]:
    """Return what is in the directory of a set, in the order of the names."""
    try:
        return sorted((one for one in directory.iterdir() if not one.name.startswith(".")), key=_natural)
    except OSError as error:
        raise SettingError(
            f"the set of pictures {abbreviate(name)} cannot be read: {error.strerror}; expected a directory that the "
            "server's user may read"
        ) from error


def _read_frames(path: Path, size: int, most: int, unread: list[str]) -> list[U8]:
    """Return the first frames of a picture or video; if some cannot be read, those before, and note it in `unread`."""
    frames = list[U8]()
    try:
        for frame in islice(_frames_of(path, size), most):
            frames.append(frame)  # those before an error are kept
        problem = "" if frames else "no pictures"
    except Exception as error:  # a damaged file: each decoder has errors of its own
        problem = str(error) or type(error).__name__
    if problem:
        unread.append(f"{path} ({f'from frame {len(frames)} on: ' if frames else ''}{problem})")
    return frames


def _frames_of(path: Path, size: int) -> Iterator[U8]:
    """Yield the frames of a picture, a video, or a directory of pictures, resampled to the size of textures."""
    if not any(path.resolve().is_relative_to(directory) for directory in _allowed_directories()):
        raise ValueError("it leads out of --texture-dir")
    if path.is_dir():
        for one in sorted(path.iterdir(), key=_natural):
            if one.is_file() and not one.name.startswith("."):
                yield from islice(_frames_of(one, size), 1)
    elif not path.is_file():
        raise ValueError("neither a file nor a directory")  # reading a pipe or a device may never end
    elif path.suffix.lower() in _ARRAYS:
        yield from _frames_of_arrays(path, size)
    else:
        with Image.open(path) as opened:
            for frame in ImageSequence.Iterator(opened):
                yield _resample(frame.convert("RGB"), size)


def _frames_of_arrays(path: Path, size: int) -> Iterator[U8]:
    """Yield the frames of a file of NumPy, of one array or several."""
    with path.open("rb") as file:
        is_one = path.suffix.lower() == ".npy"
        loaded = np.load(path, mmap_mode="r") if is_one else np.load(file, allow_pickle=False)
        for array in [loaded] if is_one else loaded.values():
            if array.dtype != np.uint8 or array.ndim not in (3, 4) or array.shape[-1] != 3 or not array.size:
                raise ValueError(f"{array.dtype} {list(array.shape)}: expected uint8 [height, width, 3] or with frames")
            for frame in array.reshape(-1, *array.shape[-3:]):
                yield _resample(Image.fromarray(np.ascontiguousarray(frame)), size)


def _resample(picture: Image.Image, size: int) -> U8:
    """Return a picture as a texture: all of it, with whatever aspect."""
    return np.array(picture.resize((size, size), Image.Resampling.LANCZOS), np.uint8)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key by which frame 10 comes after frame 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]
