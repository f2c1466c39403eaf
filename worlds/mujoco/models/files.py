"""Model files, read from directories that the operator allows and from nowhere else.

MuJoCo opens whatever a model refers to: other models, meshes, textures, by any path. So the files are read here, each
after a check of where it really lies, and MuJoCo gets their content by name: what it compiles refers to nothing that is
not among them.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import mujoco

from worldloom.worlds.settings import SettingError, abbreviate

MAX_FILES = 4096
MAX_BYTES = 1 << 30
"""Of all files of a model."""

_allowed: list[Path] = []


def allow(directories: Iterable[str | os.PathLike[str]]) -> None:
    """Let this process read models from these directories and what is below them; no longer from those before."""
    found = [Path(directory).resolve() for directory in directories]
    for directory in found:
        if not directory.is_dir():
            raise ValueError(f"model directory {str(directory)!r}: expected a directory that is there")
    _allowed[:] = found


def load_model(name: str) -> mujoco.MjModel:
    """The model in a file, named from an allowed directory on; SettingError if it cannot be had."""
    if not _allowed:
        raise SettingError(
            f"setting 'model' is {abbreviate(name)}: this server allows no models; start it with --model-dir DIRECTORY"
        )
    path = next((found for root in _allowed if (found := _inside(root, name)) is not None), None)
    if path is None or not name.endswith(".xml"):
        raise SettingError(
            f"setting 'model' is {abbreviate(name)}: expected an .xml file in a directory that the server allows "
            "(--model-dir), named from there"
        )
    try:
        reading = _Reading()
        content = reading.model(path)
        return mujoco.MjModel.from_xml_string(content, reading.files)
    except (ValueError, mujoco.FatalError) as error:
        problem = "; ".join(str(error).split("\n"))  # MuJoCo says it in several lines
        raise SettingError(f"setting 'model' is {abbreviate(name)}, which cannot be used: {problem}") from None


def _inside(folder: Path, name: str) -> Path | None:
    """A file by its name from a folder on, where it really is; None unless it is in an allowed directory."""
    try:
        if Path(name).is_absolute():
            return None
        path = (folder / name).resolve()
        return path if path.is_file() and any(path.is_relative_to(root) for root in _allowed) else None
    except (OSError, ValueError):  # names too long, or with a zero byte
        return None


@dataclass
class _Reading:
    """One model being read: the content of its files, by the names that MuJoCo gets to know them by."""

    files: dict[str, bytes] = field(default_factory=dict)
    _names: dict[Path, str] = field(default_factory=dict)
    _bytes_read: int = 0
    _files_read: int = 0

    def model(self, path: Path) -> str:
        """A model with all that it includes, in one; what it refers to is read, too."""
        root = self._parse(path)
        if root.tag != "mujoco":
            raise ValueError(f"{path.name} is a <{root.tag}>: expected a <mujoco>")
        homes: dict[Element, Path] = {}
        self._include(root, path.parent, path.parent, homes, [path])
        folders = _take_folders(root)
        for element in root.iter():
            for attribute in [name for name in element.attrib if name.startswith("file")]:
                given = element.attrib[attribute]
                named = os.path.basename(given) if folders.strip else given
                kind = folders.textures if element.tag == "texture" else folders.meshes
                bases = (path.parent, homes.get(element, path.parent))
                tried = [os.path.join(folder, named) for folder in dict.fromkeys((kind, ""))]
                found = self._find(path, given, [(base, one) for base in bases for one in tried])
                element.attrib[attribute] = self._take(found, is_model=element.tag == "model")
        return ElementTree.tostring(root, encoding="unicode")

    def _include(self, element: Element, main: Path, home: Path, homes: dict[Element, Path], above: list[Path]) -> None:
        """Put what is included in its place, and note which folder each element comes from."""
        homes[element] = home
        parts: list[Element] = []
        for child in element:
            if child.tag != "include":
                self._include(child, main, home, homes, above)
                parts.append(child)
                continue
            given = child.attrib.get("file", "")
            path = self._find(above[-1], given, [(home, given), (main, given)])
            if path in above:
                raise ValueError(f"{above[-1].name} includes {path.name}, which includes it: expected no such circle")
            included = self._parse(path)
            self._include(included, main, path.parent, homes, [*above, path])
            parts.extend(included)
        element[:] = parts

    def _take(self, path: Path, is_model: bool) -> str:
        """Read a file; the name that it has from now on."""
        if path not in self._names:
            name = path.name if path.name not in self.files else f"{len(self.files)}-{path.name}"
            self._names[path] = name
            self.files[name] = b""  # so that the name is taken while a model is read
            self.files[name] = self.model(path).encode() if is_model else self._read(path)
        return self._names[path]

    def _find(self, who: Path, given: str, places: Iterable[tuple[Path, str]]) -> Path:
        found = next((path for folder, name in places if (path := _inside(folder, name)) is not None), None)
        if found is None:
            raise ValueError(
                f"{who.name} refers to {abbreviate(given)}, which is not there or outside of the directories that the "
                "server allows: expected a file in one of them, by a path from the model on"
            )
        return found

    def _parse(self, path: Path) -> Element:
        try:
            return ElementTree.fromstring(self._read(path))
        except ElementTree.ParseError as error:
            raise ValueError(f"{path.name} is no XML: {error}") from None

    def _read(self, path: Path) -> bytes:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES - self._bytes_read + 1)
        except OSError as error:
            raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None
        self._bytes_read += len(content)
        self._files_read += 1
        if self._bytes_read > MAX_BYTES or self._files_read > MAX_FILES:
            raise ValueError(f"it takes more than {MAX_FILES} files or {MAX_BYTES} bytes: expected less")
        return content


@dataclass
class _Folders:
    """Where a model says that its files are."""

    meshes: str = ""
    textures: str = ""
    strip: bool = False


def _take_folders(root: Element) -> _Folders:
    """Take a model's folders out of it: the names that it has afterwards are complete."""
    found = _Folders()
    for compiler in _compilers(root):
        both = compiler.attrib.pop("assetdir", None)
        found.meshes = compiler.attrib.pop("meshdir", found.meshes if both is None else both)
        found.textures = compiler.attrib.pop("texturedir", found.textures if both is None else both)
        found.strip = compiler.attrib.pop("strippath", "true" if found.strip else "false") == "true"
    return found


def _compilers(root: Element) -> Iterator[Element]:
    return (child for child in root if child.tag == "compiler")
