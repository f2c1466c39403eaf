"""Episodes that end and begin within one step: the last observations are kept, then the next episodes begin.

This is for vector worlds with autoreset `same_step`, in ticks in which episodes of such worlds have ended. Frames of
the last states are drawn for the ended lanes only, and only if the step asks for them. Where many episodes have to
begin, that takes several ticks; the steps are answered when all have begun.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from worldloom.kernels.outputs import OUTPUT_COUNT
from worldloom.kernels.tables import I64, PreviousTable, ViewTable
from worldloom.protos.errors import Internal, RequestError
from worldloom.render.arena import PROCESS_MEMORY, address_of
from worldloom.render.renderer import EndStage, Renderer
from worldloom.render.scene import Scene
from worldloom.server.engine.before import join_previous, previous_of
from worldloom.server.engine.observations import FINAL_LANES
from worldloom.server.engine.pictures import PictureFrames, is_drawn
from worldloom.server.engine.slices import begin_in_chunks
from worldloom.server.engine.timing import Counters, TickBudget
from worldloom.server.engine.world import FAILURES, Boundary, Step, World
from worldloom.server.logs import Log
from worldloom.worlds.lanes import INTERRUPTED

log = Log("engine")


class NextEpisodes:
    """Worlds whose next episodes are being begun, and their steps, which wait for that."""

    def __init__(self) -> None:
        self.waiting: list[WaitingWorld] = []

    def add(self, steps: list[Step], observer: "FinalObserver") -> list[Step]:
        """Take over the steps of worlds with ended lanes, with their final observations; return the others."""
        by_world: dict[World, list[Step]] = {}
        for step in steps:
            by_world.setdefault(step.agent.world, []).append(step)
        ended = [world for world in by_world if world.ended is not None]
        failed = observer.observe([step for world in ended for step in by_world[world]])
        for world in ended:
            assert world.ended is not None
            waiting = [step for step in by_world.pop(world) if step not in failed]
            self.waiting.append(WaitingWorld(world, waiting, world.lanes[world.ended]))
            world.ended = None
        return [step for others in by_world.values() for step in others]

    def begin(self, budget: TickBudget) -> list[Step]:
        """Begin episodes, as many as there is time for, and some in any case; return the steps that are done."""
        done: list[Step] = []
        waiting, self.waiting = self.waiting, []
        for number, one in enumerate(waiting):
            if number and budget.left_s <= 0:
                self.waiting.insert(number - 1, one)  # before those that had their turn
            elif one.begin(budget):
                done += [step for step in one.steps if step.agent.world.agents.get(step.agent.index) is step.agent]
            else:
                self.waiting.append(one)
        return done

    def remove(self, world: World, error: RequestError) -> None:
        """Fail the steps of a world that is gone."""
        for one in self.waiting:
            if one.world is world:
                for step in one.steps:
                    step.fail(error)
        self.waiting = [one for one in self.waiting if one.world is not world]


@dataclass
class WaitingWorld:
    """A world with lanes that have to begin an episode before its steps are answered."""

    world: World
    steps: list[Step]
    lanes: I64

    def begin(self, budget: TickBudget) -> bool:
        """Begin some episodes; return whether all have begun, or failed to."""
        try:
            is_drawn = any(step.request.cameras for step in self.steps)
            done = begin_in_chunks(self.world.pool, self.lanes, budget, is_drawn, keep_outcome=True)
        except FAILURES as error:  # families may come from other packages
            _fail(self.steps, "began an episode of", error)
            self.steps = []
            return True
        self.lanes = self.lanes[done:]
        return not len(self.lanes)


class FinalObserver:
    """Observations and frames of lanes whose episode has ended, before the next one begins."""

    def __init__(self, renderer: Renderer, scene: Scene, counters: Counters, end_stage: EndStage) -> None:
        self._renderer = renderer
        self._scene = scene
        self._counters = counters
        self._end_stage = end_stage

    def observe(self, steps: Sequence[Step]) -> list[Step]:
        """Set the final observations of steps that ask for some; return those that failed, and were told."""
        # A step that began the sequence of its agent saw no episode end.
        asking = [step for step in steps if step.request.final_observations and step.boundary is Boundary.NONE]
        try:
            self._observe(asking)
        except FAILURES as error:
            if len(asking) > 1:
                return [failed for step in asking for failed in self.observe([step])]
            _fail(asking, "observed the end of", error)
            return asking
        return []

    def _observe(self, steps: Sequence[Step]) -> None:
        tables: list[ViewTable] = []
        offsets: list[I64] = []
        previous: list[tuple[int, PreviousTable | None]] = []
        drawn: list[tuple[str, int, int]] = []
        for step in steps:
            step.final, lanes = _observe_lanes(step), _ended_lanes(step)
            for camera, bits in step.request.final_cameras:
                addresses = _frame_offsets(step, camera, len(lanes))
                if is_drawn(step.agent.world.pool.family, camera):
                    tables.append(_views(step, camera, bits))
                    previous.append((len(lanes), previous_of([step], camera, bits, step.agent.world.ended)))
                    offsets.append(addresses)
                    drawn.append((camera, bits, len(lanes)))
                else:
                    frames = PictureFrames(step.agent, lanes, camera, bits, addresses)
                    frames.write()
                    frames.add_to(self._counters)
            step.agent.world.write_lighting(self._scene)
        self._end_stage("plan")
        if tables:
            joined = ViewTable(*(np.concatenate(columns) for columns in zip(*tables, strict=True)))
            addresses, before = np.concatenate(offsets), join_previous(previous)
            self._renderer.draw(self._scene, joined, PROCESS_MEMORY, addresses, self._end_stage, before)
            self._counters.draws += 1
            self._counters.views += len(joined.lane)
            for camera, bits, count in drawn:
                self._counters.count_frames(camera, bits, count)
        self._end_stage("draw")


def _ended_lanes(step: Step) -> I64:
    world = step.agent.world
    assert world.ended is not None
    return world.lanes[world.ended]


def _observe_lanes(step: Step) -> list[np.ndarray]:
    """Return the final observations, without the contents of frames."""
    world = step.agent.world
    assert world.ended is not None
    found = []
    for spec in step.request.final_observations:
        if spec.final_of == FINAL_LANES:
            found.append(world.ended)
        elif spec.camera is not None:
            found.append(np.empty((len(world.ended), *spec.shape[1:]), spec.dtype))
        else:
            value = world.pool.observe(_ended_lanes(step), str(spec.final_of), step.agent.index)
            found.append(np.ascontiguousarray(value, spec.dtype).reshape(len(world.ended), *spec.shape[1:]))
    return found


def _views(step: Step, camera: str, bits: int) -> ViewTable:
    views = step.agent.views(_ended_lanes(step), camera, bits)
    step.agent.set_field_of_view(views, camera)
    return views


def _frame_offsets(step: Step, camera: str, count: int) -> I64:
    """Return the addresses of a camera's final frames, [views, outputs]."""
    offsets = np.full((count, OUTPUT_COUNT), -1, np.int64)
    assert step.final is not None
    for spec, frames in zip(step.request.final_observations, step.final, strict=True):
        if spec.camera == camera:
            offsets[:, spec.output] = address_of(frames) + frames.strides[0] * np.arange(count)
    return offsets


def _fail(steps: Iterable[Step], what: str, error: BaseException) -> None:
    """Fail steps because of a family's bug. The agents' next steps begin new sequences."""
    for step in steps:
        world = step.agent.world
        log.error("family failed", family=world.pool.family.name, world=world.name)
        step.agent.state = INTERRUPTED
        step.final = None
        step.fail(Internal.caused_by(f"family {world.pool.family.name!r} failed while it {what} {world.name}", error))
