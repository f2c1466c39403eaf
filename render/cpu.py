"""The CPU renderer: the numba rasteriser on a pool of threads.

Kernels release the GIL, so Python threads run them in parallel. Each thread has scratch memory of its own and draws
chunks of a batch. The bytes of a view do not depend on the thread that draws it.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from worldloom.kernels.raster.backdrop import CACHE_ENTRIES, MAX_PIXELS, allocate_backdrops
from worldloom.kernels.raster.scratch import MAX_WIDTH, allocate_scratch
from worldloom.kernels.raster.views import draw_views
from worldloom.kernels.tables import I64, U8, AssetTable, ViewTable
from worldloom.kernels.views import measure_views
from worldloom.render.check import check_draw
from worldloom.render.renderer import EndStage, compile_kernels, ignore_stage
from worldloom.render.scene import Scene

_PIXELS_PER_THREAD = 4096
"""Pixels of a batch per thread: waking a thread costs some 50 µs, about as much as drawing so many pixels."""

_CHUNKS_PER_WORKER = 8
"""Chunks of a batch per worker, so that one on a slower core can draw fewer."""


class CPURenderer:
    """The renderer that draws on the CPU; it needs no graphics device or driver."""

    name = "cpu"

    def __init__(self, threads: int | None = None) -> None:
        available = len(os.sched_getaffinity(0))
        self.threads = available if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"threads is {threads}, expected 1 or more (None for one a core, {available} here)")
        self.device = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        self._scratch = [allocate_scratch(1, 1, 1) for _ in range(self.threads)]
        self._backdrops = [allocate_backdrops(1) for _ in range(self.threads)]
        self._assets: AssetTable | None = None  # the assets that the backdrops were drawn with
        self._lock = threading.Lock()  # scratch memory is used by one batch at a time
        self._pool = ThreadPoolExecutor(max(1, self.threads - 1), thread_name_prefix="worldloom-draw")
        compile_kernels(self)

    @property
    def max_side_pixels(self) -> int:
        """Largest width and height of a frame."""
        return MAX_WIDTH

    def draw(self, scene: Scene, views: ViewTable, arena: U8, offsets: I64, end_stage: EndStage = ignore_stage) -> None:
        """Write every requested output of every view to its offset in the arena.

        This is all one stage: the kernel culls, draws and writes view by view, and has no clock.
        """
        check_draw(scene, views, arena, offsets)
        if not len(views.lane):
            return
        with self._lock:
            self._draw(scene, views, arena, offsets)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def __enter__(self) -> "CPURenderer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _draw(self, scene: Scene, views: ViewTable, arena: U8, offsets: I64) -> None:
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
            self._backdrops = [allocate_backdrops(1) for _ in range(self.threads)]
            self._assets = assets
        workers = min(self.threads, count, max(1, pixels // _PIXELS_PER_THREAD))
        self._grow(workers, corners, 1 + triangles, largest)
        chunk_size = -(-count // (workers * _CHUNKS_PER_WORKER)) if workers > 1 else count
        next_view = np.zeros(1, np.int64)

        def run(worker: int) -> None:
            scratch, backdrops = self._scratch[worker], self._backdrops[worker]
            draw_views(assets, instances, lanes, views, offsets, chunk_size, next_view, scratch, backdrops, arena)

        others = [self._pool.submit(run, worker) for worker in range(1, workers)]
        run(0)
        for other in others:
            other.result()

    def _grow(self, workers: int, corners: int, triangles: int, pixels: int) -> None:
        """Grow the scratch memory of workers, by doubling, to the largest view so far."""
        for worker in range(workers):
            have = self._scratch[worker]
            if corners > len(have.cells) or triangles > len(have.record_ints) or 4 * pixels > len(have.owner):
                wanted, held = (
                    (corners, triangles, pixels),
                    (len(have.cells), len(have.record_ints), len(have.owner) // 4),
                )
                grown = (max(hold, 1 << (want - 1).bit_length()) for want, hold in zip(wanted, held, strict=True))
                self._scratch[worker] = allocate_scratch(*grown)
            capacity = min(len(self._scratch[worker].owner) // 4, MAX_PIXELS)
            if len(self._backdrops[worker].colors) < CACHE_ENTRIES * capacity:
                self._backdrops[worker] = allocate_backdrops(capacity)
