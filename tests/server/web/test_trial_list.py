"""Trials as people who watch see them, and the places that they take in them."""

import asyncio
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.served_page import running_engine
from tests.support.trial_services import TrialHost, run, trial_host
from worldloom.protos.errors import NotFound
from worldloom.server.cogment.orchestrator import trials as trials_module
from worldloom.server.cogment.settings import HUMAN
from worldloom.server.config import Limits, WebOptions
from worldloom.server.engine.engine import Engine
from worldloom.server.transports.open_streams import OpenStreams
from worldloom.server.web.playing import TrialGame
from worldloom.server.web.trial_list import TrialList
from worldloom.server.web.watched_server import WatchedServer
from worldloom.server.web.world_list import WorldList


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine() as made:
        yield made


def server_of(engine: Engine, host: TrialHost) -> WatchedServer:
    """A server with the trials of a host, whose worlds are not in its engine."""
    server = WatchedServer(engine, WebOptions(web_control=True), OpenStreams(Limits()), lambda: 0)
    server.trials, server.loop = host.trials, asyncio.get_running_loop()
    return server


def test_no_place_is_taken_in_a_trial_whose_world_is_elsewhere(engine: Engine) -> None:
    async def scenario() -> None:
        async with trial_host((HUMAN, HUMAN)) as host:
            trial = (await host.start()).trial_id
            server = server_of(engine, host)
            with pytest.raises(NotFound, match="the world of this trial is on another server"):
                await TrialGame.begin(server, trial)
            (found,) = (await host.trials.summary())["running"]
            assert [actor["has_joined"] for actor in found["actors"]] == [True, False]
            with pytest.raises(NotFound, match="no such"):
                await TrialGame.begin(server, "no such")

    run(scenario)


def test_the_newest_trials_are_listed(engine: Engine) -> None:
    """All of them are counted, and all viewers get the same summary."""

    async def scenario() -> None:
        async with trial_host((HUMAN,)) as host:
            started = [(await host.start()).trial_id for _ in range(5)]
            shared = TrialList(server_of(engine, host), WorldList(engine))
            with (
                patch.object(trials_module, "_MAX_LISTED_RUNNING", 3),
                patch.object(host.trials, "summary", wraps=host.trials.summary) as summary,
            ):
                found: list[Any] = await asyncio.gather(*(shared.message() for _ in range(20)))
            assert summary.call_count == 1
            assert all(message is found[0] for message in found)
            assert [trial["id"] for trial in found[0]["running"]] == started[-3:]
            assert (found[0]["running_count"], found[0]["ended"], found[0]["can_start"]) == (5, [], True)

    run(scenario)
