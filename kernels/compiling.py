"""How kernels are compiled: one decorator with the options, one cache on disk, one place that tells people to wait.

numba's own cache notices a change in a kernel's file, but not in the files that it calls into. So the kernels of each
module are kept in a folder named after the content of that module and of those that it takes kernels and constants
from, wherever they lie: a change to one of them starts a fresh folder, and no other change does.
"""

import functools
import hashlib
import importlib.util
import os
import re
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

_COMPILER = (numba.__version__, llvm.llvm_version_info, sys.version_info[:3], llvm.get_host_cpu_name())
_PACKAGE = __name__.rpartition(".")[0] + "."
_IMPORT = re.compile(r"^from (worldloom\.[\w.]+) import ", re.MULTILINE)

_functions: set[str] = set()
"""Every function that one of the decorators below was put on."""


def holds_kernels(source: str) -> bool:
    """Tell from its source whether a module defines kernels: it then imports a decorator of this module."""
    return "from worldloom.kernels.compiling import" in source


@functools.cache
def fingerprint(module: str) -> str:
    """Hash all that the machine code of a module's kernels depends on.

    That is its source, the sources of the modules with kernels or constants for kernels that it imports, directly or
    not, the versions of the compiler, and the processor.
    """
    digest = hashlib.sha256(repr(_COMPILER).encode())
    for name in sorted(kernel_modules(module)):
        digest.update(name.encode() + b"\0" + _source(name).encode())
    return digest.hexdigest()[:16]


def kernel_modules(module: str) -> set[str]:
    """Return a module and those that it imports, directly or not, that hold kernels or are part of this package."""
    found, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            imported = {match[1] for match in _IMPORT.finditer(_source(name))}
            waiting += [other for other in imported if other.startswith(_PACKAGE) or holds_kernels(_source(other))]
    return found


@functools.cache
def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    return "" if spec is None or spec.origin is None else Path(spec.origin).read_text()


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
    folder = (Path(chosen) if chosen else Path(home) / "worldloom") / "kernels"
    if _writable(folder):
        return folder
    fallback = Path(tempfile.gettempdir()) / f"worldloom-{os.getuid()}" / "kernels"
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
    module = function.__module__
    numba.config.CACHE_DIR = str(CACHE_FOLDER / f"{module.removeprefix('worldloom.')}-{fingerprint(module)}")
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
