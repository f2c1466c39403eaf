"""Says whether OpenGL can draw here without a screen: exit code 0 and the device's name, or 1 and the reason.

A program of its own, because a broken driver may take the whole process down with it.
"""

import sys

import moderngl

try:
    # The stub takes `backend` for a dict: it misreads **settings.
    context = moderngl.create_context(require=450, standalone=True, backend="egl")  # type: ignore[arg-type]
except Exception as error:  # whatever the loader and the driver raise, bare Exception included
    sys.exit(f"no OpenGL 4.5 context by EGL: {error}")
print(context.info["GL_RENDERER"])
