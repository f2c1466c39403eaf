"""A page in this process, with an engine of its own: what clients do to it can be seen from within."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from worldloom.protos.addresses import TcpAddress
from worldloom.render.cpu import CPURenderer
from worldloom.server.config import Limits, WebOptions
from worldloom.server.engine.engine import Engine
from worldloom.server.transports.open_streams import OpenStreams
from worldloom.server.web.app import ServerPage
from worldloom.server.web.http_server import WebAddress
from worldloom.server.web.watched_server import WatchedServer

CERTS = Path(__file__).parents[1] / "server/transports/certs"
TIMEOUT_S = 20.0


class ServedPage(NamedTuple):
    """A page, and what it shows."""

    url: str
    page: ServerPage
    server: WatchedServer

    @property
    def engine(self) -> Engine:
        return self.server.engine

    def left(self) -> dict[str, int]:
        """Count what viewers may leave behind."""
        loop = self.page._loop
        return {
            "viewers": self.server.viewers,
            "sockets": len(self.page.sockets),
            "tasks": asyncio.run_coroutine_threadsafe(_count_tasks(), loop).result(TIMEOUT_S),
            "followed": sum(map(len, self.engine.watching.followed.values())),
            "requests": len(self.engine.watching.requests),
            "routes": len(self.engine.router._routes),
            "worlds": len(self.engine.directory.worlds),
            "streams": self.server.open_streams._count,
            "counted streams": self.engine.counters.streams,
        }

    def wait_until_left(self, expected: dict[str, int]) -> None:
        """Wait until no more is left than that."""
        wait_for(lambda: self.left() == expected, lambda: f"{self.left()}: expected {expected}")


@contextlib.contextmanager
def running_engine() -> Iterator[Engine]:
    """An engine on its thread."""
    engine = Engine(lambda: CPURenderer(threads=1), Limits())
    engine.start()
    try:
        yield engine
        assert not engine.has_failed
    finally:
        engine.stop()


@contextlib.contextmanager
def served_page(
    engine: Engine,
    options: WebOptions | None = None,
    *,
    host: str = "127.0.0.1",
    hosts: tuple[str, ...] = (),
    token: str | None = None,
    tls: bool = False,
    client_ca: bool = False,
) -> Iterator[ServedPage]:
    """A page of this engine."""
    where = WebAddress(
        TcpAddress(host, 0),
        hosts,
        token,
        CERTS / "server.pem" if tls else None,
        CERTS / "server-key.pem" if tls else None,
        CERTS / "ca.pem" if client_ca else None,
    )
    server = WatchedServer(engine, options or WebOptions(), OpenStreams(Limits()), lambda: 0)
    page = ServerPage(where, server)
    with asyncio.Runner() as runner:  # a loop of trials that there are none of
        url = page.open("127.0.0.1:9000", None, runner.get_loop())
    try:
        yield ServedPage(url, page, server)
    finally:
        page.stop()
        assert not page._thread.is_alive()


def wait_for(condition: Callable[[], bool], problem: Callable[[], str]) -> None:
    """Wait until something holds."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, problem()
        time.sleep(0.01)


async def _count_tasks() -> int:
    return len(asyncio.all_tasks())
