"""Skins, in pieces: triangles that the same bones pull at, by about the same shares, move together.

MuJoCo bends a skin at every vertex. Here each piece follows the mean of its bones as a whole, and overlaps with those
around it, so that a joint may show an edge but hardly a gap.

Skins of a MuJoCo model: where their pieces are.
"""

from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I32, I64
from worldloom.render.arena import PROCESS_FLOAT64
from worldloom.render.meshes import Mesh
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.models.contents import SHOWN_GROUPS
from worldloom.worlds.mujoco.models.meshes import lightened
from worldloom.worlds.mujoco.simulation.data import XMAT, XPOS

_SHARES = 4
"""Shares are told apart in steps of one part in so many."""
_FEW = 20
"""So few triangles are no piece of their own but part of the one most like them."""


class Piece(NamedTuple):
    """Part of a skin, in the skin's space."""

    mesh: Mesh
    shares: F64
    """How much each of the skin's bones pulls at it."""


class Skins:
    """The skins of a model that are shown, and the rows they need."""

    def __init__(self, model: mujoco.MjModel, first_row: int) -> None:
        self.shown: list[int] = np.flatnonzero(model.skin_group < SHOWN_GROUPS).tolist()
        self.pieces = [pieces_of(model, skin) for skin in self.shown]
        self._first_row = first_row
        self.rows = sum(len(some) for some in self.pieces)
        links, shares, row = [], [], first_row
        for skin, pieces in zip(self.shown, self.pieces, strict=True):
            for piece in pieces:
                for bone in np.flatnonzero(piece.shares).tolist():
                    place = int(model.skin_boneadr[skin]) + bone
                    links.append((row, int(model.skin_bonebodyid[place])))
                    shares.append(piece.shares[bone] * np.array([1.0, *_into_bone(model, place).ravel()]))
                row += 1
        self._links: I32 = np.array(links, np.int32).reshape(-1, 2)
        self._shares: F64 = np.array(shares).reshape(-1, 13)

    def rows_of(self, place: int) -> range:
        """The rows of one of those shown, a piece each."""
        first = self._first_row + sum(len(some) for some in self.pieces[:place])
        return range(first, first + len(self.pieces[place]))

    def dress(self, places: I64, scene: Scene, scene_lanes: I32) -> None:
        """Where they are now."""
        if self.rows:
            first_row, pose = scene.lanes.first_row, scene.instances.pose
            dress_skins(PROCESS_FLOAT64, places, XPOS, XMAT, self._links, self._shares, scene_lanes, first_row, pose)


def pieces_of(model: mujoco.MjModel, skin: int) -> list[Piece]:
    """A skin in pieces."""
    first, count = int(model.skin_vertadr[skin]), int(model.skin_vertnum[skin])
    faces = model.skin_face[model.skin_faceadr[skin] :][: model.skin_facenum[skin]]
    points = model.skin_vert[first : first + count].astype(np.float64)
    normals = _normals(points, faces)
    points = points + float(model.skin_inflate[skin]) * normals
    uvs = np.zeros((count, 2))
    if model.skin_texcoordadr[skin] >= 0:
        uvs = model.skin_texcoord[model.skin_texcoordadr[skin] :][:count]
    bones = int(model.skin_boneadr[skin]) + np.arange(model.skin_bonenum[skin])
    pull = np.stack([_weights(model, bone, count)[faces].mean(axis=1) for bone in bones.tolist()], axis=1)
    kinds, kind_of = _kinds(pull)
    pieces = []
    for kind, shares in enumerate(kinds):
        touched = np.zeros(count, np.bool_)
        touched[faces[kind_of == kind]] = True
        used, triangles = np.unique(faces[touched[faces].any(axis=1)], return_inverse=True)
        at, facing, uv = (part[used].astype(np.float32) for part in (points, normals, uvs))
        mesh = Mesh(at, facing, uv, triangles.reshape(-1, 3).astype(np.int32), two_sided=True)
        pieces.append(Piece(lightened(mesh), shares))
    return pieces


def _kinds(pull: F64) -> tuple[F64, I64]:
    """Shares [kinds, bones] that stand for those of many triangles [n, bones], and which of them each has."""
    steps = np.rint(pull * _SHARES).astype(np.int64)
    steps[np.arange(len(pull)), pull.argmax(axis=1)] = np.maximum(1, steps.max(axis=1))
    # Rows are compared by a number for each, which is quicker; that two of them share one is next to impossible.
    codes = steps @ np.random.default_rng(0).integers(1 << 56, size=steps.shape[1])
    _, places, counts = np.unique(codes, return_index=True, return_counts=True)
    kinds = steps[places[counts >= min(_FEW, counts.max())]].astype(np.float64)
    kinds /= kinds.sum(axis=1, keepdims=True)
    apart = (kinds**2).sum(axis=1) - 2 * pull @ kinds.T
    used, kind_of = np.unique(apart.argmin(axis=1), return_inverse=True)
    return kinds[used], kind_of.astype(np.int64)


def _into_bone(model: mujoco.MjModel, bone: int) -> F64:
    """The way [3, 4] from a skin's space, where it was bound to its bones, into the space of the bone's body."""
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.skin_bonebindquat[bone].astype(np.float64))
    back = turn.reshape(3, 3).T
    return np.column_stack([back, -back @ model.skin_bonebindpos[bone]])


def _weights(model: mujoco.MjModel, bone: int, count: int) -> F64:
    """How much a bone pulls at each vertex."""
    first, some = int(model.skin_bonevertadr[bone]), int(model.skin_bonevertnum[bone])
    weights = np.zeros(count)
    weights[model.skin_bonevertid[first : first + some]] = model.skin_bonevertweight[first : first + some]
    return weights


def _normals(points: F64, faces: I32) -> F64:
    """The mean of the triangles around each vertex, larger ones counting more."""
    a, b, c = np.moveaxis(points[faces], 1, 0)
    normals = np.zeros_like(points)
    for corner in range(3):
        np.add.at(normals, faces[:, corner], np.cross(b - a, c - a))
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.where(length > 0, length, 1), (0.0, 0.0, 1.0))


@kernel_holding_gil
def dress_skins(
    numbers: F64,
    places: I64,
    position_column: int,
    rotation_column: int,
    links: I32,
    shares: F64,
    scene_lanes: I32,
    first_row: I32,
    pose: F32,
) -> None:
    """Poses of pieces that several bodies pull at.

    `links` [n, 2] is a row and a body that pulls at it, in the order of the rows; `shares` [n, 13] how much it does,
    and that times the way from the skin's space into the body's, 3 x 4.
    """
    for k in range(scene_lanes.size):
        first = first_row[scene_lanes[k]]
        for link in range(links.shape[0]):
            row, body, share = first + links[link, 0], links[link, 1], shares[link]
            is_first = link == 0 or links[link - 1, 0] != links[link, 0]
            at = places[k, position_column] + 3 * body
            turned = places[k, rotation_column] + 9 * body
            for i in range(3):
                for j in range(4):
                    sum_ = 0.0 if is_first else pose[row, i, j]
                    for middle in range(3):
                        sum_ += numbers[turned + 3 * i + middle] * share[1 + 4 * middle + j]
                    pose[row, i, j] = sum_ + (share[0] * numbers[at + i] if j == 3 else 0.0)
