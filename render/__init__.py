"""The room for pictures: assets, scene and view tables, the frame arena, and the renderers that fill it.

It may use `worldloom.kernels`. It knows nothing of world families, servers or the wire.
"""
