"""A real browser for tests of the live view: Debian's Chromium, driven by Playwright."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

ROOT = Path(__file__).parents[2]
AXE = ROOT / "build/axe/node_modules/axe-core/axe.min.js"
CHROMIUM = "/usr/bin/chromium"
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
_PIXELS = """canvas => {
    const {width, height} = canvas
    const data = canvas.getContext("2d").getImageData(0, 0, width, height).data
    let text = ""
    for (let at = 0; at < data.length; at += 8192) text += String.fromCharCode(...data.subarray(at, at + 8192))
    return [width, height, btoa(text)]
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser without a screen."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, url: str, width: int = 1280, height: int = 800, **context: Any) -> Iterator[Page]:
    """Open a page in a profile of its own; errors of its scripts, and what its policy forbids, fail the test."""
    profile = browser.new_context(viewport={"width": width, "height": height}, **context)
    problems: list[str] = []
    try:
        page = profile.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.extend(_policy_violations(message)))
        page.goto(url)
        yield page
    finally:
        profile.close()
    assert problems == []


def _policy_violations(message: ConsoleMessage) -> list[str]:
    return [message.text] if "Content Security Policy" in message.text else []


def pixels(page: Page, selector: str) -> np.ndarray:
    """Return the pixels of a canvas, [height, width, 3]."""
    width, height, data = page.locator(selector).evaluate(_PIXELS)
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)[..., :3]


def axe_violations(page: Page) -> list[str]:
    """Return what axe-core finds in a page, with the elements."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'][:200] for node in violation['nodes'][:3]]}"
        for violation in found["violations"]
    ]
