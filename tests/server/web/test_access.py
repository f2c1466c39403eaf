"""Access to the page: by its own names, from its own pages, with the token; all else learns nothing and is told why."""

import ipaddress
import json
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.raw_web import RawConnection, RawSocket, Response, ask, viewing
from tests.support.served_page import ServedPage, running_engine, served_page, wait_for
from worldloom.server.config import WebOptions
from worldloom.server.engine.engine import Engine
from worldloom.server.web import access
from worldloom.server.web.access import Access

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


# Names: a web site whose name leads here would otherwise be this server for browsers.


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", f"{NAME}.evil.example", f"evil.{NAME}"],
)
def test_other_names_are_refused(host: str, target: str, open_page: ServedPage) -> None:
    for form in (host, f"{host}:{port(open_page)}", host.upper(), f"{host}."):
        response = try_target(open_page, target, {"Host": form})
        assert response.status == 421
        assert response.text.startswith(f"this server is not known as {form!r}: open it by an IP address or localhost")
        assert "--web-host" in response.text
        check_headers(response)


@pytest.mark.parametrize("target", TARGETS)
def test_own_names_are_taken(target: str, open_page: ServedPage) -> None:
    expected = {"/live": 101, "/no.such": 404}.get(target, 200)
    for host in ("localhost", "LocalHost:1", "localhost.", "127.0.0.1", "10.1.2.3:80", "[::1]", "[2001:DB8::7]:9080"):
        assert try_target(open_page, target, {"Host": host}).status == expected
    for host in (NAME, NAME.upper(), f"{NAME}.:99"):
        assert try_target(open_page, target, {"Host": host}).status == expected


@pytest.mark.parametrize(
    "host", ["", ":", "localhost:evil", "localhost:80:80", "localhost@evil.example", "2130706433", "[::1", "::1", "*"]
)
def test_hosts_that_are_none(host: str, open_page: ServedPage) -> None:
    assert ask(open_page.url, "/", {"Host": host}).status in (400, 421)


@pytest.mark.parametrize("hosts", [[], ["localhost", "evil.example"], ["evil.example", "localhost"], ["localhost"] * 2])
def test_one_host_is_expected(hosts: list[str], open_page: ServedPage) -> None:
    with RawConnection(open_page.url) as connection:
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        connection.send(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())
        response = connection.read_response()
    assert response.status == 400
    check_headers(response)


