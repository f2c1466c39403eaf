"""Frames of states of a scene of your own: arrays of poses in, arrays of frames out, without a server or a family.

    draw = SceneRenderer(scene, lane, width=64, height=64)
    frames = draw(poses, camera=look_at(eyes, (0, 0, 0.5)))["rgb"]

One lane of a scene is the template: its meshes, colours, textures and light are those of all states. States are drawn
in batches, each on lanes of a scene of the renderer's own, straight into the arrays that are returned. So memory
beside these arrays is bounded, and frames have the same bytes as views of lanes that are filled one by one.

All work is done on one thread of the renderer's own: while a program uses one part of a stream, the next is drawn.
"""

import operator
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, Literal, NamedTuple, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.drawing_states import (
    DrawingJob,
    DrawingThread,
    FrameMemory,
    IsCancelled,
    check_out,
    wait_one_behind,
)
from worldloom.kernels.outputs import OUTPUT_COUNT, OUTPUT_NAMES, STATE_OUTPUT_NAMES, output_bits, outputs_of
from worldloom.kernels.tables import I64, NO_TEXTURE, InstanceTable, LaneTable, ViewTable, map_columns
from worldloom.render.arena import PROCESS_MEMORY, address_of, lay_out
from worldloom.render.check import check_draw
from worldloom.render.choose import make_renderer
from worldloom.render.scene import LANE_BYTES, ROW_BYTES, Scene
from worldloom.render.scene_states import (
    LANE_COLUMNS,
    POSES,
    ROW_COLUMNS,
    VIEW_ARGUMENTS,
    StateArrays,
    StateBatch,
    StateChecker,
)
from worldloom.render.views import DEFAULT_SIZE, make_views

_MAX_LANES = 1024
"""Most states of a batch."""
_BATCH_BYTES = 16 << 20
"""Bytes of the frames of a batch, and of its rows in the tables."""
_OWN_COLUMNS = ("first_row", "row_count", "static_rows")
"""Columns of the lane table that a scene fills itself."""


