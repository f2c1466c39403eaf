"""The server that a page shows: its engine, and what other threads may read of it."""

import asyncio
import importlib.metadata
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc

from worldloom.server.config import WebOptions
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.sampling import EngineSample
from worldloom.server.engine.world import FAILURES
from worldloom.server.transports.open_streams import OpenStreams

if TYPE_CHECKING:
    from worldloom.server.cogment.orchestrator.trials import Trials

T = TypeVar("T")

HUNG_AFTER_S = 30.0
"""Age of the latest sample from which on an engine, which takes one a second, counts as hung: the thread is in the step
of a family, or in a driver, that does not return."""
CODE_NAMES: dict[int, str] = {status.value[0]: status.name for status in grpc.StatusCode}
"""Names of google.rpc.Code, by number."""
VERSION = importlib.metadata.version("worldloom")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass
class WatchedServer:
    """The server as the web thread knows it. All of it may be read from any thread."""

    engine: Engine
    options: WebOptions
    open_streams: OpenStreams
    """Counts the streams of the server, to which those of people who play belong."""
    count_waiting: Callable[[], int]
    """Return the number of requests that were read and not answered yet."""
    address: str = ""
    """First address that clients connect to."""
    trials: "Trials | None" = None
    """Trials of the server, which belong to `loop`; None without --cogment."""
    loop: asyncio.AbstractEventLoop | None = None
    is_ready: bool = False
    """The server listens, and does not stop."""
    viewers: int = 0
    """People who watch now."""

    @property
    def sample(self) -> EngineSample | None:
        """Latest sample of the engine."""
        return self.engine.sample

    @property
    def is_hung(self) -> bool:
        """The engine has ended, or has not finished a tick for a long time."""
        sample = self.sample
        return self.engine.has_failed or (sample is not None and time.monotonic() - sample.taken_at_s > HUNG_AFTER_S)

    @property
    def process_bytes(self) -> int:
        """Resident memory of the process; 0 if it cannot be read, as without descriptors left."""
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except OSError:
            return 0


async def ask_engine(engine: Engine, question: Callable[[], T]) -> T:
    """Return the answer of the engine's thread to a question, or raise what came of it."""
    answer: Future[T] = Future()

    def ask() -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(question())
            except FAILURES as error:
                answer.set_exception(error)

    engine.post(ask)
    return await asyncio.wrap_future(answer)
