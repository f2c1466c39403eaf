"""Which views are drawn together: pages of views that agree in size, samples, and whether they want depth."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from worldloom.kernels.tables import DEPTH, I64, ViewTable
from worldloom.render.gl.targets import Group


class Page(NamedTuple):
    """Views drawn at once: the k-th of `views` goes into layer k."""

    group: Group
    views: I64


def plan_pages(views: ViewTable, layers_per_page: Callable[[Group], int]) -> Iterator[Page]:
    """All views that ask for something, group after group, in pages."""
    wants_depth = (views.outputs & DEPTH) != 0
    key = (views.width.astype(np.int64) << 34) | (views.height.astype(np.int64) << 4)
    key |= (views.samples.astype(np.int64) << 1) | wants_depth
    asked = np.flatnonzero(views.outputs)
    order = asked[np.argsort(key[asked], kind="stable")]
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    for members in np.split(order, starts[1:]) if order.size else ():
        first = members[0]
        group = Group(
            int(views.width[first]), int(views.height[first]), int(views.samples[first]), bool(wants_depth[first])
        )
        step = layers_per_page(group)
        for start in range(0, members.size, step):
            yield Page(group, members[start : start + step])
