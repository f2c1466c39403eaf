"""The engine: one thread that owns all worlds and the renderer, and ticks.

A tick takes everything that is waiting, so batches grow with load and a lone client waits for nobody. It reads as four
stages: simulate, plan, draw, fill. Whatever else there is to do (create, join, leave, …) happens at its beginning, in
the order in which it came.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from worldloom.protos.errors import Internal, NotFound, Refusal, Unavailable
from worldloom.render.renderer import Renderer, compile_kernels
from worldloom.server.config import Limits
from worldloom.server.engine.batch import Easel, fill, plan
from worldloom.server.engine.directory import WAS_DESTROYED, Directory, Prepared
from worldloom.server.engine.loading import Loader, warm_up
from worldloom.server.engine.observations import LayOut, Wardrobe
from worldloom.server.engine.simulate import simulate
from worldloom.server.engine.timing import Counters, NoStopwatch, Stopwatch
from worldloom.server.engine.world import AS_LAST, Agent, Step, World, WorldReset
from worldloom.server.logs import Log
from worldloom.worlds.pool import INTERRUPTED

log = Log("engine")

Call: TypeAlias = Callable[[], None]
Batch: TypeAlias = list[tuple[Any, Any]]
"""Replies and whom they go to. What a reply is they agree on with whoever sends it; for streams it is bytes."""

_REAP_EVERY_S = 1.0
SHUTTING_DOWN = "the server is shutting down: connect to another, or again later"


class Engine:
    """Worlds, agents and a renderer behind an inbox. Only start, post, drain and stop are for other threads."""

    def __init__(self, make_renderer: Callable[[], Renderer], limits: Limits, timers: bool = True) -> None:
        self.limits = limits
        self.counters = Counters()
        self.watch = Stopwatch(self.counters) if timers else NoStopwatch()
        self.directory = Directory(limits, time.monotonic)
        self.is_draining = False
        self.has_failed = False
        self.easel: Easel
        self._make_renderer = make_renderer
        self._inbox: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._outgoing: Batch = []
        self._touched: dict[World, None] = {}
        self._wardrobes: dict[LayOut, Wardrobe] = {}
        self._reaped_at_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self._loader = Loader(self.post)

    def start(self, wake: Callable[[Batch], None], failed: Call = lambda: None) -> None:
        """Start the thread. It is back when the renderer is ready to draw, or raises what stops it.

        `wake` is called with the replies of each tick, `failed` if a bug ends the thread: then nobody is answered any
        more. Both on that thread.
        """
        started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(wake, failed, started), name="worldloom-engine", daemon=True
        )
        self._thread.start()
        problem = started.get()
        if problem is not None:
            self._thread.join()
            self._thread = None
            raise problem

    def post(self, call: Call) -> None:
        """Have the engine make this call in its next tick, after those that were posted before."""
        self._inbox.put(call)

    def drain(self) -> None:
        """Refuse what waits for other agents, from now on: they may never come. All else is answered as ever."""
        self.post(self._drain)

    def stop(self) -> None:
        """End the thread and close the renderer."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None

    def send(self, target: Any, reply: Any) -> None:
        """Have a reply delivered when the tick ends."""
        self._outgoing.append((target, reply))

    def wardrobe(self, lay_out: LayOut) -> Wardrobe:
        """What is asked for by those whose replies are laid out so."""
        if lay_out not in self._wardrobes:
            self._wardrobes[lay_out] = Wardrobe(lay_out, self.limits)
        return self._wardrobes[lay_out]

    @property
    def reply_slots(self) -> int:
        """Replies that there is memory for, used at present or not."""
        return sum(wardrobe.reply_slots for wardrobe in self._wardrobes.values())

    def create(self, given: Mapping[str, object], then: Callable[[Callable[[], World]], None]) -> None:
        """Make a world, and call `then` with what gives it or raises: now, or in a later tick if it takes long.

        Without a thread of its own an engine has nobody else to serve meanwhile.
        """

        def finish(prepared: Callable[[], Prepared] | None) -> World:
            if prepared is not None:
                self.directory.take_in(prepared())
            return self.directory.create(given)

        preparation = self.directory.preparation(given) if self._thread is not None else None
        if preparation is None:
            then(lambda: finish(None))
        else:
            self._loader.load(preparation, lambda prepared: then(lambda: finish(prepared)))

    def touch(self, world: World) -> None:
        """See in this tick whether the world can go on."""
        self._touched[world] = None

    def step(self, step: Step) -> None:
        """Take an agent's step, which is answered when all agents of its world have stepped."""
        step.agent.step = step
        self.touch(step.agent.world)

    def leave(self, agent: Agent) -> None:
        """Take an agent out of its world."""
        self.directory.leave(agent)
        self.touch(agent.world)

    def reset_world(self, world: World, reset: WorldReset) -> None:
        """Begin a new sequence for everyone, once those in the middle of one have been told."""
        world.resets.append(reset)
        if reset.caller is not None:
            reset.caller.is_resetting = True
            self.touch(reset.caller.world)  # someone may wait for it there
        if world.is_free_to_reset:
            self._finish_resets(world)
        self.touch(world)

    def destroy(self, world: World, why: str = WAS_DESTROYED) -> None:
        """Destroy a world; whoever waits in it is told."""
        self.directory.destroy(world, why)
        gone = NotFound(f"world {world.name} is gone: {why}; leave it and join another")
        _refuse_waiting(world, gone)

    def open(self) -> None:
        """Make the renderer, on the thread that will tick, and compile what it needs."""
        renderer = self._make_renderer()
        compile_kernels(renderer)
        self.easel = Easel(renderer, self.directory.scene, self.counters, self.watch.mark)
        self.watch.restart()

    def close(self) -> None:
        """Close the renderer, on the same thread."""
        self._loader.close()
        self.easel.renderer.close()

    def tick(self, calls: list[Call]) -> Batch:
        """Make these calls, then step and draw all that is ready. The replies come back."""
        watch = self.watch
        watch.begin()
        for call in calls:
            _make(call)
        watch.mark("decode")
        ready, resetting = self._admit()
        steps = [step for world in resetting for step in _cut(world)]
        steps += simulate(ready)
        watch.mark("simulate")
        if steps:
            groups = plan(steps, self.directory.scene)
            watch.mark("plan")
            groups = self.easel.draw(groups)
            watch.mark("draw")
            fill(groups)
            watch.mark("fill")
            self._count(steps)
        for world in resetting:
            self._finish_resets(world)
        if self.is_draining:
            self._refuse_waiting()
        replies, self._outgoing = self._outgoing, []
        return replies

    def _admit(self) -> tuple[list[World], list[World]]:
        """The worlds that advance, and those that someone resets."""
        touched, self._touched = self._touched, {}
        return [world for world in touched if world.is_ready], [world for world in touched if world.resets]

    def _finish_resets(self, world: World) -> None:
        """Reset a world if everyone has been told."""
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

    def _refuse_waiting(self) -> None:
        for world in self.directory.worlds.values():
            _refuse_waiting(world, Unavailable(SHUTTING_DOWN))

    def _run(
        self, wake: Callable[[Batch], None], failed: Call, started: "queue.SimpleQueue[BaseException | None]"
    ) -> None:
        try:
            self.open()
            warm_up(self.easel.renderer)
            self.watch.restart()
        except BaseException as error:
            started.put(error)
            return
        started.put(None)
        try:
            while (calls := self._take()) is not None:
                replies = self.tick(calls)
                if replies:
                    wake(replies)
                    self.watch.mark("send")
                del replies  # slots are free when nobody holds them, and we might wait here for long
                self._reap()
        except BaseException:
            log.error("the engine failed")
            self.has_failed = True
            failed()
        finally:
            self.close()

    def _take(self) -> list[Call] | None:
        """Everything that is waiting; None when it is time to stop. An empty list: there is nothing, for a while."""
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


