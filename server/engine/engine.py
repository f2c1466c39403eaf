"""The engine: one thread that owns all worlds and the renderer, and runs ticks.

A tick handles all requests that wait, without a timer: while one batch is drawn, the next gathers. So batches grow with
load, and a single client never waits for others. Requests other than steps (create, join, leave, …) are handled at the
beginning of a tick, in the order in which they came; then come the stages of worldloom.server.engine.stages, and at the
end all replies are delivered together.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from worldloom.protos.errors import Internal, NotFound, RequestError, Unavailable
from worldloom.render.renderer import Renderer, compile_kernels
from worldloom.server.config import Limits
from worldloom.server.engine.directory import WAS_DESTROYED, PreparedFamily, WorldDirectory
from worldloom.server.engine.loading import Loader, warm_up
from worldloom.server.engine.observations import ComputeLayout, ReplyLayoutCache
from worldloom.server.engine.router import ReplyRouter
from worldloom.server.engine.stages import draw, fill_replies, simulate, write_scene
from worldloom.server.engine.timing import Counters, NoTimer, StageTimer
from worldloom.server.engine.world import Agent, Boundary, Step, World, WorldReset
from worldloom.server.logs import Log
from worldloom.worlds.pool import INTERRUPTED

log = Log("engine")

Call: TypeAlias = Callable[[], None]

_REAP_EVERY_S = 1.0
SHUTTING_DOWN = "the server is shutting down: connect to another, or again later"


class Engine:
    """Worlds, agents and a renderer behind an inbox. Other threads may call start, post, drain and stop only."""

    def __init__(self, make_renderer: Callable[[], Renderer], limits: Limits, timers: bool = True) -> None:
        self.limits = limits
        self.counters = Counters()
        self.timer = StageTimer(self.counters) if timers else NoTimer()
        self.directory = WorldDirectory(limits, time.monotonic)
        self.router = ReplyRouter()
        self.is_draining = False
        self.has_failed = False
        self.renderer: Renderer
        self._make_renderer = make_renderer
        self._inbox: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._touched: dict[World, None] = {}
        self._layout_caches: dict[ComputeLayout, ReplyLayoutCache] = {}
        self._reaped_at_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self._loader = Loader(self.post)

    def start(self, failed: Call = lambda: None) -> None:
        """Start the thread; return when the renderer is ready to draw, or raise what prevents it.

        `failed` is called on that thread if a bug ends it: then no request is answered any more.
        """
        started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(failed, started), name="worldloom-engine", daemon=True)
        self._thread.start()
        problem = started.get()
        if problem is not None:
            self._thread.join()
            self._thread = None
            raise problem

    def post(self, call: Call) -> None:
        """Have the engine make this call in its next tick, after the calls posted before."""
        self._inbox.put(call)

    def drain(self) -> None:
        """From now on fail what waits for other agents, which may never come. All else is answered as before."""
        self.post(self._drain)

    def stop(self) -> None:
        """End the thread and close the renderer."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None

    def layout_cache(self, compute_layout: ComputeLayout) -> ReplyLayoutCache:
        """Return the cache of a protocol's reply layouts."""
        if compute_layout not in self._layout_caches:
            self._layout_caches[compute_layout] = ReplyLayoutCache(compute_layout, self.limits)
        return self._layout_caches[compute_layout]

    @property
    def reply_buffers(self) -> int:
        """Number of allocated reply buffers."""
        return sum(cache.reply_buffers for cache in self._layout_caches.values())

    def create(self, given: Mapping[str, object], then: Callable[[Callable[[], World]], None]) -> None:
        """Create a world; call `then` with a function that returns it or raises, at once or in a later tick.

        Families that take long to build are built on another thread. An engine without a thread of its own serves
        nobody else meanwhile, and builds them here.
        """

        def finish(prepared: Callable[[], PreparedFamily] | None) -> World:
            if prepared is not None:
                self.directory.add_prepared(prepared())
            return self.directory.create(given)

        preparation = self.directory.preparation(given) if self._thread is not None else None
        if preparation is None:
            then(lambda: finish(None))
        else:
            self._loader.load(preparation, lambda prepared: then(lambda: finish(prepared)))

    def touch(self, world: World) -> None:
        """Check in this tick whether the world can advance."""
        self._touched[world] = None

    def step(self, step: Step) -> None:
        """Accept an agent's step. It is answered when all agents of its world have stepped."""
        step.agent.step = step
        self.touch(step.agent.world)

    def leave(self, agent: Agent) -> None:
        """Remove an agent from its world."""
        self.directory.leave(agent)
        self.touch(agent.world)

    def reset_world(self, world: World, reset: WorldReset) -> None:
        """Begin new sequences for all agents of a world, once those in the middle of one have been answered."""
        world.resets.append(reset)
        if reset.caller is not None:
            reset.caller.is_resetting = True
            self.touch(reset.caller.world)  # other agents may wait for the caller there
        if world.is_free_to_reset:
            self._finish_resets(world)
        self.touch(world)

    def destroy(self, world: World, why: str = WAS_DESTROYED) -> None:
        """Destroy a world, and fail what waits in it."""
        self.directory.destroy(world, why)
        gone = NotFound(f"world {world.name} is gone: {why}; leave it and join another")
        _fail_waiting(world, gone)

    def open(self) -> None:
        """Create the renderer, on the thread that will run the ticks, and compile its kernels."""
        self.renderer = self._make_renderer()
        compile_kernels(self.renderer)
        self.timer.restart()

    def close(self) -> None:
        """Close the renderer, on the same thread."""
        self._loader.close()
        self.renderer.close()

    def tick(self, calls: list[Call]) -> bool:
        """Make these calls; advance, draw and answer the worlds that are ready; return whether there were replies."""
        timer, scene = self.timer, self.directory.scene
        timer.begin()
        for call in calls:
            _run_call(call)
        timer.mark("decode")
        ready, resetting = self._ready_worlds()
        steps = [step for world in resetting for step in _interrupt_sequences(world)]
        steps += simulate(ready)
        timer.mark("simulate")
        if steps:
            groups = write_scene(steps, scene)
            timer.mark("plan")
            groups = draw(groups, self.renderer, scene, self.counters, timer.mark)
            timer.mark("draw")
            fill_replies(groups)
            for group in groups:
                for step in group.steps:
                    step.answer(step)
            timer.mark("fill")
            self._count(steps)
        for world in resetting:
            self._finish_resets(world)
        if self.is_draining:
            self._fail_waiting()
        return self.router.deliver()

    def _ready_worlds(self) -> tuple[list[World], list[World]]:
        """Return the worlds that advance, and those with a waiting reset."""
        touched, self._touched = self._touched, {}
        return [world for world in touched if world.is_ready], [world for world in touched if world.resets]

    def _finish_resets(self, world: World) -> None:
        """Reset a world if all its agents have been answered."""
        if not world.is_free_to_reset:
            return
        done = [reset for reset in _release_resets(world) if _restart(reset)]
        if done:
            for agent in world.agents.values():
                if agent.is_running:
                    agent.state = INTERRUPTED
        for reset in done:
            reset.answer()
        self.touch(world)

    def _count(self, steps: list[Step]) -> None:
        self.counters.ticks += 1
        self.counters.steps += len(steps)
        self.counters.lane_steps += sum(len(step.agent.world.lanes) for step in steps)

    def _drain(self) -> None:
        self.is_draining = True

    def _fail_waiting(self) -> None:
        for world in self.directory.worlds.values():
            _fail_waiting(world, Unavailable(SHUTTING_DOWN))

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
        try:
            first = self._inbox.get(timeout=0.0 if self._touched else _REAP_EVERY_S)
        except queue.Empty:
            return []
        calls = [first, *(self._inbox.get_nowait() for _ in range(self._inbox.qsize()))]
        return None if None in calls else [call for call in calls if call is not None]

    def _reap(self) -> None:
        now_s = time.monotonic()
        if now_s - self._reaped_at_s >= _REAP_EVERY_S:
            self._reaped_at_s = now_s
            for world in self.directory.reap():
                log.info("reaped", world=world.name, idle_s=self.limits.idle_world_s)


