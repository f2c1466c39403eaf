"""A trial as it is played: the stages of its start, of each tick and of its end, in this order.

start     agents and environment, all at once
tick t    decide              every agent is asked, every human awaited
          reward              agents are told what tick t-1 was worth
          deliver_messages    to agents and environment
          update              the environment takes the actions of all
          advance             its observations, feedback and messages are those of tick t+1
          answer              humans get their observation, the reward of tick t-1 and their messages
finish    everyone is let go

One trial, from its Start to the last End: what its clients ask of it, and how it ends.
"""

import asyncio
from collections.abc import Callable, Sequence

from worldloom.protos.cogment.api import environment_pb2 as env_api
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.agent_pb2 import AgentDecideReply, MessageCollection, Reward
from worldloom.protos.cogment.api.common_pb2 import Feedback, Message, Observation, TrialParams
from worldloom.protos.errors import Internal, InvalidArgument, RequestError, Unavailable
from worldloom.server.cogment.environments.environment import TrialEnvironment, WrongAction
from worldloom.server.cogment.orchestrator.actors import ENVIRONMENT_ID, Actor, Cast, Seats, Silence
from worldloom.server.cogment.orchestrator.agents import Agent, Agents
from worldloom.server.cogment.orchestrator.datalog import Recorder
from worldloom.server.cogment.orchestrator.endings import Ending, TrialOver, failure, together
from worldloom.server.cogment.orchestrator.messages import Ledger, Mail, reward_of
from worldloom.server.logs import Log


