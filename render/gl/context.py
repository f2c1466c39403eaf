"""The OpenGL context: its creation, the check of the thread that uses it, and its shader programs.

A context can be current on one thread only, and moderngl does not report calls from another: it crashes or draws
nothing. So the thread that creates a context is remembered, and `current` compares. Other libraries on that thread have
contexts of their own, and free objects in whichever is current when Python collects their garbage: MuJoCo does. So this
one is current only while it is used, and what was current before is so again. Shaders are the files of
`render/shaders`, with `#include "name"` replaced by that file.
"""

import ctypes
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import moderngl

from worldloom.render.devices import EGL_LIBRARY, GL_LIBRARY, explain_missing
from worldloom.render.gl.raw import RawGL

REQUIRED_VERSION = 450
LAYERS_FROM_VERTICES = "GL_ARB_shader_viewport_layer_array"
"""Extension that lets a vertex shader choose the layer; without it, layers need a slow geometry shader."""
_EGL_DRAW, _EGL_READ = 0x3059, 0x305A


class RendererUnavailableError(RuntimeError):
    """A renderer that does not work on this machine; the text says what is missing and what installs it."""


class _CurrentContext:
    """The context that EGL has current on this thread, if any."""

    def __init__(self, egl: ctypes.CDLL) -> None:
        for function in (egl.eglGetCurrentContext, egl.eglGetCurrentDisplay, egl.eglGetCurrentSurface):
            function.restype = ctypes.c_void_p
        self._egl = egl
        self._context = egl.eglGetCurrentContext()
        self.display = egl.eglGetCurrentDisplay()
        self._surfaces = [egl.eglGetCurrentSurface(which) for which in (_EGL_DRAW, _EGL_READ)]

    def restore(self, other: "_CurrentContext") -> None:
        """Have this context current again, or none if there was none, instead of another."""
        if self._context is None:
            self._make_current(other.display, None, None, None)
        else:
            self._make_current(self.display, *self._surfaces, self._context)

    def _make_current(self, *handles: int | None) -> None:
        self._egl.eglMakeCurrent(*map(ctypes.c_void_p, handles))


class GLContext:
    """An OpenGL 4.5 context without a window, on one EGL device."""

    def __init__(self, device: int | None = None) -> None:
        self._owner = threading.current_thread()
        self.closed = False
        settings: dict[str, Any] = {"backend": "egl", "libegl": EGL_LIBRARY, "libgl": GL_LIBRARY}
        if device is not None:
            settings["device_index"] = device
        try:
            self._egl = ctypes.CDLL(EGL_LIBRARY)
            before = _CurrentContext(self._egl)
            self.moderngl = moderngl.create_context(require=REQUIRED_VERSION, standalone=True, **settings)
        except Exception as error:  # moderngl raises bare exceptions
            raise RendererUnavailableError(_explain_failure(device, error)) from error
        self._own = _CurrentContext(self._egl)
        try:
            info = self.moderngl.info
            self.device = f"{info['GL_RENDERER']}, OpenGL {info['GL_VERSION']}"
            """Name of the device, as its driver reports it."""
            if LAYERS_FROM_VERTICES not in self.moderngl.extensions:
                self.moderngl.release()
                raise RendererUnavailableError(
                    f"the OpenGL driver of {self.device} lacks {LAYERS_FROM_VERTICES}, which drawing many views at "
                    "once needs: use the cpu renderer, another device, or a newer driver"
                )
            self.raw = RawGL(self.moderngl.mglo._context.load)
        finally:
            before.restore(self._own)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Have this context current in a block; RuntimeError if the calling thread may not use it."""
        caller = threading.current_thread()
        if caller is not self._owner:
            raise RuntimeError(
                f"a GL renderer was created on thread {self._owner.name!r} and used on {caller.name!r}: "
                "expected the same thread"
            )
        if self.closed:
            raise RuntimeError("this GL renderer is closed: create another one")
        before = _CurrentContext(self._egl)
        self.moderngl.mglo._context.__enter__()
        try:
            yield
        finally:
            before.restore(self._own)

    def release(self) -> None:
        """Release the context, in a block in which it is current."""
        self.closed = True
        self.moderngl.release()


def _explain_failure(device: int | None, error: Exception) -> str:
    which = "an OpenGL context" if device is None else f"an OpenGL context on device {device}"
    return (
        f"cannot create {which}: {error}. {explain_missing()} Or use the cpu renderer (--renderer cpu): it needs none "
        "of that."
    )


_FOLDER = Path(__file__).parent.parent / "shaders"
_VERSION = "#version 450\n"
_INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)


def source(name: str) -> str:
    """Return the source of a shader with all files that it includes."""
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: source(match[1]), text)


def compile_program(
    context: moderngl.Context, vertex: str, fragment: str, defined: Sequence[str] = ()
) -> moderngl.Program:
    """Return a program compiled from two shader files, in both of which these macros are defined."""
    head = _VERSION + "".join(f"#define {macro}\n" for macro in defined)
    vertex_shader, fragment_shader = (source(name).replace(_VERSION, head, 1) for name in (vertex, fragment))
    return context.program(vertex_shader=vertex_shader, fragment_shader=fragment_shader)
