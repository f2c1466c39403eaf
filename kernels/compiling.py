"""Compilation of kernels: the decorators with their options, the cache on disk, and the progress that is announced.

numba's own cache notices a change in a kernel's file, but not in the files of functions and constants that the kernel
uses, and would run stale machine code. So the kernels of each module are cached in a folder named after a hash of all
sources that they depend on: a change to one of those starts a new folder, and no other change does.
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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding as llvm
import numba
from numba.core import event

from worldloom.terminal import is_terminal, show_progress

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"_nrt": False, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
"""No reference counting (kernels allocate nothing, and counting at every call took 40 % of the time), no GIL, no
exceptions for divisions by zero, and of fast-math only what keeps NaN and infinity as they are."""

_COMPILER = (numba.__version__, llvm.llvm_version_info, sys.version_info[:3], llvm.get_host_cpu_name())
_PACKAGE = __name__.rpartition(".")[0]
_IMPORT_FROM = re.compile(r"^[ \t]*from ([\w.]+) import (\([^)]*\)|.+)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import ([\w.]+)", re.MULTILINE)
_NAME = re.compile(r"\w+")
_DECORATED = re.compile(r"^@(?:\w+\.)?(?:kernel|kernel_holding_gil|inlined|device_function|intrinsic)\b", re.MULTILINE)

_functions: set[str] = set()
"""Qualified names of all functions that have one of the decorators below."""


@functools.cache
def fingerprint(module: str) -> str:
    """Return a hash of everything that the machine code of a module's kernels depends on.

    That is the sources of `kernel_modules(module)`, the versions of the compiler, and the processor.
    """
    digest = hashlib.sha256(repr(_COMPILER).encode())
    for name in sorted(kernel_modules(module)):
        digest.update(name.encode() + b"\0" + _source(name).encode())
    return digest.hexdigest()[:16]


def kernel_modules(module: str) -> set[str]:
    """Return a module and all others that its kernels may take functions and constants from, directly or not."""
    found, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imported_for_kernels(name)
    return found


@functools.cache
def _imported_for_kernels(module: str) -> frozenset[str]:
    """Return the modules that a module imports and that its kernels may depend on.

    These are modules that hold kernels; and, of worldloom and the module's own package, those of `worldloom.kernels`
    and those that a constant (an upper-case name) or a whole module is imported from. It is read from the import lines:
    parsing whole sources would take a tenth of a second at each start.
    """
    text = _source(module)
    package = module if _is_package(module) else module.rpartition(".")[0]
    package = getattr(sys.modules.get(module), "__package__", None) or package
    roots = {_PACKAGE.partition(".")[0], (package or module).partition(".")[0]}
    found = set()
    for source, names in _IMPORT_FROM.findall(text):
        base = importlib.util.resolve_name(source, package)
        if _holds_kernels(base):
            found.add(base)
        if base.partition(".")[0] not in roots:
            continue
        imported = _NAME.findall(names)
        if base.startswith(f"{_PACKAGE}.") or any(name.isupper() for name in imported):
            found.add(base)
        if _is_package(base):
            found.update(f"{base}.{name}" for name in imported if _source(f"{base}.{name}"))
    found.update(name for name in _IMPORT.findall(text) if name.partition(".")[0] in roots)
    return frozenset(found)


def _holds_kernels(module: str) -> bool:
    """Return whether a module defines functions with a decorator of this module, or intrinsics."""
    return _DECORATED.search(_source(module)) is not None


def _is_package(module: str) -> bool:
    return _file(module).endswith("__init__.py")


@functools.cache
def _source(module: str) -> str:
    """Return the source of a module, empty if it has none that can be read."""
    try:
        return Path(_file(module)).read_text(encoding="utf-8")
    except OSError:
        return ""


@functools.cache
def _file(module: str) -> str:
    """Return the file of a module, empty if it has none; modules that are loaded need no search."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None) or ""
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return ""
    return spec.origin or "" if spec is not None else ""


