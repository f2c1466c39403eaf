"""Render targets: texture arrays of exactly a view's size, with a layer for each view.

The pixels of all layers have the same coordinates, so a frame has the same bytes in any of them. In an atlas of tiles
it has not, since drivers interpolate in coordinates of the whole target.
"""

import ctypes
from collections import OrderedDict
from typing import NamedTuple

from worldloom.kernels.outputs import DEPTH_COLUMN, FLOW_COLUMN, NORMALS_COLUMN
from worldloom.render.gl import raw
from worldloom.render.gl.raw import RawGL

MAX_PAGE_BYTES = 16 << 20
"""Largest target: large enough to keep a card busy, small enough to be read back while the next is drawn."""
MAX_KEPT_BYTES = 256 << 20
"""Memory of all targets kept for later draws."""
MAX_KEPT = 256
"""Targets kept for later draws: a driver needs some 30 KB for each, however small."""


class FloatFormat(NamedTuple):
    """An output of floats: an attachment of its own, read back as it is."""

    column: int
    """Column of its offsets."""
    texture_format: int
    read_format: int
    texel_bytes: int
    pixel_bytes: int
    """Bytes of a pixel as it is read back."""

    @property
    def bit(self) -> int:
        """Bit of `ViewTable.outputs`."""
        return 1 << self.column


FLOAT_FORMATS = (
    FloatFormat(DEPTH_COLUMN, raw.R32F, raw.RED, 4, 4),
    FloatFormat(NORMALS_COLUMN, raw.RGBA32F, raw.RGB, 16, 12),
    FloatFormat(FLOW_COLUMN, raw.RG32F, raw.RG, 8, 8),
)
"""Outputs of floats, in the order of the attachments after that of colour: the locations of shaders' outputs."""
FLOAT_BITS = sum(one.bit for one in FLOAT_FORMATS)
"""Bits of all of them."""


class Group(NamedTuple):
    """Size and formats that views must share to be drawn into one target."""

    width: int
    height: int
    samples: int
    floats: int
    """Bits of the outputs of floats that they ask for."""

    @property
    def formats(self) -> tuple[FloatFormat, ...]:
        """Outputs of floats that they ask for."""
        return tuple(one for one in FLOAT_FORMATS if self.floats & one.bit)

    @property
    def layer_bytes(self) -> int:
        """Memory of one layer: colour, depth test and floats for each sample, and the resolved colour and floats."""
        float_bytes = sum(one.texel_bytes for one in self.formats)
        resolved_bytes = 4 + float_bytes if self.samples > 1 else 0
        return self.width * self.height * (self.samples * (8 + float_bytes) + resolved_bytes)


class Target(NamedTuple):
    """Textures and framebuffers of one size. With one sample, both framebuffers are the same."""

    draw_framebuffer: int
    read_framebuffer: int
    sampled_color: int
    sampled_floats: tuple[int, ...]  # as FLOAT_FORMATS, 0 for those that are not asked for
    color: int
    floats: tuple[int, ...]  # likewise
    depth_test: int
    textures: tuple[int, ...]
    size_bytes: int


class TargetCache:
    """Targets by group and number of layers; the least recently used are released."""

    def __init__(self, gl: RawGL, max_kept_bytes: int = MAX_KEPT_BYTES, max_kept: int = MAX_KEPT) -> None:
        self._gl = gl
        self._max_kept_bytes = max_kept_bytes
        self._max_kept = max_kept
        self._kept: OrderedDict[tuple[Group, int], Target] = OrderedDict()
        self._max_layers = gl.integer(raw.MAX_ARRAY_TEXTURE_LAYERS)

    @property
    def kept_bytes(self) -> int:
        """Memory of all targets."""
        return sum(target.size_bytes for target in self._kept.values())

    @property
    def kept_count(self) -> int:
        """Number of targets."""
        return len(self._kept)

    def layers_per_page(self, group: Group) -> int:
        """Return the most views of a group in one page: a power of two."""
        affordable = max(1, min(self._max_layers, MAX_PAGE_BYTES // group.layer_bytes))
        return 1 << (affordable.bit_length() - 1)

    def get(self, group: Group, views: int) -> Target:
        """Return a target for so many views; layers are powers of two, so that batches of similar sizes share one."""
        layers = 1 << (views - 1).bit_length()
        key = (group, layers)
        target = self._kept.get(key)
        if target is None:
            size = layers * group.layer_bytes
            while self._kept and (self.kept_count >= self._max_kept or self.kept_bytes + size > self._max_kept_bytes):
                self._release(self._kept.popitem(last=False)[1])
            target = self._kept[key] = self._create(group, layers)
        self._kept.move_to_end(key)
        return target

    def release(self) -> None:
        """Release all targets."""
        while self._kept:
            self._release(self._kept.popitem()[1])

    def _create(self, group: Group, layers: int) -> Target:
        def texture(texture_format: int, samples: int) -> int:
            if samples == 1:
                name = self._gl.create("Textures", raw.ARRAY_TEXTURE)
                self._gl.TextureStorage3D(name, 1, texture_format, group.width, group.height, layers)
            else:
                name = self._gl.create("Textures", raw.ARRAY_TEXTURE_MULTISAMPLE)
                self._gl.TextureStorage3DMultisample(
                    name, samples, texture_format, group.width, group.height, layers, 1
                )
            return name

        def float_textures(samples: int) -> tuple[int, ...]:
            return tuple(texture(one.texture_format, samples) if group.floats & one.bit else 0 for one in FLOAT_FORMATS)

        def framebuffer(color: int, floats: tuple[int, ...], depth_test: int) -> int:
            name = self._gl.create("Framebuffers")
            attached = (color, *floats)
            while not attached[-1]:
                attached = attached[:-1]
            for k, each in enumerate(attached):
                if each:
                    self._gl.NamedFramebufferTexture(name, raw.COLOR_ATTACHMENT + k, each, 0)
            if depth_test:
                self._gl.NamedFramebufferTexture(name, raw.DEPTH_ATTACHMENT, depth_test, 0)
            attachments = (raw.COLOR_ATTACHMENT + k if each else raw.NONE for k, each in enumerate(attached))
            self._gl.NamedFramebufferDrawBuffers(name, len(attached), (ctypes.c_uint * len(attached))(*attachments))
            status = self._gl.CheckNamedFramebufferStatus(name, raw.FRAMEBUFFER)
            if status != raw.FRAMEBUFFER_COMPLETE:
                raise RuntimeError(
                    f"the OpenGL driver cannot draw into layers of {group}: framebuffer status is {status:#x}"
                )
            return name

        sampled_color = texture(raw.RGBA8, group.samples)
        sampled_floats = float_textures(group.samples)
        depth_test = texture(raw.DEPTH32F, group.samples)
        self._gl.check(f"creating a target of {layers} layers for {group}")
        draw = read = framebuffer(sampled_color, sampled_floats, depth_test)
        color, floats = sampled_color, sampled_floats
        if group.samples > 1:
            color, floats = texture(raw.RGBA8, 1), float_textures(1)
            read = framebuffer(color, floats, 0)
        self._gl.check(f"creating a target of {layers} layers for {group}")
        textures = tuple({sampled_color, *sampled_floats, depth_test, color, *floats} - {0})
        size = layers * group.layer_bytes
        return Target(draw, read, sampled_color, sampled_floats, color, floats, depth_test, textures, size)

    def _release(self, target: Target) -> None:
        self._gl.delete("Framebuffers", *{target.draw_framebuffer, target.read_framebuffer})
        self._gl.delete("Textures", *target.textures)
