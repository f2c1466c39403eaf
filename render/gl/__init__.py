"""The renderer for graphics cards: OpenGL 4.5 without a window.

One thread makes the context and is the only one to use it. Views of one size are drawn together into the layers of a
texture array of just that size, so that a picture's bytes cannot depend on what else is drawn or where.
"""
