"""Scenes for benchmarks: many lanes, each with random blocks of its own."""

import numpy as np

from worldloom.kernels.outputs import RGB
from worldloom.kernels.tables import ViewTable
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

BLOCKS = 20


def block_yard(
    lanes: int,
    *,
    textured: bool = False,
    fog: bool = False,
    width: int = 64,
    height: int = 64,
    outputs: int = RGB,
    samples: int = 1,
    seed: int = 0,
) -> tuple[Scene, ViewTable]:
    """Build a floor and twenty boxes in each lane (21 boxes), seen from outside by a camera at a random bearing."""
    rng = np.random.default_rng(seed)
    assets = AssetLibrary()
    scene = Scene(assets)
    added = scene.add(lanes, BLOCKS + 1)
    rows, instances = scene.rows(added), scene.instances
    instances.mesh[rows] = assets.mesh("box")
    instances.color[rows] = rng.uniform(0.25, 1.0, (lanes, BLOCKS + 1, 3))
    instances.label[rows] = np.arange(1, BLOCKS + 2)
    if textured:
        instances.texture[rows] = rng.integers(0, 4, (lanes, BLOCKS + 1))
    instances.uv_scale[rows[:, 0]] = 10.0
    if fog:
        scene.lanes.fog_range[added] = (3.0, 16.0)

    angle, size = rng.uniform(0, 2 * np.pi, (lanes, BLOCKS)), rng.uniform(0.3, 1.2, (lanes, BLOCKS))
    poses = np.zeros((lanes, BLOCKS, 3, 4), np.float32)
    poses[..., 0, 0] = poses[..., 1, 1] = np.cos(angle) * size
    poses[..., 1, 0] = np.sin(angle) * size
    poses[..., 0, 1] = -poses[..., 1, 0]
    poses[..., 2, 2] = size
    poses[..., :2, 3] = rng.uniform(-3, 3, (lanes, BLOCKS, 2))
    poses[..., 2, 3] = size / 2
    instances.pose[rows[:, 1:]] = poses
    instances.pose[rows[:, 0]] = np.array([[20, 0, 0, 0], [0, 20, 0, 0], [0, 0, 0.2, -0.1]], np.float32)

    bearing = rng.uniform(0, 2 * np.pi, lanes)
    eyes = np.stack([6 * np.cos(bearing), 6 * np.sin(bearing), np.full(lanes, 2.5)], axis=1)
    camera = look_at(eyes, (0.0, 0.0, 0.5))
    views = make_views(added, camera=camera, width=width, height=height, outputs=outputs, samples=samples)
    return scene, views
