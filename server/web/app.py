"""The page of one server: its live view over a WebSocket, metrics and health."""

import asyncio
import contextlib
import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from worldloom.extras import explain_missing_extra

with explain_missing_extra("the page of --web", "web"):
    from aiohttp import web
    from prometheus_client.exposition import choose_encoder

from worldloom.server.engine.router import deliver_on_loop
from worldloom.server.logs import Log
from worldloom.server.web.history import History
from worldloom.server.web.http_server import FULL_RETRY_S, HttpServer, WebAddress, Work
from worldloom.server.web.messages import MAX_MESSAGE_BYTES
from worldloom.server.web.metrics import make_registry
from worldloom.server.web.pictures import Allowance, PictureMemory
from worldloom.server.web.trial_list import TrialList
from worldloom.server.web.viewer import Shared, Viewer
from worldloom.server.web.watched_server import HUNG_AFTER_S, WatchedServer
from worldloom.server.web.world_list import WorldList

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from worldloom.server.cogment.orchestrator.trials import Trials

log = Log("web")

_HEARTBEAT_S = 20.0
"""Time between two pings; a page that does not answer in half of it is gone."""
_HISTORY_S = 0.5
_ASKED_PIXELS = 1 << 21
"""Pixels that viewers may ask the engine for at a time: 50 ms of a tick on two cores."""
_PICTURE_BYTES = 128 << 20
"""Memory of pictures under way to all viewers, and as much again for large pictures."""
_ENCODERS = 2
"""Threads that encode pictures, however many viewers there are: they take time from the engine."""
_OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
_METRICS_KEPT_S = 0.5
"""Time for which metrics are not computed again, however often they are asked for."""


class ServerPage(HttpServer):
    """The page of a server in this process."""

    def __init__(self, where: WebAddress, server: WatchedServer) -> None:
        super().__init__(where)
        self._server = server
        server.engine.takes_samples = True
        server.engine.watching.share = server.options.web_percent / 100
        self._metrics: dict[str, tuple[float, bytes]] = {}
        """When the metrics were computed, and their text, by its type."""
        self._registry: CollectorRegistry
        self._shared: Shared
        self._viewers: set[Viewer] = set()

    def open(self, address: str, trials: "Trials | None", loop: asyncio.AbstractEventLoop) -> str:
        """Serve the page of a server that listens at an address; return the URL. `loop` is that of its trials."""
        server = self._server
        server.address, server.trials, server.loop = address, trials, loop
        server.is_ready = True
        return self.start()

    @property
    def is_ready(self) -> bool:
        """The server takes new clients: what /readyz answers."""
        return self._server.is_ready

    @is_ready.setter
    def is_ready(self, is_ready: bool) -> None:
        self._server.is_ready = is_ready
        if not is_ready:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody plays any more
                self._loop.call_soon_threadsafe(self._end_games)

    def _end_games(self) -> None:
        """End the games of people who play, whom a server that stops would wait for."""
        for viewer in self._viewers:
            viewer.end_game("the server is shutting down")

    def add_routes(self, app: web.Application) -> None:
        """Add the routes of a server."""
        app.router.add_get("/api/servers", self._list_servers)
        app.router.add_get("/live", self._serve_live)
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/healthz", self._serve_health)
        app.router.add_get("/readyz", self._serve_readiness)

    def background(self) -> list[Work]:
        """Return the work of keeping the history."""
        server = self._server
        self._registry = make_registry(server)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_ENCODERS, "worldloom-web"))
        route = server.engine.router.register(partial(deliver_on_loop, asyncio.get_running_loop()))
        worlds = WorldList(server.engine)
        trials = TrialList(server, worlds)
        pixels, memory = Allowance(_ASKED_PIXELS), PictureMemory(_PICTURE_BYTES)
        self._shared = Shared(server, worlds, trials, History(server), route, pixels, memory)
        return [self._keep_history]

    async def _keep_history(self) -> None:
        while True:
            self._shared.history.update()
            await asyncio.sleep(_HISTORY_S)

    async def _list_servers(self, _: web.Request) -> web.Response:
        entry: dict[str, object] = {"name": self._server.address, "path": ""}
        if problem := self._refusal():
            entry |= {"problem": problem, "retry_s": FULL_RETRY_S}
        return web.json_response({"servers": [entry], "needs_token": self.needs_token})

    def _refusal(self) -> str:
        """Return why nobody else can watch now, "" if somebody can."""
        most = self._server.options.web_viewers
        return (
            f"too many people are watching: expected {most} at most (--web-viewers)"
            if self._server.viewers >= most
            else ""
        )

    async def _serve_live(self, request: web.Request) -> web.StreamResponse:
        if problem := self._refusal():
            return web.Response(status=503, text=f"{problem}\n")
        socket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_S, max_msg_size=MAX_MESSAGE_BYTES, compress=False, autoping=False, timeout=2.0
        )
        self._server.viewers += 1
        try:
            await socket.prepare(request)
            log.info("viewer came", peer=request.remote, viewers=self._server.viewers)
            with self.holding(request, socket), contextlib.suppress(ConnectionError, TimeoutError):
                await self._view(socket)
        finally:
            self._server.viewers -= 1
            if not self._server.viewers:
                self._shared.worlds.forget()
            log.info("viewer left", peer=request.remote, viewers=self._server.viewers)
        return socket

    async def _view(self, socket: web.WebSocketResponse) -> None:
        viewer = Viewer(self._shared, socket)
        self._viewers.add(viewer)
        try:
            await viewer.serve()
        except (ConnectionError, TimeoutError):
            raise
        except Exception:
            log.error("a viewer failed")
            await socket.close(code=1011, message=b"the server failed: its log says where")
        finally:
            self._viewers.discard(viewer)

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        # Not what the request says: there are as many texts to keep, and to compute, as there are formats here.
        is_open_metrics = "application/openmetrics-text" in request.headers.get("Accept", "")
        encode, kind = choose_encoder(_OPEN_METRICS if is_open_metrics else "")
        computed_s, text = self._metrics.get(kind, (-math.inf, b""))
        if time.monotonic() - computed_s > _METRICS_KEPT_S:
            text = encode(self._registry)
            self._metrics[kind] = (time.monotonic(), text)
        return web.Response(body=text, headers={"Content-Type": kind, "Cache-Control": "no-store"})

    async def _serve_health(self, _: web.Request) -> web.Response:
        if self._server.is_hung:
            return web.Response(status=503, text=f"the engine has not finished a tick for {HUNG_AFTER_S:g} s\n")
        return web.Response(text="ok\n")

    async def _serve_readiness(self, _: web.Request) -> web.Response:
        if self._server.is_ready and not self._server.is_hung:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready: the server starts, stops, or its engine hangs\n")