class SceneRenderer:
    """A function from states of a scene to frames.

    The template is copied: later changes of its scene have no effect, and the scene is not used. Meshes and textures
    may be added to its assets. Use it in a `with` statement, or call `close`; any thread may call it.
    """

    def __init__(
        self,
        scene: Scene,
        lane: ArrayLike,
        *,
        width: int = DEFAULT_SIZE,
        height: int = DEFAULT_SIZE,
        outputs: Sequence[str] = ("rgb",),
        samples: int = 1,
        shadows: bool = False,
        moving: ArrayLike | None = None,
        batch_size: int | None = None,
        renderer: Literal["auto", "gl", "cpu"] = "auto",
    ) -> None:
        """Copy a template.

        Args:
            scene: The scene that the template is in.
            lane: The number of the template's lane.
            width: Width of frames in pixels.
            height: Height of frames in pixels.
            outputs: Some of `rgb`, `gray`, `depth`, `segmentation` and `normals`.
            samples: Samples per pixel, 1 or 4.
            shadows: Whether lights cast shadows.
            moving: Rows of the template, counted from 0, that arrays of states are of; the others stay as they are. By
                default all of them.
            batch_size: Most states that are drawn at once; by default as many as have 16 MiB of frames, at most 1024.
            renderer: As for `make_renderer`.
        """
        template = _copy_template(scene, lane, moving)
        size = _integer("width", width), _integer("height", height)
        most = None if batch_size is None else _integer("batch_size", batch_size)
        if samples not in (1, 4):
            raise ValueError(f"samples is {samples!r}: expected 1 or 4")
        if isinstance(outputs, str) or not outputs:
            raise ValueError(f"outputs is {outputs!r}: expected some of {', '.join(STATE_OUTPUT_NAMES)}, as a list")
        for output in outputs_of(output_bits(outputs)):
            if output.needs_step:
                raise ValueError(
                    f"output {output.name!r} is of a step, and states have none before them: expected some of "
                    f"{', '.join(STATE_OUTPUT_NAMES)}"
                )
        self._assets = scene.assets
        self._checker = StateChecker(
            template.moving_count, bool(template.lane.lamp_count[0]), int(template.lane.sky_textures[0]) != NO_TEXTURE
        )
        thread = DrawingThread("worldloom-scene")
        try:
            self._drawing = thread.run(
                lambda _: _Drawing(scene, template, size, output_bits(outputs), samples, shadows, most, renderer)
            )
        except BaseException:
            thread.close(lambda: None)
            raise
        self._thread = thread
        self._finish = weakref.finalize(self, thread.close, self._drawing.renderer.close)

    def __call__(
        self,
        poses: Any = None,
        *,
        out: Mapping[str, np.ndarray] | None = None,
        **arrays: Unpack[StateArrays],
    ) -> dict[str, np.ndarray]:
        """Return the frames of N states, as arrays [N, height, width, ...] by output.

        The arrays belong to the caller. Nothing is drawn if something is wrong with the states. A row whose pose is not
        finite is not drawn.

        Args:
            poses: Poses [N, rows, 3, 4] of the rows that move, local to world: an array of NumPy, or of torch or JAX in
                the memory of the CPU. The template's by default. Also a dict of these and the arrays below, by name.
            out: Arrays to draw into, by output, and to return: C-contiguous, of the right shape and dtype.
            **arrays: More arrays of states, see StateArrays.
        """
        batch = self._checker.check(_gather(poses, arrays), self._assets.table)
        return self._submit(batch, out).wait()

    def stream(
        self, states: Any, *, batch_size: int | None = None, **arrays: Unpack[StateArrays]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the frames of many states part by part, each as a call would return them; memory does not grow.

        While one part is used, the next is drawn: its arrays must not change until its frames are there. Memory of
        parts that are not referred to any more is used again.

        Args:
            states: An array of poses (a memory map, for instance) or a dict of arrays by name, which is divided into
                parts; or an iterable of such arrays or dicts, each of which is a part, whatever its length.
            batch_size: States of a part of an array; by default as many as are drawn at once.
            **arrays: More arrays of states. Beside an iterable, they are for all states.
        """
        size = self.batch_size if batch_size is None else _integer("batch_size", batch_size)
        if isinstance(states, Mapping | np.ndarray) or hasattr(states, "__dlpack__"):
            whole = self._checker.check(_gather(states, arrays), self._assets.table)
            starts = range(0, whole.count, size)
            return self._stream(whole.part(first, min(whole.count, first + size)) for first in starts)
        if isinstance(states, str | bytes) or not isinstance(states, Iterable):
            raise TypeError(f"states are {type(states).__name__}: expected an array, a dict of arrays, or an iterable")
        return self._stream(self._check_parts(states, arrays))

    @property
    def batch_size(self) -> int:
        """Most states that are drawn at once."""
        return self._drawing.batch_size

    @property
    def renderer(self) -> str:
        """Name of the renderer: `cpu` or `gl`."""
        return self._drawing.renderer.name

    def close(self) -> None:
        """Close the renderer, and end its thread. Closing twice does nothing."""
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_parts(self, parts: Iterable[Any], arrays: StateArrays) -> Iterator[StateBatch]:
        first = 0
        for part in parts:
            batch = self._checker.check(_gather(part, arrays), self._assets.table, first)
            first += batch.count
            yield batch

    def _stream(self, batches: Iterable[StateBatch]) -> Iterator[dict[str, np.ndarray]]:
        return wait_one_behind(self._submit(batch, None) for batch in batches)

    def _submit(self, batch: StateBatch, out: Mapping[str, np.ndarray] | None) -> DrawingJob[dict[str, np.ndarray]]:
        if not self._finish.alive:
            raise RuntimeError("the renderer is closed: expected an open one; make another")
        drawing = self._drawing
        return self._thread.submit(lambda is_cancelled: drawing.draw(batch, out, is_cancelled))


class _Template(NamedTuple):
    """A copy of a lane: its instance rows, its row of the lane table, and which of its rows move."""

    rows: InstanceTable
    lane: LaneTable
    moving: "slice | I64"
    moving_count: int
    static_rows: int


def _copy_template(scene: Scene, lane: ArrayLike, moving: ArrayLike | None) -> _Template:
    number, known = np.asarray(lane), len(scene.lanes.first_row)
    if number.size != 1 or number.dtype.kind not in "iu" or not 0 <= number.item() < known:
        raise ValueError(f"lane is {lane!r}: expected the number of one lane of the scene, which has {known}")
    rows = scene.rows(number.reshape(1))[0]
    copied = map_columns(scene.instances, lambda column: column[rows])
    copied_lane = map_columns(scene.lanes, lambda column: column[number.reshape(1)])
    if moving is None:
        return _Template(copied, copied_lane, slice(None), rows.size, int(copied_lane.static_rows[0]))
    selected = np.asarray(moving)
    if selected.ndim != 1 or (selected.size and selected.dtype.kind not in "iu"):
        raise ValueError(f"moving is {moving!r}: expected a list of rows of the template")
    if ((selected < 0) | (selected >= rows.size)).any() or np.unique(selected).size != selected.size:
        raise ValueError(f"moving is {moving!r}: expected rows of the template, which has {rows.size}, each once")
    # Rows before the first that moves are the same in all states: the CPU renderer draws those once.
    static_rows = int(selected.min(initial=rows.size))
    return _Template(copied, copied_lane, selected.astype(np.int64), selected.size, static_rows)


class _Drawing:
    """Lanes that are copies of a template, and the renderer that draws them. Used on one thread."""

    def __init__(
        self,
        scene: Scene,
        template: _Template,
        size: tuple[int, int],
        bits: int,
        samples: int,
        shadows: bool,
        batch_size: int | None,
        renderer: str,
    ) -> None:
        self._scene, self._template = Scene(scene.assets), template
        self._width, self._height = size
        self._bits, self._samples, self._shadows = bits, samples, shadows
        self._outputs = outputs_of(bits)
        self._rows = template.rows.mesh.size
        self._changed: set[str] = set()
        """Arrays of states that the lanes may still have from the last draw."""
        self._memory = FrameMemory()
        frame_bytes = size[0] * size[1] * sum(output.pixel_bytes for output in self._outputs)
        state_bytes = max(frame_bytes, self._rows * ROW_BYTES + LANE_BYTES)
        self.batch_size = batch_size or min(_MAX_LANES, max(1, _BATCH_BYTES // state_bytes))
        self._add_lanes(1)
        self.renderer = make_renderer(renderer)
        try:
            self._check()
        except BaseException:
            self.renderer.close()
            raise

    def draw(
        self, states: StateBatch, out: Mapping[str, np.ndarray] | None, is_cancelled: IsCancelled
    ) -> dict[str, np.ndarray]:
        """Draw states, batch by batch, and return their frames."""
        forms = {
            output.name: ((states.count, *output.frame_shape(self._height, self._width)), np.dtype(output.dtype))
            for output in self._outputs
        }
        frames = self._memory.take(forms) if out is None else check_out(out, forms)
        self._add_lanes(min(states.count, self.batch_size))
        self._restore(self._changed - states.arrays.keys())
        self._changed = set(states.arrays)
        for first in range(0, states.count, self.batch_size):
            if is_cancelled():
                raise CancelledError("drawing was interrupted, or the renderer was closed")
            end = min(states.count, first + self.batch_size)
            batch = states.part(first, end)
            self._write(batch)
            offsets = np.full((batch.count, OUTPUT_COUNT), -1, np.int64)
            for output in self._outputs:
                array = frames[output.name][first:end]
                starts = address_of(array) + np.arange(batch.count) * (array.nbytes // batch.count)
                offsets[:, OUTPUT_NAMES.index(output.name)] = starts
            self.renderer.draw(self._scene, self._make_views(batch), PROCESS_MEMORY, offsets)
        return frames

    def _check(self) -> None:
        """Raise ValueError unless the template can be drawn, at this size."""
        most = self.renderer.max_side_pixels
        if max(self._width, self._height) > most:
            raise ValueError(
                f"frames have {self._width} × {self._height} pixels: expected at most {most} a side, as "
                f"{self.renderer.device} allows"
            )
        views = self._make_views(StateBatch(1, {}, {}))
        offsets, _ = lay_out(views)
        check_draw(self._scene, views, PROCESS_MEMORY, offsets)

    def _add_lanes(self, wanted: int) -> None:
        """Add copies of the template until there are so many; their rows follow on each other, lane after lane."""
        have = len(self._scene.lanes.first_row)
        if wanted <= have:
            return
        self._scene.add(wanted - have, self._rows, self._template.static_rows)
        for name in InstanceTable._fields:
            self._by_lane(name)[have:] = getattr(self._template.rows, name)
        for name in LaneTable._fields:
            if name not in _OWN_COLUMNS:
                getattr(self._scene.lanes, name)[have:] = getattr(self._template.lane, name)

    def _by_lane(self, name: str) -> np.ndarray:
        """Return a column of the instance table as an array [lanes, rows, ...]."""
        column: np.ndarray = getattr(self._scene.instances, name)
        return column.reshape(len(self._scene.lanes.first_row), self._rows, *column.shape[1:])

    def _restore(self, names: Iterable[str]) -> None:
        """Give all lanes the template's values again."""
        for name in names:
            if name in ROW_COLUMNS:
                self._by_lane(ROW_COLUMNS[name])[:] = getattr(self._template.rows, ROW_COLUMNS[name])
            elif name in LANE_COLUMNS:
                getattr(self._scene.lanes, name)[:] = getattr(self._template.lane, name)

    def _write(self, batch: StateBatch) -> None:
        """Write the arrays of states into the first lanes."""
        with np.errstate(over="ignore"):  # a pose beyond float32 is not finite, and its row is not drawn
            for name, array in batch.arrays.items():
                if name in ROW_COLUMNS:
                    self._by_lane(ROW_COLUMNS[name])[: batch.count, self._template.moving] = array
                elif name in LANE_COLUMNS:
                    getattr(self._scene.lanes, name)[: batch.count] = array

    def _make_views(self, batch: StateBatch) -> ViewTable:
        arrays = batch.arrays
        return make_views(
            np.arange(batch.count),
            **{name: arrays[name] for name in VIEW_ARGUMENTS if name in arrays},
            width=self._width,
            height=self._height,
            outputs=self._bits,
            samples=self._samples,
            shadows=self._shadows,
        )


def _gather(poses: Any, arrays: StateArrays) -> dict[str, Any]:
    """Return all arrays of states by name, those of a dict of poses included."""
    given = dict(poses) if isinstance(poses, Mapping) else {} if poses is None else {POSES: poses}
    for name, array in arrays.items():
        if name in given:
            raise ValueError(f"{name} is in the states and a keyword too: expected it once")
        given[name] = array
    return given


def _integer(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: expected an integer") from None
    if number < 1:
        raise ValueError(f"{name} is {number}: expected 1 or more")
    return number
