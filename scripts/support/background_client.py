"""Someone who steps a world all the while, whatever others do to the server, and knows what the answers must be."""

import random
import threading

from scripts.support.stream_client import TIMEOUT_S, Wire
from tests.support.catch_model import CatchModel
from worldloom.worlds.random import lane_seeds

LIFETIME_S = 280.0
SEED = 77


class Witness(threading.Thread):
    """Steps catch on a stream of its own and compares each answer with a plain model."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(address, LIFETIME_S)
        self._model = CatchModel(int(lane_seeds(SEED, 1)[0]), rows=10, columns=5, max_steps=1000)
        self._changed = threading.Condition()
        self._steps = 0
        self._problem: BaseException | None = None
        self._is_over = False
        self.start()

    def check(self) -> None:
        """It was never told anything wrong, and is still being answered."""
        with self._changed:
            before = self._steps
            moved = self._changed.wait_for(lambda: self._problem is not None or self._steps >= before + 3, TIMEOUT_S)
            if self._problem is not None:
                raise AssertionError("the witness was harmed") from self._problem
            assert moved, "the witness is not answered any more"

    def stop(self) -> None:
        self.check()
        with self._changed:
            self._is_over = True
        self.join(TIMEOUT_S)
        self._wire.close()

    def run(self) -> None:
        try:
            self._wire.join(self._wire.create("catch", seed=SEED), width=8, height=8)
            rng = random.Random(0)
            while not self._is_over:
                self._step(rng.randrange(-1, 2))
        except BaseException as error:
            with self._changed:
                self._problem = error
                self._changed.notify_all()

    def _step(self, move: int) -> None:
        told, expected = self._wire.step("ball", "paddle", "reward", paddle=move), self._model.step(move)
        came = {name: value.tolist() for name, value in told.seen.items()}
        wanted = {name: expected[name] for name in ("ball", "paddle", "reward")}
        if came != wanted:
            raise AssertionError(f"step {self._steps}: {came}, expected {wanted}")
        with self._changed:
            self._steps += 1
            self._changed.notify_all()
