"""The datalog: a DatalogSample for each tick of each trial, written to a file or sent to a LogExporter service.

A tick is written once its rewards are known, which is in the following tick. Feedback and messages that come after the
end of a trial are written at once, each call as a sample of its own. Both sinks have a bounded queue: a slow
sink slows trials down once the queue is full, a failing one loses samples, but neither ends a trial. Everything but
the writing of the file runs on the event loop.
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
from worldloom.server.cogment.orchestrator.remote_services import Channels, call_service
from worldloom.server.cogment.settings import TrialSettings
from worldloom.server.logs import Log

log = Log("datalog")

_MAX_LATE = 64
"""Late samples that are on their way to an exporter while calls do not wait for them."""
_MAX_QUEUED_BYTES = 64 << 20
"""Maximum size of the samples that wait for one sink."""
_LOG = "/cogment.LogExporter/Log"


class Datalog:
    """The sinks of a server. Raises OSError if the file cannot be opened."""

    def __init__(self, settings: TrialSettings, channels: Channels) -> None:
        self._file = None if settings.datalog_file is None else DatalogFile(settings.datalog_file)
        self._endpoint = settings.datalog_endpoint
        self._deadline_s = settings.deadline_s
        self._channels = channels
        self._late: set[asyncio.Task[None]] = set()
        """Writing of samples that came after the end of their trials."""

    def open(self, trial_id: str, user_id: str, params: TrialParams) -> "TrialRecorder":
        """Return the recorder of a trial."""
        stream = None
        if self._endpoint is not None:
            stream = DatalogStream(self._endpoint, self._channels, trial_id, params, self._deadline_s)
        return TrialRecorder(trial_id, user_id, self._file, stream)

    def open_late(self, trial_id: str, user_id: str, params: TrialParams) -> "LateRecorder":
        """Return the recorder of what comes after the end of a trial."""
        return LateRecorder(self, trial_id, user_id, None if self._endpoint is None else params)

    async def write_late(self, trial_id: str, params: TrialParams | None, data: bytes) -> None:
        """Write a sample of a trial that has ended, even if the call is cancelled. An exporter gets a stream for it."""
        task = asyncio.create_task(self._write_late(trial_id, params, data))
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        if params is None or len(self._late) > _MAX_LATE:  # an exporter may take long, and its caller need not wait
            await asyncio.shield(task)

    async def _write_late(self, trial_id: str, params: TrialParams | None, data: bytes) -> None:
        if self._file is not None:
            await self._file.write(data)
        if self._endpoint is not None and params is not None:
            stream = DatalogStream(self._endpoint, self._channels, trial_id, params, self._deadline_s)
            await stream.write(data)
            await stream.close()

    async def close(self) -> None:
        """Write all queued samples and close the file. All recorders must have been closed."""
        await asyncio.gather(*self._late)
        file, self._file = self._file, None
        if file is not None:
            await file.close()


class TrialRecorder:
    """The datalog of one trial: keeps a tick until its rewards are known, then writes it to all sinks."""

    def __init__(self, trial_id: str, user_id: str, file: "DatalogFile | None", stream: "DatalogStream | None") -> None:
        self._trial_id, self._user_id = trial_id, user_id
        self._sinks = [sink for sink in (file, stream) if sink is not None]
        self._stream = stream
        self._sample: DatalogSample | None = None
        """Tick whose rewards are not known yet."""
        self._writing: asyncio.Future[list[None]] | None = None
        """Tick that is being written."""

    @property
    def has_sinks(self) -> bool:
        """Return whether there is a sink; without one nothing need be recorded."""
        return bool(self._sinks)

    def keep(
        self, observations: ObservationSet, actions: Sequence[bytes], messages: Sequence[MessageCollection]
    ) -> None:
        """Keep the observations, actions and messages of a tick."""
        self._sample = DatalogSample(
            trial_id=self._trial_id,
            user_id=self._user_id,
            timestamp=time.time_ns(),
            observations=observations,
            actions=[Action(content=action) for action in actions],
            messages=messages,
        )

    async def write(self, rewards: Sequence[Reward], late: Sequence[Sequence[Feedback]]) -> None:
        """Write the tick that was kept with its rewards, adding each actor's late feedback to that actor's reward.

        The tick is written even if the call is cancelled.
        """
        if self._sample is None:
            return
        sample, self._sample = self._sample, None
        for reward, late_feedbacks in zip(rewards, late, strict=True):
            sample.rewards.add().CopyFrom(reward)
            sample.rewards[-1].feedbacks.extend(late_feedbacks)
        data = sample.SerializeToString()
        await self._wait_written()
        self._writing = asyncio.gather(*(sink.write(data) for sink in self._sinks))
        await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Finish writing, and end the stream of this trial."""
        await self._wait_written()
        if self._stream is not None:
            await self._stream.close()

    def abort(self) -> None:
        """End the stream of this trial without sending the queued samples."""
        if self._stream is not None:
            self._stream.abort()

    async def _wait_written(self) -> None:
        if self._writing is not None:
            await self._writing


class LateRecorder:
    """The datalog of a trial that has ended: feedback and messages that came later, without observations or actions."""

    def __init__(self, datalog: Datalog, trial_id: str, user_id: str, params: TrialParams | None) -> None:
        self._datalog = datalog
        self._trial_id, self._user_id = trial_id, user_id
        self._params = params
        """Parameters of the trial, where an exporter needs them."""

    @property
    def size_bytes(self) -> int:
        """Size of what it keeps."""
        return 0 if self._params is None else self._params.ByteSize()

    async def write(self, rewards: Sequence[Reward], messages: Sequence[MessageCollection]) -> None:
        """Write a sample to all sinks; rewards have the feedback on each actor, and no value."""
        sample = DatalogSample(
            trial_id=self._trial_id,
            user_id=self._user_id,
            timestamp=time.time_ns(),
            rewards=rewards,
            messages=messages,
        )
        await self._datalog.write_late(self._trial_id, self._params, sample.SerializeToString())


