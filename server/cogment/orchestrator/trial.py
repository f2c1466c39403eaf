"""One trial: the calls of its clients, the stages of each tick, and its end.

start     Start of the agents and of the environment, all concurrently
tick t    decide              ask every agent, wait for every human
          reward              send agents the rewards of tick t-1
          deliver_messages    to agents and the environment
          update              give the environment all actions
          advance             take its observations, feedback and messages: tick t+1 begins
          answer              reply to humans: observation, reward of tick t, messages
finish    what is pending, then End, to the agents and the environment, also to those that failed

`TrialRun` has these stages. `Trial` runs them in a task and takes the calls of clients meanwhile; both share the state
in `trial_state.py`. Everything runs on the event loop.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from worldloom.protos.cogment.api import environment_pb2 as env_api
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.agent_pb2 import AgentDecideReply, MessageCollection, Reward
from worldloom.protos.cogment.api.common_pb2 import Feedback, Message, Observation, TrialParams
from worldloom.protos.errors import Internal, RequestError, Unavailable, exception_text
from worldloom.server.cogment.environments.environment import TrialEnvironment
from worldloom.server.cogment.environments.trial_world import InvalidAction
from worldloom.server.cogment.orchestrator.datalog import TrialRecorder
from worldloom.server.cogment.orchestrator.remote_services import (
    RemoteAgent,
    RemoteAgents,
    gather_or_cancel,
    wait_for_calls,
)
from worldloom.server.cogment.orchestrator.trial_state import (
    Ending,
    HumanActors,
    MessageQueue,
    RewardAccumulator,
    TrialEnded,
)
from worldloom.server.cogment.settings import ENVIRONMENT_ID, Actor, Actors
from worldloom.server.logs import Log

log = Log("trials")


class TrialRun:
    """The stages of one trial. They raise TrialEnded where the trial ends, `start` RequestError if it cannot begin."""

    def __init__(
        self,
        params: TrialParams,
        actors: Actors,
        environment: TrialEnvironment,
        agents: RemoteAgents,
        recorder: TrialRecorder,
        idle_s: float,
    ) -> None:
        human_ids = [actor.id for actor in actors.humans]
        self.humans = HumanActors(actors)
        self.rewards = RewardAccumulator(len(actors.all), human_ids)
        self.messages = MessageQueue(len(actors.all), recorder.has_sinks, human_ids)
        self._params = params
        self._actors = actors
        self._environment = environment
        self._agents = agents
        self._recorder = recorder
        self._has_datalog = recorder.has_sinks
        self._idle_s = idle_s
        self._starting: list[asyncio.Task[None]] = []
        self._observations: env_api.ObservationSet | None = None
        """Observations of the current tick."""

    async def start(self) -> None:
        """Start the agents and the environment concurrently."""
        trial_config = self._params.trial_config if self._params.HasField("trial_config") else None
        calls = (self._start_environment(), *self._agents.starts(self._actors.counts, trial_config))
        self._starting = [asyncio.create_task(call) for call in calls]
        await wait_for_calls(self._starting)

    async def tick(self) -> Ending | None:
        """Run one tick; return an Ending if it was the last."""
        self._check_activity()
        actions = await self._decide()
        await self._reward()
        await self._deliver_messages()
        reply = await self._update(actions)
        self._advance(actions, reply)
        return self._answer(reply)

    async def keep_alive(self) -> None:
        """Keep the environment from ending the trial as idle during a long tick, until cancelled."""
        await self._environment.keep_alive(self._idle_s / 3)

    async def finish(self) -> None:
        """End the trial for agents and environment, which get what is pending first, and record the remaining ticks."""
        await self._finish_starting()
        late = self.rewards.pop_late()
        rewards = [(tick, self.rewards.close_tick(tick)) for tick in self.rewards.open_ticks]
        ends = self._agents.end(rewards, self.messages), self._environment.end(self.messages.pop(ENVIRONMENT_ID))
        await asyncio.gather(*ends)
        for tick, given in rewards:
            if tick == self.rewards.tick and self._observations is not None:  # the last one has no actions
                self._record(self._observations, ())
            await self._write(given, late)
            late = [[] for _ in late]
        await self._recorder.close()

    def abort(self) -> None:
        """Cancel the tasks that a cancelled `finish` leaves."""
        for task in self._starting:
            task.cancel()
        self._agents.abort()
        self._recorder.abort()

    def final_replies(self) -> dict[int, api.TrialActionReply]:
        """Return a reply to each human for actions after the end: what is pending, and the last observation again."""
        replies = {}
        for actor in self._actors.humans:
            reply = replies[actor.id] = self._build_reply(actor.id, self.rewards.tick, is_over=True)
            if not reply.observation.data.snapshot:
                reply.observation.data.content = b""  # a delta without changes: the human has applied this one before
        return replies

    def observation_of(self, actor_id: int) -> Observation:
        """Return an actor's observation of the current tick."""
        current = self._observations
        assert current is not None
        data = current.observations[current.actors_map[actor_id]]
        return Observation(tick_id=current.tick_id, timestamp=current.timestamp, data=data)

    async def _decide(self) -> list[bytes]:
        """Return the action of each actor: ask all agents, and wait for all humans."""
        calls = []
        if self._actors.agents:
            calls.append(self._ask_agents())
        if self._actors.humans:
            calls.append(self._wait_for_humans())
        actions = {actor_id: action for some in await gather_or_cancel(*calls) for actor_id, action in some.items()}
        return [actions[actor.id] for actor in self._actors.all]

    def _check_activity(self) -> None:
        """End a trial without humans whose clients were inactive for `max_inactivity`; 0 means no limit."""
        limit_s = self._params.max_inactivity
        if limit_s and not self._actors.humans and self.humans.inactive_s > limit_s:
            raise TrialEnded(Ending(f"its clients were inactive for {limit_s} s (max_inactivity): expected Heartbeat"))

    async def _wait_for_humans(self) -> dict[int, bytes]:
        timeout_s = self._params.max_inactivity or self._idle_s
        try:
            return await self.humans.collect_actions(timeout_s)
        except TimeoutError:
            limit = "max_inactivity" if self._params.max_inactivity else "--idle-world-s"
            expected = "expected Action or Heartbeat"
            raise TrialEnded(Ending(f"its humans were inactive for {timeout_s:g} s ({limit}): {expected}")) from None

    async def _ask_agents(self) -> dict[int, bytes]:
        decisions = await self._agents.decide(self.observation_of, self._add_from_agent)
        if not self._actors.humans and all(decision is None for decision in decisions):
            raise TrialEnded.by_failure(Unavailable("none of its agents answers Decide any more"))
        return {
            agent.actor_id: b"" if decision is None else decision.action.content
            for agent, decision in zip(self._agents.all, decisions, strict=True)
        }

    def _add_from_agent(self, agent: RemoteAgent, decision: AgentDecideReply) -> None:
        """Take the feedback and messages that came with an agent's action."""
        try:
            self.rewards.check(decision.feedbacks)
            self.messages.check(decision.messages)
        except RequestError as error:
            self._agents.handle_failure(agent, Internal(f"{agent}: Decide returned {error}"))
        else:
            self.rewards.add(decision.feedbacks)
            self.messages.add(decision.messages, agent.actor_id)

    async def _reward(self) -> None:
        """Send agents the rewards of the previous tick; humans got theirs with the reply."""
        if self.rewards.tick:
            rewards, late = self.rewards.close_tick(self.rewards.tick - 1), self.rewards.pop_late()
            calls = self._agents.reward(self.rewards.tick - 1, rewards)
            await self._write(rewards, late)
            await wait_for_calls(calls)

    async def _deliver_messages(self) -> None:
        """Deliver the messages since the previous tick; humans get theirs with the reply."""
        if self.messages.has_messages:
            calls = self._agents.deliver(self.messages)
            try:
                await self._environment.deliver(self.messages.pop(ENVIRONMENT_ID))
            except RequestError as error:
                raise TrialEnded.by_failure(error, self._environment.name) from error
            await wait_for_calls(calls)

    async def _update(self, actions: list[bytes]) -> env_api.EnvUpdateReply:
        """Update the environment. An actor whose action is invalid is asked again."""
        while True:
            as_snapshot = self._agents.have_missed_last or self.humans.have_missed_last
            try:
                return await self._environment.update(actions, as_snapshot)
            except InvalidAction as error:
                actions[error.actor_id] = await self._ask_again(actions[error.actor_id], error)
            except RequestError as error:
                raise TrialEnded.by_failure(error, self._environment.name) from error

    async def _ask_again(self, action: bytes, error: InvalidAction) -> bytes:
        """Return another action of a human, or an empty one for an agent, which then idles."""
        if self._actors.find(error.actor_id).is_human:
            self.humans.fail(error.actor_id, error)
            return (await self._wait_for_humans())[error.actor_id]
        agent = next(one for one in self._agents.all if one.actor_id == error.actor_id)
        if not action:  # an empty action is always valid: the environment is at fault
            raise TrialEnded.by_failure(error, self._environment.name)
        self._agents.handle_failure(agent, Internal(f"{agent}: Decide returned an invalid action: {error}"))
        return b""

    def _advance(self, actions: Sequence[bytes], reply: env_api.EnvUpdateReply) -> None:
        """Take the environment's reply and begin the next tick."""
        assert self._observations is not None
        try:
            self.rewards.check(reply.feedbacks)
            self.messages.check(reply.messages)
        except RequestError as error:
            raise TrialEnded.by_failure(error, self._environment.name) from error
        self.rewards.add(reply.feedbacks)
        self.messages.add(reply.messages, ENVIRONMENT_ID)
        self._record(self._observations, actions)
        self._observations = reply.observation_set
        self.rewards.advance()

    def _answer(self, reply: env_api.EnvUpdateReply) -> Ending | None:
        """Reply to the humans, with the reward of the tick that has just ended."""
        ending = self._planned_end(reply)
        for actor in self._actors.humans:
            self.humans.answer(actor.id, self._build_reply(actor.id, self.rewards.tick - 1, ending is not None))
        return ending

    def _build_reply(self, actor_id: int, rewarded_tick: int, is_over: bool) -> api.TrialActionReply:
        return api.TrialActionReply(
            observation=self.observation_of(actor_id),
            reward=self.rewards.reward_of(rewarded_tick, actor_id),
            trial_is_over=is_over,
            messages=MessageCollection(messages=self.messages.pop(actor_id)),
        )

    def _planned_end(self, reply: env_api.EnvUpdateReply) -> Ending | None:
        if reply.end_trial:
            return Ending("its environment ended it")
        if self.rewards.tick == self._params.max_steps:
            return Ending(f"it took {self._params.max_steps} steps (max_steps)")
        return None

    async def _finish_starting(self) -> None:
        """Wait for Start calls that are under way: an End that arrives before its Start would have no effect."""
        if self._starting:
            _, late = await asyncio.wait(self._starting, timeout=self._environment.deadline_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._starting, return_exceptions=True)

    async def _start_environment(self) -> None:
        self._observations = await self._environment.start(self._params)

    def _record(self, observations: env_api.ObservationSet, actions: Sequence[bytes]) -> None:
        if self._has_datalog:
            self._recorder.keep(observations, actions, self.messages.pop_copies())

    async def _write(self, rewards: Sequence[Reward], late: Sequence[Sequence[Feedback]]) -> None:
        """Write the tick that was recorded last to the datalog, with its rewards and late feedback."""
        if self._has_datalog:
            await self._recorder.write(rewards, late)


