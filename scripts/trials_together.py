"""Trials that all advance at once, as another orchestrator may have them: how many the engine draws together."""

import asyncio

import grpc
from dm_env_rpc.v1.connection import Connection
from dm_env_rpc.v1.extensions.properties import PropertiesExtension

from scripts.report import Report
from scripts.trials_services import action_of
from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub

ACTORS = 2
"""Of each trial."""
_TIMEOUT_S = 60.0


def advance_together(address: str, trials: int, ticks: int, report: Report) -> None:
    """Play so many trials of the server's own configuration in step, and tell how they were drawn."""
    names = ("ticks", "steps", "draws", "frames.rgb")
    with grpc.insecure_channel(address) as channel:
        properties = PropertiesExtension(Connection(channel))
        before = {name: int(properties[f"counters.{name}"]) for name in names}
        asyncio.run(_advance(address, trials, ticks))
        grown = {name: int(properties[f"counters.{name}"]) - before[name] for name in names}
    batch = grown["steps"] / max(grown["ticks"], 1)
    drawn = grown["frames.rgb"] / max(grown["draws"], 1)
    report.row(f"{trials} advanced at once", f"batches of {batch:.1f} steps on average, {drawn:.1f} pictures a draw")
    report.expect(grown["steps"] == ACTORS * trials * (ticks + 1), f"{grown['steps']} steps of trials in step")
    report.expect(batch > 2 * ACTORS, f"batches of {batch:.1f} steps: expected more than those of two trials")


async def _advance(address: str, trials: int, ticks: int) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = EnvironmentStub(channel)
        ids = [f"together-{number}" for number in range(trials)]
        starts = [api.EnvStartRequest(trial_id=one, actor_counts=[1] * ACTORS) for one in ids]
        await asyncio.gather(*(stub.Start(start, timeout=_TIMEOUT_S) for start in starts))
        for tick in range(ticks):
            actions = api.ActionSet(actions=[action_of(tick)] * ACTORS)
            updates = [api.EnvUpdateRequest(trial_id=one, action_set=actions) for one in ids]
            replies = await asyncio.gather(*(stub.Update(update, timeout=_TIMEOUT_S) for update in updates))
            assert all(reply.observation_set.tick_id == tick + 1 for reply in replies)
        await asyncio.gather(*(stub.End(api.EnvEndRequest(trial_id=one), timeout=_TIMEOUT_S) for one in ids))
