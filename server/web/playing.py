"""Playing: a viewer's keyboard moves an agent, in a world of its own over dm_env_rpc, or as a human in a trial.

The agent is a client like others: its requests go through a session of the protocol, or through the server's trials,
and count as theirs do. Pictures do not come this way: the viewer watches the world.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils

from worldloom.protos.cogment.api import common_pb2
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.errors import InvalidArgument, NotFound, RequestError, Unavailable
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.dm_env_rpc.session import Session
from worldloom.server.engine.engine import SHUTTING_DOWN, Engine
from worldloom.server.engine.picture_requests import world_id
from worldloom.server.engine.router import ReplyRoute
from worldloom.server.engine.world import World
from worldloom.server.engine.world_settings import VECTOR_SETTINGS, WORLD_SETTINGS, refusal
from worldloom.server.web.watched_server import CODE_NAMES, WatchedServer, ask_engine
from worldloom.server.web.world_list import action_row
from worldloom.worlds.family import Spec
from worldloom.worlds.registry import find_family, known_families
from worldloom.worlds.settings import SettingError, parse_settings

if TYPE_CHECKING:
    from worldloom.server.cogment.orchestrator.trials import Trials

T = TypeVar("T")

PLAYABLE = ("cartpole", "catch", "maze")
"""Families whose agents the page's keys can move."""
_VIEW_SIZE = 64
_OBSERVED = ("reward", "step_type")
_LAST = 2
_HEARTBEAT_S = 0.5
"""Time between two heartbeats of a human whose action waits for the other actors."""
_USER = "viewer of the page"
_MAX_SHOWN = 100


def playable_families() -> list[str]:
    """Return the names of the families that can be played on this server."""
    known = known_families()
    return [name for name in PLAYABLE if name in known]


