"""Ended trials: the data that calls which come later need.

An action for an ended trial that comes through a stream is answered with the trial's final reply, since clients of the
Cogment SDK do not notice a stream that ends with an error. Feedback and messages go to the datalog. All other calls
fail with the reason. Everything runs on the event loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from worldloom.protos.cogment.api.agent_pb2 import Reward
from worldloom.protos.cogment.api.common_pb2 import Feedback, Message
from worldloom.protos.cogment.api.orchestrator_pb2 import TrialActionReply
from worldloom.protos.errors import NotFound, RequestError
from worldloom.server.cogment.orchestrator.datalog import LateRecorder
from worldloom.server.cogment.orchestrator.trial_state import Ending, MessageQueue, RewardAccumulator
from worldloom.server.dm_env_rpc.tensors import shown

_MAX_ENDED = 4096
"""Maximum number of ended trials whose reason is kept."""
_MAX_BYTES = 16 << 20
"""Maximum size of the final replies and parameters that are kept of ended trials."""
_ACTOR_BYTES = 128
"""Approximate memory of an actor's empty lists of feedback."""


@dataclass(frozen=True)
class LateCalls:
    """Feedback and messages of clients for a trial that has ended: checked as before its end, then recorded."""

    rewards: RewardAccumulator
    messages: MessageQueue
    recorder: LateRecorder

    async def give_feedback(self, feedbacks: Sequence[Feedback]) -> None:
        """Record feedback on actors."""
        self.rewards.check(feedbacks)
        rewards = [Reward() for _ in range(self.rewards.actor_count)]
        for feedback in map(self.rewards.with_tick, feedbacks):
            rewards[feedback.actor_id].feedbacks.append(feedback)
        if feedbacks:
            await self.recorder.write(rewards, ())

    async def send_messages(self, messages: Sequence[Message]) -> None:
        """Record messages."""
        self.messages.check_from_clients(messages)
        if messages:
            await self.recorder.write((), self.messages.by_receiver(messages))


@dataclass
class EndedTrial:
    """The data of an ended trial that later calls need."""

    ending: Ending
    final_replies: dict[int, TrialActionReply] = field(default_factory=dict)
    """Last reply to each human by actor id, for actions that come through a stream."""
    late_calls: LateCalls | None = None
    """None for a trial that never started, or that ended long ago."""

    @property
    def size_bytes(self) -> int:
        """Approximate size of what is dropped first."""
        replies_bytes = sum(int(reply.ByteSize()) for reply in self.final_replies.values())
        if self.late_calls is None:
            return replies_bytes
        actors_bytes = _ACTOR_BYTES * self.late_calls.rewards.actor_count
        return replies_bytes + actors_bytes + self.late_calls.recorder.size_bytes


class EndedTrials:
    """Ended trials by id, limited by number and size; the oldest are dropped first."""

    def __init__(self) -> None:
        self._trials: dict[str, EndedTrial] = {}
        self._sizes_bytes: dict[str, int] = {}
        """Size of each trial that has more than a reason, oldest first."""
        self._size_bytes = 0

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._trials

    def add(self, trial_id: str, trial: EndedTrial) -> None:
        """Add a trial that has just ended."""
        self._trials[trial_id] = trial
        self._sizes_bytes[trial_id] = size_bytes = trial.size_bytes
        self._size_bytes += size_bytes
        if len(self._trials) > _MAX_ENDED:
            oldest = next(iter(self._trials))
            self._drop_details(oldest)
            del self._trials[oldest]
        while self._size_bytes > _MAX_BYTES:
            self._drop_details(next(iter(self._sizes_bytes)))

    def error(self, trial_id: str) -> RequestError:
        """Return the error for a call that names a trial which has ended or is unknown."""
        if trial_id in self._trials:
            return self._trials[trial_id].ending.late_error(trial_id)
        return NotFound(
            f"there is no trial {shown(trial_id)}: expected the id that Start returned; it may have ended long ago"
        )

    def late_calls(self, trial_id: str) -> LateCalls:
        """Return what takes late feedback and messages of a trial; raise RequestError if there is nothing."""
        late_calls = self._trials[trial_id].late_calls if trial_id in self._trials else None
        if late_calls is None:
            raise self.error(trial_id)
        return late_calls

    def final_reply(self, trial_id: str, actor_id: int) -> TrialActionReply | None:
        """Return the final reply to a human actor; None unless the trial is known to have ended.

        Only the first has the reward and the messages that were pending.
        """
        trial = self._trials.get(trial_id)
        if trial is None or (trial.final_replies and actor_id not in trial.final_replies):
            return None
        reply = trial.final_replies.get(actor_id, TrialActionReply(trial_is_over=True))
        if reply.HasField("reward") or reply.HasField("messages"):  # each is delivered once
            trial.final_replies[actor_id] = TrialActionReply(observation=reply.observation, trial_is_over=True)
        return reply

    def _drop_details(self, trial_id: str) -> None:
        """Keep only the reason of a trial's end."""
        self._size_bytes -= self._sizes_bytes.pop(trial_id, 0)
        self._trials[trial_id] = EndedTrial(self._trials[trial_id].ending)
