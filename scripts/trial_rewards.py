"""Check that rewards add up to the world's, however trials end: `python -m scripts.trial_rewards`.

Trials of a human and two agents end in every way there is: by their world, by `max_steps`, by End, by silence, by
clients, agents and environments that fail or are killed, and by a server that stops. Each actor's rewards must add up
to those in the observations that the datalog has of it. Every agent must get each tick's reward once, then one End.
Prints a table; exits with 1 if a check failed.
"""

import argparse
import asyncio
import contextlib
import io
import itertools
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from dm_env_rpc.v1 import tensor_utils
from google.protobuf import proto

from scripts.report import Report
from scripts.support.server_process import ServerProcess
from scripts.support.stream_client import free_port
from scripts.trial_rewards_services import Agents, Hook, TrialLog, action_of, listening
from scripts.trials import Killer
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Action
from worldloom.protos.cogment.api.data_pb2 import DatalogSample
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialStub
from worldloom.protos.worldloom import trials_pb2

ENDS = (
    *("world", "max_steps", "client", "client_while_waiting", "silence", "vanished"),
    *("agent_fails", "agent_killed", "environment_killed"),
)
"""Ways to end; trials take turns."""
STOPS = "server_stops"
"""Way of the trials that run when the server stops."""
MAX_INACTIVITY_S = 1
MAX_TICKS = 1000
"""Ticks after which a client ends a trial that waits for a kill."""
_TIMEOUT_S = 120.0
_LIFE_S = 3.0
_PAUSE_S = 0.02
"""Pause after each tick of a trial that waits for a kill."""
FILE = """\
actor_classes: [{{id: player}}]
trial: {{pre_hooks: ["grpc://127.0.0.1:{services}"]}}
datalog: {{type: file, path: {folder}/datalog}}
trial_params:
  environment:
    config:
      world: {{family: maze, size: 5, goals: 16, speed: 1.0}}
      actor_classes: {{player: {{observations: [reward]}}}}
  actors:
    - {{actor_class: player, endpoint: human}}
    - {{actor_class: player, endpoint: "grpc://127.0.0.1:{services}"}}
    - {{actor_class: player, endpoint: "grpc://127.0.0.1:{services}"}}
"""