def _is_writable(folder: Path) -> bool:
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
    if _is_writable(folder):
        return folder
    fallback = Path(tempfile.gettempdir()) / f"worldloom-{os.getuid()}" / "kernels"
    warnings.warn(
        f"the kernel cache {folder} cannot be written; using {fallback} instead. "
        "Set WORLDLOOM_CACHE_DIR to a writable folder to compile only once.",
        stacklevel=2,
    )
    fallback.mkdir(parents=True, exist_ok=True)
    return fallback


CACHE_FOLDER = _cache_folder()


def kernel(function: Function) -> Function:
    """Compile for calls from Python, without the GIL; the machine code is cached on disk."""
    return _compiled(function, **_OPTIONS)


def kernel_holding_gil(function: Function) -> Function:
    """Compile like `kernel`, but hold the GIL: for microseconds of work, acquiring it again can take longer."""
    return _compiled(function, **{**_OPTIONS, "nogil": False})


def inlined(function: Function) -> Function:
    """Compile for calls from kernels only, inlined into them."""
    _functions.add(_name(function))
    compiled: Function = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def device_function(function: Function) -> Function:
    """Compile for calls from kernels only, not inlined: for large bodies and several callers."""
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


_ANNOUNCE_AFTER_S = 1.0
"""Compiling that takes less is not announced: a few functions that a start with a warm cache lacks, such as those of a
family that is used for the first time."""
_announced: list[object] = []
"""Listeners that have announced compiling: the headline is written once in a process."""


class _CompileListener(event.Listener):  # type: ignore[misc]
    """Counts our functions as they are compiled, and reports them on stderr once that has taken a while.

    Kernels call many functions that are compiled with them, so there are events in time while a large one is compiled.
    """

    def __init__(self, cleanup: ExitStack) -> None:
        self._cleanup = cleanup
        self._update: Callable[[float, str], None] | None = None
        self._done: set[str] = set()
        self._began_s: float | None = None

    def on_start(self, event: Any) -> None:
        if _name(event.data["dispatcher"].py_func) in _functions:
            if self._began_s is None:
                self._began_s = time.monotonic()
            self._announce_if_slow()

    def on_end(self, event: Any) -> None:
        name = _name(event.data["dispatcher"].py_func)
        if name not in _functions or name in self._done:
            return
        self._done.add(name)
        self._announce_if_slow()
        if self._update is not None:
            count = f"{len(self._done)} of {len(_functions)} functions"
            self._update(len(self._done) / len(_functions), count)
            if len(self._done) % 8 == 0 and not is_terminal(sys.stderr):
                print(f"worldloom: compiled {count}", file=sys.stderr, flush=True)  # worldloom.server.launch reads it

    def _announce_if_slow(self) -> None:
        if self._update is None and self._elapsed_s() >= _ANNOUNCE_AFTER_S:
            title = "worldloom: compiling its kernels, once on this machine"
            self._update = self._cleanup.enter_context(show_progress(title, plain_lines=False))
            if not _announced and not is_terminal(sys.stderr):
                print(title, file=sys.stderr, flush=True)

    def _elapsed_s(self) -> float:
        """Return the time since the first function, 0 before it."""
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    def finish(self) -> None:
        """Report how long it took, if compiling was announced."""
        if self._update is not None:
            took = f"in {self._elapsed_s():.0f} s"
            result = f"{len(self._done)} more {took}" if _announced else f"{took}, kept in {CACHE_FOLDER}"
            print(f"worldloom: compiled {result}", file=sys.stderr, flush=True)
            _announced.append(self)


@contextmanager
def announce_compiling() -> Iterator[None]:
    """Report on stderr which kernels the block compiles; silent when all come from the cache, or nearly all."""
    with ExitStack() as cleanup:
        listener = _CompileListener(cleanup)
        with event.install_listener("numba:compile", listener):
            yield
    listener.finish()
