"""All trials whose worlds are in the engine, by id; and those that were, for a while. Engine thread only."""

from collections.abc import Callable
from functools import partial
from typing import Any

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.content import read_start
from worldloom.server.cogment.trial_world import Answer, Reply, TrialWorld, is_over
from worldloom.server.engine.engine import SHUTTING_DOWN, Engine
from worldloom.server.env_rpc.tensors import shown
from worldloom.server.errors import AlreadyExists, Internal, InvalidArgument, NotFound, Refusal, Unavailable
from worldloom.server.logs import Log

log = Log("trials")

_MOST_REMEMBERED = 1024
"""Trials that are over, whose late calls are told why."""


class TrialWorlds:
    """The trials. What is asked of them is answered by `answer`, now or when the tick ends, or refused at once."""

    def __init__(self, engine: Engine, defaults: trials_pb2.EnvironmentConfig | None) -> None:
        self._engine = engine
        self._defaults = defaults
        self._trials: dict[str, TrialWorld] = {}
        self._over: dict[str, str] = {}
        """Why they are; the latest last."""

    def serve(self, target: Any, call: Callable[[Answer], None]) -> None:
        """Make a call, and have exactly one reply of it delivered to the target: what it answers, or a refusal."""
        self._engine.counters.requests += 1
        answer = partial(self._send, target)
        try:
            call(answer)
        except Refusal as refusal:
            answer(refusal)
        except Exception as error:
            log.error("request failed")
            answer(Internal(f"the server failed: {type(error).__name__}; its log has more"))

    def start(self, request: api.EnvStartRequest, answer: Answer) -> TrialWorld:
        """Begin a trial; the answer is its first Outcome."""
        trial_id = request.trial_id
        if self._engine.is_draining:
            raise Unavailable(SHUTTING_DOWN)
        if trial_id in self._trials:
            raise AlreadyExists(f"trial {shown(trial_id)} is under way: expected the id of another, or End before it")
        trial = TrialWorld(self._engine, read_start(request, self._defaults), self._be_over)
        self._trials[trial_id] = trial
        self._over.pop(trial_id, None)
        self._engine.counters.trials += 1
        log.info("trial started", trial=trial_id, world=trial.world_name, actors=trial.actors)
        trial.begin(answer)
        return trial

    def update(self, request: api.EnvUpdateRequest, answer: Answer) -> None:
        """Advance a trial; the answer is its next Outcome."""
        trial = self._find(request.trial_id)
        trial.update(request.action_set.actions, request.reply_with_snapshot, answer)

    def on_message(self, request: api.EnvOnMessageRequest, answer: Answer) -> None:
        """Count messages. No world has any use for them."""
        trial = self._find(request.trial_id)
        if not -1 <= request.actor_id < trial.actors:
            raise InvalidArgument(
                f"actor_id is {request.actor_id}: expected one from 0 to {trial.actors - 1}, or -1 for the environment"
            )
        self._engine.counters.messages += len(request.messages)
        for message in request.messages:
            log.debug("message", trial=trial.trial_id, sender=message.sender_id, payload=message.payload.type_url[:100])
        answer(None)

    def end(self, trial_id: str, answer: Answer) -> None:
        """End a trial, if it is there."""
        if trial_id in self._trials:
            self._trials[trial_id].end("it was ended")
        answer(None)

    def give_up(self, trial: TrialWorld) -> None:
        """End a trial whose Start nobody waits for any more."""
        if self._trials.get(trial.trial_id) is trial:
            trial.end("its Start was cancelled")

    def forget_seen(self, trial_id: str) -> None:
        """The last Outcome did not reach whoever asked for it."""
        if trial_id in self._trials:
            self._trials[trial_id].forget_seen()

    def _find(self, trial_id: str) -> TrialWorld:
        trial = self._trials.get(trial_id)
        if trial is None:
            if trial_id in self._over:
                raise is_over(trial_id, self._over[trial_id])
            raise NotFound(f"there is no trial {shown(trial_id)}: expected the id of one that was started here")
        trial.use()
        return trial

    def _be_over(self, trial: TrialWorld, why: str) -> None:
        del self._trials[trial.trial_id]
        self._over[trial.trial_id] = why
        if len(self._over) > _MOST_REMEMBERED:
            del self._over[next(iter(self._over))]
        self._engine.counters.trials -= 1
        log.info("trial over", trial=trial.trial_id, world=trial.world_name, reason=why)

    def _send(self, target: Any, reply: Reply) -> None:
        if isinstance(reply, Refusal):
            self._engine.counters.refusals += 1
            log.debug("refused", code=reply.code, text=str(reply))
        self._engine.send(target, reply)
