"""Typed OpenGL functions through ctypes; moderngl creates the context and compiles programs.

moderngl holds the GIL in every call and has no layered targets. A call through ctypes releases it, which matters for
calls that take long: drawing on a software driver, reading back, waiting.
"""

import ctypes
from collections.abc import Callable
from typing import Any

_INT, _UINT, _SIZE, _POINTER = ctypes.c_int, ctypes.c_uint, ctypes.c_ssize_t, ctypes.c_void_p
_FLOAT_P, _INT_P, _UINT_P = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(_INT), ctypes.POINTER(_UINT)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    # name: result type, then argument types
    "glGetError": (_UINT,),
    "glGetIntegerv": (None, _UINT, _INT_P),
    "glEnable": (None, _UINT),
    "glDisable": (None, _UINT),
    "glClipControl": (None, _UINT, _UINT),
    "glCullFace": (None, _UINT),
    "glDepthFunc": (None, _UINT),
    "glFrontFace": (None, _UINT),
    "glViewport": (None, _INT, _INT, _INT, _INT),
    "glPixelStorei": (None, _UINT, _INT),
    "glFlush": (None,),
    "glUseProgram": (None, _UINT),
    "glCreateBuffers": (None, _INT, _UINT_P),
    "glDeleteBuffers": (None, _INT, _UINT_P),
    "glNamedBufferStorage": (None, _UINT, _SIZE, _POINTER, _UINT),
    "glMapNamedBufferRange": (_POINTER, _UINT, _SIZE, _SIZE, _UINT),
    "glBindBuffer": (None, _UINT, _UINT),
    "glBindBufferBase": (None, _UINT, _UINT, _UINT),
    "glCreateVertexArrays": (None, _INT, _UINT_P),
    "glDeleteVertexArrays": (None, _INT, _UINT_P),
    "glBindVertexArray": (None, _UINT),
    "glVertexArrayElementBuffer": (None, _UINT, _UINT),
    "glVertexArrayVertexBuffer": (None, _UINT, _UINT, _UINT, _SIZE, _INT),
    "glVertexArrayBindingDivisor": (None, _UINT, _UINT, _UINT),
    "glEnableVertexArrayAttrib": (None, _UINT, _UINT),
    "glVertexArrayAttribFormat": (None, _UINT, _UINT, _INT, _UINT, ctypes.c_ubyte, _UINT),
    "glVertexArrayAttribBinding": (None, _UINT, _UINT, _UINT),
    "glMultiDrawElementsIndirect": (None, _UINT, _UINT, _POINTER, _INT, _INT),
    "glDrawArraysInstanced": (None, _UINT, _INT, _INT, _INT),
    "glCreateTextures": (None, _UINT, _INT, _UINT_P),
    "glDeleteTextures": (None, _INT, _UINT_P),
    "glTextureParameteri": (None, _UINT, _UINT, _INT),
    "glTextureStorage3D": (None, _UINT, _INT, _UINT, _INT, _INT, _INT),
    "glTextureStorage3DMultisample": (None, _UINT, _INT, _UINT, _INT, _INT, _INT, ctypes.c_ubyte),
    "glTextureSubImage3D": (None, _UINT, _INT, _INT, _INT, _INT, _INT, _INT, _INT, _UINT, _UINT, _POINTER),
    "glGetTextureSubImage": (None, _UINT, _INT, _INT, _INT, _INT, _INT, _INT, _INT, _UINT, _UINT, _INT, _POINTER),
    "glTextureBuffer": (None, _UINT, _UINT, _UINT),
    "glBindTextureUnit": (None, _UINT, _UINT),
    "glCreateFramebuffers": (None, _INT, _UINT_P),
    "glDeleteFramebuffers": (None, _INT, _UINT_P),
    "glNamedFramebufferTexture": (None, _UINT, _UINT, _UINT, _INT),
    "glNamedFramebufferDrawBuffers": (None, _UINT, _INT, _UINT_P),
    "glCheckNamedFramebufferStatus": (_UINT, _UINT, _UINT),
    "glBindFramebuffer": (None, _UINT, _UINT),
    "glClearNamedFramebufferfv": (None, _UINT, _UINT, _INT, _FLOAT_P),
    "glColorMask": (None, ctypes.c_ubyte, ctypes.c_ubyte, ctypes.c_ubyte, ctypes.c_ubyte),
    "glColorMaski": (None, _UINT, ctypes.c_ubyte, ctypes.c_ubyte, ctypes.c_ubyte, ctypes.c_ubyte),
    "glCopyImageSubData": (None, *((_UINT, _UINT, _INT, _INT, _INT, _INT) * 2), _INT, _INT, _INT),
    "glProgramUniform1i": (None, _UINT, _INT, _INT),
    "glTextureBarrier": (None,),
    "glFenceSync": (_POINTER, _UINT, _UINT),
    "glClientWaitSync": (_UINT, _POINTER, _UINT, ctypes.c_uint64),
    "glDeleteSync": (None, _POINTER),
}

