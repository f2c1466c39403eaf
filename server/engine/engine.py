"""The engine: one thread that owns all worlds and the renderer, and runs ticks.

A tick handles all requests that wait, without a timer: while one batch is drawn, the next gathers. So batches grow with
load, and a single client never waits for others. Requests other than steps (create, join, leave, …) are handled at the
beginning of a tick, in the order in which they came; then come the stages of worldloom.server.engine.stages, and at the
end all replies are delivered together.
"""

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from worldloom.protos.errors import Internal, RequestError, Unavailable
from worldloom.protos.local_frames import LocalAddress
from worldloom.render.renderer import Renderer, compile_kernels
from worldloom.server.config import Limits
from worldloom.server.engine.autoreset import FinalObserver, NextEpisodes
from worldloom.server.engine.before import keep_before
from worldloom.server.engine.directory import WAS_DESTROYED, WorldDirectory
from worldloom.server.engine.inbox import Call, Inbox
from worldloom.server.engine.loading import FamilyDescriptions, Loader, warm_up
from worldloom.server.engine.observations import ComputeLayout, ReplyLayoutCache
from worldloom.server.engine.prepared import observe_prepared
from worldloom.server.engine.resets import WorldResets, fail_waiting, gone
from worldloom.server.engine.router import ReplyRouter
from worldloom.server.engine.sampling import EngineSample, take_sample
from worldloom.server.engine.simulation import fail_world, simulate
from worldloom.server.engine.slices import Additions, Done, LaneAddition, WorldCreation
from worldloom.server.engine.slices import add_lanes as add_in_slices
from worldloom.server.engine.stages import draw, fill_replies, write_scene
from worldloom.server.engine.timing import TICK_S, Counters, NoTimer, StageTimer, TickBudget
from worldloom.server.engine.watching import WatchedBatch, Watching
from worldloom.server.engine.world import FAILURES, Agent, Step, World, interrupt_sequences
from worldloom.server.logs import Log
from worldloom.worlds.uploads import upload_bytes

log = Log("engine")

_REAP_EVERY_S = 1.0
_FIRST_LANES_S = 1e-6
"""Time for lanes in the call that asks for them: enough for a small world, which is then there at once."""
SHUTTING_DOWN = "the server is shutting down: connect to another, or again later"


