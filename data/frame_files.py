"""Frames that become files: arrays in .npy files, PNG files in a directory, a film.

A writer works beside its place, in what is called `OUT.partial`, and renames that when it is complete. Frames may be
written again: a run that goes on where another was killed repeats what that had not noted as written.
"""

import io
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from worldloom.data.replacing import FRAMES_FILE, begin_partial, flush, partial_path, put_in_place
from worldloom.demo.images import frame_colors, normal_colors, write_gif

FILM_SUFFIXES = (".gif", ".webp")
_MAX_FILM_BYTES = 1 << 30
_MIN_DIGITS = 6
_MAX_MILLIMETRES = 65535
_MAX_THREADS = 8
_WEBP_QUALITY = 90


class Form(NamedTuple):
    """Shape and dtype of one frame."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes of a frame in memory."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


class FrameWriter(ABC):
    """Writer of the frames of states, by `<camera>.<output>`."""

    @abstractmethod
    def write(self, first: int, frames: Mapping[str, np.ndarray]) -> None:
        """Write frames [N, H, W, ...]; `first` is the number of the first among all that are drawn."""

    @abstractmethod
    def resume(self, noted: int) -> int:
        """Return how many of the first frames a run before has written to the disk, given the number that it noted.

        If that is 0, what it has begun is begun anew.
        """

    @abstractmethod
    def flush(self, done: int) -> int:
        """Flush the first `done` frames to the disk, as far as possible; return how many are there."""

    @abstractmethod
    def finish(self, arguments: Mapping[str, Any]) -> list[Path]:
        """Put what is complete into its place, and return the files and directories that there are now.

        `arguments` are those of the journal. A directory keeps a marker with them (`data/replacing.py`).
        """

    def close(self) -> None:  # noqa: B027  # most have nothing to wait for
        """Wait for frames that are being written beside others."""

    @abstractmethod
    def remove(self) -> None:
        """Remove what was begun."""

    @abstractmethod
    def find_existing(self) -> list[Path]:
        """Return those of its files and directories that exist already."""


class NpyFrames(FrameWriter):
    """One array [N, H, W, ...] in a .npy file for each camera and output.

    Written by the file's descriptor, not by a memory map: a full disk is an error then, and no SIGBUS.
    """

    def __init__(self, out: Path, forms: Mapping[str, Form], count: int) -> None:
        is_one = len(forms) == 1
        self._paths = {name: out if is_one else out.with_name(f"{out.stem}.{name}{out.suffix}") for name in forms}
        self._frame_bytes = {name: form.size_bytes for name, form in forms.items()}
        self._headers = {name: _npy_header(form, count) for name, form in forms.items()}
        self._count = count
        self._descriptors: dict[str, int] = {}

    def write(self, first: int, frames: Mapping[str, np.ndarray]) -> None:
        """Write frames at their places."""
        for name, array in frames.items():
            descriptor, size = self._open(name), self._frame_bytes[name]
            place = len(self._headers[name]) + first * size
            data = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            while len(data):
                written = os.pwrite(descriptor, data, place)
                data, place = data[written:], place + written

    def resume(self, noted: int) -> int:
        """Return the number if all files are there, begun or, with all frames, in their places."""
        is_there = all(
            partial_path(path).exists() or (noted == self._count and path.exists()) for path in self._paths.values()
        )
        return noted if is_there else 0

    def flush(self, done: int) -> int:
        """Flush all files to the disk."""
        for descriptor in self._descriptors.values():
            os.fsync(descriptor)
        return done

    def finish(self, arguments: Mapping[str, Any]) -> list[Path]:
        """Rename the files, one after the other."""
        self._close()
        for path in self._paths.values():
            if partial_path(path).exists():  # else a run before was killed after it had renamed this one
                partial_path(path).replace(path)
        return list(self._paths.values())

    def remove(self) -> None:
        """Remove the files that were begun."""
        self._close()
        for path in self._paths.values():
            partial_path(path).unlink(missing_ok=True)

    def find_existing(self) -> list[Path]:
        """Return the files that exist."""
        return [path for path in self._paths.values() if path.exists()]

    def _open(self, name: str) -> int:
        if name not in self._descriptors:
            path = partial_path(self._paths[name])
            descriptor = self._descriptors[name] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            header = self._headers[name]
            os.pwrite(descriptor, header, 0)
            os.ftruncate(descriptor, len(header) + self._count * self._frame_bytes[name])
        return self._descriptors[name]

    def _close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def _npy_header(form: Form, count: int) -> bytes:
    about = {"descr": np.dtype(form.dtype).str, "fortran_order": False, "shape": (count, *form.shape)}
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()


class PngFrames(FrameWriter):
    """A PNG file for each frame, named by the number of its state; several cameras or outputs in sub-directories."""

    def __init__(
        self, out: Path, names: Sequence[str], first_state: int, count: int, about: Mapping[str, object]
    ) -> None:
        """Take the number that the first state has in its file, and the content of the file that describes all."""
        self._out, self._names, self._first_state, self._about = out, names, first_state, about
        self._digits = max(_MIN_DIGITS, len(str(first_state + count - 1)))
        self._partial = partial_path(out)
        self._unflushed: list[Path] = []
        self._pool = ThreadPoolExecutor(min(_MAX_THREADS, len(os.sched_getaffinity(0))), "worldloom-png-writer")

    def write(self, first: int, frames: Mapping[str, np.ndarray]) -> None:
        """Encode and write frames in several threads."""
        if not self._partial.exists():
            begin_partial(self._out)
        for name, array in frames.items():
            folder = self._folder(self._partial, name)
            folder.mkdir(exist_ok=True)
            paths = [folder / self._file_name(first + k) for k in range(len(array))]
            images = as_png_pixels(array, name)
            self._unflushed += paths
            list(self._pool.map(_write_png, paths, images, chunksize=16))

    def resume(self, noted: int) -> int:
        """Return the number if the last of the files is there."""
        last = self._file_name(noted - 1)
        if not (noted and all((self._folder(self._partial, name) / last).exists() for name in self._names)):
            if self._partial.exists():
                shutil.rmtree(self._partial)
            return 0
        return noted

    def flush(self, done: int) -> int:
        """Flush all files to the disk that were written since the last time."""
        list(self._pool.map(flush, self._unflushed, chunksize=16))
        self._unflushed.clear()
        return done

    def finish(self, arguments: Mapping[str, Any]) -> list[Path]:
        """Add the file that describes the others, and rename the directory."""
        self._pool.shutdown()
        (self._partial / FRAMES_FILE).write_text(json.dumps(self._about, indent=2) + "\n")
        put_in_place(self._out, arguments)
        return [self._out]

    def remove(self) -> None:
        """Remove the directory that was begun."""
        self._pool.shutdown()
        if self._partial.exists():
            shutil.rmtree(self._partial)

    def find_existing(self) -> list[Path]:
        """Return the directory if it has files; ValueError if these are no frames."""
        if not self._out.exists() or (self._out.is_dir() and not any(self._out.iterdir())):
            return []
        if not (self._out / FRAMES_FILE).exists():
            raise ValueError(
                f"{self._out} exists and has no {FRAMES_FILE}: expected a new or empty directory, or one that "
                "`worldloom render` wrote"
            )
        return [self._out]

    def _folder(self, directory: Path, name: str) -> Path:
        return directory / name if len(self._names) > 1 else directory

    def _file_name(self, frame: int) -> str:
        return f"{self._first_state + frame:0{self._digits}d}.png"


def as_png_pixels(frames: np.ndarray, name: str) -> np.ndarray:
    """Return frames as PNG files have them.

    Depth is whole millimetres up to 65.535 m, normals are colours, all others are as they are.
    """
    if name.endswith(".normals"):
        return normal_colors(frames)
    if not name.endswith(".depth"):
        return frames
    return np.rint(np.clip(frames * 1000.0, 0, _MAX_MILLIMETRES)).astype(np.uint16)


def _write_png(path: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels).save(path, "PNG", compress_level=1)


class FilmFrames(FrameWriter):
    """A GIF or WebP file, with several cameras and outputs side by side. Its frames are in memory until the end."""

    def __init__(self, out: Path, forms: Mapping[str, Form], count: int, fps: float) -> None:
        """Set memory aside; ValueError if it would be too much."""
        height, width = next(iter(forms.values())).shape[:2]
        state_bytes = sum(form.size_bytes + height * width * 3 for form in forms.values())
        most = _MAX_FILM_BYTES // state_bytes
        if count > most:
            raise ValueError(
                f"a film of {count:,} states: expected at most {most:,} of this size, as they have to be in memory at "
                "once; choose some with --range A:B, or write a .npy file or a directory"
            )
        self._out, self._fps = out, fps
        self._frames = {name: np.empty((count, *form.shape), form.dtype) for name, form in forms.items()}

    def write(self, first: int, frames: Mapping[str, np.ndarray]) -> None:
        """Keep frames."""
        for name, array in frames.items():
            self._frames[name][first : first + len(array)] = array

    def resume(self, noted: int) -> int:
        """Return 0: there is no file before the end."""
        return 0

    def flush(self, done: int) -> int:
        """Return 0: there is no file before the end."""
        return 0

    def finish(self, arguments: Mapping[str, Any]) -> list[Path]:
        """Encode the film, and put it into its place."""
        shown = [frame_colors(array, name.rpartition(".")[2]) for name, array in self._frames.items()]
        film = np.concatenate(shown, axis=2)
        partial = partial_path(self._out)
        with partial.open("wb") as file:
            if self._out.suffix == ".gif":
                write_gif(file, film, 1 / self._fps)
            else:
                images = [Image.fromarray(frame) for frame in film]
                duration_ms = max(1, round(1000 / self._fps))
                images[0].save(
                    file,
                    "WEBP",
                    save_all=True,
                    append_images=images[1:],
                    duration=duration_ms,
                    loop=0,
                    quality=_WEBP_QUALITY,
                )
        partial.replace(self._out)
        return [self._out]

    def remove(self) -> None:
        """Remove what was begun."""
        partial_path(self._out).unlink(missing_ok=True)

    def find_existing(self) -> list[Path]:
        """Return the file if it exists."""
        return [self._out] if self._out.exists() else []
