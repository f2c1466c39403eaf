"""Model files, read from directories that the operator allows and from nowhere else.

MuJoCo would open whatever file a model refers to: other models, meshes, textures, by any path. So this module reads the
files itself, each after a check that its real path is inside an allowed directory, and hands their contents to MuJoCo
under new names. The model that MuJoCo compiles refers to these names only.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import mujoco

from worldloom.worlds.mujoco.simulation.library import free_compiler_memory
from worldloom.worlds.settings import SettingError, abbreviate

MAX_FILES = 4096
MAX_BYTES = 1 << 30
"""Limits for all files of one model together."""

_allowed_dirs: list[Path] = []


def allow_model_dirs(directories: Iterable[str | os.PathLike[str]]) -> None:
    """Allow this process to read models from these directories and below; earlier ones are no longer allowed."""
    found = [Path(directory).resolve() for directory in directories]
    for directory in found:
        if not directory.is_dir():
            raise ValueError(f"model directory {str(directory)!r}: expected an existing directory")
    _allowed_dirs[:] = found


def load_model(name: str) -> mujoco.MjModel:
    """Return the model in a file, named relative to an allowed directory; raise SettingError if it cannot be loaded."""
    if not _allowed_dirs:
        raise SettingError(
            f"setting 'model' is {abbreviate(name)}: this server allows no model directory; start it with "
            "--model-dir DIRECTORY"
        )
    path = next((found for root in _allowed_dirs if (found := _resolve_inside(root, name)) is not None), None)
    if path is None or not name.endswith(".xml"):
        raise SettingError(
            f"setting 'model' is {abbreviate(name)}: expected an .xml file in a directory that the server allows "
            "(--model-dir), by its path from there"
        )
    try:
        reader = _ModelReader()
        content = reader.read_model(path)
        return mujoco.MjModel.from_xml_string(content, reader.files)
    except (ValueError, mujoco.FatalError) as error:
        problem = "; ".join(str(error).split("\n"))  # MuJoCo's errors have several lines
        raise SettingError(f"setting 'model' is {abbreviate(name)}, which cannot be loaded: {problem}") from None
    finally:
        free_compiler_memory()


def _resolve_inside(folder: Path, name: str) -> Path | None:
    """Return the real path of a file named relative to a folder; None unless it is in an allowed directory."""
    try:
        if Path(name).is_absolute():
            return None
        path = (folder / name).resolve()
        return path if path.is_file() and any(path.is_relative_to(root) for root in _allowed_dirs) else None
    except (OSError, ValueError):  # names too long, or with a zero byte
        return None


@dataclass
class _ModelReader:
    """Reader of one model: the contents of its files, by the names that MuJoCo gets them under."""

    files: dict[str, bytes] = field(default_factory=dict)
    _names: dict[Path, str] = field(default_factory=dict)
    _bytes_read: int = 0
    _files_read: int = 0

    def read_model(self, path: Path) -> str:
        """Return the XML of a model with all its includes inserted, and read the files that it refers to."""
        root = self._parse(path)
        if root.tag != "mujoco":
            raise ValueError(f"{path.name} has the root element <{root.tag}>: expected <mujoco>")
        source_dirs: dict[Element, Path] = {}
        self._insert_includes(root, path.parent, path.parent, source_dirs, [path])
        asset_dirs = _pop_asset_dirs(root)
        for element in root.iter():
            for attribute in [name for name in element.attrib if name.startswith("file")]:
                given = element.attrib[attribute]
                name = os.path.basename(given) if asset_dirs.strip else given
                asset_dir = asset_dirs.textures if element.tag == "texture" else asset_dirs.meshes
                bases = (path.parent, source_dirs.get(element, path.parent))
                names = [os.path.join(folder, name) for folder in dict.fromkeys((asset_dir, ""))]
                found = self._find(path, given, [(base, candidate) for base in bases for candidate in names])
                element.attrib[attribute] = self._read_file(found, is_model=element.tag == "model")
        return ElementTree.tostring(root, encoding="unicode")

    def _insert_includes(
        self,
        element: Element,
        main_dir: Path,
        source_dir: Path,
        source_dirs: dict[Element, Path],
        including: list[Path],
    ) -> None:
        """Replace <include> elements by what they include, and note the directory that each element comes from.

        `including`: the files that include each other down to this element, the model's own first.
        """
        source_dirs[element] = source_dir
        children: list[Element] = []
        for child in element:
            if child.tag != "include":
                self._insert_includes(child, main_dir, source_dir, source_dirs, including)
                children.append(child)
                continue
            given = child.attrib.get("file", "")
            path = self._find(including[-1], given, [(source_dir, given), (main_dir, given)])
            if path in including:
                raise ValueError(
                    f"{including[-1].name} includes {path.name}, which includes it: expected no circular includes"
                )
            included = self._parse(path)
            self._insert_includes(included, main_dir, path.parent, source_dirs, [*including, path])
            children.extend(included)
        element[:] = children

    def _read_file(self, path: Path, is_model: bool) -> str:
        """Read a file that the model refers to, unless it was read before, and return its new name."""
        if path not in self._names:
            name = path.name if path.name not in self.files else f"{len(self.files)}-{path.name}"
            self._names[path] = name
            self.files[name] = b""  # reserves the name while a model is read, which may refer to further files
            self.files[name] = self.read_model(path).encode() if is_model else self._read(path)
        return self._names[path]

    def _find(self, referrer: Path, given: str, candidates: Iterable[tuple[Path, str]]) -> Path:
        found = next((path for folder, name in candidates if (path := _resolve_inside(folder, name)) is not None), None)
        if found is None:
            raise ValueError(
                f"{referrer.name} refers to {abbreviate(given)}, which does not exist or is outside of the directories "
                "that the server allows: expected a file in one of them, by a path relative to the model"
            )
        return found

    def _parse(self, path: Path) -> Element:
        try:
            return ElementTree.fromstring(self._read(path))
        except ElementTree.ParseError as error:
            raise ValueError(f"{path.name} is not valid XML: {error}") from None

    def _read(self, path: Path) -> bytes:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES - self._bytes_read + 1)
        except OSError as error:
            raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None
        self._bytes_read += len(content)
        self._files_read += 1
        if self._bytes_read > MAX_BYTES or self._files_read > MAX_FILES:
            raise ValueError(f"it has more than {MAX_FILES} files or {MAX_BYTES} bytes: expected a smaller model")
        return content


@dataclass
class _AssetDirs:
    """Directories of a model's files, from its <compiler> elements."""

    meshes: str = ""
    textures: str = ""
    strip: bool = False
    """True if directories in file names are ignored."""


def _pop_asset_dirs(root: Element) -> _AssetDirs:
    """Remove the asset directories from a model and return them: its file names are complete afterwards."""
    found = _AssetDirs()
    for compiler in _compilers(root):
        both = compiler.attrib.pop("assetdir", None)
        found.meshes = compiler.attrib.pop("meshdir", found.meshes if both is None else both)
        found.textures = compiler.attrib.pop("texturedir", found.textures if both is None else both)
        found.strip = compiler.attrib.pop("strippath", "true" if found.strip else "false") == "true"
    return found


def _compilers(root: Element) -> Iterator[Element]:
    return (child for child in root if child.tag == "compiler")
