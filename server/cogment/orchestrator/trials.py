"""All trials that a server orchestrates: created by Start, found by id, removed when they end.

Runs on the event loop. Some of an ended trial is kept for a while, for calls that come too late (`ended_trials.py`).
"""

import asyncio
import time
import uuid
from collections import deque
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.protos.cogment.api.hooks_pb2 import TrialContext
from worldloom.protos.errors import InvalidArgument, ResourceExhausted, Unavailable
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.environment import Environment, TrialEnvironment
from worldloom.server.cogment.orchestrator.datalog import Datalog
from worldloom.server.cogment.orchestrator.ended_trials import EndedTrial, EndedTrials, LateCalls
from worldloom.server.cogment.orchestrator.remote_services import (
    Channels,
    Hooks,
    RemoteAgent,
    RemoteAgents,
    RemoteEnvironment,
    VersionLogger,
    gather_or_cancel,
)
from worldloom.server.cogment.orchestrator.trial import Trial, TrialRun
from worldloom.server.cogment.orchestrator.trial_state import Ending
from worldloom.server.cogment.settings import BUILT_IN, HUMAN, Actors, TrialSettings, parse_actors
from worldloom.server.config import Limits
from worldloom.server.engine.engine import SHUTTING_DOWN
from worldloom.server.logs import Log

log = Log("trials")

_MAX_USER_ID_LENGTH = 1024
_MAX_LISTED_RUNNING = 200
"""Running trials that a summary lists: the newest."""
_MAX_LISTED_ENDED = 50
"""Ended trials that a summary lists."""
_MAX_LISTED_REASON = 500
_CLOSE_TIMEOUT_S = 5.0
"""Timeout for the agents and environments of all trials to end, when the server stops."""


