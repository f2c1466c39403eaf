"""An environment on an engine without a thread: calls wait until the test runs a tick of the engine.

Messages are packed and unpacked with protobuf and the reference package's own tools.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from dm_env_rpc.v1 import tensor_utils

from scripts.support.messages import packed
from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import EnvironmentConfig, TrialConfig
from worldloom.protos.worldloom import trials_pb2
from worldloom.render.renderer import Renderer
from worldloom.server.cogment.environments.environment import EngineEnvironment
from worldloom.server.config import Limits
from worldloom.server.engine.directory import WorldDirectory
from worldloom.server.engine.engine import Engine

T = TypeVar("T")
TIMEOUT_S = 60.0
_ENOUGH_TICKS = 4
"""Ticks after which a call that waits for no other call is answered."""


def actor_class(name: str = "player", *see: str, deltas: bool = False, **joining: Any) -> trials_pb2.ActorClass:
    return trials_pb2.ActorClass(id=name, join_settings=packed(joining), requested_observations=see, deltas=deltas)


def config(*classes: trials_pb2.ActorClass, **settings: Any) -> trials_pb2.EnvironmentConfig:
    return trials_pb2.EnvironmentConfig(world_settings=packed(settings), actor_classes=classes)


def action(**values: np.ndarray | np.generic | float) -> bytes:
    """Return the content of an action; values need the dtype of their spec."""
    data: bytes = trials_pb2.Action(actions=packed(values)).SerializeToString()
    return data


def starting(
    trial_id: str,
    counts: Sequence[int] = (1,),
    environment: trials_pb2.EnvironmentConfig | None = None,
    **settings: Any,
) -> api.EnvStartRequest:
    """Return a Start request, with a configuration if given, and with these settings in its trial configuration."""
    request = api.EnvStartRequest(trial_id=trial_id, actor_counts=counts)
    if environment is not None:
        request.config.CopyFrom(EnvironmentConfig(content=environment.SerializeToString()))
    if settings:
        own = trials_pb2.TrialConfig(world_settings=packed(settings))
        request.trial_config.CopyFrom(TrialConfig(content=own.SerializeToString()))
    return request


def updating(trial_id: str, *actions: bytes, snapshot: bool = False) -> api.EnvUpdateRequest:
    return api.EnvUpdateRequest(
        trial_id=trial_id, action_set=api.ActionSet(actions=actions), reply_with_snapshot=snapshot
    )


async def posted() -> None:
    """Wait until the calls that were made are in the engine's inbox."""
    for _ in range(2):  # first the task runs, then its call is posted
        await asyncio.sleep(0)


def unpacked(observation: trials_pb2.Observation) -> dict[str, np.ndarray]:
    return {name: np.asarray(tensor_utils.unpack_tensor(tensor)) for name, tensor in observation.observations.items()}


class Watcher:
    """A client that applies deltas to the previous observation of each actor of a trial."""

    def __init__(self) -> None:
        self._last: dict[int, trials_pb2.Observation] = {}

    def see(self, seen: api.ObservationSet) -> list[dict[str, np.ndarray]]:
        """Return the current observation of each actor."""
        for actor, place in enumerate(seen.actors_map):
            data = seen.observations[place]
            if data.snapshot:
                self._last[actor] = trials_pb2.Observation.FromString(data.content)
            else:
                delta = trials_pb2.ObservationDelta.FromString(data.content)
                for name, tensor in delta.observations.items():
                    self._last[actor].observations[name].CopyFrom(tensor)
        return [unpacked(self._last[actor]) for actor in range(len(seen.actors_map))]


class EngineHarness:
    """An engine and its environment. The caller closes the renderer."""

    def __init__(
        self,
        renderer: Renderer,
        defaults: trials_pb2.EnvironmentConfig | None = None,
        clock: Callable[[], float] | None = None,
        **limits: Any,
    ) -> None:
        self.engine = Engine(lambda: renderer, Limits(**limits))
        if clock is not None:
            self.engine.directory = WorldDirectory(self.engine.limits, clock)
        self.engine.open()
        self.environment = EngineEnvironment(self.engine, defaults)

    def tick(self) -> None:
        """Run one tick of the engine with all posted calls."""
        self.engine.tick([call for call in self.engine.inbox.take(timeout_s=0.0) if call is not None])

    async def settle(self, *calls: Awaitable[Any]) -> list[Any]:
        """Make these calls concurrently, and tick until they are answered; return results and errors."""
        tasks = [asyncio.ensure_future(call) for call in calls]
        for _ in range(_ENOUGH_TICKS):
            await posted()
            self.tick()
            await asyncio.sleep(0)
        assert all(task.done() for task in tasks)
        return await asyncio.gather(*tasks, return_exceptions=True)

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(asyncio.wait_for(scenario, TIMEOUT_S))

    def ask_all(self, *calls: Awaitable[Any]) -> list[Any]:
        async def asking() -> list[Any]:
            return await self.settle(*calls)

        return self.run(asking())

    def ask(self, call: Awaitable[T]) -> T:
        """Return the result of a call, or raise its error."""
        reply: T | BaseException = self.ask_all(call)[0]
        if isinstance(reply, BaseException):
            raise reply
        return reply

    # Single calls.

    def start(self, *args: Any, **settings: Any) -> api.ObservationSet:
        """The arguments are those of `starting`."""
        return self.ask(self.environment.start(starting(*args, **settings))).observation_set

    def update(self, trial_id: str, *actions: bytes, snapshot: bool = False) -> api.EnvUpdateReply:
        return self.ask(self.environment.update(updating(trial_id, *actions, snapshot=snapshot)))

    def on_message(self, trial_id: str, actor_id: int = -1, messages: Sequence[Any] = ()) -> None:
        request = api.EnvOnMessageRequest(trial_id=trial_id, actor_id=actor_id, messages=messages)
        self.ask(self.environment.on_message(request))

    def end(self, trial_id: str) -> None:
        self.ask(self.environment.end(api.EnvEndRequest(trial_id=trial_id)))

    def check_empty(self) -> None:
        """Check that no trials, worlds and lanes are left."""
        directory = self.engine.directory
        assert self.engine.counters.trials == 0
        assert not directory.worlds
        assert directory.lanes_in_use == 0
        assert not self.environment._advancing
        for pool in directory.pools.by_key.values():
            assert not pool._in_use.any()


def same(seen: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Check for the same names, dtypes, shapes and bytes."""
    assert seen.keys() == expected.keys()
    for name, value in expected.items():
        assert (seen[name].dtype, seen[name].shape) == (value.dtype, value.shape), name
        assert seen[name].tobytes() == value.tobytes(), name
