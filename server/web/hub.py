"""The page of several servers: it lists them, and passes each one's live view on.

The servers are asked for nothing but what their own pages offer. A hub finds the page of a server, and looks for it
again when it does not answer: after a restart it may be at another port.
"""

import asyncio
import contextlib
import json
import os
import ssl
import urllib.parse
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from worldloom.extras import explain_missing_extra

with explain_missing_extra("a page of several servers", "web"):
    import aiohttp
    from aiohttp import web
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from worldloom.server.logs import Log
from worldloom.server.web.http_server import FULL_RETRY_S, HttpServer, WebAddress, Work
from worldloom.server.web.messages import MAX_MESSAGE_BYTES
from worldloom.server.web.page_lookup import ServerAccess
from worldloom.server.web.page_url import PageError

log = Log("hub")

MAX_RELAYS = 256
"""Live views that are passed on at a time, over all servers and viewers."""
_FULL = f"{MAX_RELAYS} live views are passed on: expected no more"
POLL_S = 2.0
"""Time between two looks at a server's page, and at the list of servers."""
_TIMEOUT_S = 3.0
"""Time for a page to answer."""
_HEARTBEAT_S = 20.0
_SEND_TIMEOUT_S = 30.0
_CLOSE_S = 2.0
_MAX_PICTURE_BYTES = 64 << 20
"""Bytes of a message of a server; pictures have a quarter of that."""
_MAX_LIST_BYTES = 1 << 16
_PASSED_ON_CODES = (1000, 1001, 1008, 1009, 1011)
"""Reasons for the end of a live view that are told to the other end; others are 1001, the server has gone."""


@dataclass(frozen=True)
class ListedServer:
    """A server that a hub shows."""

    name: str
    """Name on the page, which tells it from the others: a server that is restarted keeps it."""
    find_page: Callable[[], Coroutine[Any, Any, str]]
    """Return the URL of its page, or raise PageError."""


@dataclass(eq=False)
class _Watched:
    """A server, as far as the hub knows it."""

    number: int
    """Number in its path, which no other server has before or after it."""
    server: ListedServer
    page: str = ""
    """URL of its page, as it was found last; "" if it was not found yet."""
    called: str = ""
    """Name that the page gives its server: another one may get its port."""
    problem: str = "it was not asked yet"
    """Why its page cannot be reached; "" if it can be."""
    refusal: dict[str, object] = field(default_factory=dict)
    """Why its page takes no more viewers, as it says itself: a problem, and the seconds until the next attempt."""
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def path(self) -> str:
        return f"/servers/{self.number}"