class Trials:
    """The trials of one server. Every method raises RequestError for an invalid request."""

    def __init__(self, settings: TrialSettings, built_in: Environment, limits: Limits) -> None:
        self._settings = settings
        self._built_in = built_in
        self.limits = limits
        self._channels = Channels(limits)
        self._hooks = Hooks(settings, self._channels)
        self._datalog = Datalog(settings, self._channels)
        self._version_logger = VersionLogger(self._channels, settings.deadline_s)
        self._in_hooks = 0
        """Number of trials whose hooks are being called."""
        self._running: dict[str, Trial] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks of running trials, and of ended ones that are ending their agents and environment."""
        self._ended = EndedTrials()
        self._latest_ended: deque[dict[str, Any]] = deque(maxlen=_MAX_LISTED_ENDED)
        self.draining = asyncio.Event()
        """Set when the server stops: no trial starts any more, and all are over."""

    @property
    def running_count(self) -> int:
        """Number of running trials."""
        return len(self._running)

    @property
    def unfinished_count(self) -> int:
        """Number of running trials and of ended ones that are ending their agents and environment."""
        return len(self._tasks)

    async def start(self, request: api.TrialStartRequest) -> api.TrialStartReply:
        """Start a trial. Cancelling the call ends it."""
        self._check_limit()
        if len(request.user_id) > _MAX_USER_ID_LENGTH:
            raise InvalidArgument(
                f"user_id has {len(request.user_id)} characters: expected {_MAX_USER_ID_LENGTH} at most"
            )
        context = TrialContext(params=self._settings.params, trial_id=str(uuid.uuid4()), user_id=request.user_id)
        if request.HasField("config"):
            context.params.trial_config.CopyFrom(request.config)
        self._in_hooks += 1
        try:
            params = await self._hooks.pre_trial(context)
        finally:
            self._in_hooks -= 1
        if self.draining.is_set():
            raise Unavailable(SHUTTING_DOWN)
        trial = self._create(context, params)
        log.info("trial started", trial=trial.id, actors=len(params.actors), user=context.user_id[:100])
        try:
            return await trial.wait_started()
        except asyncio.CancelledError:
            trial.end(Ending("the client that started it has disconnected"))
            raise

    async def join(self, request: api.TrialJoinRequest) -> api.TrialStartReply:
        """Join a trial as another human actor."""
        return self._find(request.trial_id).join(request.actor_id)

    async def check_running(self, trial_id: str) -> None:
        """Raise NotFound, or the reason of its end, for a trial that does not run."""
        self._find(trial_id)

    async def action(self, request: api.TrialActionRequest) -> api.TrialActionReply:
        """Give an actor's action and return the reply of its tick."""
        return await self._find(request.trial_id).act(request.actor_id, request.action.content)

    async def end(self, request: api.TrialEndRequest) -> api.TrialEndReply:
        """End a trial, without waiting for its agents and environment. Ending it again has no effect."""
        trial = self._running.get(request.trial_id)
        if trial is not None:
            trial.end(Ending("a client ended it"))
        elif request.trial_id not in self._ended:
            raise self._ended.error(request.trial_id)
        return api.TrialEndReply()

    async def heartbeat(self, request: api.TrialHeartbeatRequest) -> api.TrialHeartbeatReply:
        """Restart the inactivity timeout of a trial."""
        self._find(request.trial_id).heartbeat()
        return api.TrialHeartbeatReply()

    async def give_feedback(self, request: api.TrialFeedbackRequest) -> api.TrialFeedbackReply:
        """Take feedback on actors. That of an ended trial goes to the datalog."""
        trial = self._running.get(request.trial_id)
        if trial is not None and trial.has_started:
            trial.give_feedback(request.feedbacks)
        else:
            await self._ended.late_calls(request.trial_id).give_feedback(request.feedbacks)
        return api.TrialFeedbackReply()

    async def send_message(self, request: api.TrialMessageRequest) -> api.TrialMessageReply:
        """Send messages to actors or the environment. Those of an ended trial go to the datalog."""
        trial = self._running.get(request.trial_id)
        if trial is not None and trial.has_started:
            trial.send_messages(request.messages)
        else:
            await self._ended.late_calls(request.trial_id).send_messages(request.messages)
        return api.TrialMessageReply()

    async def summary(self) -> dict[str, Any]:
        """Return running trials and the latest ended ones as plain data, for people who watch."""
        return {
            "running": [_summary(trial) for trial in list(self._running.values())[-_MAX_LISTED_RUNNING:]],
            "running_count": len(self._running),
            "ended": list(self._latest_ended),
            "has_humans": any(actor.endpoint == HUMAN for actor in self._settings.params.actors),
        }

    def final_reply(self, trial_id: str, actor_id: int) -> api.TrialActionReply | None:
        """Return the last reply to a human of a trial that has ended; None if there is no such trial."""
        return self._ended.final_reply(trial_id, actor_id)

    def drain(self) -> None:
        """Refuse new trials and end all running ones."""
        self.draining.set()
        for trial in list(self._running.values()):
            trial.end(Ending(SHUTTING_DOWN, Unavailable))

    async def close(self) -> None:
        """End all trials; wait, up to a timeout, until their agents and environments have ended too."""
        self.drain()
        tasks = list(self._tasks)
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_S)
        finally:  # also if the wait itself is cancelled
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._datalog.close()
        await self._channels.close()

    def _check_limit(self) -> None:
        if self.draining.is_set():
            raise Unavailable(SHUTTING_DOWN)
        limit = self._settings.max_trials
        if self._in_hooks + len(self._running) >= limit or len(self._tasks) >= 2 * limit:
            raise ResourceExhausted(
                f"{limit} trials are running or ending: expected at most that at a time; end one first, or raise "
                "max_trials in the file of --cogment"
            )

    def _create(self, context: TrialContext, params: TrialParams) -> Trial:
        actors = parse_actors(params, self._settings.actor_classes, self._settings.actor_ids)
        agents = [
            RemoteAgent(actor, context.trial_id, self._channels.acquire(actor.endpoint), self._settings.deadline_s)
            for actor in actors.agents
        ]
        run = TrialRun(
            params,
            actors,
            self._environment_for(context.trial_id, params, actors),
            RemoteAgents(agents, self._settings.on_agent_failure),
            self._datalog.open(context.trial_id, context.user_id, params),
            self.limits.idle_world_s,
        )
        trial = Trial(context.trial_id, actors, run, partial(self._remove, context, params))
        self._running[trial.id] = trial
        task = asyncio.create_task(self._run(trial, params, actors))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return trial

    def _environment_for(self, trial_id: str, params: TrialParams, actors: Actors) -> TrialEnvironment:
        endpoint, deadline_s = params.environment.endpoint, self._settings.deadline_s
        if endpoint == BUILT_IN:
            environment, name = self._built_in, "the environment of this server"
            if self._settings.actor_ids == "file_order":
                _set_actor_order(params, actors)
        else:
            channel = self._channels.acquire(endpoint)
            environment, name = RemoteEnvironment(endpoint, channel, deadline_s), f"the environment at {endpoint}"
        return TrialEnvironment(environment, name, trial_id, actors.counts, deadline_s)

    async def _run(self, trial: Trial, params: TrialParams, actors: Actors) -> None:
        """Run a trial, then release its channels."""
        services = [("agent", actor.endpoint) for actor in actors.agents]
        if params.environment.endpoint != BUILT_IN:
            services.append(("environment", params.environment.endpoint))
        hooks = [("hook", endpoint) for endpoint in self._settings.pre_hooks]
        try:
            await gather_or_cancel(trial.run(), self._version_logger.log_versions((*services, *hooks)))
        except Exception:
            log.error("trial failed", trial=trial.id)
        finally:
            for _, endpoint in services:
                await self._channels.release(endpoint)

    def _remove(self, context: TrialContext, params: TrialParams, trial: Trial, ending: Ending) -> None:
        del self._running[trial.id]
        self._latest_ended.appendleft(
            {"id": trial.id, "ticks": trial.state.rewards.tick, "reason": ending.reason[:_MAX_LISTED_REASON]}
        )
        ended = EndedTrial(ending)
        if trial.has_started:
            recorder = self._datalog.open_late(trial.id, context.user_id, params)
            late_calls = LateCalls(trial.state.rewards, trial.state.messages, recorder)
            ended = EndedTrial(ending, trial.state.final_replies(), late_calls)
        self._ended.add(trial.id, ended)

    def _find(self, trial_id: str) -> Trial:
        trial = self._running.get(trial_id)
        if trial is not None and trial.has_started:
            return trial
        raise self._ended.error(trial_id)


def _summary(trial: Trial) -> dict[str, Any]:
    """Return what is known of a running trial as plain data."""
    rewards, humans = trial.state.rewards, trial.state.humans
    return {
        "id": trial.id,
        "seconds": time.monotonic() - trial.began_s,
        "ticks": rewards.tick,
        "state": "running" if trial.has_started else "starting",
        "actors": [
            {
                "id": actor.id,
                "class": actor.class_id,
                "kind": "human" if actor.is_human else "agent",
                "endpoint": actor.endpoint,
                "has_joined": humans.has_joined(actor.id) if actor.is_human else trial.has_started,
                "reward": rewards.totals[actor.id],
            }
            for actor in trial.actors.all
        ],
    }


def _set_actor_order(params: TrialParams, actors: Actors) -> None:
    """Tell an environment of this server the class of each actor, which `actor_counts` alone does not say."""
    try:
        config = trials_pb2.EnvironmentConfig.FromString(params.environment.config.content)
    except DecodeError:
        return  # reported when the environment is started
    config.actor_order[:] = [actor.class_id for actor in actors.all]
    params.environment.config.content = config.SerializeToString()