ARRAY_TEXTURE, ARRAY_TEXTURE_MULTISAMPLE, BUFFER_TEXTURE = 0x8C1A, 0x9102, 0x8C2A
COLOR, DEPTH, PACK_ALIGNMENT = 0x1800, 0x1801, 0x0D05
BACK, FRONT = 0x0405, 0x0404
BUFFER_READ, BUFFER_WRITE, BUFFER_PERSISTENT, BUFFER_COHERENT = 0x0001, 0x0002, 0x0040, 0x0080
CLIENT_STORAGE = 0x0200
COLOR_ATTACHMENT, DEPTH_ATTACHMENT = 0x8CE0, 0x8D00
CULL_FACE, DEPTH_TEST, DITHER = 0x0B44, 0x0B71, 0x0BD0
DRAW_INDIRECT_BUFFER, PIXEL_PACK_BUFFER, SHADER_STORAGE_BUFFER = 0x8F3F, 0x88EB, 0x90D2
FLOAT, UNSIGNED_BYTE, UNSIGNED_INT = 0x1406, 0x1401, 0x1405
FRAMEBUFFER, FRAMEBUFFER_COMPLETE = 0x8D40, 0x8CD5
GREATER, GEQUAL = 0x0204, 0x0206
NONE = 0
MAX_ARRAY_TEXTURE_LAYERS, MAX_TEXTURE_SIZE = 0x88FF, 0x0D33
MAX_FRAMEBUFFER_WIDTH, MAX_FRAMEBUFFER_HEIGHT = 0x9315, 0x9316
RED, RG, RGB, RGBA = 0x1903, 0x8227, 0x1907, 0x1908
R32F, RG32F, RGBA8, RGBA32F, DEPTH32F = 0x822E, 0x8230, 0x8058, 0x8814, 0x8CAC
SYNC_COMPLETE, SYNC_FLUSH_FIRST, ALREADY_SIGNALED, TIMEOUT_EXPIRED, CONDITION_SATISFIED = (
    0x9117,
    1,
    0x911A,
    0x911B,
    0x911C,
)
TEXTURE_MIN_FILTER, TEXTURE_MAG_FILTER, TEXTURE_WRAP_S, TEXTURE_WRAP_T = 0x2801, 0x2800, 0x2802, 0x2803
NEAREST, LINEAR, LINEAR_MIPMAP_NEAREST, REPEAT = 0x2600, 0x2601, 0x2701, 0x2901
TRIANGLES = 0x0004
CLOCKWISE, LOWER_LEFT, ZERO_TO_ONE = 0x0900, 0x8CA1, 0x935F

_ERRORS = {0x500: "invalid enum", 0x501: "invalid value", 0x502: "invalid operation", 0x505: "out of memory"}


class RawGL:
    """The functions of one context, by their names without `gl`: `gl.Viewport(0, 0, 64, 64)`."""

    def __init__(self, load: Callable[[str], int]) -> None:
        missing = []
        for name, (returns, *takes) in _SIGNATURES.items():
            address = load(name)
            if not address:
                missing.append(name)
                continue
            setattr(self, name.removeprefix("gl"), ctypes.CFUNCTYPE(returns, *takes)(address))
        if missing:
            raise RuntimeError(f"the OpenGL driver lacks {', '.join(missing)}: expected OpenGL 4.5")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"gl{name} has no signature in {__name__}: expected one of _SIGNATURES")

    def integer(self, name: int) -> int:
        """Return an integer parameter of the context."""
        value = _INT()
        self.GetIntegerv(name, ctypes.byref(value))
        return value.value

    def create(self, what: str, *arguments: int) -> int:
        """Create an object (`Buffers`, `Textures`, `VertexArrays` or `Framebuffers`); return its name."""
        name = _UINT()
        getattr(self, f"Create{what}")(*arguments, 1, ctypes.byref(name))
        return name.value

    def delete(self, what: str, *names: int) -> None:
        """Delete objects."""
        getattr(self, f"Delete{what}")(len(names), (_UINT * len(names))(*names))

    def check(self, doing: str) -> None:
        """Raise if OpenGL has reported an error since the last check."""
        code = self.GetError()
        if code == 0x505:
            raise MemoryError(f"the graphics device ran out of memory while {doing}")
        if code:
            raise RuntimeError(f"OpenGL reports {_ERRORS.get(code, hex(code))} while {doing}")
