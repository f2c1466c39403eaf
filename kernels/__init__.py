"""Functions compiled by numba over plain arrays: cull, rasterise, shade, write pixels and messages.

A kernel takes arrays and numbers, writes into arrays that it is given, and allocates and keeps nothing. Kernels release
the GIL unless they are `@kernel_holding_gil`. This package imports nothing else of worldloom.

On the CPU a view goes through `raster.cull`, `raster.visibility` and `raster.triangles`, `shading`, `pixel_formats`;
`raster.views` calls them in that order. For OpenGL, `gl.visible` and `gl.packing` prepare what the card draws, and
`gl.packing` writes what it read back. Both read the tables of `tables.py` and write the outputs of `outputs.py`.
Simulations are kernels too, in the packages of their families. `outputs.py` and `drawing_states.py` (common parts of
`MujocoRenderer` and `SceneRenderer`) need no numba, since clients of servers use them.
"""
