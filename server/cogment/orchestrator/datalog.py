"""Bytes on their way to somebody slower: so many and no more.

Where a datalog goes: a file of this server's, or the service of another. Neither can stop a trial.

What is kept of trials: a DatalogSample for each tick.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from worldloom.protos.cogment.api.agent_pb2 import MessageCollection, Reward
from worldloom.protos.cogment.api.common_pb2 import Action, Feedback, TrialParams
from worldloom.protos.cogment.api.data_pb2 import DatalogMsg, DatalogSample, LogReply
from worldloom.protos.cogment.api.environment_pb2 import ObservationSet
from worldloom.protos.errors import RequestError
from worldloom.protos.wire import field_header, varint
from worldloom.server.cogment.orchestrator.connections import Channels, ask
from worldloom.server.cogment.settings import TrialSettings
from worldloom.server.logs import Log


class Backlog:
    """A queue of bytes. Whoever adds to a full one waits; whoever takes gets all there is."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._items: deque[bytes] = deque()
        self._size_bytes = 0
        self._is_closed = False
        self._changed = asyncio.Condition()

    async def put(self, item: bytes) -> None:
        """Add to it. One item always has room, however large; into a closed backlog nothing goes."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or self._has_room(len(item)))
            if not self._is_closed:
                self._items.append(item)
                self._size_bytes += len(item)
                self._changed.notify_all()

    async def take_all(self) -> list[bytes]:
        """What waits, as soon as there is something; nothing if it is closed and empty."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or bool(self._items))
            items = list(self._items)
            self._items.clear()
            self._size_bytes = 0
            self._changed.notify_all()
            return items

    async def close(self) -> None:
        """Nothing more comes; what is there may still be taken."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self, size_bytes: int) -> bool:
        return not self._items or self._size_bytes + size_bytes <= self._most_bytes


log = Log("datalog")

_MOST_BYTES = 64 << 20
_LOG = "/cogment.LogExporter/Log"


class FileSink:
    """Appends samples of all trials to one file, each after its length. A thread writes, so that no trial waits for
    the disk until much is on its way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._backlog = Backlog(_MOST_BYTES)
        self._writing: asyncio.Task[None] | None = None
        self._is_losing = False

    async def write(self, sample: bytes) -> None:
        """Append a sample, soon."""
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())
        await self._backlog.put(varint(len(sample)) + sample)

    async def close(self) -> None:
        """Write what is on its way, and close the file."""
        await self._backlog.close()
        if self._writing is not None:
            await self._writing
        os.close(self._file)

    async def _write_all(self) -> None:
        while batch := await self._backlog.take_all():
            problem = await asyncio.to_thread(append, self._file, b"".join(batch))
            if problem is not None and not self._is_losing:
                log.error("samples are lost", file=str(self._path), reason=problem.strerror)
            elif problem is None and self._is_losing:
                log.warning("samples are written again", file=str(self._path))
            self._is_losing = problem is not None


def append(file: int, data: bytes) -> OSError | None:
    """Write to the end of a file, all or nothing: half a sample would make the rest of the file unreadable."""
    end = os.fstat(file).st_size
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError as error:
        if os.fstat(file).st_size > end:
            os.ftruncate(file, end)
        return error
    return None


class Export:
    """One trial's stream to a LogExporter: its parameters, then its samples. Once that fails, the rest is lost."""

    def __init__(
        self, endpoint: str, channels: Channels, trial_id: str, params: TrialParams, deadline_s: float
    ) -> None:
        self._endpoint = endpoint
        self._channels = channels
        self._trial_id = trial_id
        self._deadline_s = deadline_s
        self._has_failed = False
        self._backlog = Backlog(_MOST_BYTES)
        call = channels.take(endpoint).stream_unary(_LOG, response_deserializer=LogReply.FromString)()
        first = DatalogMsg(trial_params=params).SerializeToString()
        self._sending = asyncio.get_running_loop().create_task(self._send_all(call, first))

    async def write(self, sample: bytes) -> None:
        """Send a sample, soon. An exporter that takes none for too long gets no more."""
        if self._has_failed:
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._backlog.put(field_header(DatalogMsg.SAMPLE_FIELD_NUMBER, len(sample)) + sample)
        except TimeoutError:
            self._fail(f"it took nothing for {self._deadline_s:g} s (deadline_s)")
            self._sending.cancel()

    async def close(self) -> None:
        """Send what is on its way, and end the stream; not longer than an answer may take."""
        await self._backlog.close()
        await asyncio.wait({self._sending}, timeout=self._deadline_s)
        if not self._sending.done():
            self._fail(f"it did not end the stream within {self._deadline_s:g} s (deadline_s)")
            self._sending.cancel()
            await asyncio.wait({self._sending})
        await self._channels.give_back(self._endpoint)

    def abandon(self) -> None:
        """End the stream as it is."""
        self._sending.cancel()

    async def _send_all(self, call: Any, first: bytes) -> None:
        try:
            reason = await self._send(call, first)
            if reason is not None:
                self._fail(reason)
        finally:
            call.cancel()
            await self._backlog.close()

    async def _send(self, call: Any, first: bytes) -> str | None:
        """Why it failed, if it did."""
        try:
            await call.write(first)
            while batch := await self._backlog.take_all():
                for sample in batch:
                    await call.write(sample)
            await call.done_writing()
            await ask(call, "Log", self._deadline_s)
        except asyncio.InvalidStateError:  # the call was over already
            if await call.code() is grpc.StatusCode.OK:
                return "it ended the stream before the trial was over"
            return f"{(await call.code()).name}: {await call.details()}"
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        except RequestError as refusal:
            return str(refusal)
        return None

    def _fail(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            log.error("exporter failed", endpoint=self._endpoint, trial=self._trial_id, reason=reason)


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
