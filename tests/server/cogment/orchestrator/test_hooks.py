"""Hooks that change a trial's parameters before it begins."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support.trial_services import CallLog, Code, FakeHook, hang, listening, run, status_of, trial_host
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.server.cogment.settings import HUMAN

Change = Callable[[TrialParams], None]


@contextlib.asynccontextmanager
async def hooked(*changes: Change) -> AsyncIterator[tuple[CallLog, list[FakeHook], tuple[str, ...]]]:
    """Hooks that change parameters, one after the other."""
    call_log = CallLog()
    async with contextlib.AsyncExitStack() as stack:
        hooks = [FakeHook(f"hook{place}", call_log, change) for place, change in enumerate(changes)]
        endpoints = [(await stack.enter_async_context(listening(hook)))[0] for hook in hooks]
        yield call_log, hooks, tuple(endpoints)


def nothing(_params: TrialParams) -> None:
    pass


def test_each_gets_what_the_one_before_it_made_of_the_parameters() -> None:
    def first(params: TrialParams) -> None:
        params.max_steps = 2
        params.trial_config.content += b"+1"

    def second(params: TrialParams) -> None:
        params.trial_config.content += b"+2"
        params.actors.add(actor_class="player", endpoint=HUMAN)
        params.actors[0].config.content = b"of the human"
        params.environment.config.content = b"of the world"

    async def scenario() -> None:
        async with hooked(first, second) as (call_log, _, endpoints), trial_host(pre_hooks=endpoints) as host:
            reply = await host.start("someone", b"config")
            assert call_log.calls() == ["hook0 PreTrial", "hook1 PreTrial"]
            to_first, to_second = call_log.of("hook0", "PreTrial")[0], call_log.of("hook1", "PreTrial")[0]
            for context in (to_first, to_second):
                assert (context.trial_id, context.user_id) == (reply.trial_id, "someone")
            assert to_first.params.max_steps == 0
            assert to_first.params.trial_config.content == b"config"
            assert [actor.endpoint for actor in to_first.params.actors] == [HUMAN]
            assert to_second.params.max_steps == 2
            assert to_second.params.trial_config.content == b"config+1"
            assert list(reply.actor_counts) == [2]
            assert reply.human_config.content == b"of the human"
            (start,) = host.call_log.of("env", "Start")
            assert start.trial_config.content == b"config+1+2"
            assert start.config.content == b"of the world"
            again = await host.start()
            assert list(again.actor_counts) == [2]  # the next trial starts from the file again, not from the last

    run(scenario)


def _no_actors(params: TrialParams) -> None:
    del params.actors[:]


def _unknown_class(params: TrialParams) -> None:
    params.actors[0].actor_class = "stranger"


def _bad_endpoint(params: TrialParams) -> None:
    params.actors[0].endpoint = "http://127.0.0.1:9000"


def _no_environment(params: TrialParams) -> None:
    params.ClearField("environment")


def _too_many_actors(params: TrialParams) -> None:
    for _ in range(4096):
        params.actors.add(actor_class="player", endpoint=HUMAN)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_no_actors, "0 actors: expected 1 to 4096"),
        (_too_many_actors, "4097 actors: expected 1 to 4096"),
        (_unknown_class, "actors[0].actor_class is 'stranger': expected one of player"),
        (_bad_endpoint, "actors[0].endpoint is 'http://127.0.0.1:9000': expected human or grpc://HOST:PORT"),
        (_no_environment, "environment.endpoint is '': expected worldloom or grpc://HOST:PORT"),
    ],
)
def test_parameters_that_cannot_be_are_told_with_the_hook_that_gave_them(change: Change, words: str) -> None:
    async def scenario() -> None:
        async with (
            hooked(nothing, change, nothing) as (call_log, _, endpoints),
            trial_host(pre_hooks=endpoints) as host,
        ):
            code, text = await status_of(host.start())
            assert code is Code.FAILED_PRECONDITION
            assert text == f"the hook at {endpoints[1]} returned invalid parameters: {words}"
            assert call_log.calls() == ["hook0 PreTrial", "hook1 PreTrial"]
            assert host.call_log.calls() == []
            assert host.trials.running_count == 0

    run(scenario)


async def forbid(_request: Any, context: Any) -> None:
    await context.abort(Code.PERMISSION_DENIED, "not today")


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        (forbid, Code.PERMISSION_DENIED, "PreTrial answered PERMISSION_DENIED: not today"),
        (hang, Code.DEADLINE_EXCEEDED, "PreTrial did not answer within 0.3 s (deadline_s)"),
    ],
)
def test_a_hook_that_refuses_or_is_late_keeps_the_trial_from_starting(how: Any, code: Code, words: str) -> None:
    async def scenario() -> None:
        async with hooked(nothing) as (_, hooks, endpoints), trial_host(pre_hooks=endpoints, deadline_s=0.3) as host:
            hooks[0].overrides["PreTrial"] = how
            assert await status_of(host.start()) == (code, f"the hook at {endpoints[0]}: {words}")
            assert host.call_log.calls() == []

    run(scenario)


def test_trials_that_hooks_are_asked_about_count() -> None:
    async def scenario() -> None:
        async with (
            hooked(nothing) as (call_log, hooks, endpoints),
            trial_host(pre_hooks=endpoints, max_trials=1) as host,
        ):
            hooks[0].overrides["PreTrial"] = hang
            first = host.stub.Start(api.TrialStartRequest())
            await call_log.until("hook0", "PreTrial")
            assert (await status_of(host.start()))[0] is Code.RESOURCE_EXHAUSTED
            first.cancel()
            hooks[0].overrides.clear()
            while host.trials._in_hooks:
                await asyncio.sleep(0)
            await host.start()

    run(scenario)