def _make(call: Call) -> None:
    try:
        call()
    except Exception:
        log.error("a call failed")


def _restart(reset: WorldReset) -> bool:
    """Apply the settings of a reset; whether they fit."""
    try:
        reset.restart()
    except Refusal as refusal:
        reset.refuse(refusal)
        return False
    except Exception:
        log.error("reset failed")
        reset.refuse(Internal("the world could not be reset; the server's log has more"))
        return False
    return True


def _release_resets(world: World) -> list[WorldReset]:
    """The resets that wait in a world; from now on they do not."""
    resets, world.resets = world.resets, []
    for reset in resets:
        if reset.caller is not None:
            reset.caller.is_resetting = False
    return resets


def _cut(world: World) -> list[Step]:
    """End the sequences of those who have stepped in a world that someone resets: they see it one last time."""
    cut = []
    for agent in world.agents.values():
        step = agent.step
        if step is not None and agent.is_running:
            agent.step, agent.state = None, INTERRUPTED
            step.state, step.way = INTERRUPTED, AS_LAST
            cut.append(step)
    return cut


def _refuse_waiting(world: World, refusal: Refusal) -> None:
    """Tell everyone who waits in a world that it is in vain."""
    for agent in world.agents.values():
        step, agent.step = agent.step, None
        if step is not None:
            step.refuse(refusal)
    for reset in _release_resets(world):
        reset.refuse(refusal)
