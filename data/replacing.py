"""Directories that take the place of others at once, where nothing is lost that is not replaced.

A directory is written as `OUT.partial`. When it is complete it gets a marker, then it is exchanged with `OUT`, so that
`OUT.partial` is the old one. What does not belong to the layout of that, such as notes, is renamed into the new one,
and the rest is removed. A run may be killed at any moment: the marker in `OUT` tells the next one that the exchange has
happened, and which run has made it, even if that has replaced the very dataset that it had read.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from worldloom.data.errors import DamagedDataset, DatasetError
from worldloom.kernels.outputs import OUTPUT_NAMES

PARTIAL_SUFFIX = ".partial"
FRAMES_FILE = "frames.json"
"""File in a directory of PNG files that says what they are."""
MARKER_FILE = ".render.json"
"""File in a new directory with the arguments of the run that wrote it, until nothing is left to do."""
_INDEX_FILE, _SUMMARIES = "index.jsonl", ("README.md", "contact_sheet.png", "film.gif")
"""Files of datasets, as in `data/layout.py`: the index, and those that show the rest to people."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class _Layout(NamedTuple):
    """Paths in a directory that belong to what worldloom writes there, as regular expressions."""

    files: re.Pattern[str]
    folders: re.Pattern[str]
    """Directories that have such files; all others are somebody else's."""


_PART = r"(parts/\d+/)?"
_CAMERA = rf"[^/]+\.({'|'.join(OUTPUT_NAMES)})"
_MARKER = re.escape(MARKER_FILE)
_LAYOUTS = {
    "dataset": _Layout(  # as in `data/layout.py`, which needs an extra
        re.compile(
            rf"{_PART}(dataset\.json|index\.jsonl|README\.md|contact_sheet\.png|film\.gif|policy_\w+\.state|{_MARKER}"
            r"|shards/\d+\.parquet|shards/\d+(\.tmp)?/.+\.npy)(\.tmp)?"
        ),
        re.compile(rf"parts|parts/\d+|{_PART}shards|{_PART}shards/\d+(\.tmp)?"),
    ),
    "png": _Layout(
        re.compile(rf"({re.escape(FRAMES_FILE)}|{_MARKER})(\.tmp)?|({_CAMERA}/)?\d{{6,}}\.png"), re.compile(_CAMERA)
    ),
}
"""Layouts by kind of output."""


def partial_path(path: Path) -> Path:
    """Return the path beside a file or directory that it is written at."""
    return path.with_name(path.name + PARTIAL_SUFFIX)


def begin_partial(out: Path) -> Path:
    """Create the directory that is written before it replaces another, with the other's permissions; return it."""
    partial = partial_path(out)
    partial.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        status = out.stat()
        with contextlib.suppress(PermissionError):  # only the superuser gives files away
            os.chown(partial, status.st_uid, status.st_gid)
        partial.chmod(stat.S_IMODE(status.st_mode))
    return partial


def put_in_place(out: Path, arguments: Mapping[str, Any]) -> None:
    """Replace a directory by the complete one beside it; `arguments` are those of the journal.

    The marker stays, as long as there is a journal: `remove_marker` is the last thing to do.
    """
    new = partial_path(out)
    marker = new / MARKER_FILE
    temporary = marker.with_name(f"{MARKER_FILE}.tmp")
    temporary.write_text(json.dumps(arguments))
    flush(temporary)
    temporary.rename(marker)
    flush(new)
    if out.is_dir() and any(out.iterdir()):
        _exchange(new, out)
    else:
        new.rename(out)
    flush(out.parent)
    finish_replacing(out, arguments)


def finish_replacing(out: Path, arguments: Mapping[str, Any]) -> None:
    """Take everything that is somebody else's from the old directory into the new one, and remove the old one."""
    old = partial_path(out)
    changed = set()
    for path in list(_find_others(old, _LAYOUTS[arguments["as"]])):
        target = out / path.relative_to(old)
        target.parent.mkdir(parents=True, exist_ok=True)
        while os.path.lexists(target):  # made by somebody since the directories were exchanged
            target = target.with_name(f"{target.name}~")
        path.rename(target)
        changed.add(target.parent)
    for folder in changed:
        flush(folder)
    if old.exists():
        shutil.rmtree(old)


def read_marker(out: Path) -> dict[str, Any] | None:
    """Return the arguments of the run that has put a directory in its place and did not end; None if there is none."""
    path = out / MARKER_FILE
    try:
        arguments = json.loads(path.read_bytes())
        if arguments["as"] in _LAYOUTS:
            return dict(arguments)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError):
        pass
    raise DatasetError(
        f"{path} is damaged: expected what worldloom wrote; take your own files from {partial_path(out)}, which is the "
        f"old {out.name}, if it exists, and remove both"
    )


def remove_marker(out: Path) -> None:
    """Remove the marker of a directory; of a file there is none."""
    if out.is_dir():
        (out / MARKER_FILE).unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _find_others(directory: Path, layout: _Layout, inner: str = "") -> Iterator[Path]:
    """Yield the files and directories that do not belong to a layout."""
    folder = directory / inner
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        name = path.relative_to(directory).as_posix()
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder and layout.folders.fullmatch(name) and not (path / FRAMES_FILE).exists():
            yield from _find_others(directory, layout, name)
        elif is_folder or not layout.files.fullmatch(name) or not _is_as_written(path):
            yield path


def _is_as_written(path: Path) -> bool:
    """Return False for a card, contact sheet or film that the index of its dataset does not have with these contents.

    Without an index, the directory is being removed, and everything else has been taken from it.
    """
    if path.name not in _SUMMARIES or not path.with_name(_INDEX_FILE).exists():
        return True
    from worldloom.data.files import checksum_of_file  # which needs an extra
    from worldloom.data.index import read_index

    try:
        end = read_index(path.parent).end
    except DamagedDataset:
        return False
    entries = [] if end is None else [(one.name, one.size_bytes, one.checksum) for one in end.files]
    return (path.name, *checksum_of_file(path)) in entries


def _exchange(one: Path, other: Path) -> None:
    """Exchange two directories at once."""
    library = ctypes.CDLL(None, use_errno=True)
    code = library.renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)
    )
    if code:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}, when {one} was to take the place of {other}")
