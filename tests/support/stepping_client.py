"""A client in a process of its own that steps many lanes, and tells its steps and the time of the longest.

python -m tests.support.stepping_client ADDRESS LANES
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple, Self

ROOT = Path(__file__).parents[2]


class Pace(NamedTuple):
    """Steps since the last question."""

    steps: int
    seconds: float
    longest_s: float


class SteppingClient:
    """The process, as its owner sees it."""

    def __init__(self, address: str, lanes: int) -> None:
        command = [sys.executable, "-m", "tests.support.stepping_client", address, str(lanes)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
        )
        self.pace()

    def pace(self) -> Pace:
        """How it went since the last question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        return Pace(*json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=20)
        assert self._process.returncode == 0


def main(address: str, lanes: str) -> None:
    """Step until stdin ends."""
    from worldloom.client.vector_env import VectorEnv

    questions: list[str] = []
    is_over = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            questions.append(line)
        is_over.set()

    env = VectorEnv(address, "maze", int(lanes), settings={"size": 9}, observations=["eye.rgb"])
    env.reset(seed=1)
    actions = env.action_space.sample()
    threading.Thread(target=read, daemon=True).start()
    began_s, steps, longest_s = time.monotonic(), 0, 0.0
    while not is_over.is_set():
        before_s = time.monotonic()
        env.step(actions)
        now_s = time.monotonic()
        steps, longest_s = steps + 1, max(longest_s, now_s - before_s)
        if questions:
            questions.pop()
            print(json.dumps([steps, now_s - began_s, longest_s]), flush=True)
            began_s, steps, longest_s = now_s, 0, 0.0
    env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
