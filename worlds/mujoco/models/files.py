"""Model files, read from directories that the operator allows and from nowhere else.

Each file is read after a check that its real path is inside an allowed directory.
"""

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path, PurePath

import mujoco

from worldloom.worlds.mujoco.models.reader import ModelReader
from worldloom.worlds.mujoco.simulation.library import free_compiler_memory
from worldloom.worlds.settings import SettingError, abbreviate

MAX_FILES = 4096
MAX_BYTES = 1 << 30
"""Limits for all files of one model together."""

_OFFERED = "object:"
"""Beginning of the names of models that were offered, unlike that of any file."""

_allowed_dirs: list[Path] = []


def allow_model_dirs(directories: Iterable[str | os.PathLike[str]]) -> None:
    """Allow this process to read models from these directories and below; earlier ones are no longer allowed."""
    found = [Path(directory).resolve() for directory in directories]
    for directory in found:
        if not directory.is_dir():
            raise ValueError(f"model directory {str(directory)!r}: expected an existing directory")
    _allowed_dirs[:] = found


_offered: dict[str, mujoco.MjModel] = {}
_numbers = count()


def offer_model(model: mujoco.MjModel) -> str:
    """Have this process know a model of its own, and return the name that `load_model` finds it by."""
    name = f"{_OFFERED}{next(_numbers)}"
    _offered[name] = model
    return name


def withdraw_model(name: str) -> None:
    """Forget a model that was offered. Families that use it keep it."""
    _offered.pop(name, None)


def load_model(name: str) -> mujoco.MjModel:
    """Return the model in a file, named relative to an allowed directory; raise SettingError if it cannot be loaded.

    Also a model that was offered, by its name.
    """
    if name in _offered:
        return _offered[name]
    if not _allowed_dirs:
        raise SettingError(
            f"setting 'model' is {abbreviate(name)}: this server allows no model directory; start it with "
            "--model-dir DIRECTORY"
        )
    files = _AllowedFiles()
    path = next((found for root in _allowed_dirs if (found := files.find(root, name)) is not None), None)
    if path is None or not name.endswith(".xml"):
        raise SettingError(
            f"setting 'model' is {abbreviate(name)}: expected an .xml file in a directory that the server allows "
            "(--model-dir), by its path from there"
        )
    try:
        reader = ModelReader(files, MAX_FILES, MAX_BYTES)
        return compile_model(reader.read_model(path), reader.files)
    except ValueError as error:
        raise SettingError(f"setting 'model' is {abbreviate(name)}, which cannot be loaded: {error}") from None


def compile_model(xml: str, files: dict[str, bytes]) -> mujoco.MjModel:
    """Return the compiled model; raise ValueError with one line if MuJoCo refuses it."""
    try:
        return mujoco.MjModel.from_xml_string(xml, files)
    except (ValueError, mujoco.FatalError) as error:
        raise ValueError("; ".join(str(error).split("\n"))) from None
    finally:
        free_compiler_memory()


class _AllowedFiles:
    """Files in the allowed directories, by their real paths."""

    missing_text = (
        "which does not exist or is outside of the directories that the server allows: expected a file in one of them, "
        "by a path relative to the model"
    )

    def find(self, folder: PurePath, name: str) -> Path | None:
        """Return the real path of a file named relative to a folder; None unless it is in an allowed directory."""
        try:
            if Path(name).is_absolute():
                return None
            path = Path(folder, name).resolve()
            return path if path.is_file() and any(path.is_relative_to(root) for root in _allowed_dirs) else None
        except (OSError, ValueError):  # names too long, or with a zero byte
            return None

    def read(self, path: PurePath, max_bytes: int) -> bytes:
        """Return the first bytes of a file; raise ValueError if it cannot be read."""
        try:
            with Path(path).open("rb") as file:
                return file.read(max_bytes)
        except OSError as error:
            raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None
