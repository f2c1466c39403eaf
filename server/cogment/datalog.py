"""What is kept of trials: a DatalogSample for each tick."""

import asyncio
import time
from collections.abc import Sequence

from worldloom.protos.cogment.api.agent_pb2 import MessageCollection, Reward
from worldloom.protos.cogment.api.common_pb2 import Action, Feedback, TrialParams
from worldloom.protos.cogment.api.data_pb2 import DatalogSample
from worldloom.protos.cogment.api.environment_pb2 import ObservationSet
from worldloom.server.cogment.channels import Channels
from worldloom.server.cogment.settings import TrialSettings
from worldloom.server.cogment.sinks import Export, FileSink


class Datalog:
    """The sinks of a server. A file that cannot be opened raises OSError."""

    def __init__(self, settings: TrialSettings, channels: Channels) -> None:
        self._file = None if settings.datalog_file is None else FileSink(settings.datalog_file)
        self._endpoint = settings.datalog_endpoint
        self._deadline_s = settings.deadline_s
        self._channels = channels

    def open(self, trial_id: str, user_id: str, params: TrialParams) -> "Recorder":
        """What records a trial."""
        export = None
        if self._endpoint is not None:
            export = Export(self._endpoint, self._channels, trial_id, params, self._deadline_s)
        return Recorder(trial_id, user_id, self._file, export)

    async def close(self) -> None:
        """Write what is on its way. All recorders have been closed."""
        file, self._file = self._file, None
        if file is not None:
            await file.close()


class Recorder:
    """Keeps one trial. A tick is written once its rewards are known, which is in the tick after it."""

    def __init__(self, trial_id: str, user_id: str, file: FileSink | None, export: Export | None) -> None:
        self._trial_id, self._user_id = trial_id, user_id
        self._sinks = [sink for sink in (file, export) if sink is not None]
        self._export = export
        self._sample: DatalogSample | None = None
        """The tick that is not written yet."""
        self._writing: asyncio.Future[list[None]] | None = None
        """The one that is being written."""

    @property
    def is_wanted(self) -> bool:
        """Whether anybody keeps what is recorded."""
        return bool(self._sinks)

    def keep(
        self, observations: ObservationSet, actions: Sequence[bytes], messages: Sequence[MessageCollection]
    ) -> None:
        """What was seen, done and said in a tick."""
        if self.is_wanted:
            self._sample = DatalogSample(
                trial_id=self._trial_id,
                user_id=self._user_id,
                timestamp=time.time_ns(),
                observations=observations,
                actions=[Action(content=action) for action in actions],
                messages=messages,
            )

    async def write(self, rewards: Sequence[Reward], late: Sequence[Sequence[Feedback]]) -> None:
        """Write the tick that was kept, with its rewards; late feedback for older ones is put beside theirs. A call
        that is cancelled has it written all the same."""
        if self._sample is None:
            return
        sample, self._sample = self._sample, None
        for reward, others in zip(rewards, late, strict=True):
            sample.rewards.add().CopyFrom(reward)
            sample.rewards[-1].feedbacks.extend(others)
        data = sample.SerializeToString()
        await self._have_written()
        self._writing = asyncio.gather(*(sink.write(data) for sink in self._sinks))
        await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Nothing more comes."""
        await self._have_written()
        if self._export is not None:
            await self._export.close()

    def abandon(self) -> None:
        """Nothing more comes, and what is on its way may get lost."""
        if self._export is not None:
            self._export.abandon()

    async def _have_written(self) -> None:
        if self._writing is not None:
            await self._writing
