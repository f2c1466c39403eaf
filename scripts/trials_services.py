"""The agents and the hook of `python -m scripts.trials`, in a process of their own.

    python -m scripts.trials_services PORT HOOKED

An agent's action is a function of its pixels. The hook directs trials to the agents at one of the endpoints of HOOKED,
which are separated by commas: those of user `doomed…` to the last, all others to the first. The process prints `ready`,
and for each line that it reads the number of actors that it serves.
"""

# ruff: noqa: D102, N802  # the services' own names

import asyncio
import sys
import zlib
from typing import Any

import grpc

from worldloom.protos.cogment.api import agent_pb2 as api
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from worldloom.protos.cogment.api.common_pb2 import Action
from worldloom.protos.cogment.api.hooks_pb2 import TrialContext
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksServicer, add_TrialHooksServicer_to_server
from worldloom.protos.worldloom import trials_pb2

DOOMED = "doomed"
"""Start of the names of users whose agents are killed."""


class Agents(AgentServicer):
    """An Agent service that keeps the last observation of each actor."""

    def __init__(self) -> None:
        self.observations: dict[tuple[str, int], trials_pb2.Observation] = {}

    async def Start(self, request: api.AgentStartRequest, context: Any) -> api.AgentStartReply:
        self.observations[request.trial_id, request.actor_id] = trials_pb2.Observation()
        return api.AgentStartReply()

    async def Decide(self, request: api.AgentDecideRequest, context: Any) -> api.AgentDecideReply:
        observation = self.observations.get((request.trial_id, request.actor_id))
        if observation is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "the trial is unknown: this agent was restarted")
        assert observation is not None
        if request.observation.data.snapshot:
            observation.Clear()
        observation.MergeFromString(request.observation.data.content)
        pixels = observation.observations["eye.rgb"].uint8s.array
        return api.AgentDecideReply(action=Action(content=action_of(zlib.crc32(pixels))))

    async def Reward(self, request: api.AgentRewardRequest, context: Any) -> api.AgentRewardReply:
        return api.AgentRewardReply()

    async def OnMessage(self, request: api.AgentOnMessageRequest, context: Any) -> api.AgentOnMessageReply:
        return api.AgentOnMessageReply()

    async def End(self, request: api.AgentEndRequest, context: Any) -> api.AgentEndReply:
        self.observations.pop((request.trial_id, request.actor_id), None)
        return api.AgentEndReply()


class Hook(TrialHooksServicer):
    """A hook that chooses the endpoint of the agents."""

    def __init__(self, endpoints: list[str]) -> None:
        self._endpoints = endpoints

    async def PreTrial(self, request: TrialContext, context: Any) -> TrialContext:
        request.params.actors[1].endpoint = self._endpoints[-1 if request.user_id.startswith(DOOMED) else 0]
        return request


def action_of(digest: int) -> bytes:
    """Return the content of an action that depends on a number."""
    message = trials_pb2.Action()
    message.actions["turn"].floats.array.append(digest % 5 / 2 - 1)
    message.actions["move"].floats.array.extend([1.0, digest % 3 - 1])
    message.actions["move"].shape.append(2)
    data: bytes = message.SerializeToString()
    return data


async def main(port: int, endpoints: list[str]) -> None:
    """Serve until stdin ends."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    agents = Agents()
    add_AgentServicer_to_server(agents, server)
    add_TrialHooksServicer_to_server(Hook(endpoints), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(len(agents.observations), flush=True)
    await server.stop(grace=None)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2].split(",")))
