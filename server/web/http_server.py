"""An HTTP server on a thread of its own: the files of the page, signing in, and limits on connections.

Whoever uses it adds routes for what the page shows.
"""

import asyncio
import contextlib
import hashlib
import mimetypes
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from aiohttp import web

from worldloom.protos.addresses import TcpAddress
from worldloom.server.logs import Log
from worldloom.server.transports.listening import listen_tcp
from worldloom.server.web.access import HEADERS, Access, Handler

log = Log("web")

MAX_CONNECTIONS = 192
"""Connections beside open WebSockets. Another one closes that whose last request was the longest ago, so that nobody
who holds connections keeps others from theirs."""
FULL_RETRY_S = 10
"""Time until a page tries again that was refused because too many people are watching."""
_IDLE_TIMEOUT_S = 10.0
"""Time in which the first request of a connection, or the next, has to arrive."""
_LINGER_S = 2.0
"""Time in which the rest of a request has to arrive that is answered already."""
_TLS_TIMEOUT_S = 10.0
_TLS_END_S = 2.0
_ACCEPT_PAUSE_S = 0.5
"""Time until another connection is accepted, after one that could not be: the process has no descriptors left."""
_STOP_TIMEOUT_S = 5.0
_RESTART_PAUSE_S = 1.0
"""Time until work in the background is begun again, after it has failed."""
_MAX_BODY_BYTES = 1 << 14
_FAILED_BODY = "<body data-failed>"
"""Beginning of the page to sign in on after a wrong token."""

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Work in the background, which ends when it is cancelled."""


@dataclass(frozen=True)
class WebAddress:
    """Address and rules of a page."""

    address: TcpAddress
    hosts: tuple[str, ...] = ()
    """Names of the server beside IP addresses and localhost."""
    token: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None

    @property
    def scheme(self) -> str:
        """Scheme of its URLs."""
        return "http" if self.tls_cert is None else "https"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the context of its connections; None without TLS."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.tls_cert, self.tls_key)
        if self.tls_client_ca is not None:
            context.load_verify_locations(self.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class HttpServer(ABC):
    """A page and its thread. Other threads may call start and stop only."""

    def __init__(self, where: WebAddress) -> None:
        self.where = where
        self.sockets: dict[web.WebSocketResponse, str] = {}
        """WebSockets that are open, and the session of each, "" without one."""
        self._files = _read_static_files()
        self._access = Access(where.hosts, where.token, where.tls_cert is not None)
        self._started: Future[TcpAddress] = Future()
        self._connections = Connections()
        self._thread = threading.Thread(target=self._run, name="worldloom-web", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    def start(self) -> str:
        """Begin to serve; return the URL of the page, or raise what prevents it."""
        self._thread.start()
        address = self._started.result()
        return f"{self.where.scheme}://{address}/"

    def stop(self) -> None:
        """End all connections and the thread."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(2 * _STOP_TIMEOUT_S)

    @abstractmethod
    def add_routes(self, app: web.Application) -> None:
        """Add the routes for what the page shows."""

    @abstractmethod
    def background(self) -> list[Work]:
        """Return the work beside requests."""

    @property
    def needs_token(self) -> bool:
        """True if viewers have to sign in."""
        return self.where.token is not None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                log.error("the page failed")

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        connections = self._connections
        app = web.Application(
            middlewares=[connections.request_middleware, self._access.check], client_max_size=_MAX_BODY_BYTES
        )
        app.router.add_get("/", self._serve_page)
        app.router.add_get("/login", self._serve_login)
        app.router.add_post("/login", self._sign_in)
        app.router.add_post("/logout", self._sign_out)
        app.router.add_get("/static/{name}", self._serve_file)
        self.add_routes(app)
        runner = web.AppRunner(app, shutdown_timeout=_STOP_TIMEOUT_S, handler_cancellation=True)
        await runner.setup()
        connections.server = runner.server
        with contextlib.ExitStack() as at_the_end:
            listeners, address = listen_tcp(self.where.address, at_the_end, "--web")
            context = self.where.ssl_context()
            accepting: list[Work] = [partial(connections.accept, listener, context) for listener in listeners]
            tasks = [asyncio.create_task(_keep_running(work)) for work in (*accepting, *self.background())]
            self._started.set_result(address)
            try:
                await self._stopping.wait()
            finally:
                for task in tasks:
                    task.cancel()
                connections.refuse()
                await self._close_sockets()
                await runner.cleanup()

    @contextlib.contextmanager
    def holding(self, request: web.Request, opened: web.WebSocketResponse) -> Iterator[None]:
        """Keep the connection of a WebSocket for as long as the block takes, and end it then, read or not."""
        self._connections.hold(request)
        self.sockets[opened] = self._access.session(request)
        try:
            yield
        finally:
            del self.sockets[opened]
            transport = request.transport  # none if the other end has closed the connection
            if transport is not None and transport.get_write_buffer_size():
                transport.abort()  # whoever has not read what is left will not read it

    async def _close_sockets(self, session: str | None = None) -> None:
        """Tell the pages that the server goes away, or those of a session that it has ended."""
        code, reason = (1001, b"the server stops") if session is None else (1008, b"signed out")
        closing = [
            opened.close(code=code, message=reason) for opened, of in self.sockets.items() if session in (None, of)
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await asyncio.gather(*closing, return_exceptions=True)

    async def _serve_page(self, request: web.Request) -> web.Response:
        return self._file(request, "index.html")

    async def _serve_login(self, request: web.Request) -> web.Response:
        if not self.needs_token:
            return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/"})
        return self._file(request, "login.html")

    async def _sign_in(self, request: web.Request) -> web.Response:
        response = await self._access.sign_in(request)
        if response is not None:
            return response
        page = self._files["login.html"].data.decode().replace("<body>", _FAILED_BODY, 1)
        return web.Response(status=HTTPStatus.UNAUTHORIZED, text=page, content_type="text/html")

    async def _sign_out(self, request: web.Request) -> web.Response:
        if session := self._access.session(request):
            await self._close_sockets(session)
        return self._access.sign_out(request)

    async def _serve_file(self, request: web.Request) -> web.Response:
        return self._file(request, request.match_info["name"])

    def _file(self, request: web.Request, name: str) -> web.Response:
        file = self._files.get(name)
        if file is None:
            raise web.HTTPNotFound
        headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == file.etag:
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        return web.Response(body=file.data, headers={**headers, "Content-Type": file.kind})


class Connections:
    """The connections of a page: as many as are allowed, and none that stays silent. Used on the event loop only.

    They are counted from the moment that they are accepted, with TLS before its handshake.
    """

    def __init__(self) -> None:
        self.server: Any = None
        """aiohttp's server, which answers their requests."""
        self._passing: dict[web.RequestHandler, asyncio.Task[None]] = {}
        """Connections without an open WebSocket, with their handshakes; that with the latest request last."""

    @property
    def count(self) -> int:
        """Connections without an open WebSocket."""
        self._forget_ended()
        return len(self._passing)

    async def accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections for as long as this is not cancelled."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("a connection cannot be accepted", reason=error)
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            self._make_room()
            connection = _Connection(
                self.server,
                loop=loop,
                keepalive_timeout=_IDLE_TIMEOUT_S,
                lingering_time=_LINGER_S,
            )
            self._passing[connection] = asyncio.create_task(_connect(connection, accepted, context))
            await asyncio.sleep(0)  # others have their turn, however many wait to be accepted

    @property
    def request_middleware(self) -> Any:
        """A middleware that notes which connections have sent a request."""

        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            if (task := self._passing.pop(request.protocol, None)) is not None:
                self._passing[request.protocol] = task
            return await handler(request)

        return note

    def hold(self, request: web.Request) -> None:
        """Do not close the connection of this request for another."""
        self._passing.pop(request.protocol, None)

    def refuse(self) -> None:
        """End the handshakes that are under way."""
        for task in self._passing.values():
            task.cancel()

    def _make_room(self) -> None:
        if len(self._passing) >= MAX_CONNECTIONS:
            self._forget_ended()
        if len(self._passing) >= MAX_CONNECTIONS:
            connection = next(iter(self._passing))
            self._passing.pop(connection).cancel()
            if connection.transport is not None:
                connection.transport.abort()

    def _forget_ended(self) -> None:
        served = set(self.server.connections)
        for connection, task in list(self._passing.items()):
            if task.done() and connection not in served:
                del self._passing[connection]


class _Connection(web.RequestHandler):
    """A connection, on which whatever is no request is answered like all else, and does not fill the log."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a request that cannot be read, or that the server has failed at."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("a request failed", peer=request.remote, reason=exc)
        else:
            log.info("refused", peer=request.remote, status=status)
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun")
        text = f"{HTTPStatus(status).phrase}: expected a request of HTTP/1.1 with short headers\n"
        response = web.Response(status=status, text=text, headers=HEADERS)
        response.force_close()
        return response


async def _keep_running(work: Work) -> None:
    """Do some work until this is cancelled; begin it again if it fails."""
    while True:
        try:
            await work()
        except Exception:
            log.error("work in the background failed, and begins again")
        await asyncio.sleep(_RESTART_PAUSE_S)


async def _connect(connection: asyncio.Protocol, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
    """Serve an accepted connection, after the handshake of TLS."""
    timeouts = {} if context is None else {"ssl_handshake_timeout": _TLS_TIMEOUT_S, "ssl_shutdown_timeout": _TLS_END_S}
    with contextlib.suppress(OSError):  # such as an error of TLS: a client without a certificate, or a plain request
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted, ssl=context, **timeouts)


class _StaticFile(NamedTuple):
    """A file of the page."""

    data: bytes
    kind: str
    etag: str


def _read_static_files() -> dict[str, _StaticFile]:
    """Return the files of the page by name: nothing else is ever served."""
    found = {}
    for file in (resources.files("worldloom.server.web") / "static").iterdir():
        if file.is_file():
            data, kind = file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            kind = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
            found[file.name] = _StaticFile(data, kind, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
    return found
