"""A client that steps a world in the background and checks every reply, while others stress the server."""

import random
import threading

from scripts.support.catch_model import CatchModel
from scripts.support.stream_client import TIMEOUT_S, StreamClient
from worldloom.worlds.random import lane_seeds

LIFETIME_S = 280.0
SEED = 77


class BackgroundClient(threading.Thread):
    """A thread that steps catch on a separate stream and compares each reply with a model in plain Python."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._client = StreamClient(address, LIFETIME_S)
        self._model = CatchModel(int(lane_seeds(SEED, 1)[0]), rows=10, columns=5, max_steps=1000)
        self._changed = threading.Condition()
        self._steps = 0
        self._problem: BaseException | None = None
        self._is_over = False
        self.start()

    def check(self) -> None:
        """Raise AssertionError if a reply was wrong, or replies have stopped."""
        with self._changed:
            before = self._steps
            moved = self._changed.wait_for(lambda: self._problem is not None or self._steps >= before + 3, TIMEOUT_S)
            if self._problem is not None:
                raise AssertionError("a reply to the background client was wrong") from self._problem
            assert moved, "the background client gets no replies any more"

    def stop(self) -> None:
        """Check once more, and end the thread."""
        self.check()
        with self._changed:
            self._is_over = True
        self.join(TIMEOUT_S)
        self._client.close()

    def run(self) -> None:
        """Step until stopped."""
        try:
            self._client.join(self._client.create("catch", seed=SEED), width=8, height=8)
            rng = random.Random(0)
            while not self._is_over:
                self._step(rng.randrange(-1, 2))
        except BaseException as error:
            with self._changed:
                self._problem = error
                self._changed.notify_all()

    def _step(self, move: int) -> None:
        reply, expected = self._client.step("ball", "paddle", "reward", paddle=move), self._model.step(move)
        came = {name: value.tolist() for name, value in reply.observations.items()}
        wanted = {name: expected[name] for name in ("ball", "paddle", "reward")}
        if came != wanted:
            raise AssertionError(f"step {self._steps}: {came}, expected {wanted}")
        with self._changed:
            self._steps += 1
            self._changed.notify_all()
