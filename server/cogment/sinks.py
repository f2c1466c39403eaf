"""Where a datalog goes: a file of this server's, or the service of another. Neither can stop a trial."""

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc

from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.protos.cogment.api.data_pb2 import DatalogMsg, LogReply
from worldloom.server.cogment.backlog import Backlog
from worldloom.server.cogment.channels import Channels, ask
from worldloom.server.env_rpc.fields import field, varint
from worldloom.server.errors import Refusal
from worldloom.server.logs import Log

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
                await self._backlog.put(field(DatalogMsg.SAMPLE_FIELD_NUMBER, len(sample)) + sample)
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
        except Refusal as refusal:
            return str(refusal)
        return None

    def _fail(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            log.error("exporter failed", endpoint=self._endpoint, trial=self._trial_id, reason=reason)