class Hub(HttpServer):
    """The page of several servers. `list_servers` returns those that there are now, at once."""

    def __init__(
        self, where: WebAddress, access: ServerAccess, list_servers: Callable[[], Sequence[ListedServer]]
    ) -> None:
        super().__init__(where)
        self.first_problems: Future[dict[str, str]] = Future()
        """Problems of the first servers by name, "" for none, once all of them were asked; for other threads."""
        self._access_to_servers = access
        self._list_servers = list_servers
        self._watched: dict[str, _Watched] = {}
        """By name."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._count = self._relays = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._session: aiohttp.ClientSession

    @property
    def is_serving(self) -> bool:
        """True while the thread of the page runs."""
        return self._thread.is_alive()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the hub itself, as prometheus_client asks for them."""
        states = [not one.problem for one in self._watched.values()]
        family = GaugeMetricFamily("worldloom_hub_servers", "Servers of a page over several.", labels=["state"])
        family.add_metric(["reachable"], states.count(True))
        family.add_metric(["unreachable"], states.count(False))
        yield family

    def add_routes(self, app: web.Application) -> None:
        """Add the routes of a hub."""
        app.router.add_get("/api/servers", self._serve_list)
        app.router.add_get("/servers/{number}/live", self._serve_live)
        app.router.add_get("/targets", self._serve_targets)
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/healthz", self._serve_health)
        app.router.add_get("/readyz", self._serve_readiness)

    def background(self) -> list[Work]:
        """Return the work of looking for servers and their pages."""
        return [self._look]

    async def _look(self) -> None:
        """Keep a task for each server that there is."""
        context = self._access_to_servers.ssl_context
        connector = aiohttp.TCPConnector(limit=0, ssl=True if context is None else context)
        timeout = aiohttp.ClientTimeout(total=None)
        headers = self._access_to_servers.authorization
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
        ) as self._session:
            try:
                while True:
                    self._update_list()
                    if not self.first_problems.done():
                        await self._wait_for_first()
                    await asyncio.sleep(POLL_S)
            finally:
                for task in self._tasks.values():
                    task.cancel()
                await asyncio.gather(*self._tasks.values(), return_exceptions=True)
                self._tasks.clear()

    def _update_list(self) -> None:
        servers = {one.name: one for one in self._list_servers()}
        for name in self._watched.keys() - servers.keys():
            self._tasks.pop(name).cancel()
            del self._watched[name]
            log.info("server left", server=name)
        for name, server in servers.items():
            if name not in self._watched:
                self._watched[name] = _Watched(self._count, server)
                self._count += 1
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._watch(self._watched[name]))
            self._watched[name].server = server

    async def _wait_for_first(self) -> None:
        first = list(self._watched.values())
        await asyncio.gather(*(one.was_asked.wait() for one in first))
        self.first_problems.set_result({one.server.name: one.problem for one in first})

    async def _watch(self, watched: _Watched) -> None:
        """Look again and again whether the page of a server can be reached."""
        while True:
            before = watched.problem
            try:
                watched.problem = await self._ask(watched)
            except Exception:
                log.error("a server cannot be asked", server=watched.server.name)
                watched.problem = "it could not be asked: the log of this page says why"
            if watched.problem != before:
                log.info("server", server=watched.server.name, page=watched.page, problem=watched.problem)
            watched.was_asked.set()
            await asyncio.sleep(POLL_S)

    async def _ask(self, watched: _Watched) -> str:
        """Return the problem of a server, "" if there is none."""
        if watched.page:
            with contextlib.suppress(PageError):
                called, refusal = await self._ask_page(watched.page)
                if called == watched.called:
                    watched.refusal = refusal
                    return ""
        try:
            page = await watched.server.find_page()
            watched.called, watched.refusal = await self._ask_page(page)
            watched.page = page
        except PageError as error:
            return str(error)
        return ""

    async def _ask_page(self, page: str) -> tuple[str, dict[str, object]]:
        """Return what a page calls its server, and why it takes no more viewers; PageError if it does not tell."""
        if self._access_to_servers.ssl_context is not None and not page.startswith("https:"):
            raise PageError(f"its page at {page} is without TLS: expected https, with --tls-ca")
        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                self._session.get(f"{page}api/servers", headers=_host_header(page), allow_redirects=False) as reply,
            ):
                if reply.status == 401:
                    raise PageError(f"its page at {page} refuses the token: expected that of the server")
                if reply.status != 200:
                    raise PageError(f"its page at {page} answers {reply.status}: expected a page of --web")
                (server,) = json.loads(await reply.content.read(_MAX_LIST_BYTES))["servers"]
                if server["path"]:
                    raise PageError(f"its page at {page} shows several servers: expected that of one")
                return str(server["name"]), {key: server[key] for key in ("problem", "retry_s") if key in server}
        except (aiohttp.ClientError, OSError) as error:
            raise PageError(f"its page at {page} cannot be reached: {_explain(error)}") from None
        except (ValueError, KeyError, TypeError):
            raise PageError(f"its page at {page} is not that of one server: expected a page of --web") from None

    async def _serve_list(self, _: web.Request) -> web.Response:
        full = {"problem": _FULL, "retry_s": FULL_RETRY_S} if self._relays >= MAX_RELAYS else {}
        entries = [
            {
                "name": one.server.name,
                "path": one.path,
                **({"problem": one.problem} if one.problem else full or one.refusal),
            }
            for one in self._watched.values()
        ]
        return web.json_response({"servers": entries, "needs_token": self.needs_token})

    async def _serve_targets(self, _: web.Request) -> web.Response:
        """Answer Prometheus' http_sd_configs: the pages that were found, also those that do not answer now."""
        targets = []
        for one in self._watched.values():
            parts = urllib.parse.urlsplit(one.page)
            if one.page:
                labels = {"__scheme__": parts.scheme, "server": one.server.name}
                targets.append({"targets": [parts.netloc], "labels": labels})
        return web.json_response(targets)

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"}
        return web.Response(body=generate_latest(self._registry), headers=headers)

    async def _serve_health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _serve_readiness(self, _: web.Request) -> web.Response:
        if self.first_problems.done():
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready: the servers were not asked yet\n")

    async def _serve_live(self, request: web.Request) -> web.StreamResponse:
        number = request.match_info["number"]
        watched = next((one for one in self._watched.values() if str(one.number) == number), None)
        if watched is None:
            raise web.HTTPNotFound
        if self._relays >= MAX_RELAYS:
            return web.Response(status=503, text=f"{_FULL}\n")
        self._relays += 1
        try:
            return await self._relay(request, watched)
        finally:
            self._relays -= 1

    async def _relay(self, request: web.Request, watched: _Watched) -> web.StreamResponse:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                there = await self._session.ws_connect(
                    f"{watched.page}live",
                    headers=_host_header(watched.page),
                    heartbeat=_HEARTBEAT_S,
                    max_msg_size=_MAX_PICTURE_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            text = watched.problem or _explain(error)
            return web.Response(status=502, text=f"{watched.server.name}: {text}\n")
        try:
            here = web.WebSocketResponse(
                heartbeat=_HEARTBEAT_S, max_msg_size=MAX_MESSAGE_BYTES, compress=False, timeout=_CLOSE_S
            )
            await here.prepare(request)
            with self.holding(request, here), contextlib.suppress(ConnectionError, TimeoutError):
                await _join(here, there)
                if there.closed:
                    code = there.close_code if there.close_code in _PASSED_ON_CODES else 1001
                    await here.close(code=code or 1001, message=b"the server has ended the connection")
            return here
        finally:
            await there.close()


async def _join(here: web.WebSocketResponse, there: "aiohttp.ClientWebSocketResponse[bool]") -> None:
    """Pass messages on in both directions until one end ends, or does not take what the other one sends."""
    tasks = [asyncio.create_task(_pass_on(there, here)), asyncio.create_task(_pass_on(here, there))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(
    source: "web.WebSocketResponse | aiohttp.ClientWebSocketResponse[bool]",
    sink: "web.WebSocketResponse | aiohttp.ClientWebSocketResponse[bool]",
) -> None:
    """Send each message before the next is read: who reads slowly slows the sender, and nothing is queued here."""
    async for message in source:
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            if message.type is aiohttp.WSMsgType.TEXT:
                await sink.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await sink.send_bytes(message.data)
            else:
                return  # an error, such as a message that is too large


def _host_header(page: str) -> dict[str, str]:
    """Return a host that every page takes: the name at which the hub reaches it need not be one of its --web-host."""
    return {"Host": f"localhost:{urllib.parse.urlsplit(page).port}"}


def _explain(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_TIMEOUT_S:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        certificate = error.certificate_error
        reason = getattr(certificate, "verify_message", "") or str(certificate)
        return f"its certificate is refused: {reason}; expected one signed with --tls-ca"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ssl.SSLError):
        return f"no TLS with it: {error.os_error.reason}"
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"the server's page answers {error.status}"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else " ".join(str(error).split()) or type(error).__name__
