"""Models of MuJoCo in all forms that programs have them in: for an engine in this process, or for a server.

An engine in this process gets the model itself. A server loads one of its own model files by name, or compiles what a
client uploads: the text of the model, and the files that it refers to.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from google.rpc import code_pb2

from worldloom.client.errors import ClientError, ServerError
from worldloom.client.model_files import collect_model
from worldloom.client.world import World

_EXPECTED = (
    "expected the path of an .xml file, the text of one, an MjModel, an MjSpec, a dm_control environment or its name, "
    "such as walker/walk"
)
_TASK = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")


class ModelUpload(NamedTuple):
    """A model for a server: the settings of its upload, and the name under which the server may have it."""

    settings: dict[str, Any] | None
    """Settings of CreateWorld; None if there is nothing to upload."""
    name: str | None
    """Path of the model in a directory of the server's, or its task of dm_control; None if it has none."""


def check_assets(assets: object) -> None:
    """Raise TypeError unless these are contents of files by name, or None."""
    if assets is None:
        return
    if not isinstance(assets, Mapping) or not all(isinstance(content, bytes) for content in assets.values()):
        raise TypeError(f"assets are {type(assets).__name__}: expected a dict of bytes by file name")


def load_model(source: Any, assets: Mapping[str, bytes] | None = None) -> Any:
    """Return the MjModel of a source, a copy of its own; ValueError or TypeError if it is none."""
    mujoco = _import_mujoco()
    physics = getattr(source, "physics", None)  # of an environment of dm_control
    source = source if physics is None else physics.model.ptr
    if isinstance(source, mujoco.MjModel):
        return source.__copy__()
    if isinstance(source, mujoco.MjSpec):
        return source.compile()
    if _is_mjcf_root(source):
        return mujoco.MjModel.from_xml_string(source.to_xml_string(), dict(source.get_assets()))
    is_text = _is_xml_text(source)
    given = source if is_text else str(_existing(source))
    try:
        load = mujoco.MjModel.from_xml_string if is_text else mujoco.MjModel.from_xml_path
        return load(given, dict(assets or {}))
    except (mujoco.FatalError, ValueError) as error:
        raise ValueError(f"the model cannot be loaded: {'; '.join(str(error).split(chr(10)))}") from error


def parse_task(source: Any) -> str | None:
    """Return the name of a task of dm_control, such as walker/walk, given so or as a tuple; None for other sources."""
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(part, str) for part in source):
        source = "/".join(source)
    is_name = isinstance(source, str) and _TASK.fullmatch(source) is not None and not Path(source).exists()
    return source if is_name else None


def prepare_upload(source: Any, assets: Mapping[str, bytes] | None = None) -> ModelUpload:
    """Return what a server needs of a source; ClientError for one that cannot be sent."""
    task = parse_task(source)
    if task is not None:
        return ModelUpload(None, task)
    if isinstance(source, str | os.PathLike) and not _is_xml_text(source):
        path = _as_path(source)
        if not path.is_file():
            return ModelUpload(None, str(path))
        return ModelUpload(_settings(*collect_model(path, assets)), path.as_posix())
    if isinstance(source, str):
        return ModelUpload(_settings(*collect_model(source, assets)), None)
    mjcf = source if _is_mjcf_root(source) else _mjcf_root_of(source)
    if mjcf is not None:
        return ModelUpload(_settings(*collect_model(mjcf.to_xml_string(), mjcf.get_assets())), None)
    if type(source).__name__ == "MjSpec":
        files = {name: bytes(content) for name, content in source.assets.items()}
        return ModelUpload(_settings(*collect_model(source.to_xml(), files)), None)
    if type(source).__name__ == "MjModel" or hasattr(source, "physics"):
        raise ClientError(
            f"a {type(source).__name__} cannot be sent to a server, which compiles models itself: expected the path or "
            "text of its XML, an MjSpec, or the name of a task of dm_control's suite; or the address 'local'"
        )
    raise TypeError(f"model is a {type(source).__name__}: {_EXPECTED}")


def _settings(xml: str, files: bytes) -> dict[str, Any]:
    return {"xml": xml, **({"files": files} if files else {})}


def _mjcf_root_of(source: Any) -> Any:
    """Return the MJCF model of an environment of dm_control's composer, or None."""
    root = getattr(getattr(source, "task", None), "root_entity", None)
    return getattr(root, "mjcf_model", None)


def _is_mjcf_root(source: Any) -> bool:
    return hasattr(source, "to_xml_string") and hasattr(source, "get_assets")


def _is_xml_text(source: Any) -> bool:
    return isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<")


def _existing(source: Any) -> Path:
    path = _as_path(source)
    if not path.is_file():
        problem = "is no file" if str(source) and path.exists() else "does not exist"
        raise ValueError(f"model is {str(source)!r}, which {problem}: {_EXPECTED}")
    return path


def _as_path(source: Any) -> Path:
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"model is a {type(source).__name__}: {_EXPECTED}")
    return Path(source)


def _import_mujoco() -> Any:
    try:
        import mujoco
    except ModuleNotFoundError as error:
        raise ImportError("MuJoCo is not installed: pip install 'worldloom[mujoco]'") from error
    return mujoco


def create_uploaded(create: Callable[[dict[str, Any]], World], upload: ModelUpload) -> World:
    """Create a world of an upload; of the server's own model of that name if it takes no uploads, or has no upload."""
    if upload.settings is None:
        return create({"model": upload.name})
    try:
        return create(upload.settings)
    except ServerError as error:
        if error.code != code_pb2.PERMISSION_DENIED:
            raise
        code, problem = error.code, "it takes no uploaded models: expected one that was started with --allow-uploads"
    if upload.name is None:
        raise ServerError(code, problem)
    try:
        return create({"model": upload.name})
    except ServerError as error:
        raise ServerError(code, f"{problem}, or with this model in a directory of its own ({error.text})") from None
