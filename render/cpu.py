"""The CPU renderer: the numba rasteriser, spread over threads.

Kernels hold no GIL, so plain Python threads run them side by side; each has its own scratch memory and takes part
after part of a batch. Which thread paints a view changes nothing in its bytes.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from worldloom.kernels.raster.backdrop import MAX_PIXELS, SLOTS, make_backdrops
from worldloom.kernels.raster.scratch import make_scratch
from worldloom.kernels.raster.views import paint_views
from worldloom.kernels.tables import I64, U8, AssetTable, ViewTable
from worldloom.kernels.views import measure_views
from worldloom.render.check import check_draw
from worldloom.render.renderer import Mark, compile_kernels, unmarked
from worldloom.render.scene import Scene

_WORTH_A_THREAD_PIXELS = 4096
"""Waking another thread costs some 50 µs, about what a small view of this many pixels takes."""

_PARTS_PER_WORKER = 8
"""A batch is cut into so many parts for each worker, so that one on a slower core takes fewer."""


class CPURenderer:
    """Draws with the processor alone; needs nothing but this package."""

    name = "cpu"

    def __init__(self, threads: int | None = None) -> None:
        available = len(os.sched_getaffinity(0))
        self.threads = available if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"threads is {threads}, expected 1 or more (None for one a core, {available} here)")
        self.device = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        self._scratch = [make_scratch(1, 1, 1) for _ in range(self.threads)]
        self._backdrops = [make_backdrops(1) for _ in range(self.threads)]
        self._assets: AssetTable | None = None  # whose meshes and textures the backdrops show
        self._one_at_a_time = threading.Lock()  # scratch memory serves one batch
        self._pool = ThreadPoolExecutor(max(1, self.threads - 1), thread_name_prefix="worldloom-paint")
        compile_kernels(self)

    def draw(self, scene: Scene, views: ViewTable, arena: U8, offsets: I64, mark: Mark = unmarked) -> None:
        """Paint every asked output of every view at its byte offset of the arena.

        It is all one stage: the kernel culls, draws and writes view by view, and has no clock.
        """
        check_draw(scene, views, arena, offsets)
        if not len(views.lane):
            return
        with self._one_at_a_time:
            self._paint(scene, views, arena, offsets)

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown()

    def __enter__(self) -> "CPURenderer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _paint(self, scene: Scene, views: ViewTable, arena: U8, offsets: I64) -> None:
        assets, instances, lanes = scene.assets.table, scene.instances, scene.lanes
        count = len(views.lane)
        corners, triangles, largest, pixels = measure_views(
            views.lane,
            views.width,
            views.height,
            lanes.first_row,
            lanes.row_count,
            instances.mesh,
            assets.mesh_triangle_count,
            assets.mesh_corner_count,
        )
        if assets is not self._assets:
            self._backdrops = [make_backdrops(1) for _ in range(self.threads)]
            self._assets = assets
        workers = min(self.threads, count, max(1, pixels // _WORTH_A_THREAD_PIXELS))
        self._make_room(workers, corners, 1 + triangles, largest)
        part = -(-count // (workers * _PARTS_PER_WORKER)) if workers > 1 else count
        taken = np.zeros(1, np.int64)

        def paint(worker: int) -> None:
            scratch, backdrops = self._scratch[worker], self._backdrops[worker]
            paint_views(assets, instances, lanes, views, offsets, part, taken, scratch, backdrops, arena)

        others = [self._pool.submit(paint, worker) for worker in range(1, workers)]
        paint(0)
        for other in others:
            other.result()

    def _make_room(self, workers: int, corners: int, triangles: int, pixels: int) -> None:
        """Scratch memory for the largest view so far; it only ever grows, by doubling."""
        for worker in range(workers):
            have = self._scratch[worker]
            if corners > len(have.cells) or triangles > len(have.whole) or 4 * pixels > len(have.owner):
                wanted, held = (corners, triangles, pixels), (len(have.cells), len(have.whole), len(have.owner) // 4)
                grown = (max(hold, 1 << (want - 1).bit_length()) for want, hold in zip(wanted, held, strict=True))
                self._scratch[worker] = make_scratch(*grown)
            room = min(len(self._scratch[worker].owner) // 4, MAX_PIXELS)
            if len(self._backdrops[worker].colors) < SLOTS * room:
                self._backdrops[worker] = make_backdrops(room)
