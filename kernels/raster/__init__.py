"""Rasterisation on the CPU: culling, triangles, the visibility buffer, backdrops, and drawing whole views."""
