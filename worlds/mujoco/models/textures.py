"""Textures of a model, as the library has them: square, of one size, each picture once however many models use it.

MuJoCo reads them as they are, without gamma, unless a texture says that it is sRGB.
"""

import hashlib

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, U8
from worldloom.render.assets import AssetLibrary

CUBE_FACES = 6


def paint(assets: AssetLibrary, pixels: U8, repeats: bool) -> int:
    """The number of the library's texture that shows this picture [height, width, 3]; taken in if it is new."""
    name = _name(pixels, repeats)
    with assets.lock:
        try:
            return assets.texture(name)
        except ValueError:
            return assets.add_texture(name, resampled(pixels, assets.texture_size, repeats))


def paint_sky(assets: AssetLibrary, faces: list[U8]) -> int:
    """The number of the first of six textures, one after another, that show these pictures."""
    names = [f"{_name(np.concatenate(faces), False)} face {face}" for face in range(CUBE_FACES)]
    pictures = [resampled(pixels, assets.texture_size, False) for pixels in faces]
    with assets.lock:
        try:
            return assets.texture(names[0])
        except ValueError:
            first, *_ = [assets.add_texture(name, pixels) for name, pixels in zip(names, pictures, strict=True)]
            return first


def pixels_of(model: mujoco.MjModel, texture: int) -> U8 | None:
    """A texture's picture [height, width, 3]; none if it is of a kind that MuJoCo's own renderer does not show."""
    channels = int(model.tex_nchannel[texture])
    if channels not in (3, 4):
        return None
    height, width, first = (int(model.tex_height[texture]), int(model.tex_width[texture]), int(model.tex_adr[texture]))
    data = model.tex_data[first : first + height * width * channels].reshape(height, width, channels)
    pixels = np.ascontiguousarray(data[..., :3], np.uint8)
    is_srgb = model.tex_colorspace[texture] == mujoco.mjtColorSpace.mjCOLORSPACE_SRGB
    is_flat = model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_2D
    return _linear(pixels) if is_srgb and is_flat else pixels


def faces_of(model: mujoco.MjModel, texture: int) -> list[U8] | None:
    """The six pictures of a cube texture in OpenGL's order; none if there is nothing to see."""
    pixels = pixels_of(model, texture)
    if pixels is None:
        return None
    side = pixels.shape[1]
    if len(pixels) == side:
        return [pixels] * CUBE_FACES
    return [pixels[face * side : (face + 1) * side] for face in range(CUBE_FACES)]


def resampled(pixels: U8, size: int, repeats: bool) -> U8:
    """The picture in another size: the mean of what a texel covers, or between texels where there are fewer."""
    rows, columns = _weights(pixels.shape[0], size, repeats), _weights(pixels.shape[1], size, repeats)
    texels: U8 = np.rint(np.einsum("ij,jkc,lk->ilc", rows, pixels, columns, optimize=True)).astype(np.uint8)
    return texels


def _weights(old: int, new: int, repeats: bool) -> F64:
    """How much each of `old` texels counts in each of `new` ones, [new, old]."""
    weights = np.zeros((new, old))
    if old >= new:
        edges = np.arange(new + 1) * old / new
        first, last = edges[:-1, None], edges[1:, None]
        texel = np.arange(old)
        weights[...] = np.clip(np.minimum(last, texel + 1) - np.maximum(first, texel), 0, None) * new / old
        return weights
    at = (np.arange(new) + 0.5) * old / new - 0.5
    left = np.floor(at).astype(int)
    for texel, weight in ((left, 1 - (at - left)), (left + 1, at - left)):
        held = texel % old if repeats else np.clip(texel, 0, old - 1)
        np.add.at(weights, (np.arange(new), held), weight)
    return weights


def _linear(pixels: U8) -> U8:
    """What OpenGL makes of sRGB texels when it reads them."""
    tone = np.arange(256) / 255
    linear = np.where(tone <= 0.04045, tone / 12.92, ((tone + 0.055) / 1.055) ** 2.4)
    table: U8 = np.rint(255 * linear).astype(np.uint8)
    return np.asarray(table[pixels])


def _name(pixels: U8, repeats: bool) -> str:
    digest = hashlib.sha256(repr((pixels.shape, repeats)).encode() + pixels.tobytes()).hexdigest()
    return f"mujoco.{digest[:32]}"
