"""How kernels are compiled: one decorator with the options, one cache on disk, one place that tells people to wait.

numba's own cache notices a change in a kernel's file but not in the files it calls into, so ours is kept in a folder
named after the content of this whole room, the versions and the processor: any change starts a fresh one.
"""

import hashlib
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding as llvm
import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
"""No GIL, no exceptions for divisions by zero, and of fast-math only what keeps NaN and infinity honest."""


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    versions = (numba.__version__, llvm.llvm_version_info, sys.version_info[:3], llvm.get_host_cpu_name())
    digest.update(repr(versions).encode())
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _cache_folder() -> Path:
    chosen = os.environ.get("WORLDLOOM_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = (Path(chosen) if chosen else Path(home) / "worldloom") / f"kernels-{_fingerprint()}"
    if _writable(folder):
        return folder
    fallback = Path(tempfile.gettempdir()) / f"worldloom-{os.getuid()}" / folder.name
    warnings.warn(
        f"the kernel cache {folder} cannot be written; using {fallback} instead. "
        "Set WORLDLOOM_CACHE_DIR to a folder that can, to compile once only.",
        stacklevel=2,
    )
    fallback.mkdir(parents=True, exist_ok=True)
    return fallback


CACHE_FOLDER = _cache_folder()


def kernel(function: Function) -> Function:
    """Compile for use from Python; the machine code is kept on disk."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_FOLDER)
    try:
        compiled: Function = numba.njit(cache=True, **_OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


def inlined(function: Function) -> Function:
    """Compile for use inside kernels only; its body becomes part of theirs."""
    compiled: Function = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def called(function: Function) -> Function:
    """Compile for use inside kernels only, as a function of its own: for large bodies with several callers."""
    compiled: Function = numba.njit(**_OPTIONS)(function)
    return compiled
