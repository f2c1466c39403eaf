"""A long random game of streams, worlds, resets and agents, each answer compared with the model of the protocol.

    python -m scripts.chaos --steps 100000

An engine and its sessions run in this process, without sockets. Streams open, join, step, reset themselves and any
world, their own or another, leave, destroy worlds, send nonsense and end at any time, several requests a tick. The
model (scripts/support/protocol_model.py) knows nothing of the server. With the same seed the game is the same.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable

from scripts.report import Report
from scripts.support.protocol_driver import NONSENSE, ProtocolDriver
from scripts.support.protocol_model import KINDS
from worldloom.render.cpu import CPURenderer

_MOVES_EACH = 400
"""Moves after which a new engine is taken, so that a problem can be found by its seed in a short time."""


def play(driver: ProtocolDriver, rng: random.Random, counts: "Counter[str]") -> None:
    """Make some hundred random moves."""

    def number() -> int:
        return rng.randrange(20)

    def mostly() -> bool:
        return rng.random() < 0.9

    def some(*values: int | None) -> int | None:
        return rng.choice(values)

    moves: list[tuple[int, str, Callable[[], None]]] = [
        (4, "step", lambda: driver.step(number(), mostly(), mostly(), rng.random() < 0.1, rng.random() < 0.6)),
        (4, "step", lambda: driver.step_everyone_in_a_world(number(), rng.random() < 0.1, rng.random() < 0.6)),
        (6, "step", lambda: driver.step_everyone(rng.random() < 0.1)),
        (2, "step", lambda: driver.step_all_but_one(number())),
        (1, "open", driver.open),
        (1, "create", lambda: driver.create(number(), rng.choice(KINDS), mostly(), mostly())),
        (3, "join", lambda: driver.join(number(), number(), some(None, 0, 1, 2), mostly(), mostly())),
        (1, "reset", lambda: driver.reset(number(), some(None, None, 0, 3), rng.random() < 0.6)),
        (
            3,
            "reset world",
            lambda: driver.reset_world(
                number(),
                number(),
                mostly(),
                rng.random() < 0.1,
                rng.random() < 0.6,
                max_steps=some(None, 1, 2, 3, 4),
                seed=some(None, None, 1, 2),
            ),
        ),
        (1, "leave", lambda: driver.leave(number(), rng.random() < 0.3, mostly())),
        (1, "destroy", lambda: driver.destroy(number(), number(), rng.random() < 0.15, mostly())),
        (1, "read", lambda: driver.read(number(), mostly())),
        (1, "nonsense", lambda: driver.nonsense(number(), rng.choice(NONSENSE), mostly())),
        (1, "close", lambda: driver.close(number(), rng.random() < 0.2, mostly())),
        (1, "tick", driver.tick),
    ]
    weights = [weight for weight, _, _ in moves]
    driver.begin([rng.choice(KINDS) for _ in range(3)], [number() for _ in range(5)])
    for _, name, move in rng.choices(moves, weights, k=_MOVES_EACH):
        move()
        driver.nobody_is_lost()
        counts[name] += 1
        counts["waits that cross"] += driver.model.is_crossed
        counts["interrupted while it waited"] += any(agent.must_be_told for agent in driver.model.everyone_in())
    driver.teardown()


def run(steps: int, seed: int) -> Report:
    """Play until so many steps have been answered."""
    report = Report()
    counts: Counter[str] = Counter()
    done = games = 0
    began_s = time.monotonic()
    with CPURenderer() as renderer:
        while done < steps and not report.problems:
            driver = ProtocolDriver(renderer)
            try:
                play(driver, random.Random(seed + games), counts)
            except AssertionError as difference:
                report.expect(False, f"seed {seed + games}: {difference}")
            done += driver.steps
            games += 1
    verdict = "not as the model says" if report.problems else "every one as the model says"
    report.row("steps answered", f"{done} in {games} games and {time.monotonic() - began_s:.0f} s, {verdict}")
    for name, count in sorted(counts.items()):
        report.row(name, f"{count} moves")
    return report


def main(given: list[str] | None = None) -> int:
    """Run the game and print its report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000, help="steps to be answered (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first game (default: %(default)s)")
    args = parser.parse_args(given)
    return run(args.steps, args.seed).tell()


if __name__ == "__main__":
    sys.exit(main())
