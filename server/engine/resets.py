"""ResetWorld: new sequences for all agents of a world, once those in the middle of one have been answered.

What the settings of a reset need, such as another family or other lanes, is prepared first, while the world goes on.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from worldloom.protos.errors import Internal, NotFound, RequestError
from worldloom.server.engine.world import FAILURES, Agent, World
from worldloom.server.logs import Log
from worldloom.worlds.lanes import INTERRUPTED

if TYPE_CHECKING:
    from worldloom.server.engine.engine import Engine
    from worldloom.server.engine.inbox import Call
    from worldloom.server.engine.slices import LaneAddition

log = Log("engine")


class WorldReset:
    """A ResetWorld request that waits until the agents that it interrupts have been answered."""

    def __init__(
        self,
        caller: Agent | None,
        given: Mapping[str, object],
        answer: Callable[[], None],
        fail: Callable[[RequestError], None],
    ) -> None:
        self.caller = caller
        """The caller's own agent, if it has joined a world: this one or another."""
        self.given = given
        """Settings of ResetWorld."""
        self.answer = answer
        self.fail = fail
        self.addition: LaneAddition | None = None
        """The lanes that the world will have, if the settings need others."""


class WorldResets:
    """The resets of an engine's worlds, from their requests to their answers. Used by the engine's thread only."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def begin(self, world: World, reset: WorldReset) -> None:
        """Prepare what a reset needs, and have it wait for the agents of the world."""
        engine = self._engine
        engine.prepare(
            engine.directory.settings_after_reset(world, reset.given), partial(self._add_lanes, world, reset)
        )

    def finish(self, world: World) -> None:
        """Reset a world if all its agents have been answered."""
        if not world.is_free_to_reset:
            return
        done = [reset for reset in _release(world) if self._restart(world, reset)]
        if done:
            callers = {reset.caller for reset in done}
            world.begun = None
            for agent in world.agents.values():
                if agent in callers and agent.is_told_running:
                    agent.end_sequence()
                elif agent.is_running:  # its stream waits for another request, whose reply cannot say it
                    agent.state = INTERRUPTED
                    world.interrupted_agents.add(agent)
        for reset in done:
            reset.answer()
        self._engine.touch(world)

    def _add_lanes(self, world: World, reset: WorldReset, check_prepared: "Call") -> None:
        engine = self._engine
        try:
            check_prepared()
            if world.is_gone:
                raise gone(world)
            reset.addition = engine.directory.begin_restart(world, reset.given)
        except FAILURES as error:
            _fail(reset, error)
            return
        if reset.caller is not None:
            reset.caller.is_resetting = True
            if reset.caller.world is not world:
                self.finish(reset.caller.world)  # from now on the caller is not waited for there
            engine.touch(reset.caller.world)
        if reset.addition is None:
            self._wait(world, reset)
        else:
            engine.add_lanes(reset.addition, partial(self._wait, world, reset))

    def _wait(self, world: World, reset: WorldReset, error: BaseException | None = None) -> None:
        if error is not None:
            reset.addition = None
            _fail(reset, error)
            return
        world.resets.append(reset)
        if world.is_gone:
            fail_waiting(world, gone(world))
            return
        self.finish(world)
        self._engine.touch(world)

    def _restart(self, world: World, reset: WorldReset) -> bool:
        """Apply the settings of a reset; return whether they were valid."""
        addition, reset.addition = reset.addition, None
        try:
            self._engine.directory.restart(world, reset.given, addition)
        except FAILURES as error:
            _fail(reset, error)
            return False
        return True


def gone(world: World, why: str = "it was destroyed") -> NotFound:
    """Return the error for a request to a world that was destroyed."""
    return NotFound(f"world {world.name} is gone: {why}; leave it and join another")


def fail_waiting(world: World, error: RequestError) -> None:
    """Fail all steps and resets that wait in a world."""
    for agent in world.agents.values():
        step, agent.step = agent.step, None
        if step is not None:
            step.fail(error)
    for reset in _release(world):
        if reset.addition is not None:
            reset.addition.abandon()
        reset.fail(error)


def _fail(reset: WorldReset, error: BaseException) -> None:
    """Answer a reset with an error."""
    if reset.caller is not None:
        reset.caller.is_resetting = False
    if not isinstance(error, RequestError):
        log.error("reset failed")
        error = Internal.caused_by("the world could not be reset", error)
    reset.fail(error)


def _release(world: World) -> list[WorldReset]:
    """Return the resets that wait in a world, and remove them from it."""
    resets, world.resets = world.resets, []
    for reset in resets:
        if reset.caller is not None:
            reset.caller.is_resetting = False
    return resets
