"""Import of MuJoCo models: files, meshes, textures, materials, cameras and lights as assets and instance rows."""
