"""Tables of one step before, for tests of flow: cameras and some instances have moved and turned a little since."""

import numpy as np

from worldloom.kernels.tables import NO_MESH, PreviousTable, ViewTable
from worldloom.render.scene import Scene

FARTHEST_M, LARGEST_TURN = 0.15, 0.06


def step_before(scene: Scene, views: ViewTable, seed: int = 0) -> PreviousTable:
    """Return where everything was one step before, each lane by its own number and the seed.

    Of the rows of a lane every fifth has not moved; some were nothing, another mesh, or nowhere. Rows without volume,
    the shadows of test scenes, have not either: where some overlap in one plane, rounding decides which is seen.
    """
    first_row = np.zeros(len(views.lane), np.int32)
    camera, half_height = views.camera.copy(), views.half_height.copy()
    meshes, poses, end = [np.zeros(0, np.int32)], [np.zeros((0, 3, 4), np.float32)], 0
    begins: dict[int, int] = {}
    for view, lane in enumerate(views.lane.tolist()):
        rng = np.random.default_rng((seed, lane))
        rows = scene.rows([lane])[0]
        if lane not in begins:
            mesh, pose = scene.instances.mesh[rows], scene.instances.pose[rows].astype(np.float64)
            is_flat = np.linalg.det(pose[:, :, :3]) == 0
            for k, one in enumerate(pose):
                if k % 5 and not is_flat[k]:
                    one[:, :3] = _turn(rng) @ one[:, :3]
                    one[:, 3] += rng.uniform(-FARTHEST_M, FARTHEST_M, 3)
            kind = np.where(is_flat, 0.5, rng.random(rows.size))
            mesh[kind < 0.08] = NO_MESH
            mesh[(kind >= 0.08) & (kind < 0.16)] += 1
            pose[kind > 0.94, 1, 2] = np.nan
            begins[lane], end = end, end + rows.size
            meshes.append(mesh)
            poses.append(pose.astype(np.float32))
        first_row[view] = begins[lane]
        moved = np.random.default_rng((seed, lane, 1))  # the same for all cameras of a lane
        camera[view, :, :3] = _turn(moved) @ camera[view, :, :3].astype(np.float64)
        camera[view, :, 3] += moved.uniform(-FARTHEST_M, FARTHEST_M, 3)
        half_height[view] *= moved.uniform(0.97, 1.03)
    return PreviousTable(first_row, camera, half_height, np.concatenate(meshes), np.concatenate(poses))


def _turn(rng: np.random.Generator) -> np.ndarray:
    """Return a rotation by a small angle around any axis."""
    axis = rng.normal(size=3)
    x, y, z = axis / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = rng.uniform(-LARGEST_TURN, LARGEST_TURN)
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)
