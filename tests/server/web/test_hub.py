"""One page over several servers: real servers and a real hub, what it passes on, and what it refuses."""

import asyncio
import contextlib
import functools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from playwright.sync_api import Page, expect
from prometheus_client.parser import text_string_to_metric_families

from scripts.support.server_process import WORLDLOOM
from tests.support.browser import chromium, opened, pixels
from tests.support.live_views import TIMEOUT_S, Socket, get, receive, session, watch_all
from tests.support.web_programs import needs_web_programs
from worldloom.client import VectorEnv
from worldloom.protos.addresses import TcpAddress, UnixAddress, parse_address
from worldloom.server.launch import ServerProcess
from worldloom.server.options import ConfigError
from worldloom.server.web import hub as hub_module
from worldloom.server.web.http_server import HttpServer, WebAddress, Work
from worldloom.server.web.hub import Hub, ListedServer
from worldloom.server.web.page_lookup import ServerAccess, find_page
from worldloom.server.web.page_url import PageError, reachable_url

pytestmark = pytest.mark.slow

CERTS = Path(__file__).parents[1] / "transports/certs"
TLS = ("--tls-cert", f"{CERTS}/server.pem", "--tls-key", f"{CERTS}/server-key.pem")
TOKEN = "open-sesame"
HERE = TcpAddress("127.0.0.1", 0)
LANES, SIZE = 3, 32
T = TypeVar("T")


def serve(*flags: str, address: str = "127.0.0.1:0") -> ServerProcess:
    return ServerProcess("--listen", address, "--renderer", "cpu", "--threads", "1", *flags)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "token"
    path.write_text(TOKEN)
    return path


@pytest.fixture(scope="module")
def started(token_file: Path) -> Iterator[list[ServerProcess]]:
    """Two servers with pages, one with TLS and a token, and one without a page; started at the same time."""
    web_flags = ("--web", "127.0.0.1:0")
    flags = [web_flags, web_flags, (*TLS, "--token-file", str(token_file), "--web", "0.0.0.0:0"), ()]
    with contextlib.ExitStack() as at_the_end:
        with ThreadPoolExecutor() as pool:
            servers = list(pool.map(lambda given: serve(*given), flags))
        for server in servers:
            at_the_end.callback(server.kill)
        yield servers


