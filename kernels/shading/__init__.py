"""Shading on the CPU: surfaces, textures, lamps, fog and sky of the pixels that the rasteriser found."""
