"""The server's token, sessions and TLS: who has none of them learns nothing, and keeps nobody out."""

import socket
import ssl
import time
import urllib.parse
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources

import pytest

from tests.support.raw_web import RawConnection, RawSocket, Response, ask, request_bytes, viewing
from tests.support.served_page import CERTS, ServedPage, running_engine, served_page, wait_for
from worldloom.server.engine.engine import Engine
from worldloom.server.web import access, http_server

TOKEN = "a+token/of?this=server"
NAME = "gpu7.example"
TARGETS = ("/", "/live", "/metrics", "/healthz", "/static/main.js", "/api/servers", "/no.such")
STATIC = resources.files("worldloom.server.web") / "static"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine() as made:
        yield made


@pytest.fixture(scope="module")
def open_page(engine: Engine) -> Iterator[ServedPage]:
    with served_page(engine, hosts=(NAME,)) as made:
        yield made


@pytest.fixture(scope="module")
def locked(engine: Engine) -> Iterator[ServedPage]:
    with served_page(engine, token=TOKEN) as made:
        yield made


@pytest.fixture(scope="module")
def with_tls(engine: Engine) -> Iterator[ServedPage]:
    with served_page(engine, host="localhost", token=TOKEN, tls=True, client_ca=True) as made:
        yield made


@pytest.fixture
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_FAILURE_DELAY_S", 0.0)


def netloc(page: ServedPage) -> str:
    return urllib.parse.urlsplit(page.url).netloc


def port(page: ServedPage) -> str:
    return netloc(page).rpartition(":")[2]


def try_target(page: ServedPage, target: str, headers: dict[str, str | None]) -> Response:
    if target != "/live":
        return ask(page.url, target, headers)
    with RawSocket(page.url) as viewer:
        return viewer.upgrade(headers)


def sign_in(page: ServedPage, token: str = TOKEN) -> Response:
    form = urllib.parse.urlencode({"token": token}).encode()
    return ask(page.url, "/login", {"Content-Type": "application/x-www-form-urlencoded"}, "POST", form)


def session_of(response: Response) -> str:
    """The cookie that a browser sends back."""
    assert response.status == 303, response
    assert response.header("location") == "/"
    return (response.header("set-cookie") or "").partition(";")[0]


def check_headers(response: Response) -> None:
    assert response.header("content-security-policy") == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "media-src blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    assert response.header("x-content-type-options") == "nosniff"
    assert response.header("x-frame-options") == "DENY"
    assert response.header("referrer-policy") == "same-origin"
    assert response.header("cross-origin-resource-policy") == "same-origin"
    assert response.header("server") == "worldloom"
    assert response.header("access-control-allow-origin") is None


# The token.


@pytest.mark.usefixtures("no_delay")
@pytest.mark.parametrize("target", TARGETS)
def test_without_the_token(target: str, locked: ServedPage) -> None:
    wrong = [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer \xff\xfe"},
        {"Authorization": "Bearer"},
        {"Cookie": f"worldloom_{port(locked)}={TOKEN}"},
        {"Cookie": f"worldloom_{port(locked)}="},
        {"Cookie": "\xff=;;;=="},
    ]
    for headers in wrong:
        for path in (target, f"{target}?token={TOKEN}&access_token={TOKEN}"):
            response = try_target(locked, path, {**headers})
            if target == "/":
                assert (response.status, response.header("location")) == (303, "/login")
            elif target in ("/healthz", "/static/main.js"):
                assert response.status == 200
            else:
                assert response.status == 401
                assert response.header("www-authenticate") == "Bearer"
                assert response.text.startswith("no session: sign in at /login, or send the header")
            check_headers(response)
            assert TOKEN not in response.text


@pytest.mark.parametrize(
    "target",
    [
        "/static/../metrics",
        "/static/%2e%2e/metrics",
        "/static%2f..%2fmetrics",
        "/%73tatic/../metrics",
        "/%6detrics",
        "/healthz/../metrics",
        "/healthz/%2e%2e/metrics",
        "/login/../metrics",
        "//metrics",
        "/./metrics",
        "/metrics;/static/",
        "/metrics%00/static/",
    ],
)
def test_no_way_around(target: str, locked: ServedPage) -> None:
    response = ask(locked.url, target)
    assert response.status in (400, 401, 404)
    assert "worldloom_build" not in response.text


def test_with_the_token(locked: ServedPage) -> None:
    for scheme in ("Bearer", "bearer"):
        headers: dict[str, str | None] = {"Authorization": f"{scheme} {TOKEN}"}
        assert ask(locked.url, "/metrics", headers).text.startswith("# HELP worldloom_build_info")
        with viewing(locked.url, headers):
            pass
    assert ask(locked.url, "/api/servers", headers).text == (
        '{"servers": [{"name": "127.0.0.1:9000", "path": ""}], "needs_token": true}'
    )


