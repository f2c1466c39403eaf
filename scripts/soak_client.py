"""The clients of the soak: one process with many streams, each of which checks every answer it gets.

    python -m scripts.soak_client ROLE ADDRESS FIRST COUNT SECONDS

Roles: `steady` steps its streams FIRST to FIRST + COUNT for that long; `churn` connects, creates, steps and destroys
over and over; `doomed` steps until it is killed. It prints `ready`, begins when a line comes in, and prints what it
found as a line of JSON.
"""

import asyncio
import itertools
import json
import random
import sys
import time
from collections import deque
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils

from scripts.soak_course import BAD, RESET, SIDE, Step, course, digest, kind_of, world_seed

METHOD = "/dm_env_rpc.v1.Environment/Process"
_STREAMS_ON_A_CONNECTION = 8
_UNKNOWN_UID = 4_000_000_007
_MOST_PROBLEMS = 5


class Client:
    """One stream. `problems` fills with what was not as it should be."""

    def __init__(self, channel: grpc.aio.Channel, number: int, problems: list[str]) -> None:
        self.number, self.kind = number, kind_of(number)
        self.call = channel.stream_stream(METHOD)()
        self.world = ""
        self.steps = self.refusals = 0
        self.digests: list[int] = []
        self._problems = problems
        self._state = rpc.INTERRUPTED
        self._specs: dict[str, rpc.TensorSpec] = {}
        self._uids: dict[str, int] = {}
        self._actions: dict[str, int] = {}
        self._course = course(number)

    async def ask(self, **payload: Any) -> rpc.EnvironmentResponse:
        """The answer to one request."""
        await self._send(**payload)
        return await self._read()

    async def create(self) -> str:
        """Make a world of its kind."""
        settings = {"family": self.kind.family, "seed": world_seed(self.number), **self.kind.settings}
        if self.kind.lanes is not None:
            settings["lanes"] = self.kind.lanes
        packed = {name: tensor_utils.pack_tensor(value) for name, value in settings.items()}
        self.world = (await self.ask(create_world=rpc.CreateWorldRequest(settings=packed))).create_world.world_name
        self._expect(self.world.startswith(self.kind.family), "a world's name")
        return self.world

    async def join(self, world: str) -> None:
        """Go in, as whichever agent is next."""
        self.world = world
        size = {side: tensor_utils.pack_tensor(SIDE) for side in ("width", "height")}
        response = await self.ask(join_world=rpc.JoinWorldRequest(world_name=world, settings=size))
        specs = response.join_world.specs
        self._specs = {spec.name: spec for spec in specs.observations.values()}
        self._uids = {spec.name: uid for uid, spec in specs.observations.items()}
        self._actions = {spec.name: uid for uid, spec in specs.actions.items()}
        self._expect({*self.kind.observations, "eye.rgb"} <= self._specs.keys(), "the specs")

    async def run(self, deadline_s: float) -> None:
        """Follow its course until then, with as many requests under way as its kind has."""
        under_way: deque[Step | str] = deque()
        while under_way or time.monotonic() < deadline_s:
            while len(under_way) < self.kind.depth and time.monotonic() < deadline_s:
                deed = next(self._course)
                await self._do(deed)
                under_way.append(deed)
            self._check(under_way.popleft(), await self._read())

    async def leave(self, destroy: bool) -> None:
        """Go out, and take the world along."""
        answer = await self.ask(leave_world=rpc.LeaveWorldRequest())
        self._expect(answer.WhichOneof("payload") == "leave_world", f"{answer} for leaving")
        if destroy:
            answer = await self.ask(destroy_world=rpc.DestroyWorldRequest(world_name=self.world))
            self._expect(answer.WhichOneof("payload") == "destroy_world", f"{answer} for destroying")

    async def _send(self, **payload: Any) -> None:
        await self.call.write(rpc.EnvironmentRequest(**payload).SerializeToString())

    async def _read(self) -> rpc.EnvironmentResponse:
        data = await self.call.read()
        if data is grpc.aio.EOF:
            raise ConnectionError(f"stream {self.number} has ended: {await self.call.details()}")
        return rpc.EnvironmentResponse.FromString(data)

    async def _do(self, deed: Step | str) -> None:
        if deed == BAD:
            await self._send(step=rpc.StepRequest(requested_observations=[_UNKNOWN_UID]))
        elif deed == RESET:
            await self._send(reset=rpc.ResetRequest())
        else:
            assert isinstance(deed, Step)
            actions = {self._actions[name]: tensor_utils.pack_tensor(value) for name, value in deed.actions.items()}
            see = [self._uids[name] for name in deed.see]
            await self._send(step=rpc.StepRequest(actions=actions, requested_observations=see))

    def _check(self, deed: Step | str, answer: rpc.EnvironmentResponse) -> None:
        kind = answer.WhichOneof("payload")
        if deed == BAD:
            self.refusals += 1
            self._expect(kind == "error" and str(_UNKNOWN_UID) in answer.error.message, f"{kind} for a bad request")
        elif deed == RESET:
            self._expect(kind == "reset" and len(answer.reset.specs.observations) == len(self._specs), "a reset")
            self._state = rpc.INTERRUPTED
            self.digests.append(-1)
        elif self._expect(kind == "step", f"{answer} for a step"):
            assert isinstance(deed, Step)
            self._check_step(deed, answer.step)

    def _check_step(self, deed: Step, step: rpc.StepResponse) -> None:
        legal = {rpc.RUNNING} if self._state != rpc.RUNNING else {rpc.RUNNING, rpc.TERMINATED, rpc.INTERRUPTED}
        self._expect(step.state in legal, f"state {step.state} after {self._state}")
        self._state = step.state
        asked = {self._uids[name] for name in deed.see}
        if not self._expect(step.observations.keys() == asked, f"{list(step.observations)}, asked for {asked}"):
            return
        seen = {}
        for name in deed.see:
            tensor, spec = step.observations[self._uids[name]], self._specs[name]
            value = np.asarray(tensor_utils.unpack_tensor(tensor))
            right = tensor.shape == spec.shape and value.dtype == tensor_utils.data_type_to_np_type(spec.dtype)
            self._expect(right, f"{name} as {value.dtype} {list(tensor.shape)}")
            seen[name] = value
        self.digests.append(digest(step.state, seen))
        self.steps += 1

    def _expect(self, holds: bool, text: str) -> bool:
        if not holds and len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(f"stream {self.number} ({self.kind.name}), step {self.steps}: got {text}"[:300])
        return holds


