"""Recording of the source files that a request passes, across threads, for comparison with docs/architecture.md."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
NOT_ON_THE_PATH = {"server/engine/timing.py", "server/logs.py", "server/engine/inbox.py"}
"""Files that measure, report, or hold calls between threads, and do not handle the request."""


class CallPath:
    """Files of worldloom in the order in which their functions are first called, from the first file on."""

    def __init__(self, first: str) -> None:
        self.first = first
        self.files: list[str] = []
        self.is_recording = False

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        """Note the file of a called function; a profile function of all threads."""
        if self.is_recording and event == "call":
            path = frame.f_code.co_filename
            if path.startswith(str(ROOT)):
                name = path.removeprefix(f"{ROOT}/")
                if name in self.files or name.startswith((".venv", "tests/", "scripts/")):
                    return
                if self.files or name == self.first:  # before that, the engine may look whether there is work
                    self.files.append(name)

    def until(self, last: str) -> list[str]:
        """Return the files up to and including the last one."""
        files = [name for name in self.files if name not in NOT_ON_THE_PATH]
        return files[: files.index(last) + 1]


@contextmanager
def recorded_threads(first: str) -> Iterator[CallPath]:
    """Record all threads that are started within the block, from a call into the first file on."""
    path = CallPath(first)
    previous: Callable[..., Any] | None = threading.getprofile()
    threading.setprofile(path.record)
    try:
        yield path
    finally:
        threading.setprofile(previous)


def documented_path(heading: str) -> list[str]:
    """Return the files in the drawing below a heading of docs/architecture.md, in order."""
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    drawing = section.partition("```mermaid\n")[2].partition("```")[0]
    return re.findall(r'\["([\w/]+\.py)', drawing)