@pytest.mark.parametrize("target", ["/", "/metrics", "/live"])
def test_wrong_tokens_in_headers_wait_as_those_of_the_form(
    target: str, locked: ServedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever guesses gets one answer a second, and too many of them none; others notice nothing."""
    monkeypatch.setattr(access, "_MAX_DELAYED", 2)
    wrong: dict[str, str | None] = {"Authorization": "Bearer wrong"}

    def guess() -> tuple[int, bool]:
        began_s = time.monotonic()
        status = try_target(locked, target, {**wrong}).status
        return status, time.monotonic() - began_s >= 1.0

    with ThreadPoolExecutor(5) as pool:
        guesses = [pool.submit(guess) for _ in range(5)]
        assert ask(locked.url, "/metrics", {"Authorization": f"Bearer {TOKEN}"}).status == 200
        began_s = time.monotonic()
        assert ask(locked.url, "/metrics").status == 401  # no token, no guess
        assert time.monotonic() - began_s < 0.9
        found = sorted(one.result() for one in guesses)
    refused = 303 if target == "/" else 401
    assert found == [(refused, True)] * 2 + [(429, False)] * 3


def test_signing_in_and_out(locked: ServedPage) -> None:
    response = sign_in(locked)
    check_headers(response)
    cookie = session_of(response)
    name, _, session = cookie.partition("=")
    assert name == f"worldloom_{port(locked)}"
    assert len(session) >= 43  # 256 bits in base64
    attributes = {one.strip().lower() for one in (response.header("set-cookie") or "").split(";")[1:]}
    assert attributes == {"httponly", "samesite=strict", "path=/", "max-age=43200"}
    mine: dict[str, str | None] = {"Cookie": cookie}
    theirs: dict[str, str | None] = {"Cookie": session_of(sign_in(locked))}
    assert mine != theirs
    assert ask(locked.url, "/", mine).status == 200
    with viewing(locked.url, mine) as viewer, viewing(locked.url, theirs) as other:
        response = ask(locked.url, "/logout", mine, "POST")
        assert (response.status, response.header("location")) == (303, "/login")
        assert "max-age=0" in (response.header("set-cookie") or "").lower()
        assert viewer.close_code() == 1008
        assert other.refused("x")[0] == "message"
    assert ask(locked.url, "/metrics", mine).status == 401
    assert ask(locked.url, "/metrics", theirs).status == 200
    response = ask(locked.url, "/logout", mine, "POST")  # of a session that has ended: to sign in again
    assert (response.status, response.header("location")) == (303, "/login")


def test_a_session_ends(locked: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie: dict[str, str | None] = {"Cookie": session_of(sign_in(locked))}
    clock = time.monotonic
    monkeypatch.setattr(locked.page._access, "_clock", lambda: clock() + 43_190)
    assert ask(locked.url, "/metrics", cookie).status == 200
    monkeypatch.setattr(locked.page._access, "_clock", lambda: clock() + 43_201)
    assert ask(locked.url, "/metrics", cookie).status == 401


def test_sessions_of_another_server(engine: Engine, locked: ServedPage) -> None:
    session = session_of(sign_in(locked)).partition("=")[2]
    with served_page(engine, token=TOKEN) as other:
        for name in (f"worldloom_{port(other)}", f"worldloom_{port(locked)}", "worldloom"):
            assert ask(other.url, "/metrics", {"Cookie": f"{name}={session}"}).status == 401


def test_the_oldest_of_too_many_sessions_ends(locked: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_MAX_SESSIONS", 3)
    cookies = [session_of(sign_in(locked)) for _ in range(4)]
    assert [ask(locked.url, "/metrics", {"Cookie": cookie}).status for cookie in cookies] == [401, 200, 200, 200]


def test_a_wrong_token(locked: ServedPage) -> None:
    began_s = time.monotonic()
    response = sign_in(locked, "wrong")
    assert time.monotonic() - began_s >= 0.99  # a second, by another clock
    assert response.status == 401
    assert response.header("set-cookie") is None
    assert response.header("content-type") == "text/html; charset=utf-8"
    assert response.text.count("<body data-failed>") == 1
    assert ask(locked.url, "/login").text == response.text.replace("<body data-failed>", "<body>")
    check_headers(response)


def test_guesses_do_not_keep_others_out(locked: ServedPage) -> None:
    form = urllib.parse.urlencode({"token": "wrong"}).encode()
    guesses = [RawConnection(locked.url) for _ in range(40)]
    try:
        for guess in guesses[:20]:
            guess.send(request_bytes(guess.host, "/login", method="POST", body=form))
        for slow in guesses[20:]:
            slow.send(request_bytes(slow.host, "/login", {"Content-Length": "99"}, "POST", b"token="))
        began_s = time.monotonic()
        session_of(sign_in(locked))
        assert time.monotonic() - began_s < 0.9  # that of those who guess is a second
        assert sorted(guess.read_response().status for guess in guesses[:20]) == [401] * 8 + [429] * 12
    finally:
        for guess in guesses:
            guess.close()


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, b"", 400),
        ({}, b"token", 400),
        ({}, b"tokens=1", 400),
        ({}, b"token=a&token=b", 400),
        ({}, b"&".join([b"a=1"] * 100), 400),
        ({}, b"token=%FF%00%ED%A0%80", 401),
        ({}, b"\xff" * 100, 400),
        ({"Content-Type": "text/plain; charset=no-such"}, b"token=x", 401),
        (
            {"Content-Type": "multipart/form-data; boundary=x"},
            b'--x\r\nContent-Disposition: form-data; name="token"',
            400,
        ),
        ({}, b"token=" + b"x" * 20_000, 413),
        ({"Content-Encoding": "deflate"}, zlib.compress(b"token=" + b"x" * 10_000_000), 413),
        ({"Content-Encoding": "deflate"}, b"no such", 400),
        ({"Transfer-Encoding": "chunked", "Content-Length": None}, b"zz\r\n", 400),
        ({"Transfer-Encoding": "chunked"}, b"0\r\n\r\n", 400),
    ],
)
def test_forms_that_are_none(
    headers: dict[str, str | None], body: bytes, status: int, locked: ServedPage, no_delay: None
) -> None:
    response = ask(locked.url, "/login", headers, "POST", body)
    assert response.status == status
    check_headers(response)


def test_a_form_that_does_not_arrive(locked: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_BODY_TIMEOUT_S", 0.3)
    with RawConnection(locked.url) as connection:
        connection.send(request_bytes(connection.host, "/login", {"Content-Length": "30"}, "POST"))
        for _ in range(2):
            time.sleep(0.05)
            connection.send(b"t")
        response = connection.read_response()
        assert response.status == 408
        assert response.text == "the form did not arrive within 0.3 s\n"
        assert connection.wait_closed() < http_server._LINGER_S + 2


def test_without_a_token_there_is_nothing_to_sign_in_to(open_page: ServedPage) -> None:
    response = ask(open_page.url, "/login")
    assert (response.status, response.header("location")) == (303, "/")
    assert ask(open_page.url, "/login", method="POST", body=b"token=").status == 400


def test_headers_of_every_kind_of_response(open_page: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    etag = ask(open_page.url, "/").header("etag")
    responses = {
        200: ask(open_page.url, "/", method="HEAD"),
        304: ask(open_page.url, "/", {"If-None-Match": etag}),
        400: ask(open_page.url, "/live"),
        404: ask(open_page.url, "/<script>alert(1)</script>"),
        405: ask(open_page.url, "/metrics", method="DELETE"),
    }

    def fail() -> bool:
        raise ValueError("a bug <script>")

    monkeypatch.setattr(type(open_page.server), "is_hung", property(lambda _: fail()))
    responses[500] = ask(open_page.url, "/healthz")
    monkeypatch.setattr(type(open_page.server), "is_hung", property(lambda _: True))
    responses[503] = ask(open_page.url, "/healthz")
    for status, response in responses.items():
        assert response.status == status
        check_headers(response)
        assert "script" not in response.text


def test_every_file_has_its_type(open_page: ServedPage) -> None:
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    for file in STATIC.iterdir():
        response = ask(open_page.url, f"/static/{file.name}")
        assert response.body == file.read_bytes()
        check_headers(response)
        kind = kinds.get(file.name.rpartition(".")[2], "text/html; charset=utf-8")
        assert response.header("content-type") == kind


# TLS.


def tls_client(identity: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=CERTS / "ca.pem")
    if identity is not None:
        context.load_cert_chain(CERTS / f"{identity}.pem", CERTS / f"{identity}-key.pem")
    return context


def test_certificates_of_clients(with_tls: ServedPage) -> None:
    assert with_tls.url.startswith("https://localhost:")
    with RawConnection(with_tls.url, tls_client("client")) as connection:
        form = urllib.parse.urlencode({"token": TOKEN}).encode()
        response = connection.request("/login", method="POST", body=form)
        assert "secure" in (response.header("set-cookie") or "").lower()
        cookie: dict[str, str | None] = {"Cookie": session_of(response)}
        assert connection.request("/metrics", cookie).status == 200
    with RawSocket(with_tls.url, tls_client("client")) as viewer:
        assert viewer.upgrade({**cookie, "Origin": with_tls.url.rstrip("/")}).status == 101
        viewer.next("hello")
    for identity in (None, "stranger"):
        with pytest.raises((ssl.SSLError, ConnectionError)), RawConnection(with_tls.url, tls_client(identity)) as other:
            other.request("/healthz", cookie)
    with pytest.raises((ConnectionError, AssertionError)):
        ask(with_tls.url, "/healthz")


def test_handshakes_that_never_begin(with_tls: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count like other connections: over TLS too a thousand silent ones take the place of each other."""
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 20)
    silent = [socket.create_connection(("localhost", int(port(with_tls)))) for _ in range(100)]
    try:
        with RawConnection(with_tls.url, tls_client("client")) as connection:
            assert connection.request("/healthz").text == "ok\n"
        assert len(with_tls.page._connections._passing) <= 20
        ended = sum(_has_ended(one) for one in silent)
        assert ended >= 80
    finally:
        for one in silent:
            one.close()
    wait_for(lambda: with_tls.page._connections.count == 0, lambda: f"{with_tls.page._connections.count} are left")


def _has_ended(connection: socket.socket) -> bool:
    connection.settimeout(0.0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
