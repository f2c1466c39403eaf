"""Prepared steps: the observations of a step that asks for the same as the one before, with nothing computed anew.

A world whose agent is alone in a tick, and asks for the same observations again, needs the same table of views, the
same frames at other addresses, and the same kinds of numbers. A PreparedStep has all of these, and does for its step
what the stages `write_scene`, `draw` and `fill_replies` do for any number of them, with the same bytes. It is used for
as long as `fits` says so: what it depends on is compared, so nothing has to announce a change.
"""

from operator import itemgetter
from typing import NamedTuple

import numpy as np

from worldloom.kernels.outputs import OUTPUT_COUNT, OUTPUT_NAMES
from worldloom.kernels.tables import I64, ViewTable, map_columns
from worldloom.kernels.wire import write_outcomes, write_rows, write_varints
from worldloom.render.arena import PROCESS_MEMORY
from worldloom.render.renderer import EndStage, Renderer
from worldloom.render.scene import Scene
from worldloom.server.engine.pictures import is_drawn
from worldloom.server.engine.shared_memory import Segment, next_ring_index, shared_locations
from worldloom.server.engine.timing import Counters
from worldloom.server.engine.world import FAILURES, Boundary, Step
from worldloom.worlds.family import CameraPlacement
from worldloom.worlds.pool import Pool

_OUTCOMES = ("reward", "discount", "step_type")
"""Observations of every family, which are columns of the pool."""


def observe_prepared(step: Step, renderer: Renderer, scene: Scene, counters: Counters, end_stage: EndStage) -> bool:
    """Write the reply of a step, alone in its tick, that asks for the same as the one before.

    Return False if it does not, or if its family fails: then the stages of the tick have to do it.
    """
    agent = step.agent
    if agent.prepared is None or not agent.prepared.fits(step):
        is_repeated, agent.last_request = step.request is agent.last_request, step.request
        agent.prepared = None
        if not is_repeated or step.boundary is not Boundary.NONE or not PreparedStep.can_prepare(step):
            return False
    try:
        if agent.prepared is None:
            agent.prepared = PreparedStep(step)
        agent.prepared.observe(step, renderer, scene, counters, end_stage)
    except FAILURES:
        agent.prepared = None
        return False
    return True


class _PreparedCamera:
    """The rows of one camera in the view table."""

    def __init__(self, name: str, views: ViewTable) -> None:
        self.name = name
        self._views = views
        self._placement: CameraPlacement | None = None
        self._half_height: float | None = None

    def place(self, placement: CameraPlacement, half_height: float | None) -> None:
        """Write where the camera is, unless it has not moved; `half_height` replaces that of the family."""
        if placement is self._placement and half_height == self._half_height:
            return
        views = self._views
        views.camera[...] = placement.pose
        views.half_height[...] = placement.half_height if half_height is None else half_height
        views.orthographic[...] = placement.orthographic
        views.near[...] = placement.near
        views.far[...] = placement.far
        # Most families have one placement object for a camera that stands still, which is compared by identity. One
        # with an array for each lane is made anew for each step, or may be written to.
        is_constant = placement.pose.ndim == 2 and isinstance(placement.half_height, float | int)
        self._placement, self._half_height = placement if is_constant else None, half_height


class _PreparedFrames(NamedTuple):
    """The frames of one observation."""

    field: int
    """Index of the observation in the reply."""
    shared_name: str | None
    """Name of the frames in shared memory, if they go there."""
    steps: I64
    """Bytes from the first lane's frame to that of each lane."""
    offsets: I64
    """The offsets of these frames: a column of the table that is drawn by."""


