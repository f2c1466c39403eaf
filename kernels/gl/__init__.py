"""Kernels of the OpenGL renderer: visible instances, and the records that shaders read."""