class Player:
    """The human of one trial."""

    def __init__(self, stub: Any, number: int, way: str, log: TrialLog) -> None:
        self._stub, self._way, self._log = stub, way, log
        self._rng = random.Random(number)
        self._ticks = self._rng.randint(1, 12)
        self._is_streaming = number % 2 == 0
        self._request = api.TrialStartRequest(user_id=f"{way} {self._ticks}")
        config = trials_pb2.TrialConfig()
        config.world_settings["seed"].CopyFrom(tensor_utils.pack_tensor(number))
        if way == "world":
            config.world_settings["max_steps"].CopyFrom(tensor_utils.pack_tensor(self._ticks))
        self._request.config.content = config.SerializeToString()
        self.trial_id = ""
        self._stream: Any = None

    async def play(self) -> None:
        """Run the trial until it has ended."""
        try:
            self.trial_id = (await self._stub.Start(self._request, timeout=_TIMEOUT_S)).trial_id
        except grpc.aio.AioRpcError as error:  # a killed agent or environment is not back yet
            if error.code() is not grpc.StatusCode.UNAVAILABLE or "killed" not in self._way:
                raise
            await asyncio.sleep(0.1)
            return
        self._log.humans[self.trial_id] = 0.0
        if self._is_streaming:
            self._stream = self._stub.ActionStream(timeout=_TIMEOUT_S)
        lasts = {"client", "client_while_waiting", "silence", "vanished"}
        ticks = self._ticks if self._way in lasts else MAX_TICKS
        for _ in range(ticks):
            if await self._act():
                self._log.ended_by_itself.add(self.trial_id)
                return
            await asyncio.sleep(_PAUSE_S if "killed" in self._way else 0)
        await self._end()

    async def _end(self) -> None:
        if self._way == "client_while_waiting":
            await asyncio.gather(self._act(), self._call_end())
        elif self._way == "vanished":
            action = asyncio.create_task(self._act())
            await asyncio.sleep(self._rng.choice([0, 0.001, 0.003]))
            if not action.done():
                del self._log.humans[self.trial_id]  # whether its last reply counts is anyone's guess
            action.cancel()
            await asyncio.gather(action, return_exceptions=True)
        elif self._way != "silence":
            await self._call_end()
        if self._stream is not None:
            self._stream.cancel()

    async def _call_end(self) -> None:
        await self._stub.End(api.TrialEndRequest(trial_id=self.trial_id), timeout=_TIMEOUT_S)

    async def _act(self) -> bool:
        """Act in one tick, add up its reward, and return whether the trial is over."""
        content = action_of(self._rng)
        request = api.TrialActionRequest(trial_id=self.trial_id, action=Action(content=content))
        try:
            if self._stream is None:
                reply = await self._stub.Action(request, timeout=_TIMEOUT_S)
            else:
                with contextlib.suppress(asyncio.InvalidStateError):  # a server that stops has ended the stream
                    if not await self._write(request):
                        return True
                reply = await self._stream.read()
        except grpc.aio.AioRpcError:
            if self._stream is not None:
                raise  # streams end with a reply
            return True
        if self.trial_id in self._log.humans:
            self._log.humans[self.trial_id] += reply.reward.value
        is_over: bool = reply.trial_is_over
        return is_over

    async def _write(self, request: api.TrialActionRequest) -> bool:
        """Write to the stream; return whether replies can still be read.

        They cannot if a server that stops has ended the stream at this very moment: then gRPC's client drops replies
        that it has received. What the last one would have told does not count.
        """
        assert self._stream is not None
        try:
            await self._stream.write(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.INTERNAL or "execute_batch" not in error.debug_error_string():
                raise
            self._log.humans.pop(self.trial_id, None)
            return False
        return True


@contextlib.asynccontextmanager
async def killed_again_and_again(port: int, file: Path, counts: Counter[str]) -> AsyncIterator[None]:
    """Serve environments at a port, by a server that is killed and started again."""

    async def run() -> None:
        while True:
            flags = ("--listen", f"127.0.0.1:{port}", "--cogment", str(file), "--log-level", "error")
            server = await asyncio.to_thread(ServerProcess, *flags)
            try:
                await asyncio.sleep(_LIFE_S)
            finally:
                server.kill()
            counts["environment_killed"] += 1

    running = asyncio.create_task(run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def run(trials: int, at_once: int) -> Report:
    """Run the whole test."""
    report, log, kills = Report(), TrialLog(), Counter[str]()
    services, doomed_agent, doomed_environment = free_port(), free_port(), free_port()
    endpoints = {
        "agent_killed": f"grpc://127.0.0.1:{doomed_agent}",
        "environment_killed": f"grpc://127.0.0.1:{doomed_environment}",
    }
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file, others = folder / "trial.yaml", folder / "others.yaml"
        file.write_text(FILE.format(services=services, folder=folder))
        others.write_text(FILE.format(services=services, folder=folder).replace("/datalog}", "/unused}"))
        await stack.enter_async_context(listening(services, Agents(log), Hook(log, endpoints, MAX_INACTIVITY_S)))
        server = await asyncio.to_thread(ServerProcess, "--cogment", str(file), "--log-level", "error")
        stack.callback(server.kill)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        stub = TrialStub(channel)
        killer = Killer(_LIFE_S, "trials_services", doomed_agent, f"grpc://127.0.0.1:{doomed_agent}")
        async with killed_again_and_again(doomed_environment, others, kills):
            await play_all(stub, trials, at_once, log)
        await asyncio.to_thread(killer.stop)
        await log.until_all_ended(_TIMEOUT_S)
        last = [asyncio.create_task(Player(stub, number, STOPS, log).play()) for number in range(at_once)]
        while STOPS not in log.rewarded_ways or sum(log.ways[one] == STOPS for one in log.started) < at_once:
            await asyncio.sleep(0.01)
        report.expect(await asyncio.to_thread(server.stop) == 0, f"the server failed: {server.log[-2000:]}")
        await asyncio.gather(*last)
        await log.until_all_ended(_TIMEOUT_S)
        report.row("killed", f"{killer.kills} agents, {kills['environment_killed']} environments")
        check(log, read_worlds(folder / "datalog"), report)
    return report


async def play_all(stub: Any, trials: int, at_once: int, log: TrialLog) -> None:
    """Play until so many trials have been started, and one was rewarded for each way to end."""
    numbers = itertools.count()

    async def play_some() -> None:
        for number in numbers:
            await Player(stub, number, ENDS[number % len(ENDS)], log).play()
            if len(log.started) >= trials and {*ENDS} <= log.rewarded_ways:
                return

    await asyncio.gather(*(play_some() for _ in range(at_once)))


def read_worlds(datalog: Path) -> dict[str, list[float]]:
    """Return the sum of the rewards of each actor by trial, from the observations in a datalog."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 3)
    stream = io.BytesIO(datalog.read_bytes())
    while (sample := proto.parse_length_prefixed(DatalogSample, stream)) is not None:
        observations = sample.observations
        for actor, index in enumerate(observations.actors_map):
            seen = trials_pb2.Observation.FromString(observations.observations[index].content)
            sums[sample.trial_id][actor] += seen.observations["reward"].floats.array[0]
    return sums


def check(log: TrialLog, worlds: dict[str, list[float]], report: Report) -> None:
    """Compare the rewards that actors got with those of their worlds."""
    report.problems += log.problems[:10]
    by_way: dict[str, Counter[str]] = defaultdict(Counter)
    for trial_id, way in log.ways.items():
        if trial_id not in log.started:
            continue  # an agent or environment that was killed kept it from starting
        counts = by_way[way]
        counts["trials"] += 1
        counts["rewarded"] += any(worlds[trial_id])
        counts["ended"] += trial_id in log.ended_by_itself
        found = {actor: total for (trial, actor), total in log.agents.items() if trial == trial_id}
        if trial_id in log.humans:
            found[0] = log.humans[trial_id]
        counts["sums"] += len(found)
        wrong = {actor: total for actor, total in found.items() if total != worlds[trial_id][actor]}
        expected = worlds[trial_id]
        report.expect(not wrong, f"{way}, trial {trial_id}: rewards of {wrong}: expected {expected} of actors 0, 1, 2")
    for way in (*ENDS, STOPS):
        counts = by_way[way]
        report.expect(counts["rewarded"] > 0, f"{way}: no trial with rewards: expected some")
        text = f"{counts['trials']} trials, {counts['ended']} ended before their client ended them"
        report.row(way, f"{text}; {counts['rewarded']} with rewards; {counts['sums']} sums compared")
    total = sum(counts["trials"] for counts in by_way.values())
    report.row("all", f"{total} trials, {sum(counts['sums'] for counts in by_way.values())} sums compared")


def main(given: list[str] | None = None) -> int:
    """Run the test and print its report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1000, help="number of trials (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=20, help="maximum of concurrent trials (default: %(default)s)")
    args = parser.parse_args(given)
    return asyncio.run(run(args.trials, args.at_once)).tell()


if __name__ == "__main__":
    sys.exit(main())
