"""numba functions over plain arrays: cull, rasterise, shade, unpack, simulate.

A kernel takes arrays and numbers, writes into arrays it is given and keeps nothing; unless it is brief it holds no GIL.
This room knows nothing of the others: not of scenes or libraries, of GL, of worlds or of servers.

The way of a picture: `cull` → `raster` and `fill` → `surface` → `shade` and `texture` → `paint` for the processor;
`visible` → `pack`, a graphics card, `unpack` for GL. Both read `tables`. Simulations are named after their worlds.
"""