def test_a_request_without_a_host_asks_no_name_service(open_page: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take seconds to answer, in which the page would serve nobody."""
    asked: list[str] = []

    def answer(name: str = "") -> str:
        asked.append(name)
        return "localhost"

    monkeypatch.setattr(socket, "getfqdn", answer)
    with RawConnection(open_page.url) as connection:
        connection.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        response = connection.read_response()
    assert (response.status, response.text) == (400, "a request without a Host header: expected one\n")
    check_headers(response)
    assert asked == []


def test_the_target_may_name_this_server_only(open_page: ServedPage) -> None:
    assert ask(open_page.url, f"http://{netloc(open_page)}/healthz").status == 200
    assert ask(open_page.url, "http://evil.example/healthz").status == 421
    assert ask(open_page.url, "//evil.example/healthz").status == 404
    with RawConnection(open_page.url) as connection:
        connection.send(b"CONNECT evil.example:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.read_response().status in (400, 404, 405, 421)


def is_own_host(host: str) -> bool:
    """The rule, by the library's parser of URLs."""
    try:
        parts = urllib.parse.urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if name is None or parts.netloc != host or parts.username is not None:
        return False
    if name.rstrip(".") in ("localhost", NAME):
        return True
    try:
        return ipaddress.ip_address(name).version == (6 if "[" in host else 4)
    except ValueError:
        return False


@given(
    st.one_of(
        st.from_regex(r"(\[[0-9a-f:]{2,20}\]|[0-9.]{1,15}|localhost|gpu7\.example|[a-z@.\[\]]{1,12})\.?(:[0-9]{1,5})?"),
        st.text("localhst.:@[]/01", max_size=12),
    ).filter(lambda host: host.isascii() and not re.search(r"[\s/?#\\]|:$", host))
)
def test_hosts_by_another_parser(host: str) -> None:
    port_text = host.rpartition(":")[2] if re.search(r":\d+$", host) else "0"
    if int(port_text) < 65_536:
        assert Access((NAME,), None, False)._is_own_host(host) == is_own_host(host)


# Pages of other web sites.


def foreign_origins(page: ServedPage) -> list[str]:
    own = netloc(page)
    return [
        "null",
        "",
        own,
        "http://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        f"http://localhost:{port(page)}",
        f"http://{own}.evil.example",
        f"http://evil.example/http://{own}",
        f"http://evil.example@{own}",
        f"https://{own}",
        f"file://{own}",
        f"chrome-extension://{own}",
    ]


def test_pages_of_others_get_nothing(open_page: ServedPage) -> None:
    for origin in foreign_origins(open_page):
        answers = [try_target(open_page, target, {"Origin": origin}) for target in TARGETS]
        answers += [ask(open_page.url, path, {"Origin": origin}, "POST", b"token=1") for path in ("/login", "/logout")]
        for response in answers:
            assert response.status == 403, origin
            assert response.text == "a request of another web site's page: expected one of a page of this server\n"
            check_headers(response)


def test_own_pages_and_programs_get_in(open_page: ServedPage) -> None:
    for origin in (None, f"http://{netloc(open_page)}", f"HTTP://{netloc(open_page)}"):
        with viewing(open_page.url, {"Origin": origin}):
            pass
    own = {"Origin": "http://localhost:7", "Host": "LOCALHOST:7"}
    with viewing(open_page.url, own):
        pass


def test_forms_without_an_origin(locked: ServedPage) -> None:
    """Old browsers send none with a form, and those that say where it comes from are believed if it is elsewhere."""
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 303), ("none", 303), (None, 303)):
        form = urllib.parse.urlencode({"token": TOKEN}).encode()
        assert ask(locked.url, "/login", {"Sec-Fetch-Site": site}, "POST", form).status == status
    assert ask(locked.url, "/login", {"Sec-Fetch-Site": "cross-site"}).status == 200  # a link leads to the page


def test_more_viewers_than_are_allowed(engine: Engine) -> None:
    """Viewers above the limit are told why, and those that there are go on."""
    with served_page(engine, WebOptions(web_viewers=2)) as page, viewing(page.url) as one, viewing(page.url):
        for _ in range(3):
            response = try_target(page, "/live", {})
            assert (response.status, response.text) == (
                503,
                "too many people are watching: expected 2 at most (--web-viewers)\n",
            )
        one.close()
        wait_for(lambda: page.server.viewers == 1, lambda: f"{page.server.viewers} viewers")
        results: list[int] = []
        threads = [threading.Thread(target=lambda: results.append(_hold(page))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == [101] + [503] * 7


def _hold(page: ServedPage) -> int:
    """Ask to view; stay if let in."""
    with RawSocket(page.url) as viewer:
        status = viewer.upgrade().status
        time.sleep(0.3 if status == 101 else 0.0)
    return status


def test_the_list_of_servers_says_that_nobody_else_can_watch(engine: Engine) -> None:
    with served_page(engine, WebOptions(web_viewers=1)) as page:
        entry = {"name": "127.0.0.1:9000", "path": ""}
        assert json.loads(ask(page.url, "/api/servers").text)["servers"] == [entry]
        with viewing(page.url):
            full = {
                **entry,
                "problem": "too many people are watching: expected 1 at most (--web-viewers)",
                "retry_s": 10,
            }
            assert json.loads(ask(page.url, "/api/servers").text)["servers"] == [full]
        wait_for(lambda: page.server.viewers == 0, lambda: "a viewer is left")
        assert json.loads(ask(page.url, "/api/servers").text)["servers"] == [entry]


def test_close_codes_of_the_client(open_page: ServedPage) -> None:
    with viewing(open_page.url) as viewer:
        viewer.send(b"\x88\x82\0\0\0\0\x03\xe8")
        assert viewer.close_code() == 1000
