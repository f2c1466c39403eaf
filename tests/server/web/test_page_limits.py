"""The page in a real browser where something is missing, too much, or gone: cameras, pixels, worlds, other humans."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import chromium, opened, pixels
from tests.support.served_page import CERTS
from tests.support.web_programs import needs_web_programs
from worldloom.client import VectorEnv
from worldloom.server.launch import ServerProcess

pytestmark = [pytest.mark.slow, needs_web_programs]

ENVIRONMENTS = """
import gymnasium
import numpy as np
from gymnasium import spaces

class Blind(gymnasium.Env):
    metadata = {"render_modes": []}
    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Box(-1, 1, (20_000,))
    def __init__(self, render_mode=None):
        self.render_mode = render_mode
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}
    def step(self, action):
        return np.zeros(3, np.float32), 0.25, False, False, {}

gymnasium.register("Blind-v0", Blind)
"""
TRIALS = """
actor_classes: [{id: player}]
trial_params:
  max_inactivity: 2
  environment:
    config:
      world: {family: maze, size: 5, agents: 2}
      actor_classes: {player: {observations: [reward]}}
  actors: [{actor_class: player, endpoint: human}, {actor_class: player, endpoint: human}]
"""


PAINTED_TILES = """() => [...document.querySelectorAll("button.tile:not([hidden]) > canvas")]
    .filter(one => one.width === 256 && !one.classList.contains("blank")).length"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("limits")
    (folder / "blind_environments.py").write_text(ENVIRONMENTS, encoding="utf-8")
    (folder / "trials.yaml").write_text(TRIALS, encoding="utf-8")
    flags = ("--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--web-control", "--cogment", "trials.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        with ServerProcess(
            *flags, "--gym-import", "blind_environments", "--gym-id", "Blind-v0", "--renderer", "cpu", folder=folder
        ) as running:
            yield running


def has_focus_within(page: Page, selector: str) -> bool:
    return bool(page.evaluate("selector => Boolean(document.activeElement.closest(selector))", selector))


def test_a_world_without_cameras_and_with_thousands_of_action_numbers(browser: Browser, server: ServerProcess) -> None:
    with (
        VectorEnv(server.address, "maze", 1, observations=["eye.rgb"]) as mazes,
        VectorEnv(server.address, "gym", 2, observations=["observation"], settings={"id": "Blind-v0"}) as env,
        opened(browser, server.page) as page,
    ):
        mazes.reset(seed=0)
        env.reset(seed=0)
        page.locator("button.tile:has(canvas[data-lane*='/maze-'])").first.click()
        expect(page.locator("#detail-pictures canvas")).to_have_count(1)
        page.keyboard.press("Escape")
        page.locator("button.tile:has(canvas[data-lane*='/gym-'])").first.click()
        expect(page.locator("#detail-state")).to_have_text("This world has no camera.")
        expect(page.locator("#detail-pictures canvas")).to_have_count(0)
        expect(page.get_by_role("button", name="Save PNG")).to_be_disabled()
        for _ in range(4):
            actions = env.action_space.sample()
            env.step(actions)
        expect(page.locator("#detail-curve")).to_contain_text("return 1")
        expect(page.locator("#detail-actions")).to_contain_text("and 19,744 more of action")
        assert page.locator("#detail-actions > *").count() == 257
        expect(page.locator("#detail-settings")).to_contain_text("Blind-v0")


def test_more_views_than_pixels_for_them(browser: Browser, server: ServerProcess) -> None:
    """16 views of 512 × 512 are as much as a picture has: with all outputs of two cameras the page asks for less."""
    with (
        VectorEnv(server.address, "maze", 1, observations=["eye.rgb"]) as env,
        opened(browser, server.page) as page,
    ):
        env.reset(seed=0)
        limits: list[Any] = page.evaluate(
            """async () => {
                const { Server } = await import("/static/live.js")
                const server = new Server({ name: "a second one", path: "" }, 1)
                const answer = new Promise(resolve => server.on("error", resolve))
                while (!server.hello) await new Promise(resolve => setTimeout(resolve, 20))
                const views = Array(17).fill(["no", 0, 0, "", "rgb"])
                server.watch({ views, size: 512, rate: 1, format: "raw", follow: null, show: () => null })
                return [server.hello.max_pixels, (await answer).text]
            }"""
        )
        assert limits == [1 << 22, "17 views of 512 × 512: expected 4194304 pixels at most"]
        page.locator("button.tile:not([hidden])").first.click()
        page.locator("#detail-size").select_option("512")
        page.locator("#detail-all").check()
        expect(page.locator("#detail-pictures canvas")).to_have_count(8)
        drawn = page.locator("#detail-pictures canvas").nth(7)
        expect(drawn).to_have_js_property("width", 512)  # 8 × 512² fit


