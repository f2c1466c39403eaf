"""Models that clients upload as settings: the text of the model, and an archive of the files that it refers to.

They are read like models on disk, except that all their files come from the archive. A server compiles them in another
process. In a process of the user's own they are compiled like the user's own files, without limits.
"""

import math
from xml.etree.ElementTree import Element

import mujoco

from worldloom.worlds.mujoco.models.archive import MAX_FILES, MODEL, UploadedFiles, read_archive
from worldloom.worlds.mujoco.models.compiling import compile_in_child
from worldloom.worlds.mujoco.models.files import compile_model
from worldloom.worlds.mujoco.models.reader import ModelReader
from worldloom.worlds.settings import SettingError, SettingTooLargeError
from worldloom.worlds.uploads import upload_rules

MAX_EXPANDED = 100_000
"""Most elements of a model after those that stand for many have been expanded."""
_MULTIPLIED = ("composite", "flexcomp")
"""Elements whose attribute `count` has numbers along each axis."""
_REFUSED = ("plugin", "extension")


def load_uploaded_model(xml: str, archive: bytes, asset_bytes: int = 0) -> mujoco.MjModel:
    """Return an uploaded model; raise SettingError if it is not allowed or cannot be loaded.

    `asset_bytes`: memory of all meshes and textures that there are.
    """
    rules = upload_rules()
    rules.check_allowed("xml")
    if asset_bytes > rules.max_asset_bytes:
        raise SettingTooLargeError(
            f"the meshes and textures of this server take {asset_bytes} bytes: expected {rules.max_asset_bytes} at "
            "most before an upload; use a model that was uploaded before, or restart the server"
        )
    size_bytes = len(xml) + len(archive)
    if size_bytes > rules.max_bytes:
        raise SettingTooLargeError(
            f"settings 'xml' and 'files' have {size_bytes} bytes: expected {rules.max_bytes} at most; send less, or "
            "raise --max-upload-bytes"
        )
    try:
        files = UploadedFiles(xml, read_archive(archive, rules.max_decompressed_bytes))
        reader = ModelReader(
            files, MAX_FILES, rules.max_decompressed_bytes, roots=("mujoco", "robot"), check=_check_elements
        )
        content = reader.read_model(MODEL)
        if rules.is_isolated:
            return compile_in_child(content, reader.files, rules)
        return compile_model(content, reader.files)
    except ValueError as error:
        kind = SettingTooLargeError if isinstance(error, SettingTooLargeError) else SettingError
        raise kind(f"the model in the setting 'xml' cannot be loaded: {error}") from None


def _check_elements(name: str, root: Element) -> None:
    """Raise ValueError for a model with plugins, or with elements that stand for too many others."""
    for tag in _REFUSED:
        if next(root.iter(tag), None) is not None:
            raise ValueError(f"{name} has an element <{tag}>: expected an uploaded model without plugins")
    expanded = _count_expanded(root)
    if expanded > MAX_EXPANDED:
        raise SettingTooLargeError(
            f"{name} has {expanded:g} elements, with those that replicate, composite and flexcomp stand for: expected "
            f"{MAX_EXPANDED} at most"
        )


def _count_expanded(element: Element) -> float:
    """Return the number of elements that an element stands for."""
    inside = sum(_count_expanded(child) for child in element)
    if element.tag == "replicate":
        return 1 + inside * _count(element)
    return 1 + inside + (_count(element) if element.tag in _MULTIPLIED else 0)


def _count(element: Element) -> float:
    """Return the product of an element's counts; 1 for one that MuJoCo will refuse."""
    try:
        numbers = [float(word) for word in element.attrib.get("count", "1").split()]
    except ValueError:
        return 1.0
    return math.prod(max(1.0, number) if number == number else 1.0 for number in numbers)
