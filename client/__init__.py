"""The room for what learners use to reach worlds.

It may use `worldloom.protos` and, to run a server in its own process, `worldloom.server`. It knows nothing of worlds,
renderers or kernels.
"""
