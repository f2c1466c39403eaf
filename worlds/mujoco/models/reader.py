"""Reading a model: its XML with all includes inserted, and the contents of all files that it refers to.

MuJoCo would open whatever file a model refers to: other models, meshes, textures, by any path. So the files are read
here, each from a `ModelFiles` that knows which there are, and handed to MuJoCo under new names. The model that MuJoCo
compiles refers to these names only.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Protocol
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from worldloom.worlds.settings import abbreviate

MAX_ELEMENTS = 200_000
MAX_DEPTH = 400
"""Limits for the XML of one model: all its elements, with those of included files, and how deep they are nested."""


class ModelFiles(Protocol):
    """Files that a model may refer to, by paths."""

    missing_text: str
    """End of a sentence about a file that is not among them."""

    def find(self, folder: PurePath, name: str) -> PurePath | None:
        """Return the path of a file named relative to a folder, the same for all names of the file; None if not one."""
        ...

    def read(self, path: PurePath, max_bytes: int) -> bytes:
        """Return the first `max_bytes` bytes of a file that was found."""
        ...


@dataclass
class ModelReader:
    """Reader of one model: the contents of its files, by the names that MuJoCo gets them under.

    Methods raise ValueError for a model that cannot be read, with the reason.
    """

    source: ModelFiles
    max_files: int
    max_bytes: int
    """Limits for all files of the model together."""
    roots: tuple[str, ...] = ("mujoco",)
    """Root elements that a model may have: `mujoco`, and `robot` for URDF."""
    check: Callable[[str, Element], None] | None = None
    """Function of a model's name and root, with all includes; it raises ValueError for a model to be refused."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Contents of the files that the model refers to, by their new names."""
    _names: dict[PurePath, str] = field(default_factory=dict)
    _bytes_read: int = 0
    _files_read: int = 0
    _elements_read: int = 0

    def read_model(self, path: PurePath) -> str:
        """Return the XML of a model with all its includes inserted, and read the files that it refers to."""
        try:
            return self._read_model(path)
        except RecursionError:
            raise ValueError(f"{path.name} is nested too deeply: expected fewer models that refer to others") from None

    def _read_model(self, path: PurePath) -> str:
        root = self._parse(path)
        if root.tag not in self.roots:
            expected = " or ".join(f"<{tag}>" for tag in self.roots)
            raise ValueError(f"{path.name} has the root element <{root.tag}>: expected {expected}")
        source_dirs: dict[Element, PurePath] = {}
        self._insert_includes(root, path.parent, path.parent, source_dirs, [path])
        if self.check is not None:
            self.check(path.name, root)
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
        main_dir: PurePath,
        source_dir: PurePath,
        source_dirs: dict[Element, PurePath],
        including: list[PurePath],
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

    def _read_file(self, path: PurePath, is_model: bool) -> str:
        """Read a file that the model refers to, unless it was read before, and return its new name."""
        if path not in self._names:
            name = path.name if path.name not in self.files else f"{len(self.files)}-{path.name}"
            self._names[path] = name
            self.files[name] = b""  # reserves the name while a model is read, which may refer to further files
            self.files[name] = self._read_model(path).encode() if is_model else self._read(path)
        return self._names[path]

    def _find(self, referrer: PurePath, given: str, candidates: Iterable[tuple[PurePath, str]]) -> PurePath:
        if "://" in given:
            raise ValueError(
                f"{referrer.name} refers to {abbreviate(given)}: expected a path relative to the model instead of a URI"
            )
        found = next((path for folder, name in candidates if (path := self.source.find(folder, name))), None)
        if found is None:
            raise ValueError(f"{referrer.name} refers to {abbreviate(given)}, {self.source.missing_text}")
        return found

    def _parse(self, path: PurePath) -> Element:
        content = self._read(path)
        try:
            self._check_xml(path, content)
            return ElementTree.fromstring(content)
        except (ElementTree.ParseError, expat.ExpatError) as error:
            raise ValueError(f"{path.name} is not valid XML: {error}") from None

    def _check_xml(self, path: PurePath, content: bytes) -> None:
        """Raise ValueError for XML that would take much more memory or stack than its size says."""
        depth = 0

        def begin(_name: str, _attributes: object) -> None:
            nonlocal depth
            depth += 1
            self._elements_read += 1
            if depth > MAX_DEPTH or self._elements_read > MAX_ELEMENTS:
                raise ValueError(
                    f"{path.name} has more than {MAX_ELEMENTS} elements, with those of other files of the model, or "
                    f"more than {MAX_DEPTH} inside each other: expected fewer"
                )

        def end(_name: str) -> None:
            nonlocal depth
            depth -= 1

        def declare_entity(*_: object) -> None:
            raise ValueError(f"{path.name} declares XML entities: expected none")

        parser = expat.ParserCreate()
        parser.StartElementHandler, parser.EndElementHandler = begin, end
        parser.EntityDeclHandler = declare_entity
        parser.Parse(content, True)

    def _read(self, path: PurePath) -> bytes:
        content = self.source.read(path, self.max_bytes - self._bytes_read + 1)
        self._bytes_read += len(content)
        self._files_read += 1
        if self._bytes_read > self.max_bytes or self._files_read > self.max_files:
            raise ValueError(
                f"it has more than {self.max_files} files or {self.max_bytes} bytes: expected a smaller model"
            )
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
    found = _AssetDirs(strip=root.tag == "robot")
    for compiler in _compilers(root):
        both = compiler.attrib.pop("assetdir", None)
        found.meshes = compiler.attrib.pop("meshdir", found.meshes if both is None else both)
        found.textures = compiler.attrib.pop("texturedir", found.textures if both is None else both)
        found.strip = compiler.attrib.pop("strippath", "true" if found.strip else "false") == "true"
    return found


def _compilers(root: Element) -> Iterator[Element]:
    """Yield the <compiler> elements, which URDF has in an element <mujoco>."""
    parents = root.iter("mujoco") if root.tag == "robot" else (root,)
    return (child for parent in parents for child in parent if child.tag == "compiler")