class PreparedStep:
    """Views, addresses and numbers that the steps of one agent with one request share."""

    def __init__(self, step: Step) -> None:
        agent, world = step.agent, step.agent.world
        self._agent, self._request, self._specs, self._lanes = agent, step.request, agent.specs, world.lanes
        self._pool: Pool = world.pool
        self._scene_lanes = self._pool.scene_lane[world.lanes]
        self._pool.mark_valid(world.lanes)
        count = len(world.lanes)
        cameras = step.request.cameras
        tables = [agent.views(world.lanes, camera, bits) for camera, bits in cameras]
        self._views = ViewTable(*(np.concatenate(columns) for columns in zip(*tables, strict=True))) if tables else None
        self._offsets: I64 = np.full((count * len(cameras), OUTPUT_COUNT), -1, np.int64)
        self._cameras: list[_PreparedCamera] = []
        self._frames: list[_PreparedFrames] = []
        for number, (camera, _) in enumerate(cameras):
            rows = slice(number * count, (number + 1) * count)
            assert self._views is not None
            self._cameras.append(_PreparedCamera(camera, map_columns(self._views, itemgetter(rows))))
            self._frames += self._prepare_frames(camera, self._offsets[rows])
        self._counted = [
            (name, (camera, name))
            for camera, bits in cameras
            for bit, name in enumerate(OUTPUT_NAMES)
            if bits >> bit & 1
        ]
        self._prepare_numbers()

    def _prepare_frames(self, camera: str, offsets: I64) -> list[_PreparedFrames]:
        found = []
        for field, spec in enumerate(self._request.observations):
            if spec.camera == camera and spec.final_of is None:
                shared = spec.shared_frame
                size_bytes = spec.data_bytes if shared is None else self._specs.shared_bytes[shared]
                steps = size_bytes // len(offsets) * np.arange(len(offsets))
                found.append(_PreparedFrames(field, shared, steps, offsets[:, spec.output]))
        return found

    def _prepare_numbers(self) -> None:
        """Sort the observations that are not frames: outcomes of the step, locations of frames, and the family's."""
        fields = {spec.name: field for field, spec in enumerate(self._request.observations)}
        self._outcome_fields = [(k, fields[name]) for k, name in enumerate(_OUTCOMES) if name in fields]
        self._outcome_starts: I64 = np.full(len(_OUTCOMES), -1, np.int64)
        sizes = [getattr(self._pool, name).itemsize for name in _OUTCOMES]
        self._outcome_sizes: I64 = np.array(sizes, np.int64)
        self._outcome_firsts: I64 = np.array([self._agent.index * sizes[0], 0, 0], np.int64)
        self._read_columns()
        self._locations = [
            (field, spec.shared_frame)
            for field, spec in enumerate(self._request.observations)
            if spec.shared_frame is not None
        ]
        self._located: Segment | None = None
        self._location_rows: dict[tuple[int, str], I64] = {}
        """Locations of frames in this segment, by ring index and name."""
        self._family_fields = [(fields[name], name) for name in self._request.family_names]

    def _read_columns(self) -> None:
        """Take the columns of the outcomes as bytes. A pool that grows or shrinks has others."""
        self._columns = tuple(getattr(self._pool, name) for name in _OUTCOMES)
        self._bytes_of_columns = tuple(column.view(np.uint8).reshape(len(column), -1) for column in self._columns)

    @staticmethod
    def can_prepare(step: Step) -> bool:
        """Return whether steps like this can be prepared.

        Not if a frame goes into the reply and shared memory, nor with frames that the family supplies, nor with flow.
        """
        observations, family = step.request.observations, step.agent.world.pool.family
        shared = {spec.shared_frame for spec in observations}
        if step.request.flow_cameras:
            return False
        return all(is_drawn(family, camera) for camera, _ in step.request.cameras) and not any(
            spec.is_frame and spec.name in shared for spec in observations
        )

    def fits(self, step: Step) -> bool:
        """Return whether a step, alone in its tick, has all that this was prepared for."""
        agent = step.agent
        return (
            step.request is self._request
            and step.boundary is Boundary.NONE
            and agent is self._agent
            and agent.specs is self._specs
            and agent.world.lanes is self._lanes
        )

    def observe(self, step: Step, renderer: Renderer, scene: Scene, counters: Counters, end_stage: EndStage) -> None:
        """Write the step's reply: frames and numbers. If it raises, nothing has changed but the reply's memory."""
        buffer = step.out or self._request.layout.buffers.acquire()
        step.reply, addresses = buffer.data, buffer.addresses
        ring_index = next_ring_index(step) if self._request.is_shared else -1
        pool, lanes, agent = self._pool, self._lanes, step.agent
        observed = [(field, pool.observe(lanes, name, agent.index)) for field, name in self._family_fields]
        if self._views is not None:
            self._write_views(step, scene, addresses, ring_index)
            end_stage("plan")
            renderer.draw(scene, self._views, PROCESS_MEMORY, self._offsets, end_stage)
            counters.draws += 1
            counters.views += len(self._offsets)
            for output, key in self._counted:
                counters.frames[output] += len(lanes)
                counters.camera_frames[key] = counters.camera_frames.get(key, 0) + len(lanes)
        else:
            end_stage("plan")
        end_stage("draw")
        self._write_numbers(step, addresses, ring_index, observed)
        if step.final is not None and self._request.layout.append_final is not None:
            step.reply = self._request.layout.append_final(step.reply, step.final)

    def _write_views(self, step: Step, scene: Scene, addresses: I64, ring_index: int) -> None:
        """Have the family write instances and cameras, and set the addresses of the frames."""
        agent, world, pool = step.agent, step.agent.world, self._pool
        pool.write_instances(self._lanes, self._scene_lanes)
        for camera in self._cameras:
            placement = pool.place_camera(self._lanes, camera.name, agent.index)
            camera.place(placement, agent.half_heights.get(camera.name))
        for field, shared_name, steps, offsets in self._frames:
            if shared_name is None:
                start = addresses[field]
            else:
                assert agent.segment is not None
                start = agent.segment.address(shared_name, ring_index)
            np.add(steps, start, out=offsets)
        if world.lighting:
            world.write_lighting(scene)

    def _write_numbers(
        self, step: Step, addresses: I64, ring_index: int, observed: list[tuple[int, np.ndarray]]
    ) -> None:
        pool, layout = self._pool, self._request.layout
        if layout.state_offset is not None:
            PROCESS_MEMORY[addresses[-1]] = step.state
        if self._outcome_fields:
            if pool.reward is not self._columns[0]:
                self._read_columns()
            starts = self._outcome_starts
            for k, field in self._outcome_fields:
                starts[k] = addresses[field]
            write_outcomes(
                self._lanes, self._bytes_of_columns, self._outcome_firsts, self._outcome_sizes, starts, PROCESS_MEMORY
            )
        observed += [(field, self._locate(step, ring_index, name)) for field, name in self._locations]
        for field, values in observed:
            start = addresses[field : field + 1]
            if layout.fields[field].as_varints:
                write_varints(values.reshape(1, -1).astype(np.int64, copy=False), start, PROCESS_MEMORY)
            else:
                write_rows(np.ascontiguousarray(values).reshape(1, -1).view(np.uint8), start, PROCESS_MEMORY)

    def _locate(self, step: Step, ring_index: int, name: str) -> I64:
        """Return where the frames are in shared memory: the same each time that this part of it is drawn into."""
        if step.agent.segment is not self._located:
            self._located = step.agent.segment
            self._location_rows.clear()
        key = (ring_index, name)
        if key not in self._location_rows:
            self._location_rows[key] = shared_locations([step], [ring_index], name)
        return self._location_rows[key]