class BoundedQueue:
    """A queue of bytes with a maximum size. `put` waits while it is full; `pop_all` takes all items at once."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: deque[bytes] = deque()
        self._size_bytes = 0
        self._is_closed = False
        self._changed = asyncio.Condition()

    async def put(self, item: bytes) -> None:
        """Add an item. An empty queue takes an item of any size, a closed one drops it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or self._has_space(len(item)))
            if not self._is_closed:
                self._items.append(item)
                self._size_bytes += len(item)
                self._changed.notify_all()

    async def pop_all(self) -> list[bytes]:
        """Wait for items and return all of them; return an empty list if the queue is closed and empty."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or bool(self._items))
            items = list(self._items)
            self._items.clear()
            self._size_bytes = 0
            self._changed.notify_all()
            return items

    async def close(self) -> None:
        """Accept no more items; those in the queue can still be taken."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_space(self, size_bytes: int) -> bool:
        return not self._items or self._size_bytes + size_bytes <= self._max_bytes


class DatalogFile:
    """A file to which the samples of all trials are appended, each after its length as a varint.

    A thread writes, so that trials wait for the disk only when the queue is full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._queue = BoundedQueue(_MAX_QUEUED_BYTES)
        self._writing: asyncio.Task[None] | None = None
        self._is_failing = False

    async def write(self, sample: bytes) -> None:
        """Queue a sample."""
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())
        await self._queue.put(varint(len(sample)) + sample)

    async def close(self) -> None:
        """Write all queued samples and close the file."""
        await self._queue.close()
        if self._writing is not None:
            await self._writing
        os.close(self._file)

    async def _write_all(self) -> None:
        while batch := await self._queue.pop_all():
            error = await asyncio.to_thread(append, self._file, b"".join(batch))
            if error is not None and not self._is_failing:
                log.error("samples are lost", file=str(self._path), reason=error.strerror)
            elif error is None and self._is_failing:
                log.warning("samples are written again", file=str(self._path))
            self._is_failing = error is not None


def append(file: int, data: bytes) -> OSError | None:
    """Append data to a file, all or nothing, and return the error if it fails.

    Part of a sample would make the rest of the file unreadable.
    """
    end = os.fstat(file).st_size
    remaining = memoryview(data)
    try:
        while remaining:
            remaining = remaining[os.write(file, remaining) :]
    except OSError as error:
        if os.fstat(file).st_size > end:
            os.ftruncate(file, end)
        return error
    return None


class DatalogStream:
    """One trial's Log call to a LogExporter: its parameters, then its samples. After a failure the rest is lost."""

    def __init__(
        self, endpoint: str, channels: Channels, trial_id: str, params: TrialParams, deadline_s: float
    ) -> None:
        self._endpoint = endpoint
        self._channels = channels
        self._trial_id = trial_id
        self._deadline_s = deadline_s
        self._has_failed = False
        self._queue = BoundedQueue(_MAX_QUEUED_BYTES)
        call = channels.acquire(endpoint).stream_unary(_LOG, response_deserializer=LogReply.FromString)()
        first = DatalogMsg(trial_params=params).SerializeToString()
        self._sending = asyncio.get_running_loop().create_task(self._send_all(call, first))

    async def write(self, sample: bytes) -> None:
        """Queue a sample. An exporter that reads nothing until the deadline gets no more."""
        if self._has_failed:
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._queue.put(field_header(DatalogMsg.SAMPLE_FIELD_NUMBER, len(sample)) + sample)
        except TimeoutError:
            self._fail(f"it read nothing for {self._deadline_s:g} s (deadline_s)")
            self._sending.cancel()

    async def close(self) -> None:
        """Send all queued samples and end the stream, within the deadline."""
        await self._queue.close()
        await asyncio.wait({self._sending}, timeout=self._deadline_s)
        if not self._sending.done():
            self._fail(f"it did not end the stream within {self._deadline_s:g} s (deadline_s)")
            self._sending.cancel()
            await asyncio.wait({self._sending})
        await self._channels.release(self._endpoint)

    def abort(self) -> None:
        """End the stream without sending the queued samples."""
        self._sending.cancel()

    async def _send_all(self, call: Any, first: bytes) -> None:
        try:
            reason = await self._send(call, first)
            if reason is not None:
                self._fail(reason)
        finally:
            call.cancel()
            await self._queue.close()

    async def _send(self, call: Any, first: bytes) -> str | None:
        """Send all messages of the stream; return the reason if that fails."""
        try:
            await call.write(first)
            while batch := await self._queue.pop_all():
                for sample in batch:
                    await call.write(sample)
            await call.done_writing()
            await call_service(call, "Log", self._deadline_s)
        except asyncio.InvalidStateError:  # the call has ended already
            if await call.code() is grpc.StatusCode.OK:
                return "it ended the stream before the trial was over"
            return f"{(await call.code()).name}: {await call.details()}"
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        except RequestError as error:
            return str(error)
        return None

    def _fail(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            log.error("exporter failed", endpoint=self._endpoint, trial=self._trial_id, reason=reason)
