"""Textures of a model in the asset library, and meshes cut up for cube textures.

The library's textures are square, of one size and without gamma; the same image is added once however many models use
it. MuJoCo reads texels as they are, unless a texture is marked as sRGB.

MuJoCo looks cube textures up by a point's position in the space of its object, as OpenGL does: the longest coordinate
chooses one of six faces, the other two the texel on it. The renderers know flat textures only, so a mesh with a cube
texture is cut where one face ends and the next begins, into a part per face.
"""

import hashlib
from collections.abc import Callable

import mujoco
import numpy as np

from worldloom.kernels.tables import F32, F64, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import CoarserMesh, Mesh, join
from worldloom.worlds.mujoco.models.meshes import mesh_from_triangles

CUBE_FACES = 6
_FACES = (
    ((1, 0, 0), (0, 0, -1), (0, -1, 0)),
    ((-1, 0, 0), (0, 0, 1), (0, -1, 0)),
    ((0, 1, 0), (1, 0, 0), (0, 0, 1)),
    ((0, -1, 0), (1, 0, 0), (0, 0, -1)),
    ((0, 0, 1), (1, 0, 0), (0, -1, 0)),
    ((0, 0, -1), (-1, 0, 0), (0, -1, 0)),
)
"""Faces of a cube texture in OpenGL's order: the direction of each, and the directions in which u and v grow."""
_MAX_DEPTH_RATIO = 1.15
"""Triangles whose corners differ more in distance along the face's direction are subdivided: interpolated texture
coordinates would distort the texture visibly."""
_SUBDIVISIONS = 4
_MIN_DEPTH = 1e-9
"""Closer to the centre of the cube a point has no direction."""


def acquire_texture(assets: AssetLibrary, pixels: U8, repeats: bool) -> int:
    """Return the id of the library's texture for an image [height, width, 3]; add it if it is new."""
    name = _texture_name(pixels, repeats)
    with assets.lock:
        try:
            return assets.texture(name)
        except ValueError:
            return assets.add_texture(name, resample(pixels, assets.texture_size, repeats))


def acquire_sky(assets: AssetLibrary, faces: list[U8]) -> int:
    """Return the id of the first of six consecutive textures for these images; add them if they are new."""
    names = [f"{_texture_name(np.concatenate(faces), False)} face {face}" for face in range(CUBE_FACES)]
    textures = [resample(pixels, assets.texture_size, False) for pixels in faces]
    with assets.lock:
        try:
            return assets.texture(names[0])
        except ValueError:
            first, *_ = [assets.add_texture(name, pixels) for name, pixels in zip(names, textures, strict=True)]
            return first


def read_texture(model: mujoco.MjModel, texture: int) -> U8 | None:
    """Return the image [height, width, 3] of a texture; None if MuJoCo's renderer does not show it, either."""
    channels = int(model.tex_nchannel[texture])
    if channels not in (3, 4):
        return None
    height, width, first = (int(model.tex_height[texture]), int(model.tex_width[texture]), int(model.tex_adr[texture]))
    data = model.tex_data[first : first + height * width * channels].reshape(height, width, channels)
    pixels = np.ascontiguousarray(data[..., :3], np.uint8)
    is_srgb = model.tex_colorspace[texture] == mujoco.mjtColorSpace.mjCOLORSPACE_SRGB
    is_flat = model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_2D
    return _srgb_to_linear(pixels) if is_srgb and is_flat else pixels


def read_cube_faces(model: mujoco.MjModel, texture: int) -> list[U8] | None:
    """Return the six images of a cube texture in OpenGL's order; None if MuJoCo's renderer does not show it, either."""
    pixels = read_texture(model, texture)
    if pixels is None:
        return None
    side = pixels.shape[1]
    if len(pixels) == side:
        return [pixels] * CUBE_FACES
    return [pixels[face * side : (face + 1) * side] for face in range(CUBE_FACES)]


def resample(pixels: U8, size: int, repeats: bool) -> U8:
    """Return an image in another size: the mean of the area of a texel, or interpolated if there are fewer texels."""
    rows, columns = (
        _resampling_weights(pixels.shape[0], size, repeats),
        _resampling_weights(pixels.shape[1], size, repeats),
    )
    texels: U8 = np.rint(np.einsum("ij,jkc,lk->ilc", rows, pixels, columns, optimize=True)).astype(np.uint8)
    return texels


def _resampling_weights(old: int, new: int, repeats: bool) -> F64:
    """Return the weights of `old` texels in each of `new` ones, [new, old]."""
    weights = np.zeros((new, old))
    if old >= new:
        edges = np.arange(new + 1) * old / new
        first, last = edges[:-1, None], edges[1:, None]
        texel = np.arange(old)
        weights[...] = np.clip(np.minimum(last, texel + 1) - np.maximum(first, texel), 0, None) * new / old
        return weights
    position = (np.arange(new) + 0.5) * old / new - 0.5
    left = np.floor(position).astype(int)
    for texel, weight in ((left, 1 - (position - left)), (left + 1, position - left)):
        wrapped = texel % old if repeats else np.clip(texel, 0, old - 1)
        np.add.at(weights, (np.arange(new), wrapped), weight)
    return weights


