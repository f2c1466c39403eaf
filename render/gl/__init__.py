"""The OpenGL renderer: OpenGL 4.5 without a window.

The thread that creates the context is the only one that uses it. Views of one size are drawn together into layers of a
texture array of exactly that size, so that the bytes of a frame do not depend on what else is drawn, or where.
"""
