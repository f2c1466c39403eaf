"""Models on the client's disk, made ready to be uploaded: the text, and an archive of the files that it refers to.

    xml, files = collect_model("robots/arm.xml")
    env = VectorEnv("server:9000", "mujoco", num_envs=64, settings={"xml": xml, "files": files})

This needs no MuJoCo. It looks for files where MuJoCo does: relative to the model, to the directories of its <compiler>,
and to the file that refers to them.
"""

import io
import os
import posixpath
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_MODEL_TAGS = ("include", "model")
"""Elements that refer to other XML files."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""Date of all files in an archive: the same files give the same bytes."""


def collect_model(source: str | os.PathLike[str], assets: Mapping[str, bytes] | None = None) -> tuple[str, bytes]:
    """Return the settings `xml` and `files` of a model: its text, and a ZIP archive of its files.

    `source`: the path of an .xml or .urdf file, whose files are read from the disk; or the text of a model. `assets`:
    contents by name, for a text: its files. ValueError: a file is missing, or lies outside of the model's directory.
    """
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return source, _pack({posixpath.normpath(name): content for name, content in (assets or {}).items()})
    if assets is not None:
        raise ValueError(f"assets are given with the path {str(source)!r}: expected them with the text of a model only")
    path = Path(source)
    text = _read_text(path)
    files: dict[str, bytes] = {}
    _Collector(path.parent, files).add_references(path.name, text)
    return text, _pack(files)


class _Collector:
    """Collector of the files of one model, by their paths relative to its directory."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self._folder, self._files = folder, files
        self._main_dir = ""
        self._asset_dirs: dict[str, str] = {}

    def add_references(self, name: str, text: str) -> None:
        """Add all files that this model refers to, and those that they refer to."""
        self._main_dir = posixpath.dirname(name)
        trees = {name: _parse(name, text)}
        for included in self._includes(name, trees[name]):
            if included not in trees:
                trees[included] = self._add_model(included)
        # The last <compiler> wins, as in MuJoCo, wherever it is.
        self._asset_dirs = _asset_dirs(trees.values())
        for source, root in trees.items():
            for element in root.iter():
                for attribute, given in element.attrib.items():
                    if attribute.startswith("file") and element.tag != "include":
                        self._add_file(source, element, given)

    def _includes(self, name: str, root: Element, including: tuple[str, ...] = ()) -> Iterator[str]:
        """Yield the files that are included, directly or by others."""
        for element in root.iter("include"):
            found = self._find(name, element.attrib.get("file", ""), [posixpath.dirname(name), self._main_dir])
            if found in (*including, name):
                raise ValueError(f"{name} includes {found}, which includes it: expected no circular includes")
            yield found
            yield from self._includes(found, _parse(found, _read_text(self._folder / found)), (*including, name))

    def _add_file(self, source: str, element: Element, given: str) -> None:
        directory = self._asset_dirs["texture" if element.tag == "texture" else "mesh"]
        name = posixpath.basename(given) if self._asset_dirs["strip"] else given
        folders = [self._main_dir, posixpath.dirname(source)]
        places = [posixpath.join(folder, inner) for folder in folders for inner in (directory, "")]
        found = self._find(source, name, places)
        if found in self._files:
            return
        if element.tag in _MODEL_TAGS:
            self._add_model(found)
            _Collector(self._folder, self._files).add_references(found, self._files[found].decode())
        else:
            self._files[found] = (self._folder / found).read_bytes()

    def _add_model(self, name: str) -> Element:
        text = _read_text(self._folder / name)
        self._files[name] = text.encode()
        return _parse(name, text)

    def _find(self, referrer: str, given: str, folders: Iterable[str]) -> str:
        """Return the path of a file from the model's directory."""
        places = [posixpath.normpath(posixpath.join(folder, given)) for folder in folders]
        for place in places:
            if not place.startswith(("../", "/")) and (self._folder / place).is_file():
                return place
        raise ValueError(
            f"{referrer} refers to {given!r}, which is not in the model's directory: expected a file in "
            f"{str(self._folder)!r}, by a relative path; move the model beside its files"
        )


def _asset_dirs(roots: Iterable[Element]) -> dict[str, str]:
    """Return the directories of meshes and textures, and `strip`, not empty if directories of files are ignored."""
    found = {"mesh": "", "texture": "", "strip": ""}
    for root in roots:
        if root.tag == "robot":
            found["strip"] = "true"
        for compiler in root.iter("compiler"):
            given = compiler.attrib
            found["mesh"] = given.get("meshdir", given.get("assetdir", found["mesh"]))
            found["texture"] = given.get("texturedir", given.get("assetdir", found["texture"]))
            if "strippath" in given:
                found["strip"] = "true" if given["strippath"] == "true" else ""
    return found


def _parse(name: str, text: str) -> Element:
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"{name} is not valid XML: {error}") from None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from None


def _pack(files: Mapping[str, bytes]) -> bytes:
    """Return a ZIP archive of files by name, the same bytes for the same files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