class Crowd:
    """All streams of this process."""

    def __init__(self, address: str) -> None:
        self.problems: list[str] = []
        self._address = address
        self._channels: list[grpc.aio.Channel] = []
        self._opened = 0

    def open(self, number: int) -> Client:
        """Another stream; some share a connection."""
        if self._opened % _STREAMS_ON_A_CONNECTION == 0:
            options = [("grpc.use_local_subchannel_pool", 1)]
            self._channels.append(grpc.aio.insecure_channel(self._address, options=options))
        self._opened += 1
        return Client(self._channels[-1], number, self.problems)

    async def join(self, numbers: range) -> list[Client]:
        """Streams in their worlds. Whoever shares one is the agent that its number says."""
        clients = [self.open(number) for number in numbers]
        sharing: dict[int, str] = {}
        for client in clients:
            seed = world_seed(client.number)
            if client.kind.agents == 1 or seed not in sharing:
                sharing[seed] = await client.create()
            await client.join(sharing[seed])
        return clients

    async def steady(self, numbers: range, seconds: float) -> dict[str, Any]:
        """Step for so long; then some leave and destroy their world, and the others just go."""
        clients = await self.join(numbers)
        await _wait_for_a_line()
        deadline_s = time.monotonic() + seconds
        await asyncio.gather(*(self._run_one(client, deadline_s) for client in clients))
        return {
            "steps": {client.number: client.steps for client in clients},
            "refusals": sum(client.refusals for client in clients),
            "digests": {client.number: client.digests for client in clients},
        }

    async def _run_one(self, client: Client, deadline_s: float) -> None:
        await client.run(deadline_s)
        if client.kind.agents > 1 or client.number % 2:
            await client.leave(destroy=client.kind.agents == 1)
        else:
            client.call.cancel()

    async def churn(self, numbers: range, seconds: float) -> dict[str, Any]:
        """Come and go: every life of a stream is short, and some end without a word."""
        await _wait_for_a_line()
        deadline_s = time.monotonic() + seconds
        lives = itertools.count()
        rng = random.Random(0)

        async def come_and_go(number: int) -> None:
            while time.monotonic() < deadline_s:
                next(lives)
                async with grpc.aio.insecure_channel(self._address) as channel:
                    client = Client(channel, number, self.problems)
                    await client.join(await client.create())
                    await client.run(time.monotonic() + rng.uniform(0.05, 0.5))
                    if rng.random() < 0.5:
                        await client.leave(destroy=True)

        await asyncio.gather(*(come_and_go(number) for number in numbers))
        return {"lives": next(lives)}

    async def doomed(self, numbers: range, seconds: float) -> dict[str, Any]:
        """Step until the end, which comes from outside."""
        clients = await self.join(numbers)
        await _wait_for_a_line()
        await asyncio.gather(*(client.run(time.monotonic() + seconds) for client in clients))
        return {}


async def _wait_for_a_line() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def _main(role: str, address: str, first: int, count: int, seconds: float) -> None:
    crowd = Crowd(address)
    found = await getattr(crowd, role)(range(first, first + count), seconds)
    print(json.dumps({**found, "problems": crowd.problems}), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