def _srgb_to_linear(pixels: U8) -> U8:
    """Convert sRGB texels to linear ones, as OpenGL does when it reads them."""
    tone = np.arange(256) / 255
    linear = np.where(tone <= 0.04045, tone / 12.92, ((tone + 0.055) / 1.055) ** 2.4)
    table: U8 = np.rint(255 * linear).astype(np.uint8)
    return np.asarray(table[pixels])


def _texture_name(pixels: U8, repeats: bool) -> str:
    digest = hashlib.sha256(repr((pixels.shape, repeats)).encode() + pixels.tobytes()).hexdigest()
    return f"mujoco.{digest[:32]}"


def split_by_cube_face(
    mesh: Mesh, directions: Callable[[F32], np.ndarray], textures: tuple[int, ...], size: int
) -> dict[int, Mesh]:
    """Cut a mesh into a part for each texture, with texture coordinates for textures of `size` texels.

    `directions` maps points of the mesh to directions in the cube; `textures` are the ids of the cube's six faces.
    """
    pieces: dict[int, list[Mesh]] = {}
    vertices = np.concatenate([mesh.positions, mesh.normals, directions(mesh.positions)], axis=1)
    corners = _subdivide(vertices[mesh.triangles])
    for (out, right, down), texture in zip(np.array(_FACES, np.float64), textures, strict=True):
        clipped = _clip_to_face(corners, out, right, down)
        if len(clipped):
            across = np.stack([clipped[..., 6:] @ right, clipped[..., 6:] @ down], axis=-1)
            uvs = across / np.maximum(clipped[..., 6:] @ out, _MIN_DEPTH)[..., None] * (1 - 1 / size) / 2 + 0.5
            pieces.setdefault(texture, []).append(mesh_from_triangles(clipped[..., :3], clipped[..., 3:6], uvs))
    parts = {texture: join(*meshes) for texture, meshes in pieces.items()}
    if mesh.coarser is None:
        return parts
    coarser = split_by_cube_face(mesh.coarser.mesh, directions, textures, size)
    return {
        texture: Mesh(
            part.positions,
            part.normals,
            part.uvs,
            part.triangles,
            part.two_sided,
            CoarserMesh(coarser[texture], mesh.coarser.size) if texture in coarser else None,
        )
        for texture, part in parts.items()
    }


def _subdivide(corners: np.ndarray) -> np.ndarray:
    """Divide triangles [n, 3, 9] into four each until the corners of each are at a similar depth in the cube."""
    for _ in range(_SUBDIVISIONS):
        depth = np.abs(corners[..., 6:]).max(axis=-1)
        uneven = depth.max(axis=1) > _MAX_DEPTH_RATIO * depth.min(axis=1)
        if not uneven.any():
            break
        a, b, c = np.moveaxis(corners[uneven], 1, 0)
        ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
        fourths = [np.stack(three, axis=1) for three in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        corners = np.concatenate([corners[~uneven], *fourths])
    return corners


def _clip_to_face(corners: np.ndarray, out: np.ndarray, right: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return the parts of triangles that lie on one face of the cube, as triangles [m, 3, 9]."""
    sides = np.stack([out - right, out + right, out - down, out + down], axis=1)
    inside = corners[..., 6:] @ sides >= 0
    outward = (corners[..., 6:] @ out).max(axis=1) > _MIN_DEPTH
    whole = inside.all(axis=(1, 2)) & outward
    partial = ~whole & outward & inside.any(axis=1).all(axis=1)
    clipped = [triangle for polygon in corners[partial] for triangle in _triangulate(_clip_polygon(polygon, sides))]
    return np.concatenate([corners[whole], np.array(clipped).reshape(-1, 3, 9)])


def _clip_polygon(polygon: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Clip a polygon [n, 9] at four planes through the centre of the cube, whose normals are columns of `sides`."""
    for side in sides.T:
        if not len(polygon):
            break
        height = polygon[:, 6:] @ side
        kept = []
        for k in range(len(polygon)):
            before = k - 1
            if height[k] * height[before] < 0:
                share = height[before] / (height[before] - height[k])
                kept.append(polygon[before] + share * (polygon[k] - polygon[before]))
            if height[k] >= 0:
                kept.append(polygon[k])
        polygon = np.array(kept).reshape(-1, 9)
    return polygon


def _triangulate(polygon: np.ndarray) -> list[np.ndarray]:
    return [polygon[[0, k, k + 1]] for k in range(1, len(polygon) - 1)]
