"""Rendering: assets, scene and view tables, the frame arena, and the CPU and OpenGL renderers.

Imports `worldloom.kernels` only: nothing of families, servers or messages.
"""
