"""The CPU renderer: the numba rasteriser on several threads.

Kernels release the GIL. Threads that help wait inside the kernel, without Python, and each has scratch memory of its
own. The bytes of a view do not depend on the thread that draws it.
"""

import os
import threading
import weakref
from collections.abc import Callable

import numpy as np

from worldloom.kernels.addresses import describe
from worldloom.kernels.raster import batch
from worldloom.kernels.raster.backdrop import MAX_PIXELS, allocate_backdrops
from worldloom.kernels.raster.batch import INVALID, TOO_LARGE, describe_views, draw_batch
from worldloom.kernels.raster.scratch import MAX_WIDTH, allocate_scratch
from worldloom.kernels.sharing import allocate_control, stop_threads
from worldloom.kernels.tables import I32, I64, U8, AssetTable, InstanceTable, LaneTable, PreviousTable, ViewTable
from worldloom.render.check import check_previous, has_valid_arrays, raise_first_error
from worldloom.render.renderer import EndStage, compile_kernels, ignore_stage
from worldloom.render.scene import Scene
from worldloom.render.views import NO_PREVIOUS


class CPURenderer:
    """The renderer that draws on the CPU; it needs no graphics device or driver.

    What it tells the kernel of tables and arrays is kept from draw to draw. A draw with those of the last one, whatever
    their content is now, takes some two microseconds beside drawing; with others, ten.
    """

    name = "cpu"

    def __init__(self, threads: int | None = None) -> None:
        available = len(os.sched_getaffinity(0))
        self.threads = available if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"threads is {threads}, expected 1 or more (None for one a core, {available} here)")
        self.device = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        self._memory = [(allocate_scratch(1, 1, 1), allocate_backdrops(1))]  # of each thread that has started
        self._limits = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1])
        self._control = allocate_control(self.threads)
        self._batch = batch.allocate_descriptions(batch.BATCH_ROWS)
        self._threads = batch.allocate_descriptions(self.threads * batch.THREAD_ROWS)
        batch.describe_thread(*self._memory[0], self._threads, 0)
        describe(NO_PREVIOUS, self._batch[batch.PREVIOUS :])
        # What the descriptions are of. A scene's tables and the arena may be large, so they are not kept alive: a scene
        # replaces its tables as a whole, so the first column stands for all of them.
        self._assets: AssetTable | None = None
        self._first_row: Callable[[], I32 | None] = lambda: None
        self._mesh: Callable[[], I32 | None] = lambda: None
        self._arena: Callable[[], U8 | None] = lambda: None
        self._views: ViewTable | None = None
        self._offsets: I64 | None = None
        self._ranges = np.empty((0, 2), np.int64)
        self._lock = threading.Lock()  # scratch memory is used by one batch at a time
        self._helpers: list[threading.Thread] = []
        self._stop_helpers = weakref.finalize(self, _stop, self._control, self._helpers)
        compile_kernels(self)

    @property
    def max_side_pixels(self) -> int:
        """Largest width and height of a frame."""
        return MAX_WIDTH

    def draw(
        self,
        scene: Scene,
        views: ViewTable,
        arena: U8,
        offsets: I64,
        end_stage: EndStage = ignore_stage,
        previous: PreviousTable | None = None,
    ) -> None:
        """Write every requested output of every view to its offset in the arena.

        This is all one stage: the kernel culls, draws and writes view by view, and has no clock.
        """
        with self._lock:
            if views is not self._views or offsets is not self._offsets or arena is not self._arena():
                if not has_valid_arrays(views, arena, offsets):
                    raise_first_error(scene, views, arena, offsets)
                self._describe_views(views, arena, offsets)
            assets, mesh, first_row = scene.assets.table, scene.instances.mesh, scene.lanes.first_row
            if mesh is not self._mesh() or first_row is not self._first_row() or assets is not self._assets:
                self._describe_scene(assets, scene.instances, scene.lanes)
            if previous is not None:
                check_previous(scene, views, previous)
                describe(previous, self._batch[batch.PREVIOUS :])
            try:
                result = draw_batch(self._batch, self._threads, self._control, 0)
                if result == TOO_LARGE:
                    self._grow()
                    result = draw_batch(self._batch, self._threads, self._control, 0)
            finally:
                if previous is not None:  # its arrays may not live until the next draw
                    describe(NO_PREVIOUS, self._batch[batch.PREVIOUS :])
            if result == INVALID:
                raise_first_error(scene, views, arena, offsets)

    def close(self) -> None:
        """Stop the threads."""
        self._stop_helpers()

    def __enter__(self) -> "CPURenderer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _describe_views(self, views: ViewTable, arena: U8, offsets: I64) -> None:
        if len(self._ranges) < offsets.size:
            self._ranges = np.empty((2 * offsets.size, 2), np.int64)
            memory = batch.CheckMemory(self._ranges, self._limits)
            describe(memory, self._batch[batch.CHECK_MEMORY : batch.PREVIOUS])
        self._views, self._offsets, self._arena = views, offsets, weakref.ref(arena)
        describe_views(*views, offsets, arena, self._batch)

    def _describe_scene(self, assets: AssetTable, instances: InstanceTable, lanes: LaneTable) -> None:
        if assets is not self._assets:
            for _, backdrops in self._memory:
                backdrops.length[:] = 0  # they show the assets before
        self._assets = assets
        self._mesh, self._first_row = weakref.ref(instances.mesh), weakref.ref(lanes.first_row)
        describe(assets, self._batch[batch.ASSETS : batch.INSTANCES])
        describe(instances, self._batch[batch.INSTANCES : batch.LANES])
        describe(lanes, self._batch[batch.LANES : batch.VIEWS])

    def _grow(self) -> None:
        """Grow the scratch memory of all threads, by doubling, to the largest view so far; start missing threads."""
        limits = self._limits
        needed = limits[batch.NEEDED : batch.BANDS].tolist()
        corners, triangles, pixels, texels = (
            max(have, 1 << (need - 1).bit_length()) for need, have in zip(needed[:4], limits[:4].tolist(), strict=True)
        )
        threads = max(needed[batch.THREADS], len(self._memory))
        is_larger = (limits[: batch.THREADS] != (corners, triangles, pixels, texels)).any()
        for thread in range(0 if is_larger else len(self._memory), threads):
            memory = (
                allocate_scratch(corners, triangles, pixels, texels),
                allocate_backdrops(min(pixels, MAX_PIXELS)),
            )
            self._memory[thread : thread + 1] = [memory]
            batch.describe_thread(*memory, self._threads, thread)
        while len(self._helpers) < threads - 1:
            arguments = (self._batch, self._threads, self._control, 1 + len(self._helpers))
            helper = threading.Thread(target=draw_batch, args=arguments, name="worldloom-draw", daemon=True)
            helper.start()
            self._helpers.append(helper)
        limits[: batch.NEEDED] = corners, triangles, pixels, texels, threads


def _stop(control: I64, helpers: list[threading.Thread]) -> None:
    """Stop the threads that wait in the kernel."""
    stop_threads(control)
    for helper in helpers:
        helper.join()
