"""Scripts of the page in a real browser, where messages are late, missing or more than one server is played on."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import chromium, opened, pixels
from tests.support.web_programs import needs_web_programs
from worldloom.client import VectorEnv
from worldloom.protos.addresses import TcpAddress
from worldloom.server.launch import ServerProcess
from worldloom.server.web.http_server import HttpServer, WebAddress, Work

pytestmark = [pytest.mark.slow, needs_web_programs]

FAKE_SERVERS = """
class FakeServer {
    constructor(index) {
        Object.assign(this, { index, name: `server ${index}`, isOpen: true, sent: [], listeners: {} })
        this.hello = { can_control: true, playable: ["catch"], has_trials: true }
        this.worlds = new Map()
    }
    on(event, listener) { (this.listeners[event] ??= []).push(listener) }
    emit(event, data) { for (const listener of this.listeners[event] ?? []) listener(data) }
    send(message) { this.sent.push(message.type); return this.isOpen }
    watch() {}
    subscribe() {}
}
const servers = [new FakeServer(0), new FakeServer(1)]
const playing = { type: "playing", world: "catch-0", lane: 0, agent: 0, trial: "", actions: [] }
const said = () => document.getElementById("play-message").textContent
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = ("--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--web-percent", "50", "--renderer", "cpu")
    with ServerProcess(*flags) as running:
        yield running


def listed(page: Page) -> list[str]:
    """Episodes that the large view lists, oldest first."""
    return page.locator("#detail-episodes li").all_inner_texts()[::-1]


def test_returns_while_the_large_view_changes(browser: Browser, server: ServerProcess) -> None:
    """Each step counts once, whatever is on the screen when it comes; what is missed is said."""
    with VectorEnv(server.address, "catch", 2, observations=["eye.rgb"]) as env, opened(browser, server.page) as page:
        env.reset(seed=0)
        page.locator("button.tile:not([hidden])").first.click()
        expect(page.locator("#detail-pictures canvas")).to_have_count(1)
        page.wait_for_timeout(500)
        expected: list[str] = []
        total, length = 0.0, 0
        while len(expected) < 3:
            for choice in ("check", "uncheck"):
                _, rewards, ended, cut, _ = env.step({"paddle": np.array([1, 1])})
                total, length = total + float(rewards[0]), length + 1
                if ended[0] or cut[0]:
                    expected.append(f"Episode {len(expected)}: {total:g} in {length} steps")
                    env.step({"paddle": np.array([0, 0])})  # which begins the next
                    total, length = 0.0, 0
                getattr(page.locator("#detail-all"), choice)()
        expect(page.locator("#detail-episodes li")).to_have_count(3)
        assert listed(page) == expected
        page.locator("#detail-pause").click()
        page.wait_for_timeout(500)
        for _ in range(3):
            env.step({"paddle": np.array([0, 0])})
            length += 1
        page.locator("#detail-pause").click()
        page.wait_for_timeout(500)
        from_step = length + 1
        while not (ended[0] or cut[0]) or length < from_step:
            _, _, ended, cut, _ = env.step({"paddle": np.array([1, 1])})
            length += 1
        expect(page.locator("#detail-episodes li")).to_have_count(4)
        assert listed(page)[-1].endswith(f"in {length} steps, since step {from_step}")


class Failing(HttpServer):
    """A page whose live views end as soon as they have begun, as when its server fails."""

    def __init__(self) -> None:
        super().__init__(WebAddress(TcpAddress("127.0.0.1", 0)))
        self.connections = 0

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/api/servers", self._list)
        app.router.add_get("/live", self._live)

    def background(self) -> list[Work]:
        return []

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"servers": [{"name": "failing", "path": ""}], "needs_token": False})

    async def _live(self, request: web.Request) -> web.WebSocketResponse:
        self.connections += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "version": "1", "renderer": "cpu", "states": [], "max_size": 512})
        await asyncio.sleep(0.05)
        await socket.close(code=1011)
        return socket


def test_a_server_that_fails_is_asked_less_and_less(browser: Browser) -> None:
    failing = Failing()
    url = failing.start()
    try:
        with opened(browser, url) as page:
            page.wait_for_timeout(6000)
    finally:
        failing.stop()
    assert 3 <= failing.connections <= 5  # after 0.5, 1, 2 and 4 seconds, and a little more


def test_a_game_on_another_server_ends_the_one_before(browser: Browser, server: ServerProcess) -> None:
    with opened(browser, server.page) as page:
        sent = page.evaluate(
            f"""async () => {{
                {FAKE_SERVERS}
                const {{ PlayTab }} = await import("/static/play.js")
                const tab = new PlayTab(servers)
                tab.start(servers[0], {{ trial: "" }})
                servers[0].emit("play", playing)
                tab.start(servers[0], {{ trial: "" }})
                tab.start(servers[1], {{ trial: "" }})
                servers[1].emit("play", playing)
                return servers.map(server => server.sent)
            }}"""
        )
        assert sent == [["play", "play", "stop"], ["play"]]


def test_a_connection_that_is_lost_before_the_game_begins(browser: Browser, server: ServerProcess) -> None:
    with opened(browser, server.page) as page:
        texts = page.evaluate(
            f"""async () => {{
                {FAKE_SERVERS}
                const {{ PlayTab }} = await import("/static/play.js")
                new PlayTab(servers).start(servers[0], {{ family: "catch" }})
                const before = said()
                servers[0].isOpen = false
                servers[0].emit("state")
                return [before, said()]
            }}"""
        )
        assert texts == ["Asking the server.", "The connection was lost, and with it the game."]