class Game(ABC):
    """An agent that a viewer moves."""

    trial = ""
    """Id of the trial, if it is part of one."""
    world = ""
    """Id of its world."""
    agent = 0
    actions: tuple[Spec, ...] = ()

    @abstractmethod
    async def act(self, given: Mapping[str, object]) -> dict[str, object]:
        """Take a step; return its reward, and whether the episode goes on. Raises RequestError."""

    @abstractmethod
    async def stop(self) -> None:
        """Leave, and end what was begun for this viewer."""

    def describe(self) -> dict[str, object]:
        """Return what the page needs to know of it."""
        return {
            "world": self.world,
            "lane": 0,
            "agent": self.agent,
            "trial": self.trial,
            "actions": [action_row(spec) for spec in self.actions],
        }

    def _arrays(self, given: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Return actions as arrays of the types and shapes that they are declared with."""
        specs = {spec.name: spec for spec in self.actions}
        arrays = {}
        for name, value in given.items():
            if name not in specs:
                raise InvalidArgument(f"action {_shorten(name)}: expected some of {', '.join(specs) or 'none'}")
            spec = specs[name]
            try:
                with np.errstate(all="ignore"):  # a number too large becomes infinite, which is refused
                    arrays[name] = np.asarray(value, np.dtype(spec.dtype)).reshape(spec.shape)
            except (TypeError, ValueError, OverflowError):
                raise InvalidArgument(
                    f"action {name!r} is {_shorten(value)}: expected {spec.dtype} numbers of shape {list(spec.shape)}"
                ) from None
        return arrays


class OwnWorld(Game):
    """A game in a world that is made for one viewer, who is a client of dm_env_rpc with a stream of its own."""

    def __init__(self, server: WatchedServer) -> None:
        self._server = server
        self._replies: asyncio.Queue[bytes] = asyncio.Queue()
        self._session: Session | None = None
        self._uids: dict[str, int] = {}
        self._action_uids: dict[str, int] = {}

    @classmethod
    async def begin(
        cls, server: WatchedServer, route: ReplyRoute, family: str, seed: int, settings: Mapping[str, object]
    ) -> "OwnWorld":
        """Create a world, join it and take the first step. Raises RequestError, and then nothing is left.

        `route` delivers the replies of the engine on this thread's event loop.
        """
        if family not in playable_families():
            raise InvalidArgument(
                f"family {_shorten(family)} cannot be played: expected {', '.join(playable_families())}"
            )
        own = ("family", "seed")
        for name in settings:
            if name in VECTOR_SETTINGS:
                raise InvalidArgument(f"setting {name!r} of a world to play in: expected none, it has one lane")
            if name in own:
                raise InvalidArgument(f"setting {name!r} is given beside the {name}: expected it once")
        table = (*WORLD_SETTINGS, *find_family(family).settings)
        try:
            parse_settings([one for one in table if one.name not in (*own, *VECTOR_SETTINGS)], settings)
        except SettingError as error:
            raise refusal(error) from error
        game = cls(server)
        name = server.open_streams.open()
        session = game._session = Session(server.engine, name, partial(route.send, game))
        server.engine.post(session.open)
        try:
            await game._create({**settings, "family": family, "seed": seed})
            await game.act({})
        except BaseException:
            await game.stop()
            raise
        return game

    def deliver(self, reply: bytes) -> None:
        """Take the reply to the request that waits."""
        self._replies.put_nowait(reply)

    async def act(self, given: Mapping[str, object]) -> dict[str, object]:
        """Take a step; return its reward, and whether the episode goes on."""
        actions = {
            self._action_uids[name]: tensor_utils.pack_tensor(array) for name, array in self._arrays(given).items()
        }
        step = rpc.StepRequest(actions=actions, requested_observations=self._uids.values())
        reply = (await self._ask(step=step)).step
        reward, step_type = (
            tensor_utils.unpack_tensor(reply.observations[self._uids[name]]).item() for name in _OBSERVED
        )
        is_running = reply.state == rpc.EnvironmentStateType.RUNNING
        return {"reward": reward, "step_type": step_type, "state": "running" if is_running else "ended"}

    async def stop(self) -> None:
        """Leave the world and destroy it."""
        session, self._session = self._session, None
        if session is None:
            return
        engine = self._server.engine

        def end() -> None:
            session.close()
            # By its creator: the reply with its name may be under way. One that is still made is destroyed then.
            for world in [one for one in engine.directory.worlds.values() if one.creator == session.name]:
                engine.destroy(world)

        engine.post(end)
        self._server.open_streams.close()

    async def _create(self, settings: Mapping[str, object]) -> None:
        packed = {name: tensor_utils.pack_tensor(value) for name, value in settings.items()}
        created = await self._ask(create_world=rpc.CreateWorldRequest(settings=packed))
        world_name = created.create_world.world_name
        self.world = world_id(world_name)
        join = {"width": _VIEW_SIZE, "height": _VIEW_SIZE, "observations": list(_OBSERVED)}
        request = rpc.JoinWorldRequest(
            world_name=world_name, settings={key: tensor_utils.pack_tensor(value) for key, value in join.items()}
        )
        specs = (await self._ask(join_world=request)).join_world.specs
        self._uids = {spec.name: uid for uid, spec in specs.observations.items()}
        self._action_uids = {spec.name: uid for uid, spec in specs.actions.items()}
        agent = None if self._session is None else self._session.agent
        self.actions = () if agent is None else tuple(agent.world.pool.family.actions)

    async def _ask(self, **payload: Any) -> Any:
        """Return the response to a request, or raise its error."""
        assert self._session is not None
        data = rpc.EnvironmentRequest(**payload).SerializeToString()
        self._server.engine.post(partial(self._session.receive, data))
        response = rpc.EnvironmentResponse.FromString(await self._replies.get())
        if response.HasField("error"):
            raise _request_error(response.error.code, response.error.message)
        return response


class TrialGame(Game):
    """A human actor of a trial of this server."""

    def __init__(self, server: WatchedServer, trial: str, actor: int, is_own: bool) -> None:
        self._server = server
        self.trial = trial
        self.agent = actor
        self._is_own = is_own

    @classmethod
    async def begin(cls, server: WatchedServer, trial: str) -> "TrialGame":
        """Join a trial as a human, or start one if no id is given. Raises RequestError."""
        trials = server.trials
        if trials is None:
            raise InvalidArgument("this server has no trials: expected one that was started with --cogment FILE")
        if trial:
            await on_loop(server, trials.check_running(trial))
            world = await _find_world(server.engine, trial)  # before: a place that is taken is never given back
            reply = await on_loop(server, trials.join(api.TrialJoinRequest(trial_id=trial, actor_id=-1)))
        else:
            world = None
            reply = await _start_trial(server, trials)
        game = cls(server, reply.trial_id, reply.actor_id, is_own=not trial)
        try:
            if reply.actor_id < 0:
                raise InvalidArgument("the trials of this server have no human actors: expected `endpoint: human`")
            world = world or await _find_world(server.engine, game.trial)
            game.world, game.actions = world_id(world.name), tuple(world.pool.family.actions)
        except BaseException:
            await game.stop()
            raise
        return game

    async def act(self, given: Mapping[str, object]) -> dict[str, object]:
        """Give an action; return its reward, and whether the trial goes on."""
        tensors = {name: tensor_utils.pack_tensor(array) for name, array in self._arrays(given).items()}
        content = trials_pb2.Action(actions=tensors).SerializeToString()
        request = api.TrialActionRequest(
            trial_id=self.trial, actor_id=self.agent, action=common_pb2.Action(content=content)
        )
        reply = await self._wait_for_others(request)
        state = "ended" if reply.trial_is_over else "running"
        return {"reward": reply.reward.value, "step_type": _LAST if reply.trial_is_over else 1, "state": state}

    async def stop(self) -> None:
        """End the trial, if it was started for this viewer."""
        if self._is_own and self._server.trials is not None:
            self._is_own = False
            ending = on_loop(self._server, self._server.trials.end(api.TrialEndRequest(trial_id=self.trial)))
            await asyncio.shield(ending)

    async def _wait_for_others(self, request: api.TrialActionRequest) -> api.TrialActionReply:
        """Return the reply to an action. Heartbeats tell meanwhile that somebody is there, though others are not."""
        trials = self._server.trials
        assert trials is not None
        replying = asyncio.create_task(on_loop(self._server, trials.action(request)))
        try:
            while not (await asyncio.wait({replying}, timeout=_HEARTBEAT_S))[0]:
                with contextlib.suppress(RequestError):  # it ends at this moment: the reply will tell
                    await on_loop(self._server, trials.heartbeat(api.TrialHeartbeatRequest(trial_id=self.trial)))
            return replying.result()
        finally:
            replying.cancel()


async def _find_world(engine: Engine, trial: str) -> World:
    """Return the world of a trial; NotFound if the trial's environment is on another server."""

    def search() -> World | None:
        return next((one for one in engine.directory.worlds.values() if one.trial_id == trial), None)

    world = await ask_engine(engine, search)
    if world is None:
        raise NotFound("the world of this trial is on another server: expected one of this server's environment")
    return world


async def _start_trial(server: WatchedServer, trials: "Trials") -> api.TrialStartReply:
    """Start a trial. If this is cancelled, it ends, whether it has just started or not."""
    started: list[str] = []

    async def start() -> api.TrialStartReply:
        reply = await trials.start(api.TrialStartRequest(user_id=_USER))
        started.append(reply.trial_id)
        return reply

    async def end_started() -> None:
        for trial in started:
            await trials.end(api.TrialEndRequest(trial_id=trial))

    try:
        return await on_loop(server, start())
    except asyncio.CancelledError:
        await asyncio.shield(on_loop(server, end_started()))
        raise


async def on_loop(server: WatchedServer, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop that the trials belong to, and return its result; Unavailable if it has ended."""
    assert server.loop is not None
    try:
        future = asyncio.run_coroutine_threadsafe(work, server.loop)
    except RuntimeError:
        work.close()
        raise Unavailable(SHUTTING_DOWN) from None
    return await asyncio.wrap_future(future)


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _request_error(code: int, text: str) -> RequestError:
    kind = InvalidArgument if code == InvalidArgument.code else RequestError
    return kind(text or CODE_NAMES.get(code, "an error without a text"))