class Trial:
    """A trial from Start to the last End.

    `when_over` is called once, when the trial ends: from then on the trial takes no calls of clients, while agents and
    environment may still have to be ended.
    """

    def __init__(
        self, trial_id: str, actors: Actors, run: TrialRun, when_over: Callable[["Trial", Ending], None]
    ) -> None:
        self.id = trial_id
        self.actors = actors
        self._run = run
        self._when_over = when_over
        self.began_s = time.monotonic()
        self._ending: Ending | None = None
        self._start_reply: api.TrialStartReply | None = None
        """Reply for the client that started the trial, once everything has started."""
        self._has_started_or_ended = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None

    @property
    def state(self) -> TrialRun:
        """Its feedback, messages and final replies, for what is kept of it after its end."""
        return self._run

    @property
    def has_started(self) -> bool:
        """Return whether all agents and the environment have started."""
        return self._start_reply is not None

    async def wait_started(self) -> api.TrialStartReply:
        """Wait for the start; return the reply for the client that started the trial, which is the first human."""
        await self._has_started_or_ended.wait()
        if self._start_reply is None:
            assert self._ending is not None
            raise self._ending.kind(self._ending.reason)
        return self._start_reply

    def join(self, actor_id: int) -> api.TrialStartReply:
        """Join as a human actor."""
        return self._build_start_reply(self._run.humans.join(actor_id))

    async def act(self, actor_id: int, content: bytes) -> api.TrialActionReply:
        """Give an actor's action and return the reply of its tick."""
        self._run.humans.mark_active()
        return await self._run.humans.act(actor_id, content)

    def heartbeat(self) -> None:
        """Restart the inactivity timeout."""
        self._run.humans.mark_active()

    def give_feedback(self, feedbacks: Sequence[Feedback]) -> None:
        """Take feedback on actors."""
        self._run.humans.mark_active()
        self._run.rewards.check(feedbacks)
        self._run.rewards.add(feedbacks)

    def send_messages(self, messages: Sequence[Message]) -> None:
        """Send messages from human actors."""
        self._run.humans.mark_active()
        self._run.messages.check_from_clients(messages)
        self._run.messages.add(messages)

    def end(self, ending: Ending) -> None:
        """End the trial now, cancelling the current tick."""
        self._set_ending(ending)
        if self._ticking is not None:
            self._ticking.cancel()

    async def run(self) -> None:
        """Run the trial from start to finish."""
        self._ticking = asyncio.create_task(self._run_ticks())
        if self._ending is not None:
            self._ticking.cancel()
        await asyncio.wait({self._ticking})
        self._set_ending(self._ending_of(self._ticking))
        try:
            await self._run.finish()
        except asyncio.CancelledError:
            self._run.abort()
            raise

    async def _run_ticks(self) -> None:
        await self._run.start()
        self._start_reply = self._build_start_reply(self._run.humans.join(-1) if self.actors.humans else None)
        self._has_started_or_ended.set()
        keeping_alive = asyncio.create_task(self._run.keep_alive())
        try:
            while (ending := await self._run.tick()) is None:
                pass
        finally:
            keeping_alive.cancel()
        self._set_ending(ending)

    def _set_ending(self, ending: Ending) -> None:
        """End the trial for its clients; only the first call has an effect."""
        if self._ending is None:
            self._ending = ending
            self._has_started_or_ended.set()
            self._run.humans.fail_all(lambda: ending.error(self.id))
            log.info("trial ended", trial=self.id, ticks=self._run.rewards.tick, reason=ending.reason)
            self._when_over(self, ending)

    def _ending_of(self, ticking: "asyncio.Task[None]") -> Ending:
        try:
            ticking.result()
        except TrialEnded as ended:
            return ended.ending
        except RequestError as error:  # it could not start
            return Ending(str(error), type(error))
        except asyncio.CancelledError:
            return Ending("the server stopped it", Unavailable)
        except Exception as error:
            log.error("trial failed", trial=self.id)
            return Ending(f"the server failed: {exception_text(error)}", Internal)
        assert self._ending is not None
        return self._ending

    def _build_start_reply(self, human: Actor | None) -> api.TrialStartReply:
        reply = api.TrialStartReply(trial_id=self.id, actor_id=-1, actor_counts=self.actors.counts)
        if human is not None:
            reply.actor_id = human.id
            reply.observation.CopyFrom(self._run.observation_of(human.id))
            if human.config is not None:
                reply.human_config.CopyFrom(human.config)
        return reply