def test_actors_and_counts_of_trials(browser: Browser, server: ServerProcess) -> None:
    agent = {"id": 1, "class": "player", "kind": "agent", "endpoint": "grpc://a:1", "has_joined": True, "reward": 0.5}
    human = {"id": 0, "class": "player", "kind": "human", "endpoint": "human", "has_joined": False, "reward": 0}
    trial = {"id": "t1", "state": "running", "seconds": 1, "ticks": 2, "world": "", "actors": [human, agent]}
    trials = {"running": [trial], "running_count": 1234, "ended": [], "can_start": False}
    with opened(browser, server.page) as page:  # its own tab of trials, which has none, is not active
        page.evaluate(
            f"""async trials => {{
                {FAKE_SERVERS}
                const {{ TrialsTab }} = await import("/static/trials.js")
                const tab = new TrialsTab(servers.slice(0, 1), () => null, () => "")
                servers[0].trials = trials
                tab.setActive(true)
            }}""",
            trials,
        )
        assert page.locator("#trials-servers .actors li").all_text_contents() == [
            "0 player, human, not joined yet, reward 0",
            "1 player, agent at grpc://a:1, joined, reward 0.5",
        ]
        expected = "1,234 running trials, 0 ended ones; the newest 1 that run are shown"
        assert page.locator("#trials-servers .status-line p").all_text_contents() == [expected]


def test_a_compressed_picture_that_cannot_be_decoded_is_not_painted(browser: Browser, server: ServerProcess) -> None:
    with VectorEnv(server.address, "maze", 1, observations=["eye.rgb"]) as env, opened(browser, server.page) as page:
        env.reset(seed=0)
        tile = "button.tile:not([hidden]) > canvas:not(.blank)"
        page.locator(tile).wait_for()
        before = pixels(page, tile)
        asked: Any = page.evaluate("""() => {
            window.asked = 0
            window.createImageBitmap = async () => { window.asked += 1; throw new Error("no picture") }
        }""")
        page.locator("#tile-format").select_option("jpeg")
        deadline_s = time.monotonic() + 15
        while (asked := page.evaluate("() => window.asked")) < 3:  # also the pictures after the first are asked for
            assert time.monotonic() < deadline_s, asked
            time.sleep(0.1)
        page.wait_for_timeout(200)
        np.testing.assert_array_equal(pixels(page, tile), before)


def test_films_end_and_have_their_own_names(browser: Browser, server: ServerProcess) -> None:
    with opened(browser, server.page, accept_downloads=True) as page:
        names: list[str] = []
        page.on("download", lambda download: names.append(download.suggested_filename))
        states = page.evaluate("""async () => {
            const { FilmRecorder } = await import("/static/recorder.js")
            const streams = []
            const capture = HTMLCanvasElement.prototype.captureStream
            HTMLCanvasElement.prototype.captureStream = function (...rate) {
                streams.push(capture.apply(this, rate))
                return streams.at(-1)
            }
            let saved = 0
            const film = new FilmRecorder(document.createElement("button"), () => saved += 1)
            const canvas = document.createElement("canvas")
            canvas.getContext("2d").fillRect(0, 0, 9, 9)
            for (const name of ["one", "two"]) {
                film.start(canvas, name)
                await new Promise(resolve => setTimeout(resolve, 300))
                film.stop()
            }
            while (saved < 2) await new Promise(resolve => setTimeout(resolve, 20))
            return streams.flatMap(stream => stream.getTracks().map(track => track.readyState))
        }""")
        assert states == ["ended", "ended"]
        page.wait_for_timeout(300)
        assert [name.split(".")[0] for name in names] == ["one", "two"]


def test_large_numbers_are_short(browser: Browser, server: ServerProcess) -> None:
    values = [1e300, -1e300, 1.5e12, -2.25e15, 1e12 + 0.5, 999_999_999_999, -12_345_678, 0.125]
    with opened(browser, server.page) as page:
        found: list[Any] = page.evaluate(
            """async values => {
                const { number, precise } = await import("/static/dom.js")
                const { RewardCurve } = await import("/static/curve.js")
                const [place, list] = [document.createElement("div"), document.createElement("div")]
                document.body.append(place, list)
                const curve = new RewardCurve(place, list)
                curve.take({ first: 0, dropped: 0, steps: [[0, 1, 1e300, 1], [0, 2, -3e300, 2]] })
                curve.draw()
                const labels = [...place.querySelectorAll("text")].map(one => one.textContent)
                return [values.map(precise), values.map(number), labels, list.querySelector("li").textContent]
            }""",
            values,
        )
    precise, number, labels, episode = found
    for value, text in [*zip(values, precise, strict=True), *zip(values[:-1], number, strict=False)]:
        assert float(text.replace("−", "-").replace(",", "")) == pytest.approx(value, rel=1e-3)
        assert len(text) <= 15
    assert precise[5:] == ["999,999,999,999", "-12,345,678", "0.125"]
    assert labels == ["1e300", "−2e300"]
    assert episode == "Episode 0: −2e300 in 2 steps"