def _run_call(call: Call) -> None:
    try:
        call()
    except Exception:
        log.error("a call failed")


def _restart(reset: WorldReset) -> bool:
    """Apply the settings of a reset; return whether they were valid."""
    try:
        reset.restart()
    except RequestError as error:
        reset.fail(error)
        return False
    except Exception:
        log.error("reset failed")
        reset.fail(Internal("the world could not be reset; the server's log has more"))
        return False
    return True


def _release_resets(world: World) -> list[WorldReset]:
    """Return the resets that wait in a world, and remove them from it."""
    resets, world.resets = world.resets, []
    for reset in resets:
        if reset.caller is not None:
            reset.caller.is_resetting = False
    return resets


def _interrupt_sequences(world: World) -> list[Step]:
    """End the sequences of agents that have stepped in a world with a waiting reset; return their last steps."""
    cut = []
    for agent in world.agents.values():
        step = agent.step
        if step is not None and agent.is_running:
            agent.step, agent.state = None, INTERRUPTED
            step.state, step.boundary = INTERRUPTED, Boundary.LAST
            cut.append(step)
    return cut


def _fail_waiting(world: World, error: RequestError) -> None:
    """Fail all steps and resets that wait in a world."""
    for agent in world.agents.values():
        step, agent.step = agent.step, None
        if step is not None:
            step.fail(error)
    for reset in _release_resets(world):
        reset.fail(error)
