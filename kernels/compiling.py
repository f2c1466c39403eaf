"""How kernels are compiled: one decorator with the options, one cache on disk, one place that tells people to wait.

numba's own cache notices a change in a kernel's file but not in the files it calls into, so ours is kept in a folder
named after the content of this whole room, the versions and the processor: any change starts a fresh one.
"""

import hashlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

import llvmlite.binding as llvm
import numba
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"_nrt": False, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
"""No memory management (kernels allocate nothing, and counting references to arrays at every call took 40 % of the
time), no GIL, no exceptions for divisions by zero, and of fast-math only what keeps NaN and infinity honest."""

_functions: set[str] = set()
"""Every function that one of the decorators below was put on."""


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
    return _compiled(function, **_OPTIONS)


def brief(function: Function) -> Function:
    """The same for what takes microseconds, and keeps the GIL: getting that back can take longer than the work."""
    return _compiled(function, **{**_OPTIONS, "nogil": False})


def inlined(function: Function) -> Function:
    """Compile for use inside kernels only; its body becomes part of theirs."""
    _functions.add(_name(function))
    compiled: Function = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def called(function: Function) -> Function:
    """Compile for use inside kernels only, as a function of its own: for large bodies with several callers."""
    _functions.add(_name(function))
    compiled: Function = numba.njit(**_OPTIONS)(function)
    return compiled


def _compiled(function: Function, **options: Any) -> Function:
    _functions.add(_name(function))
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_FOLDER)
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


_announced: list[object] = []
"""Whoever has told people to wait: the headline is said once."""


class _Progress(event.Listener):  # type: ignore[misc]
    """Counts our functions as they are compiled and says so, from the first one on."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.done: set[str] = set()
        self.began_s = 0.0

    def on_start(self, event: Any) -> None:
        if not self.began_s and _name(event.data["dispatcher"].py_func) in _functions:
            self.began_s = time.monotonic()
            if not _announced:
                print("worldloom: compiling its kernels, once on this machine", file=self.stream)

    def on_end(self, event: Any) -> None:
        name = _name(event.data["dispatcher"].py_func)
        if name in _functions and name not in self.done:
            self.done.add(name)
            count = f"worldloom: compiled {len(self.done)} of {len(_functions)} functions"
            if self.stream.isatty():
                print(f"\r{count}", end="", file=self.stream, flush=True)
            elif len(self.done) % 8 == 0:
                print(count, file=self.stream, flush=True)

    def finish(self) -> None:
        """The last word, if there was a first."""
        if self.began_s:
            newline = "\n" if self.stream.isatty() else ""
            took = f"in {time.monotonic() - self.began_s:.0f} s"
            said = f"{len(self.done)} more {took}" if _announced else f"{took}, kept in {CACHE_FOLDER}"
            print(f"{newline}worldloom: compiled {said}", file=self.stream, flush=True)
            _announced.append(self)


@contextmanager
def announce_compiling(stream: TextIO | None = None) -> Iterator[None]:
    """Tell whoever waits that kernels are being compiled, and how far it is; silent when they come from the cache."""
    progress = _Progress(stream or sys.stderr)
    with event.install_listener("numba:compile", progress):
        yield
    progress.finish()
