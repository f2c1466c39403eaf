"""Kernels of the OpenGL renderer: visible instances, records that shaders read, frames from pixels read back."""