@contextlib.contextmanager
def watching(*words: str) -> Iterator[str]:
    """Run `worldloom watch`; the URL of its page. It ends with 0 when it is told to, and has logged no error."""
    command = [str(WORLDLOOM), "watch", *words, "--web", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("live view at "), process.stderr and process.stderr.read()
            yield line.removeprefix("live view at ").strip()
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert " ERROR " not in log
    assert "Traceback" not in log


@pytest.fixture(scope="module")
def hub(started: list[ServerProcess]) -> Iterator[str]:
    """The page of the first two servers."""
    with watching(started[0].address, started[1].address) as url:
        yield url


def read(url: str) -> str:
    status, text = asyncio.run(get(url))
    assert status == 200, text
    return text


def entries(hub: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(read(f"{hub}api/servers"))["servers"]
    return found


def wait_until(condition: Callable[[], T], what: str) -> T:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def stepped(server: ServerProcess, seed: int, **access: Any) -> Iterator[np.ndarray]:
    """A world of catch after two steps, with its frames."""
    with VectorEnv(server.address, "catch", LANES, width=SIZE, height=SIZE, **access) as env:
        env.reset(seed=seed)
        for _ in range(2):
            frames = env.step({"paddle": np.ones(LANES, int)})[0]
        yield np.array(frames["eye.rgb"])


def test_frames_through_the_hub_are_those_of_the_clients(started: list[ServerProcess], hub: str) -> None:
    first, second = started[:2]
    assert entries(hub) == [
        {"name": first.address, "path": "/servers/0"},
        {"name": second.address, "path": "/servers/1"},
    ]
    with stepped(first, 1) as frames, stepped(second, 2) as others:
        assert not np.array_equal(frames, others)
        for server, path, expected in ((first, "/servers/0", frames), (second, "/servers/1", others)):
            hello, found = asyncio.run(watch_all(hub, path, SIZE))
            assert hello["server"] == server.address
            np.testing.assert_array_equal(found, expected)


def test_prometheus_finds_the_servers(started: list[ServerProcess], hub: str) -> None:
    targets = json.loads(read(f"{hub}targets"))
    assert [one["labels"] for one in targets] == [
        {"__scheme__": "http", "server": server.address} for server in started[:2]
    ]
    for one in targets:
        (address,) = one["targets"]
        families = {one.name for one in text_string_to_metric_families(read(f"http://{address}/metrics"))}
        assert {"worldloom_build_info", "worldloom_ready"} <= families
    assert states(hub) == {"reachable": 2, "unreachable": 0}
    assert (read(f"{hub}healthz"), read(f"{hub}readyz")) == ("ok\n", "ready\n")


def states(hub: str) -> dict[str, float]:
    (family,) = text_string_to_metric_families(read(f"{hub}metrics"))
    assert family.name == "worldloom_hub_servers"
    return {sample.labels["state"]: sample.value for sample in family.samples}


def test_other_names_and_other_pages_are_refused(hub: str) -> None:
    async def statuses() -> list[int]:
        host = hub.removeprefix("http://").rstrip("/")
        wrong = [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
        right = {"Origin": f"http://{host}"}
        found = [(await get(f"{hub}api/servers", headers=headers))[0] for headers in (*wrong, right)]
        async with session() as one:
            for headers in wrong:
                with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                    await one.ws_connect(f"{hub}servers/0/live", headers=headers)
                found.append(caught.value.status)
            async with one.ws_connect(f"{hub}servers/0/live", headers=right) as socket:
                assert (await receive(socket, "hello"))["can_control"] is False
        return found

    assert asyncio.run(statuses()) == [421, 403, 403, 200, 421, 403, 403]


@pytest.mark.parametrize("path", ["servers/2/live", "servers/-1/live", "servers/0x0/live", "servers/../live", "live"])
def test_there_are_no_other_servers(hub: str, path: str) -> None:
    assert asyncio.run(get(f"{hub}{path}"))[0] == 404


def test_a_server_that_is_restarted_is_found_again(started: list[ServerProcess], hub: str) -> None:
    server = started[1]

    async def watch_its_end() -> int | None:
        async with session() as one, one.ws_connect(f"{hub}servers/1/live") as socket:
            await receive(socket, "hello")
            server.kill()
            return (await socket.receive(TIMEOUT_S)).data if not socket.closed else socket.close_code

    assert asyncio.run(watch_its_end()) == 1001
    problem = wait_until(lambda: entries(hub)[1].get("problem"), "the end of the server")
    assert problem == f"no server at {server.address}"
    assert states(hub) == {"reachable": 1, "unreachable": 1}
    assert asyncio.run(get(f"{hub}servers/1/live")) == (502, f"{server.address}: {problem}\n")
    assert len(json.loads(read(f"{hub}targets"))) == 2  # so that Prometheus notices
    started[1] = again = serve("--web", "127.0.0.1:0", address=server.address)
    wait_until(lambda: "problem" not in entries(hub)[1], "the server that was restarted")
    assert entries(hub)[1] == {"name": again.address, "path": "/servers/1"}
    with stepped(again, 5) as frames:
        np.testing.assert_array_equal(asyncio.run(watch_all(hub, "/servers/1", SIZE))[1], frames)


@needs_web_programs
def test_the_page_in_a_browser_shows_all_servers_and_those_that_come(started: list[ServerProcess]) -> None:
    first, second = started[:2]
    servers = [listed(first, ServerAccess())]
    with (
        stepped(first, 1) as frames,
        stepped(second, 2) as others,
        running(WebAddress(HERE), ServerAccess(), servers) as (hub, url),
        chromium() as browser,
    ):
        hub.first_problems.result(TIMEOUT_S)
        with opened(browser, url) as page:
            page.locator("#tile-size").fill("0")  # tiles of 32 pixels, as the frames are
            shows_lanes(page, 0, frames)
            servers.append(listed(second, ServerAccess()))
            shows_lanes(page, 1, others)
            shows_lanes(page, 0, frames)
            del servers[0]
            expect(page.locator('canvas[data-lane^="1/"]')).to_have_count(0, timeout=1000 * TIMEOUT_S)
            shows_lanes(page, 0, others)
            page.locator('canvas[data-lane^="0/"]').first.click()
            expect(page).to_have_url(re.compile(r"#worlds/catch-\w+/0\?server=1$"))  # its path is /servers/1
            page.reload()
            expect(page.locator("#detail-title")).to_contain_text("catch")


def shows_lanes(page: Page, index: int, frames: np.ndarray) -> None:
    """Wait until a page shows the frames of all lanes of a server, of which there are as many as frames."""
    for lane, frame in enumerate(frames):
        selector = f'button:not([hidden]) > canvas[data-lane^="{index}/"][data-lane$="/{lane}"]'
        page.locator(selector).wait_for()
        wait_until(lambda selector=selector, frame=frame: np.array_equal(pixels(page, selector), frame), "the frame")  # type: ignore[misc]


@contextlib.contextmanager
def running(where: WebAddress, access: ServerAccess, servers: list[ListedServer]) -> Iterator[tuple[Hub, str]]:
    """A hub in this process."""
    hub = Hub(where, access, lambda: servers)
    try:
        yield hub, hub.start()
    finally:
        hub.stop()


def listed(server: ServerProcess, access: ServerAccess) -> ListedServer:
    return ListedServer(server.address, functools.partial(find_page, parse_address(server.address), access))


def test_tls_and_a_token(started: list[ServerProcess]) -> None:
    server, ca = started[2], CERTS / "ca.pem"
    access = ServerAccess(TOKEN, ca)
    where = WebAddress(HERE, token=TOKEN, tls_cert=CERTS / "server.pem", tls_key=CERTS / "server-key.pem")
    with running(where, access, [listed(server, access)]) as (hub, url):
        assert url.startswith("https://127.0.0.1:")
        assert hub.first_problems.result(TIMEOUT_S) == {server.address: ""}
        context = access.ssl_context
        for token, status in ((None, 401), ("another", 401), (TOKEN, 200)):
            for path in ("api/servers", "targets", "metrics"):
                assert asyncio.run(get(f"{url}{path}", token, ssl=context))[0] == status
        for token in (None, "another"):
            assert asyncio.run(get(f"{url}servers/0/live", token, ssl=context))[0] == 401
        (target,) = json.loads(asyncio.run(get(f"{url}targets", TOKEN, ssl=context))[1])[0]["targets"]
        assert target.startswith("127.0.0.1:")  # its page is at 0.0.0.0
        with stepped(server, 3, token=TOKEN, tls_ca=ca) as frames:
            hello, found = asyncio.run(watch_all(url, "/servers/0", SIZE, TOKEN, ssl=context))
        assert hello["server"] == server.address
        np.testing.assert_array_equal(found, frames)


@pytest.mark.parametrize(
    ("number", "access", "problem"),
    [
        (2, ServerAccess("wrong", CERTS / "ca.pem"), "the server at {} refuses the token: --token-file is not the one"),
        (2, ServerAccess(None, CERTS / "ca.pem"), "the server at {} refuses the token: give --token-file that it was"),
        (
            2,
            ServerAccess(TOKEN),
            "cannot connect to the server at {}: .*; if it was started with --tls-cert, give --tl",
        ),
        (
            2,
            ServerAccess(TOKEN, CERTS / "stranger.pem"),
            "cannot connect to the server at {}: .*signed with one of --t",
        ),
        (3, ServerAccess(), "the server at {} has no page: start it with --web HOST:PORT$"),
    ],
)
def test_why_a_page_is_not_found(started: list[ServerProcess], number: int, access: ServerAccess, problem: str) -> None:
    address = started[number].address
    with pytest.raises(PageError, match=problem.format(re.escape(address))) as caught:
        asyncio.run(find_page(parse_address(address), access))
    assert "\n" not in str(caught.value)


def test_errors_of_the_command(started: list[ServerProcess], token_file: Path) -> None:
    no_page, taken = started[3].address, started[0].address
    expected = {
        ("127.0.0.1:1",): "no server at 127.0.0.1:1",
        (no_page,): f"the server at {no_page} has no page: start it with --web HOST:PORT",
        (no_page, "--web", taken): f"cannot listen on {taken}: Address already in use; another server may be running "
        "there: stop it, or take another port with --web; port 0 picks a free one",
        (no_page, "--tls-ca", str(token_file)): f"--tls-ca {token_file} is not PEM: expected a file with a BEGIN line",
    }

    def error_of(words: tuple[str, ...]) -> tuple[int, str]:
        command = [str(WORLDLOOM), "watch", "--web", "127.0.0.1:0", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.stdout == ""
        return done.returncode, done.stderr.splitlines()[-1]

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(expected, pool.map(error_of, expected), strict=True))
    assert found == {words: (1, f"worldloom watch: {text}") for words, text in expected.items()}


class FakePage(HttpServer):
    """A page that does what its viewer says, and notes how it was asked."""

    def __init__(self, name: str = "fake") -> None:
        super().__init__(WebAddress(HERE))
        self.name = name
        self.headers: dict[str, str] = {}
        self.sent_bytes = 0

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/api/servers", self._list)
        app.router.add_get("/live", self._live)

    def background(self) -> list[Work]:
        return []

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"servers": [{"name": self.name, "path": ""}], "needs_token": False})

    async def _live(self, request: web.Request) -> web.WebSocketResponse:
        self.headers = dict(request.headers)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.data == "flood":
                while True:
                    await socket.send_bytes(bytes(1 << 18))
                    self.sent_bytes += 1 << 18
            elif message.data == "big":
                await socket.send_bytes(bytes(17 << 20))
            elif message.data == "end":
                await socket.close(code=1008)
            else:
                await socket.send_str(message.data)
        return socket


@contextlib.contextmanager
def fake_page(name: str = "fake") -> Iterator[tuple[FakePage, str]]:
    page = FakePage(name)
    try:
        yield page, page.start()
    finally:
        page.stop()


async def told(url: str) -> str:
    return url


def at(name: str, url: str) -> ListedServer:
    return ListedServer(name, functools.partial(told, url))


@contextlib.asynccontextmanager
async def live(url: str, **options: Any) -> "AsyncIterator[Socket[bool]]":
    async with session() as one, one.ws_connect(f"{url}servers/0/live", **options) as socket:
        yield socket


@pytest.fixture
def relayed() -> Iterator[tuple[FakePage, str]]:
    """A page, and the URL of a hub that shows it."""
    with (
        fake_page() as (page, there),
        running(WebAddress(HERE), ServerAccess("sesame"), [at("one", there)]) as (hub, url),
    ):
        assert hub.first_problems.result(TIMEOUT_S) == {"one": ""}
        yield page, url


def run(work: Awaitable[T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, TIMEOUT_S)

    return asyncio.run(bounded())


def test_requests_are_the_hubs_own(relayed: tuple[FakePage, str]) -> None:
    page, url = relayed

    async def echo() -> str:
        headers = {"Origin": url.rstrip("/"), "Cookie": "a=b", "Authorization": "Bearer mine", "X-Mine": "1"}
        async with live(url, headers=headers) as socket:
            await socket.send_str("ä" * 30_000)
            return str((await socket.receive()).data)

    assert run(echo()) == "ä" * 30_000
    assert page.headers["Authorization"] == "Bearer sesame"
    assert not {"Origin", "Cookie", "X-Mine", "Referer"} & set(page.headers)


def test_sizes_are_limited(relayed: tuple[FakePage, str]) -> None:
    _, url = relayed

    async def too_large() -> tuple[int, int | None]:
        async with live(url, max_msg_size=1 << 30) as socket:
            await socket.send_str("big")
            size = len((await socket.receive()).data)
            await socket.send_str("x" * (1 << 17))
            message = await socket.receive()
            assert message.type is aiohttp.WSMsgType.CLOSE
            return size, message.data

    assert run(too_large()) == (17 << 20, 1009)


def test_the_reason_of_an_end_is_passed_on(relayed: tuple[FakePage, str]) -> None:
    _, url = relayed

    async def end() -> int | None:
        async with live(url) as socket:
            await socket.send_str("end")
            await socket.receive()
            return socket.close_code

    assert run(end()) == 1008


def test_nothing_is_queued_for_a_viewer_that_does_not_read(relayed: tuple[FakePage, str]) -> None:
    """The operating system's buffers of the connections fill, and the server is not read any further."""
    page, url = relayed

    async def stall() -> tuple[int, int]:
        async with live(url) as socket, live(url) as other:
            await socket.send_str("flood")
            before = -1
            while page.sent_bytes != before:
                before = page.sent_bytes
                await asyncio.sleep(0.7)
            await other.send_str("still here")
            assert (await other.receive()).data == "still here"
            return before, page.sent_bytes

    before, after = run(stall())
    assert before == after
    assert 0 < after < 64 << 20


def test_the_list_says_that_no_more_is_passed_on(
    relayed: tuple[FakePage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = relayed
    monkeypatch.setattr(hub_module, "MAX_RELAYS", 1)

    async def ask() -> list[tuple[int, str]]:
        async with live(url) as socket:
            await socket.send_str("here")
            await socket.receive()
            return [await get(f"{url}{path}") for path in ("servers/0/live", "api/servers")]

    (status, text), (_, listed) = run(ask())
    assert (status, text) == (503, "256 live views are passed on: expected no more\n")
    expected = {"name": "one", "path": "/servers/0", "problem": text.strip(), "retry_s": 10}
    assert json.loads(listed)["servers"] == [expected]
    wait_until(lambda: "problem" not in entries(url)[0], "the end of the live view")
    assert states(url) == {"reachable": 1, "unreachable": 0}


def test_servers_come_and_go_and_keep_their_paths() -> None:
    with fake_page("a") as (_, first), fake_page("b") as (_, second):
        servers = [at("one", first), at("two", second)]
        with running(WebAddress(HERE), ServerAccess(), servers) as (hub, url):
            hub.first_problems.result(TIMEOUT_S)
            servers[:] = [at("two", second), at("three", first)]
            wait_until(lambda: len(entries(url)) == 2 and entries(url)[1]["name"] == "three", "the third")
            assert [one["path"] for one in entries(url)] == ["/servers/1", "/servers/2"]
            assert asyncio.run(get(f"{url}servers/0/live"))[0] == 404


def test_another_server_at_the_port_of_a_page_is_not_taken_for_it() -> None:
    with fake_page("a") as (page, first), fake_page("b") as (_, second):
        asked: list[str] = []

        async def find() -> str:
            asked.append(second if asked else first)
            return asked[-1]

        with running(WebAddress(HERE), ServerAccess(), [ListedServer("one", find)]) as (hub, url):
            hub.first_problems.result(TIMEOUT_S)
            page.name = "another"
            wait_until(lambda: len(asked) > 1, "another question")
            port = second.rstrip("/").rpartition(":")[2]
            wait_until(lambda: json.loads(read(f"{url}targets"))[0]["targets"] == [f"127.0.0.1:{port}"], "the page")


def test_a_hub_does_not_show_a_hub(relayed: tuple[FakePage, str]) -> None:
    _, inner = relayed
    with running(WebAddress(HERE), ServerAccess(), [at("hub", inner)]) as (hub, _):
        assert hub.first_problems.result(TIMEOUT_S) == {
            "hub": f"its page at {inner} shows several servers: expected that of one"
        }


@pytest.mark.parametrize(
    ("url", "address", "expected"),
    [
        ("http://0.0.0.0:9080/", TcpAddress("192.0.2.7", 9000), "http://192.0.2.7:9080/"),
        ("https://0.0.0.0:9080/", TcpAddress("gpu7.example", 9000), "https://gpu7.example:9080/"),
        ("http://[::]:9080/", TcpAddress("2001:db8::7", 9000), "http://[2001:db8::7]:9080/"),
        ("http://0.0.0.0:9080/", UnixAddress(Path("/run/w.sock")), "http://127.0.0.1:9080/"),
        ("http://127.0.0.1:9080/", TcpAddress("localhost", 9000), "http://127.0.0.1:9080/"),
        ("http://192.0.2.7:9080/", TcpAddress("127.0.0.1", 9000), "http://192.0.2.7:9080/"),
    ],
)
def test_pages_as_they_can_be_opened(url: str, address: TcpAddress | UnixAddress, expected: str) -> None:
    assert reachable_url(url, address) == expected


@pytest.mark.parametrize("url", ["http://127.0.0.1:9080/", "http://localhost:9080/", "http://[::1]:9080/"])
def test_a_page_for_another_machine_only_is_not_opened(url: str) -> None:
    with pytest.raises(PageError, match="can only be opened on its own machine: start it with another --web"):
        reachable_url(url, TcpAddress("192.0.2.7", 9000))


def test_access_is_checked() -> None:
    with pytest.raises(ConfigError, match="--client-cert, --client-key: expected both of them, and --tls-ca"):
        ServerAccess(tls_ca=CERTS / "ca.pem", tls_cert=CERTS / "client.pem").check()
    with pytest.raises(ConfigError, match=r"client-key\.pem cannot be used: "):
        ServerAccess(None, CERTS / "ca.pem", CERTS / "server.pem", CERTS / "client-key.pem").check()
    assert TOKEN not in repr(ServerAccess(TOKEN))


def test_without_aiohttp_it_tells_what_to_install() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None\nfrom worldloom.server import cli; sys.exit(cli.main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "watch", "127.0.0.1:1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "worldloom watch: a page of several servers needs aiohttp, which is not installed: pip install "
        "'worldloom[web]'\n",
    )
