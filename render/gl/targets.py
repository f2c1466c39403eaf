"""What is drawn into: texture arrays of exactly a view's size, one layer to a view.

A layer's pixels have the same coordinates whatever layer it is, so a picture comes out the same wherever it is drawn.
In an atlas of tiles it does not, since drivers interpolate in coordinates of the whole.

Which views are drawn together: pages of views that agree in size, samples, whether they want depth, and in how their
lanes are lit and what sky they have.
"""

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from worldloom.kernels.tables import DEPTH, I64, NO_TEXTURE, LaneTable, ViewTable
from worldloom.render.gl import raw
from worldloom.render.gl.raw import RawGL

MAX_PAGE_BYTES = 16 << 20
"""Of one page's target: large enough to keep a card busy, small enough to be read back while the next is drawn."""
MAX_KEPT_BYTES = 256 << 20
"""Of all targets that are kept for later draws."""
MAX_KEPT = 256
"""Targets: a driver has some 30 KB to keep of each, however small its pictures."""


class Group(NamedTuple):
    """What views must have in common to be drawn together."""

    width: int
    height: int
    samples: int
    depth: bool

    @property
    def layer_bytes(self) -> int:
        """Memory of one layer: colour, depth test and depth for each sample, and what samples are resolved into."""
        sample_bytes = 8 + 4 * self.depth
        resolved_bytes = 4 + 4 * self.depth if self.samples > 1 else 0
        return self.width * self.height * (self.samples * sample_bytes + resolved_bytes)


class Target(NamedTuple):
    """Textures and framebuffers of one size. With one sample, both framebuffers are the same."""

    draw_framebuffer: int
    read_framebuffer: int
    sampled_color: int
    sampled_depth: int  # 0 where depth is not asked for
    color: int
    depth: int  # 0 where depth is not asked for
    textures: tuple[int, ...]
    size_bytes: int


class TargetCache:
    """Targets by group and number of layers; those not used for longest are given back."""

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
        """How many targets there are."""
        return len(self._kept)

    def layers_per_page(self, group: Group) -> int:
        """How many views of a group are drawn at once at most: a power of two."""
        affordable = max(1, min(self._max_layers, MAX_PAGE_BYTES // group.layer_bytes))
        return 1 << (affordable.bit_length() - 1)

    def get(self, group: Group, views: int) -> Target:
        """A target with room for that many views. Sizes are powers of two, so that few batches leave few targets."""
        layers = 1 << (views - 1).bit_length()
        key = (group, layers)
        target = self._kept.get(key)
        if target is None:
            size = layers * group.layer_bytes
            while self._kept and (self.kept_count >= self._max_kept or self.kept_bytes + size > self._max_kept_bytes):
                self._release(self._kept.popitem(last=False)[1])
            target = self._kept[key] = self._make(group, layers)
        self._kept.move_to_end(key)
        return target

    def release(self) -> None:
        """Give everything back."""
        while self._kept:
            self._release(self._kept.popitem()[1])

    def _make(self, group: Group, layers: int) -> Target:
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

        def framebuffer(color: int, depth: int, depth_test: int) -> int:
            name = self._gl.create("Framebuffers")
            self._gl.NamedFramebufferTexture(name, raw.COLOR_ATTACHMENT, color, 0)
            if depth:
                self._gl.NamedFramebufferTexture(name, raw.COLOR_ATTACHMENT + 1, depth, 0)
            if depth_test:
                self._gl.NamedFramebufferTexture(name, raw.DEPTH_ATTACHMENT, depth_test, 0)
            outputs = 2 if depth else 1
            attachments = (ctypes.c_uint * outputs)(*(raw.COLOR_ATTACHMENT + k for k in range(outputs)))
            self._gl.NamedFramebufferDrawBuffers(name, outputs, attachments)
            status = self._gl.CheckNamedFramebufferStatus(name, raw.FRAMEBUFFER)
            if status != raw.FRAMEBUFFER_COMPLETE:
                raise RuntimeError(f"the OpenGL driver does not draw into layers of {group} (status {status:#x})")
            return name

        sampled_color = texture(raw.RGBA8, group.samples)
        sampled_depth = texture(raw.R32F, group.samples) if group.depth else 0
        depth_test = texture(raw.DEPTH32F, group.samples)
        self._gl.check(f"making a target of {layers} layers for {group}")
        draw = read = framebuffer(sampled_color, sampled_depth, depth_test)
        color, depth = sampled_color, sampled_depth
        if group.samples > 1:
            color = texture(raw.RGBA8, 1)
            depth = texture(raw.R32F, 1) if group.depth else 0
            read = framebuffer(color, depth, 0)
        self._gl.check(f"making a target of {layers} layers for {group}")
        textures = tuple({sampled_color, sampled_depth, depth_test, color, depth} - {0})
        return Target(draw, read, sampled_color, sampled_depth, color, depth, textures, layers * group.layer_bytes)

    def _release(self, target: Target) -> None:
        self._gl.delete("Framebuffers", *{target.draw_framebuffer, target.read_framebuffer})
        self._gl.delete("Textures", *target.textures)


MAX_LAMPLIT_VIEWS = 1024
"""Of a page: the lamps of as many fit into the smallest table that OpenGL 4.5 promises, 65536 vectors."""


class Page(NamedTuple):
    """Views drawn at once: the k-th of `views` goes into layer k."""

    group: Group
    has_lamps: bool
    has_sky_textures: bool
    views: I64


def plan_pages(views: ViewTable, lanes: LaneTable, layers_per_page: Callable[[Group], int]) -> Iterator[Page]:
    """All views that ask for something, group after group, in pages.

    Lanes with lamps and lanes without go through different programs, which a driver may round differently: that is for
    the view's own lane to say, not for those that happen to be drawn with it.
    """
    wants_depth = (views.outputs & DEPTH) != 0
    has_lamps = lanes.lamp_count[views.lane] > 0
    has_sky_textures = lanes.sky_textures[views.lane] != NO_TEXTURE
    key = (views.width.astype(np.int64) << 36) | (views.height.astype(np.int64) << 6)
    key |= (views.samples.astype(np.int64) << 3) | (has_lamps << 2) | (has_sky_textures << 1) | wants_depth
    asked = np.flatnonzero(views.outputs)
    order = asked[np.argsort(key[asked], kind="stable")]
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    for members in np.split(order, starts[1:]) if order.size else ():
        first = members[0]
        group = Group(
            int(views.width[first]), int(views.height[first]), int(views.samples[first]), bool(wants_depth[first])
        )
        step = min(layers_per_page(group), MAX_LAMPLIT_VIEWS if has_lamps[first] else len(members))
        for start in range(0, members.size, step):
            some = members[start : start + step]
            yield Page(group, bool(has_lamps[first]), bool(has_sky_textures[first]), some)
