"""The OpenGL context: its creation, the check of the thread that uses it, and its shader programs.

A context can be current on one thread only, and moderngl does not report calls from another: it crashes or draws
nothing. So the thread that creates a context is remembered, and `enter` compares. Shaders are the files of
`render/shaders`, with `#include "name"` replaced by that file.
"""

import re
import threading
from pathlib import Path
from typing import Any

import moderngl

from worldloom.render.devices import EGL_LIBRARY, GL_LIBRARY, explain_missing
from worldloom.render.gl.raw import RawGL

REQUIRED_VERSION = 450
LAYERS_FROM_VERTICES = "GL_ARB_shader_viewport_layer_array"
"""Extension that lets a vertex shader choose the layer; without it, layers need a slow geometry shader."""


class RendererUnavailableError(RuntimeError):
    """A renderer that does not work on this machine; the text says what is missing and what installs it."""


class GLContext:
    """An OpenGL 4.5 context without a window, on one EGL device."""

    def __init__(self, device: int | None = None) -> None:
        self._owner = threading.current_thread()
        self.closed = False
        settings: dict[str, Any] = {"backend": "egl", "libegl": EGL_LIBRARY, "libgl": GL_LIBRARY}
        if device is not None:
            settings["device_index"] = device
        try:
            self.moderngl = moderngl.create_context(require=REQUIRED_VERSION, standalone=True, **settings)
        except Exception as error:  # moderngl raises bare exceptions
            raise RendererUnavailableError(_explain_failure(device, error)) from error
        if LAYERS_FROM_VERTICES not in self.moderngl.extensions:
            name = self.device
            self.moderngl.release()
            raise RendererUnavailableError(
                f"the OpenGL driver of {name} lacks {LAYERS_FROM_VERTICES}, which drawing many views at once needs: "
                "use the cpu renderer, another device, or a newer driver"
            )
        self.raw = RawGL(self.moderngl.mglo._context.load)

    @property
    def device(self) -> str:
        """Name of the device, as its driver reports it."""
        info = self.moderngl.info
        return f"{info['GL_RENDERER']}, OpenGL {info['GL_VERSION']}"

    def enter(self) -> None:
        """Check that the calling thread may use this context, and make it current."""
        caller = threading.current_thread()
        if caller is not self._owner:
            raise RuntimeError(
                f"a GL renderer was created on thread {self._owner.name!r} and used on {caller.name!r}: "
                "expected the same thread"
            )
        if self.closed:
            raise RuntimeError("this GL renderer is closed: create another one")
        # Other code on this thread may have made another context current; this costs about 1 µs if not.
        self.moderngl.mglo._context.__enter__()

    def close(self) -> None:
        """Release the context."""
        self.closed = True
        self.moderngl.release()


def _explain_failure(device: int | None, error: Exception) -> str:
    which = "an OpenGL context" if device is None else f"an OpenGL context on device {device}"
    return (
        f"cannot create {which}: {error}. {explain_missing()} Or use the cpu renderer (--renderer cpu): it needs none "
        "of that."
    )


_FOLDER = Path(__file__).parent.parent / "shaders"
_INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)


def source(name: str) -> str:
    """Return the source of a shader with all files that it includes."""
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: source(match[1]), text)


def compile_program(context: moderngl.Context, vertex: str, fragment: str) -> moderngl.Program:
    """Return a program compiled from two shader files."""
    return context.program(vertex_shader=source(vertex), fragment_shader=source(fragment))