class Engine:
    """Worlds, agents and a renderer behind an inbox. Other threads may call start, post, drain and stop only.

    Once it has started they may also read what never changes or is replaced as a whole: `renderer` for its name and
    device, `limits`, `sample`, `has_failed` and `directory.changes`; and add a route with `router.register`.
    """

    def __init__(self, make_renderer: Callable[[], Renderer], limits: Limits, timers: bool = True) -> None:
        self.counters = Counters()
        self.timer = StageTimer(self.counters) if timers else NoTimer()
        self.directory = WorldDirectory(limits, time.monotonic)
        self.limits = replace(limits, max_memory_bytes=self.directory.memory.max_bytes)
        self.router = ReplyRouter()
        self.resets = WorldResets(self)
        self.watching = Watching(self.directory)
        self.is_draining = self.has_failed = False
        self.divided_work_s = math.inf
        """Seconds of a tick for work that is divided over ticks. An engine without a thread does it all at once."""
        self.renderer: Renderer
        self._make_renderer = make_renderer
        self.inbox = Inbox()
        self.local_socket: LocalAddress | None = None
        """The socket for clients on the same machine, which properties tell them."""
        self.page_url = ""
        """URL of the page on which people watch this server; "" if there is none."""
        self.takes_samples = False
        self.sample: EngineSample | None = None
        """The latest sample of its counters, which other threads may read; one a second if `takes_samples`."""
        self._has_flow = False
        """Some step has asked for flow, which needs what lanes show before they are stepped."""
        self._touched: dict[World, None] = {}
        self._additions: Additions = deque()
        self._next_episodes = NextEpisodes()
        self._layout_caches: dict[ComputeLayout, ReplyLayoutCache] = {}
        self._reaped_at_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self._loader = Loader(self.post)
        self.descriptions = FamilyDescriptions(self._loader, lambda: self._thread is not None)

    def start(self, failed: Call = lambda: None) -> None:
        """Start the thread; return when the renderer is ready to draw, or raise what prevents it.

        `failed` is called on that thread if a bug ends it: then no request is answered any more.
        """
        self.divided_work_s = TICK_S
        started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self.inbox.open()
        self._thread = threading.Thread(target=self._run, args=(failed, started), name="worldloom-engine", daemon=True)
        self._thread.start()
        problem = started.get()
        if problem is not None:
            self._thread.join()
            self._thread = None
            raise problem

    def post(self, call: Call) -> None:
        """Have the engine make this call in its next tick, after the calls posted before."""
        self.inbox.put(call)

    def drain(self) -> None:
        """From now on fail what waits for other agents, which may never come. All else is answered as before."""
        self.post(partial(setattr, self, "is_draining", True))

    def stop(self) -> None:
        """End the thread and close the renderer."""
        if self._thread is not None:
            self.inbox.put(None)
            self._thread.join()
            self._thread = None

    def reject_stream(self) -> None:
        """Count a call that was refused before a stream was opened."""
        self.counters.rejected_streams += 1

    def layout_cache(self, compute_layout: ComputeLayout) -> ReplyLayoutCache:
        """Return the cache of a protocol's reply layouts."""
        if compute_layout not in self._layout_caches:
            self._layout_caches[compute_layout] = ReplyLayoutCache(compute_layout, self.limits, self.directory.memory)
        return self._layout_caches[compute_layout]

    @property
    def reply_buffers(self) -> int:
        """Number of allocated reply buffers."""
        return sum(cache.reply_buffers for cache in self._layout_caches.values())

    def create(self, given: Mapping[str, object], then: Callable[[Callable[[], World]], None]) -> None:
        """Create a world; call `then` with a function that returns it or raises, at once or in a later tick."""

        def begin(check_prepared: Call) -> None:
            try:
                check_prepared()
                creation = self.directory.begin_create(given)
            except RequestError as error:
                then(_raiser(error))
            except FAILURES as error:
                family = given.get("family")
                log.error("family failed", family=family)
                then(_raiser(Internal.caused_by(f"a world of family {family!r} cannot be created", error)))
            else:
                self.add_lanes(creation.addition, partial(finish, creation))

        def finish(creation: WorldCreation, error: BaseException | None) -> None:
            if error is None:
                then(creation.finish)
            else:
                creation.abandon()
                then(_raiser(error))

        self.prepare(given, begin)

    def prepare(self, given: Mapping[str, object], then: Callable[[Call], None]) -> None:
        """Build the family of worlds with these settings of CreateWorld, on another thread if that takes long.

        Call `then`, at once or in a later tick, with a function that raises what went wrong, if anything did. An engine
        without a thread of its own serves nobody else meanwhile, and builds all families here, when they are used.
        """
        build = self.directory.preparation(given) if self._thread is not None else None
        if build is None:
            then(lambda: None)
        else:
            self._loader.load(build, lambda made: then(partial(self.directory.add_prepared, made)), upload_bytes(given))

    def add_lanes(self, addition: LaneAddition, done: Done) -> None:
        """Add lanes, at once if they are few, else over several ticks; then call `done`."""
        self._additions.append((addition, done))
        if len(self._additions) == 1:
            is_shared = self.divided_work_s < math.inf
            add_in_slices(self._additions, TickBudget(_FIRST_LANES_S if is_shared else math.inf))

    def touch(self, world: World) -> None:
        """Check in this tick whether the world can advance."""
        self._touched[world] = None

    def step(self, step: Step) -> None:
        """Accept an agent's step. It is answered when all agents of its world have stepped."""
        step.agent.step = step
        if step.request.flow_cameras:
            self._has_flow = True
        self.touch(step.agent.world)

    def leave(self, agent: Agent) -> None:
        """Remove an agent from its world."""
        self.directory.leave(agent)
        self.touch(agent.world)

    def destroy(self, world: World, why: str = WAS_DESTROYED) -> None:
        """Destroy a world, and fail what waits in it."""
        self.directory.destroy(world, why)
        self.watching.followed.pop(world, None)
        self._next_episodes.remove(world, gone(world, why))
        fail_waiting(world, gone(world, why))

    def open(self) -> None:
        """Create the renderer, on the thread that will run the ticks, and compile its kernels."""
        self.renderer = self._make_renderer()
        self.directory.max_side_pixels = self.renderer.max_side_pixels
        compile_kernels(self.renderer)
        self.timer.restart()

    def close(self) -> None:
        """Close the renderer, on the same thread."""
        self.inbox.close()
        self._loader.close()
        self.renderer.close()

    def tick(self, calls: list[Call]) -> bool:
        """Make these calls; advance, draw and answer the worlds that are ready; return whether there were replies."""
        timer = self.timer
        timer.begin()
        for call in calls:
            _run_call(call)
        if self._additions:
            add_in_slices(self._additions, TickBudget(self.divided_work_s))
        timer.mark("decode")
        ready, resetting, steps = self._ready_worlds()
        if self._has_flow:
            for world, error in keep_before(ready, self.directory.scene).items():
                fail_world(world, error, "observed")
                ready.remove(world)
        advanced, postponed = simulate(ready, TickBudget(self.divided_work_s))
        if self.watching.followed:
            self.watching.record(advanced)
        steps += advanced
        self._touched.update(dict.fromkeys(postponed))
        timer.mark("simulate")
        if self._next_episodes.waiting or any(step.agent.world.ended is not None for step in steps):
            steps = self._begin_next_episodes(steps)
        if steps or self.watching.requests:
            for step in self._observe(steps):
                step.answer(step)
            timer.mark("fill")
        if steps:
            self.counters.count_steps([len(step.agent.world.lanes) for step in steps])
        for world in resetting:
            self.resets.finish(world)
        if self.is_draining:
            self._fail_waiting()
        return self.router.deliver()

    def _observe(self, steps: list[Step]) -> list[Step]:
        """Write the replies of these steps; return those that did not fail."""
        scene, mark = self.directory.scene, self.timer.mark
        watched = self._take_watched(bool(steps)) if self.watching.requests else None
        if (
            watched is None
            and len(steps) == 1
            and observe_prepared(steps[0], self.renderer, scene, self.counters, mark)
        ):
            return steps
        groups = write_scene(steps, scene)
        if watched is not None:
            watched.write_scene(scene)
        mark("plan")
        groups = draw(groups, self.renderer, scene, self.counters, mark, watched)
        mark("draw")
        fill_replies(groups)
        if watched is not None:
            watched.finish()
        return [step for group in groups for step in group.steps]

    def _take_watched(self, has_steps: bool) -> WatchedBatch | None:
        """Return what viewers watch, if it is time to draw it."""
        return self.watching.take(has_steps, bool(self._additions or self._touched or self._next_episodes.waiting))

    def _begin_next_episodes(self, steps: list[Step]) -> list[Step]:
        """Begin the next episodes in worlds where that is part of the step; return the steps that can be answered."""
        observer = FinalObserver(self.renderer, self.directory.scene, self.counters, self.timer.mark)
        steps = self._next_episodes.add(steps, observer) + self._next_episodes.begin(TickBudget(self.divided_work_s))
        self.timer.mark("simulate")
        return steps

    def _ready_worlds(self) -> tuple[list[World], list[World], list[Step]]:
        """Return the worlds that advance, those with a waiting reset, and the last steps of interrupted sequences."""
        touched, self._touched = self._touched, {}
        resetting = [world for world in touched if world.resets]
        interrupted = [world for world in touched if world.resets or world.interrupted_agents]
        last_steps = [step for world in interrupted for step in interrupt_sequences(world)]
        return [world for world in touched if world.is_ready], resetting, last_steps

    def _fail_waiting(self) -> None:
        for world in self.directory.worlds.values():
            fail_waiting(world, Unavailable(SHUTTING_DOWN))

    def _run(self, failed: Call, started: "queue.SimpleQueue[BaseException | None]") -> None:
        try:
            self.open()
            warm_up(self.renderer)
            self.timer.restart()
        except BaseException as error:
            started.put(error)
            return
        started.put(None)
        try:
            while (calls := self._next_calls()) is not None:
                if self.tick(calls):
                    self.timer.mark("send")
                self._reap()
        except BaseException:
            log.error("the engine failed")
            self.has_failed = True
            failed()
        finally:
            self.close()

    def _next_calls(self) -> list[Call] | None:
        """Wait for calls and return all of them; an empty list after a while without any, None to stop."""
        is_busy = self._touched or self._additions or self._next_episodes.waiting
        timeout_s = self.watching.patience_s if self.watching.requests else _REAP_EVERY_S
        calls = self.inbox.take(timeout_s=0.0 if is_busy else timeout_s)
        return None if None in calls else [call for call in calls if call is not None]

    def _reap(self) -> None:
        now_s = time.monotonic()
        if now_s - self._reaped_at_s >= _REAP_EVERY_S:
            self._reaped_at_s = now_s
            for world in self.directory.reap():
                log.info("reaped", world=world.name, lost=world.is_lost)
            if self.takes_samples:
                self.sample = take_sample(self)


def _run_call(call: Call) -> None:
    try:
        call()
    except FAILURES:
        log.error("a call failed")


def _raiser(error: BaseException) -> Callable[[], World]:
    def create() -> World:
        raise error

    return create
