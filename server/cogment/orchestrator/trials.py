"""Services that may change a trial's parameters before it begins.

All trials that this server runs: started, found, ended; those that were are remembered for a while.
"""

import asyncio
import uuid
from collections.abc import Sequence

from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.protos.cogment.api.hooks_pb2 import TrialContext
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksStub
from worldloom.protos.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from worldloom.server.cogment.environments.environment import Environment, RemoteEnvironment, TrialEnvironment
from worldloom.server.cogment.orchestrator.actors import Cast, cast_of
from worldloom.server.cogment.orchestrator.agents import Agent, Agents
from worldloom.server.cogment.orchestrator.connections import Channels, Introductions, ask
from worldloom.server.cogment.orchestrator.datalog import Datalog
from worldloom.server.cogment.orchestrator.endings import Ending, together
from worldloom.server.cogment.orchestrator.trial import Play, Trial
from worldloom.server.cogment.settings import BUILT_IN, TrialSettings
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.tensors import shown
from worldloom.server.engine.engine import SHUTTING_DOWN
from worldloom.server.logs import Log


class Hooks:
    """The hooks of a server, called one after another."""

    def __init__(self, settings: TrialSettings, channels: Channels) -> None:
        self._endpoints = settings.pre_hooks
        self._actor_classes = settings.actor_classes
        self._deadline_s = settings.deadline_s
        self._channels = channels

    async def pre_trial(self, context: TrialContext) -> TrialParams:
        """What the hooks make of a trial's parameters. Of the rest of the context they change nothing."""
        params = context.params
        for endpoint in self._endpoints:
            given = TrialContext(params=params, trial_id=context.trial_id, user_id=context.user_id)
            params = (await self._call(endpoint, given)).params
            _check(endpoint, params, self._actor_classes)
        return params

    async def _call(self, endpoint: str, context: TrialContext) -> TrialContext:
        stub = TrialHooksStub(self._channels.take(endpoint))
        try:
            call = stub.PreTrial(context, timeout=self._deadline_s)
            reply: TrialContext = await ask(call, f"the hook at {endpoint}: PreTrial", self._deadline_s)
        finally:
            await self._channels.give_back(endpoint)
        return reply


def _check(endpoint: str, params: TrialParams, actor_classes: Sequence[str]) -> None:
    try:
        cast_of(params, actor_classes)
    except InvalidArgument as error:
        raise FailedPrecondition(f"the hook at {endpoint} gave a trial parameters that cannot be: {error}") from None


log = Log("trials")

_MOST_REMEMBERED = 4096
"""Trials that are over, whose late calls are told why."""
_CLOSING_S = 5.0
"""How long a server that stops waits for those who took part in its trials."""


