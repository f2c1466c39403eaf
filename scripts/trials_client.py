"""The clients of `python -m scripts.trials`: one process that runs many trials concurrently.

    python -m scripts.trials_client USER ADDRESS TRIALS AT_ONCE TICKS SEEDS

Each trial runs for TICKS ticks and is ended by its client, unless it ends before. Its seed is its number modulo SEEDS,
so that many trials have the same seed. The process prints `ready`, starts no more trials when it reads a line, and
prints its results as a line of JSON.
"""

import asyncio
import json
import sys
import zlib
from collections import Counter
from typing import Any

import grpc
from dm_env_rpc.v1 import tensor_utils

from scripts.trials_services import action_of
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Action, Observation
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialStub
from worldloom.protos.worldloom import trials_pb2

_TIMEOUT_S = 60.0
_CONNECTIONS = 4
_PAUSE_S = 0.1
"""Pause after a failure, until a killed service runs again."""


class TrialClient:
    """A client that runs trials one after another."""

    def __init__(self, user: str, stub: Any, ticks: int, seeds: int) -> None:
        self._user, self._stub, self._ticks, self._seeds = user, stub, ticks, seeds
        self.finished: list[tuple[int, int, int]] = []
        """(seed, ticks, digest of all observations) of each trial that finished."""
        self.problems: list[str] = []
        self.endings: Counter[str] = Counter()
        """Number of the other trials by status."""

    async def run_trial(self, number: int) -> None:
        """Run one trial and add its result."""
        seed = number % self._seeds
        try:
            self.finished.append((seed, *await self._run(seed)))
        except grpc.aio.AioRpcError as error:
            self.endings[error.code().name] += 1
            self.problems.append(f"trial {number} of {self._user}: {error.code().name}: {error.details()}"[:300])
            await asyncio.sleep(_PAUSE_S)

    async def _run(self, seed: int) -> tuple[int, int]:
        config = trials_pb2.TrialConfig()
        config.world_settings["seed"].CopyFrom(tensor_utils.pack_tensor(seed))
        request = api.TrialStartRequest(user_id=self._user)
        request.config.content = config.SerializeToString()
        start = await self._stub.Start(request, timeout=_TIMEOUT_S)
        digest, is_over, tick = self._add_observation(start.observation, 0, 0), False, 0
        while not is_over and tick < self._ticks:
            tick += 1
            action = api.TrialActionRequest(
                trial_id=start.trial_id, actor_id=start.actor_id, action=Action(content=action_of(seed + tick))
            )
            reply = await self._stub.Action(action, timeout=_TIMEOUT_S)
            digest, is_over = self._add_observation(reply.observation, tick, digest), reply.trial_is_over
        await self._stub.End(api.TrialEndRequest(trial_id=start.trial_id), timeout=_TIMEOUT_S)
        return tick, digest

    def _add_observation(self, observation: Observation, tick: int, digest: int) -> int:
        if observation.tick_id != tick or not observation.data.snapshot:
            self.problems.append(f"tick {observation.tick_id}, snapshot {observation.data.snapshot}: expected {tick}")
        return zlib.crc32(observation.data.content, digest)


async def main(user: str, address: str, trials: int, at_once: int, ticks: int, seeds: int) -> None:
    """Run all trials and print the results."""
    numbers = iter(range(trials))
    channels = [
        grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(_CONNECTIONS)
    ]
    clients = [TrialClient(user, TrialStub(channels[one % len(channels)]), ticks, seeds) for one in range(at_once)]

    stop_line = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))

    async def run_trials(client: TrialClient) -> None:
        for number in numbers:
            if stop_line.done() and stop_line.result():
                return
            await client.run_trial(number)

    for channel in channels:
        await asyncio.wait_for(channel.channel_ready(), _TIMEOUT_S)
    print("ready", flush=True)
    await asyncio.gather(*map(run_trials, clients))
    for channel in channels:
        await channel.close()
    results = {
        "finished": [one for client in clients for one in client.finished],
        "problems": [one for client in clients for one in client.problems],
        "endings": sum((client.endings for client in clients), Counter()),
    }
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    user, address, *numbers = sys.argv[1:]
    asyncio.run(main(user, address, *map(int, numbers)))
