"""Access to the page and the metrics: the server's token, session cookies, and the checks against other web sites.

A web site that somebody on this machine visits can make the browser send requests to any address, this server's too.
It cannot read the answers, unless its own name leads here (DNS rebinding) or the answer is a WebSocket. So a request
has to name this server as its host, and one that a browser sends on behalf of a page has to come from a page of this
server.
"""

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qs

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from worldloom.server.logs import Log

log = Log("web")

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "media-src blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, browsers send forms of this page with the origin null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "worldloom",
}
"""Headers of every response."""
OPEN_PATHS = frozenset({"/login", "/logout", "/healthz", "/readyz"})
"""Paths that need no token, and those below `OPEN_PREFIX`."""
OPEN_PREFIX = "/static/"
_SESSION_S = 12 * 3600.0
_MAX_SESSIONS = 1024
_FAILURE_DELAY_S = 1.0
"""Time until a wrong token is answered."""
_MAX_DELAYED = 8
"""Wrong tokens that may wait for their answer at a time; others are answered at once."""
_MAX_FIELDS = 8
_BODY_TIMEOUT_S = 10.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access:
    """The rules of one page. Used on the thread of the event loop only."""

    def __init__(
        self, hosts: tuple[str, ...], token: str | None, is_tls: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make the rules. `hosts` are names of this server beside IP addresses and localhost."""
        self._hosts = {host.lower().rstrip(".") for host in hosts} | {"localhost"}
        self._token = None if token is None else token.encode()
        self._is_tls = is_tls
        self._clock = clock
        self._sessions: dict[str, float] = {}
        """End of each session, by the value of its cookie; the oldest first."""
        self._delayed = 0

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request that may come from another web site, or from somebody without the token."""
        response: web.StreamResponse
        refusal = self._refusal(request)
        if refusal is not None:
            log.info("refused", peer=request.remote, path=request.path, status=refusal.status)
            is_of_token = refusal.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.SEE_OTHER)
            is_guess = is_of_token and _bearer_token(request) is not None
            response = (await self._refuse_token() if is_guess else None) or refusal
        else:
            response = await _handled(request, handler)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def has_session(self, request: web.Request) -> bool:
        """Return whether a request comes from somebody who may watch."""
        if self._token is None:
            return True
        token = _bearer_token(request)
        return (token is not None and self._is_token(token)) or bool(self.session(request))

    def session(self, request: web.Request) -> str:
        """Return the session of a request, "" if there is none or it has ended."""
        session = request.cookies.get(self._cookie(request), "")
        return session if self._sessions.get(session, 0.0) > self._clock() else ""

    async def sign_in(self, request: web.Request) -> web.Response | None:
        """Return a response that begins a session, or None if the token is wrong."""
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                form = await request.read()
            fields = parse_qs(form.decode(errors="replace"), max_num_fields=_MAX_FIELDS)
        except TimeoutError:
            return web.Response(status=408, text=f"the form did not arrive within {_BODY_TIMEOUT_S:g} s\n")
        except ValueError:
            fields = {}
        if self._token is None or len(fields.get("token", ())) != 1:
            return web.Response(status=400, text="expected a form with a token\n")
        if not self._is_token(fields["token"][0]):
            return await self._refuse_token()
        response = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/"})
        session = secrets.token_urlsafe(32)
        self._forget_sessions()
        self._sessions[session] = self._clock() + _SESSION_S
        response.set_cookie(
            self._cookie(request),
            session,
            max_age=int(_SESSION_S),
            path="/",
            httponly=True,
            secure=self._is_tls,
            samesite="Strict",
        )
        return response

    def _is_token(self, shown: str) -> bool:
        # Headers that are not UTF-8 arrive with surrogates for their bytes.
        shown_bytes = shown.strip().encode(errors="surrogateescape")
        return self._token is not None and hmac.compare_digest(shown_bytes, self._token)

    async def _refuse_token(self) -> web.Response | None:
        """Return None after a delay, which slows guessing down, or a refusal at once if too many wait already."""
        if self._delayed >= _MAX_DELAYED:
            return web.Response(status=429, text="too many wrong tokens at a time: try again in a moment\n")
        self._delayed += 1
        try:
            await asyncio.sleep(_FAILURE_DELAY_S)
        finally:
            self._delayed -= 1
        return None

    def sign_out(self, request: web.Request) -> web.Response:
        """End the session of a request."""
        self._sessions.pop(request.cookies.get(self._cookie(request), ""), None)
        response = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/login"})
        response.del_cookie(self._cookie(request), path="/")
        return response

    def _forget_sessions(self) -> None:
        """Forget the sessions that have ended, and the oldest of too many."""
        now_s = self._clock()
        kept = {session: end_s for session, end_s in self._sessions.items() if end_s > now_s}
        self._sessions = dict(list(kept.items())[-(_MAX_SESSIONS - 1) :])

    @staticmethod
    def _cookie(request: web.Request) -> str:
        """Return the name of the cookie. Cookies do not know ports, so pages of one host would share it."""
        _, port = split_host(request.host)
        return f"worldloom_{port}" if port.isdigit() else "worldloom"

    def _refusal(self, request: web.Request) -> web.Response | None:
        if "Host" not in request.headers:  # without it, aiohttp would ask the name service who this is, and wait
            return _refuse(400, "a request without a Host header: expected one")
        if not self._is_own_host(request.host):
            return _refuse(
                421,
                f"this server is not known as {request.host[:100]!r}: open it by an IP address or localhost, or start "
                "it with --web-host NAME",
            )
        if not _is_own_page(request):
            return _refuse(403, "a request of another web site's page: expected one of a page of this server")
        if request.path in OPEN_PATHS or request.path.startswith(OPEN_PREFIX) or self.has_session(request):
            return None
        if request.path == "/" and request.method == "GET":
            return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/login"})
        refusal = _refuse(
            401, "no session: sign in at /login, or send the header `Authorization: Bearer TOKEN` with the token"
        )
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal

    def _is_own_host(self, host: str) -> bool:
        name, port = split_host(host)
        return (not port or (port.isascii() and port.isdigit())) and (
            _is_ip_address(name) or name.lower().rstrip(".") in self._hosts
        )


def split_host(host: str) -> tuple[str, str]:
    """Return the name and the port of a Host header, without the brackets of an IPv6 address."""
    if host.startswith("[") and "]" in host:
        name, _, port = host[1:].partition("]")
        return name, port.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port


def _bearer_token(request: web.Request) -> str | None:
    """Return the token in the headers of a request, None if it shows none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else None


def _is_own_page(request: web.Request) -> bool:
    """Return whether a request comes from a page of this server, from no page, or only opens a page.

    Programs send no Origin. Browsers send one with every WebSocket and every form.
    """
    origin = request.headers.get("Origin")
    if origin is not None:
        return origin.lower() == f"{request.scheme}://{request.host}".lower()
    return request.method in ("GET", "HEAD") or request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refuse(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


async def _handled(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return the response of a handler. An error of ours becomes a response too, which says no more than that."""
    try:
        return await handler(request)
    except (web.RequestPayloadError, HttpProcessingError):
        return web.Response(status=400, text="the body of the request cannot be read\n")
    except web.HTTPException as error:
        return web.Response(status=error.status, text=f"{error.reason}\n", headers=_kept_headers(error))
    except Exception:
        log.error("a request failed")
        return web.Response(status=500, text="the server failed: its log says where\n")


def _kept_headers(error: web.HTTPException) -> dict[str, str]:
    return {name: error.headers[name] for name in ("Allow", "Location") if name in error.headers}