class Trials:
    """The trials of one server. Lives on the event loop; every call raises RequestError for what cannot be."""

    def __init__(self, settings: TrialSettings, built_in: Environment, limits: Limits) -> None:
        self._settings = settings
        self._built_in = built_in
        self.limits = limits
        self._channels = Channels(limits)
        self._hooks = Hooks(settings, self._channels)
        self._datalog = Datalog(settings, self._channels)
        self._introductions = Introductions(self._channels, settings.deadline_s)
        self._coming = 0
        """Trials that hooks are asked about."""
        self._running: dict[str, Trial] = {}
        self._lives: set[asyncio.Task[None]] = set()
        """Of those that run, and of those that are over and let everyone go."""
        self._over: dict[str, Ending] = {}
        """The latest last."""
        self._is_draining = False

    @property
    def running(self) -> int:
        """How many trials there are."""
        return len(self._running)

    @property
    def played(self) -> int:
        """How many there are, with those that are over and let everyone go."""
        return len(self._lives)

    async def start(self, request: api.TrialStartRequest) -> api.TrialStartReply:
        """Begin a trial. If the call is cancelled, the trial ends."""
        self._check_room()
        context = TrialContext(params=self._settings.params, trial_id=str(uuid.uuid4()), user_id=request.user_id)
        if request.HasField("config"):
            context.params.trial_config.CopyFrom(request.config)
        self._coming += 1
        try:
            params = await self._hooks.pre_trial(context)
        finally:
            self._coming -= 1
        if self._is_draining:
            raise Unavailable(SHUTTING_DOWN)
        trial = self._make(context, params)
        log.info("playing", trial=trial.id, actors=len(params.actors), user=context.user_id)
        try:
            return await trial.begin()
        except asyncio.CancelledError:
            trial.end(Ending("the client that started it is gone"))
            raise

    async def join(self, request: api.TrialJoinRequest) -> api.TrialStartReply:
        """Be another human actor of a trial."""
        return self._find(request.trial_id).join(request.actor_id)

    async def action(self, request: api.TrialActionRequest) -> api.TrialActionReply:
        """Act, and wait for what comes of it."""
        return await self._find(request.trial_id).act(request.actor_id, request.action.content)

    async def end(self, request: api.TrialEndRequest) -> api.TrialEndReply:
        """End a trial; one that is over already stays so. Nobody waits for its agents and environment to be told."""
        trial = self._running.get(request.trial_id)
        if trial is not None:
            trial.end(Ending("a client ended it"))
        elif request.trial_id not in self._over:
            raise _unknown(request.trial_id)
        return api.TrialEndReply()

    async def heartbeat(self, request: api.TrialHeartbeatRequest) -> api.TrialHeartbeatReply:
        """Keep a trial from ending for want of a sign of life."""
        self._find(request.trial_id).heartbeat()
        return api.TrialHeartbeatReply()

    async def give_feedback(self, request: api.TrialFeedbackRequest) -> api.TrialFeedbackReply:
        """Say what actors did well or badly."""
        self._find(request.trial_id).give_feedback(request.feedbacks)
        return api.TrialFeedbackReply()

    async def send_message(self, request: api.TrialMessageRequest) -> api.TrialMessageReply:
        """Send messages to actors or the environment."""
        self._find(request.trial_id).send_messages(request.messages)
        return api.TrialMessageReply()

    def drain(self) -> None:
        """Start nothing more, and end all trials."""
        self._is_draining = True
        for trial in list(self._running.values()):
            trial.end(Ending(SHUTTING_DOWN, Unavailable))

    async def close(self) -> None:
        """Wait until everyone who took part knows that it is over, but not for ever. Nothing is left."""
        self.drain()
        lives = list(self._lives)
        try:
            if lives:
                await asyncio.wait(lives, timeout=_CLOSING_S)
        finally:  # also if whoever stops the server lost patience
            for life in lives:
                life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        await self._datalog.close()
        await self._channels.close()

    def _check_room(self) -> None:
        if self._is_draining:
            raise Unavailable(SHUTTING_DOWN)
        most = self._settings.max_trials
        if self._coming + len(self._running) >= most or len(self._lives) >= 2 * most:
            raise ResourceExhausted(
                f"{most} trials are under way, or being ended: expected no more at a time; end one first, or raise "
                "max_trials in the file of --cogment"
            )

    def _make(self, context: TrialContext, params: TrialParams) -> Trial:
        cast = cast_of(params, self._settings.actor_classes)
        deadline_s = self._settings.deadline_s
        agents = [Agent(one, context.trial_id, self._channels.take(one.endpoint), deadline_s) for one in cast.agents]
        play = Play(
            params,
            cast,
            self._environment_of(context.trial_id, params, cast),
            Agents(agents, self._settings.on_agent_failure),
            self._datalog.open(context.trial_id, context.user_id, params),
            self.limits.idle_world_s,
        )
        trial = Trial(context.trial_id, cast, play, self._be_over)
        self._running[trial.id] = trial
        life = asyncio.create_task(self._run(trial, params, cast))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return trial

    def _environment_of(self, trial_id: str, params: TrialParams, cast: Cast) -> TrialEnvironment:
        endpoint, deadline_s = params.environment.endpoint, self._settings.deadline_s
        if endpoint == BUILT_IN:
            environment, name = self._built_in, "the environment of this server"
        else:
            channel = self._channels.take(endpoint)
            environment, name = RemoteEnvironment(endpoint, channel, deadline_s), f"the environment at {endpoint}"
        return TrialEnvironment(environment, name, trial_id, cast, deadline_s)

    async def _run(self, trial: Trial, params: TrialParams, cast: Cast) -> None:
        others = [("agent", actor.endpoint) for actor in cast.agents]
        if params.environment.endpoint != BUILT_IN:
            others.append(("environment", params.environment.endpoint))
        hooks = [("hook", endpoint) for endpoint in self._settings.pre_hooks]
        try:
            await together(trial.live(), self._introductions.meet((*others, *hooks)))
        except Exception:
            log.error("trial failed", trial=trial.id)
        finally:
            for _, endpoint in others:
                await self._channels.give_back(endpoint)

    def _be_over(self, trial: Trial, ending: Ending) -> None:
        del self._running[trial.id]
        self._over[trial.id] = ending
        if len(self._over) > _MOST_REMEMBERED:
            del self._over[next(iter(self._over))]

    def _find(self, trial_id: str) -> Trial:
        trial = self._running.get(trial_id)
        if trial is not None and trial.has_begun:
            return trial
        if trial_id in self._over:
            raise self._over[trial_id].late(trial_id)
        raise _unknown(trial_id)


def _unknown(trial_id: str) -> NotFound:
    return NotFound(
        f"there is no trial {shown(trial_id)}: expected the id that Start gave; those that ended long ago are forgotten"
    )