def test_large_tiles_on_a_large_screen_take_turns(browser: Browser, server: ServerProcess) -> None:
    """90 tiles of 256 × 256 are on the screen, of which 64 fit into a picture; each is painted, and none is refused."""
    with (
        VectorEnv(server.address, "catch", 90, observations=["eye.rgb"]) as env,
        opened(browser, server.page, 3840, 2160) as page,
    ):
        env.reset(seed=0)
        page.locator("#tile-size").fill("6")
        page.locator("#tile-rate").select_option("8")
        deadline_s = time.monotonic() + 20
        while page.evaluate(PAINTED_TILES) < 80:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        expect(page.locator("#warning")).to_have_text("")


def test_keys_in_the_large_view(browser: Browser, server: ServerProcess) -> None:
    with (
        VectorEnv(server.address, "catch", 3, observations=["eye.rgb"]) as env,
        opened(browser, server.page, accept_downloads=True) as page,
    ):
        env.reset(seed=0)
        for _ in range(2):
            env.step(env.action_space.sample())
        first = page.locator("button.tile:not([hidden])").first
        first.focus()
        page.keyboard.press("Enter")
        title = page.locator("#detail-title")
        expect(title).to_contain_text("lane 0")
        assert has_focus_within(page, "#detail")
        for key, lane in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowRight", 2), ("ArrowLeft", 1), ("ArrowLeft", 0)):
            page.keyboard.press(key)
            expect(title).to_contain_text(f"lane {lane}")
            assert has_focus_within(page, "#detail")
        page.get_by_role("button", name="Next lane").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")  # the last lane: the button cannot keep the focus
        expect(title).to_contain_text("lane 2")
        assert has_focus_within(page, "#detail")
        expect(page.locator("#detail-state")).to_contain_text("step 2")
        page.locator("#filter-family").evaluate("one => { one.value = 'catch'; one.dispatchEvent(new Event('input')) }")
        env.close()
        expect(page.locator("#detail-state")).to_contain_text("This world is gone")
        expect(page.get_by_role("button", name="Previous lane")).to_be_disabled()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save PNG").click()
        assert "lane2-eye-rgb-episode0-step2" in download.value.suggested_filename
        page.keyboard.press("ArrowLeft")
        expect(title).to_contain_text("lane 2")
        page.keyboard.press("Escape")
        assert page.locator("#filter-family").input_value() == "catch"  # the choice stays without such worlds


def test_a_human_who_waits_for_another(browser: Browser, server: ServerProcess) -> None:
    """The trial's `max_inactivity` of two seconds is over, and whoever waits is still there."""
    with opened(browser, f"{server.page}#trials") as page:
        page.get_by_role("button", name="Start a trial and play").click()
        page.locator("#play-screen").wait_for()
        expect(page.locator("#play-message")).to_have_text("Waiting for the other actors of the trial.")
        page.wait_for_timeout(4000)
        expect(page.locator("#play-message")).to_have_text("Waiting for the other actors of the trial.")
        page.get_by_role("button", name="Stop").click()
        page.locator("#play-seed").fill("9223372036854775807")
        page.get_by_role("button", name="Play", exact=True).click()
        expect(page.locator("#play-message")).to_contain_text(
            "The seed is 9223372036854775807: expected a number up to"
        )


def test_a_link_to_a_lane_leads_there_through_the_sign_in(browser: Browser, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse\n")
    tls = ("--tls-cert", str(CERTS / "server.pem"), "--tls-key", str(CERTS / "server-key.pem"))
    flags = ("--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--token-file", str(token), *tls, "--renderer", "cpu")
    access: dict[str, Any] = {"token": "correct-horse", "tls_ca": CERTS / "ca.pem"}
    with (
        ServerProcess(*flags) as server,
        VectorEnv(server.address, "catch", 2, observations=["eye.rgb"], **access) as env,
        opened(browser, "about:blank", ignore_https_errors=True) as page,
    ):
        env.reset(seed=0)
        page.goto(f"{server.page}#worlds/catch-0123456789ab/1")
        for word in ("wrong", "correct-horse"):
            page.get_by_label("Token").fill(word)
            page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{server.page}#worlds/catch-0123456789ab/1")
        expect(page.locator("#detail-title")).to_have_text("catch-0123456789ab lane 1")
        page.goto(server.page)
        page.locator("button.tile:not([hidden])").first.click()
        np.testing.assert_equal(pixels(page, "#detail-pictures canvas").shape[2], 3)
        for _ in range(3):
            page.reload()
        page.goto("about:blank")
        time.sleep(0.5)
        assert " ERROR " not in server.log, server.log
