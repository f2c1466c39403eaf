"""Rollouts that a learner keeps whole, against stepping with every frame thrown away."""

import contextlib
import time

import pytest

from worldloom.bench.load import worldloom_process
from worldloom.bench.measuring import Report
from worldloom.bench.players import LOCAL, SAME_MACHINE, Player

STEPS, LANES = 128, 256


@pytest.mark.parametrize("transport", ["local", SAME_MACHINE])
def bench_rollouts_kept_whole(report: Report, transport: str) -> None:
    with contextlib.ExitStack() as cleanup:
        where = LOCAL
        if transport != "local":
            where = (cleanup.enter_context(worldloom_process()).address, transport)
        discarding, keeping = (Player(where, "catch", LANES) for _ in range(2))
        for player in (discarding, keeping):
            cleanup.callback(player.env.close)
        rollout = keeping.env.rollout(STEPS)

        def discard(_: float) -> float:
            began_s = time.perf_counter()
            for _step in range(STEPS):
                discarding.env.step(next(discarding.actions))
            return STEPS * LANES / (time.perf_counter() - began_s)

        def keep(_: float) -> float:
            began_s = time.perf_counter()
            for _observations in rollout:
                keeping.env.step(next(keeping.actions), out=rollout)
            return STEPS * LANES / (time.perf_counter() - began_s)

        # A round is a whole rollout, however long it takes.
        rounds = report.in_turn({"kept": keep, "discarded": discard}, 0.0, compared=("kept", "discarded"))
    report.ratio_row(
        f"catch, {STEPS} steps of {LANES} lanes, 64² rgb, {transport}, kept as a rollout against discarded",
        rounds.ratio("kept", "discarded"),
        f"{rounds.rate('kept'):,.0f} against {rounds.rate('discarded'):,.0f} frames/s",
        at_least=0.95,
    )
