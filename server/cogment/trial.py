"""One trial, from its Start to the last End: what its clients ask of it, and how it ends."""

import asyncio
from collections.abc import Callable, Sequence

from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Feedback, Message
from worldloom.server.cogment.cast import Actor, Cast
from worldloom.server.cogment.endings import Ending, TrialOver
from worldloom.server.cogment.play import Play
from worldloom.server.errors import Internal, InvalidArgument, Refusal, Unavailable
from worldloom.server.logs import Log

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
        except Refusal as error:  # it could not begin
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
