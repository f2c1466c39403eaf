"""The page in a real browser without a connection: what it shows is not taken for live, and it says why."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.web.test_hub import running
from tests.support.browser import axe_violations, chromium, opened
from tests.support.web_programs import needs_web_programs
from worldloom.client import VectorEnv
from worldloom.protos.addresses import TcpAddress, parse_address
from worldloom.server.launch import ServerProcess
from worldloom.server.web.http_server import WebAddress
from worldloom.server.web.hub import ListedServer
from worldloom.server.web.page_lookup import ServerAccess, find_page

pytestmark = [pytest.mark.slow, needs_web_programs]

TILES = "button.tile:not([hidden])"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def serve(*flags: str) -> ServerProcess:
    return ServerProcess(
        "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--renderer", "cpu", "--threads", "1", *flags
    )


def listed(server: ServerProcess) -> ListedServer:
    address, access = parse_address(server.address), ServerAccess()
    return ListedServer(server.address, lambda: find_page(address, access))


def step(server: ServerProcess, lanes: int) -> VectorEnv:
    """Catch after two steps."""
    env = VectorEnv(server.address, "catch", lanes, observations=["eye.rgb"])
    env.reset(seed=0)
    for _ in range(2):
        env.step({"paddle": np.ones(lanes, int)})
    return env


def opacity(page: Page, selector: str) -> float:
    return float(page.locator(selector).first.evaluate("one => getComputedStyle(one).opacity"))


def test_a_page_above_the_limit_says_so(browser: Browser) -> None:
    """It tries again later, and shows the worlds when somebody else has left."""
    with (
        serve("--web-viewers", "1") as server,
        step(server, 2),
        running(WebAddress(TcpAddress("127.0.0.1", 0)), ServerAccess(), [listed(server)]) as (hub, url),
        opened(browser, server.page) as first,
    ):
        hub.first_problems.result(20)
        expect(first.locator(TILES)).to_have_count(2)
        why = f"{server.address} is not connected: too many people are watching: expected 1 at most (--web-viewers)."
        for other in (server.page, url):
            with opened(browser, other) as page:
                expect(page.locator("#lost")).to_have_text(why)
                expect(page.locator("#connection-text")).to_have_text(
                    re.compile(r"^not connected, trying again in (9|10) s$")
                )
                page.wait_for_timeout(1500)
                expect(page.locator("#connection-text")).to_have_text(re.compile(r"in [78] s$"))
                expect(page.locator("#connection-announcement")).to_contain_text(why)
                assert axe_violations(page) == []
        with opened(browser, server.page) as page:
            expect(page.locator("#lost")).to_have_text(why)
            first.goto("about:blank")
            expect(page.locator(TILES)).to_have_count(2, timeout=20_000)
            expect(page.locator("#lost")).to_be_hidden()


def test_the_large_view_of_a_lost_server(browser: Browser) -> None:
    with serve() as server, step(server, 2), opened(browser, server.page) as page:
        expect(page.locator(TILES).first).to_have_accessible_name(re.compile("lane 0, running"))
        page.locator(TILES).first.click()
        state = page.locator("#detail-state")
        expect(state).to_have_text("running, episode 0, step 2")
        assert opacity(page, "#detail-pictures canvas") == 1
        server.kill()
        notice = page.locator("#detail").get_by_role("status").filter(has_text="Not live")
        expect(notice).to_have_text(
            f"Not live. {server.address} is not connected: it does not answer. What you see was its last picture."
        )
        expect(state).to_have_text("Last seen: running, episode 0, step 2")
        assert opacity(page, "#detail-pictures canvas") < 0.5
        assert axe_violations(page) == []
        page.keyboard.press("Escape")
        expect(page.locator(TILES).first).to_have_accessible_name(re.compile("lane 0, not live, last seen running"))


def test_the_tiles_of_one_lost_server_among_several(browser: Browser) -> None:
    with serve() as first, serve() as second, step(first, 2), step(second, 3):
        where, servers = WebAddress(TcpAddress("127.0.0.1", 0)), [listed(first), listed(second)]
        with running(where, ServerAccess(), servers) as (hub, url):
            hub.first_problems.result(20)
            with opened(browser, url) as page:
                status = page.locator("#worlds-status")
                expect(status).to_have_text(
                    re.compile(r"^5 lanes in 2 worlds · 5 on the screen · [\d.]+ pictures a second$")
                )
                lost, alive = (page.locator(f'{TILES}:has(canvas[data-lane^="{index}/"])') for index in (1, 0))
                expect(lost).to_have_count(3)
                second.kill()
                expect(status).to_have_text(
                    re.compile(r"^2 lanes in 1 world · 2 on the screen · .* · not live: 3 lanes in 1 world$")
                )
                why = f"{second.address} is not connected: no server at {second.address}"  # as the hub says
                expect(page.locator("#lost")).to_have_text(f"{why}.")
                expect(page.locator(".group-facts").filter(has_text=why)).to_have_count(1)
                for lane in range(3):
                    expect(lost.nth(lane)).to_have_accessible_name(
                        re.compile(f"lane {lane}, not live, last seen running")
                    )
                    expect(lost.nth(lane).locator(".mark")).to_have_attribute("data-text", "⊘ not live")
                for lane in range(2):
                    expect(alive.nth(lane)).to_have_accessible_name(re.compile(f"lane {lane}, running"))
                    expect(alive.nth(lane).locator(".mark")).to_have_attribute("data-text", "")
                assert opacity(page, f'{TILES} > canvas[data-lane^="1/"]') < 0.5
                assert opacity(page, f'{TILES} > canvas[data-lane^="0/"]') == 1
                assert axe_violations(page) == []
                page.goto(f"{url}#server")
                row = page.locator("#stats-servers tbody tr").nth(1)
                expect(row).to_contain_text(f"no server at {second.address}")
                page.goto(f"{url}#worlds")
                with (
                    ServerProcess("--listen", second.address, "--web", "127.0.0.1:0", "--renderer", "cpu") as again,
                    step(again, 3),
                ):
                    expect(status).to_have_text(re.compile("^5 lanes in 2 worlds · 5 on the screen"), timeout=20_000)
                    expect(lost.first).to_have_accessible_name(re.compile("lane 0, running"))
                    expect(page.locator("#lost")).to_be_hidden()
