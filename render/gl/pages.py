"""Which views are drawn together: pages of views that agree in size, samples, whether they want depth, and in how their
lanes are lit and what sky they have."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from worldloom.kernels.tables import DEPTH, I64, NO_TEXTURE, LaneTable, ViewTable
from worldloom.render.gl.targets import Group

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
