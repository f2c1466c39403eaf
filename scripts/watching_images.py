"""Writes the pictures of docs/watching.md: the page in a browser, while clients step.

    python -m scripts.watching_images

Needs Debian's Chromium (`make browser`).
"""

import contextlib
import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from tests.support.browser import chromium, opened
from worldloom.client import VectorEnv
from worldloom.server.launch import ServerProcess

FOLDER = Path(__file__).parents[1] / "docs/watching"
WORLDS: tuple[tuple[str, int, dict[str, int | str]], ...] = (
    ("maze", 22, {"size": 5, "goals": 8}),
    ("catch", 11, {}),
    ("cartpole", 11, {}),
    ("maze", 6, {"size": 15, "goals": 9, "lighting": "random"}),
)
HISTORY_S = 75.0
"""Time for the charts to have something to show."""


@contextlib.contextmanager
def stepping(address: str) -> Iterator[None]:
    """Step all worlds, each by a client of its own."""
    has_ended = threading.Event()

    def play(family: str, lanes: int, settings: dict[str, int | str]) -> None:
        with VectorEnv(address, family, lanes, observations=["eye.rgb", "reward"], settings=settings) as env:
            env.reset(seed=2)
            env.action_space.seed(0)
            while not has_ended.wait(0.03):
                env.step(env.action_space.sample())

    threads = [threading.Thread(target=play, args=world) for world in WORLDS]
    for thread in threads:
        thread.start()
        time.sleep(0.3)  # worlds are listed in the order in which they are made
    try:
        yield
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()


def save(picture: bytes, name: str) -> None:
    """Write a screenshot."""
    FOLDER.mkdir(exist_ok=True)
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").save(FOLDER / name, optimize=True)


def main() -> None:
    """Take the pictures."""
    flags = ("--listen", "127.0.0.1:9000", "--web", "127.0.0.1:9080", "--web-control", "--renderer", "cpu")
    with ServerProcess(*flags) as server, stepping(server.address), chromium() as browser:
        with opened(browser, server.page, 1280, 800) as page:
            page.wait_for_timeout(4000)
            save(page.screenshot(), "worlds.png")
            page.locator("canvas[data-lane*='/cartpole-']").nth(3).click()
            page.locator("#detail-all").check()
            page.wait_for_timeout(25_000)
            save(page.screenshot(), "lane.png")
        with opened(browser, f"{server.page}#server", 1280, 800, color_scheme="dark") as page:
            page.wait_for_timeout(1000 * HISTORY_S)
            save(page.screenshot(), "server.png")


if __name__ == "__main__":
    main()