class Play:
    """The play of one trial. Where it cannot go on it raises TrialOver, or RequestError if it cannot even start."""

    def __init__(
        self,
        params: TrialParams,
        cast: Cast,
        environment: TrialEnvironment,
        agents: Agents,
        recorder: Recorder,
        idle_s: float,
    ) -> None:
        self.seats = Seats(cast)
        self.ledger = Ledger(len(cast.actors))
        self.mail = Mail(len(cast.actors), recorder.is_wanted)
        self._params = params
        self._cast = cast
        self._environment = environment
        self._agents = agents
        self._recorder = recorder
        self._idle_s = idle_s
        self._starting: list[asyncio.Task[None]] = []
        self._observations: env_api.ObservationSet | None = None
        """Of this tick."""
        self._rewards = [Reward() for _ in cast.actors]
        """Of the tick before, for each actor."""
        self._last: tuple[int, Sequence[Reward]] | None = None
        """The last tick and its rewards, which no tick follows."""

    async def start(self) -> None:
        """Start the agents and the environment, all at once."""
        trial_config = self._params.trial_config if self._params.HasField("trial_config") else None
        calls = (self._start_environment(), *self._agents.starts(self._cast.counts, trial_config))
        self._starting = [asyncio.create_task(call) for call in calls]
        done, _ = await asyncio.wait(self._starting, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def tick(self) -> Ending | None:
        """Play a tick; an Ending if it was the last."""
        actions = await self._decide()
        await self._reward()
        await self._deliver_messages()
        reply = await self._update(actions)
        self._advance(actions, reply)
        return await self._answer(reply)

    async def keep_awake(self) -> None:
        """Until cancelled, see to it that the environment does not take the trial for idle, however long a tick is."""
        await self._environment.keep_awake(self._idle_s / 3)

    async def finish(self) -> None:
        """Let everyone go, also those who failed, and write down the rest."""
        await self._have_started()
        await asyncio.gather(self._agents.dismiss(self.mail, self._last), self._environment.end())
        if self._observations is not None:
            await self._write_rest(self._observations)
        await self._recorder.close()

    def abandon(self) -> None:
        """Let go of all that `finish` was cancelled in."""
        for task in self._starting:
            task.cancel()
        self._recorder.abandon()

    def observation_of(self, actor_id: int) -> Observation:
        """What an actor sees in this tick."""
        there = self._observations
        assert there is not None
        data = there.observations[there.actors_map[actor_id]]
        return Observation(tick_id=there.tick_id, timestamp=there.timestamp, data=data)

    async def _decide(self) -> list[bytes]:
        """Ask every agent, and wait for every human: what all actors do."""
        asked = []
        if self._cast.agents:
            asked.append(self._ask_agents())
        if self._cast.humans:
            asked.append(self._ask_humans())
        actions = {actor_id: action for some in await together(*asked) for actor_id, action in some.items()}
        return [actions[actor.id] for actor in self._cast.actors]

    async def _ask_humans(self) -> dict[int, bytes]:
        patience_s = self._params.max_inactivity or self._idle_s
        try:
            return await self.seats.actions(patience_s)
        except Silence:
            limit = "max_inactivity" if self._params.max_inactivity else "--idle-world-s"
            reason = f"its humans gave no sign of life for {patience_s:g} s ({limit}): expected Action or Heartbeat"
            raise TrialOver(Ending(reason)) from None

    async def _ask_agents(self) -> dict[int, bytes]:
        decisions = await self._agents.decide(self.observation_of)
        if not self._cast.humans and all(decision is None for decision in decisions):
            raise failure(Unavailable("none of its agents decides any more"))
        actions = {}
        for agent, decision in zip(self._agents.all, decisions, strict=True):
            actions[agent.actor_id] = b"" if decision is None else decision.action.content
            if decision is not None:
                self._take_remarks(agent, decision)
        return actions

    def _take_remarks(self, agent: Agent, decision: AgentDecideReply) -> None:
        """What an agent has to say besides its action."""
        try:
            self.ledger.check(decision.feedbacks)
            self.mail.check(decision.messages)
        except RequestError as error:
            self._agents.tolerate(agent, Internal(f"{agent}: Decide gave {error}"))
        else:
            self.ledger.take(decision.feedbacks)
            self.mail.post(decision.messages, agent.actor_id)

    async def _reward(self) -> None:
        """Tell the agents what the tick before was worth; humans are told with their answer."""
        if self.ledger.tick:
            self._rewards = await self._settle(self.ledger.tick - 1)
            await self._agents.reward(self.ledger.tick - 1, self._rewards)

    async def _deliver_messages(self) -> None:
        """Hand over what was sent since the tick before; humans get theirs with their answer."""
        if self.mail.is_waiting:
            to_environment = self.mail.collect(ENVIRONMENT_ID)
            await together(self._agents.hand_over(self.mail), self._environment.hand_over(to_environment))

    async def _update(self, actions: list[bytes]) -> env_api.EnvUpdateReply:
        """Have the environment take the actions. Whoever's cannot be is asked again."""
        while True:
            as_snapshot = self._agents.missed_last or self.seats.have_missed_one
            try:
                return await self._environment.update(actions, as_snapshot)
            except WrongAction as error:
                actions[error.actor_id] = await self._ask_again(actions[error.actor_id], error)

    async def _ask_again(self, given: bytes, error: WrongAction) -> bytes:
        if self._cast.find(error.actor_id).is_human:
            self.seats.refuse(error.actor_id, error)
            return (await self._ask_humans())[error.actor_id]
        agent = next(one for one in self._agents.all if one.actor_id == error.actor_id)
        if not given:  # nothing cannot be wrong
            raise failure(error, by=self._environment.name)
        self._agents.tolerate(agent, Internal(f"{agent}: Decide gave an action that cannot be: {error}"))
        return b""

    def _advance(self, actions: Sequence[bytes], reply: env_api.EnvUpdateReply) -> None:
        """Take what the environment made of it; the next tick begins."""
        assert self._observations is not None
        try:
            self.ledger.check(reply.feedbacks)
            self.mail.check(reply.messages)
        except RequestError as error:
            raise failure(error, by=self._environment.name) from error
        self.ledger.take(reply.feedbacks)
        self.mail.post(reply.messages, ENVIRONMENT_ID)
        self._recorder.keep(self._observations, actions, self.mail.take_copies())
        self._observations = reply.observation_set
        self.ledger.advance()

    async def _answer(self, reply: env_api.EnvUpdateReply) -> Ending | None:
        """Answer the humans. With the last answer come the rewards of the last tick too, since no tick follows."""
        ending = self._planned_end(reply)
        rewards = self._rewards
        if ending is not None:
            last = await self._settle(self.ledger.tick - 1)
            self._last = self.ledger.tick - 1, last
            rewards = [reward_of([*one.feedbacks, *two.feedbacks]) for one, two in zip(rewards, last, strict=True)]
        for actor in self._cast.humans:
            answer = api.TrialActionReply(
                observation=self.observation_of(actor.id),
                reward=rewards[actor.id],
                trial_is_over=ending is not None,
                messages=MessageCollection(messages=self.mail.collect(actor.id)),
            )
            self.seats.answer(actor.id, answer)
        return ending

    def _planned_end(self, reply: env_api.EnvUpdateReply) -> Ending | None:
        if reply.end_trial:
            return Ending("its environment ended it")
        if self.ledger.tick == self._params.max_steps:
            return Ending(f"it took {self._params.max_steps} steps (max_steps)")
        return None

    async def _have_started(self) -> None:
        """An End before its Start would be lost."""
        if self._starting:
            _, late = await asyncio.wait(self._starting, timeout=self._environment.deadline_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._starting, return_exceptions=True)

    async def _start_environment(self) -> None:
        self._observations = await self._environment.start(self._params)

    async def _write_rest(self, observations: env_api.ObservationSet) -> None:
        """The ticks whose rewards are open; in the latest nobody acted."""
        for tick in self.ledger.open_ticks:
            if tick == self.ledger.tick:
                self._recorder.keep(observations, (), self.mail.take_copies())
            await self._settle(tick)

    async def _settle(self, tick: int) -> list[Reward]:
        """The rewards of a tick; it is written down with them."""
        rewards = self.ledger.settle(tick)
        await self._recorder.write(rewards, self.ledger.take_late())
        return rewards


log = Log("trials")


class Trial:
    """A trial. `when_over` is called once: from then on no call is answered but with why it ended, though those who
    took part may still have to be told."""

    def __init__(self, trial_id: str, cast: Cast, play: Play, when_over: Callable[["Trial", Ending], None]) -> None:
        self.id = trial_id
        self._cast = cast
        self._play = play
        self._when_over = when_over
        self._ending: Ending | None = None
        self._welcome: api.TrialStartReply | None = None
        """For the client that started it, once everyone is there."""
        self._is_decided = asyncio.Event()
        """Whether it has begun, or will not."""
        self._playing: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether everyone is there."""
        return self._welcome is not None

    async def begin(self) -> api.TrialStartReply:
        """Wait until everyone is there: what the client is told that started it, which is the first human."""
        await self._is_decided.wait()
        if self._welcome is None:
            assert self._ending is not None
            raise self._ending.kind(self._ending.reason)
        return self._welcome

    def join(self, actor_id: int) -> api.TrialStartReply:
        """Be a human actor."""
        actor = self._play.seats.join(actor_id)
        return self._welcome_for(actor)

    async def act(self, actor_id: int, content: bytes) -> api.TrialActionReply:
        """Give an action, and wait for what comes of it."""
        self._play.seats.show_life()
        return await self._play.seats.act(actor_id, content)

    def heartbeat(self) -> None:
        """A human is there, though silent."""
        self._play.seats.show_life()

    def give_feedback(self, feedbacks: Sequence[Feedback]) -> None:
        """Say what actors did well or badly."""
        self._play.seats.show_life()
        self._play.ledger.check(feedbacks)
        self._play.ledger.take(feedbacks)

    def send_messages(self, messages: Sequence[Message]) -> None:
        """Send messages in the name of a human."""
        self._play.seats.show_life()
        for message in messages:
            self._check_sender(message.sender_id)
        self._play.mail.check(messages)
        self._play.mail.post(messages)

    def end(self, ending: Ending) -> None:
        """End it now, whatever it waits for."""
        self._conclude(ending)
        if self._playing is not None:
            self._playing.cancel()

    async def live(self) -> None:
        """Start, tick by tick, and End; then nothing of it is left."""
        self._playing = asyncio.create_task(self._run())
        if self._ending is not None:
            self._playing.cancel()
        await asyncio.wait({self._playing})
        self._conclude(self._ending_of(self._playing))
        try:
            await self._play.finish()
        except asyncio.CancelledError:
            self._play.abandon()
            raise

    async def _run(self) -> None:
        await self._play.start()
        self._welcome = self._welcome_for(self._play.seats.join(-1) if self._cast.humans else None)
        self._is_decided.set()
        waking = asyncio.create_task(self._play.keep_awake())
        try:
            while (ending := await self._play.tick()) is None:
                pass
        finally:
            waking.cancel()
        self._conclude(ending)

    def _conclude(self, ending: Ending) -> None:
        """From now on it is over; whoever waits is told so."""
        if self._ending is None:
            self._ending = ending
            self._is_decided.set()
            self._play.seats.refuse_all(lambda: ending.refusal(self.id))
            log.info("played", trial=self.id, ticks=self._play.ledger.tick, reason=ending.reason)
            self._when_over(self, ending)

    def _ending_of(self, playing: "asyncio.Task[None]") -> Ending:
        try:
            playing.result()
        except TrialOver as over:
            return over.ending
        except RequestError as error:  # it could not begin
            return Ending(str(error), type(error))
        except asyncio.CancelledError:
            return Ending("the server stopped it", Unavailable)
        except Exception as error:
            log.error("trial failed", trial=self.id)
            return Ending(f"the server failed: {type(error).__name__}; its log has more", Internal)
        assert self._ending is not None
        return self._ending

    def _welcome_for(self, human: Actor | None) -> api.TrialStartReply:
        welcome = api.TrialStartReply(trial_id=self.id, actor_id=-1, actor_counts=self._cast.counts)
        if human is not None:
            welcome.actor_id = human.id
            welcome.observation.CopyFrom(self._play.observation_of(human.id))
            if human.config is not None:
                welcome.human_config.CopyFrom(human.config)
        return welcome

    def _check_sender(self, sender_id: int) -> None:
        humans = [actor.id for actor in self._cast.humans] or [-1]
        if sender_id not in humans:
            raise InvalidArgument(
                f"a message from sender_id {sender_id}: expected a human actor of the trial, one of "
                f"{', '.join(map(str, humans))}"
            )
