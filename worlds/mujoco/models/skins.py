"""Skins of a MuJoCo model, divided into rigid pieces.

MuJoCo bends a skin at every vertex. Here the triangles with about the same bone weights form a piece, and each piece
moves as a whole with the weighted mean of its bones. Neighbouring pieces overlap, so a joint may show an edge but
hardly a gap.
"""

from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.compiling import device_function
from worldloom.kernels.tables import F32, F64, I32, I64
from worldloom.render.meshes import Mesh
from worldloom.worlds.mujoco.models.contents import DRAWN_GROUPS
from worldloom.worlds.mujoco.models.meshes import with_coarser_versions

_WEIGHT_STEPS = 4
"""Steps from 0 to 1 that bone weights are rounded to when triangles are grouped."""
_MIN_TRIANGLES = 20
"""Fewer triangles form no piece of their own, but join the one with the most similar weights."""


class SkinPiece(NamedTuple):
    """A part of a skin that moves as a whole, in the space of the skin."""

    mesh: Mesh
    weights: F64
    """Weights of the skin's bones, with the sum 1."""


class Skins:
    """The skins of a model that are drawn, and their instance rows."""

    def __init__(self, model: mujoco.MjModel, first_row: int) -> None:
        self.ids: list[int] = np.flatnonzero(model.skin_group < DRAWN_GROUPS).tolist()
        self.pieces = [split_skin(model, skin) for skin in self.ids]
        self._first_row = first_row
        self.rows = sum(len(pieces) for pieces in self.pieces)
        links, transforms, row = [], [], first_row
        for skin, pieces in zip(self.ids, self.pieces, strict=True):
            for piece in pieces:
                for k in np.flatnonzero(piece.weights).tolist():
                    bone = int(model.skin_boneadr[skin]) + k
                    links.append((row, int(model.skin_bonebodyid[bone])))
                    transforms.append(piece.weights[k] * np.array([1.0, *_bind_transform(model, bone).ravel()]))
                row += 1
        self.tables: tuple[I32, F64] = (
            np.array(links, np.int32).reshape(-1, 2),
            np.array(transforms, np.float64).reshape(-1, 13),
        )
        """The sources of poses, for kernels: columns of `worldloom.worlds.mujoco.models.poses.PoseTables`."""

    def rows_of(self, k: int) -> range:
        """Return the rows of the k-th drawn skin, one for each piece."""
        first = self._first_row + sum(len(pieces) for pieces in self.pieces[:k])
        return range(first, first + len(self.pieces[k]))


def split_skin(model: mujoco.MjModel, skin: int) -> list[SkinPiece]:
    """Divide a skin into pieces."""
    first, count = int(model.skin_vertadr[skin]), int(model.skin_vertnum[skin])
    faces = model.skin_face[model.skin_faceadr[skin] :][: model.skin_facenum[skin]]
    points = model.skin_vert[first : first + count].astype(np.float64)
    normals = _vertex_normals(points, faces)
    points = points + float(model.skin_inflate[skin]) * normals
    uvs = np.zeros((count, 2))
    if model.skin_texcoordadr[skin] >= 0:
        uvs = model.skin_texcoord[model.skin_texcoordadr[skin] :][:count]
    bones = int(model.skin_boneadr[skin]) + np.arange(model.skin_bonenum[skin])
    face_weights = np.stack([_bone_weights(model, bone, count)[faces].mean(axis=1) for bone in bones.tolist()], axis=1)
    group_weights, group_of = _group_faces(face_weights)
    pieces = []
    for group, weights in enumerate(group_weights):
        in_group = np.zeros(count, np.bool_)
        in_group[faces[group_of == group]] = True
        # All triangles with a vertex of the group, so that neighbouring pieces overlap.
        used, corners = np.unique(faces[in_group[faces].any(axis=1)], return_inverse=True)
        piece_points, piece_normals, piece_uvs = (part[used].astype(np.float32) for part in (points, normals, uvs))
        triangles = corners.reshape(-1, 3).astype(np.int32)
        mesh = Mesh(piece_points, piece_normals, piece_uvs, triangles, two_sided=True)
        pieces.append(SkinPiece(with_coarser_versions(mesh), weights))
    return pieces


def _group_faces(face_weights: F64) -> tuple[F64, I64]:
    """Group triangles with bone weights [n, bones]; return weights [groups, bones] and the group of each triangle."""
    steps = np.rint(face_weights * _WEIGHT_STEPS).astype(np.int64)
    steps[np.arange(len(face_weights)), face_weights.argmax(axis=1)] = np.maximum(1, steps.max(axis=1))
    # Rows are compared by a hash, which is faster than by columns; a collision is next to impossible.
    hashes = steps @ np.random.default_rng(0).integers(1 << 56, size=steps.shape[1])
    _, first_rows, counts = np.unique(hashes, return_index=True, return_counts=True)
    groups = steps[first_rows[counts >= min(_MIN_TRIANGLES, counts.max())]].astype(np.float64)
    groups /= groups.sum(axis=1, keepdims=True)
    distance = (groups**2).sum(axis=1) - 2 * face_weights @ groups.T
    used, group_of = np.unique(distance.argmin(axis=1), return_inverse=True)
    return groups[used], group_of.astype(np.int64)


def _bind_transform(model: mujoco.MjModel, bone: int) -> F64:
    """Return the transform [3, 4] from the space of a skin in its bind pose to the space of a bone's body."""
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.skin_bonebindquat[bone].astype(np.float64))
    inverse = rotation.reshape(3, 3).T
    return np.column_stack([inverse, -inverse @ model.skin_bonebindpos[bone]])


def _bone_weights(model: mujoco.MjModel, bone: int, count: int) -> F64:
    """Return the weight of a bone for each of a skin's vertices."""
    first, length = int(model.skin_bonevertadr[bone]), int(model.skin_bonevertnum[bone])
    weights = np.zeros(count)
    weights[model.skin_bonevertid[first : first + length]] = model.skin_bonevertweight[first : first + length]
    return weights


def _vertex_normals(points: F64, faces: I32) -> F64:
    """Return the normals of vertices: the mean over their triangles, weighted by area."""
    a, b, c = np.moveaxis(points[faces], 1, 0)
    normals = np.zeros_like(points)
    for corner in range(3):
        np.add.at(normals, faces[:, corner], np.cross(b - a, c - a))
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.where(length > 0, length, 1), (0.0, 0.0, 1.0))


@device_function
def write_skin_poses(
    numbers: F64,
    addresses: I64,
    position_field: int,
    rotation_field: int,
    links: I32,
    transforms: F64,
    scene_lanes: I32,
    first_row: I32,
    pose: F32,
) -> None:
    """Write the poses of skin pieces, weighted means over the bodies that move them.

    `links` [n, 2]: a row and a body that moves it, in the order of the rows. `transforms` [n, 13]: the weight of the
    body, then the weight times the transform [3, 4] from the skin's space to the body's.
    """
    for k in range(scene_lanes.size):
        first = first_row[scene_lanes[k]]
        for link in range(links.shape[0]):
            row, body, transform = first + links[link, 0], links[link, 1], transforms[link]
            is_first = link == 0 or links[link - 1, 0] != links[link, 0]
            position = addresses[k, position_field] + 3 * body
            rotation = addresses[k, rotation_field] + 9 * body
            for i in range(3):
                for j in range(4):
                    sum_ = 0.0 if is_first else pose[row, i, j]
                    for m in range(3):
                        sum_ += numbers[rotation + 3 * i + m] * transform[1 + 4 * m + j]
                    pose[row, i, j] = sum_ + (transform[0] * numbers[position + i] if j == 3 else 0.0)
