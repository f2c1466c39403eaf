"""Importing MuJoCo models: model files, meshes, textures, materials, cameras and lamps as assets and instance rows."""
